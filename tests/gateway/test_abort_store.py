"""Stores that are slow, full or broken, at the claim and at the completion."""
import os
import subprocess

import pytest

from harness import environment, expect
from harness.message import head
from harness.wait import until

HOLD = "once_recover hold;"


def check_recorded(gw, key="k", body=b"a"):
    """The outcome was recorded although no client waited for it, and it happened once."""
    gw.store.wait_state(key, "completed")
    response = gw.post(key, body)
    assert response.status == 201 and response.header("Idempotent-Replayed") == "true", response
    assert response.json()["key"] == key
    assert gw.upstream.count(key) == 1


# -------------------------------------------------------------------------------------------------------- store fails

def check_free_again(gw):
    """A claim that was asked for and came too late is given back by itself: long before its lease of 30 s is over."""
    original = until(lambda: (response := gw.post("k", b"a")).status != 409 and response, "the claim to be given back")
    expect.first(original)
    expect.replay(gw.post("k", b"a"), original)
    assert gw.upstream.count("k") == 1


def test_store_is_slow_at_the_claim(gateway):
    """Longer than once_store_timeout: the client gets an error, and the late request is not forwarded later."""
    gw = gateway("once_store_timeout 1s;" + HOLD, disk=True)
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
    gw = gateway("once_store_timeout 1s;" + HOLD, disk=True)
    gw.nginx.expect("No space|full|cannot be written")
    expect.first(gw.post("before", b"a"))
    gw.disk.fill()
    expect.problem(gw.post("k", b"a"), "store-unavailable")
    assert gw.upstream.count("k") == 0
    gw.disk.heal()
    check_free_again(gw)


def test_store_is_full_at_the_claim_and_requests_may_pass(gateway):
    gw = gateway("once_store_timeout 1s; once_on_store_error pass;", disk=True)
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
    gw = gateway("once_store_timeout 1s;" + HOLD, disk=True)
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
    """A disk that lost what it had taken: nothing is assumed, nothing runs; the next generation of workers starts afresh."""
    gw = gateway("once_store_timeout 1s;" + HOLD, disk=True)
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
        gw = gateway("once_store_timeout 1s;" + HOLD, store=f"local:{place}/store?segment=256k")
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


@pytest.mark.parametrize("rules", ["proxy_pass http://backend;", "once_on_store_error pass;",
                                   "once_key $once_json_none; once_require off;"])
def test_client_is_gone_when_the_store_cannot_be_asked(prepare, rules):
    """All happens in the event that brought the request: its end must wait until everybody has let go of it. The first answer is
    met by a reset, and the next one cannot be written."""
    gw = prepare(guard="once on; once_scope none;" + rules, store="local:/proc/nowhere/store")
    gw.nginx.expect("cannot be opened")
    gw.start()
    one = head("POST / HTTP/1.1", [("Host", "g"), ("Idempotency-Key", "a"), ("Content-Length", "3")]) + b"one"
    for _ in range(5):
        client = gw.connect()
        client.send(one * 8)
        client.close()
    gw.nginx.log.wait("Broken pipe|reset by peer")
    assert gw.post("k").status == (503 if "proxy_pass" in rules else 404)
