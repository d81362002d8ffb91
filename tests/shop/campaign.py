#!/usr/bin/python3
"""A shop under load while its parts are killed, and what must be true of it at the end.

    tests/postgres/with-server ONCE tests/shop/campaign.py [--broker rabbitmq|kafka] [--seconds N] [--seed N]

Two notifiers get every event: one sends mail under retry, the other under hold. Killed with -9 at random: bank, relay, each
consumer, each notify, the books, the broker, PostgreSQL.
"""
import argparse
import collections
import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "examples", "shop")]

from parts import until  # noqa: E402
from shop import Shop  # noqa: E402
from brokers import Missing  # noqa: E402
import truth  # noqa: E402

PAYERS = 4
SETTLE = 240  # seconds after the last kill: leases and sessions end, backlogs drain

TEMPLATES = {
    "users": "/from",
    "mail": "{{/transaction_id}}\n\n{{/from}} paid",
    "sms": "{{/transaction_id}}",
    "push": "{{/transaction_id}}",
}


def write_templates(directory):
    folder = os.path.join(directory, "templates", "transfer.completed")
    os.makedirs(folder)
    for name, text in TEMPLATES.items():
        with open(os.path.join(folder, name), "w", encoding="ascii") as file:
            file.write(text)
    users = {f"p{n}": {"mail": f"p{n}@example.com", "sms": f"+4900{n}", "push": f"device-{n}"} for n in range(PAYERS)}
    users["@cash-EUR"] = {}
    path = os.path.join(directory, "users.json")
    with open(path, "w", encoding="ascii") as file:
        json.dump(users, file)
    return os.path.dirname(folder), path


class Load:
    """Payers that pay one after the other, repeat themselves, and keep a key until there is an answer."""

    def __init__(self, shop, seed):
        self.shop, self.stopping = shop, threading.Event()
        self.answers, self.errors = {}, []
        self.threads = [threading.Thread(target=self.run, args=(n, random.Random(f"{seed}-{n}"))) for n in range(PAYERS)]
        for thread in self.threads:
            thread.start()

    def run(self, number, choice):
        try:
            payer, turn = f"p{number}", 0
            while not self.stopping.is_set():
                turn += 1
                self.pay(payer, f"{payer}-{turn}", turn)
                if choice.random() < 0.3:  # a double click, or an answer that got lost
                    self.pay(payer, f"{payer}-{turn}", turn)
                self.stopping.wait(choice.random() * 0.3)
        except BaseException as error:  # pylint: disable=broad-except
            self.errors.append(error)

    def pay(self, payer, key, turn):
        answer = self.shop.transfer(payer, f"p{(int(payer[1:]) + 1) % PAYERS}", f"{turn % 7 + 1}.00", key)
        assert answer.status == 201, f"{key}: {answer.status} {answer.text}"
        identity = json.loads(answer.text)["transaction_id"]
        assert self.answers.setdefault(key, identity) == identity, f"{key} is two transfers"

    def end(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join()
        if self.errors:
            raise self.errors[0]


def killers(shop):
    """What is killed, and how. Servers are started again here; the supervisor does it for the others."""
    def broker():
        shop.broker.broker.kill()
        shop.broker.broker.start()

    def postgres():
        shop.postgres.kill()
        shop.postgres.start()

    return {**{part.name: part.kill for part in shop.parts}, "broker": broker, "postgres": postgres}


class Sniper:
    """A mail server that takes a while to say that it has the mail, which is the moment in which a crash leaves a doubt; and now
    and then, for certain from the tenth mail on until it has happened once, notify is killed just then."""

    def __init__(self, notifier, choice, counts):
        self.notifier, self.choice, self.counts = notifier, choice, counts
        self.lock = threading.Lock()
        self.seen = self.shots = 0
        self.on = True
        notifier.mail.after = self.after

    def after(self, _):
        with self.lock:  # mails come side by side
            self.seen += 1
            aim = self.on and (self.choice.random() < 0.004 or self.shots == 0 and self.seen >= 10)
            if aim and self.notifier.service.kill():
                self.shots += 1
                self.counts[self.notifier.name + " with a mail under way"] += 1
                return
            pause = self.choice.random() * 0.05
        time.sleep(pause)


def kill_at_random(shop, seconds, choice, counts):
    """Each kind comes once before any comes again: no short run leaves one out by chance."""
    ways, order = killers(shop), []
    end = time.monotonic() + seconds
    while time.monotonic() < end or not set(ways) <= set(counts):
        order = order or choice.sample(sorted(ways), len(ways))
        name = order.pop()
        ways[name]()
        counts[name] += 1
        time.sleep(choice.random() * 0.5)


def run(directory, broker, seconds, seed):
    templates, users = write_templates(directory)
    shop = Shop(directory, broker, {"notify": "retry", "notify-hold": "hold"}, templates=templates, users=users)
    counts, clock = collections.Counter(), [time.monotonic()]
    try:
        shop.start()
        clock.append(time.monotonic())
        for number in range(PAYERS):
            shop.open_account(f"p{number}", "100000.00")
        snipers = [Sniper(notifier, random.Random(f"{seed}-{notifier.name}"), counts) for notifier in shop.notifiers]
        load = Load(shop, seed)
        try:
            kill_at_random(shop, seconds, random.Random(seed), counts)
        finally:
            load.end()
        clock.append(time.monotonic())
        transfers = shop.transfers()
        assert {transfer for transfer, _ in transfers} == set(load.answers.values()), \
            "committed transfers are not those that were acknowledged"
        until(lambda: all(sniper.shots for sniper in snipers), "notify being killed with a mail under way", SETTLE)
        for sniper in snipers:
            sniper.on = False
        until(lambda: truth.arrived(shop, transfers), lambda: truth.progress(shop, transfers), SETTLE)
        until(lambda: truth.held(shop, transfers), lambda: truth.progress(shop, transfers), SETTLE)
        clock.append(time.monotonic())
        found = truth.examine(shop, transfers)
        assert found.extra > 0 and found.doubtful > 0, f"the moment that matters was not met: {found}"
    except BaseException:
        for part in shop.parts:
            print(f"--- {part.name}\n{part.last_words()}", file=sys.stderr)
        raise
    finally:
        wrong = shop.close()
    assert not wrong, f"did not end well: {wrong}"
    starting, killing, settling = (after - before for before, after in zip(clock, clock[1:]))
    kills = ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
    print(f"started in {starting:.0f} s, killed for {killing:.0f} s, settled in {settling:.0f} s; {len(transfers)} transfers, "
          f"{sum(counts.values())} kills ({kills}); under retry {found.extra} extra mails; under hold {found.missing} mails "
          f"missing, {found.doubtful} records in doubt")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--broker", default="rabbitmq", choices=["rabbitmq", "kafka"])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    print(f"{options.broker}, seed {options.seed}", flush=True)
    directory = tempfile.mkdtemp(prefix="shop.", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    try:
        run(directory, options.broker, options.seconds, options.seed)
    except Missing as missing:
        print(missing)
        return 1 if os.environ.get("CI") == "true" else 77
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
