"""Beside everything else that nginx does: protocols, codings, filters, redirects, caches, and backends that are not HTTP."""
import gzip
import socket
import subprocess

import pytest

from harness import environment, expect
from harness.cgi import CgiUpstream
from harness.gateway import GUARD
from harness.http1 import Connection
from harness.message import chunks, head
from harness.upstream import Upstream
from harness.wait import Gate


def answer(status=201, headers=(), body=None, **options):
    return lambda exchange: exchange.respond(status, headers, body, **options)


# ----------------------------------------------------------------------------------------------------------- protocols

@pytest.mark.parametrize("kind", ["h1", "h1-tls", "h2", "h2-tls"])
def test_protocols(gateway, certificate, kind):
    gw = gateway(tls=certificate)
    connect = gw.connect2 if kind.startswith("h2") else gw.connect
    client = connect(tls=kind.endswith("tls"))
    body = b"b" * 300_000
    original = expect.first(client.request("POST", "/a?b=c", "k", body))
    assert gw.upstream.last().body == body
    expect.replay(client.request("POST", "/a?b=c", "k", body), original)
    expect.problem(client.request("POST", "/a?b=c", "k", b"other"), "key-reused")
    expect.problem(client.request("POST", "/"), "key-missing")
    expect.replay(client.request("POST", "/a?b=c", "k", body), original)
    expect.replay(connect(tls=kind.endswith("tls")).request("POST", "/a?b=c", "k", body), original)
    assert gw.upstream.count("k") == 1


def test_answer_of_one_protocol_is_replayed_over_another(gateway):
    gw = gateway()
    original = expect.first(gw.post("k", b"a"))
    response = gw.connect2().request("POST", "/", "k", b"a")
    expect.replay(response, original)
    other = expect.first(gw.connect2().request("POST", "/", "k2", b"a"))
    expect.replay(gw.post("k2", b"a"), other)
    assert gw.upstream.count("k") == 1 and gw.upstream.count("k2") == 1


def test_many_streams_at_once(gateway):
    gw = gateway()
    client = gw.connect2()
    numbers = {key: client.start("POST", "/", key, b"a") for key in (f"k{number}" for number in range(50))}
    originals = {key: expect.first(client.finish(number)) for key, number in numbers.items()}
    for key, original in originals.items():
        expect.replay(client.request("POST", "/", key, b"a"), original)
        assert gw.upstream.count(key) == 1


def test_pipelining(gateway):
    gw = gateway()
    with gw.connect() as client:
        for key in ("a", "b", "a", "c"):
            client.start("POST", "/", key, b"x")
        answers = [client.finish() for _ in range(4)]
    expect.first(answers[0])
    expect.first(answers[1])
    expect.replay(answers[2], answers[0])
    expect.first(answers[3])
    assert gw.upstream.total == 3


def test_keepalive_connection_for_many(gateway):
    gw = gateway()
    with gw.connect() as client:
        for number in range(30):
            original = expect.first(client.request("POST", "/", f"k{number}", b"x" * number))
            expect.replay(client.request("POST", "/", f"k{number}", b"x" * number), original)
    assert gw.upstream.total == 30


def test_http_10(gateway):
    gw = gateway()
    answers = []
    for _ in range(2):
        with gw.connect() as client:
            client.send(b"POST / HTTP/1.0\r\nHost: g\r\nIdempotency-Key: k\r\nContent-Length: 1\r\n\r\na")
            client.waiting.append("POST")
            answers.append(client.finish())
    expect.replay(answers[1], expect.first(answers[0]))
    assert gw.upstream.count("k") == 1


def test_curl(gateway, certificate):
    """A client that nobody here wrote."""
    gw = gateway(tls=certificate)
    outputs = []
    for option in (["--http1.1"], ["--http2-prior-knowledge"], ["--http2"]):
        url = f"http://{gw.host}:{gw.port}/"
        if option == ["--http2-prior-knowledge"]:
            url = f"http://{gw.host}:{gw.port2}/"
        if option == ["--http2"]:
            url = f"https://{gw.host}:{gw.port_tls}/"
            option = [*option, "-k"]
        done = subprocess.run(["curl", "-sS", "-i", *option, "-H", "Idempotency-Key: k", "-d", "amount=1", url], check=True,
                              capture_output=True, timeout=30)
        outputs.append(done.stdout.lower())
    assert b" 201" in outputs[0] and b"idempotent-replayed" not in outputs[0]
    for output in outputs[1:]:
        assert b" 201" in output and b"idempotent-replayed: true" in output
        assert output.rpartition(b"\r\n\r\n")[2] == outputs[0].rpartition(b"\r\n\r\n")[2]
    assert gw.upstream.count("k") == 1


def test_h2load(gateway, directory):
    """Hundreds of requests with one key, many at once: one execution, every answer good."""
    gw = gateway("once_wait 20s max=1000;", workers=2)
    with open(f"{directory}/body", "wb") as file:
        file.write(b"a")
    count = 200 if environment.slow() else 600
    done = subprocess.run(["h2load", "-n", str(count), "-c", "4", "-m", "20", "-d", f"{directory}/body", "-H", "Idempotency-Key: k",
                           f"http://{gw.host}:{gw.port2}/"], check=True, capture_output=True, timeout=100, text=True)
    assert f"{count} succeeded, 0 failed, 0 errored, 0 timeout" in done.stdout, done.stdout
    assert f"status codes: {count} 2xx" in done.stdout, done.stdout
    assert gw.upstream.count("k") == 1


# ------------------------------------------------------------------------------------------------ framing of requests

@pytest.mark.parametrize("size", [0, 1, 1000, 100_000, 3_000_000])
@pytest.mark.parametrize("buffering", ["on", "off"])
def test_request_bodies(gateway, size, buffering):
    """In memory and in temporary files; their last byte counts."""
    gw = gateway(f"client_max_body_size 0; proxy_request_buffering {buffering};")
    body = b"q" * size
    original = expect.first(gw.post("k", body))
    assert gw.upstream.last().body == body
    expect.replay(gw.post("k", body), original)
    expect.problem(gw.post("k", body + b"x"), "key-reused")
    if size:
        expect.problem(gw.post("k", body[:-1] + b"x"), "key-reused")
    assert gw.upstream.count("k") == 1


@pytest.mark.parametrize("size", [0, 5, 200_000])
def test_chunked_request_is_the_same_request(gateway, size):
    gw = gateway()
    body = b"c" * size
    original = expect.first(gw.post("k", body, chunked=True, piece=1000))
    assert gw.upstream.last().body == body
    expect.replay(gw.post("k", body), original)
    expect.replay(gw.post("k", body, chunked=True, piece=77), original)
    expect.problem(gw.post("k", body + b"x", chunked=True), "key-reused")
    assert gw.upstream.count("k") == 1


def test_body_that_comes_byte_by_byte(gateway):
    gw = gateway()
    with gw.connect() as client:
        client.begin("POST", "/", "k", b"slowly")
        for byte in b"slowly":
            client.send(bytes([byte]))
        original = expect.first(client.finish())
    expect.replay(gw.post("k", b"slowly"), original)
    assert gw.upstream.last().body == b"slowly"
    assert gw.upstream.count("k") == 1


def test_no_body_at_all(gateway):
    gw = gateway()
    original = expect.first(gw.request("POST", "/", "k"))
    expect.replay(gw.request("POST", "/", "k"), original)
    expect.replay(gw.request("POST", "/", "k", b""), original)
    assert gw.upstream.count("k") == 1


@pytest.mark.parametrize("size", [10, 100_000])
def test_expect_100_continue(gateway, size):
    gw = gateway()
    with gw.connect() as client:
        client.begin("POST", "/", "k", b"e" * size, [("Expect", "100-continue")])
        while b"\r\n\r\n" not in client.reader.buffer:
            client.reader.fill()
        assert client.reader.buffer.startswith(b"HTTP/1.1 100")
        client.send(b"e" * size)
        original = client.finish()
        assert original.informational == [100]
    expect.replay(gw.post("k", b"e" * size), expect.first(original))
    assert gw.upstream.count("k") == 1


def test_trailers_of_a_request(gateway):
    gw = gateway()
    with gw.connect() as client:
        client.waiting.append("POST")
        client.send(head("POST / HTTP/1.1", [("Host", "g"), ("Idempotency-Key", "k"), ("Transfer-Encoding", "chunked")])
                    + chunks(b"body", trailers=[("X-Trailer", "1"), ("Once-Claim", "forged")]))
        original = expect.first(client.finish())
    assert gw.upstream.last().body == b"body"
    assert gw.upstream.last().headers.get("Once-Claim") != "forged"
    expect.replay(gw.post("k", b"body"), original)
    assert gw.upstream.count("k") == 1


def test_body_that_is_too_large_for_nginx(gateway):
    gw = gateway("client_max_body_size 1k;")
    response = gw.post("k", b"x" * 2000)
    assert response.status == 413
    assert gw.upstream.total == 0 and gw.store.records() == []
    expect.first(gw.post("k", b"x" * 1000))
    assert gw.upstream.count("k") == 1


# ----------------------------------------------------------------------------------------------- framing of responses

@pytest.mark.parametrize("buffering", ["on", "off"])
@pytest.mark.parametrize("size, piece", [(0, 0), (10, 3), (100_000, 1000), (900_000, 0)])
def test_chunked_response(gateway, size, piece, buffering):
    gw = gateway(f"proxy_buffering {buffering};")
    gw.upstream.default = answer(201, [("X-Own", "1")], b"r" * size, chunked=True, piece=piece)
    original = expect.first(gw.post("k"))
    assert original.body == b"r" * size
    expect.replay(gw.post("k"), original)
    expect.replay(gw.connect2().request("POST", "/", "k", b'{"amount":1}'), original)
    assert gw.upstream.count("k") == 1


def test_response_that_ends_with_the_connection(gateway):
    """No length, no chunks, as HTTP/1.0 has it: complete when it is closed in an orderly way."""
    gw = gateway("proxy_http_version 1.0;", guard=GUARD)

    def script(exchange):
        exchange.send(b"HTTP/1.0 201 Created\r\nX-Own: 1\r\n\r\nuntil the end")
        exchange.close()

    gw.upstream.default = script
    original = expect.first(gw.post("k"))
    assert original.body == b"until the end"
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 1


def test_trailers_of_a_response(gateway):
    """This nginx drops them; the response is complete without."""
    gw = gateway()
    gw.upstream.default = answer(201, [("Trailer", "X-Sum")], b"body", chunked=True, trailers=[("X-Sum", "1")])
    original = gw.post("k")
    assert (original.status, original.body) == (201, b"body")
    replayed = gw.post("k")
    assert (replayed.status, replayed.body, replayed.header("Idempotent-Replayed")) == (201, b"body", "true")
    assert gw.upstream.count("k") == 1


@pytest.mark.parametrize("status", [204, 304])
@pytest.mark.parametrize("protocol", ["h1", "h2"])
def test_responses_without_body(gateway, status, protocol):
    gw = gateway()
    gw.upstream.default = answer(status, [("ETag", '"e"'), ("X-Own", "1")])
    client = gw.connect() if protocol == "h1" else gw.connect2()
    original = expect.first(client.request("POST", "/", "k", b"a"), status)
    assert "Content-Length" not in original.headers and "Transfer-Encoding" not in original.headers
    replayed = expect.replay(client.request("POST", "/", "k", b"a"), original)
    assert "Content-Length" not in replayed.headers and "Transfer-Encoding" not in replayed.headers
    expect.replay(client.request("POST", "/", "k", b"a"), original)  # the connection is still in step
    assert gw.upstream.count("k") == 1


def test_empty_response(gateway):
    gw = gateway()
    gw.upstream.default = answer(200, body=b"")
    with gw.connect() as client:
        original = expect.first(client.request("POST", "/", "k", b"a"), 200)
        for _ in range(2):
            replayed = expect.replay(client.request("POST", "/", "k", b"a"), original)
            assert replayed.header("Content-Length") == "0"
    assert gw.upstream.count("k") == 1


@pytest.mark.parametrize("recover", ["retry", "hold"])
def test_informational_response_of_the_upstream(gateway, recover):
    """Whatever this nginx makes of a 1xx, nothing is taken for an answer that is none, and nothing runs twice under hold."""
    gw = gateway(f"once_recover {recover}; once_lease 1s;")

    def script(exchange):
        exchange.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        exchange.respond()

    gw.upstream.then(script)
    with gw.connect() as client:
        client.start("POST", "/", "k", b"a")
        client.sock.settimeout(2)
        try:
            client.finish()
        except (OSError, AssertionError, Exception):  # noqa: nginx 1.22 passes it on as if it were final
            pass
    state = gw.store.wait_state("k", "completed", "unknown", "failed")["state"]
    if recover == "hold":
        assert state in ("completed", "unknown")
        assert gw.post("k", b"a").status in (201, 409)
        assert gw.upstream.count("k") == 1


def test_server_sent_events_stream_through(gateway):
    """They are not held; what is recorded is that they began."""
    gw, gate = gateway("proxy_buffering off;"), Gate()

    def script(exchange):
        exchange.begin(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])
        exchange.send(chunks(b"data: 1\n\n", last=False))
        gate.pass_through()
        exchange.send(chunks(b"data: 2\n\n"))

    gw.upstream.default = script
    with gw.connect() as client:
        client.start("POST", "/", "k", b"a")
        while b"data: 1" not in client.reader.buffer:
            client.reader.fill()
        assert gw.store.state("k") == "completed"
        gate.open()
        original = client.finish()
    assert original.body == b"data: 1\n\ndata: 2\n\n"
    replayed = gw.post("k", b"a")
    assert (replayed.status, replayed.header("Once-Body"), replayed.body) == (200, "omitted", b"")
    assert gw.upstream.count("k") == 1


def test_upgrade_passes_through(gateway):
    """A websocket begins with GET, which is not guarded."""
    gw = gateway("proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;")

    def script(exchange):
        exchange.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
        exchange.send(exchange.sock.recv(100))

    gw.upstream.default = script
    with gw.connect() as client:
        client.start("GET", "/", headers=[("Connection", "upgrade"), ("Upgrade", "echo")])
        response = client.finish()
        assert response.status == 101
        client.send(b"hello")
        assert client.reader.take(5) == b"hello"
    assert gw.upstream.total == 1


@pytest.mark.parametrize("header, value", [("If-None-Match", '"e"'), ("If-Modified-Since", "Sun, 06 Nov 2094 08:49:37 GMT"),
                                           ("Range", "bytes=0-1"), ("If-Match", '"other"')])
def test_conditions_do_not_change_a_replay(gateway, header, value):
    """They concern stored resources; an operation's answer is what it is."""
    gw = gateway()
    gw.upstream.default = answer(200, [("ETag", '"e"'), ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
                                       ("Accept-Ranges", "bytes")], b"whole")
    original = expect.first(gw.post("k", headers=[(header, value)]), 200)
    assert original.body == b"whole"
    expect.replay(gw.post("k", headers=[(header, value)]), original)
    assert gw.upstream.count("k") == 1


# -------------------------------------------------------------------------------------------------------------- filters

GZIP = "gzip on; gzip_types application/json text/plain; gzip_min_length 1; gzip_http_version 1.0;"


def test_gzip(gateway):
    """The stored answer is the backend's; it is compressed afresh for whoever wants that."""
    gw, body = gateway(GZIP), b'{"text":"%s"}' % (b"compressible " * 500)
    gw.upstream.default = answer(200, body=body)
    accept = [("Accept-Encoding", "gzip")]
    original = gw.post("k", headers=accept)
    assert original.header("Content-Encoding") == "gzip" and gzip.decompress(original.body) == body
    replayed = gw.post("k", headers=accept)
    assert replayed.header("Content-Encoding") == "gzip" and gzip.decompress(replayed.body) == body
    assert replayed.header("Idempotent-Replayed") == "true"
    plain = gw.post("k")
    assert "Content-Encoding" not in plain.headers and plain.body == body
    assert gw.upstream.count("k") == 1


def test_response_that_the_backend_compressed(gateway):
    """It is stored and sent as it is, and not compressed once more."""
    gw, packed = gateway(GZIP), gzip.compress(b"text " * 1000, mtime=0)
    gw.upstream.default = answer(200, [("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")], packed)
    original = expect.first(gw.post("k", headers=[("Accept-Encoding", "gzip")]), 200)
    assert original.body == packed
    replayed = gw.post("k", headers=[("Accept-Encoding", "gzip")])
    assert replayed.body == packed and replayed.headers.all("Content-Encoding") == ["gzip"]
    assert gw.upstream.count("k") == 1


def test_gunzip(gateway):
    gw, packed = gateway("gunzip on;"), gzip.compress(b"text " * 1000)
    gw.upstream.default = answer(200, [("Content-Encoding", "gzip")], packed)
    assert gw.post("k").body == b"text " * 1000
    replayed = gw.post("k")
    assert replayed.body == b"text " * 1000 and "Content-Encoding" not in replayed.headers
    assert gw.upstream.count("k") == 1


def test_add_header(gateway):
    gw = gateway("add_header X-After $once_outcome always; add_header X-Key $once_key always;")
    original = gw.post("k")
    assert original.headers.all("X-After") == ["run"] and original.headers.all("X-Key") == ["k"]
    replayed = gw.post("k")
    assert replayed.headers.all("X-After") == ["replay"]
    assert gw.post("k", b"other").headers.all("X-After") == ["mismatch"]
    assert gw.post().headers.all("X-After") == ["missing"]
    assert gw.upstream.count("k") == 1


def test_sub_filter_and_charset(gateway):
    gw = gateway("sub_filter_types *; sub_filter_once off; sub_filter before after; charset utf-8; charset_types text/plain;")
    gw.upstream.default = answer(200, [("Content-Type", "text/plain")], b"before before")
    original = gw.post("k")
    assert original.body == b"after after" and original.header("Content-Type") == "text/plain; charset=utf-8"
    replayed = gw.post("k")
    assert replayed.body == b"after after" and replayed.header("Content-Type") == "text/plain; charset=utf-8"
    assert gw.upstream.count("k") == 1


def test_ssi(gateway, backend):
    other = backend()
    other.default = answer(200, body=b"included")
    gw = gateway(locations="location / { %s ssi on; ssi_types *; } location /part { proxy_pass http://%s; }" % (GUARD, other.name))
    gw.upstream.default = answer(200, [("Content-Type", "text/html")], b'<!--#include virtual="/part" --> and more')
    for _ in range(2):
        assert gw.post("k").body == b"included and more"
    assert gw.upstream.count("k") == 1


# ------------------------------------------------------------------------------------------------- internal redirects

def test_error_page_for_a_failed_upstream(gateway):
    gw = gateway("error_page 502 504 /sorry; once_recover hold;", server="location = /sorry { internal; return 502 'sorry'; }")
    gw.upstream.then(lambda exchange: exchange.reset())
    response = gw.post("k")
    assert (response.status, response.body) == (502, b"sorry")
    gw.store.wait_state("k", "unknown")
    response = gw.post("k")
    assert response.status == 409
    assert gw.upstream.count("k") == 1


def test_error_page_with_another_status(gateway):
    """The client is told 200 by somebody else; that is not what the operation answered."""
    gw = gateway("error_page 502 =200 /sorry; once_recover hold;", server="location = /sorry { internal; return 200 'fine'; }")
    gw.upstream.then(lambda exchange: exchange.reset())
    assert gw.post("k").body == b"fine"
    gw.store.wait_state("k", "unknown")
    assert gw.post("k").status == 409
    assert gw.upstream.count("k") == 1


@pytest.mark.parametrize("recover", ["retry", "hold"])
def test_intercepted_error(gateway, recover):
    """The backend's 404 is an answer, although the page is nginx's."""
    gw = gateway(f"proxy_intercept_errors on; error_page 404 /nothing; once_recover {recover};",
                 server="location = /nothing { internal; return 404 'nothing here'; }")
    gw.upstream.default = answer(404, body=b"of the backend")
    original = gw.post("k")
    assert (original.status, original.body) == (404, b"nothing here")
    gw.store.wait_state("k", "completed")
    replayed = gw.post("k")
    assert replayed.status == 404
    assert gw.upstream.count("k") == 1


def test_intercepted_500_under_hold(gateway):
    gw = gateway("proxy_intercept_errors on; error_page 500 @fallback; once_recover hold;",
                 server="location @fallback { return 200 'all is well'; }")
    gw.upstream.default = answer(500)
    assert gw.post("k").body == b"all is well"
    gw.store.wait_state("k", "unknown")
    assert gw.post("k").status == 409
    assert gw.upstream.count("k") == 1


def test_fallback_to_another_backend(gateway, backend):
    """A second backend is a second execution: where bytes were sent to the first, nothing is known."""
    other = backend()
    gw = gateway("error_page 502 @other; once_recover hold;", server="location @other { proxy_pass http://%s; }" % other.name)
    gw.upstream.then(lambda exchange: exchange.reset())
    gw.post("k")
    response = gw.post("k")
    assert response.status in (409, 201), response
    assert gw.upstream.count("k") == 1 and other.total <= 1


def test_error_page_for_our_own_answers(gateway):
    """The operator's page takes the place of our problem; nothing else changes."""
    gw = gateway("error_page 400 /own;", server="location = /own { internal; return 400 'own words'; }")
    response = gw.post()
    assert response.status == 400
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)
    assert gw.upstream.total == 1


def test_named_location(gateway):
    gw = gateway(locations="location / { once on; once_scope none; try_files /nothing @app; }"
                           "location @app { proxy_pass http://backend; }")
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)
    expect.problem(gw.post("k", b"other"), "key-reused")
    assert gw.upstream.count("k") == 1


def test_named_location_that_is_guarded_too(gateway):
    gw = gateway(server="once on; once_scope none;",
                 locations="location / { try_files /nothing @app; } location @app { proxy_pass http://backend; }")
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 1


def test_rewrite_into_a_guarded_location(gateway):
    gw = gateway(locations="location /old { rewrite ^/old(.*) /new$1 last; } location /new { %s }" % GUARD)
    original = expect.first(gw.post("k", target="/old/1"))
    assert gw.upstream.last().target == "/new/1"
    expect.replay(gw.post("k", target="/old/1"), original)
    assert gw.upstream.count("k") == 1


def test_x_accel_redirect(gateway, directory):
    """The backend has done it, and lets nginx send the file."""
    with open(f"{directory}/receipt.txt", "wb") as file:
        file.write(b"receipt " * 1000)
    gw = gateway("once_store_body 64k;", server="location /files/ { internal; alias %s/; sendfile on; }" % directory)
    gw.upstream.default = answer(200, [("X-Accel-Redirect", "/files/receipt.txt"), ("X-Own", "1"), ("Content-Type", "text/plain")], b"")
    original = gw.post("k")
    assert (original.status, original.body) == (200, b"receipt " * 1000)
    replayed = gw.post("k")
    assert (replayed.status, replayed.body) == (200, b"receipt " * 1000)
    assert replayed.header("Idempotent-Replayed") == "true"
    assert gw.upstream.count("k") == 1


def test_x_accel_redirect_to_a_named_location(gateway, backend):
    other = backend()
    other.default = answer(200, body=b"from elsewhere")
    gw = gateway(server="location @else { proxy_pass http://%s; proxy_method GET; }" % other.name)
    gw.upstream.default = answer(200, [("X-Accel-Redirect", "@else")], b"")
    assert gw.post("k").body == b"from elsewhere"
    replayed = gw.post("k")
    assert replayed.body == b"from elsewhere" and replayed.header("Idempotent-Replayed") == "true"
    assert gw.upstream.count("k") == 1 and other.total == 1


def test_mirror(gateway, backend):
    """The copy goes out with what runs, not with what is replayed; its answer is nobody's."""
    copy = backend()
    copy.default = answer(500)
    gw = gateway("mirror /mirror;", server="location = /mirror { internal; proxy_pass http://%s$request_uri; }" % copy.name)
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)
    copy.wait_total(1)
    assert copy.total == 1 and copy.last().body == b'{"amount":1}'
    assert gw.upstream.count("k") == 1


def test_mirror_into_a_guarded_location(gateway):
    """A subrequest is not a caller: it is not guarded, and does not disturb the one that is."""
    gw = gateway("mirror /mirror;", server="location = /mirror { internal; %s }" % GUARD)
    original = expect.first(gw.post("k"))
    gw.upstream.wait_total(2)
    expect.replay(gw.post("k"), original)
    assert gw.upstream.total == 2


def test_proxy_cache(gateway):
    gw = gateway("proxy_cache cache; proxy_cache_valid any 10m; add_header X-Cache $upstream_cache_status;",
                 http="proxy_cache_path @directory@/cache keys_zone=cache:1m;")
    for status in ("MISS", "HIT"):
        assert gw.request("GET", "/c").header("X-Cache") == status
    assert gw.upstream.total == 1
    one, two = expect.first(gw.post("k1")), expect.first(gw.post("k2"))
    assert one.body != two.body
    expect.replay(gw.post("k1"), one)
    assert gw.upstream.count("k1") == 1 and gw.upstream.count("k2") == 1


# --------------------------------------------------------------------------------------------------------- other backends

@pytest.mark.parametrize("protocol", ["fastcgi", "uwsgi", "scgi"])
class TestCgi:
    def start(self, gateway, protocol, rules=""):
        upstream = CgiUpstream(protocol)
        parameters = ["REQUEST_METHOD $request_method", "REQUEST_URI $request_uri", "CONTENT_LENGTH $content_length"]
        guard = f"once on; once_scope none; {protocol}_pass backend;" + "".join(f"{protocol}_param {text};" for text in parameters)
        return gateway(rules, guard=guard, upstream=upstream)

    def test_first_and_replay(self, gateway, protocol):
        gw = self.start(gateway, protocol)
        gw.upstream.default = answer(201, [("X-Own", "1"), ("Set-Cookie", "a=b"), ("Once-Retain", "600")])
        original = expect.first(gw.post("k", b"b" * 50_000), ttl=600)
        assert gw.upstream.last().body == b"b" * 50_000
        assert gw.upstream.last().headers.get("ONCE-CLAIM") == gw.store.show("k")["claim"]
        expect.replay(gw.post("k", b"b" * 50_000), original)
        expect.problem(gw.post("k", b"other"), "key-reused")
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
    """nginx would send a PUT once more on a new connection; whether the first one was executed nobody knows."""
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
    gw = gateway(guard="client_body_in_file_only clean; once on; once_scope none; once_methods PUT; root %s; dav_methods PUT;" % directory)
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
