#!/usr/bin/python3
"""The relay under faults: applications that count and emit, relays, a broker or an endpoint; everything is killed and stopped.

    tests/postgres/with-server --option max_connections=400 ONCE tests/relay/campaign.py [--to kafka|rabbitmq|http] [--keys N] ...

Checked at the sink, against the table that was written in the transactions that emitted (--keys: that many events): nothing is
lost, nothing is published that was not committed, every key's events come in the order of their numbers, byte for byte. What comes
again has the id that it had. The topic `sick` of the endpoint fails in all ways for a part of the time.
"""
import os
import sys
import time

import psycopg2

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

import postgres  # noqa: E402
from brokers import Kafka, RabbitMQ, free_port  # noqa: E402
from campaign import EVERY, LARGE, ODD, PATIENCE, Part, Progress, enough, number_of, options, python, result  # noqa: E402
from stage import FAILOVERS, Stage, perform  # noqa: E402
from waiting import until  # noqa: E402

LEASE_S = 2
RELAYS, EMITTERS = 3, 3
ONCE = os.path.join(os.environ["ONCE_BUILD"], "once")
SCHEMA = f"""
    CREATE TABLE truth (id uuid, key text, number integer);
    CREATE TABLE counters (key text PRIMARY KEY, number integer NOT NULL);
    INSERT INTO counters SELECT 'k' || i, 0 FROM generate_series(0, 199) AS i;
    CREATE TABLE odd (i integer PRIMARY KEY, bytes bytea);
    CREATE FUNCTION payload(n integer) RETURNS bytea LANGUAGE sql STABLE AS $$
        SELECT convert_to(n || ':', 'UTF8') || bytes FROM odd
        WHERE i = CASE WHEN n % {EVERY} = {EVERY - 1} THEN -1 WHEN n % 97 = 0 THEN -2 ELSE n % {len(ODD)} END $$;"""


# ---------------------------------------------------------------------------------------------------------- destinations

class ToKafka:
    def __init__(self, stage):
        self.broker = Kafka(directory_of(stage, "kafka")).start()
        for topic in ("well", "sick"):
            self.broker.create(topic, 4)
        self.url = self.broker.url("{topic}")

    def faults(self, faults):
        faults.broker(self.broker)

    def read(self):
        """(id, key, number) of all messages, in their order for each key."""
        for topic in ("well", "sick"):
            for message in self.broker.stream(topic):
                yield dict(message.headers())["ce_id"].decode(), message.key().decode(), number_of(message.value())

    def close(self):
        self.broker.stop()


class ToRabbitMQ:
    def __init__(self, stage):
        self.broker = RabbitMQ(directory_of(stage, "rabbitmq")).start()
        self.broker.create("all", exchange="all")
        self.url = self.broker.url("all")

    faults = ToKafka.faults
    close = ToKafka.close

    def read(self):
        for properties, body in self.broker.stream("all"):
            yield properties.message_id, properties.headers["ce_partitionkey"], number_of(body)


class ToHTTP:
    """An endpoint whose topic `sick` has moods: well, 503, hanging, cut."""

    def __init__(self, stage):
        self.file, self.mood = f"{stage.directory}/received", f"{stage.directory}/mood"
        self.be(b"w")
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/{{topic}}/{{key}}"
        self.sink = Part("sink", python(f"{HERE}/campaign_sink.py", port, self.file, self.mood, stage.chosen.seed),
                         stage.directory, lambda: os.path.exists(self.file))

    def be(self, mood):
        file = os.open(self.mood, os.O_WRONLY | os.O_CREAT, 0o600)  # never truncated: the sink has it mapped
        os.pwrite(file, mood, 0)
        os.close(file)

    def faults(self, faults):
        faults.part(self.sink)
        for mood in (b"5", b"h", b"c"):
            faults.add("mood", mood.decode(), lambda mood=mood: self.be(mood), 0.5)
        faults.add("mood", "w", lambda: self.be(b"w"), 3)

    def read(self):
        self.sink.close()
        with open(self.file, encoding="ascii") as lines:
            for line in lines:
                event, key, number = line.split()
                yield event, key, int(number)

    def close(self):
        self.sink.close()


def directory_of(stage, name):
    path = os.path.join(stage.directory, name)
    os.mkdir(path)
    return path


# ----------------------------------------------------------------------------------------------------------------- run

class World(Stage):
    def __init__(self, directory, chosen):
        super().__init__(directory, chosen, SCHEMA)
        with psycopg2.connect(postgres.url()) as connection, connection.cursor() as cursor:
            cursor.executemany("INSERT INTO odd VALUES (%s, %s)", [(-1, LARGE), (-2, LARGE[:5000]), *enumerate(ODD)])
        self.seen, self.stop = (0, 0), f"{directory}/stop"
        self.target = {"kafka": ToKafka, "rabbitmq": ToRabbitMQ, "http": ToHTTP}[chosen.to](self)
        ways = [self.proxy(7001, postgres.ADDRESS, 0.002), self.proxy(7002, postgres.POOL, 0.0003, ""),
                self.proxy(7003, postgres.ADDRESS, 0.0003, "")]
        for number in range(EMITTERS):
            self.part(f"emitter-{number}", python(f"{HERE}/campaign_emitter.py", postgres.url(port=ways[0]), number, chosen.seed,
                                                  self.stop, *["unfenced"] * chosen.unfenced))
        more = ["--unsigned", "--timeout", "2s"] if chosen.to == "http" else []
        for number in range(RELAYS):  # one of them behind the pool
            self.part(f"relay-{number}", [ONCE, "relay", "--lease", f"{LEASE_S}s", "--poll", "200ms", "--tries", "1000000",
                                          "--log", "warn", *more],
                      environment={"ONCE_STORE": postgres.url(port=ways[1 + (number != 1)]), "ONCE_TO": self.target.url})

    def look(self):
        """Events that were emitted, and those that wait; as before while the server is away."""
        try:
            with psycopg2.connect(postgres.url(), connect_timeout=3) as connection, connection.cursor() as cursor:
                cursor.execute("SET statement_timeout = '5s';"
                               "SELECT (SELECT sum(number) FROM counters), (SELECT count(*) FROM once.outbox)")
                self.seen = cursor.fetchone()
            connection.close()
        except psycopg2.Error:
            pass
        return self.seen

    def count(self):
        """Events that are through."""
        emitted, waiting = self.look()
        return emitted - waiting

    def run(self, faults):
        faults.run(enough(self.chosen, self.count), not self.chosen.unfenced)
        if self.chosen.to == "http":
            self.target.be(b"w")
        with open(self.stop, "w", encoding="ascii"):
            pass
        for part in self.parts:
            if part.name.startswith("emitter"):
                until(lambda part=part: not part.process.alive(), f"the end of {part.name}", PATIENCE)
        waiting = [None, time.monotonic()]

        def drained():
            """Patience is for standing still, not for a long backlog."""
            left = self.look()[1]
            if left != waiting[0]:
                waiting[:] = left, time.monotonic()
            return left == 0 or time.monotonic() - waiting[1] > PATIENCE
        until(drained, "the outbox is empty", 1e6)

    def truth(self):
        """{id: (key, number)} of what was committed."""
        with psycopg2.connect(postgres.url()) as connection, connection.cursor("truth") as cursor:
            cursor.itersize = 20000
            cursor.execute("SELECT id::text, key, number FROM truth")
            return {event: (key, number) for event, key, number in cursor}

    def dead(self):
        with psycopg2.connect(postgres.url()) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT concat_ws(' ', id, key, tries, reason) FROM once.outbox_dead")
            return [text for text, in cursor]

    def check(self):
        truth, seen, last, again = self.truth(), set(), {}, 0
        found = {"double": [], "lost": [], "out of order": [], "never committed": [], "wrong": []}
        if len(set(truth.values())) != len(truth):
            found["double"].append("a number was counted twice")
        for event, key, number in self.target.read():
            if event in seen:
                again += 1
                continue
            seen.add(event)
            if event not in truth:
                found["never committed"].append(f"{event} {key} {number}")
                continue
            if truth[event] != (key, number):
                found["wrong"].append(f"{event} is {key} {number}, was {truth[event]}")
            key, number = truth[event]
            if number != last.get(key, 0) + 1:
                found["out of order"].append(f"{key}: {number} after {last.get(key, 0)}")
            last[key] = number
        found["lost"] = [f"{event} {truth[event]}" for event in truth.keys() - seen]
        found["dead"] = self.dead()
        if found["lost"]:  # gaps are losses, not disorder
            found["out of order"] = [text for text in found["out of order"] if int(text.split()[1]) < int(text.split()[3])]
        lost_with_standby = 0
        if self.chosen.failover == "asynchronous":  # published, and then its commit was lost: docs/relay.md
            lost_with_standby = len(found.pop("never committed"))
        return len(seen), again, lost_with_standby, found

    def close(self):
        super().close()
        if hasattr(self, "target"):
            self.target.close()


def conduct(world):
    chosen = world.chosen
    faults = world.faults(LEASE_S)
    world.target.faults(faults)
    progress = Progress(lambda: f"{world.seen[0]:,} events, {world.seen[1]:,} of them wait, {world.faced(faults)}")
    world.run(faults)
    progress.end()
    events, again, gone, found = world.check()
    found["crashes"] = faults.crashes()
    told = f"{events:,} events, {again:,} of them more than once" + (f", {gone} lost with the standby" if gone else "")
    return result(f"relay, {chosen.to}", told, world.faced(faults), found, chosen.unfenced,
                  ("double", "lost", "out of order", "never committed"))


def main():
    chosen = options(__doc__, 1000000, to=("http", "kafka", "rabbitmq"), failover=FAILOVERS)
    return perform("relay-campaign.", lambda directory: World(directory, chosen), conduct)


if __name__ == "__main__":
    sys.exit(main())
