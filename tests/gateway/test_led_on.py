"""A granted request that is led to another location: whatever that location says, the request goes to one server, once."""
import pytest

from harness import expect
from harness.upstream import answer, refusing_address

METHODS = ["POST", "PATCH", "PUT", "DELETE"]
GUARD = "once on; once_scope none; once_methods POST PATCH PUT DELETE; once_recover hold;"
ANY = "proxy_next_upstream error timeout http_502 non_idempotent;"


def cut(exchange):
    exchange.close()


@pytest.fixture
def nobody():
    """An address where connections are refused."""
    address, sock = refusing_address()
    yield address
    sock.close()


@pytest.fixture
def pair(gateway, backend, nobody):
    """A gateway in front of two servers, the first of which hangs up on what it got."""
    def start(way, app, keepalive=""):
        one, two = backend(), backend()
        rules = {"proxy_pass": "proxy_pass http://pair;", "try_files": "try_files /none @app;",
                 "error_page": f"proxy_pass http://{nobody}; error_page 502 = @app;",
                 "X-Accel-Redirect": "proxy_pass http://backend;"}[way]
        gw = gateway(http="upstream pair { server %s; server %s backup; %s }" % (one.name, two.name, keepalive),
                     locations="location / { %s %s } location @app { proxy_pass http://pair; %s }" % (GUARD, rules, app))
        gw.upstream.default = answer(200, [("X-Accel-Redirect", "@app")])
        return gw, one, two
    return start


@pytest.mark.parametrize("way", ["proxy_pass", "try_files", "error_page", "X-Accel-Redirect"])
@pytest.mark.parametrize("method", METHODS)
def test_sent_to_one_server(pair, method, way):
    """nginx's own choice takes PUT and DELETE for repeatable."""
    gw, one, two = pair(way, "")
    one.default = cut
    assert gw.request(method, "/", "k", b"a").status == 502
    assert (one.total, two.total) == (1, 0)


@pytest.mark.parametrize("way", ["try_files", "error_page", "X-Accel-Redirect"])
@pytest.mark.parametrize("method", METHODS)
def test_sent_to_one_server_although_told_otherwise(pair, method, way):
    gw, one, two = pair(way, ANY)
    one.default = cut
    assert gw.request(method, "/", "k", b"a").status == 502
    assert (one.total, two.total) == (1, 0)
    assert gw.upstream.total == (way == "X-Accel-Redirect")


@pytest.mark.parametrize("method", METHODS)
def test_a_status_is_no_reason_for_a_second_server(pair, method):
    gw, one, two = pair("try_files", ANY)
    one.default = answer(502, body=b"one")
    response = gw.request(method, "/", "k", b"a")
    assert response.status == 502 and response.body == b"one"
    expect.problem(gw.request(method, "/", "k", b"a"), "outcome-unknown")
    assert (one.total, two.total) == (1, 0)


def test_kept_connection_that_is_cut(pair):
    """A request may be sent and fail before the location's handler has returned."""
    gw, one, two = pair("try_files", ANY + "proxy_set_header Connection '';", "keepalive 4;")
    expect.first(gw.request("PUT", "/", "a", b"a"))
    one.default = cut
    assert gw.request("PUT", "/", "b", b"a").status == 502
    assert (one.total, two.total) == (2, 0)


@pytest.mark.parametrize("method", METHODS)
def test_next_server_while_nothing_was_sent(gateway, backend, nobody, method):
    two = backend()
    gw = gateway(http="upstream pair { server %s; server %s backup; }" % (nobody, two.name),
                 locations="location / { %s try_files /none @app; } location @app { proxy_pass http://pair; }" % GUARD)
    original = expect.first(gw.request(method, "/", "k", b"a"))
    expect.replay(gw.request(method, "/", "k", b"a"), original)
    assert two.total == 1


def test_a_file_may_come_from_the_next_server(gateway, backend):
    """X-Accel-Redirect to a path makes a GET of it, which is not the operation."""
    one, two = backend(), backend()
    one.default = cut
    gw = gateway(http="upstream pair { server %s; server %s backup; }" % (one.name, two.name),
                 locations="location / { %s proxy_pass http://backend; } location /files { proxy_pass http://pair; }" % GUARD)
    gw.upstream.default = answer(201, [("X-Accel-Redirect", "/files")])
    two.default = answer(200, body=b"file")
    for _ in range(2):
        response = gw.post("k")
        assert response.body == b"file", response
    assert (gw.upstream.total, one.total, two.total) == (1, 1, 1)


def test_the_location_itself_is_as_it_was(gateway, backend):
    """Unguarded requests go to the next server, before and after one that is guarded."""
    one, two = backend(), backend()
    one.default = cut
    gw = gateway(http="upstream pair { server %s max_fails=0; server %s backup; }" % (one.name, two.name),
                 locations="location / { %s try_files /none @app; } location /free { try_files /none @app; }"
                           "location @app { proxy_pass http://pair; %s }" % (GUARD, ANY))
    assert gw.post("a", target="/free").status == 201
    assert gw.post("b").status == 502
    assert gw.post("c", target="/free").status == 201
    assert [one.count(key) for key in "abc"] == [1, 1, 1]
    assert [two.count(key) for key in "abc"] == [1, 0, 1]


@pytest.mark.parametrize("address", ["grpc://backend", "grpc://$name"])
def test_grpc_is_refused_before_anything_is_sent(gateway, address):
    gw = gateway(locations="location / { %s set $name backend; try_files /none @g; } location @g { grpc_pass %s; }"
                           % (GUARD, address))
    for _ in range(2):
        response = gw.post("k")
        assert response.status == 502, response
        assert gw.store.state("k") == "failed"  # given back: it may be tried again
    assert gw.upstream.total == 0
    gw.nginx.log.wait("grpc_pass")
