"""kill -9 of application, relay, broker and PostgreSQL at random, under load. RELAY_SECONDS: how long (8)."""
import os
import random
import shlex
import subprocess
import sys
import time

import psycopg2
from harness import check_order, headers, until

SECONDS = float(os.environ.get("RELAY_SECONDS", "8"))
HERE = os.path.dirname(os.path.abspath(__file__))
CTL = shlex.split(os.environ["ONCE_PG_CTL"])


class Applications:
    def __init__(self, url, topic, ends):
        self.arguments, self.count = (url, topic, ends), 0
        self.processes = [self.start() for _ in range(3)]

    def start(self):
        url, topic, ends = self.arguments
        self.count += 1
        return subprocess.Popen([sys.executable, os.path.join(HERE, "application.py"), url, topic, f"app{self.count}", str(ends)],
                                stderr=subprocess.DEVNULL)

    def kill_one(self):
        i = random.randrange(len(self.processes))
        self.processes[i].kill()
        self.processes[i].wait()
        self.processes[i] = self.start()

    def wait(self):
        for process in self.processes:
            process.wait(60)


def postgres_again():
    subprocess.run(CTL + ["-m", "immediate", "stop"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(CTL + ["start"], check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)


def kafka_again(kafka):
    kafka.kill()
    kafka.start()


def campaign(kafka, relay, relays, applications):
    """What was killed how often. Everything is killed at least once, the slow ones first."""
    counts = dict.fromkeys(("kafka", "postgres", "application", "relay"), 0)

    def relay_again():
        random.choice([one for one in relays if one.process.poll() is None]).kill()
        relay(kafka.url("{topic}"), wait=False)

    actions = {"kafka": lambda: kafka_again(kafka), "postgres": postgres_again, "application": applications.kill_one,
               "relay": relay_again}
    order = ["relay", "application", "kafka", "relay", "postgres", "application", "relay"]
    while order or time.time() < applications.arguments[2]:
        what = order.pop(0) if order else random.choices(list(actions), (1, 4, 8, 8))[0]
        actions[what]()
        counts[what] += 1
        time.sleep(random.uniform(0.1, 0.6))
    return counts


def look(database):
    """The connection of the test dies with the server."""
    try:
        return database.waiting() == 0
    except psycopg2.Error:
        database.connection = database.connect()
        database.connection.autocommit = True
        return False


def test_everything_is_killed(database, kafka, relay, relays, name):
    kafka.create(name, 3)
    database.run("CREATE TABLE truth (id uuid, key text, number integer)")
    for _ in range(2):
        relay(kafka.url("{topic}"))
    applications = Applications(database.url, name, time.time() + SECONDS)
    counts = campaign(kafka, relay, relays, applications)
    applications.wait()
    until(lambda: look(database), "the outbox is empty", 120)
    truth = {event: (key, number) for event, key, number in database.run("SELECT id::text, key, number FROM truth")}
    messages = kafka.read(name)
    published = {}
    for message in messages:
        event, said = headers(message)["ce_id"], (message.key().decode(), int(message.value()))
        assert published.setdefault(event, said) == said, "one id, two events"
    assert published.keys() == truth.keys(), (len(truth.keys() - published.keys()), len(published.keys() - truth.keys()))
    assert published == truth and database.dead() == []
    _, twice = check_order(messages)
    print(f"{len(truth)} events, {twice} more than once; killed: {counts}")
    assert len(truth) > 100 and min(counts.values()) > 0
