"""Load on the bank: customers that transfer to each other and keep their keys until they know; some give up. The answers are
compared with the ledger in the end."""
import itertools
import random
import threading

from http_client import Later, insist

CUSTOMERS = [f"customer{number}" for number in range(6)]


class Load:
    def __init__(self, world, front, seed, threads=4, start="1000"):
        """`front` is a function: what to ask may be another process by now."""
        self.world, self.front = world, front
        self.random, self.lock = random.Random(seed), threading.Lock()
        self.numbers, self.ending = itertools.count(), threading.Event()
        self.told, self.bodies, self.asked = {}, {}, set()  # key: answer, key: request
        for name in CUSTOMERS:
            world.account(front().bank, name, start)
        self.threads = [Later(self.run) for _ in range(threads)]

    def choose(self):
        with self.lock:
            key = f"load-{next(self.numbers)}"
            source, target = self.random.sample(CUSTOMERS, 2)
            amount = f"{self.random.randrange(1, 30000) / 100:.2f}"
            body = {"from": source, "to": target, "amount": amount, "currency": "EUR", "reference": key}
            self.bodies[key] = body
            return key, body, 1 if self.random.random() < 0.1 else None

    def ask(self, key):
        body = self.bodies[key]
        return self.world.ask(self.front(), "POST", "/transfers", body["from"], body, key)

    def run(self):
        while not self.ending.is_set():
            key, _, tries = self.choose()
            answer = insist(lambda key=key: self.ask(key), tries)
            if answer is not None:
                self.told[key] = answer

    def end(self):
        self.ending.set()
        for thread in self.threads:
            thread.get()

    def check(self):
        """All answers are true, also when repeated: what was acknowledged is in the ledger once, what was refused is not,
        what was not answered is there at most once."""
        assert self.told, "nothing was done"
        for key, answer in self.told.items():
            assert answer.status in (201, 422), (key, answer)
            again = insist(lambda key=key: self.ask(key))
            assert again.essence() == answer.essence(), key
        rows = self.world.rows("SELECT idempotency_key, id::text FROM bank.transfers WHERE idempotency_key LIKE 'load-%%'")
        made = dict(rows)
        assert len(made) == len(rows), "a double"
        acknowledged = {key: answer.json["transaction_id"] for key, answer in self.told.items() if answer.status == 201}
        assert acknowledged.items() <= made.items(), "an acknowledged transfer is missing, or is another one"
        unheard = set(self.bodies) - set(self.told)
        assert set(made) - set(acknowledged) <= unheard, "a transfer that was refused"
        return len(acknowledged), len(self.told) - len(acknowledged), len(unheard)
