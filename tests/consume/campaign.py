#!/usr/bin/python3
"""Consumers under faults: a broker, `once consume` with handlers that write to PostgreSQL, or consumers that use once.accept.

    tests/postgres/with-server --option max_connections=400 ONCE tests/consume/campaign.py [--from kafka|rabbitmq]
        [--policy transactional|retry|accept] [--keys N] ...

Every message (--keys: that many ids) is sent one to three times, in order for each key. Consumers, handlers, the broker, PgBouncer
and PostgreSQL are killed and stopped, COMMITs lose their reply, the standby takes over. Checked in the table of effects, which has
no unique key: one row for each id, in the order of each key. Under retry there may be a second row where something was under way.
"""
import collections
import os
import random
import sys
import threading
import time

import psycopg2

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

import postgres  # noqa: E402
from brokers import Kafka, RabbitMQ, free_port  # noqa: E402
from campaign import PATIENCE, Progress, enough, listens, numbered, options, python, result  # noqa: E402
from stage import FAILOVERS, Stage, perform  # noqa: E402
from waiting import until  # noqa: E402

ONCE = os.path.join(os.environ["ONCE_BUILD"], "once")
LEASE_S = 2
KEYS, HOT = 64, 3
CONSUMERS, CONCURRENCY = 3, 8
AHEAD = 4000  # messages that are sent before they are handled
SCHEMA = "CREATE TABLE effects (id bigserial, event text NOT NULL, key text, number integer)"


class FromKafka:
    def __init__(self, directory):
        self.broker = Kafka(directory).start()
        self.broker.create("messages", 6)
        self.url = self.broker.url("messages", group="campaign", **{"session.timeout.ms": 2000, "heartbeat.interval.ms": 300})
        from confluent_kafka import Producer
        self.refused = []
        self.producer = Producer({"bootstrap.servers": self.broker.servers, "enable.idempotence": True, "message.timeout.ms": 0,
                                  "linger.ms": 5, "log_level": 0})

    def send(self, messages):
        for event, key, payload in messages:
            while True:
                try:
                    self.producer.produce("messages", payload, key, headers={"ce_id": event, "ce_type": "counted"},
                                          on_delivery=self.delivered)
                    break
                except BufferError:
                    self.producer.poll(0.1)
        self.producer.poll(0)

    def delivered(self, error, _):
        self.refused += [str(error)] if error else []

    def flush(self):
        assert self.producer.flush(PATIENCE) == 0 and not self.refused, f"not everything was sent: {self.refused[:3]}"

    def ids(self):
        return {dict(message.headers())["ce_id"].decode() for message in self.broker.stream("messages")}

    def acknowledged(self):
        committed = self.broker.committed("campaign", "messages")
        return all(committed[partition] == end for partition, (_, end) in self.broker.ends("messages").items() if end > 0)


class FromRabbitMQ:
    def __init__(self, directory):
        self.broker = RabbitMQ(directory).start()
        self.broker.create("messages", **{"x-single-active-consumer": True})
        self.url = self.broker.url("messages")

    def send(self, messages):
        """Again from the first if the connection broke: whatever arrived, arrives twice."""
        import pika
        while True:
            try:
                self.broker.publish("messages", [{"body": payload, "headers": {"ce_id": event, "ce_partitionkey": key}}
                                                 for event, key, payload in messages])
                return
            except (pika.exceptions.AMQPError, OSError):
                time.sleep(0.2)

    def flush(self):
        pass

    def ids(self):
        return {properties.headers["ce_id"] for properties, _ in self.broker.stream("messages")}

    def acknowledged(self):
        return self.broker.count("messages")[0] == 0


class World(Stage):
    def __init__(self, directory, chosen):
        super().__init__(directory, chosen, SCHEMA)
        self.sent, self.handled, self.over, self.numbers = 0, 0, threading.Event(), collections.Counter()
        os.mkdir(f"{directory}/broker")
        self.source = (FromKafka if vars(chosen)["from"] == "kafka" else FromRabbitMQ)(f"{directory}/broker")
        self.broker = self.source.broker
        rate = 0.02 if chosen.unfenced or chosen.policy == "accept" else 0.001
        self.ways = [self.proxy(7001, postgres.ADDRESS, rate), self.proxy(7002, postgres.POOL, rate)]
        self.store = postgres.url("gateway", self.proxy(7003, postgres.ADDRESS, 0.0003, ""), store_timeout="2s")
        unfenced = ["unfenced"] * chosen.unfenced
        if chosen.policy == "accept":
            for number in range(CONSUMERS):
                self.part(f"consumer-{number}", python(f"{HERE}/campaign_accept.py", self.broker.servers, "messages",
                                                       postgres.url(port=self.ways[number % 2]), *unfenced))
            return
        handlers = [free_port() for _ in self.ways]
        for number, port in enumerate(handlers):
            self.part(f"handler-{number}", python(f"{HERE}/campaign_handler.py", port, postgres.url(port=self.ways[number]),
                                                  chosen.policy, *unfenced), lambda port=port: listens(port))
        for number in range(CONSUMERS):
            self.part(f"consumer-{number}", [
                ONCE, "consume", self.source.url, "--to", f"http://127.0.0.1:{handlers[number % 2]}/", "--store", self.store,
                "--recover", chosen.policy, "--lease", f"{LEASE_S}s", "--timeout", "3s", "--concurrency", CONCURRENCY,
                "--subscriber", "campaign", "--backoff", "50ms", "--backoff-max", "500ms", "--tries", 1000000, "--log", "warn"])

    def produce(self):
        """Messages with their numbers in order for each key, some of them once more at once or a little later."""
        choice, numbers, again = random.Random(self.chosen.seed), self.numbers, []
        while not self.over.is_set():
            if self.sent - self.handled > (200 if self.chosen.unfenced else AHEAD):
                time.sleep(0.05)
                continue
            messages = again
            again = []
            for _ in range(100):
                key = f"k{choice.randrange(HOT) if choice.random() < 0.2 else choice.randrange(KEYS)}"
                numbers[key] += 1
                message = (f"{key}-{numbers[key]}", key, numbered(numbers[key]))
                messages += [message] * choice.choice((1, 1, 1, 2))
                if choice.random() < 0.2:
                    again.append(message)
            self.source.send(messages)
            self.sent += 100
        self.source.flush()

    def count(self):
        """Effects; as before while the server is away."""
        try:
            with psycopg2.connect(postgres.url(), connect_timeout=3) as connection, connection.cursor() as cursor:
                cursor.execute("SET statement_timeout = '5s'; SELECT count(*) FROM effects")
                self.handled = cursor.fetchone()[0]
            connection.close()
        except psycopg2.Error:
            pass
        return self.handled

    def run(self, faults):
        producer = threading.Thread(target=self.produce)
        producer.start()
        try:
            faults.run(enough(self.chosen, self.count), not self.chosen.unfenced)
        finally:
            self.over.set()
        producer.join()
        last = [None, time.monotonic()]

        def done():
            """Everything is acknowledged. Patience is for standing still, not for a long backlog."""
            if self.count() != last[0]:
                last[:] = self.handled, time.monotonic()
            return self.handled >= self.sent and self.source.acknowledged() or time.monotonic() - last[1] > PATIENCE
        until(done, "everything is acknowledged", 1e6)

    def check(self, faults):
        rows, last = collections.Counter(), {}
        found = {"double": [], "lost": [], "out of order": [], "wrong": []}
        with psycopg2.connect(postgres.url()) as connection, connection.cursor("effects") as cursor:
            cursor.itersize = 20000
            cursor.execute("SELECT event, key, number FROM effects ORDER BY id")
            for event, key, number in cursor:
                rows[event] += 1
                if event != f"{key}-{number}":
                    found["wrong"].append(f"{event}: {key} {number}")
                if rows[event] > 1:
                    found["double"].append(event)
                    continue
                if number != last.get(key, 0) + 1:
                    found["out of order"].append(f"{key}: {number} after {last.get(key, 0)}")
                last[key] = number
        found["lost"] = [event for event in (f"{key}-{number}" for key, last in self.numbers.items()
                                             for number in range(1, last + 1)) if event not in rows]
        if found["lost"]:
            there = self.source.ids()
            found["lost"] = [f"{event}, which the broker {'has' if event in there else 'does not have'}" for event in found["lost"]]
            print("\n".join(faults.history))
        extra = 0
        if self.chosen.policy == "retry":  # a second effect for what was under way, or whose answer was lost
            extra = len(found["double"])
            if extra <= faults.total() * CONSUMERS * CONCURRENCY + self.sent // 100:
                found["double"] = []
        return len(rows), extra, found

    def close(self):
        super().close()
        if hasattr(self, "source"):
            self.source.broker.stop()


def conduct(world):
    chosen = world.chosen
    faults = world.faults(LEASE_S)
    faults.broker(world.broker)
    progress = Progress(lambda: f"{world.handled:,} of {world.sent:,} messages, {world.faced(faults)}")
    world.run(faults)
    progress.end()
    events, extra, found = world.check(faults)
    found["crashes"] = faults.crashes()
    told = f"{events:,} ids" + (f", {extra} handled again" if extra else "")
    return result(f"consume, {vars(chosen)['from']}, {chosen.policy}", told, world.faced(faults), found, chosen.unfenced)


def main():
    chosen = options(__doc__, 200000, **{"from": ("kafka", "rabbitmq")}, policy=("transactional", "retry", "accept"),
                     failover=FAILOVERS[:2])
    return perform("consume-campaign.", lambda directory: World(directory, chosen), conduct)


if __name__ == "__main__":
    sys.exit(main())
