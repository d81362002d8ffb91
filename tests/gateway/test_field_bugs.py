"""Real bugs of other idempotency layers, one by one. Each was an incident elsewhere; none may become one of ours."""
import os
import signal
import socket

import pytest

from harness import environment, expect
from harness.leaving import WAYS, Leaver
from harness.message import Closed
from harness.upstream import slow
from harness.wait import Gate, all_at_once, until

HOLD = "once_recover hold;"


# 0. The completion fails after a successful handler, and the error path deletes the record: executed again.

def test_0_completion_fails_and_the_record_is_kept(gateway):
    gw = gateway("once_store_timeout 1s;", disk=True)
    gw.nginx.expect("No space|full|cannot be written")

    def script(exchange):
        gw.disk.fill()
        exchange.respond()

    gw.upstream.then(script)
    expect.problem(gw.post("k"), "store-unavailable")
    for _ in range(3):
        response = gw.post("k")
        assert response.status in (409, 503), response
    gw.disk.heal()
    gw.store.wait_state("k", "completed")
    response = gw.post("k")
    assert response.status == 201 and response.header("Idempotent-Replayed") == "true"
    assert gw.upstream.count("k") == 1


# 1. A stale owner completes after a takeover.

def test_1_stale_owner_does_not_overwrite_the_one_who_took_over(gateway):
    """Two gateways, one store. The first stands still for longer than its lease; the second takes over; the first wakes up."""
    one = gateway("once_lease 1s;")
    two = gateway("once_lease 30s;", store=one.store.url)  # so long that no busy machine makes its own claim late
    gate = Gate()
    one.upstream.then(slow(gate, body=b"of the stale one"))
    client = one.connect()
    client.start("POST", "/", "k", b"a")
    gate.wait_arrival()
    worker = one.nginx.worker_pids()[0]
    os.kill(worker, signal.SIGSTOP)
    try:
        one.store.wait_lease_over("k")
        second = expect.first(two.post("k", b"a"))
        gate.open()
    finally:
        os.kill(worker, signal.SIGCONT)
    stale = client.finish()
    assert stale.body == second.body != b"of the stale one", "answered with its own copy"
    assert stale.status == 201
    expect.replay(one.post("k", b"a"), second)
    expect.replay(two.post("k", b"a"), second)
    assert one.upstream.count("k") == 1 and two.upstream.count("k") == 1  # retry: stated, not hidden
    assert one.store.show("k")["epoch"] == 2


def test_1_stale_owner_under_hold(gateway):
    """Nobody takes over; when the first wakes up its answer is the answer."""
    one = gateway("once_lease 1s;" + HOLD)
    two = gateway("once_lease 1s;" + HOLD, store=one.store.url)
    gate = Gate()
    one.upstream.then(slow(gate))
    client = one.connect()
    client.start("POST", "/", "k", b"a")
    gate.wait_arrival()
    worker = one.nginx.worker_pids()[0]
    os.kill(worker, signal.SIGSTOP)
    try:
        one.store.wait_lease_over("k")
        expect.problem(two.post("k", b"a"), "outcome-unknown")
        gate.open()
    finally:
        os.kill(worker, signal.SIGCONT)
    original = expect.first(client.finish())
    expect.replay(two.post("k", b"a"), original)
    assert one.upstream.count("k") == 1 and two.upstream.total == 0


def is_connecting(listener, others):
    """Does anybody but those knock at this socket's door?"""
    door = "%04X" % listener.getsockname()[1]
    known = {"%04X" % sock.getsockname()[1] for sock in others}
    with open("/proc/net/tcp") as table:
        lines = [line.split() for line in table][1:]
    return any(line[3] == "02" and line[2].split(":")[1] == door and line[1].split(":")[1] not in known for line in lines)


def test_1_stale_owner_that_has_not_yet_sent_anything(gateway):
    """It stands still while it connects. When it wakes up another holds its claim: not a byte goes out."""
    deaf = socket.socket()
    deaf.bind(("127.0.0.1", 0))
    deaf.listen(0)
    filling = [socket.socket() for _ in range(4)]  # the queue is full: the kernel drops the next connection
    for sock in filling:
        sock.setblocking(False)
        sock.connect_ex(deaf.getsockname())
    one = gateway("once_lease 1s; proxy_connect_timeout 30s; proxy_pass http://%s:%d;" % deaf.getsockname(),
                  guard="once on; once_scope none;")
    two = gateway("once_lease 1s;", store=one.store.url)
    client = one.connect()
    client.start("POST", "/", "k", b"a")
    one.store.wait_state("k", "pending")
    until(lambda: is_connecting(deaf, filling), "it to connect")
    worker = one.nginx.worker_pids()[0]
    os.kill(worker, signal.SIGSTOP)
    try:
        one.store.wait_lease_over("k")
        second = expect.first(two.post("k", b"a"))
        deaf.settimeout(30)
        peers = {sock.getsockname() for sock in filling}
        while True:  # now the kernel lets it in, when it knocks again
            late, address = deaf.accept()
            if address not in peers:
                break
            late.close()
    finally:
        os.kill(worker, signal.SIGCONT)
    late.settimeout(30)
    assert late.recv(100) == b"", "forwarded under a claim that was no longer its own"
    response = client.finish()
    assert response.status in (409, 502, 503) or response.body == second.body, response
    one.nginx.log.wait("too late")
    expect.replay(two.post("k", b"a"), second)
    assert two.upstream.count("k") == 1
    for sock in (deaf, late, *filling):
        sock.close()


def test_1_stale_owner_whose_record_was_settled(gateway):
    """An operator decided meanwhile: the decision is in the record, and the client gets it."""
    gw, gate = gateway("once_lease 1s;" + HOLD), Gate()
    gw.upstream.then(slow(gate, body=b"too late"))
    client = gw.connect()
    client.start("POST", "/", "k", b"a")
    gate.wait_arrival()
    gw.store.settle_completed("k", 202, b"settled", "--force")
    gate.open()
    response = client.finish()
    assert (response.status, response.body) == (202, b"settled"), response
    assert gw.upstream.count("k") == 1


def test_1_stale_owner_whose_record_was_settled_as_failed(gateway):
    """It was declared not to have happened: its answer is refused, and the client is not told that all is well."""
    gw, gate = gateway("once_lease 1s;" + HOLD), Gate()
    gw.upstream.then(slow(gate, body=b"too late"))
    client = gw.connect()
    client.start("POST", "/", "k", b"a")
    gate.wait_arrival()
    gw.store.settle_failed("k", "--force")
    gate.open()
    response = client.finish()
    assert response.status == 409, response
    assert b"too late" not in response.body
    assert gw.upstream.count("k") == 1


# 2. Taking over is decided on an old read, then written without a condition: three callers, two of them run.

def test_2_only_one_takes_over(gateway):
    one = gateway("once_lease 1s;", workers=2)
    two = gateway("once_lease 1s;", workers=2, store=one.store.url)
    for round_ in range(2 if environment.slow() else 5):
        key = f"k{round_}"
        gate = Gate()
        one.upstream.then(slow(gate))
        client = one.connect()
        client.start("POST", "/", key, b"a")
        gate.wait_arrival()
        pids = one.nginx.worker_pids()
        for pid in pids:
            one.nginx.kill_worker(pid)
        gate.open()
        one.store.wait_lease_over(key)
        answers = all_at_once([(lambda gw=gw: gw.post(key, b"a")) for gw in (one, two) * 5])
        assert sum(answer.status == 201 and "Idempotent-Replayed" not in answer.headers for answer in answers) == 1
        assert all(answer.status in (201, 409) for answer in answers), answers
        assert one.upstream.count(key) + two.upstream.count(key) == 2


# 3. A record in progress without a deadline is taken for an orphan.

def test_3_slow_is_not_dead(gateway):
    """The lease is renewed while the upstream works: several leases long, and no other request runs."""
    gw, gate = gateway("once_lease 500ms;"), Gate()
    gw.upstream.then(slow(gate))
    client = gw.connect()
    client.start("POST", "/", "k", b"a")
    gate.wait_arrival()
    for _ in range(6):
        gw.nginx.wait_quiet(0.3)
        expect.problem(gw.post("k", b"a"), "in-flight")
        assert gw.store.record("k")["lease_ms"] > 0
    gate.open()
    original = expect.first(client.finish())
    expect.replay(gw.post("k", b"a"), original)
    assert gw.upstream.count("k") == 1


def test_3_an_operator_sees_what_is_in_flight(gateway):
    """Also between two renewals."""
    gw, gate = gateway("once_lease 90ms;"), Gate()
    gw.upstream.then(slow(gate))
    client = gw.connect()
    client.start("POST", "/", "k", b"a")
    gate.wait_arrival()
    seen = [len(gw.store.records()) for _ in range(30 if environment.slow() else 100)]
    gate.open()
    expect.first(client.finish())
    assert seen.count(1) == len(seen), f"not seen {seen.count(0)} times of {len(seen)}"
    assert gw.upstream.count("k") == 1


# 4. The record's identity is computed again after the handler changed the input.

def test_4_identity_is_what_came_in(gateway):
    gw = gateway("rewrite ^ /changed?q=1 break; proxy_set_header Idempotency-Key changed; proxy_set_body changed;"
                 "proxy_method PUT; set $args x=y;")
    original = expect.first(gw.post("k", b"a", "/orders?x=1"))
    assert gw.upstream.last().body == b"changed"
    expect.replay(gw.post("k", b"a", "/orders?x=1"), original)
    expect.problem(gw.post("k", b"b", "/orders?x=1"), "key-reused")
    expect.problem(gw.post("k", b"a", "/orders?x=2"), "key-reused")
    assert gw.store.state("k") == "completed"
    assert gw.upstream.total == 1


# 5. The record disappears between a failed claim and reading it: executed without a claim.

def test_5_record_that_is_purged_in_flight(gateway):
    gw, gate = gateway(HOLD), Gate()
    gw.upstream.then(slow(gate, body=b"of the first"))
    client = gw.connect()
    client.start("POST", "/", "k", b"a")
    gate.wait_arrival()
    gw.store.run("keys", "purge", "--note=test", "--force", "--yes", gw.store.url, gw.store.record("k")["id"])
    second = expect.first(gw.post("k", b"a"))  # purged by force: the key counts as never used
    gate.open()
    response = client.finish()
    assert b"of the first" not in response.body, "answered without a record"
    assert (response.status, response.body) == (201, second.body) or response.status == 409
    expect.replay(gw.post("k", b"a"), second)
    claims = {request.headers.get("Once-Claim") for request in gw.upstream.of("k")}
    assert len(claims) == 2 and None not in claims


def test_5_expiry_and_claim_at_the_same_time(gateway):
    """Answers that expire while they are asked for: each answer is either the old one or comes from a new execution."""
    gw = gateway("once_ttl 1s;")
    first = expect.first(gw.post("k", b"a"), ttl=1)
    seen = {first.body}

    def again():
        response = gw.post("k", b"a")
        assert response.status == 201, response
        seen.add(response.body)
        return response.body != first.body

    until(again, "the answer to expire")
    assert gw.upstream.count("k") == len(seen)


# 6. A completed key without a ttl: 409 for ever after the response expired.

def test_6_expired_keys_can_be_used_again(gateway):
    gw = gateway("once_ttl 1s;")
    for count in range(1, 4):
        response = until(lambda: "Idempotent-Replayed" not in (found := gw.post("k", b"a")).headers and found, "the key to be free")
        assert response.status == 201
        assert gw.upstream.count("k") == count


# 7. The same body with different keys collides.

def test_7_same_body_other_key(gateway):
    gw = gateway()
    answers = [expect.first(gw.post(f"k{number}", b"same body", scope=f"tenant{number % 2}")) for number in range(4)]
    assert len({answer.body for answer in answers}) == 4
    assert gw.upstream.total == 4


# 8. The key is used with another body while the first is in flight: 422 must win over 409.

@pytest.mark.parametrize("rules", ["", "once_wait 10s;", HOLD])
def test_8_mismatch_wins_over_in_flight(gateway, rules):
    gw, gate = gateway(rules), Gate()
    gw.upstream.then(slow(gate))
    client = gw.connect()
    client.start("POST", "/", "k", b"a")
    gate.wait_arrival()
    expect.problem(gw.post("k", b"b"), "key-reused")
    gate.open()
    expect.first(client.finish())
    assert gw.upstream.count("k") == 1


def test_8_mismatch_wins_over_unknown(gateway):
    gw = gateway(HOLD)
    gw.upstream.then(lambda exchange: exchange.reset())
    gw.post("k", b"a")
    gw.store.wait_state("k", "unknown")
    expect.problem(gw.post("k", b"b"), "key-reused")
    expect.problem(gw.post("k", b"a"), "outcome-unknown")
    assert gw.upstream.count("k") == 1


def test_8_mismatch_after_a_release(gateway):
    """A key that came to nothing still belongs to its first request."""
    gw = gateway()
    gw.upstream.then(lambda exchange: exchange.respond(429))
    gw.post("k", b"a")
    gw.store.wait_state("k", "failed")
    expect.problem(gw.post("k", b"b"), "key-reused")
    expect.first(gw.post("k", b"a"))
    assert gw.upstream.count("k") == 2


# 9. Losing the race for a claim is reported as 503. 15. Check-then-put is not atomic.

@pytest.mark.parametrize("workers", [1, 2])
def test_9_and_15_many_at_once(gateway, workers):
    one = gateway(workers=workers)
    two = gateway(workers=workers, store=one.store.url)
    for round_ in range(3 if environment.slow() else 8):
        key = f"k{round_}"
        answers = all_at_once([(lambda gw=gw: gw.post(key, b"a")) for gw in (one, two) * 10])
        first = [answer for answer in answers if answer.status == 201 and "Idempotent-Replayed" not in answer.headers]
        assert len(first) == 1
        for answer in answers:
            if answer.status == 409:
                expect.problem(answer, "in-flight")
            elif answer is not first[0]:
                expect.replay(answer, first[0])
        assert one.upstream.count(key) + two.upstream.count(key) == 1


# 10. The same fingerprint is taken for a proof of ownership.

@pytest.mark.parametrize("way", WAYS)
def test_10_a_twin_that_goes_away_releases_nothing(gateway, way):
    gw, gate = gateway("once_wait 10s;"), Gate()
    gw.upstream.then(slow(gate))
    client = gw.connect()
    client.start("POST", "/", "k", b"a")
    gate.wait_arrival()
    claim = gw.store.show("k")["claim"]
    leaver = Leaver(gw, way)
    leaver.start("k")
    gw.post("k", b"b")  # through the same worker: the twin was read
    leaver.leave()
    gw.post("k", b"b")
    record = gw.store.show("k")
    assert record["state"] == "pending" and record["claim"] == claim
    gate.open()
    expect.first(client.finish())
    assert gw.upstream.count("k") == 1


# 11. Cleaning up uses the raw header instead of the stored key.

def test_11_quoted_key_is_released_as_well(gateway):
    gw = gateway(HOLD)
    gw.upstream.then(lambda exchange: exchange.respond(429))
    gw.post('"k"')
    gw.store.wait_state("k", "failed")
    original = expect.first(gw.post("k"))
    expect.replay(gw.post('"k"'), original)
    assert len(gw.store.records()) == 1
    assert gw.upstream.count("k") == 2


# 12. The response ends on a path that the hook does not see: test_abort.py (clients, upstreams), test_compat.py (X-Accel-Redirect,
# error_page, named locations, static files, mirror, SSI). Here: that no path leaves a record pending.

ENDS = {
    "upstream closes": (lambda exchange: exchange.close(), ""),
    "upstream resets": (lambda exchange: exchange.reset(), ""),
    "204": (lambda exchange: exchange.respond(204), ""),
    "304": (lambda exchange: exchange.respond(304), ""),
    "empty": (lambda exchange: exchange.respond(200, body=b""), ""),
    "chunked": (lambda exchange: exchange.respond(200, body=b"x" * 100, chunked=True), ""),
    "error_page": (lambda exchange: exchange.respond(500), "proxy_intercept_errors on; error_page 500 =200 /sorry;"),
    "redirect to nothing": (lambda exchange: exchange.respond(200, [("X-Accel-Redirect", "/nothing/here")], b""), ""),
    "redirect to itself": (lambda exchange: exchange.respond(200, [("X-Accel-Redirect", "/loop")], b""), ""),
    "large": (lambda exchange: exchange.respond(200, body=b"x" * 3_000_000), ""),
    "truncated": (lambda exchange: (exchange.begin(200, [("Content-Length", "9")]), exchange.close()), ""),
    "large header": (lambda exchange: exchange.respond(200, [("X-Large", "v" * 100_000)]), ""),
    "many headers": (lambda exchange: exchange.respond(200, [(f"X-{number}", "v") for number in range(600)]),
                     "proxy_buffer_size 64k; proxy_buffers 8 64k;"),
    "500": (lambda exchange: exchange.respond(500), ""),
    "503": (lambda exchange: exchange.respond(503), ""),
}


@pytest.mark.parametrize("recover", ["retry", "hold"])
@pytest.mark.parametrize("name", ENDS)
def test_12_every_end_is_seen(gateway, name, recover):
    script, rules = ENDS[name]
    gw = gateway(f"{rules} once_recover {recover};",
                 server="location = /sorry { return 200 'sorry'; } location /nothing { return 404; }")
    gw.nginx.expect("rewrite or internal redirection cycle")
    gw.upstream.then(script)
    gw.upstream.on("/loop", script)
    try:
        gw.post("k", b"a")
    except Closed:
        pytest.fail("the client was left without an answer")
    state = gw.store.wait_state("k", "completed", "unknown", "failed")["state"]
    before = gw.upstream.total
    response = gw.post("k", b"a")
    if state == "completed":
        assert response.header("Idempotent-Replayed") == "true"
    if recover == "hold" and state != "failed" or state == "completed":
        assert gw.upstream.total == before, "executed again"


# 13. The completion is written after the client has the response: a crash in between, and the retry is blocked or runs again.

def test_13_recorded_before_it_is_sent(gateway):
    gw = gateway(HOLD)
    for number in range(3 if environment.slow() else 6):
        with gw.connect() as client:
            client.start("POST", "/", f"k{number}", b"a")
            client.reader.fill()        # the first byte, and
            gw.nginx.kill_all()         # no process is left to write anything
            original = client.finish()
        gw.start()
        expect.replay(gw.post(f"k{number}", b"a"), expect.first(original))
        assert gw.upstream.count(f"k{number}") == 1


# 14. A response over the limit is silently not stored: executed again, or an error.

@pytest.mark.parametrize("size", [1024 * 1024 + 1, 5_000_000, 20_000_000])
def test_14_large_responses_are_not_executed_again(gateway, size):
    gw = gateway()
    gw.upstream.default = lambda exchange: exchange.respond(201, [("X-Own", "1")], b"x" * size)
    assert len(expect.first(gw.post("k")).body) == size
    for _ in range(2):
        response = gw.post("k")
        assert (response.status, response.header("Once-Body"), response.header("X-Own")) == (201, "omitted", "1")
    assert gw.upstream.count("k") == 1


def test_14_more_headers_than_can_be_stored(gateway):
    """Never a second execution, whatever the answer looks like."""
    gw = gateway("proxy_buffer_size 512k; proxy_buffers 8 512k; proxy_busy_buffers_size 512k;" + HOLD)
    gw.upstream.default = lambda exchange: exchange.respond(201, [(f"X-{number}", "v" * 700) for number in range(450)])
    gw.post("k")
    gw.store.wait_state("k", "completed", "unknown")
    response = gw.post("k")
    assert response.status in (201, 409), response
    assert gw.upstream.count("k") == 1


# 16. No principal in the key: one tenant gets another's answer.

def test_16_other_tenants_answers_are_not_replayed(gateway):
    gw = gateway()
    alice = expect.first(gw.post("k", b"a", scope="alice"))
    others = ("bob", "Alice", "alic", "alicee", "")
    for other in others:
        assert expect.first(gw.post("k", b"a", scope=other)).body != alice.body, other
    expect.replay(gw.post("k", b"a", scope="alice "), alice)  # spaces around a header's value are not part of it
    expect.replay(gw.post("k", b"a", scope="alice"), alice)
    assert gw.upstream.count("k") == 1 + len(others)


def test_16_scope_and_key_do_not_run_into_each_other(gateway):
    gw = gateway()
    expect.first(gw.post("bc", b"a", scope="a"))
    expect.first(gw.post("c", b"a", scope="ab"))
    expect.first(gw.post("abc", b"a"))
    assert gw.upstream.total == 3


# 17. The hash is always empty: mismatches are never detected.

BODIES = {
    "one byte": (b"a", b"b"), "none and one": (b"", b"a"), "one and none": (b"a", b""), "zeros": (b"\0", b"\0\0"),
    "last byte": (b"x" * 200_000, b"x" * 199_999 + b"y"), "first byte": (b"x" * 200_000, b"y" + b"x" * 199_999),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("chunked", [False, True])
def test_17_every_byte_counts(gateway, name, chunked):
    gw, (one, other) = gateway(), BODIES[name]
    original = expect.first(gw.post("k", one, chunked=chunked))
    expect.problem(gw.post("k", other, chunked=chunked), "key-reused")
    expect.replay(gw.post("k", one, chunked=chunked), original)
    assert gw.upstream.count("k") == 1


def test_17_over_http2(gateway):
    gw = gateway()
    client = gw.connect2()
    original = expect.first(client.request("POST", "/", "k", b"x" * 100_000))
    expect.problem(client.request("POST", "/", "k", b"x" * 99_999 + b"y"), "key-reused")
    expect.replay(client.request("POST", "/", "k", b"x" * 100_000), original)
    assert gw.upstream.count("k") == 1


# 18 is about PostgreSQL, 20 and 21 about messages. 19. Expired records are removed only on access.

def test_19_expired_records_go_by_themselves(gateway, directory):
    gw = gateway("once_ttl 1s;", store=f"local:{directory}/idle?segment=64k&reap=500ms")
    for number in range(30):
        expect.first(gw.post(f"k{number}"), ttl=1)
    until(lambda: (stats := gw.store.stats())["records"] == 0 and stats["expired"] == 0, "the records to be removed")
    assert gw.upstream.total == 30


# 22. Keys derived from bodies swallow legitimate repetitions.

def test_22_no_key_no_guard(gateway):
    gw = gateway("once_require off;")
    for count in range(1, 4):
        assert expect.unrecorded(gw.post(body=b"same"), 201).json()["execution"] == count
    assert gw.store.records() == []
    assert gw.upstream.total == 3
