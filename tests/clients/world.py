"""What the packages' client side is tried against: a gate in front of a backend that fails as the request asks for, and the same
gate behind a line that loses the first answer of each key.

    world.py COMMAND...     runs the command with the addresses in GATE and LOSSY, and ends with its exit code

    POST /payments?plan=429,500,ok   one step for each request of a key that reaches the backend; the last one stays. NUMBER is
                                     an answer with that status, ok a payment, cut one without an answer, hold one whose
                                     answer waits. 3xx redirects to a server that stands for another's
    POST /held?plan=...              the same; the gate does not run it again when the outcome is unknown
    GET  /seen/KEY                   {"requests": 3, "payments": 1} of that key, and "elsewhere": 1 for a redirect that was followed
    GET  /reached/KEY                answers when a request with that key has reached the backend
    GET  /release/KEY                lets the answer that waits go on; says as /seen does
"""
import collections
import http.client
import json
import os
import subprocess
import sys
import threading
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
from brokers import free_port  # pylint: disable=wrong-import-position
from gate import PATIENCE, Gate, Handler, serve  # pylint: disable=wrong-import-position


class Deed:
    """What became of one key."""

    def __init__(self):
        self.requests, self.payments, self.elsewhere = 0, 0, 0
        self.reached, self.released = threading.Event(), threading.Event()


class Backend(Handler):
    deeds = collections.defaultdict(Deed)
    lock = threading.Lock()
    elsewhere = None

    def do_POST(self):  # pylint: disable=invalid-name
        self.body()
        url = urllib.parse.urlsplit(self.path)
        plan = urllib.parse.parse_qs(url.query).get("plan", ["ok"])[0].split(",")
        with self.lock:
            deed = self.deeds[self.headers["Idempotency-Key"]]
            step = plan[min(deed.requests, len(plan) - 1)]
            deed.requests += 1
            deed.payments += not step.isdigit()
        deed.reached.set()
        if step == "hold":
            assert deed.released.wait(PATIENCE)
        if step == "cut":
            self.close_connection = True
        elif step.isdigit():
            location = f"http://127.0.0.1:{self.elsewhere}/{self.headers['Idempotency-Key']}"
            self.answer(int(step), b"{}", Content_Type="application/json", **({"Location": location} if step[0] == "3" else {}))
        else:
            self.answer(201, json.dumps({"key": self.headers["Idempotency-Key"]}).encode(), Content_Type="application/json")

    def do_GET(self):  # pylint: disable=invalid-name
        _, verb, key = self.path.split("/", 2)
        with self.lock:
            deed = self.deeds[urllib.parse.unquote(key)]
        if verb == "reached":
            assert deed.reached.wait(PATIENCE)
        elif verb == "release":
            deed.released.set()
        found = {"requests": deed.requests, "payments": deed.payments} | ({"elsewhere": deed.elsewhere} if deed.elsewhere else {})
        self.answer(200, json.dumps(found).encode(), Content_Type="application/json")


class Elsewhere(Handler):
    """Says yes to everything."""

    def do_POST(self):  # pylint: disable=invalid-name
        self.body()
        with Backend.lock:
            Backend.deeds[self.path[1:]].elsewhere += 1
        self.answer(200, b"{}", Content_Type="application/json")
    do_GET = do_PATCH = do_POST


class Lossy(Handler):
    """Passes requests on to the gate. The first answer of each key does not come back."""
    gate, known = None, set()

    def do_POST(self):  # pylint: disable=invalid-name
        key, body = self.headers["Idempotency-Key"], self.body()
        connection = http.client.HTTPConnection("127.0.0.1", self.gate, timeout=PATIENCE)
        connection.request("POST", self.path, body, {name: value for name, value in self.headers.items() if name != "Connection"})
        answer = connection.getresponse()
        text = answer.read()
        if key not in self.known:
            self.known.add(key)
            self.close_connection = True
            return
        kept = {name.replace("-", "_"): value for name, value in answer.getheaders()
                if name.lower() not in ("connection", "content-length", "date", "server", "transfer-encoding")}
        self.answer(answer.status, text, **kept)


def main():
    backend, elsewhere, port = serve(Backend), serve(Elsewhere), free_port()
    Backend.elsewhere, Lossy.gate = elsewhere.server_address[1], port
    lossy = serve(Lossy)
    gate = Gate(backend.server_address[1], port, "--scope", "none", "--set", "once_retry_after 1", "--route", "POST /", "--route",
                "POST /held recover=hold")
    try:
        code = subprocess.run(sys.argv[1:], env={**os.environ, "GATE": gate.address,
                                                 "LOSSY": f"http://127.0.0.1:{lossy.server_address[1]}"}, check=False).returncode
        if code:
            print(gate.log())
    finally:
        ended = gate.close()
    return code or ended


if __name__ == "__main__":
    sys.exit(main())
