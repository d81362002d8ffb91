"""No destination waits for another: what a failing one takes from the others, and what becomes of its own events."""
import random
import time

import pytest
from harness import SICK_EACH, SICK_KEYS, WELL, Delays, emit_sick, until

@pytest.mark.parametrize("how", ["503", "500", "hang", "each", "hang, each"])
def test_a_sick_topic_delays_nobody(database, relay, endpoint, how):
    """`each`: every key has a URL of its own, and all of those are sick; with one event each when they hang."""
    delays = Delays()

    def answer(request):
        if "/sick" in request.path:
            return time.sleep(20) if "hang" in how else 500 if how == "500" else 503
        delays.note(request.headers["ce-id"], request.headers["ce-time"])
        return 200

    endpoint.answer = answer
    one = relay(endpoint.url("/{topic}/{key}" if "each" in how else "/{topic}"), "--timeout", "15s")
    delays.measure_alone(database)
    endpoint.requests.clear()
    keys, each = (200, 1) if how == "hang, each" else (SICK_KEYS, SICK_EACH)
    emit_sick(database, keys, each)
    until(lambda: len(endpoint.requests) >= 12, "it is tried")
    delays.measure(database, f"{keys} keys: {how}")
    assert how == "500" or database.dead() == [] and database.waiting() >= keys * each
    if how in ("503", "500"):
        until(lambda: one.metric('destinations{state="suspended"}') == 1 and one.metric("left_keys") >= SICK_KEYS - 70,
              "it is suspended")
        assert one.get("/health")[0] == 200


def test_a_sick_topic_without_keys(database, relay, endpoint):
    """They have no order, and come when their destination is well."""
    delays = Delays()
    healed = []

    def answer(request):
        if request.path == "/sick" and not healed:
            return 503
        delays.note(request.headers["ce-id"], request.headers["ce-time"]) if request.path != "/sick" else None
        return 200

    endpoint.answer = answer
    relay(endpoint.url("/{topic}"), "--window", "640")
    delays.measure_alone(database)
    database.until_empty()
    endpoint.requests.clear()
    database.run("SELECT count(once.emit('sick', NULL, 'placed', '1')) FROM generate_series(1, 2000)")
    until(lambda: len(endpoint.requests) >= 8, "it is tried")
    delays.measure(database, "events without keys")
    healed.append(True)
    database.until_empty()
    assert len({r.headers["ce-id"] for r in endpoint.requests}) == 2000 + WELL and database.dead() == []


def test_order_and_nothing_lost_while_destinations_come_and_go(database, relay, endpoint):
    """Keys have events for several topics, which are sick at times; the window is small, so that much stays in the database."""
    sick, taken = set(), []

    def answer(request):
        if request.path[1:] in sick:
            return random.choice([503, 502, 429])
        with endpoint.lock:
            taken.append((request.headers["ce-id"], request.body.decode()))
        return 200

    endpoint.answer = answer
    one = relay(endpoint.url("/{topic}"), "--window", "640")
    for turn in range(6):
        sick.clear()
        sick.update(random.sample(["a", "b", "c"], 2) if turn < 5 else [])
        database.run("SELECT count(once.emit((ARRAY['a', 'b', 'c'])[1 + (i * 7 + i / 50) %% 3], 'key' || i %% 50, 'placed',"
                     " convert_to('key' || i %% 50 || ' ' || i, 'UTF8'))) FROM generate_series(%s, %s) AS i",
                     turn * 400, turn * 400 + 399)
        before = len(endpoint.requests)
        until(lambda: len(endpoint.requests) > before + 20 or database.waiting() == 0, "something is tried")
    database.until_empty()
    last, seen = {}, set()
    for event, text in taken:
        key, number = text.split()
        if event not in seen:
            assert int(number) > last.get(key, -1), f"{key}: {number} comes after {last[key]}"
            last[key] = int(number)
        seen.add(event)
    assert len(seen) == 2400 and database.dead() == [] and one.stop() == 0


def test_events_die_of_time_when_nothing_is_taken(database, relay, endpoint):
    endpoint.answer = lambda request: 503
    relay(endpoint.url(), "--give-up", "2s")
    for i in range(30):
        database.emit(f"k{i % 10}", i)
    until(lambda: len(database.dead()) == 30, "all of them are dead")
    assert database.waiting() == 0 and all("503" in reason and "--give-up" in reason for *_, reason in database.dead())
    tried = {request.headers["ce-id"] for request in endpoint.requests}
    assert tried == {event for event, *_ in database.dead()}, "none without a try"
    endpoint.answer = lambda request: 200
    event = database.emit("k1", 99)
    until(lambda: event in {request.headers["ce-id"] for request in endpoint.requests}, "it goes on")
