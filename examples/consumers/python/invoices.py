#!/usr/bin/python3
"""A consumer that owns its transaction: an invoice for each order event, exactly one, with confluent_kafka and psycopg2.

    invoices.py BROKERS TOPIC GROUP POSTGRES-URL

The message id (header ce_id) and the invoice are written in one transaction; the offset is committed after that. Killed anywhere
in between, the message comes again, and once.accept says that it was handled. A message that no invoice can be made of, however
often it comes (no id, no payload, no text), is left out, and the log says which; a topic for those would be the next step.
Wants a table
    CREATE TABLE invoices (id bigserial, event text NOT NULL, body text NOT NULL)
"""
import signal
import sys
import time

import confluent_kafka
import psycopg2


def read(message):
    """Its id and its payload as texts; ValueError: it can never be handled."""
    identity = dict(message.headers() or []).get("ce_id")
    if not identity:
        raise ValueError("it has no id")
    if message.value() is None:
        raise ValueError("it has no payload")
    texts = identity.decode(), message.value().decode()  # what is no UTF-8 is a ValueError, too
    if "\0" in texts[0] + texts[1]:
        raise ValueError("a text has no zero byte")
    return texts


def leave_out(message, why):
    """Says which one, but not what is in it."""
    print(f"invoices: left out: {message.topic()}/{message.partition()}@{message.offset()}: {why}", file=sys.stderr, flush=True)


def handle(connection, subscriber, identity, body):
    """In one transaction: committed at the end of the block, rolled back by an exception."""
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT once.accept(%s, %s)", (subscriber, identity))
        if cursor.fetchone()[0]:
            cursor.execute("INSERT INTO invoices (event, body) VALUES (%s, %s)", (identity, body))


def reconnected(connection, url):
    while connection.closed:
        time.sleep(1)
        try:
            connection = psycopg2.connect(url)
        except psycopg2.OperationalError as error:
            print(f"invoices: {error}", file=sys.stderr)
    return connection


def main(brokers, topic, group, url):
    leaving = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: leaving.append(True))
    consumer = confluent_kafka.Consumer({"bootstrap.servers": brokers, "group.id": group, "enable.auto.commit": False,
                                         "auto.offset.reset": "earliest", "session.timeout.ms": 6000})
    consumer.subscribe([topic])
    connection = psycopg2.connect(url)
    while not leaving:
        message = consumer.poll(0.2)
        if message is None or message.error():
            continue
        while not leaving:
            try:
                handle(connection, group, *read(message))
                break
            except ValueError as why:
                leave_out(message, why)
                break
            except (psycopg2.DataError, psycopg2.IntegrityError) as error:  # rolled back, as it would be each time
                leave_out(message, f"the database refuses it: {error.pgcode}")
                break
            except psycopg2.OperationalError as error:  # a conflict, or the server is away: nothing was done, or all of it
                print(f"invoices: {error}", file=sys.stderr)
                connection = reconnected(connection, url)
        if not leaving:
            consumer.commit(message, asynchronous=False)  # after the transaction, never before
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
