"""Messages of Kafka."""
from harness import event, until


def caught_up(kafka, group, topic):
    """Everything that is in the topic is committed for the group."""
    ends = {p: end for p, (_, end) in kafka.ends(topic).items() if end > 0}
    committed = kafka.committed(group, topic)
    return all(committed[p] == end for p, end in ends.items())


def wait_caught_up(kafka, group, topic):
    until(lambda: caught_up(kafka, group, topic),
          lambda: f"committed {kafka.committed(group, topic)} of {kafka.ends(topic)}")


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
    until(lambda: one.metrics()["once_consume_lag"] == 0, "the lag is 0")
    assert one.stop() == 0
    request = handler.requests[0]
    assert request.headers["Once-Claim"] and request.headers["ce-type"] == "order"
    assert request.headers["Once-Subscriber"] == name and request.headers["Once-Tries"] == "1"
