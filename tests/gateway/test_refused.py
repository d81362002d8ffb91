"""Requests that nginx refused, and that an error page leads to a guarded location: no stored answer, no claim, no record.
Everything that is led on for other reasons is guarded as always."""
import itertools

import pytest

from harness import expect, http1
from harness.gateway import Gateway
from harness.upstream import Upstream, answer, slow
from harness.wait import Gate

from test_limit import basic

PAGE = b"please log in"
STRANGER = "127.0.0.1"
FRIEND = "127.0.0.2"

# How a location refuses: its rules, the status, and what a caller that it lets in and one that it does not say. A caller's address
# is what `allow` and `deny` know.
WAYS = {
    "auth_basic": ("auth_basic r; auth_basic_user_file @directory@/passwords;", 401,
                   [basic("alice", "wonder")], [basic("alice", "wrong")]),
    "auth_request 401": ("auth_request /auth;", 401, [("X-Token", "200")], [("X-Token", "401")]),
    "auth_request 403": ("auth_request /auth;", 403, [("X-Token", "200")], [("X-Token", "403")]),
    "auth_request 500": ("auth_request /auth;", 500, [("X-Token", "200")], [("X-Token", "418")]),
    "deny": (f"allow {FRIEND}; deny all;", 403, FRIEND, STRANGER),
    "satisfy any 401": (f"satisfy any; allow {FRIEND}; deny all; auth_basic r; auth_basic_user_file @directory@/passwords;", 401,
                        FRIEND, STRANGER),
    "satisfy any 403": (f"satisfy any; allow {FRIEND}; deny all; auth_request /auth;", 403, FRIEND, STRANGER),
    "limit_except": ("limit_except GET { auth_basic r; auth_basic_user_file @directory@/passwords; }", 401,
                     [basic("alice", "wonder")], [basic("alice", "wrong")]),
    "limit_req 429": ("limit_req zone=limit; limit_req_status 429;", 429, [], [("X-Limit", "full")]),
    "limit_req 503": ("limit_req zone=limit;", 503, [], [("X-Limit", "full")]),
    "limit_req 418": ("limit_req zone=limit; limit_req_status 418;", 418, [], [("X-Limit", "full")]),
    "limit_req early": ("limit_req zone=limit; limit_req_status 429; once_early_lookup on;", 429, [], [("X-Limit", "full")]),
    "return 403": ("if ($http_x_token) { return 403; }", 403, [], [("X-Token", "1")]),
    "return 503": ("if ($http_x_token) { return 503; }", 503, [], [("X-Token", "1")]),
    "413": ("client_max_body_size 2;", 413, [], [("Content-Length", "3")]),
}
LED = {"a named location": "= @page", "with a status": "=200 @page", "as it was": "@page", "by a variable": "= @$where",
       "on to another": "= @second", "by try_files": "= @files", "by a rewrite": "= @rewritten", "a URI": "= /page"}


def locations():
    for number, (way, led, recursive) in enumerate(itertools.product(WAYS, LED, ("on", "off"))):
        rules, status, *_ = WAYS[way]
        yield (way, led, recursive), f"/{number}", f"""
            location = /{number} {{
                {rules} recursive_error_pages {recursive}; error_page {status} {LED[led]};
                proxy_pass http://backend;
            }}"""


PATHS = {combination: path for combination, path, _ in locations()}

# Everything is guarded because its server says so, as people write it.
SERVER = "once on; once_scope $http_x_scope optional;"
TARGETS = """
    location @page { proxy_pass http://pages; }
    location = /page { proxy_pass http://pages; }
    location @second { recursive_error_pages on; error_page 403 = @page; deny all; proxy_pass http://backend; }
    location @files { try_files /none @page; }
    location @rewritten { rewrite ^ /rewritten last; }
    location = /rewritten { proxy_pass http://pages; }
    location = /auth { internal; once off; proxy_pass http://authenticator; proxy_pass_request_body off;
                       proxy_set_header Content-Length ""; }
"""


def authenticate(exchange):
    exchange.respond(int(exchange.request.headers.get("X-Token", "403")), body=b"")


class World:
    """One gateway for all combinations: a location for each."""

    def __init__(self, directory):
        self.pages, self.authenticator = Upstream(), Upstream()
        self.pages.default = answer(200, body=PAGE)
        self.authenticator.default = authenticate
        with open(f"{directory}/passwords", "w", encoding="ascii") as file:
            file.write("alice:{PLAIN}wonder\n")
        http = f"""
            upstream pages {{ server {self.pages.name}; }}
            upstream authenticator {{ server {self.authenticator.name}; }}
            limit_req_zone $http_x_limit zone=limit:1m rate=1r/m;
            map $host $where {{ default page; }}
        """
        text = "".join(text for _, _, text in locations())
        self.gateway = Gateway(directory, http=http, server=SERVER, locations=text + TARGETS).start()
        self.keys = itertools.count()

    def post(self, path, key, caller, body=b"ab"):
        source = caller if isinstance(caller, str) else None
        headers = [("X-Scope", "alice")] + ([] if source else caller)
        with http1.Connection((self.gateway.host, self.gateway.port), source=source) as client:
            if ("Content-Length", "3") in headers:
                body += b"c"
            return client.request("POST", path, key, body, headers)

    def close(self):
        try:
            self.gateway.close()
        finally:
            self.pages.close()
            self.authenticator.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World(str(tmp_path_factory.mktemp("refused")))
    yield made
    made.close()


def check_page(response, way, led):
    assert response.body == PAGE, response
    assert response.status == (WAYS[way][1] if led == "as it was" else 200), response
    assert "Idempotent-Replayed" not in response.headers and "Idempotency-Expires" not in response.headers, response


@pytest.mark.parametrize("recursive", ["on", "off"])
@pytest.mark.parametrize("led", LED)
@pytest.mark.parametrize("way", WAYS)
def test_refused(world, way, led, recursive):
    if led == "on to another" and recursive == "off":
        return  # error pages end at the first
    _, _, friend, stranger = WAYS[way]
    path = PATHS[way, led, recursive]
    if way.startswith("limit_req"):
        world.post(path, "full", stranger)  # from now on there is no more
    old, new = f"old{next(world.keys)}", f"new{next(world.keys)}"
    original = expect.first(world.post(path, old, friend))
    check_page(world.post(path, old, stranger), way, led)
    check_page(world.post(path, new, stranger), way, led)
    assert "Once-Claim" not in world.pages.last().headers
    expect.first(world.post(path, new, friend))  # it was not spoilt
    expect.replay(world.post(path, old, friend), original)
    assert world.gateway.upstream.count(old) == 1 and world.gateway.upstream.count(new) == 1


# ------------------------------------------------------------------------------------------------- not refused: as always

GUARD = "once on; once_scope none;"


def check_guarded(gw, target="/", **options):
    for key in ("a", "b"):
        original = expect.first(gw.post(key, target=target, **options))
        expect.replay(gw.post(key, target=target, **options), original)
        assert gw.upstream.count(key) == 1


@pytest.mark.parametrize("rules", [
    "error_page 418 = @app; return 418;",                                   # the usual way to a named location
    "error_page 418 403 = @other; error_page 405 = @app; return 405;",
    "try_files /none @app;",
    "root /nonexistent; error_page 404 405 = @app;",                        # of the content phase
    "error_page 401 403 = @other; deny 127.0.0.9; try_files /none @app;",
    "auth_request /auth; error_page 403 = @app; try_files /none @app;",     # an error page, too, and not led by it
    "rewrite ^ /led last;",
])
@pytest.mark.parametrize("recursive", ["on", "off"])
def test_led_on_from_a_location_that_is_not_guarded(gateway, rules, recursive):
    gw = gateway(server=f"recursive_error_pages {recursive};", locations="""
        location = / { %s }
        location = /led { %s proxy_pass http://backend; }
        location @app { %s proxy_pass http://backend; }
        location @other { return 500; }
        location = /auth { try_files /none @granted; }
        location @granted { return 204; }
    """ % (rules, GUARD, GUARD))
    check_guarded(gw)


@pytest.mark.parametrize("recursive", ["on", "off"])
def test_granted_and_led_on(gateway, backend, recursive):
    """After the backend failed before it was asked for anything: the claim is held, and the error page is its answer."""
    other = backend()
    gw = gateway(server=f"recursive_error_pages {recursive}; {GUARD}", locations="""
        location / { proxy_pass http://127.0.0.1:1; error_page 502 403 401 = @fallback; auth_request /auth; }
        location @fallback { proxy_pass http://%s; }
        location = /auth { internal; once off; proxy_pass http://backend; proxy_pass_request_body off;
                           proxy_set_header Content-Length ""; }
    """ % other.name)
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)
    assert other.count("k") == 1 and "Once-Claim" in other.last().headers


@pytest.mark.parametrize("recursive", ["on", "off"])
def test_let_in_and_refused_where_it_was_led(gateway, recursive):
    """Each location has an access phase of its own: the last one counts."""
    gw = gateway(server=f"recursive_error_pages {recursive}; once_scope none;", locations="""
        location / { try_files /none @closed; }
        location @closed { deny all; error_page 403 = @page; proxy_pass http://backend; }
        location @page { once on; proxy_pass http://backend; }
    """)
    for count in (1, 2):
        assert gw.post("k").json()["execution"] == count
    assert gw.store.records() == []


@pytest.mark.parametrize("recursive", ["on", "off"])
def test_limit_conn(gateway, backend, recursive):
    pages, gate = backend(), Gate()
    pages.default = answer(200, body=PAGE)
    gw = gateway(http="limit_conn_zone $server_port zone=conn:1m;",
                 server=f"recursive_error_pages {recursive}; {GUARD}", locations="""
        location / { limit_conn conn 1; error_page 503 =200 @busy; proxy_pass http://backend; }
        location @busy { proxy_pass http://%s; }
    """ % pages.name)
    gw.upstream.then(slow(gate))
    client = gw.connect()
    client.start("POST", "/", "a", b"a")
    gate.wait_arrival()
    assert gw.post("b", b"a").body == PAGE
    gate.open()
    expect.first(client.finish())
    client.close()
    expect.first(gw.post("b", b"a"))


# --------------------------------------------------------------------------------------------------- what cannot be read

@pytest.mark.parametrize("key", ["$request_id", '"$arg_order"', "Idempotency-Key"])
@pytest.mark.parametrize("request_head", [
    "POST http://a..b/x?order=1 HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST /x?order=1 HTTP/1.1\r\nOnce-Claim: forged\r\nIdempotency-Key: k\r\nHost: a\r\nHost: a\r\n\r\n",
    "POST /x?order=1 HTTP/1.1\r\nIdempotency-Key: k\r\nHost: a\r\nTransfer-Encoding: other\r\n\r\n",
    "POST /x?order=1 HTTP/1.1\r\nIdempotency-Key: k\r\nContent-Length: 1\r\n\r\n1",
])
def test_malformed_requests_are_not_guarded(gateway, key, request_head):
    """They are refused before nginx has read their header, or any rule."""
    gw = gateway(server=f"{GUARD} once_key {key}; error_page 400 501 = @err;",
                 locations="location / { proxy_pass http://backend; } location @err { proxy_pass http://backend; }")
    with gw.connect() as client:
        client.send(request_head.encode())
        assert client.finish().status == 201
    assert gw.upstream.total == 1 and "Once-Claim" not in gw.upstream.last().headers
    assert gw.store.records() == []


# ------------------------------------------------------------------------------------------- Once-* of clients, anywhere

@pytest.mark.parametrize("protocol", ["h1", "h2"])
def test_once_headers_of_clients_reach_nobody(gateway, backend, protocol):
    """Neither the authenticator nor a mirror nor the backend: stripped before any of them is asked."""
    authenticator, copy = backend(), backend()
    gw = gateway(server="underscores_in_headers on;", locations="""
        location / { %s auth_request /auth; mirror /copy; proxy_pass http://backend; }
        location = /free { auth_request /auth; mirror /copy; proxy_pass http://backend; }
        location = /auth { internal; proxy_pass http://%s; proxy_pass_request_body off; proxy_set_header Content-Length ""; }
        location = /copy { internal; proxy_pass http://%s; }
    """ % (GUARD, authenticator.name, copy.name))
    client = gw.connect() if protocol == "h1" else gw.connect2()
    forged = [("once-claim", "forged"), ("once-outcome", "forged"), ("once_claim", "forged"), ("x-other", "kept")]
    for count, target in enumerate(("/", "/free"), 1):
        assert client.request("POST", target, "k", b"a", forged).status == 201
        for upstream in (authenticator, copy, gw.upstream):
            upstream.wait_total(count)
            assert ("x-other", "kept") in [(name.lower(), value) for name, value in upstream.last().headers]
            assert "forged" not in repr(upstream.last().headers), upstream.last().headers
