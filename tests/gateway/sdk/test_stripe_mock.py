"""Stripe's SDKs for Node and Python against Stripe's own mock of its API, behind a gateway that speaks as Stripe does."""
import concurrent.futures
import http.client
import json
import os
import signal
import socket
import subprocess
import threading

import pytest

from harness import environment
from harness.chaos import FAULTS, Chaos
from harness.upstream import slow
from harness.wait import Gate, until
from test_stripe import COUNT, HERE, PLACE, node, run

SDK = os.path.join(environment.BUILD, "sdk")
HOP = ("connection", "content-length", "transfer-encoding")


def python():
    return [os.path.join(SDK, "venv", "bin", "python"), os.path.join(HERE, "stripe", "client.py")]


@pytest.fixture(scope="module", params=[node, python], ids=["node", "python"])
def sdk(request):
    return request.param()


@pytest.fixture(scope="module")
def mock():
    """Its port. What it answers is Stripe's own description of the API; it keeps nothing."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    with subprocess.Popen([os.path.join(SDK, "stripe-mock"), "-http-addr", f"127.0.0.1:{port}"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as process:
        def answers():
            assert process.poll() is None
            with socket.socket() as sock:
                return sock.connect_ex(("127.0.0.1", port)) == 0
        until(answers, "stripe-mock")
        yield port
        process.kill()


class Stripe:
    """Between the gateway and the mock: passes requests on, and has what each key made the mock answer."""

    def __init__(self, port):
        self.port, self.lock, self.made = port, threading.Lock(), {}

    def ask(self, request):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(request.method, request.target, request.body,
                           {name: value for name, value in request.headers if name.lower() not in HOP})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        with self.lock:
            self.made.setdefault(request.key, []).append(body)
        return answer.status, [pair for pair in answer.getheaders() if pair[0].lower() not in HOP], body

    def serve(self, exchange):
        try:
            exchange.respond(*self.ask(exchange.request))
        except OSError:
            pass  # the gateway was killed meanwhile

    def tell(self, exchange):
        """What became of a key, for a gateway that does not know."""
        with self.lock:
            made = self.made.get(exchange.request.key)
        if made:
            exchange.respond(200, [("Once-Outcome", "final"), ("Once-Status", "200")], made[0])
        else:
            exchange.respond(404, [("Once-Outcome", "retry")], b"")

    def check(self, results):
        """Each payment succeeded, and reached the mock once."""
        assert len(results) == COUNT and not [result for result in results if "error" in result], results
        assert sorted(self.made) == sorted(result["key"] for result in results)
        for result in results:
            assert len(self.made[result["key"]]) == 1, result
            assert result["amount"] == json.loads(self.made[result["key"]][0])["amount"] == 1000 + result["number"]


@pytest.fixture
def stripe(mock):
    return Stripe(mock)


def test_pays(sdk, gateway, stripe):
    gw = gateway("once_profile stripe;")
    gw.upstream.default = stripe.serve
    stripe.check(run(sdk, gw.host, gw.port, 20000))


def test_answers_that_are_lost(sdk, gateway, stripe):
    """The SDK sends again by itself, with the same key."""
    gw = gateway("once_profile stripe; once_recover hold; once_wait 5s;")
    gw.upstream.default = stripe.serve
    chaos = Chaos(gw, 4, 0.35, [name for name in FAULTS if name != "half response"])  # Node waits for ever on that one
    try:
        stripe.check(run(sdk, "127.0.0.1", chaos.port, 20000))
    finally:
        chaos.close()
    assert chaos.done["lose response"] > 0, chaos.done


def test_gateway_that_is_killed(sdk, gateway, backend, stripe):
    """All of nginx, between a request and its answer; the next one asks what became of it."""
    prober = backend()
    prober.default = stripe.tell
    gw = gateway("once_profile stripe; once_recover hold; once_lease 1s; once_wait 500ms; "
                 f"once_probe http://{prober.name}/outcome;")
    arrived, killed = threading.Event(), threading.Event()

    def serve(exchange):
        answer = stripe.ask(exchange.request)
        if len(stripe.made) >= 3 and not killed.is_set():
            arrived.set()
            assert killed.wait(60)
        try:
            exchange.respond(*answer)
        except OSError:
            pass

    gw.upstream.default = serve
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, sdk, gw.host, gw.port, 20000)
        assert arrived.wait(60)
        gw.nginx.kill_all()
        gw.nginx.start()  # here: it ends with the thread that started it
        killed.set()
        stripe.check(running.result())


def once(sdk, gw, key, *amounts):
    command = [*sdk, gw.host, str(gw.port), "once", key, *map(str, amounts)]
    return subprocess.Popen(command, cwd=PLACE, stdout=subprocess.PIPE, text=True, start_new_session=True)


def results(process):
    text = process.communicate(timeout=100)[0]
    return [json.loads(line) for line in text.splitlines()]


def test_client_that_is_killed(sdk, gateway, stripe):
    """Its successor, with the same key, gets the answer that the first did not live to see."""
    gw = gateway("once_profile stripe; once_recover hold; once_wait 30s;")
    arrived, dead = threading.Event(), threading.Event()

    def serve(exchange):
        arrived.set()
        assert dead.wait(60)
        stripe.serve(exchange)

    gw.upstream.then(serve)
    gw.upstream.default = stripe.serve
    first = once(sdk, gw, "k", 1)
    assert arrived.wait(60)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    dead.set()
    again, = results(once(sdk, gw, "k", 1))
    assert again["amount"] == 1001 and len(stripe.made["k"]) == 1, again


def test_errors_have_their_classes(sdk, gateway, stripe):
    """As the SDK sorts what Stripe itself answers: by type and status."""
    by_type = sdk[0] == "node"  # the one for Python knows no class for 409
    gw = gateway("once_profile stripe; once_quota 3/1h;")
    gw.upstream.default = stripe.serve
    first, reused = results(once(sdk, gw, "a", 1, 2))
    assert first["amount"] == 1001
    assert (reused["status"], reused["code"]) == (400, "idempotency_key_reused"), reused
    assert reused["error"].startswith("StripeIdempotencyError"), reused
    invalid, = results(once(sdk, gw, "x" * 256, 1))
    assert invalid["status"] == 400 and invalid["error"].startswith("StripeInvalidRequestError"), invalid
    gate = Gate()
    gw.upstream.then(slow(gate))
    running = once(sdk, gw, "b", 1)
    gate.wait_arrival()
    busy, = results(once(sdk, gw, "b", 1))
    gate.open()
    running.communicate()
    assert (busy["status"], busy["code"]) == (409, "idempotency_key_in_use"), busy
    assert busy["error"].startswith("StripeIdempotencyError" if by_type else "StripeAPIError"), busy
    results(once(sdk, gw, "c", 1))
    limited, = results(once(sdk, gw, "d", 1))
    assert limited["status"] == 429 and limited["error"].startswith("StripeRateLimitError"), limited
    assert len(stripe.made["a"]) == 1 and "d" not in stripe.made
