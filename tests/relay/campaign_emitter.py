"""An application of the campaign: counts for each key, and emits an event for each count in the same transaction. It can be killed.

    campaign_emitter.py DATABASE NAME SEED STOP [unfenced]

Table `truth` has id, key and number of what was committed, without gaps for each key. Ends when the file STOP exists. Unfenced,
events are emitted in a transaction of their own, before or after the commit: some never happened, some are missing. Nor does it
lock the key's row while it counts: numbers come twice, and behind greater ones.
"""
import os
import random
import sys
import time
import uuid

import psycopg2

DATABASE, NAME, SEED, STOP = sys.argv[1:5]
FENCED = "unfenced" not in sys.argv[5:]
KEYS, HOT, BACKLOG = 200, 3, 30000
LEVELS = ("READ COMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
COUNT = "UPDATE counters SET number = number + %s WHERE key = %s RETURNING number"
EMIT = """INSERT INTO truth SELECT once.emit(%(topic)s, %(key)s, 'counted', payload(i), '{"kind": "campaign"}'), %(key)s, i
          FROM generate_series(%(first)s, %(last)s) AS i"""
READ = "SELECT number FROM counters WHERE key = %s"
WRITE = "UPDATE counters SET number = %s WHERE key = %s"
BARE = "INSERT INTO truth VALUES (%s, %s, %s)"
APART = "SELECT once.emit(%s, %s, 'counted', payload(%s), '{}', NULL, %s)"
choice = random.Random(f"{SEED} {NAME} {os.getpid()}")


def topic_of(key):
    return "sick" if int(key[1:]) % 10 == 9 else "well"


def choose():
    """Keys in their order, so that there is no deadlock, and how many events each gets."""
    keys = {f"k{choice.randrange(HOT) if choice.random() < 0.3 else choice.randrange(KEYS)}" for _ in range(choice.randrange(1, 6))}
    return [(key, choice.choice((1, 1, 2, 10, 40, 100))) for key in sorted(keys)]


def count(cursor, key, number):
    """The row of the key is locked from here on: numbers and events of one key come in the order of their commits."""
    cursor.execute(COUNT, (number, key))
    last = cursor.fetchone()[0]
    return last - number + 1, last


def together(connection):
    with connection.cursor() as cursor:
        for key, number in choose():
            if choice.random() < 0.05:
                cursor.execute("SAVEPOINT inside")
                first, last = count(cursor, key, number)
                cursor.execute(EMIT, {"topic": topic_of(key), "key": key, "first": first, "last": last})
                cursor.execute("ROLLBACK TO inside")
            first, last = count(cursor, key, number)
            cursor.execute(EMIT, {"topic": topic_of(key), "key": key, "first": first, "last": last})
    if choice.random() < 0.1:
        connection.rollback()
    else:
        connection.commit()


def apart(connection):
    """What once.emit is for, done without it."""
    with psycopg2.connect(DATABASE) as other, other.cursor() as outside, connection.cursor() as cursor:
        events, counted = [], []
        for key, number in choose():
            cursor.execute(READ, (key,))
            last = cursor.fetchone()[0]
            counted.append((last + number, key))
            for one in range(last + 1, last + number + 1):
                event = str(uuid.UUID(int=choice.getrandbits(128)))
                cursor.execute(BARE, (event, key, one))
                events.append((topic_of(key), key, one, event))
        before = choice.random() < 0.5
        if before:
            for event in events:
                outside.execute(APART, event)
            other.commit()
        for number in counted:
            cursor.execute(WRITE, number)
        if choice.random() < 0.2:
            connection.rollback()
            return
        connection.commit()
        if not before and choice.random() < 0.6:  # or it dies just here
            for event in events:
                outside.execute(APART, event)
    other.close()


def crowded(connection):
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM (SELECT FROM once.outbox LIMIT %s) AS waiting", (BACKLOG,))
        found = cursor.fetchone()[0]
    connection.rollback()
    return found >= BACKLOG


def main():
    connection, turn = None, 0
    while not os.path.exists(STOP):
        turn += 1
        try:
            if connection is None:
                connection = psycopg2.connect(DATABASE, connect_timeout=5)
                connection.set_session(isolation_level=choice.choice(LEVELS if FENCED else LEVELS[:1]))
            connection.rollback()  # whatever the last turn left
            if turn % 20 == 0 and crowded(connection):
                time.sleep(0.2)
                turn -= 1
                continue
            (together if FENCED else apart)(connection)
        except psycopg2.Error as error:
            if (error.pgcode or "").startswith("42"):  # a statement that can never work is no fault of the campaign's
                raise
            if connection is not None and error.pgcode not in ("40001", "40P01"):
                connection.close()
            if connection is None or connection.closed:
                connection = None
                time.sleep(0.05)


main()
