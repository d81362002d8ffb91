"""Backends that are not HTTP, connections to them, several workers, servers and stores."""
import socket

import pytest

from harness import expect
from harness.cgi import CgiUpstream
from harness.gateway import GUARD
from harness.http1 import Connection
from harness.upstream import Upstream, answer, slow
from harness.wait import Gate


# --------------------------------------------------------------------------------------------------------- other backends

@pytest.mark.parametrize("protocol", ["fastcgi", "uwsgi", "scgi"])
class TestCgi:
    def start(self, gateway, protocol, rules="", **options):
        upstream = CgiUpstream(protocol)
        parameters = ["REQUEST_METHOD $request_method", "REQUEST_URI $request_uri", "CONTENT_LENGTH $content_length"]
        guard = f"once on; once_scope none; {protocol}_pass backend;" + "".join(f"{protocol}_param {text};" for text in parameters)
        return gateway(rules, guard=guard, upstream=upstream, **options)

    def test_first_and_replay(self, gateway, protocol):
        gw = self.start(gateway, protocol)
        gw.upstream.default = answer(201, [("X-Own", "1"), ("Set-Cookie", "a=b"), ("Once-Retain", "600")])
        original = expect.first(gw.post("k", b"b" * 50_000), ttl=600)
        assert gw.upstream.last().body == b"b" * 50_000
        assert gw.upstream.last().headers.get("ONCE-CLAIM") == gw.store.show("k")["claim"]
        expect.replay(gw.post("k", b"b" * 50_000), original)
        expect.problem(gw.post("k", b"other"), "key-reused")
        assert gw.upstream.count("k") == 1

    def test_headers_that_become_the_same_parameter(self, gateway, protocol):
        """A backend cannot tell Once_Claim from Once-Claim: a client's own is not passed on in either spelling."""
        gw = self.start(gateway, protocol, server="underscores_in_headers on;")
        headers = [("Once_Claim", "forged"), ("ONCE_CLAIM", "forged"), ("once-claim", "forged"), ("X_Own", "stays")]
        original = expect.first(gw.post("k", b"a", headers=headers))
        got = gw.upstream.last().headers
        assert got.all("ONCE-CLAIM") == [gw.store.show("k")["claim"]]
        assert got.get("X-OWN") == "stays"
        expect.replay(gw.post("k", b"a", headers=headers), original)
        assert gw.upstream.count("k") == 1

    def test_large_response(self, gateway, protocol):
        gw = self.start(gateway, protocol)
        gw.upstream.default = answer(200, body=b"x" * 500_000)
        original = expect.first(gw.post("k"), 200)
        expect.replay(gw.post("k"), original)
        assert gw.upstream.count("k") == 1

    def test_failure(self, gateway, protocol):
        gw = self.start(gateway, protocol, "once_recover hold;")
        gw.upstream.then(lambda exchange: exchange.reset())
        assert gw.post("k").status == 502
        gw.store.wait_state("k", "unknown")
        expect.problem(gw.post("k"), "outcome-unknown")
        assert gw.upstream.count("k") == 1

    def test_client_gone(self, gateway, protocol):
        gw, gate = self.start(gateway, protocol), Gate()

        def slow(exchange):
            gate.pass_through()
            exchange.respond()

        gw.upstream.then(slow)
        client = gw.connect()
        client.start("POST", "/", "k", b"a")
        gate.wait_arrival()
        client.reset()
        gate.open()
        gw.store.wait_state("k", "completed")
        assert gw.post("k", b"a").header("Idempotent-Replayed") == "true"
        assert gw.upstream.count("k") == 1


def test_fastcgi_that_ends_in_the_middle(gateway):
    upstream = CgiUpstream("fastcgi")
    gw = gateway("once_recover hold;", upstream=upstream, guard="once on; once_scope none; fastcgi_pass backend;"
                 "fastcgi_param REQUEST_METHOD $request_method; fastcgi_param REQUEST_URI $request_uri;")

    def script(exchange):
        exchange.record(6, b"Status: 201 Said\r\nContent-Type: text/plain\r\n\r\nhalf")
        exchange.close()

    upstream.then(script)
    assert gw.post("k").status == 502
    gw.store.wait_state("k", "unknown")
    assert gw.upstream.count("k") == 1


def test_upstream_on_a_unix_socket(gateway, directory):
    gw = gateway(upstream=Upstream(f"{directory}/up.sock", socket.AF_UNIX))
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 1


def test_upstream_keepalive(gateway):
    """Connections to the backend that are used again, also after a response was held."""
    gw = gateway(guard="once on; once_scope none; proxy_pass http://kept; proxy_set_header Connection '';",
                 http="upstream kept { server @upstream@; keepalive 4; }")
    for number in range(20):
        expect.once(lambda: gw.post(f"k{number}"))
    assert gw.upstream.total == 20
    assert gw.upstream.accepted < 5


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_kept_connection_that_the_backend_closed(gateway, method):
    """nginx would send a PUT once more on a new connection; whether the first one was executed is unknown."""
    gw = gateway("once_recover hold; once_methods POST PUT;",
                 guard="once on; once_scope none; proxy_pass http://kept; proxy_set_header Connection '';",
                 http="upstream kept { server @upstream@; keepalive 4; }")
    expect.first(gw.request(method, "/", "k1", b"a"))
    gw.upstream.then(lambda exchange: exchange.reset())
    assert gw.request(method, "/", "k2", b"a").status == 502
    gw.store.wait_state("k2", "unknown")
    assert gw.upstream.count("k2") == 1


def test_static_files_can_be_guarded(gateway, directory):
    """Not only what is forwarded: whatever answers in the content phase. (POST to a file is nginx's 405.)"""
    gw = gateway(guard="once on; once_scope none; root %s; error_page 405 =200 $uri;" % directory)
    with open(f"{directory}/page", "w", encoding="ascii") as file:
        file.write("static")
    assert gw.post("k", target="/page").status in (200, 405)
    assert gw.upstream.total == 0


def test_dav_is_guarded(gateway, directory):
    """A handler without any upstream: PUT makes a file once. It wants the body in a file, which it can no longer say itself."""
    gw = gateway("client_body_in_file_only clean; root %s; dav_methods PUT;" % directory,
                 guard="once on; once_scope none; once_methods PUT;")
    original = expect.first(gw.request("PUT", "/made", "k", b"content"))
    expect.replay(gw.request("PUT", "/made", "k", b"content"), original)
    expect.problem(gw.request("PUT", "/made", "k", b"other"), "key-reused")
    with open(f"{directory}/made", "rb") as file:
        assert file.read() == b"content"
    assert gw.upstream.total == 0


# ----------------------------------------------------------------------------------------------------------- workers

def test_several_workers_share_their_records(gateway):
    gw = gateway(workers=3)
    original = expect.first(gw.post("k"))
    for _ in range(20):
        expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 1


def test_two_gateways_share_a_store(gateway):
    one = gateway()
    two = gateway(store=one.store.url)
    original = expect.first(one.post("k"))
    expect.replay(two.post("k"), original)
    assert one.upstream.count("k") == 1 and two.upstream.total == 0


def test_several_servers_with_several_stores(gateway):
    gw = gateway(http="""
        server { listen @address@:9001; once_store local:@directory@/s1?segment=1m; location / { %s } }
        server { listen @address@:9002; once_store local:@directory@/s2?segment=1m; location / { %s } }
        server { listen @address@:9003; once_store local:@directory@/s2?segment=1m; location / { %s } }
    """ % (GUARD, GUARD, GUARD), workers=2)

    def post(port):
        with Connection((gw.host, port)) as client:
            return client.request("POST", "/", "k", b"a")

    one, two = expect.first(post(9001)), expect.first(post(9002))
    assert one.body != two.body
    expect.replay(post(9001), one)
    expect.replay(post(9003), two)
    assert gw.upstream.count("k") == 2


def test_memory_store(gateway):
    gw = gateway(store="memory:")
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)
    expect.problem(gw.post("k", b"other"), "key-reused")
    assert gw.upstream.count("k") == 1
    gw.nginx.wait_worker_gone(*gw.nginx.reload())
    assert gw.upstream.count("k") == 1


def test_aio_threads(gateway):
    """nginx's own threads beside the library's."""
    gw = gateway("aio threads; aio_write on; proxy_buffers 2 4k; proxy_busy_buffers_size 4k; client_body_in_file_only clean;")
    gw.upstream.default = answer(200, body=b"t" * 500_000)
    body = b"u" * 100_000
    original = expect.first(gw.post("k", body), 200)
    expect.replay(gw.post("k", body), original)
    assert gw.upstream.last().body == body
    assert gw.upstream.count("k") == 1
