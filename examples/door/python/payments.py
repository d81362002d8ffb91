#!/usr/bin/env python3
"""Payments that are made exactly once: the payment and the record of it are one transaction.

    pip install flask psycopg2-binary ./packages/python
    DATABASE=postgres://shop@localhost/shop PORT=3000 python3 payments.py
"""
from flask import Flask

import once
from shop import idempotent, read, serve

UPSERT = """INSERT INTO accounts AS a (id, spent) VALUES (%s, %s)
            ON CONFLICT (id) DO UPDATE SET spent = a.spent + excluded.spent WHERE a.spent + excluded.spent <= a.credit
            RETURNING xmax = 0"""
app = Flask(__name__)


@app.post("/payments")
def payments():
    asked = read("order", "account")
    return pay(asked) if asked else ({"error": "order, account and an amount like 12.50 are needed"}, 422)


@idempotent
def pay(asked):
    """The business. What it decides is recorded, whether money moved or not."""
    op = once.current()
    op.lock("order:" + asked["order"])  # one at a time: a second click may well come with a key of its own
    cursor = op.connection.cursor()
    cursor.execute("SELECT id FROM payments WHERE order_id = %s", (asked["order"],))
    if cursor.rowcount:
        return {"error": "this order is paid", "payment": cursor.fetchone()[0]}, 409
    cursor.execute(UPSERT, (asked["account"], asked["amount"]))
    if not cursor.rowcount:  # the guard of the UPSERT did not let it through
        return {"error": "over the limit of the account"}, 402
    first = cursor.fetchone()[0]  # xmax = 0: the row was inserted just now, and by us
    cursor.execute("INSERT INTO payments (idempotency_key, order_id, account, amount) VALUES (%s, %s, %s, %s) RETURNING id",
                   (op.request.key, asked["order"], asked["account"], asked["amount"]))
    return {"payment": cursor.fetchone()[0], "order": asked["order"], "amount": asked["amount"], "first": first}, 201


if __name__ == "__main__":
    serve(app)
