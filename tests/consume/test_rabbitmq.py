"""Messages of RabbitMQ: the same promises, with acknowledgements one by one."""
import json
import threading

from harness import letter, once, until
from letters import check_page


def test_duplicates_and_order(rabbitmq, name, handler, consume):
    rabbitmq.create(name)
    failures = {"a-0": 2}

    def answer(request):
        if failures.get(request.key, 0) > 0:
            failures[request.key] -= 1
            return 500
        return 204

    handler.answer = answer
    rabbitmq.publish(name, [letter(f"{key}-{i}", key=key) for i in range(4) for key in "abc"] * 2)
    one = consume(rabbitmq.url(name), "--backoff", "200ms")
    one.wait_metric("duplicates_total", 12)
    one.wait_metric("handled_total", 12)
    order = handler.keys()
    assert [key for key in order if key[0] == "a"] == ["a-0"] * 3 + ["a-1", "a-2", "a-3"]
    assert [key for key in order if key[0] == "b"] == [f"b-{i}" for i in range(4)]
    assert order.index("b-3") < order.index("a-1")
    line = one.said("duplicate: ")[0]
    assert line["id"] and line["key"] in "abc" and line["source"].startswith(name)
    assert one.stop() == 0
    assert rabbitmq.count(name) == (0, 0), "all of it was acknowledged"
    assert not one.said("RabbitMQ: "), "and nothing twice, for which the broker would have closed the channel"


def test_a_key_with_very_many_messages_holds_back_nobody_else(rabbitmq, name, handler, consume):
    rabbitmq.create(name)
    gate = threading.Event()
    handler.answer = lambda request: 204 if not request.key.startswith("hot") or gate.wait(60) else 500
    rabbitmq.publish(name, [letter(f"hot-{i}", key="hot") for i in range(60)] + [letter(i, key=f"k{i}") for i in range(30)])
    one = consume(rabbitmq.url(name), "--window", "40", "--concurrency", "4")
    one.wait_metric("handled_total", 30)
    gate.set()
    one.wait_metric("handled_total", 90)
    assert [key for key in handler.keys() if key.startswith("hot")] == [f"hot-{i}" for i in range(60)]


def test_redelivery_after_the_consumer_was_killed(rabbitmq, name, handler, consume):
    rabbitmq.create(name)
    gate = threading.Event()
    handler.answer = lambda request: 204 if request.key != "event-2" or gate.wait(60) else 500
    rabbitmq.publish(name, [letter(i) for i in range(6)])
    one = consume(rabbitmq.url(name), "--lease", "1s")
    one.wait_metric("handled_total", 5)
    one.kill()
    gate.set()
    one.go()
    handler.wait(7)
    one.wait_metric("handled_total", 1)
    assert handler.count("event-2") == 2 and len(handler.keys()) == 7
    assert one.stop() == 0
    assert rabbitmq.count(name) == (0, 0)


def test_broker_is_killed(rabbitmq, name, handler, consume):
    """What was on its way comes again after the restart, and is recognised."""
    rabbitmq.create(name)
    rabbitmq.publish(name, [letter(i, key=f"k{i % 7}") for i in range(200)])
    one = consume(rabbitmq.url(name), "--concurrency", "2")
    handler.wait(30)
    rabbitmq.kill()
    rabbitmq.start()
    rabbitmq.publish(name, [letter(i, key=f"k{i % 7}") for i in range(200, 207)])  # the last of each key: all before it is done
    one.wait_metric("handled_total", 207)
    assert sorted(handler.keys()) == sorted(f"event-{i}" for i in range(207))
    assert one.stop() == 0
    assert rabbitmq.count(name) == (0, 0)


def test_two_consumers_of_one_queue(rabbitmq, name, handler, consume):
    rabbitmq.create(name)
    first, second = consume(rabbitmq.url(name), "--window", "16"), consume(rabbitmq.url(name), "--window", "16")
    first.wait_said("consuming")
    second.wait_said("consuming")
    rabbitmq.publish(name, [letter(i) for i in range(200)] * 2)
    until(lambda: sum(one.metric("handled_total") + one.metric("duplicates_total") for one in (first, second)) == 400,
          lambda: f"all of it: {[one.metrics() for one in (first, second)]}, {rabbitmq.count(name)}")
    assert sorted(handler.keys()) == sorted(f"event-{i}" for i in range(200))


def test_dead_letters_and_their_replay(rabbitmq, name, handler, consume, replay):
    rabbitmq.create(name)
    handler.answer = lambda request: 422 if request.key == "bad" else 204
    messages = [letter("bad", key="k"), letter("good", key="k"), letter("good", key="k", other=1)]
    rabbitmq.publish(name, messages + [{"body": b"no id", "message_id": "m-1"}])
    one = consume(rabbitmq.url(name))
    until(lambda: sum(v for k, v in one.metrics().items() if "dead_letters" in k) == 3, "three dead letters")
    listed = [json.loads(line) for line in once("dlq", "list", "--json", rabbitmq.url(name + ".dlq")).splitlines()]
    assert {line["reason"]: line.get("id") for line in listed} == {"rejected": "bad", "mismatch": "good", "no-id": None}
    assert rabbitmq.count(name + ".dlq")[0] == 3, "looking changes nothing"
    handler.answer = lambda request: 204
    assert replay("--id", "bad", rabbitmq.url(name + ".dlq")) == "replayed 1\n"
    handler.wait(3)
    assert handler.keys()[-1] == "bad" and json.loads(handler.requests[-1].body)["event_id"] == "bad"
    assert rabbitmq.count(name + ".dlq")[0] == 2
    (properties, body, _), *_ = [m for m in rabbitmq.read(name + ".dlq") if m[1] == b"no id"]
    assert properties.headers["once-reason"] == "no-id" and body == b"no id"


def test_parked_messages_are_not_acknowledged(rabbitmq, name, handler, consume):
    rabbitmq.create(name)
    handler.answer = lambda request: None if request.key == "cut" else 204
    rabbitmq.publish(name, [letter("cut")] + [letter(i) for i in range(5)])
    one = consume(rabbitmq.url(name), "--recover", "hold", "--lease", "500ms")
    one.wait_metric("handled_total", 5)
    one.wait_metric("parked", 1)
    until(lambda: one.metric("lag") == 1, "what was acknowledged behind the parked one is not behind")
    assert one.stop() == 0
    assert rabbitmq.count(name) == (1, 0), "it is still there"
    assert handler.count("cut") == 1


def test_ids_from_properties(rabbitmq, name, handler, consume):
    rabbitmq.create(name)
    rabbitmq.publish(name, [{"body": b"1", "message_id": "m-1", "content_type": "text/plain"}] * 2)
    one = consume(rabbitmq.url(name), "--id", "header:message-id")
    one.wait_metric("duplicates_total", 1)
    assert handler.keys() == ["m-1"] and handler.requests[0].headers["Content-Type"] == "text/plain"


def test_headers_that_fill_a_frame_can_be_dead_letters(rabbitmq, name, handler, consume):
    """With what a letter adds they would not fit: the large ones are left out, and the letter says so."""
    rabbitmq.create(name)
    handler.answer = lambda request: 422
    rabbitmq.publish(name, [{"body": b"payload", "headers": {"large": "x" * 130700, "ce_id": "full", "small": "x"}}])
    one = consume(rabbitmq.url(name), "--backoff", "20ms")
    one.wait_metric('dead_letters_total{reason="rejected"}', 1)
    ((properties, body, _),) = rabbitmq.read(name + ".dlq")
    assert body == b"payload" and properties.headers["once-omitted"] == "headers" and "large" not in properties.headers
    assert properties.headers["ce_id"] == "full" and properties.headers["small"] == "x"
    assert handler.keys() == ["full"]


def test_letters_on_the_page(rabbitmq, name, handler, consume, directory):
    rabbitmq.create(name)
    handler.answer = lambda request: 400
    rabbitmq.publish(name, [letter(f"r-{i}", key="k") for i in range(3)])
    one = consume(rabbitmq.url(name))
    one.wait_metric('dead_letters_total{reason="rejected"}', 3)
    check_page(rabbitmq.url(name + ".dlq"), f"local:{directory}/store", name, one, handler)
