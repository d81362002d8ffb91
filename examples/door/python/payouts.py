#!/usr/bin/env python3
"""A payout in three steps, one of which is a provider's: reserve, have the provider transfer, settle.

    DATABASE=postgres://shop@localhost/shop PROVIDER=http://localhost:4000/transfers PORT=3000 python3 payouts.py

Killed anywhere, it goes on with the next attempt where it stopped; the provider gets the same key from every attempt.
"""
import json
import os
import urllib.request

from flask import Flask

import once
from shop import idempotent, read, serve

RESERVE = """INSERT INTO accounts AS a (id, spent) VALUES (%s, %s)
             ON CONFLICT (id) DO UPDATE SET spent = a.spent + excluded.spent WHERE a.spent + excluded.spent <= a.credit
             RETURNING spent"""
app = Flask(__name__)


def transfer(key, asked):
    """Outside, in no transaction. Asked twice with the same key, the provider transfers once."""
    request = urllib.request.Request(os.environ["PROVIDER"], json.dumps(asked).encode(), {"Idempotency-Key": key})
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)["id"]


@app.post("/payouts")
def payouts():
    asked = read("account")
    return pay_out(asked) if asked else ({"error": "account and an amount like 12.50 are needed"}, 422)


@idempotent
def pay_out(asked):
    op = once.current()
    cursor, record, key = op.connection.cursor(), op.derive("payout"), op.derive("transfer")
    done, state = op.resume()
    if done is None:
        cursor.execute(RESERVE, (asked["account"], asked["amount"]))
        if not cursor.rowcount:
            return {"error": "over the limit of the account"}, 402
        cursor.execute("INSERT INTO payouts (record, account, amount) VALUES (%s, %s, %s)",
                       (record, asked["account"], asked["amount"]))
        op.checkpoint("reserved")  # commits: a later attempt does not reserve again
    if done != "transferred":
        state = {"id": transfer(key, asked)}
        op.checkpoint("transferred", state)
    cursor.execute("UPDATE payouts SET provider_id = %s WHERE record = %s", (state["id"], record))
    return {"transfer": state["id"], "amount": asked["amount"]}, 201


if __name__ == "__main__":
    serve(app)
