"""once_wait: duplicates of a request that is in flight wait for its answer."""
import time

import pytest

from harness import environment, expect
from harness.leaving import WAYS, Leaver
from harness.message import Closed
from harness.upstream import slow
from harness.wait import Gate, until


def waiters(gw, count, key="k", body=b"a", protocol="h1"):
    """Clients that wait; each is known to be read by the gateway before the next one comes."""
    made = []
    for _ in range(count):
        client = gw.connect() if protocol == "h1" else gw.connect2()
        made.append((client, client.start("POST", "/", key, body)))
    return made


def finish(waiter):
    client, number = waiter
    return client.finish() if number is None else client.finish(number)


def first_in_flight(gw, gate, key="k"):
    client = gw.connect()
    client.start("POST", "/", key, b"a")
    gate.wait_arrival()
    return client


@pytest.mark.parametrize("protocol", ["h1", "h2"])
@pytest.mark.parametrize("workers", [1, 2])
def test_waits_and_then_replays(gateway, workers, protocol):
    """In one worker they are woken by the end of the first; in another one they look again and again."""
    gw, gate = gateway("once_wait 20s;", workers=workers), Gate()
    gw.upstream.then(slow(gate))
    first = first_in_flight(gw, gate)
    waiting = waiters(gw, 8, protocol=protocol)
    gate.open()
    original = expect.first(first.finish())
    for waiter in waiting:
        expect.replay(finish(waiter), original)
    assert gw.upstream.count("k") == 1


def test_waiters_in_the_same_worker_do_not_poll(gateway):
    """Woken, not polled: the answer is there at once, long before any bounded polling could look again."""
    gw, gate = gateway("once_wait 20s;"), Gate()
    gw.upstream.then(slow(gate))
    first = first_in_flight(gw, gate)
    waiting = waiters(gw, 4)
    gw.nginx.wait_quiet(2)  # polling with backoff has reached its longest pause, a second
    gate.open()
    original = expect.first(first.finish())
    started = time.monotonic()
    for waiter in waiting:
        expect.replay(finish(waiter), original)
    if not environment.slow():
        assert time.monotonic() - started < 0.5
    assert gw.upstream.count("k") == 1


def test_wait_ends_before_the_first(gateway):
    gw, gate = gateway("once_wait 300ms;"), Gate()
    gw.upstream.then(slow(gate))
    first = first_in_flight(gw, gate)
    started = time.monotonic()
    expect.problem(gw.post("k", b"a"), "in-flight", retry_after=(1, 30))
    assert 0.25 < time.monotonic() - started < 5
    gate.open()
    original = expect.first(first.finish())
    expect.replay(gw.post("k", b"a"), original)
    assert gw.upstream.count("k") == 1


def test_one_waiter_takes_over_when_the_first_is_released(gateway):
    """The first comes to nothing; exactly one of those that waited runs, the others get its answer."""
    gw, gate = gateway("once_wait 20s;"), Gate()
    gw.upstream.then(slow(gate, status=429))
    first = first_in_flight(gw, gate)
    waiting = waiters(gw, 6)
    gate.open()
    assert first.finish().status == 429
    answers = [finish(waiter) for waiter in waiting]
    assert [answer.status for answer in answers] == [201] * 6
    assert len({answer.body for answer in answers}) == 1
    assert sum("Idempotent-Replayed" not in answer.headers for answer in answers) == 1
    assert gw.upstream.count("k") == 2


def test_waiters_learn_that_the_outcome_is_unknown(gateway):
    gw, gate = gateway("once_wait 20s; once_recover hold;"), Gate()

    def script(exchange):
        gate.pass_through()
        exchange.reset()

    gw.upstream.then(script)
    first = first_in_flight(gw, gate)
    waiting = waiters(gw, 3)
    gate.open()
    assert first.finish().status == 502
    for waiter in waiting:
        expect.problem(finish(waiter), "outcome-unknown")
    assert gw.upstream.count("k") == 1


def test_mismatch_does_not_wait(gateway):
    gw, gate = gateway("once_wait 20s;"), Gate()
    gw.upstream.then(slow(gate))
    first = first_in_flight(gw, gate)
    started = time.monotonic()
    expect.problem(gw.post("k", b"other"), "key-reused")
    assert time.monotonic() - started < 10
    gate.open()
    expect.first(first.finish())
    assert gw.upstream.count("k") == 1


def test_waiters_of_one_key_are_bounded(gateway):
    gw, gate = gateway("once_wait 20s max=3;"), Gate()
    gw.upstream.then(slow(gate))
    first = first_in_flight(gw, gate)
    waiting = waiters(gw, 3)
    until(lambda: gw.post("k", b"other").status == 422, "the waiters to be read")  # one worker: they came before this
    expect.problem(gw.post("k", b"a"), "too-many-waiters")
    assert gw.post("other", b"a").status == 201  # other keys are not concerned
    gate.open()
    original = expect.first(first.finish())
    for waiter in waiting:
        expect.replay(finish(waiter), original)
    assert gw.upstream.count("k") == 1


def test_sixteen_may_wait_by_default(gateway):
    gw, gate = gateway("once_wait 20s;"), Gate()
    gw.upstream.then(slow(gate))
    first = first_in_flight(gw, gate)
    waiting = waiters(gw, 16)
    gw.post("k", b"other")
    expect.problem(gw.post("k", b"a"), "too-many-waiters")
    gate.open()
    original = expect.first(first.finish())
    for waiter in waiting:
        expect.replay(finish(waiter), original)
    assert gw.upstream.count("k") == 1


@pytest.mark.parametrize("way", WAYS)
def test_waiter_goes_away(gateway, way):
    gw, gate = gateway("once_wait 20s max=1;"), Gate()
    gw.upstream.then(slow(gate))
    first = first_in_flight(gw, gate)
    leaver = Leaver(gw, way)
    leaver.start("k")
    gw.post("k", b"other")
    leaver.leave()

    def place_is_free():
        """The one that left gave its place back: another one may wait."""
        client = gw.connect()
        client.start("POST", "/", "k", b"a")
        client.sock.settimeout(0.3)
        try:
            assert client.finish().status == 429
            return None
        except TimeoutError:
            client.sock.settimeout(15)
            return client

    waiter = until(place_is_free, "the place of the waiter that left")
    gate.open()
    original = expect.first(first.finish())
    expect.replay(waiter.finish(), original)
    assert gw.upstream.count("k") == 1


def test_first_goes_away_while_others_wait(gateway):
    gw, gate = gateway("once_wait 20s;"), Gate()
    gw.upstream.then(slow(gate))
    first = first_in_flight(gw, gate)
    waiting = waiters(gw, 4)
    gw.post("k", b"other")
    first.reset()
    gate.open()
    answers = [finish(waiter) for waiter in waiting]
    for answer in answers:
        assert answer.status == 201 and answer.header("Idempotent-Replayed") == "true", answer
    assert len({answer.body for answer in answers}) == 1
    assert gw.upstream.count("k") == 1


@pytest.mark.parametrize("recover, ends", [("retry", 201), ("hold", 409)])
def test_first_is_killed_while_others_wait(gateway, recover, ends):
    """Its lease runs out; what happens then is the policy's business, and the waiter learns it."""
    gw, gate = gateway(f"once_wait 20s; once_lease 1s; once_recover {recover};", workers=1), Gate()
    gw.upstream.then(slow(gate))
    first_in_flight(gw, gate)
    gw.nginx.kill_worker()
    response = gw.post("k", b"a")
    gate.open()
    if ends == 201:
        expect.first(response)
    else:
        expect.problem(response, "outcome-unknown")
    assert gw.upstream.count("k") == (2 if ends == 201 else 1)


def test_reload_while_somebody_waits(gateway):
    gw, gate = gateway("once_wait 20s;"), Gate()
    gw.upstream.then(slow(gate))
    first = first_in_flight(gw, gate)
    old_waiters = waiters(gw, 2)
    gw.post("k", b"other")
    old = gw.nginx.reload()
    new_waiters = waiters(gw, 2)
    gate.open()
    original = expect.first(first.finish())
    for waiter in old_waiters + new_waiters:
        expect.replay(finish(waiter), original)
    gw.nginx.wait_worker_gone(*old)
    assert gw.upstream.count("k") == 1


def test_quit_while_somebody_waits(gateway):
    gw, gate = gateway("once_wait 20s;"), Gate()
    gw.upstream.then(slow(gate))
    first = first_in_flight(gw, gate)
    waiting = waiters(gw, 2)
    gw.post("k", b"other")
    gw.nginx.signal(3)
    gw.nginx.log.wait("gracefully shutting down")
    gate.open()
    original = expect.first(first.finish())
    for waiter in waiting:
        expect.replay(finish(waiter), original)
    gw.nginx.log.wait_end()
    assert gw.upstream.count("k") == 1


def test_term_while_somebody_waits(gateway):
    gw, gate = gateway("once_wait 20s; once_recover hold;"), Gate()
    gw.upstream.then(slow(gate))
    first_in_flight(gw, gate)
    waiting = waiters(gw, 2)
    gw.post("k", b"other")
    gw.nginx.expect("open socket")
    gw.nginx.term()
    gate.open()
    for client, _ in waiting:
        with pytest.raises((Closed, OSError)):
            client.finish()
    assert gw.store.state("k") == "unknown"
    assert gw.upstream.count("k") == 1


def test_many_keys_and_many_waiters(gateway):
    gw, gate = gateway("once_wait 20s;", workers=2), Gate()
    gw.upstream.default = slow(gate)
    keys = [f"k{number}" for number in range(10)]
    groups = {key: waiters(gw, 6, key) for key in keys}
    for key in keys:
        gw.upstream.wait_count(key, 1)
    gate.open()
    for key, group in groups.items():
        answers = [finish(waiter) for waiter in group]
        assert [answer.status for answer in answers] == [201] * 6
        assert len({answer.body for answer in answers}) == 1
        assert gw.upstream.count(key) == 1
