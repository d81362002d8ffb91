"""Payments that are made exactly once, with FastAPI: docs/python.md."""
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


@app.post("/payments", status_code=201)
@idempotent
def pay(payment: Payment):
    op = once.current()
    made = op.connection.execute("INSERT INTO paid (order_id, amount) VALUES (%s, %s) RETURNING id",
                                 (payment.order, payment.amount)).fetchone()
    op.emit("payments", payment.order, "paid", {"order": payment.order, "amount": payment.amount})
    return {"payment": made[0], "order": payment.order}
