"""kill -9 of application, relay, destination and PostgreSQL at random, under load. RELAY_SECONDS: how long (8), and then with each
kind of destination."""
import os
import random
import shlex
import subprocess
import sys
import time

import psycopg2
import pytest
from brokers import free_port
from harness import headers, in_order, until

LONG = os.environ.get("RELAY_SECONDS")
SECONDS = float(LONG or "8")
HERE = os.path.dirname(os.path.abspath(__file__))
CTL = shlex.split(os.environ["ONCE_PG_CTL"])


class Applications:
    def __init__(self, url, topic, ends, pace):
        self.arguments, self.count = (url, topic, ends, pace), 0
        self.processes = [self.start() for _ in range(3)]

    def start(self):
        url, topic, ends, pace = self.arguments
        self.count += 1
        return subprocess.Popen([sys.executable, os.path.join(HERE, "application.py"), url, topic, f"app{self.count}", str(ends),
                                 str(pace)], stderr=subprocess.DEVNULL)

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


class ToKafka:
    weight, pace = 1, 0  # a start takes seconds; applications do not wait

    def __init__(self, kafka, name, _):
        self.kafka, self.name, self.url = kafka, name, kafka.url("{topic}")
        kafka.create(name, 3)

    def again(self):
        self.kafka.kill()
        self.kafka.start()

    def read(self):
        """(key, id, number) of all messages, in the order in which they were published."""
        return [(message.key().decode(), headers(message)["ce_id"], int(message.value())) for message in self.kafka.read(self.name)]


class ToRabbitMQ:
    weight, pace = 1, 0

    def __init__(self, rabbitmq, name, _):
        self.rabbitmq, self.name, self.url = rabbitmq, name, rabbitmq.url(name)
        rabbitmq.create(name, exchange=name)

    def again(self):
        self.rabbitmq.kill()
        self.rabbitmq.start()

    def read(self):
        return [(properties.headers["ce_partitionkey"], properties.message_id, int(body))
                for properties, body, _ in self.rabbitmq.read(self.name)]


class ToWebhooks:
    weight, pace = 8, 0.005

    def __init__(self, _, name, directory):
        self.port, self.file, self.process = free_port(), str(directory / "received"), None
        self.url = f"http://127.0.0.1:{self.port}/hooks/{{key}}"
        self.start()

    def start(self):
        self.process = subprocess.Popen([sys.executable, os.path.join(HERE, "receiver.py"), str(self.port), self.file])

    def again(self):
        self.process.kill()
        self.process.wait()
        self.start()

    def read(self):
        self.process.kill()
        self.process.wait()
        with open(self.file) as lines:
            return [(key, event, int(number)) for key, event, number in (line.split() for line in lines)]


def campaign(target, relay, relays, applications):
    """What was killed how often. Everything is killed at least once, the slow ones first."""
    counts = dict.fromkeys(("destination", "postgres", "application", "relay"), 0)

    def relay_again():
        random.choice([one for one in relays if one.process.poll() is None]).kill()
        relay(target.url, wait=False)

    actions = {"destination": target.again, "postgres": postgres_again, "application": applications.kill_one, "relay": relay_again}
    order = ["relay", "application", "destination", "relay", "postgres", "application", "relay"]
    while order or time.time() < applications.arguments[2]:
        what = order.pop(0) if order else random.choices(list(actions), (target.weight, 4, 8, 8))[0]
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


# Every day with Kafka, where most of the order is at stake; a start of RabbitMQ takes long.
@pytest.mark.parametrize("kind", [ToKafka, ToRabbitMQ, ToWebhooks] if LONG else [ToKafka])
def test_everything_is_killed(database, relay, relays, name, kind, request, tmp_path):
    broker = {ToKafka: "kafka", ToRabbitMQ: "rabbitmq"}.get(kind)
    target = kind(request.getfixturevalue(broker) if broker else None, name, tmp_path)
    database.run("CREATE TABLE truth (id uuid, key text, number integer)")
    for _ in range(2):
        relay(target.url)
    applications = Applications(database.url, name, time.time() + SECONDS, target.pace)
    counts = campaign(target, relay, relays, applications)
    applications.wait()
    until(lambda: look(database), "the outbox is empty", 120)
    truth = {event: (key, number) for event, key, number in database.run("SELECT id::text, key, number FROM truth")}
    messages = target.read()
    published = {}
    for key, event, number in messages:
        assert published.setdefault(event, (key, number)) == (key, number), "one id, two events"
    assert published.keys() == truth.keys(), (len(truth.keys() - published.keys()), len(published.keys() - truth.keys()))
    assert published == truth and database.dead() == []
    _, twice = in_order(messages)
    print(f"{kind.__name__}: {len(truth)} events, {twice} more than once; killed: {counts}")
    assert len(truth) > 100 and min(counts.values()) > 0
