"""An API that makes payments, with a layer for idempotency keys that is sound, or broken in one of many ways.

    POST /payments   one effect: 201 {"id", "amount"}; also for application/octet-stream
                     {"amount": 0}: 400, no effect. {"then": 500}: the effect, and 500
    GET  /executions {"count": effects}
"""
import hashlib
import http.server
import itertools
import json
import re
import select
import socket
import threading
import time
from email.utils import formatdate

PATIENCE = 20
STRING = re.compile(r'"(?:[ !#-\[\]-~]|\\["\\])*"')
# Requests of the checks that the judge always makes first: what happens at a later one is told by its number.
BEFORE = 3

# What each fault makes of the API, and the checks that must fail. Every check is broken by one of them.
FAULTS = {
    "fails at first": ["first-request"],
    "refuses equal bodies": ["other-key"],
    "takes requests without a key": ["key-missing"],
    "takes an empty key": ["key-empty"],
    "takes any key": ["key-malformed"],
    "takes the first of two keys": ["key-twice"],
    "cuts keys off": ["key-long"],
    "forgets quoted keys": ["key-quoted"],
    "forgets raw keys": ["key-raw"],
    "keeps the quotes": ["key-forms"],
    "replays a new body": ["replay-body"],
    "replays without headers": ["replay-headers"],
    "marks first answers": ["replay-told"],
    "has expired already": ["expiry-told"],
    "compares no bodies": ["reuse-body", "reuse-status"],
    "answers 409 for a reused key": ["reuse-status"],
    "errors without words": ["error-told"],
    "forgets a key that was reused": ["reuse-harmless"],
    "is not atomic": ["concurrent"],
    "fails while in flight": ["in-flight"],
    "compares no bodies in flight": ["in-flight-reuse"],
    "fails in a storm": ["retry-storm"],
    "words refusals anew": ["after-4xx"],
    "drops the key on 5xx": ["after-5xx"],
    "is stuck when the client is gone": ["cut-answer"],
    "acts on half a body": ["cut-request"],
    "ignores who it is": ["scope-replay", "scope-reuse"],
    "compares the first kilobyte": ["large-body"],
    "compares up to a zero byte": ["binary-body"],
}


class Record:
    def __init__(self, fingerprint):
        self.fingerprint, self.answer = fingerprint, None


class Api(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, fault="", layer=True, stripe=False):
        super().__init__(("127.0.0.1", 0), Handler)
        self.fault, self.layer, self.stripe = fault, layer, stripe
        self.lock, self.records, self.bodies, self.effects = threading.Lock(), {}, set(), 0
        self.numbers, self.times = itertools.count(1), itertools.count(1)
        self.race, self.seen = threading.Barrier(8), threading.Event()
        self.began = int(time.time())
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        """Connections are cut on purpose."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format, *args):  # pylint: disable=redefined-builtin
        pass

    def setup(self):
        super().setup()
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def do_GET(self):
        self.reply(200, {"count": self.server.effects})

    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        self.number = next(self.server.numbers)
        if len(body) < length:
            self.close_connection = True
            if self.is_broken("acts on half a body"):
                self.pay(body)
                self.server.seen.set()
            return
        self.send_answer(self.guard(body) if self.server.layer else self.pay(body))

    # ------------------------------------------------------------------------------------------------- the operation

    def pay(self, body):
        """From here on there is no way back."""
        binary = self.headers.get("Content-Type") == "application/octet-stream"
        asked = {"amount": len(body)} if binary else json.loads(body or b"{}") if body[-1:] == b"}" else {"amount": 1}
        if not asked.get("amount"):
            return 400, [], json.dumps({"error": "which amount?", **self.anew("words refusals anew")}).encode()
        with self.server.lock:
            self.server.effects += 1
            number = self.server.effects
        if asked.get("then"):
            return asked["then"], [], b'{"error": "failed"}'
        made = json.dumps({"id": f"pay_{number}", "amount": asked["amount"], "by": self.headers.get("Authorization")})
        return 201, [("Location", f"/payments/{number}"), ("X-Payment", str(number))], made.encode()

    # ------------------------------------------------------------------------------------------------------ the layer

    def is_broken(self, fault):
        return self.server.fault == fault

    def anew(self, fault):
        return {"time": next(self.server.times)} if self.is_broken(fault) else {}

    def refuse(self, status, title):
        if self.is_broken("errors without words"):
            return status, [("Content-Type", "text/html")], b"<h1>no</h1>"
        if self.server.stripe:
            return status, [], json.dumps({"error": {"type": "idempotency_error", "message": title}}).encode()
        return status, [("Content-Type", "application/problem+json")], json.dumps(
            {"type": "https://api.example.com/idempotency", "title": title}).encode()

    def key(self):
        """The key, or an answer."""
        values = self.headers.get_all("Idempotency-Key", [])
        if not values:
            optional = self.server.stripe or self.is_broken("takes requests without a key")
            return None if optional else self.refuse(400, "no key")
        value = values[0]
        if len(values) > 1 and not self.is_broken("takes the first of two keys"):
            return self.refuse(400, "two keys")
        if not value and not self.is_broken("takes an empty key"):
            return self.refuse(400, "an empty key")
        if self.server.stripe:
            return value if len(value) <= 255 else self.refuse(400, "a long key")
        if value.startswith('"') and not STRING.fullmatch(value) and not self.is_broken("takes any key"):
            return self.refuse(400, "no string")
        if self.is_broken("cuts keys off"):
            value = value[:255]
        return value if self.is_broken("keeps the quotes") else value.strip('"')

    def fingerprint(self, body):
        if self.is_broken("compares the first kilobyte"):
            body = body[:1024]
        if self.is_broken("compares up to a zero byte"):
            body = body.split(b"\0")[0]
        return hashlib.sha256(body).digest()

    def is_forgotten(self):
        raw = not self.headers["Idempotency-Key"].startswith('"')
        return self.is_broken("forgets raw keys" if raw else "forgets quoted keys") and self.number > BEFORE

    def guard(self, body):
        key = self.key()
        if isinstance(key, tuple):
            return key
        if self.is_broken("fails at first"):
            return 500, [], b""
        if key is None or self.is_forgotten():
            return self.pay(body)
        self.gone = self.number > BEFORE and self.is_cut()
        if self.is_broken("refuses equal bodies") and body in self.server.bodies:
            return self.refuse(409, "the same body")
        self.server.bodies.add(body)
        scope = None if self.is_broken("ignores who it is") else self.headers.get("Authorization")
        return self.claim((scope, key), body)

    def claim(self, name, body):
        server, mine = self.server, Record(self.fingerprint(body))
        with server.lock:
            found = server.records.get(name)
            if not found and not self.is_broken("is not atomic"):
                server.records[name] = mine
        if self.is_broken("is not atomic") and BEFORE < self.number <= BEFORE + 8:
            server.race.wait(PATIENCE)  # all have looked before one acts
        if found:
            return self.again(name, found, mine)
        if self.is_broken("fails while in flight") or self.is_broken("compares no bodies in flight"):
            if self.number > BEFORE:
                server.seen.wait(PATIENCE)  # until another one is in the way
        mine.answer = self.pay(body)
        if mine.answer[0] >= 500 and self.is_broken("drops the key on 5xx") or self.is_broken("words refusals anew"):
            del server.records[name]
        elif self.is_broken("is not atomic"):
            server.records[name] = mine
        if self.gone:
            mine.answer = None
            server.seen.set()
        mark = [("Idempotent-Replayed", "true")] if self.is_broken("marks first answers") and self.number > BEFORE else []
        return self.with_expiry(mine.answer or (500, [], b""), mark)

    def is_cut(self):
        """Of two requests, one of which is cut: that is handled first, whichever is read first."""
        end = time.monotonic() + PATIENCE
        if self.is_broken("acts on half a body"):
            self.server.seen.wait(PATIENCE)
        while self.is_broken("is stuck when the client is gone") and not self.server.seen.is_set() and time.monotonic() < end:
            if select.select([self.connection], [], [], 0.01)[0]:
                return True
        return False

    def again(self, name, found, mine):
        server = self.server
        if found.fingerprint != mine.fingerprint and not self.is_broken("compares no bodies"):
            if self.is_broken("compares no bodies in flight") and found.answer is None:
                server.seen.set()
                return self.pay(b'{"amount": 1}')
            if self.is_broken("forgets a key that was reused"):
                del server.records[name]
            status = 400 if server.stripe else 409 if self.is_broken("answers 409 for a reused key") else 422
            return self.refuse(status, "another body")
        if found.answer is None:
            if self.is_broken("fails while in flight"):
                server.seen.set()
                return 500, [], b""
            return self.refuse(409, "in flight")
        if self.is_broken("fails in a storm") and self.number > BEFORE + 1:
            return 500, [], b""
        status, headers, body = found.answer
        if self.is_broken("replays a new body"):
            body = json.dumps({**json.loads(body), **self.anew("replays a new body")}).encode()
        if self.is_broken("replays without headers"):
            headers = []
        return self.with_expiry((status, headers, body), [("Idempotent-Replayed", "true")])

    def with_expiry(self, answer, more):
        status, headers, body = answer
        expires = self.server.began + (-60 if self.is_broken("has expired already") else 3600)
        return status, headers + more + [("Idempotency-Expires", formatdate(expires, usegmt=True))], body

    # ------------------------------------------------------------------------------------------------------- answering

    def send_answer(self, answer):
        status, headers, body = answer
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if not any(name == "Content-Type" for name, _ in headers):
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def reply(self, status, value):
        self.send_answer((status, [], json.dumps(value).encode()))
