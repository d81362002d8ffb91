"""An application of the campaign that claims by itself, without a gate: once.claim in transactions of its own. It can be killed.

    campaign_worker.py DATABASE NAME FILE SEED [unfenced]

What was committed for certain is a line of FILE: "KEY DIGEST TIME". Keys are its own, or those that all workers ask for at the
same time. Some claims are committed before the work, with a short lease, and may be taken over. Unfenced, nothing is completed.
"""
import hashlib
import os
import random
import sys
import time

import psycopg2

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from campaign import odd  # noqa: E402

DATABASE, NAME, FILE, SEED = sys.argv[1:5]
FENCED = "unfenced" not in sys.argv[5:]
LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
CLAIM = "SELECT outcome, claim, status, body FROM once.claim('campaign', %s, 'POST', '/effects', %s, lease => '1s')"
WORK = ("SELECT once.renew(%(claim)s); INSERT INTO effects (key, asked, answer) VALUES (%(key)s, %(asked)s, %(answer)s);"
        "SELECT once.complete(%(claim)s, 201, '{}', %(answer)s)")
BARE = "INSERT INTO effects (key, asked, answer) VALUES (%(key)s, %(asked)s, %(answer)s)"
choice = random.Random(f"{SEED} {NAME}")
acks = os.open(FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


class Busy(Exception):
    """Another one is at it."""


def run(cursor, key, claim=None):
    """The effect of a key, or what is recorded of it: its answer."""
    number = int(key.rpartition("-")[2])
    asked = odd(number + 3)
    if claim is None:
        cursor.execute(CLAIM, (key, asked))
        outcome, claim, _, body = cursor.fetchone()
        if outcome == "replay":
            return bytes(body)
        if outcome != "run":
            raise Busy(outcome)
    answer = b"%s %016x\n" % (key.encode(), choice.getrandbits(64)) + odd(number)
    cursor.execute(WORK if FENCED else BARE, {"claim": claim, "key": key, "asked": asked, "answer": answer})
    return answer


def in_one(connection, keys):
    """All of them in one transaction, some of them tried in a savepoint first."""
    answers = {}
    with connection, connection.cursor() as cursor:
        for key in keys:
            if choice.random() < 0.1:
                cursor.execute("SAVEPOINT inside")
                run(cursor, key)
                cursor.execute("ROLLBACK TO inside")
            answers[key] = run(cursor, key)
    return answers


def in_two(connection, keys):
    """The claim is committed first; a worker that takes longer than its lease is overtaken, and refused."""
    key = keys[0]
    with connection, connection.cursor() as cursor:
        cursor.execute(CLAIM, (key, odd(int(key.rpartition("-")[2]) + 3)))
        outcome, claim, _, body = cursor.fetchone()
    if outcome == "replay":
        return {key: bytes(body)}
    if outcome != "run":
        raise Busy(outcome)
    with connection, connection.cursor() as cursor:
        return {key: run(cursor, key, claim)}


def choose(number):
    """The same keys in the same turn, also after a kill."""
    turn = random.Random(f"{SEED} {NAME} {number}")
    if turn.random() < 0.2:
        moment = int(time.time() * 20)
        return [f"hot-{SEED}-{moment - back}" for back in turn.sample(range(4), turn.randrange(1, 4))]
    return [f"own-{NAME}-{number * 8 + more}" for more in range(turn.randrange(1, 8))]


def last_turn():
    """The one that was acknowledged last: what was under way at the kill comes after it, and is asked for again."""
    with open(FILE, "rb") as file:
        file.seek(max(0, os.path.getsize(FILE) - 65536))
        own = [line.split()[0] for line in file.read().split(b"\n")[1:-1] if line.startswith(b"own-")]
    return int(own[-1].rpartition(b"-")[2]) // 8 if own else 0


def main():
    number, connection, keys = last_turn(), None, None
    while True:
        if not keys:
            keys = choose(number)
            way = in_two if choice.random() < 0.2 else in_one
            number += 1
        try:
            if connection is None:
                connection = psycopg2.connect(DATABASE, connect_timeout=5)
                connection.set_session(isolation_level=choice.choice(LEVELS))
            answers = way(connection, keys)
        except Busy:
            time.sleep(0.05)
        except psycopg2.Error as error:  # repeated with the same keys, as after a lost reply
            if error.pgcode not in ("40001", "40P01", "ON001", "ON002"):
                connection = None
                time.sleep(0.05)
        else:
            now = time.time()
            os.write(acks, b"".join(b"%s %s %f\n" % (key.encode(), hashlib.md5(answer).hexdigest().encode(), now)
                                    for key, answer in answers.items()))
            keys = [key for key in keys if key not in answers]


main()
