"""What every application of the suite does (README.md), as statements that its driver runs, and how it is started."""
import asyncio
import json
import os
import re
import socket
import urllib.request

import once

DATABASE = os.environ["DATABASE"]
STORE = os.environ.get("ONCE_SERVE")
PORT = int(os.environ.get("PORT", "0"))
BYTES = bytes(range(256)) * 2


class Refused(Exception):
    """Becomes the framework's own exception, with the status that apps.json names, or as if it were too early."""

    def __init__(self, later=False):
        self.later = later


class Answer:
    def __init__(self, status, value=None, body=b"", kind="application/json", headers=()):
        self.status, self.value, self.body, self.kind, self.headers = status, value, body, kind, dict(headers)


def guard(connect=None, scope="tenant-7"):
    """In its own transaction, or in any store."""
    if not STORE:
        return once.idempotent(connect, scope=scope) if connect else once.idempotent(scope=scope)
    return once.idempotent(once.Store(STORE, os.environ.get("ONCE_TOKEN")), scope=scope, lease=float(os.environ["LEASE"]))


def pay(asked):
    """Yields statements and gets their rows; yields calls, of the operation or of others; returns an Answer."""
    order, note, then = asked["order"], asked.get("note"), asked.get("then")
    if STORE and then == "refuse":
        raise Refused()
    if STORE and then == "release":
        raise once.Release()
    if STORE and then == "later":
        return Answer(429, {"error": "later"})
    number = (yield "SELECT count(*) + 1 FROM payments WHERE order_id = $1", (order,))[0]
    payment = (yield "INSERT INTO payments (order_id, number, note) VALUES ($1, $2, $3) RETURNING id", (order, number, note))[0]
    event = None if STORE else (yield "emit", ("payments", order, "paid", {"order": order, "note": note}))
    if then == "raise":
        raise RuntimeError("as asked")
    if then == "release":
        raise once.Release()
    if then in ("refuse", "refuse later"):
        raise Refused(then == "refuse later")
    if then == "refuse in the transaction":
        return Answer(402, {"error": "no"})
    if then == "later":
        return Answer(429, {"error": "later"})
    if then == "bytes":
        return Answer(200, body=BYTES, kind="application/octet-stream")
    return Answer(201, {"payment": payment, "number": number, "order": order, "note": note, "event": event},
                  headers={"X-Order": order})


def transfer(provider, key, order):
    request = urllib.request.Request(provider, json.dumps({"order": order}).encode(), {"Idempotency-Key": key})
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)["id"]


def pay_out(asked):
    """Three steps, one of which is a provider's."""
    order = asked["order"]
    if STORE:
        key = yield "derive", ("transfer",)
        state = {"id": (yield transfer, (asked["provider"], key, order))}
        yield "INSERT INTO payments (order_id, number, note) VALUES ($1, 0, $2) RETURNING id", (order, state["id"])
        return Answer(201, {"transfer": state["id"]})
    done, state = yield "resume", ()
    key = yield "derive", ("transfer",)
    if done is None:
        yield "INSERT INTO payments (order_id, number, note) VALUES ($1, 0, 'reserved') RETURNING id", (order,)
        yield "checkpoint", ("reserved",)
    if done != "transferred":
        state = {"id": (yield transfer, (asked["provider"], key, order))}
        yield "checkpoint", ("transferred", state)
    yield "UPDATE payments SET note = $1 WHERE order_id = $2 RETURNING id", (state["id"], order)
    return Answer(201, {"transfer": state["id"]})


CALLS = ("emit", "resume", "checkpoint", "derive", "accept")


def run(plan, operation, execute):
    row = None
    try:
        while True:
            step, values = plan.send(row)
            row = step(*values) if callable(step) else getattr(operation, step)(*values) if step in CALLS else execute(step, values)
    except StopIteration as end:
        return end.value


async def run_async(plan, operation, execute):
    row = None
    try:
        while True:
            step, values = plan.send(row)
            row = await (asyncio.to_thread(step, *values) if callable(step) else
                         getattr(operation, step)(*values) if step in CALLS else execute(step, values))
    except StopIteration as end:
        return end.value


def percent(text):
    """The same statement for drivers that count by themselves."""
    return re.sub(r"\$\d", "%s", text)


def listen():
    sock = socket.create_server(("127.0.0.1", PORT))
    print(f"listening on http://127.0.0.1:{sock.getsockname()[1]}", flush=True)
    return sock


def serve_asgi(app):
    import uvicorn
    uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off")).run(sockets=[listen()])


def serve_wsgi(app):
    from werkzeug.serving import make_server
    server = make_server("127.0.0.1", PORT, app, threaded=True)
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
