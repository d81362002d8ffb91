"""Stripe's official SDK, with retries of its own, against backends and networks that fail: exactly one execution each."""
import json
import os
import random
import shutil
import subprocess
import threading

import pytest

from harness import environment
from harness.chaos import FAULTS, Chaos

HERE = os.path.dirname(os.path.abspath(__file__))
PLACE = os.path.join(environment.BUILD, "stripe")
COUNT = 12 if environment.slow() else 25
BY_TYPE = os.environ.get("STRIPE_SDK") != "python"  # that one goes by Stripe's statuses, too: for 422 it has no class


def node():
    """The SDK for Node in the pinned version, in the build directory: the command that runs its client."""
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("node and npm are not there: Stripe's SDK cannot be tried")
    command = ["node", "client.mjs"]
    os.makedirs(PLACE, exist_ok=True)
    for name in ("package.json", "package-lock.json", "client.mjs"):
        shutil.copy(os.path.join(HERE, "stripe", name), PLACE)
    with open(os.path.join(HERE, "stripe", "package.json"), encoding="utf-8") as file:
        wanted = json.load(file)["dependencies"]["stripe"]
    try:
        with open(os.path.join(PLACE, "node_modules", "stripe", "package.json"), encoding="utf-8") as file:
            if json.load(file)["version"] == wanted:
                return command
    except FileNotFoundError:
        pass
    done = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=PLACE, capture_output=True, text=True,
                          check=False, timeout=100)
    if done.returncode:
        pytest.skip(f"the SDK cannot be fetched: {done.stderr[-500:]}")
    return command


def python():
    """The same for Python, as sdk/prepare has it."""
    return [os.path.join(environment.BUILD, "sdk", "venv", "bin", "python"), os.path.join(HERE, "stripe", "client.py")]


@pytest.fixture(scope="module")
def sdk():
    """The command that runs a client: of Node, or of Python for `ctest -C soak`."""
    return python() if os.environ.get("STRIPE_SDK") == "python" else node()


class Payments:
    """A backend that makes payments and knows what it did: it can be asked. Fails on purpose, before and after the effect."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lock = threading.Lock()
        self.made = {}          # key -> bodies of the payments made: one each, or the test has failed
        self.faults = {}

    @staticmethod
    def echo(exchange):
        """As Stripe does; the SDK tells it to its user."""
        return ("Idempotency-Key", exchange.request.key)

    def choose(self):
        with self.lock:
            name = self.random.choice(["none", "none", "refuse", "reset after", "truncate after", "slow"])
            self.faults[name] = self.faults.get(name, 0) + 1
            return name

    def make(self, exchange):
        with self.lock:
            payments = self.made.setdefault(exchange.request.key, [])
            number = sum(len(made) for made in self.made.values()) + 1
            fields = dict(pair.split("=") for pair in exchange.request.body.decode().split("&"))
            body = json.dumps({"id": f"pi_{number}", "object": "payment_intent", "amount": int(fields["amount"])}).encode()
            payments.append(body)
        return body

    def pay(self, exchange):
        fault = self.choose()
        if fault == "refuse":  # overloaded, before any effect, and it says so
            exchange.respond(503, [("Once-Outcome", "retry")], b'{"error":{"type":"api_error","message":"overloaded"}}')
            return
        body = self.make(exchange)
        if fault == "reset after":
            exchange.reset()
        elif fault == "truncate after":
            exchange.begin(200, [("Content-Type", "application/json"), ("Content-Length", len(body))])
            exchange.send(body[:10])
            exchange.close()
        else:
            if fault == "slow":
                threading.Event().wait(1.5)  # longer than the SDK's patience
            exchange.respond(200, [self.echo(exchange)], body)

    def tell(self, exchange):
        """What became of a key: done, or not done and (since no request is in flight meanwhile) never will be."""
        with self.lock:
            payments = list(self.made.get(exchange.request.key, []))
        if payments:
            exchange.respond(200, [("Once-Outcome", "final"), ("Once-Status", "200"), self.echo(exchange)], payments[0])
        else:
            exchange.respond(404, [("Once-Outcome", "retry")], b"")


def run(sdk, host, port, timeout=1000):
    command = [*sdk, host, str(port), str(COUNT), str(timeout)]
    done = subprocess.run(command, cwd=PLACE, capture_output=True, text=True, check=False, timeout=150)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(results, payments):
    """Every payment succeeded, and was made once: the one that the SDK received."""
    failed = [result for result in results if "error" in result]
    assert not failed, failed
    assert len(results) == COUNT
    for result in results:
        made = [json.loads(body) for body in payments.made[result["key"]]]
        assert len(made) == 1, f"made {len(made)} times: {result}"
        assert made[0]["id"] == result["id"] and made[0]["amount"] == result["amount"] == 1000 + result["number"]
    assert len({result["id"] for result in results}) == COUNT
    assert sum(len(made) for made in payments.made.values()) == COUNT


@pytest.mark.parametrize("seed", [1, 2])
def test_backend_that_fails(sdk, gateway, backend, seed):
    """Refuses before the effect, breaks off after it, is slow: the gateway holds, probes and replays; the SDK retries."""
    payments, prober = Payments(seed), backend()
    prober.default = payments.tell
    gw = gateway(f"once_recover hold; once_lease 1s; once_wait 500ms; once_probe http://{prober.name}/outcome;")
    gw.upstream.default = payments.pay
    check(run(sdk, gw.host, gw.port), payments)
    assert len(payments.faults) >= 4, payments.faults


@pytest.mark.parametrize("rules, reused", [("", (422, "key-reused")), ("once_profile stripe;", (400, "idempotency_key_reused"))])
def test_problems_are_errors(sdk, gateway, rules, reused):
    """The SDK looks at no status, only for a member "error": without it, 422 and 409 were payments without an id."""
    payments = Payments(1)
    payments.choose = lambda: "none"
    gw = gateway("once_recover hold;" + rules)
    gw.upstream.default = payments.pay

    def pay(key, *amounts):
        done = subprocess.run([*sdk, gw.host, str(gw.port), "once", key, *map(str, amounts)], cwd=PLACE,
                              capture_output=True, text=True, check=True, timeout=100)
        return [json.loads(line) for line in done.stdout.splitlines()]

    first, again, other = pay("a", 1, 1, 2)
    assert first["id"] == again["id"] == "pi_1"
    assert (other["status"], other["code"]) == reused, other
    if BY_TYPE or rules:
        assert other["error"].startswith("StripeIdempotencyError"), other
    gw.upstream.then(lambda exchange: exchange.reset())
    lost, unknown = pay("b", 1, 1)
    assert (lost["status"], lost["code"]) == (502, "response-lost") and lost["error"].startswith("StripeAPIError"), lost
    assert (unknown["status"], unknown["code"].replace("_", "-")) == (409, "outcome-unknown"), unknown
    assert unknown["error"].startswith("StripeIdempotencyError" if BY_TYPE else "StripeAPIError"), unknown


@pytest.mark.parametrize("seed", [1, 2])
def test_network_that_fails(sdk, gateway, seed):
    """Requests and responses that are lost between the client and the gateway; the backend works."""
    payments = Payments(seed)
    payments.choose = lambda: "none"
    gw = gateway("once_recover hold; once_wait 5s;" + ("once_profile stripe;" if seed == 2 else ""), workers=2)
    gw.upstream.default = payments.pay
    faults = [name for name in FAULTS if name != "half response"]  # on that one, the SDK waits for ever by itself
    chaos = Chaos(gw, seed, 0.35, faults)
    try:
        check(run(sdk, "127.0.0.1", chaos.port, 5000), payments)
    finally:
        chaos.close()
    assert sum(chaos.done.values()) - chaos.done["none"] >= 3, chaos.done


def test_workers_that_are_killed(sdk, gateway, backend):
    """The gateway itself fails: its successors ask the backend what happened."""
    payments, prober = Payments(3), backend()
    payments.choose = lambda: "none"
    prober.default = payments.tell
    gw = gateway(f"once_recover hold; once_lease 1s; once_wait 500ms; once_probe http://{prober.name}/outcome;", workers=2)
    killed = []

    def pay(exchange):
        body = payments.make(exchange)
        with payments.lock:
            # "at least": other payments may have been made since ours
            if len(killed) < 2 and len(payments.made) >= (3, 9)[len(killed)]:
                killed.append(gw.nginx.worker_pids()[0])
                gw.nginx.kill_worker(killed[-1])
        try:
            exchange.respond(200, [payments.echo(exchange)], body)
        except OSError:
            pass

    gw.upstream.default = pay
    check(run(sdk, gw.host, gw.port, 5000), payments)
    assert len(killed) == 2
