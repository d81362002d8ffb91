"""A database with an outbox, and relays as processes."""
import datetime
import json
import os
import signal
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request

import psycopg2

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import waiting  # noqa: E402
from brokers import free_port  # noqa: E402

ONCE = os.path.join(os.environ["ONCE_BUILD"], "once")
PATIENCE = 60
SICK_KEYS, SICK_EACH = 1000, 45  # beside which others are measured
WELL = 40


def until(condition, what, patience=PATIENCE):
    return waiting.until(condition, what, patience)


class Database:
    def __init__(self, name):
        self.url = os.environ["ONCE_PG_URL"].replace("/postgres?", f"/{name}?")
        self.connection = self.connect()
        self.connection.autocommit = True

    def connect(self):
        """No statement of a test takes minutes, not even behind a lock."""
        return psycopg2.connect(self.url, connect_timeout=PATIENCE, options="-c statement_timeout=300s")

    def run(self, query, *values):
        """All rows; on the connection that commits each statement."""
        with self.connection.cursor() as cursor:
            cursor.execute(query, values)
            return cursor.fetchall() if cursor.description else []

    def one(self, query, *values):
        return self.run(query, *values)[0][0]

    def emit(self, key, payload, topic="orders", kind="placed", headers=None, connection=None):
        """Emits one event; with a connection, in its transaction. Returns the id."""
        with (connection or self.connection).cursor() as cursor:
            cursor.execute("SELECT once.emit(%s, %s, %s, %s, %s)",
                           (topic, key, kind, payload if isinstance(payload, bytes) else str(payload).encode(),
                            json.dumps(headers or {})))
            return cursor.fetchone()[0]

    def emit_many(self, keys, count, topic="orders", size=0, first=1):
        """count events, one after the other, over that many keys: payloads are 1, 2, 3..."""
        self.run("SELECT count(once.emit(%s, 'key' || i %% %s, 'placed', convert_to(rpad(i::text, %s), 'UTF8')))"
                 " FROM generate_series(%s, %s) AS i", topic, keys, max(size, 8), first, first + count - 1)

    def neighbours(self, count):
        """Keys of one group: what becomes of one of them can disturb the others."""
        return [key for key, in self.run("SELECT 'key' || i FROM generate_series(1, 10000) AS i"
                                         " WHERE hashtextextended('key' || i, 0) & 63 = 5 LIMIT %s", count)]

    def waiting(self):
        return self.one("SELECT count(*) FROM once.outbox")

    def dead(self):
        return self.run("SELECT id::text, key, tries, reason FROM once.outbox_dead ORDER BY number")

    def until_empty(self):
        until(lambda: self.waiting() == 0, "the outbox is empty")

    def close(self):
        self.connection.close()


class Relay:
    def __init__(self, url, to, log, *options, lease="2s", poll="200ms", wait=True):
        self.log = str(log)
        self.port = free_port()
        if to.startswith("http") and not {"--secret-file", "--unsigned"} & set(options):
            options = (*options, "--unsigned")
        command = [ONCE, "relay", "--lease", lease, "--poll", poll, "--metrics", str(self.port), *options]
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", *command], stdin=subprocess.DEVNULL,
                                            stdout=out, stderr=out, env={**os.environ, "ONCE_STORE": url, "ONCE_TO": to})
        if wait:
            self.until_said("publishing")

    def text(self):
        with open(self.log, encoding="utf-8") as log:
            return log.read().splitlines()

    def lines(self):
        return [json.loads(line) for line in self.text() if line.startswith("{") and line.endswith("}")]

    def said(self, message):
        return [line for line in self.lines() if line["message"] == message]

    def until_said(self, message):
        def look():
            assert self.said(message) or self.process.poll() is None, "\n".join(self.text()[-20:])
            return self.said(message)
        return until(look, message)

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics.json", timeout=10) as answer:
            return json.load(answer)

    def metric(self, name):
        return self.metrics()["once_relay_" + name]

    def get(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)

    def stop(self):
        """Asks it to end; its exit code."""
        self.signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


def once(*arguments, url=None, code=0):
    """Runs the program; its output."""
    done = subprocess.run([ONCE, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=PATIENCE, env={**os.environ, **({"ONCE_STORE": url} if url else {})})
    assert done.returncode == code, done.stdout
    return done.stdout


def headers(message):
    """Of a message from Kafka, as texts."""
    return {name: value.decode() for name, value in message.headers() or []}


def in_order(pairs):
    """Of (key, id, payload): the first of each id, and that payloads, which are numbers, grow within each key."""
    seen, last, twice = set(), {}, 0
    for key, number, payload in pairs:
        if number in seen:
            twice += 1
            continue
        seen.add(number)
        assert payload > last.get(key, 0), f"{key}: {payload} comes after {last[key]}"
        last[key] = payload
    return len(seen), twice


def check_order(messages):
    return in_order([(m.key(), headers(m)["ce_id"], int(m.value())) for m in messages])


class Delays:
    """Events to the topic `well`, one after the other: from once.emit to the endpoint, by the events' own time."""

    def __init__(self):
        self.seen, self.alone = {}, None

    def note(self, event, emitted):
        at = datetime.datetime.strptime(emitted, "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()
        self.seen.setdefault(event, time.time() - at)

    def publish(self, database, what, look):
        """`look()` records those that came, where nothing else does. Their median."""
        ids = []
        self.seen.clear()
        for i in range(WELL):
            ids.append(database.emit(f"well{i}", i, topic="well"))
            until(lambda: look() or len(self.seen) >= len(ids) - 3, f"well ones go on {what}")
        until(lambda: look() or len(self.seen) >= WELL, f"the well ones are published {what}")
        median, most = statistics.median(self.seen.values()), max(self.seen.values())
        print(f"\n{what}: median {median * 1000:.0f} ms, most {most * 1000:.0f} ms of {WELL}")
        assert set(self.seen) == set(ids)
        return median

    def measure_alone(self, database, look=lambda: None):
        """Before there is anything sick: what this machine needs now."""
        self.alone = self.publish(database, "alone", look)

    def measure(self, database, what, look=lambda: None):
        """Under a second, unless the machine is that slow without sick ones."""
        assert self.publish(database, f"beside {what}", look) < max(1, 3 * self.alone)


def emit_sick(database, keys=SICK_KEYS, each=SICK_EACH):
    database.run("SELECT count(once.emit('sick', 'sick' || i %% %s, 'placed', '1')) FROM generate_series(0, %s) AS i",
                 keys, keys * each - 1)
