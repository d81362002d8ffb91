"""What campaigns share: options, parts that can be killed and stopped, faults from a seed, odd payloads, the result.

A campaign is a program that puts load on one door of once while its parts are killed and stopped at random, and then counts
effects where they are: in the table of the business, or at the sink. It is bounded by --seconds and --keys, whichever is reached
first; a run without time ends when it has its keys. --unfenced takes the fence away: then the checker must find violations, and the
campaign succeeds if it did.
"""
import argparse
import collections
import os
import random
import signal
import socket
import sys
import threading
import time

from brokers.process import Process
from processes import alive, descendants
from waiting import until

PATIENCE = float(os.environ.get("CAMPAIGN_PATIENCE", "180"))  # after the last fault; more than that has failed
ODD = (b"", b"plain", b"it's \"quoted\" and $1 %s", b"C:\\temp\\n \\x41 \\\\", b"nul \0 inside\0", b"\xff\xfe\x80 no UTF-8 \xc3",
       "dünn ☂ 𐍈".encode(), b"\r\n\t\x1b[0m\x7f", b'{"a": "\\u0000", "b": 1e400}')
LARGE = (bytes(range(256)) * 4096)[:980000]  # with what travels with it, it has room in the 1,000,000 bytes of a Kafka client
EVERY = 5000


def odd(number):
    """The payload of that number: odd ones in turn, some of 5,000 bytes, and a few of nearly a million."""
    return LARGE if number % EVERY == EVERY - 1 else LARGE[:5000] if number % 97 == 0 else ODD[number % len(ODD)]


def numbered(number):
    """A payload that tells its number."""
    return b"%d:" % number + odd(number)


def number_of(payload):
    """The number of a payload; -1 if it is not as it was made."""
    digits = payload.partition(b":")[0]
    return int(digits) if digits.isdigit() and payload == numbered(int(digits)) else -1


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def options(description, keys, **choices):
    """choices: further options, each a tuple whose first member is the default, or a number, or a text."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=0, help="how long faults last; without it, until --keys are reached")
    parser.add_argument("--keys", type=int, default=keys)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between two faults, in the middle")
    parser.add_argument("--unfenced", action="store_true", help="without the fence: violations must be found")
    for name, choice in choices.items():
        if isinstance(choice, tuple):
            parser.add_argument(f"--{name}", choices=choice, default=choice[0])
        else:
            parser.add_argument(f"--{name}", type=type(choice), default=choice)
    found = parser.parse_args()
    print(f"seed {found.seed}", flush=True)
    return found


class Part:
    """A program of the campaign: killed, stopped, started again. `ready()` tells when it serves. Only its first start is waited
    for: later, what it needs may be away."""

    def __init__(self, name, command, directory, ready=lambda: True, environment=None):
        self.name, self.command, self.directory, self.ready = name, [str(word) for word in command], directory, ready
        self.environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})}
        self.process, self.serves, self.crashes = None, False, []
        self.start()
        self.process.until(self.ready)
        self.serves = True

    def start(self):
        self.process, self.serves = Process(self.name, self.command, self.environment, self.directory), False

    def kill(self):
        """kill -9 of it and all that it started; then it starts again."""
        self.close()
        self.start()

    def stop(self):
        """It stands still; the function that is returned lets it go on."""
        process = self.process
        process.signal(signal.SIGSTOP)
        return lambda: process.signal(signal.SIGCONT)

    def check(self):
        """As a supervisor: what ended by itself starts again. It is a crash, unless it could not serve yet and said so."""
        if self.process.alive():
            self.serves = self.serves or self.ready()
            return self.serves
        code = self.process.child.returncode
        if self.serves or code < 0:
            self.crashes.append(f"{self.name} ended with {code}:\n{self.process.last_words()}")
        self.start()
        return False

    def close(self):
        pids = descendants(self.process.pid)
        self.process.kill()
        for pid in pids[1:]:  # they may hold a port
            until(lambda: not alive(pid), f"the end of process {pid}", PATIENCE)


class Faults:
    """Kills, stops and whatever else befalls the parts. Stops last longer than a lease, while other faults go on."""

    def __init__(self, chosen, stop_seconds):
        self.choice, self.stop_seconds, self.pause = random.Random(chosen.seed), stop_seconds, chosen.pause
        self.ways, self.counts, self.stopped, self.order, self.parts = {}, collections.Counter(), {}, [], []
        self.began, self.history = time.monotonic(), []

    def add(self, kind, name, strike, weight=1):
        """kind: kill, stop, ... what is counted. A stop returns what ends it."""
        self.ways[f"{kind} {name}"] = (kind, strike, weight)

    def part(self, part, weight=1):
        self.parts.append(part)
        self.add("kill", part.name, part.kill, weight)
        self.add("stop", part.name, part.stop, weight)

    def broker(self, broker):
        """Its start takes seconds: that is rare."""
        self.add("kill", "broker", lambda: (broker.kill(), broker.start()), 0.3)
        self.add("stop", "broker", lambda: broker.pause() or broker.go_on, 0.5)

    def total(self):
        return sum(self.counts.values())

    def strike(self):
        """Each way comes once before chance decides: no short run leaves one out."""
        if self.order is not None and not self.order:
            self.order = self.choice.sample(sorted(self.ways), len(self.ways)) if not self.counts else None
        name = self.order.pop() if self.order else self.choice.choices(list(self.ways), [way[2] for way in self.ways.values()])[0]
        kind, strike, _ = self.ways[name]
        target = name.split()[1]
        if target in self.stopped:  # what stands still is left alone
            if self.order is not None:
                self.order.insert(0, name)
            return
        begin = time.monotonic()
        go_on = strike()
        self.history.append(f"{begin - self.began:.1f} to {time.monotonic() - self.began:.1f} s: {name}")
        self.counts[kind] += 1
        if kind == "stop" and go_on:
            self.stopped[target] = (go_on, time.monotonic() + self.stop_seconds * self.choice.uniform(1.1, 2))

    def thaw(self, all_of_them=False):
        for name, (go_on, end) in list(self.stopped.items()):
            if all_of_them or time.monotonic() > end:
                go_on()
                del self.stopped[name]

    def run(self, enough, all_ways=True):
        """Until enough() holds, and every way has been taken."""
        while not enough() or all_ways and (self.order or not self.counts):
            self.strike()
            end = time.monotonic() + self.pause * self.choice.uniform(0.2, 1.8)  # the distance of faults: not a wait for an event
            while time.monotonic() < end:
                time.sleep(0.05)
                self.thaw()
            for part in self.parts:
                part.check()
        self.thaw(True)
        for part in self.parts:
            until(part.check, f"{part.name} serves again", PATIENCE)

    def crashes(self):
        return [text for part in self.parts for text in part.crashes]

    def text(self):
        return ", ".join(f"{count:,} {kind}{'s' * (count != 1)}" for kind, count in sorted(self.counts.items())) or "no fault"


class Progress:
    """A line every ten seconds, from a thread."""

    def __init__(self, line):
        self.line, self.over = line, threading.Event()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        started = time.monotonic()
        while not self.over.wait(10):
            print(f"{time.monotonic() - started:5.0f} s: {self.line()}", flush=True)

    def end(self):
        self.over.set()


def enough(options_, count):
    """Whether the run has lasted long enough: by time if there is one, and by keys."""
    end = time.monotonic() + options_.seconds if options_.seconds else None
    return lambda: count() >= options_.keys or end is not None and time.monotonic() >= end


def result(name, what, faults, found, unfenced=False, expected=("double",)):
    """One line. `found`: violations by name, as counts or lists of examples. The exit code; unfenced, 0 if all that is expected was
    found."""
    numbers = {kind: value if isinstance(value, int) else len(value) for kind, value in found.items()}
    for kind, value in found.items():
        for example in [] if isinstance(value, int) else list(value)[:5]:
            print(f"  {kind}: {example}", flush=True)
    print(f"{name}{' without its fence' if unfenced else ''}: {what}, {faults}: "
          + ", ".join(f"{number:,} {kind}" for kind, number in numbers.items()), flush=True)
    if not unfenced:
        if any(numbers.values()):
            print("VIOLATION", flush=True)  # scripts/test does not run the test again
        return int(any(numbers.values()))
    missed = [kind for kind in expected if not numbers[kind]]
    if missed:
        print(f"the checker found nothing {' and nothing '.join(missed)}, although the fence is missing")
    return int(bool(missed))


def size(path):
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0


def python(script, *arguments):
    return [sys.executable, os.path.abspath(script), *arguments]
