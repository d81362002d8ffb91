"""The same payments with once, while the old table and the old version of the service are still there: docs/migrate.md."""
import hashlib
import os

import psycopg
from fastapi import FastAPI
from pydantic import BaseModel

import once


def connect():
    return psycopg.connect(os.environ.get("DATABASE", "postgres:///shop"))


app = FastAPI()
app.add_middleware(once.ASGIMiddleware)
idempotent = once.idempotent(connect, scope="the only client")


class Payment(BaseModel):
    order: str
    amount: str


def from_before(op, payment):
    """What the old version has answered. Both versions insert the key, and one of them can."""
    asked = hashlib.sha256(payment.model_dump_json().encode()).hexdigest()
    if op.connection.execute("INSERT INTO idempotency_keys (key, asked, locked_at) VALUES (%s, %s, 'infinity') "
                             "ON CONFLICT DO NOTHING", (op.request.key, asked)).rowcount:
        return None
    before, response = op.connection.execute("SELECT asked, response FROM idempotency_keys WHERE key = %s",
                                             (op.request.key,)).fetchone()
    if before != asked:
        raise once.Release(once.Response.json({"error": "the key was used for another request"}, 422))
    if response is None:  # at work, or dead: the old table does not say
        raise once.Release(once.Response.json({"error": "in progress"}, 409, [("Retry-After", "5")]))
    return response


@app.post("/payments", status_code=201)
@idempotent
def pay(payment: Payment):
    op = once.current()
    known = from_before(op, payment)
    if known:
        return known
    made = op.connection.execute("INSERT INTO paid (order_id, amount) VALUES (%s, %s) RETURNING id",
                                 (payment.order, payment.amount))
    return {"payment": made.fetchone()[0], "order": payment.order}
