"""Random transfers at once, keys that are reused, retries with changed payloads, clients that give up, and crashes and freezes of
everything. Whatever happens: money is conserved, every key has one effect, no balance is below zero, and answers to a key agree.

    PROPERTY_SECONDS   how long (6)
    PROPERTY_SEED      of all choices
"""
import os
import random
import threading
import time

import pytest

import world as places
from http_client import Later, insist

SECONDS = float(os.environ.get("PROPERTY_SECONDS", "6"))
SEED = int(os.environ.get("PROPERTY_SEED", random.randrange(1 << 30)))
CUSTOMERS = [f"customer{number}" for number in range(5)]
START = 200
LEASE_S = 1


class Machine:
    """A bank behind a gate: what dies or freezes together."""

    def __init__(self, world):
        self.world = world
        self.bank = world.bank()
        self.gate = world.gate(self.bank)

    def kill_bank(self):
        self.bank.kill()
        self.bank = self.world.again(self.bank)
        self.gate.bank = self.bank

    def kill_gate(self):
        self.gate.kill()
        self.gate = self.world.again(self.gate)

    def freeze(self, seconds):
        """As a machine that swaps: then it goes on as if nothing had happened."""
        for program in (self.bank, self.gate):
            program.freeze()
        time.sleep(seconds)
        for program in (self.bank, self.gate):
            program.thaw()


class Trial:
    def __init__(self, world, seed):
        self.world, self.random, self.lock = world, random.Random(seed), threading.Lock()
        self.machines = [Machine(world), Machine(world)]
        for name in CUSTOMERS:
            world.account(self.machines[0].bank, name, str(START))
        self.ending = threading.Event()
        self.keys, self.told = {}, []  # key: its payloads; (key, payload, answer)

    def choose(self):
        """A key, new or used before, one of two payloads that it is used with, and whether the client gives up."""
        with self.lock:
            if not self.keys or self.random.random() < 0.5:
                customer, other = self.random.sample(CUSTOMERS, 2)
                payloads = [{"from": customer, "to": other, "amount": str(self.random.randrange(1, 120)), "currency": "EUR"}
                            for _ in range(2)]
                key = f"key-{len(self.keys)}"
                self.keys[key] = payloads
            else:
                key = f"key-{max(0, len(self.keys) - 1 - int(self.random.expovariate(0.2)))}"
            return key, self.random.choice(self.keys[key] + self.keys[key][:1]), self.random.choice([None, None, 1, 2])

    def ask(self, key, payload):
        with self.lock:
            machine, patience = self.random.choice(self.machines), self.random.choice([0.3, 1, 5])
        return self.world.ask(machine.gate, "POST", "/transfers", payload["from"], payload, key, timeout=patience)

    def client(self):
        while not self.ending.is_set():
            key, payload, tries = self.choose()
            answer = insist(lambda key=key, payload=payload: self.ask(key, payload), tries)
            if answer is not None:
                self.told.append((key, payload, answer))

    def trouble(self):
        with self.lock:
            machine = self.random.choice(self.machines)
            what = self.random.choice(["bank", "gate", "freeze", "freeze", "server", "backend"])
        if what == "bank":
            machine.kill_bank()
        elif what == "gate":
            machine.kill_gate()
        elif what == "freeze":
            machine.freeze(LEASE_S * 1.5)
        elif what == "server":
            places.kill_server()
        else:
            pids = self.world.rows("SELECT pid FROM pg_stat_activity WHERE application_name = 'bank' "
                                   "AND datname = current_database()")
            if pids:
                places.kill_backend(self.random.choice(pids)[0])

    def run(self, enough):
        """Clients and trouble until `enough` says so."""
        clients = [Later(self.client) for _ in range(6)]
        while not enough():
            self.trouble()
            time.sleep(self.random.random() / 2)
        self.ending.set()
        for client in clients:
            client.get()

    def effects(self):
        rows = self.world.rows("SELECT idempotency_key, id::text, from_account, to_account, amount::integer FROM bank.transfers "
                               "WHERE idempotency_key LIKE 'key-%%'")
        assert len({row[0] for row in rows}) == len(rows), "a double"
        return {row[0]: row[1:] for row in rows}

    def check(self):
        """Every key: one effect at most, which is one of its payloads; and every answer tells that."""
        effects = self.effects()
        finals = {}
        for key, payload, answer in self.told:
            mine = (payload["from"], payload["to"], int(payload["amount"]))
            if answer.status == 201:
                assert key in effects and effects[key] == (answer.json["transaction_id"], *mine), key
            else:
                assert answer.status == 422 and answer.problem in ("key-reused", "insufficient-funds"), (key, answer)
            if answer.problem_or_none() == "key-reused":
                continue
            assert finals.setdefault(key, (payload, answer.essence())) == (payload, answer.essence()), f"{key}: two answers"
            assert (answer.status == 201) == (key in effects), key
        for key, (payload, essence) in finals.items():  # and it is answered again
            again = insist(lambda key=key, payload=payload: self.ask(key, payload))
            assert again.essence() == essence and again.replayed, key
        for key, payload, answer in self.told:
            if answer.problem_or_none() == "key-reused" and key in finals:
                assert payload != finals[key][0], f"{key}: its own payload was called another one"
        return len(effects), len(finals), len(self.told)


def test_every_key_has_one_effect(worlds):
    print(f"seed {SEED}")
    world = worlds(lease=f"{LEASE_S}s", idle_ms=500)
    trial = Trial(world, SEED)
    end = time.monotonic() + SECONDS
    trial.run(lambda: time.monotonic() > end)
    print("effects, keys with an answer, answers:", trial.check())
    world.audit()
    total = world.one("SELECT sum(amount) FROM bank.ledger WHERE account LIKE 'customer%%'")
    assert total == START * len(CUSTOMERS)


def test_without_the_fence_chance_finds_a_double(worlds):
    """The same trial on a bank whose fence is gone: it must fail, and soon."""
    world = worlds(lease=f"{LEASE_S}s", idle_ms=500, fenced=False)
    trial = Trial(world, SEED + 1)
    end = time.monotonic() + 60

    def enough():
        return time.monotonic() > end or world.rows("SELECT FROM bank.transfers GROUP BY customer, idempotency_key "
                                                    "HAVING count(*) > 1 LIMIT 1")
    trial.trouble = lambda: trial.machines[0].freeze(LEASE_S * 1.5)
    trial.run(enough)
    with pytest.raises(AssertionError, match="a double"):
        trial.check()
