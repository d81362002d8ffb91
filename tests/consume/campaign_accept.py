"""A consumer of the campaign that needs no `once consume`: once.accept in its own transactions. It can be killed.

    campaign_accept.py SERVERS TOPIC DATABASE [unfenced]
"""
import os
import sys
import time

import psycopg2
from confluent_kafka import Consumer, TopicPartition

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from campaign import number_of  # noqa: E402

SERVERS, TOPIC, DATABASE = sys.argv[1:4]
NEW = "" if "unfenced" in sys.argv[4:] else "WHERE once.accept('campaign', event)"
HANDLE = f"""INSERT INTO effects (event, key, number) SELECT event, key, number
             FROM (SELECT * FROM unnest(%s, %s, %s) AS m (event, key, number)) AS messages {NEW}"""
MANY = 100  # messages in one transaction: of each of them accept tells whether it is new


def take(consumer):
    """One after the other: with consume(), librdkafka before 2.1 drops what it has collected when partitions move."""
    found, message = [], consumer.poll(0.2)
    while message is not None:
        found += [message] if not message.error() else []
        message = consumer.poll(0) if len(found) < MANY else None
    return found


def ends(messages):
    """What was handled, and nothing behind it: a commit without offsets takes those of messages that are polled meanwhile."""
    return {message.partition(): TopicPartition(TOPIC, message.partition(), message.offset() + 1) for message in messages}


def handle(connection, messages):
    events, keys, numbers = zip(*((dict(m.headers())["ce_id"].decode(), m.key().decode(), number_of(m.value())) for m in messages))
    with connection, connection.cursor() as cursor:
        cursor.execute(HANDLE, (list(events), list(keys), list(numbers)))


def main():
    consumer = Consumer({"bootstrap.servers": SERVERS, "group.id": "campaign", "enable.auto.commit": False, "log_level": 0,
                         "auto.offset.reset": "earliest", "session.timeout.ms": 2000, "heartbeat.interval.ms": 300})
    consumer.subscribe([TOPIC])
    connection = None
    while True:
        messages = take(consumer)
        while messages:
            try:
                connection = connection or psycopg2.connect(DATABASE, connect_timeout=5)
                handle(connection, messages)
                consumer.commit(offsets=list(ends(messages).values()), asynchronous=True)
                break
            except psycopg2.Error:  # the same messages again: what was committed is not new then
                connection = None
                time.sleep(0.05)


main()
