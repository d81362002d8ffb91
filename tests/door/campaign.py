#!/usr/bin/python3
"""The door under faults: a business that commits its effect and the record of it together, behind gates or by itself.

    tests/postgres/with-server --option max_connections=400 ONCE tests/door/campaign.py [--via gates|claims] [--keys N] ...

gates: clients, two gates, two backends, one of them behind PgBouncer, PostgreSQL. claims: applications that use once.claim
without a gate. Every one of these is killed and stopped; COMMITs lose their reply; the standby takes over. Checked in the table of
effects, which has no unique key: one row for each key that was answered, and every answer is the row's.
"""
import asyncio
import hashlib
import os
import random
import subprocess
import sys
import threading
import time

import psycopg2

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "gateway")]

import postgres  # noqa: E402
from brokers import free_port  # noqa: E402
from campaign import PATIENCE, Progress, enough, listens, odd, options, python, result, size  # noqa: E402
from harness import environment  # noqa: E402
from stage import FAILOVERS, Stage, perform  # noqa: E402
from waiting import until  # noqa: E402

LEASE_S = 1
CLIENTS = 32
WORKERS = 4
SCHEMA = """CREATE TABLE effects (id bigserial, key text NOT NULL, asked bytea, answer bytea);
            CREATE ROLE application LOGIN; GRANT once_application TO application;
            GRANT INSERT ON effects TO application; GRANT USAGE ON SEQUENCE effects_id_seq TO application"""


class World(Stage):
    """What both ways have in common: the table of effects, and what was answered."""

    def __init__(self, directory, chosen):
        super().__init__(directory, chosen, SCHEMA)
        self.answers, self.wrong, self.asked = {}, [], 0  # {key: (digest, moment)}
        rate = 0.2 if chosen.unfenced else 0.002
        self.ways = [self.proxy(7001, postgres.ADDRESS, rate), self.proxy(7002, postgres.POOL, rate)]

    def answered(self, key, digest, moment):
        before = self.answers.setdefault(key, (digest, moment))
        if before[0] != digest:
            earlier, later = sorted((before, (digest, moment)), key=lambda one: one[1])
            self.answers[key] = later
            if not self.may_be_lost(earlier[1]):
                self.wrong.append(f"{key}: two answers")

    def check(self):
        """Violations, counted in the table."""
        with psycopg2.connect(postgres.url()) as connection, connection.cursor("effects") as cursor:
            cursor.execute("SELECT key, md5(answer), md5(asked) FROM effects")
            rows = {}
            for key, digest, asked in cursor:
                rows.setdefault(key, []).append((digest, asked))
        double = [key for key, found in rows.items() if len(found) > 1]
        lost = [key for key, (_, moment) in self.answers.items() if key not in rows and not self.may_be_lost(moment)]
        wrong = self.wrong + [f"{key}: the answer is not what was committed" for key, (digest, moment) in self.answers.items()
                              if key in rows and digest not in {row[0] for row in rows[key]} and not self.may_be_lost(moment)]
        wrong += [f"{key}: another request was run" for key, found in rows.items()
                  if {row[1] for row in found} != {digest_of(asked_of(key))}]
        gone = sum(key not in rows for key in self.answers) - len(lost)
        return rows, {"double": double, "lost": lost, "wrong answers": wrong}, gone


def digest_of(data):
    return hashlib.md5(data).hexdigest()


def asked_of(key):
    return odd(int(key.rpartition("-")[2]) + 3)


# ---------------------------------------------------------------------------------------------------------------- gates

class Gates(World):
    """Clients that insist on an answer. Some keys are asked for by several of them at the same time."""

    def __init__(self, directory, chosen):
        super().__init__(directory, chosen)
        self.ports = [self.gate(number, self.backend(number)) for number in range(2)]
        self.over = threading.Event()
        self.choice = random.Random(chosen.seed)

    def backend(self, number):
        port = free_port()
        database = postgres.url("application", self.ways[number])
        self.part(f"backend-{number}", python(f"{HERE}/campaign_backend.py", port, database,
                                              *["unfenced"] * self.chosen.unfenced), lambda: listens(port))
        return port

    def gate(self, number, backend):
        port = free_port()
        store = postgres.url("gateway", self.proxy(7003 + number, postgres.ADDRESS, 0.0005, ""))
        self.part(f"gate-{number}", [environment.ONCE, "gate", "--nginx", environment.NGINX, "--module", environment.MODULE,
                                     "--upstream", f"http://127.0.0.1:{backend}", "--listen", f"127.0.0.1:{port}", "--store", store,
                                     "--scope", "none", "--route", f"POST /effects recover=transactional lease={LEASE_S}s wait=1s",
                                     "--set", "once_store_timeout 3s", "--set", "proxy_read_timeout 5s",
                                     "--set", "client_max_body_size 2m", "--set", "access_log off", "--workers", "2",
                                     *(["--user", "postgres"] if os.geteuid() == 0 else [])], lambda: listens(port))
        return port

    def next_key(self):
        if self.asked and self.choice.random() < 0.15:  # just asked for by another one, or by this one
            return f"key-{self.chosen.seed}-{max(1, self.asked - self.choice.randrange(CLIENTS))}"
        self.asked += 1
        return f"key-{self.chosen.seed}-{self.asked}"

    async def client(self):
        connections = {}
        while not self.over.is_set():
            key = self.next_key()
            body, end = asked_of(key), None
            while True:
                port = self.choice.choice(self.ports)
                try:
                    status, answer = await asyncio.wait_for(ask(connections, port, key, body), 20)
                except (OSError, EOFError, asyncio.TimeoutError):
                    drop(connections, port)
                    status = 0
                if status == 201:
                    self.answered(key, digest_of(answer), time.time())
                    break
                if status not in (0, 409, 429, 502, 503, 504):
                    self.wrong.append(f"{key}: {status}")
                    break
                if self.over.is_set():
                    end = end or time.monotonic() + PATIENCE
                    if time.monotonic() > end:
                        self.wrong.append(f"{key}: no answer but {status}")
                        break
                await asyncio.sleep(0.05)

    async def load(self, faults, bound):
        clients = [asyncio.create_task(self.client()) for _ in range(CLIENTS)]
        try:
            await asyncio.to_thread(faults.run, bound, not self.chosen.unfenced)
        finally:
            self.over.set()
        await asyncio.gather(*clients)

    def run(self, faults):
        asyncio.run(self.load(faults, enough(self.chosen, lambda: len(self.answers))))

    def count(self):
        return len(self.answers)


def drop(connections, port):
    if port in connections:
        connections.pop(port)[1].close()


async def ask(connections, port, key, body):
    if port not in connections:
        connections[port] = await asyncio.open_connection("127.0.0.1", port, limit=1 << 21)
    reader, writer = connections[port]
    writer.write(b"POST /effects HTTP/1.1\r\nHost: campaign\r\nIdempotency-Key: %s\r\nContent-Length: %d\r\n\r\n"
                 % (key.encode(), len(body)) + body)
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
    answer = await reader.readexactly(length)
    if b"connection: close" in lines:
        drop(connections, port)
    return int(lines[0].split()[1]), answer


# --------------------------------------------------------------------------------------------------------------- claims

class Claims(World):
    """Applications without a gate; what they were told is in files."""

    def __init__(self, directory, chosen):
        super().__init__(directory, chosen)
        self.read = dict.fromkeys((f"{directory}/acks-{number}" for number in range(WORKERS)), 0)
        for number, path in enumerate(self.read):
            self.part(f"worker-{number}", python(f"{HERE}/campaign_worker.py", postgres.url("application", self.ways[number % 2]),
                                                 f"{number}", path, f"{chosen.seed}", *["unfenced"] * chosen.unfenced))

    def count(self):
        """Reads on where it stopped."""
        for path, before in self.read.items():
            if size(path) > before:
                with open(path, "rb") as file:
                    file.seek(before)
                    text = file.read()
                whole = text[:text.rfind(b"\n") + 1]
                self.read[path] += len(whole)
                for line in whole.decode().splitlines():
                    key, digest, moment = line.split()
                    self.answered(key, digest, float(moment))
        return len(self.answers)

    def run(self, faults):
        faults.run(enough(self.chosen, self.count), not self.chosen.unfenced)
        for part in self.parts:
            if part.name.startswith("worker"):
                part.close()
        self.count()


def conduct(world):
    chosen = world.chosen
    faults = world.faults(LEASE_S)
    progress = Progress(lambda: f"{len(world.answers):,} keys, {world.faced(faults)}")
    world.run(faults)
    progress.end()
    until(world.servers.works, "PostgreSQL works", PATIENCE)
    rows, found, gone = world.check()
    found["crashes"] = faults.crashes()
    told = f"{len(rows):,} keys, {len(world.answers):,} answered" + (f", {gone} lost with the standby" if gone else "")
    return result(f"door, {chosen.via}", told, world.faced(faults), found, chosen.unfenced)


def main():
    chosen = options(__doc__, 100000, via=("gates", "claims"), failover=FAILOVERS)
    subprocess.run([environment.ONCE, "stats", os.environ["ONCE_PG_GATEWAY_URL"]], check=True, stdout=subprocess.DEVNULL)
    return perform("door-campaign.", lambda directory: (Gates if chosen.via == "gates" else Claims)(directory, chosen), conduct)


if __name__ == "__main__":
    sys.exit(main())
