"""Protocols and codings, on both sides of the gateway; and independent clients."""
import subprocess

import pytest

from harness import environment, expect
from harness.gateway import GUARD
from harness.message import chunks, head
from harness.upstream import answer
from harness.wait import Gate


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
    """An independent client."""
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
    for response in (original, replayed):
        assert "X-Sum" not in response.headers and "X-Sum" not in response.trailers
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
    gw = gateway(f"once_recover {recover}; once_lease 1s; once_release_ttl 1m;")

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
