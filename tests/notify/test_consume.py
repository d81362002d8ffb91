"""notify behind a real once consume and a real RabbitMQ: what it answers becomes of an event what its README says."""
import json
import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

import service as program  # noqa: E402

pytest_plugins = ["brokers.fixtures"]
TRANSFER = {"transaction_id": "t-1", "from": "alice", "to": "bob", "amount": "19.99", "currency": "EUR", "reference": ""}


@pytest.fixture
def queue(rabbitmq, name):
    return rabbitmq.create(name)


@pytest.fixture
def consume(rabbitmq, queue, directory):
    """Starts once consume in front of a notify."""
    made = []

    def start(notify):
        log = open(os.path.join(directory, "consume.log"), "ab")
        made.append((subprocess.Popen(
            [program.ONCE, "consume", rabbitmq.url(queue), "--to", f"http://{notify.listen}/events",
             "--store", f"local:{directory}/consumed", "--subscriber", "notify", "--lease", "1s", "--backoff", "20ms",
             "--tries", "50"], stdin=subprocess.DEVNULL, stdout=log, stderr=log), log))

    yield start
    for process, log in made:
        process.terminate()
        code = process.wait(program.PATIENCE)
        log.close()
        assert code == 0, open(os.path.join(directory, "consume.log")).read()[-2000:]


def publish(rabbitmq, queue, event, kind, payload):
    headers = {"ce_id": event, "ce_type": kind, "ce_specversion": "1.0", "ce_source": "/shop", "ce_partitionkey": "alice"}
    rabbitmq.publish(queue, [{"body": json.dumps(payload).encode(), "headers": headers, "content_type": "application/json"}])


def dead_letter(rabbitmq, queue):
    """The only one: its headers. It stays where it is."""
    program.until(lambda: rabbitmq_count(rabbitmq, queue + ".dlq") == 1, "one dead letter")
    with rabbitmq.connection() as connection:
        delivery, properties, _ = connection.channel().basic_get(queue + ".dlq", auto_ack=False)
        return properties.headers


def rabbitmq_count(rabbitmq, queue):
    import pika
    try:
        return rabbitmq.count(queue)[0]
    except pika.exceptions.ChannelClosedByBroker:  # it is not declared yet
        return 0


def test_a_redelivered_event_is_told_once(notify, world, rabbitmq, queue, consume):
    consume(notify())
    for event in ("e-1", "e-1", "e-2", "e-1"):
        publish(rabbitmq, queue, event, "transfer.completed", TRANSFER)
    world.push.wait(lambda push: len(push.messages) == 2)
    program.until(lambda: rabbitmq_count(rabbitmq, queue) == 0, "an empty queue")
    world.mail.wait(lambda mails: len(mails) == 2)
    assert world.counts() == (2, 2, 2) and len(world.push.requests) == 2


def test_a_failing_channel_is_tried_again_and_the_others_are_not(notify, world, rabbitmq, queue, consume):
    world.sms.answers = [500, 0]
    consume(notify())
    publish(rabbitmq, queue, "e-1", "transfer.completed", TRANSFER)
    world.sms.wait(lambda sms: len(sms.requests) == 3)
    assert len(world.sms.messages) == 1 and len(world.mail.mails) == 1 and len(world.push.requests) == 1


def test_a_bad_event_is_a_dead_letter_with_its_reason(notify, world, rabbitmq, queue, consume):
    consume(notify())
    publish(rabbitmq, queue, "e-1", "transfer.completed", {"from": "alice"})
    publish(rabbitmq, queue, "e-2", "transfer.completed", TRANSFER)
    headers = dead_letter(rabbitmq, queue)
    assert (headers["once-reason"], headers["once-status"], headers["once-id"]) == ("rejected", "422", "e-1")
    assert "the payload has no /amount" in headers["once-detail"]
    world.push.wait(lambda push: len(push.messages) == 1)  # those behind it go on


def test_a_held_mail_is_a_dead_letter_until_somebody_settles_it(notify, world, rabbitmq, queue, consume):
    service = notify("--mail", "hold", "--lease", "1s")
    world.mail.after = lambda _: "hang up"
    consume(service)
    publish(rabbitmq, queue, "e-1", "transfer.completed", TRANSFER)
    headers = dead_letter(rabbitmq, queue)
    assert headers["once-status"] == "422" and "settle the record transfer.completed:e-1:alice" in headers["once-detail"]
    assert world.counts() == (1, 1, 1)

    world.mail.after = lambda _: None
    world.mail.mails.clear()  # the operator looked: the mail server has lost it
    record = next(record for record in service.records() if record["state"] == "unknown")
    service.once("keys", "settle", "--note=test", "--failed", "--force", "--yes", service.store, record["id"])
    service.once("dlq", "replay", "--note=test", "--store", service.store, rabbitmq.url(queue + ".dlq"), "--to", queue)
    world.mail.wait(lambda mails: len(mails) == 1)
    program.until(lambda: rabbitmq_count(rabbitmq, queue + ".dlq") == 0, "no dead letters")
    assert world.counts() == (1, 1, 1) and len(world.push.requests) == 1
