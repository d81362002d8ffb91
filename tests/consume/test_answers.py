"""What answers of the handler mean: docs/consume.md, row by row. With Kafka; the rest does not know which broker it is."""
import json
import os
import threading
import time

from harness import event, once, until
from test_kafka import wait_caught_up


def headers_of(message):
    return {name: value.decode() for name, value in message.headers()}


def letters(kafka, topic, count):
    """The dead letters, as soon as there are that many."""
    def found():
        if topic not in kafka.admin().list_topics(timeout=10).topics:
            return None
        messages = kafka.read(topic)
        return messages if len(messages) >= count else None
    return {headers_of(m).get("once-id", m.value().decode()): m for m in until(found, f"{count} dead letters")}


def test_every_status_that_is_tried_again(kafka, name, handler, consume):
    """The first answer is the bad one, the second 204. Doubts wait for the lease, the others for the backoff."""
    bad = {"408": 408, "409": 409, "425": 425, "429": (429, {"Retry-After": "1"}), "500": 500, "501": 501, "502": 502, "503": 503,
           "504": 504, "cut": None, "hang": "hang", "said": (200, {"Once-Outcome": "retry"}),
           "unsure": (200, {"Once-Outcome": "unknown"})}
    leave = threading.Event()

    def answer(request):
        if handler.count(request.key) > 1:
            return 204
        if bad[request.key] == "hang":
            leave.wait(60)
            return None
        return bad[request.key]

    handler.answer = answer
    kafka.create(name, 1)
    kafka.produce(name, [event(key, key=key) for key in bad])
    one = consume(kafka.url(name, group=name), "--lease", "1s", "--timeout", "500ms", "--backoff", "20ms")
    one.wait_metric("handled_total", len(bad))
    leave.set()
    wait_caught_up(kafka, name, name)
    assert sorted(handler.keys()) == sorted(list(bad) * 2)
    assert one.metric("retries_total") == len(bad)
    assert one.metric("doubts_total") == 7, "408, 502, 503, 504, cut, hang, unsure"
    assert one.said("will be tried again")[0]["id"] in bad


def test_a_pause_that_the_handler_asks_for_is_kept(kafka, name, handler, consume):
    """At least so long, and not much longer; also when it is not as it should be."""
    asked = {"seconds": "2", "negative": "-5", "nonsense": "soon", "past": "Sun, 06 Nov 1994 08:49:37 GMT"}
    times = {key: [] for key in asked}

    def answer(request):
        times[request.key].append(time.monotonic())
        return 204 if len(times[request.key]) > 1 else (429, {"Retry-After": asked[request.key]})

    handler.answer = answer
    kafka.create(name, 1)
    kafka.produce(name, [event(key, key=key) for key in asked])
    one = consume(kafka.url(name, group=name), "--backoff", "20ms")
    one.wait_metric("handled_total", len(asked))
    pauses = {key: second - first for key, (first, second) in times.items()}
    assert 2 <= pauses["seconds"] < 3.2, "a tenth more at most, and what a busy machine takes"
    assert all(pauses[key] < 2 for key in asked if key != "seconds"), pauses


def test_pauses_between_tries_double(kafka, name, handler, consume):
    times = []
    handler.answer = lambda request: times.append(time.monotonic()) or 500
    kafka.create(name, 1)
    kafka.produce(name, [event("poison")])
    one = consume(kafka.url(name, group=name), "--tries", "6", "--backoff", "100ms")
    one.wait_metric('dead_letters_total{reason="tries"}', 1)
    assert len(times) == 6
    assert times[5] - times[0] > 1.5, "jitter leaves half: 50, 100, 200, 400, 800 ms"


def test_dead_letters_and_their_replay(kafka, name, handler, consume, replay, directory):
    kafka.create(name, 1)
    kafka.create(name + ".dlq", 2)
    answers = {"rejected": 422, "moved": 301, "forbidden": 403, "poison": 500}
    handler.answer = lambda request: answers.get(request.key, 204)
    messages = [event(key, key="k") for key in answers] + [event("good", key="k"), event("good", key="k", other=1)]
    no_id = {"value": b"no id", "headers": {"ce_type": "order"}}
    too_long = {"value": b"too long", "headers": {"ce_id": "x" * 300}}
    kafka.produce(name, messages + [no_id, too_long])
    one = consume(kafka.url(name, group=name), "--tries", "3", "--backoff", "10ms")
    found = letters(kafka, name + ".dlq", 7)
    wait_caught_up(kafka, name, name)
    assert handler.keys() == ["rejected", "moved", "forbidden"] + ["poison"] * 3 + ["good"], "in order, and the key goes on"
    reasons = {key: headers_of(message)["once-reason"] for key, message in found.items()}
    assert reasons == {"rejected": "rejected", "moved": "rejected", "forbidden": "rejected", "poison": "tries", "good": "mismatch",
                       "no id": "no-id", "too long": "no-id"}
    headers = headers_of(found["poison"])
    assert headers["once-tries"] == "3" and headers["once-status"] == "500" and headers["ce_id"] == "poison"
    assert headers["once-subscriber"] == name and headers["once-source"] == f"{name}/0@3" and headers["ce_type"] == "order"
    assert found["poison"].key() == b"k" and json.loads(found["poison"].value())["event_id"] == "poison"
    metrics = one.metrics()
    assert [metrics[f'once_consume_dead_letters_total{{reason="{r}"}}'] for r in ("rejected", "tries", "mismatch", "no-id")] \
        == [3, 1, 1, 2]

    listed = [json.loads(line) for line in once("dlq", "list", "--json", kafka.url(name + ".dlq")).splitlines()]
    assert sorted(line["reason"] for line in listed) == sorted(reasons.values())
    assert "poison" in once("dlq", "list", kafka.url(name + ".dlq"))
    handler.answer = lambda request: 204  # it was mended
    assert replay("--id", "poison", kafka.url(name + ".dlq")) == "replayed 1\n"
    handler.wait(8)
    assert handler.keys()[-1] == "poison"
    assert replay(kafka.url(name + ".dlq")) == "replayed 7\n"
    one.wait_metric("handled_total", 5)  # good, poison; rejected, moved, forbidden
    until(lambda: len(once("dlq", "list", "--json", kafka.url(name + ".dlq")).splitlines()) == 3,
          "a mismatch and two without an id")
    assert sorted(handler.keys()[8:]) == ["forbidden", "moved", "rejected"]
    trail = [json.loads(line) for line in once("audit", "list", "--json", f"local:{directory}/store").splitlines()]
    assert [(entry["step"], entry.get("result"), entry.get("note")) for entry in trail] \
        == [("intent", None, "mended"), ("result", "published", None)] * 8
    assert trail[0]["object"] == f"letter poison to {name}" and trail[1]["of"] == 1 and trail[0]["act"] == "dlq replay"


def test_a_letter_cannot_choose_another_topic(kafka, name, replay):
    """Writers of letters do not get the rights of the user that replays: neither another topic's messages are fetched, nor is
    anything published to it."""
    letters_of, secret, other = name + ".dlq", name + ".secret", name + ".other"
    for topic in (name, letters_of, secret, other):
        kafka.create(topic, 1)
    kafka.produce(secret, [{"value": b"salaries", "headers": {"ce_id": "s"}}])
    kafka.produce(letters_of, [
        {"value": b"forged", "headers": {"ce_id": "1", "once-id": "1", "once-source": f"{other}/0@0"}},
        {"value": b"", "headers": {"ce_id": "2", "once-id": "2", "once-source": f"{secret}/0@0", "once-bytes": "8"}},
        {"value": b"right", "headers": {"ce_id": "3", "once-id": "3", "once-source": f"{name}/0@0"}}])
    url = kafka.url(letters_of)

    def values(topic):
        return [message.value() for message in kafka.read(topic)]

    said = replay(url, code=5)
    assert said.count("not the topic of these letters") == 2 and other in said and "replayed 1\n" in said
    assert values(name) == [b"right"] and values(other) == []
    said = replay(url, "--id", "2", "--to", name, code=5)  # --to says where to, and not from where
    assert "not the topic of these letters" in said and values(name) == [b"right"]
    assert "replayed 1\n" in replay(url, "--id", "1", "--to", name)
    assert "replayed 2\n" in replay(url, "--all", "--any", "--id", "1", "--id", "2")
    assert values(name) == [b"right", b"forged"] and values(other) == [b"forged"]
    assert values(secret) == [b"salaries", b"salaries"]


def test_large_messages_and_many_headers_can_be_dead_letters(kafka, name, handler, consume):
    """Kafka takes more by default (1048588 bytes) than librdkafka's producers send (1000000)."""
    kafka.create(name, 1)
    handler.answer = lambda request: 422
    large = event("large", text="x" * 1030000)
    many = dict(event("many"), headers={**{f"h{i}": "x" for i in range(200)}, "ce_id": "many"})
    kafka.produce(name, [large, many], **{"message.max.bytes": 2000000})
    one = consume(kafka.url(name, group=name))
    one.wait_metric('dead_letters_total{reason="rejected"}', 2)
    wait_caught_up(kafka, name, name)
    assert headers_of(letters(kafka, name + ".dlq", 2)["many"])["ce_id"] == "many", "none of its headers is missing"


def test_a_handler_that_hangs_holds_back_only_its_key(kafka, name, handler, consume):
    kafka.create(name, 1)
    leave = threading.Event()

    def answer(request):
        if request.key.startswith("stuck"):
            leave.wait(60)
        return 204

    handler.answer = answer
    kafka.produce(name, [event("stuck-1", key="s"), event("stuck-2", key="s")] + [event(i, key=f"k{i}") for i in range(50)])
    one = consume(kafka.url(name, group=name), "--timeout", "30s", "--concurrency", "4")
    one.wait_metric("handled_total", 50)
    assert handler.count("stuck-1") == 1 and handler.count("stuck-2") == 0
    assert kafka.committed(name, name)[0] in (0, -1001), "nothing behind it is committed"
    leave.set()
    one.wait_metric("handled_total", 52)
    wait_caught_up(kafka, name, name)


def test_large_messages_fill_the_memory_and_go_on(kafka, name, handler, consume):
    """Reading stops at 64 MiB in memory, however few messages that is, and goes on when there is room again."""
    kafka.create(name, 1)
    gate = threading.Event()
    handler.answer = lambda request: 204 if gate.wait(60) else 500
    for first in range(0, 100, 10):
        kafka.produce(name, [event(first + i, text="x" * 950000) for i in range(10)])
    one = consume(kafka.url(name, group=name), "--concurrency", "4")
    one.wait_metric("waiting", 65)
    one.wait_metric("paused", 1)
    assert one.metric("waiting") < 90
    gate.set()
    one.wait_metric("handled_total", 100)
    wait_caught_up(kafka, name, name)


def test_unknown_under_hold_is_parked_until_it_is_settled(kafka, name, handler, consume, directory):
    """Also: a request is not sent again by itself when a kept connection is cut, and a complete 5xx is a doubt."""
    kafka.create(name, 1)
    answers = {"cut": None, "broken": 500}
    handler.answer = lambda request: answers.get(request.key, 204)
    kafka.produce(name, [event(i, key=f"k{i}") for i in range(4)])
    one = consume(kafka.url(name, group=name), "--recover", "hold", "--lease", "500ms", "--concurrency", "1", "--order", "none")
    one.wait_metric("handled_total", 4)  # the connection is kept now
    kafka.produce(name, [event("cut"), event("broken"), event("after")])
    one.wait_metric("handled_total", 5)
    one.wait_metric("parked", 2)
    assert {line["id"] for line in one.said("parked: ")} == {"cut", "broken"}
    until(lambda: kafka.committed(name, name)[0] == 4, "committed up to the parked one, not beyond")
    assert handler.count("cut") == 1 and handler.count("broken") == 1 and handler.count("after") == 1
    store = f"local:{directory}/store"
    arguments = ["--scope", name, "--yes", "--force", store]
    handler.answer = lambda request: 204  # before the release: it is sent again at once
    shown = json.loads(once("keys", "show", "--json", "--scope", name, "--key", "cut", store))
    assert shown["description"].startswith(name) and shown["cause"], shown
    once("keys", "settle", "--note=test", "--key", "cut", "--completed", "--status", "200", *arguments)
    once("keys", "release", "--note=test", "--key", "broken", *arguments)
    one.wait_metric("handled_total", 6)
    wait_caught_up(kafka, name, name)
    assert one.metric("parked") == 0
    assert handler.count("cut") == 1, "it was settled as done"
    assert handler.count("broken") == 2, "it was settled as not done"


def test_a_cut_connection_is_never_sent_twice(kafka, name, handler, consume):
    """libcurl would repeat a request on a kept connection that turns out to be closed. An empty message has no body to tell by."""
    kafka.create(name, 1)
    handler.answer = lambda request: None if request.key.startswith("cut") and handler.count(request.key) == 1 else 204
    kafka.produce(name, [event(i) for i in range(3)])
    one = consume(kafka.url(name, group=name), "--recover", "hold", "--concurrency", "1", "--order", "none", "--lease", "1s")
    one.wait_metric("handled_total", 3)
    empty = {"value": b"", "headers": {"ce_id": "cut-empty"}}
    bad = [event("cut-large", text="x" * 100000), event("cut-small"), empty]
    kafka.produce(name, [message for i in range(3) for message in (event(10 + i), bad[i])])  # a kept connection before each
    one.wait_metric("parked", 3)
    one.wait_metric("handled_total", 6)
    assert [handler.count(key) for key in ("cut-large", "cut-small", "cut-empty")] == [1, 1, 1]


def test_ids_from_json(kafka, name, handler, consume):
    kafka.create(name, 1)
    bodies = [{"type": "a", "event_id": 1}, {"type": "b", "event_id": 1}, {"event_id": 1, "type": "a"},
              {"type": "a:1", "event_id": "x"}, {"type": "a", "event_id": "1:x"}]
    kafka.produce(name, [{"value": json.dumps(body).encode()} for body in bodies] + [{"value": b"not json"}, {"value": b"{}"}])
    one = consume(kafka.url(name, group=name), "--id", "json:/type+/event_id", "--fingerprint", "json", "--concurrency", "1")
    one.wait_metric("handled_total", 4)
    one.wait_metric("duplicates_total", 1)
    one.wait_metric('dead_letters_total{reason="no-id"}', 2)
    assert handler.keys() == ["a:1", "b:1", "a%3A1:x", "a:1%3Ax"]


def test_redelivery_after_the_ttl_is_a_new_message(kafka, name, handler, consume):
    kafka.create(name, 1)
    kafka.produce(name, [event(1)] * 2)
    one = consume(kafka.url(name, group=name), "--ttl", "2s")
    one.wait_metric("duplicates_total", 1)
    assert handler.count("event-1") == 1
    end = time.monotonic() + 60

    def again():  # until it was forgotten: then it is handled
        kafka.produce(name, [event(1)])
        return handler.count("event-1") == 2 or time.monotonic() > end
    until(again, "the record was forgotten")
    assert handler.count("event-1") == 2


def test_what_is_passed_on_and_what_is_not(kafka, name, handler, consume):
    kafka.create(name, 1)
    message = {"value": b"\x00\xff", "key": "k é".encode(), "headers": {
        "ce_id": 'a "quoted", id', "content-type": "application/x-thing", "traceparent": "00-1-2-01", "authorization": "Basic xyz",
        "Idempotency-Key": "forged", "Once-Claim": "forged", "x-own": "yes", "x-other": "no", "ce_bad": "a\r\nInjected: 1",
        "host": "elsewhere", "ce_idempotencykey": "order-1234"}}
    kafka.produce(name, [message])
    one = consume(kafka.url(name, group=name), "--header", "X-Own")
    handler.wait(1)
    headers, body = handler.requests[0].headers, handler.requests[0].body
    assert body == b"\x00\xff" and headers["Idempotency-Key"] == '"a \\"quoted\\", id"'
    assert headers["Content-Type"] == "application/x-thing" and headers["traceparent"] == "00-1-2-01" and headers["x-own"] == "yes"
    assert headers["Once-Message-Key"] == "k%20%C3%A9" and len(headers.get_all("Once-Claim")) == 1
    assert headers["Once-Claim"] != "forged" and headers["Host"].startswith("127.0.0.1")
    for absent in ("authorization", "x-other", "ce-bad", "Injected"):
        assert headers[absent] is None
    one.wait_metric("handled_total", 1)
    until(lambda: one.said("handled"), "its line in the log")
    assert one.said("handled")[0]["idempotency_key"] == "order-1234", "the key of the request that caused it"
    assert headers["ce-idempotencykey"] == "order-1234"
    assert "xyz" not in one.last_words()


def test_messages_just_under_the_limit_can_be_dead_letters(kafka, name, handler, consume, replay):
    """What a letter adds makes them too large: then it goes without large headers, or without the payload, which is replayed from
    where the message came from."""
    for topic in (name, name + ".dlq"):
        kafka.create(topic, 1, **{"max.message.bytes": 20000})
    handler.answer = lambda request: 422
    noise = os.urandom(19700)  # nothing that could be compressed
    messages = [{"value": noise, "key": b"k", "headers": {"ce_id": "payload"}},
                {"value": b"small", "key": b"k", "headers": {"large": noise, "ce_id": "headers", "small": "x"}},
                dict(event("compressed", text="x" * 500000), key=b"k"), dict(event("after"), key=b"k")]
    kafka.produce(name, messages, **{"compression.codec": "gzip", "batch.num.messages": 1})
    one = consume(kafka.url(name, group=name), "--backoff", "20ms")
    one.wait_metric('dead_letters_total{reason="rejected"}', 4)
    wait_caught_up(kafka, name, name)
    found = letters(kafka, name + ".dlq", 4)
    got = headers_of(found["payload"])
    assert not found["payload"].value() and found["payload"].key() == b"k" and got["once-reason"] == "rejected"
    assert got["once-omitted"] == "payload, headers" and got["once-bytes"] == "19700" and got["once-source"] == f"{name}/0@0"
    got = headers_of(found["headers"])
    assert found["headers"].value() == b"small" and got["once-omitted"] == "headers"
    assert got["ce_id"] == "headers" and got["small"] == "x" and "large" not in got
    assert len(found["compressed"].value()) > 500000 and "once-omitted" not in headers_of(found["compressed"])
    assert handler.keys() == ["payload", "headers", "compressed", "after"], "in order, and once each"
    listed = [json.loads(line) for line in once("dlq", "list", "--json", kafka.url(name + ".dlq")).splitlines()]
    assert [line.get("omitted") for line in listed] == ["payload, headers", "headers", None, None]
    handler.answer = lambda request: 204
    assert replay("--id", "payload", "--id", "compressed", kafka.url(name + ".dlq")) == "replayed 2\n"
    one.wait_metric("handled_total", 2)
    assert {r.key: r.body for r in handler.requests[4:]}["payload"] == noise
    assert one.stop() == 0
    admin = kafka.admin()
    admin.delete_topics([name])[name].result(30)
    assert "cannot be fetched" in replay("--all", "--id", "payload", kafka.url(name + ".dlq"), code=4)
