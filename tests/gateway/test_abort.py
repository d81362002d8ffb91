"""Things that end too early: clients that go away, upstreams and disks that fail, at every point and by every way."""
import os
import socket
import subprocess

import pytest

from harness import environment, expect
from harness.leaving import WAYS, Leaver
from harness.message import Closed
from harness.upstream import refusing_address
from harness.wait import Gate, until

HOLD = "once_recover hold;"
leaving = pytest.mark.parametrize("way", WAYS)
recovering = pytest.mark.parametrize("recover", ["retry", "hold"])


def slow(gate, **answer):
    def script(exchange):
        gate.pass_through()
        exchange.respond(**answer)
    return script


def check_recorded(gw, key="k", body=b"a"):
    """The outcome was recorded although nobody waited for it, and it happened once."""
    gw.store.wait_state(key, "completed")
    response = gw.post(key, body)
    assert response.status == 201 and response.header("Idempotent-Replayed") == "true", response
    assert response.json()["key"] == key
    assert gw.upstream.count(key) == 1


# ------------------------------------------------------------------------------------------------ the client goes away

@leaving
@pytest.mark.parametrize("sent", [0, 10, 70_000])
def test_client_gone_while_its_body_is_read(gateway, way, sent):
    gw, body = gateway(), b"b" * 100_000
    leaver = Leaver(gw, way)
    leaver.begin("k", body, sent)
    leaver.leave()
    original = expect.first(gw.post("k", body))
    expect.replay(gw.post("k", body), original)
    assert gw.upstream.count("k") == 1
    assert gw.store.show("k")["epoch"] == 1


@leaving
def test_client_gone_while_the_claim_is_asked_for(gateway, way):
    """Nothing was forwarded yet. Either it still is and is recorded, or the claim is given back: never stuck, never twice."""
    gw = gateway(HOLD, disk=True)
    gw.disk.block()
    leaver = Leaver(gw, way)
    leaver.start("k")
    gw.disk.wait_blocked()
    leaver.leave()
    gw.disk.heal()
    if gw.store.wait_state("k", "completed", "failed")["state"] == "completed":
        check_recorded(gw)
    else:
        assert gw.upstream.count("k") == 0
        expect.once(lambda: gw.post("k", b"a"))
        assert gw.upstream.count("k") == 1


@leaving
@pytest.mark.parametrize("buffering", ["on", "off"])
def test_client_gone_while_the_upstream_works(gateway, way, buffering):
    gw, gate = gateway(f"proxy_buffering {buffering};" + HOLD), Gate()
    gw.upstream.then(slow(gate))
    leaver = Leaver(gw, way)
    leaver.start("k")
    gate.wait_arrival()
    leaver.leave()
    expect.problem(gw.post("k", b"a"), "in-flight")
    gate.open()
    check_recorded(gw)


@leaving
def test_client_gone_between_header_and_body_of_the_upstream(gateway, way):
    gw, gate = gateway(HOLD), Gate()

    def script(exchange):
        body = exchange.body()
        exchange.begin(201, [("Content-Length", len(body))])
        exchange.send(body[:5])
        gate.pass_through()
        exchange.send(body[5:])

    gw.upstream.then(script)
    leaver = Leaver(gw, way)
    leaver.start("k")
    gate.wait_arrival()
    leaver.leave()
    gate.open()
    check_recorded(gw)


@leaving
def test_client_gone_while_its_response_is_held(gateway, way):
    gw = gateway(HOLD, disk=True)

    def script(exchange):
        gw.disk.block()
        exchange.respond()

    gw.upstream.then(script)
    leaver = Leaver(gw, way)
    leaver.start("k")
    gw.disk.wait_blocked()
    leaver.leave()
    gw.disk.heal()
    check_recorded(gw)


@leaving
@pytest.mark.parametrize("size, rules", [(900_000, ""), (8_000_000, ""), (8_000_000, "proxy_buffering off;")])
def test_client_gone_while_the_response_is_sent(gateway, way, size, rules):
    """8 MB are more than is kept: only status and headers are recorded, before the first byte is sent."""
    # Unbuffered over HTTP/2, nginx itself notices the client's absence only by send_timeout.
    gw = gateway(HOLD + rules + "once_store_timeout 500ms; send_timeout 1s;")
    gw.upstream.then(lambda exchange: exchange.respond(201, [("X-Own", "1")], b"x" * size))
    leaver = Leaver(gw, way)
    leaver.start("k")
    leaver.read_some(1000)
    assert gw.store.state("k") == "completed"
    leaver.leave()
    response = gw.post("k", b"a")
    assert response.status == 201 and response.header("Idempotent-Replayed") == "true"
    assert response.header("X-Own") == "1"
    assert response.body == (b"x" * size if size < 1_000_000 else b"")
    assert gw.upstream.count("k") == 1


@leaving
def test_client_gone_while_a_replay_is_sent(gateway, way):
    gw = gateway()
    gw.upstream.then(lambda exchange: exchange.respond(201, body=b"x" * 1_000_000))
    original = expect.first(gw.post("k", b"a"))
    for _ in range(3):
        leaver = Leaver(gw, way)
        leaver.start("k")
        leaver.read_some(1000)
        leaver.leave()
    expect.replay(gw.post("k", b"a"), original)
    assert gw.upstream.count("k") == 1


def test_client_that_shuts_down_its_sending_side(gateway):
    """Half-closed is not gone for everybody; whether it is answered is nginx's business, that it is recorded is ours."""
    gw, gate = gateway(HOLD), Gate()
    gw.upstream.then(slow(gate))
    client = gw.connect()
    client.start("POST", "/", "k", b"a")
    gate.wait_arrival()
    client.half_close()
    gate.open()
    check_recorded(gw)


@leaving
def test_many_clients_gone_at_any_moment(gateway, way):
    """No gate, no order: whatever the moments were, each key ran at most once and can be answered."""
    gw, count = gateway(HOLD), 12 if environment.slow() else 40
    for number in range(count):
        leaver = Leaver(gw, way)
        leaver.start(f"k{number}")
        if number % 3 == 1:
            gw.upstream.wait_count(f"k{number}", 1)
        leaver.leave()
    for number in range(count):
        key = f"k{number}"
        if gw.store.state(key) is not None:
            gw.store.wait_state(key, "completed", "failed")
        response = gw.post(key, b"a")
        assert response.status in (201, 409), response
        if response.status == 409:  # it comes through only now
            gw.store.wait_state(key, "completed")
        assert gw.upstream.count(key) == 1


def test_send_timeout_while_the_response_is_held(gateway):
    """nginx hangs up on the client; the outcome is recorded all the same."""
    gw = gateway("send_timeout 2s; once_store_timeout 1s;" + HOLD, disk=True)

    def script(exchange):
        gw.disk.block()
        exchange.respond()

    gw.upstream.then(script)
    with gw.connect() as client:
        client.start("POST", "/", "k", b"a")
        gw.disk.wait_blocked()
        try:
            expect.problem(client.finish(), "store-unavailable")
        except (Closed, ConnectionResetError):
            pass
    gw.disk.heal()
    check_recorded(gw)


# ----------------------------------------------------------------------------------------------------- upstream fails

def check_doubt(gw, recover, response, status=502):
    """Nobody knows whether it happened, and nobody pretends to."""
    assert response.status == status, response
    assert "Idempotency-Expires" not in response.headers and "Idempotent-Replayed" not in response.headers, response
    expect.plain(response)
    gw.store.wait_state("k", "unknown")
    before = gw.upstream.total
    if recover == "hold":
        expect.problem(gw.post("k", b"a"), "outcome-unknown")
        gw.store.wait_lease_over("k")
        expect.problem(gw.post("k", b"a"), "outcome-unknown")
        assert gw.upstream.total == before
        return
    expect.problem(gw.post("k", b"a"), "in-flight")
    assert gw.upstream.total == before
    gw.store.wait_lease_over("k")
    expect.once(lambda: gw.post("k", b"a"))
    assert gw.upstream.total == before + 1


def check_released(gw, response, status=502):
    """It certainly did not happen: the next one may run at once, under every policy."""
    expect.unrecorded(response, status)
    gw.store.wait_state("k", "failed")


def lease(recover):
    return f"once_lease 500ms; once_recover {recover};"


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


@recovering
@pytest.mark.parametrize("text", [b"HTTP/1.1 ", b"HTTP/1.1 201 Created\r\n", b"HTTP/1.1 201 Created\r\nContent-Le", b"what?\r\n\r\n"])
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


# -------------------------------------------------------------------------------------------------------- store fails

def check_free_again(gw):
    """A claim that was asked for and came too late is given back by itself: long before its lease of 30 s is over."""
    original = until(lambda: (response := gw.post("k", b"a")).status != 409 and response, "the claim to be given back")
    expect.first(original)
    expect.replay(gw.post("k", b"a"), original)
    assert gw.upstream.count("k") == 1


def test_store_is_slow_at_the_claim(gateway):
    """Longer than once_store_timeout: the client is told, and what was asked for late is not forwarded later."""
    gw = gateway("once_store_timeout 300ms;" + HOLD, disk=True)
    expect.first(gw.post("before", b"a"))
    gw.disk.block()
    expect.problem(gw.post("k", b"a"), "store-unavailable")
    assert gw.upstream.count("k") == 0
    gw.disk.heal()
    check_free_again(gw)


def test_store_is_a_little_slow_at_the_claim(gateway):
    gw = gateway(HOLD, disk=True)
    gw.disk.block()
    with gw.connect() as client:
        client.start("POST", "/", "k", b"a")
        gw.disk.wait_blocked()
        assert gw.upstream.count("k") == 0, "forwarded before the claim was durable"
        gw.disk.heal()
        original = expect.first(client.finish())
    expect.replay(gw.post("k", b"a"), original)
    assert gw.upstream.count("k") == 1


def test_store_is_full_at_the_claim(gateway):
    gw = gateway("once_store_timeout 300ms;" + HOLD, disk=True)
    gw.nginx.expect("No space|full|cannot be written")
    expect.first(gw.post("before", b"a"))
    gw.disk.fill()
    expect.problem(gw.post("k", b"a"), "store-unavailable")
    assert gw.upstream.count("k") == 0
    gw.disk.heal()
    check_free_again(gw)


def test_store_is_full_at_the_claim_and_requests_may_pass(gateway):
    gw = gateway("once_store_timeout 300ms; once_on_store_error pass;", disk=True)
    gw.nginx.expect("No space|full|cannot be written")
    gw.disk.fill()
    expect.unrecorded(gw.post("k", b"a"), 201)
    assert "Once-Claim" not in gw.upstream.last().headers
    assert gw.upstream.count("k") == 1


def test_store_is_slow_at_the_completion(gateway):
    gw = gateway(HOLD, disk=True)

    def script(exchange):
        gw.disk.block()
        exchange.respond()

    gw.upstream.then(script)
    with gw.connect() as client:
        client.start("POST", "/", "k", b"a")
        gw.disk.wait_blocked()
        client.sock.setblocking(False)
        with pytest.raises(BlockingIOError):  # nothing is sent before it is recorded
            client.sock.recv(1)
        client.sock.settimeout(15)
        gw.disk.heal()
        original = expect.first(client.finish())
    expect.replay(gw.post("k", b"a"), original)
    assert gw.upstream.count("k") == 1


@pytest.mark.parametrize("fault", ["block", "fill"])
def test_store_fails_at_the_completion(gateway, fault):
    """The outcome is known but cannot be written: the client may ask again, and it is written when that is possible."""
    gw = gateway("once_store_timeout 300ms;" + HOLD, disk=True)
    gw.nginx.expect("No space|full|cannot be written")

    def script(exchange):
        getattr(gw.disk, fault)()
        exchange.respond()

    gw.upstream.then(script)
    expect.problem(gw.post("k", b"a"), "store-unavailable")
    gw.disk.heal()
    check_recorded(gw)


def test_store_fails_at_the_completion_for_longer_than_the_lease(gateway):
    gw = gateway("once_store_timeout 300ms; once_lease 1s;" + HOLD, disk=True)

    def script(exchange):
        gw.disk.block()
        exchange.respond()

    gw.upstream.then(script)
    expect.problem(gw.post("k", b"a"), "store-unavailable")
    gw.nginx.wait_quiet(1.2)
    gw.disk.heal()
    check_recorded(gw)


def test_store_breaks_down(gateway):
    """A disk that lost what it had taken: nothing is assumed, nothing runs; the next generation of workers starts anew."""
    gw = gateway("once_store_timeout 300ms;" + HOLD, disk=True)
    gw.nginx.expect("store|cannot be written|Input/output")
    expect.first(gw.post("before", b"a"))
    gw.disk.break_down()
    expect.problem(gw.post("k", b"a"), "store-unavailable")
    assert gw.upstream.count("k") == 0
    gw.disk.heal()
    gw.nginx.wait_worker_gone(*gw.nginx.reload())
    response = gw.post("k", b"a")
    assert response.status in (201, 409), response  # 409: the claim may have reached the disk
    assert gw.upstream.count("k") == (1 if response.status == 201 else 0)


def test_many_at_once_while_the_store_stalls(gateway):
    """They all wait, none is lost, each runs once."""
    gw, count = gateway(HOLD, disk=True), 30
    gw.disk.block()
    clients = []
    for number in range(count):
        clients.append(gw.connect())
        clients[-1].start("POST", "/", f"k{number}", b"a")
    gw.disk.wait_blocked()
    gw.disk.heal()
    for client in clients:
        expect.first(client.finish())
    for number in range(count):
        assert gw.upstream.count(f"k{number}") == 1


@pytest.mark.skipif(not environment.ROOT, reason="only root can make a file system to fill")
def test_store_on_a_full_file_system(gateway, directory):
    """No imitation: a file system of 24 MB that is full, and has room again."""
    place = os.path.join(directory, "small")
    os.mkdir(place)
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", place], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"cannot mount: {made.stderr.decode()}")
    try:
        gw = gateway("once_store_timeout 300ms;" + HOLD, store=f"local:{place}/store?segment=256k")
        gw.nginx.expect("No space|full|cannot be written")
        expect.first(gw.post("before", b"a"))
        with open(f"{place}/ballast", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass
        gw.upstream.default = lambda exchange: exchange.respond(body=os.urandom(100_000))
        answers = [gw.post(f"k{number}", b"a") for number in range(6)]
        refused = [number for number, response in enumerate(answers) if response.status == 503]
        assert refused, "the store never became full"
        for response in answers:
            if response.status != 201:
                expect.problem(response, "store-unavailable")
        os.unlink(f"{place}/ballast")
        for number in range(6):
            key = f"k{number}"
            if gw.store.state(key):
                gw.store.wait_state(key, "completed", "failed")
            response = gw.post(key, b"a")
            assert response.status == 201, response
            assert gw.upstream.count(key) == 1
        gw.nginx.quit()
    finally:
        subprocess.run(["umount", "-l", place], check=False)
