"""Upstreams that fail: while they are connected to, at every point of the request, and of the response."""
import socket
import threading
import time

import pytest

from harness import expect
from harness.leaving import Leaver
from harness.message import Closed
from harness.upstream import refusing_address, slow
from harness.wait import PATIENCE, Gate

HOLD = "once_recover hold;"
recovering = pytest.mark.parametrize("recover", ["retry", "hold"])


# ----------------------------------------------------------------------------------------------------- upstream fails

def check_doubt(gw, recover, response, status=502):
    """It is unknown whether it happened, and the answer says so. It also says what to do, which no page of nginx does."""
    content = response.json()
    assert content["type"].split(":")[-1] in ("response-lost", "response-incomplete"), content
    expect.problem(response, content["type"].split(":")[-1], status=status, retry_after=(1, 1) if recover == "retry" else None)
    assert "same key" in content["detail"] and ("settled" in content["detail"]) == (recover == "hold"), content
    assert "Idempotency-Expires" not in response.headers and "Idempotent-Replayed" not in response.headers, response
    expect.plain(response)
    began = time.monotonic()
    left = gw.store.wait_state("k", "unknown")["lease_ms"] / 1000
    before = gw.upstream.total
    if recover == "hold":
        expect.problem(gw.post("k", b"a"), "outcome-unknown")
        gw.store.wait_lease_over("k")
        expect.problem(gw.post("k", b"a"), "outcome-unknown")
        assert gw.upstream.total == before
        return
    again = gw.post("k", b"a")
    if time.monotonic() - began < left or again.status != 201:  # else the machine is busy: the lease was over before the answer
        expect.problem(again, "in-doubt")
        assert gw.upstream.total == before
        gw.store.wait_lease_over("k")
        again = gw.post("k", b"a")
    expect.replay(gw.post("k", b"a"), expect.first(again))
    assert gw.upstream.total == before + 1


def check_released(gw, response, status=502):
    """It certainly did not happen: the next one may run at once, under every policy."""
    expect.problem(expect.unrecorded(response, status), "backend-unavailable", status=status, retry_after=(1, 1))
    gw.store.wait_state("k", "failed")


def lease(recover):
    """A short lease; what was released outlives the looks of a busy machine."""
    return f"once_lease 500ms; once_release_ttl 1m; once_recover {recover};"


@recovering
def test_upstream_refuses_the_connection(gateway, recover):
    refusing, sock = refusing_address()
    gw = gateway(lease(recover) + "proxy_pass http://$http_x_to;", guard="once on; once_scope none;")
    check_released(gw, gw.post("k", b"a", headers=[("X-To", refusing)]))
    expect.first(gw.post("k", b"a", headers=[("X-To", gw.upstream.name)]))
    assert gw.upstream.count("k") == 1
    sock.close()


@recovering
def test_upstream_does_not_accept_in_time(gateway, recover):
    """A queue of connections that is full: the kernel drops what comes."""
    deaf = socket.socket()
    deaf.bind(("127.0.0.1", 0))
    deaf.listen(0)
    filling = [socket.socket() for _ in range(4)]
    for sock in filling:
        sock.setblocking(False)
        sock.connect_ex(deaf.getsockname())
    gw = gateway(lease(recover) + "proxy_connect_timeout 300ms; proxy_pass http://$http_x_to;", guard="once on; once_scope none;")
    check_released(gw, gw.post("k", b"a", headers=[("X-To", "%s:%d" % deaf.getsockname())]), 504)
    expect.first(gw.post("k", b"a", headers=[("X-To", gw.upstream.name)]))
    assert gw.upstream.count("k") == 1
    for sock in [deaf, *filling]:
        sock.close()


@recovering
def test_upstream_accepts_after_half_of_the_lease(gateway, recover):
    """The queue has room again when it is too late: nothing is sent, since another worker may already consider the holder dead."""
    backend = socket.socket()
    backend.bind(("127.0.0.1", 0))
    backend.listen(0)
    filling = [socket.socket() for _ in range(4)]
    for sock in filling:
        sock.setblocking(False)
        sock.connect_ex(backend.getsockname())
    peers = {sock.getsockname() for sock in filling}
    gw = gateway(lease(recover) + "proxy_pass http://$http_x_to;", guard="once on; once_scope none;")
    got = []

    def accept():
        gw.store.wait_state("k", "pending")
        time.sleep(0.5)  # the lease: what must pass is time itself
        backend.settimeout(PATIENCE)
        try:
            while True:
                sock, address = backend.accept()
                sock.settimeout(PATIENCE)
                if address not in peers:
                    got.append(sock.recv(4096))
                sock.close()
        except OSError:
            pass

    accepting = threading.Thread(target=accept)
    accepting.start()
    gw.nginx.expect("too late to forward")
    check_released(gw, gw.post("k", b"a", headers=[("X-To", "%s:%d" % backend.getsockname())]))
    backend.shutdown(socket.SHUT_RDWR)
    for sock in [backend, *filling]:
        sock.close()
    accepting.join()
    assert not any(b"POST" in data for data in got)
    expect.first(gw.post("k", b"a", headers=[("X-To", gw.upstream.name)]))
    assert gw.upstream.count("k") == 1


@recovering
def test_upstream_fails_before_the_first_byte_is_sent(gateway, recover):
    """TLS to the backend that ends in its handshake: connected, but no byte of the request was sent."""
    gw = gateway(lease(recover), guard="once on; once_scope none; proxy_pass https://backend;")

    def hang_up(sock):
        sock.recv(1)
        sock.close()
        return True

    gw.upstream.on_accept = hang_up
    check_released(gw, gw.post("k", b"a"))
    assert gw.upstream.total == 0


@recovering
@pytest.mark.parametrize("how", ["reset", "close"])
def test_upstream_fails_after_the_first_byte(gateway, recover, how):
    gw = gateway(lease(recover))

    def one_byte(sock):
        gw.upstream.on_accept = None
        sock.recv(1)
        if how == "reset":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()
        return True

    gw.upstream.on_accept = one_byte
    check_doubt(gw, recover, gw.post("k", b"a"))


@recovering
def test_upstream_fails_in_the_middle_of_the_request_body(gateway, recover):
    gw = gateway(lease(recover) + "client_max_body_size 0;")

    def after_head(request, sock):
        gw.upstream.on_head = None
        sock.recv(1000)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()
        return True

    gw.upstream.on_head = after_head
    response = gw.post("k", b"b" * 20_000_000)
    assert response.status == 502, response
    assert gw.store.wait_state("k", "unknown")["epoch"] == 1
    assert gw.upstream.total == 0


@recovering
@pytest.mark.parametrize("how", ["reset", "close"])
def test_upstream_fails_after_the_request_was_sent(gateway, recover, how):
    gw = gateway(lease(recover))
    gw.upstream.then(lambda exchange: exchange.reset() if how == "reset" else exchange.close())
    check_doubt(gw, recover, gw.post("k", b"a"))


HEADS = [b"HTTP/1.1 ", b"HTTP/1.1 201 Created\r\n", b"HTTP/1.1 201 Created\r\nContent-Le", b"what?\r\n\r\n"]


@recovering
@pytest.mark.parametrize("text", HEADS)
def test_upstream_fails_in_the_middle_of_the_header(gateway, recover, text):
    gw = gateway(lease(recover))

    def script(exchange):
        exchange.send(text)
        exchange.close()

    gw.upstream.then(script)
    check_doubt(gw, recover, gw.post("k", b"a"))


TRUNCATED = {
    "no body": ([("Content-Length", "100")], b""),
    "short body": ([("Content-Length", "100")], b"x" * 99),
    "short large body": ([("Content-Length", "500000")], b"x" * 400_000),
    "chunk that does not end": ([("Transfer-Encoding", "chunked")], b"a\r\n12345"),
    "chunks that do not end": ([("Transfer-Encoding", "chunked")], b"5\r\n12345\r\n"),
    "last chunk that does not end": ([("Transfer-Encoding", "chunked")], b"5\r\n12345\r\n0\r\n"),
    "bad chunk": ([("Transfer-Encoding", "chunked")], b"5\r\n12345\r\nzz\r\n"),
}


@pytest.mark.parametrize("protocol", ["h1", "h2"])
@pytest.mark.parametrize("buffering", ["on", "off"])
@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("name", TRUNCATED)
def test_upstream_fails_in_the_middle_of_the_body(gateway, name, how, buffering, protocol):
    """The client gets a 502 and not a connection that is cut: nothing had been sent to it."""
    gw = gateway(f"once_lease 500ms; proxy_buffering {buffering};" + HOLD)
    headers, body = TRUNCATED[name]

    def script(exchange):
        exchange.begin(201, headers)
        exchange.send(body)
        if how == "reset":
            exchange.reset()
        else:
            exchange.close()

    gw.upstream.then(script)
    client = gw.connect() if protocol == "h1" else gw.connect2()
    response = client.request("POST", "/", "k", b"a")
    if how == "close":  # a reset can overtake what was sent before it
        expect.problem(response, "response-incomplete")
    assert response.status == 502, response
    gw.store.wait_state("k", "unknown")
    if response.header("Connection") == "close":
        client = gw.connect()
    expect.problem(client.request("POST", "/", "k", b"a"), "outcome-unknown")
    assert gw.upstream.count("k") == 1


def test_truncated_reply_under_retry(gateway):
    gw = gateway(lease("retry"))

    def script(exchange):
        exchange.begin(201, [("Content-Length", "100")])
        exchange.send(b"x" * 50)
        exchange.close()

    gw.upstream.then(script)
    check_doubt(gw, "retry", gw.post("k", b"a"))


def test_truncated_after_it_was_recorded(gateway):
    """Larger than what is kept: status and headers were recorded and sent before the upstream failed."""
    gw = gateway("once_store_body 1k; proxy_buffering off;" + HOLD)

    def script(exchange):
        exchange.begin(201, [("Content-Length", "300000"), ("X-Own", "1")])
        exchange.send(b"x" * 100_000)
        exchange.close()

    gw.upstream.then(script)
    with gw.connect() as client:
        client.start("POST", "/", "k", b"a")
        with pytest.raises(Closed):
            client.finish()
    response = gw.post("k", b"a")
    assert (response.status, response.header("Once-Body"), response.header("X-Own")) == (201, "omitted", "1")
    assert gw.upstream.count("k") == 1


@recovering
def test_upstream_does_not_answer_in_time(gateway, recover):
    gw, gate = gateway(lease(recover) + "proxy_read_timeout 200ms;"), Gate()
    gw.upstream.then(slow(gate))
    response = gw.post("k", b"a")
    gate.open()
    check_doubt(gw, recover, response, 504)


@recovering
def test_upstream_stops_in_the_middle_of_its_answer(gateway, recover):
    gw, gate = gateway(lease(recover) + "proxy_read_timeout 200ms;"), Gate()

    def script(exchange):
        exchange.begin(201, [("Content-Length", "100")])
        exchange.send(b"x" * 50)
        gate.pass_through()

    gw.upstream.then(script)
    response = gw.post("k", b"a")
    gate.open()
    assert response.status in (502, 504)
    check_doubt(gw, recover, response, response.status)


def test_upstream_with_too_large_a_header(gateway):
    gw = gateway(lease("hold") + "proxy_buffer_size 4k;")
    gw.upstream.then(lambda exchange: exchange.respond(201, [("X-Large", "v" * 20_000)]))
    check_doubt(gw, "hold", gw.post("k", b"a"))
    assert gw.upstream.count("k") == 1


def test_client_gone_and_upstream_fails(gateway):
    gw, gate = gateway(HOLD), Gate()

    def script(exchange):
        gate.pass_through()
        exchange.reset()

    gw.upstream.then(script)
    leaver = Leaver(gw, "h1-reset")
    leaver.start("k")
    gate.wait_arrival()
    leaver.leave()
    gate.open()
    gw.store.wait_state("k", "unknown")
    expect.problem(gw.post("k", b"a"), "outcome-unknown")
    assert gw.upstream.count("k") == 1
