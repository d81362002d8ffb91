"""Payments with an idempotency table of our own: where docs/migrate.md begins."""
import hashlib
import os

import psycopg
from fastapi import FastAPI, Header, HTTPException
from psycopg.types.json import Jsonb
from pydantic import BaseModel

TAKE = """INSERT INTO idempotency_keys AS k (key, asked) VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET locked_at = now()
          WHERE k.asked = excluded.asked AND k.response IS NULL AND k.locked_at < now() - interval '5 seconds' RETURNING key"""
app = FastAPI()


class Payment(BaseModel):
    order: str
    amount: str


@app.post("/payments", status_code=201)
def pay(payment: Payment, idempotency_key: str = Header()):
    asked = hashlib.sha256(payment.model_dump_json().encode()).hexdigest()
    with psycopg.connect(os.environ.get("DATABASE", "postgres:///shop"), autocommit=True) as db:
        if not db.execute(TAKE, (idempotency_key, asked)).rowcount:
            before, response = db.execute("SELECT asked, response FROM idempotency_keys WHERE key = %s",
                                          (idempotency_key,)).fetchone()
            if before != asked:
                raise HTTPException(422, "the key was used for another request")
            if response is None:
                raise HTTPException(409, "in progress")
            return response
        made = db.execute("INSERT INTO paid (order_id, amount) VALUES (%s, %s) RETURNING id", (payment.order, payment.amount))
        response = {"payment": made.fetchone()[0], "order": payment.order}
        db.execute("UPDATE idempotency_keys SET response = %s WHERE key = %s", (Jsonb(response), idempotency_key))
        return response
