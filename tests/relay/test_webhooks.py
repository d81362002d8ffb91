"""The relay with an HTTP endpoint: what a webhook looks like, and what each answer means."""
import collections
import threading
import time

import pytest
from endpoint import Endpoint
from harness import once, until


def test_a_request(database, relay, endpoint):
    relay(endpoint.url("/hooks/{topic}?from=once&type={type}"), "--source", "urn:shop")
    event = database.emit("k", b'{"total": "12.50"}', topic="orders/new", headers={"traceparent": "00-1-2-01", "Host": "evil",
                                                                                     "bad name": "x", "cr": "a\r\nX: y",
                                                                                     "long": "x" * 2000, "big": 2 ** 70})
    database.until_empty()
    (request,) = endpoint.requests
    assert request.path == "/hooks/orders%2Fnew?from=once&type=placed" and request.body == b'{"total": "12.50"}'
    assert request.headers["Idempotency-Key"] == request.headers["ce-id"] == event
    assert request.headers["ce-source"] == "urn:shop" and request.headers["ce-type"] == "placed"
    assert request.headers["Content-Type"] == "application/json" and request.headers["traceparent"] == "00-1-2-01"
    assert request.headers["Host"].startswith("127.0.0.1") and request.headers["X"] is None
    assert request.headers["cr"] == "a%0D%0AX: y" and request.headers["long"] == "x" * 2000
    assert float(request.headers["big"]) == 2 ** 70


def test_order_and_one_at_a_time(database, relay, endpoint):
    busy = collections.Counter()

    def answer(request):
        key = int(request.body) % 4
        busy[key] += 1
        assert busy[key] == 1
        time.sleep(0.001)
        busy[key] -= 1
        return 200

    endpoint.answer = answer
    relay(endpoint.url())
    database.emit_many(4, 200)
    database.until_empty()
    numbers = [int(body) for body in endpoint.bodies()]
    assert len(numbers) == 200
    for key in range(4):
        assert [n for n in numbers if n % 4 == key] == sorted(n for n in numbers if n % 4 == key)


# The first three rows come with headers that are cut off.
TORN = """
CREATE SEQUENCE public.torn;
ALTER FUNCTION once.relay_fetch RENAME TO relay_fetch_whole;
CREATE FUNCTION once.relay_fetch(uuid, smallint[], bigint[], integer[], bigint[], bigint[], xid8[], pg_snapshot, bigint, smallint[],
    text[])
RETURNS TABLE (grp smallint, seq bigint, place tid, id uuid, at timestamptz, topic text, key text, type text,
    payload bytea, headers text, cause bytea) LANGUAGE sql VOLATILE AS $$
    SELECT grp, seq, place, id, at, topic, key, type, payload,
           CASE WHEN grp >= 0 AND nextval('public.torn') <= 3 THEN '{"torn' ELSE headers END, cause
    FROM once.relay_fetch_whole($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
$$
"""


def test_a_row_that_cannot_be_read_is_read_again(database, relay, endpoint):
    """As when memory is short: nothing of such an answer is kept, and nothing is skipped."""
    database.run(TORN)
    one = relay(endpoint.url())
    database.emit("k", b"1")
    database.emit("k", b"2")
    database.until_empty()
    assert list(dict.fromkeys(endpoint.bodies())) == ["1", "2"] and one.process.poll() is None
    assert database.one("SELECT last_value FROM public.torn") > 3


@pytest.mark.parametrize("status", [400, 404, 410, 422])
def test_4xx_is_dead(database, relay, endpoint, status):
    endpoint.answer = lambda request: status if request.body == b"bad" else 200
    relay(endpoint.url())
    bad = database.emit("k", b"bad")
    database.emit("k", b"good")
    database.until_empty()
    assert endpoint.bodies() == ["bad", "good"]
    (dead,) = database.dead()
    assert dead[0] == bad and str(status) in dead[3] and dead[2] == 1


@pytest.mark.parametrize("status", [301, 408, 409, 425, 429, 500, 502, 503])
def test_the_rest_is_tried_again(database, relay, endpoint, status):
    """In order: what is behind it in its key waits."""
    endpoint.answer = lambda request: 200 if len(endpoint.requests) > 2 else (status, {"Location": endpoint.url("/elsewhere")})
    relay(endpoint.url())
    event = database.emit("k", b"first")
    database.emit("k", b"second")
    database.until_empty()
    assert endpoint.bodies() == ["first", "first", "first", "second"]
    assert {r.headers["Idempotency-Key"] for r in endpoint.requests[:3]} == {event}
    assert all(r.path == "/hooks/orders" for r in endpoint.requests) and database.dead() == []


def test_retry_after(database, relay, endpoint):
    times = []

    def answer(request):
        times.append(time.monotonic())
        return 200 if len(times) > 1 else (429, {"Retry-After": "2"})

    endpoint.answer = answer
    relay(endpoint.url())
    database.emit("k", 1)
    database.until_empty()
    assert times[1] - times[0] >= 1.9


def test_a_poison_event_blocks_nobody(database, relay, endpoint):
    """Its key has more behind it than fits in memory; the other keys, of all groups, go on."""
    endpoint.answer = lambda request: 500 if request.headers["ce-type"] == "poison" else 200
    relay(endpoint.url(), "--tries", "5", "--window", "640")
    bad = database.emit("k", 0, kind="poison")
    database.run("SELECT count(once.emit('orders', 'k', 'placed', '1')) FROM generate_series(1, 900)")
    database.emit_many(300, 1500)
    until(lambda: len(endpoint.requests) >= 1500, "the others are published")
    until(lambda: len(database.dead()) == 1, "it is dead")
    assert database.dead()[0][:3] == (bad, "k", 5)
    database.until_empty()
    assert len({r.headers["ce-id"] for r in endpoint.requests}) == 2401


def test_a_connection_lost_while_a_key_has_more_than_fits(database, relay, endpoint):
    """Reading starts over, without the key that has enough in memory; that one runs out while the answer is under way."""
    long, other = database.neighbours(2)
    gates = {long: threading.Event(), other: threading.Event()}
    endpoint.answer = lambda request: 200 if gates[request.path[1:]].wait(30) else 500
    relay(endpoint.url("/{key}"), lease="60s")
    database.run("SELECT count(once.emit('orders', %s, 'placed', '1')) FROM generate_series(1, 900)", long)
    database.emit(other, 2)
    until(lambda: len(endpoint.requests) == 2, "one of each key is under way")
    lock = database.connect()
    lock.cursor().execute("LOCK TABLE once.outbox IN ACCESS EXCLUSIVE MODE")
    reads = "FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%%relay_fetch%%' AND pid <> pg_backend_pid()"
    database.run("SELECT pg_terminate_backend(pid) " + reads)
    until(lambda: database.one(f"SELECT count(*) {reads} AND wait_event_type = 'Lock' AND state = 'active'"), "it reads again")
    gates[long].set()
    until(lambda: len(endpoint.requests) >= 500, "what was in memory is published")
    lock.rollback()
    until(lambda: len(endpoint.requests) >= 901, "the rest of it is")
    gates[other].set()
    database.until_empty()
    assert len({r.headers["ce-id"] for r in endpoint.requests}) == 901


def test_timeouts_are_the_events_fault_only_if_others_pass(database, relay, endpoint):
    endpoint.answer = lambda request: time.sleep(1) if request.body == b"slow" else 200
    relay(endpoint.url(), "--tries", "2", "--timeout", "300ms")
    bad = database.emit("slow", b"slow")
    until(lambda: len(endpoint.requests) >= 3, "it is tried again and again: the answers do not blame the event")
    assert database.dead() == []

    def others():
        database.emit("other", b"quick")
        return database.dead()

    until(others, "others pass: it is")
    assert database.dead()[0][0] == bad


def test_the_endpoint_goes_away_and_comes_back(database, relay):
    first = Endpoint()
    one = relay(first.url())
    database.emit("k", 1)
    database.until_empty()
    first.close()
    events = [database.emit(f"k{i}", i) for i in range(30)]
    one.until_said("the destination is unavailable")
    until(lambda: one.get("/health")[0] == 503, "it is said at /health, too")
    assert one.get("/ready") == (503, "not working\n")
    second = Endpoint(port=first.port)
    database.until_empty()
    assert sorted(r.headers["ce-id"] for r in second.requests) == sorted(events) and database.dead() == []
    second.close()


@pytest.mark.parametrize("what", ["stranger", "name", "expired"])
def test_an_endpoint_that_is_not_trusted(database, relay, certificates, what):
    """It gets no byte, and the log says why; nothing is dead. With the right certificate all of it is published."""
    wrong = Endpoint(*(certificates.file("expired"), certificates.key("expired")) if what == "expired" else
                     (certificates.file("server"), certificates.key("server")))
    words = {"stranger": "--cacert FILE", "name": "for another name", "expired": "has expired"}[what]
    one = relay(wrong.url().replace("127.0.0.1", "localhost") if what == "name" else wrong.url(),
                "--cacert", certificates.file("stranger" if what == "stranger" else "authority"), "--tries", "1")
    database.emit("k", 1)
    line = one.until_said("the destination is unavailable")[0]
    assert words in line["reason"] and "not trusted" in line["reason"]
    assert wrong.requests == [] and database.waiting() == 1 and database.dead() == []
    assert one.stop() == 0
    wrong.close()
    right = Endpoint(certificates.file("server"), certificates.key("server"))
    relay(right.url(), "--cacert", certificates.file("authority"))
    database.until_empty()
    assert len(right.requests) == 1
    right.close()


def test_a_secret_that_others_can_read(database, relay, endpoint, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
    secret.chmod(0o640)
    one = relay(endpoint.url(), "--secret-file", str(secret), wait=False)
    assert one.process.wait(30) == 2 and "chmod 600" in "\n".join(one.text())


def test_a_relay_that_ends_leaves_nothing_behind(database, relay, endpoint):
    """TERM: what is under way is waited for, nothing is published twice, and another one takes over at once."""
    endpoint.answer = lambda request: time.sleep(0.02) or 200
    one = relay(endpoint.url(), lease="60s")
    database.emit_many(50, 300)
    until(lambda: len(endpoint.requests) > 20, "it works")
    assert one.stop() == 0
    relay(endpoint.url(), lease="60s")
    database.until_empty()
    assert len(endpoint.requests) == 300 and one.said("ended")[0]["under_way"] == 0


def test_roles(database, relay, endpoint):
    """once_relay is all that a relay needs; an application cannot do what a relay does."""
    database.run("DO $$ BEGIN CREATE ROLE courier LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    database.run("GRANT once_relay TO courier")
    database.url = database.url.replace("//owner@", "//courier@")
    relay(endpoint.url())
    database.emit("k", 1)
    database.until_empty()
    assert "no events are waiting" in once("outbox", "list", "--waiting", url=database.url)
    database.run("DO $$ BEGIN CREATE ROLE shop LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    database.run("GRANT once_application TO shop")
    once("outbox", "list", url=database.url.replace("//courier@", "//shop@"), code=3)
