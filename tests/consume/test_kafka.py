"""Messages of Kafka: duplicates, groups, order, rebalances, crashes."""
import threading
import time

from harness import Handler, event, until
from letters import check_page

QUEUED = 150000
QUICK = {"session.timeout.ms": 2000, "heartbeat.interval.ms": 300}  # a dead member is noticed soon


def caught_up(kafka, group, topic):
    """Everything that is in the topic is committed for the group."""
    committed = kafka.committed(group, topic)
    return all(committed[p] == end for p, (_, end) in kafka.ends(topic).items() if end > 0)


def wait_caught_up(kafka, group, topic):
    until(lambda: caught_up(kafka, group, topic),
          lambda: f"committed {kafka.committed(group, topic)} of {kafka.ends(topic)}")


def lag(one):
    return one.metrics().get("once_consume_lag")  # None: not known yet


def test_a_lag_that_nobody_knows_is_no_number(consume):
    one = consume("kafka://127.0.0.1:1/orders?group=g")
    assert "once_consume_lag" not in until(one.metrics, "it serves")


def test_duplicates_are_acknowledged_and_logged_not_delivered(kafka, name, handler, consume):
    kafka.create(name, 3)
    kafka.produce(name, [event(i, key=f"k{i % 5}") for i in range(20)] * 3)
    one = consume(kafka.url(name, group=name))
    one.wait_metric("duplicates_total", 40)
    one.wait_metric("handled_total", 20)
    wait_caught_up(kafka, name, name)
    assert sorted(handler.keys()) == sorted(f"event-{i}" for i in range(20))
    line = one.said("duplicate: ")[0]
    assert line["id"].startswith("event-") and line["key"].startswith("k") and name in line["source"]
    until(lambda: lag(one) == 0, "the lag is 0")
    assert one.stop() == 0
    request = handler.requests[0]
    assert request.headers["Once-Claim"] and request.headers["ce-type"] == "order"
    assert request.headers["Once-Subscriber"] == name and request.headers["Once-Tries"] == "1"


def test_transactions_leave_no_lag(kafka, name, handler, consume):
    """Their ends are records in the partition that no consumer can handle, and so is what was aborted."""
    kafka.create(name, 2)
    kafka.transact(name, [dict(event(i), partition=i % 2) for i in range(10)])
    one = consume(kafka.url(name, group=name))
    one.wait_metric("handled_total", 10)
    until(lambda: lag(one) == 0, lambda: f"lag {lag(one)} of what is done")
    kafka.transact(name, [dict(event(i), partition=i % 2) for i in range(10, 20)], commit=False)
    kafka.transact(name, [dict(event(20), partition=0)])
    one.wait_metric("handled_total", 11)
    until(lambda: lag(one) == 0, lambda: f"lag {lag(one)} of what was aborted")
    gate = threading.Event()
    handler.answer = lambda request: 204 if gate.wait(60) else 500
    kafka.transact(name, [dict(event(i), partition=0) for i in range(30, 33)])
    until(lambda: (lag(one) or 0) >= 3, "what is not done is behind")
    gate.set()
    until(lambda: lag(one) == 0, "and when it is done, no more")
    assert len(handler.keys()) == 14


def test_a_topic_made_anew_is_committed_and_partitions_that_are_added_are_read(kafka, name, handler, consume):
    """Offsets begin at 0 again: librdkafka by itself commits none that is smaller than the last one it has committed."""
    kafka.create(name, 1)
    kafka.produce(name, [event(i) for i in range(10)])
    one = consume(kafka.url(name, group=name))
    one.wait_metric("handled_total", 10)
    wait_caught_up(kafka, name, name)
    kafka.remove(name)
    kafka.create(name, 1)
    kafka.produce(name, [event(i) for i in range(10, 13)])
    one.wait_metric("handled_total", 13)
    wait_caught_up(kafka, name, name)
    kafka.extend(name, 2)
    until(lambda: len(kafka.ends(name)) == 2, "it has two partitions")
    kafka.produce(name, [dict(event(13), partition=1)])
    one.wait_metric("handled_total", 14)


def test_reading_goes_on_when_the_queue_was_full(kafka, name, handler, consume):
    """librdkafka itself looks only once a second whether its full queue has room again."""
    kafka.create(name, 1)
    kafka.produce(name, (event(1) for _ in range(QUEUED)))
    one = consume(kafka.url(name, **{"group": name, "queued.max.messages.kbytes": 250, "fetch.message.max.bytes": 500000}))
    one.wait_metric("duplicates_total", 1)
    begun = time.monotonic()
    one.wait_metric("duplicates_total", QUEUED - 1)
    took = time.monotonic() - begun
    assert took < 12, f"{took} s for {QUEUED} duplicates"
    assert handler.keys() == ["event-1"]


def test_two_consumers_in_one_group_and_two_groups(kafka, name, handler, handlers, consume):
    """Each group handles each event once, by any of its members; the groups share a store and nothing else."""
    kafka.create(name, 4)
    other = Handler()
    handlers.append(other)
    first = consume(kafka.url(name, group=name + "-a"))
    second = consume(kafka.url(name, group=name + "-a"))
    first.wait_said("assigned")
    second.wait_said("assigned")
    kafka.produce(name, [event(i, key=f"k{i}") for i in range(200)] * 2)
    consume(kafka.url(name, group=name + "-b"), to=other.url)
    wait_caught_up(kafka, name + "-a", name)
    wait_caught_up(kafka, name + "-b", name)
    expected = sorted(f"event-{i}" for i in range(200))
    assert sorted(handler.keys()) == expected and sorted(other.keys()) == expected
    assert first.metric("handled_total") + second.metric("handled_total") == 200
    assert first.metric("duplicates_total") + second.metric("duplicates_total") == 200
    assert first.metric("handled_total") > 0 and second.metric("handled_total") > 0


def test_rebalance_while_a_handler_runs(kafka, name, handler, consume):
    """The partition moves while its message is at the handler: the new owner finds it busy, and then done."""
    kafka.create(name, 2)
    gate = threading.Event()
    handler.answer = lambda request: 204 if gate.wait(60) else 500
    kafka.produce(name, [dict(event(i), partition=i) for i in range(2)])
    first = consume(kafka.url(name, group=name, **QUICK))
    handler.wait(2)
    second = consume(kafka.url(name, group=name, **QUICK))
    first.wait_said("given up")
    second.wait_metric("busy_total", 1)
    gate.set()
    second.wait_metric("duplicates_total", 1)
    wait_caught_up(kafka, name, name)
    assert sorted(handler.keys()) == ["event-0", "event-1"]
    until(lambda: first.metric("lost_total") == 1, "the message of the lost partition was not acknowledged by the first")


def test_members_come_and_go_while_they_have_many_messages(kafka, name, handler, consume):
    """What a member has in memory, or prepares, when a partition is given up or when it ends is handled by the next owner."""
    kafka.create(name, 4)
    kafka.produce(name, [event(i, key=f"k{i % 300}") for i in range(3000)])
    joined, stopping = threading.Event(), threading.Event()

    def answer(_):
        count = len(handler.requests)
        return 204 if (count < 300 or joined.wait(60)) and (count < 900 or stopping.wait(60)) else 500

    handler.answer = answer
    first = consume(kafka.url(name, group=name, **QUICK))
    handler.wait(300)
    second = consume(kafka.url(name, group=name, **QUICK))
    second.wait_metric("waiting", 500)
    joined.set()
    handler.wait(900)
    first.terminate()
    first.wait_said("stopping")
    stopping.set()
    assert first.child.wait(60) == 0
    wait_caught_up(kafka, name, name)
    assert sorted(handler.keys()) == sorted(f"event-{i}" for i in range(3000)), "each once"
    numbers = [int(key[6:]) for key in handler.keys()]
    assert all(order == sorted(order) for order in ([n for n in numbers if n % 300 == key] for key in range(300)))


def test_a_partition_that_was_paused_comes_back_and_goes_on(kafka, name, handler, consume):
    """Without room for long reading is paused. The pause must not outlive the partition: it would come back and stay silent."""
    options = ["--window", "4", "--concurrency", "2", "--lease", "1s"]
    kafka.create(name, 2)
    gate = threading.Event()
    handler.answer = lambda request: 204 if gate.wait(60) else 500
    kafka.produce(name, [dict(event(i), partition=i % 2) for i in range(12)])
    first = consume(kafka.url(name, group=name, **QUICK), *options)
    handler.wait(2)
    first.wait_metric("paused", 1)
    second = consume(kafka.url(name, group=name, **QUICK), *options)
    first.wait_said("given up")
    second.wait_said("assigned")
    second.kill()
    first.wait_said("assigned", 2)
    gate.set()
    wait_caught_up(kafka, name, name)


def test_order_of_a_key_is_kept_while_others_go_on(kafka, name, handler, consume):
    kafka.create(name, 1)
    failures = {"a-0": 3, "a-2": 2}

    def answer(request):
        if failures.get(request.key, 0) > 0:
            failures[request.key] -= 1
            return 500
        return 204

    handler.answer = answer
    kafka.produce(name, [event(f"{key}-{i}", key=key) for i in range(4) for key in "abc"])
    one = consume(kafka.url(name, group=name), "--backoff", "300ms")
    one.wait_metric("handled_total", 12)
    order = [request.key for request in handler.requests]
    assert [key for key in order if key[0] == "a"] == ["a-0"] * 4 + ["a-1"] + ["a-2"] * 3 + ["a-3"]
    assert [key for key in order if key[0] == "b"] == ["b-0", "b-1", "b-2", "b-3"]
    assert order.index("b-3") < order.index("a-1"), "b waited for a"
    assert one.metric("retries_total") == 5


def test_a_key_with_very_many_messages_holds_back_nobody_else(kafka, name, handler, consume):
    """It is stuck, and has more messages than the window has room for; those of others are behind them in the same partition."""
    kafka.create(name, 1)
    gate = threading.Event()
    handler.answer = lambda request: 204 if not request.key.startswith("hot") or gate.wait(60) else 500
    kafka.produce(name, [event(f"hot-{i}", key="hot") for i in range(110)] + [event(i, key=f"k{i}") for i in range(30)])
    one = consume(kafka.url(name, group=name), "--window", "40", "--concurrency", "4")
    one.wait_metric("handled_total", 30)
    assert [key for key in handler.keys() if key.startswith("hot")] == ["hot-0"]
    kafka.produce(name, [event(f"hot-{i}", key="hot") for i in range(110, 400)])
    one.wait_metric("paused", 1)
    assert one.metric("waiting") <= 160, "four windows"
    gate.set()
    wait_caught_up(kafka, name, name)
    assert [key for key in handler.keys() if key.startswith("hot")] == [f"hot-{i}" for i in range(400)]


def test_large_messages_do_not_fill_the_memory(kafka, name, handler, consume):
    """They wait for a handler that is slow. 64 MiB of payloads is the limit: also for those whose id is still looked for."""
    kafka.create(name, 1)
    gate = threading.Event()
    handler.answer = lambda request: 204 if gate.wait(60) else 500
    kafka.produce(name, (event(i, key=f"k{i}", pad="x" * 200000) for i in range(1000)))
    one = consume(kafka.url(name, group=name), "--id", "json:/event_id", "--concurrency", "2")
    one.wait_metric("waiting", (64 << 20) / 200100)
    assert one.metric("waiting") < (80 << 20) / 200000
    assert one.most_memory() < 180 << 20
    gate.set()


def test_concurrency_is_bounded_and_partitions_can_be_strict(kafka, name, handler, consume):
    kafka.create(name, 2)
    barrier = threading.Barrier(2)
    handler.answer = lambda request: 204 if barrier.wait(60) is not None else 500
    kafka.produce(name, [dict(event(i), partition=i % 2) for i in range(12)])
    one = consume(kafka.url(name, group=name), "--order", "partition", "--concurrency", "8")
    one.wait_metric("handled_total", 12)
    assert handler.most == 2, "one for each partition"
    for parity in (0, 1):
        assert [r.key for r in handler.requests if int(r.key[6:]) % 2 == parity] == [f"event-{i}" for i in range(parity, 12, 2)]


def test_consumer_is_killed_while_a_handler_runs(kafka, name, handler, consume):
    """Redelivery, and the record decides: what was done is a duplicate, what ran is repeated when its lease is over."""
    kafka.create(name, 1)
    gate = threading.Event()
    handler.answer = lambda request: 204 if request.key != "event-3" or gate.wait(60) else 500
    kafka.produce(name, [event(i, key=f"k{i}") for i in range(6)])
    one = consume(kafka.url(name, group=name, **QUICK), "--lease", "1s")
    handler.wait(6)
    one.wait_metric("handled_total", 5)
    one.kill()
    gate.set()
    one.go()
    handler.wait(7)
    wait_caught_up(kafka, name, name)
    assert handler.count("event-3") == 2 and len(handler.keys()) == 7


def test_shutdown_finishes_what_runs(kafka, name, handler, consume):
    kafka.create(name, 1)
    gate = threading.Event()
    handler.answer = lambda request: 204 if gate.wait(60) else 500
    kafka.produce(name, [event(i) for i in range(8)])
    one = consume(kafka.url(name, group=name), "--concurrency", "2")
    handler.wait(2)
    one.terminate()
    one.wait_said("stopping")
    gate.set()
    assert one.child.wait(60) == 0, one.last_words()
    assert len(handler.keys()) == 2, "nothing more was started"
    assert kafka.committed(name, name)[0] == 2
    one.go()
    handler.wait(8)
    wait_caught_up(kafka, name, name)
    assert len(handler.keys()) == 8


def test_broker_is_killed(kafka, name, handler, consume):
    kafka.create(name, 2)
    kafka.produce(name, [event(i, key=f"k{i % 9}") for i in range(300)])
    one = consume(kafka.url(name, group=name, **QUICK), "--concurrency", "2")
    handler.wait(30)
    kafka.kill()
    kafka.start()
    kafka.produce(name, [event(i, key=f"k{i % 9}") for i in range(250, 320)])
    wait_caught_up(kafka, name, name)
    one.wait_metric("handled_total", 320)
    assert sorted(handler.keys()) == sorted(f"event-{i}" for i in range(320)), "each once"


def test_handler_is_away_and_comes_back(kafka, name, handler, handlers, consume):
    """A handler that cannot be reached costs no try: nothing becomes a dead letter however long it is away."""
    kafka.create(name, 1)
    handler.close()
    handlers.remove(handler)
    kafka.produce(name, [event(i) for i in range(5)])
    one = consume(kafka.url(name, group=name), "--backoff", "20ms", "--backoff-max", "100ms", "--tries", "2")
    one.wait_said("not reached", 30)
    back = Handler(port=handler.port)
    handlers.append(back)
    one.wait_metric("handled_total", 5)
    assert sorted(back.keys()) == [f"event-{i}" for i in range(5)]
    assert all(request.headers["Once-Tries"] == "1" for request in back.requests)


def test_letters_on_the_page(kafka, name, handler, consume, directory):
    kafka.create(name, 1)
    handler.answer = lambda request: 400
    kafka.produce(name, [event(f"r-{i}", key="k") for i in range(3)])
    one = consume(kafka.url(name, group=name))
    one.wait_metric('dead_letters_total{reason="rejected"}', 3)
    check_page(kafka.url(name + ".dlq"), f"local:{directory}/store", name, one, handler)
