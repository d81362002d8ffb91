#!/usr/bin/env python3
"""A payout in three steps, one of which is a provider's: reserve, have the provider transfer, settle. Runs behind `once gate`.

    DATABASE=postgres://shop@localhost/shop PROVIDER=http://localhost:4000/transfers PORT=3000 python3 payouts.py

Killed anywhere, it goes on with the next attempt where it stopped; the provider gets the same key from every attempt.
"""
import json
import os
import re
import urllib.request
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg2

DATABASE = os.environ.get("DATABASE", "postgres://localhost/shop")
HEADERS = '{"Content-Type": "application/json"}'
PLAIN = re.compile(r"[\w.:-]{1,100}", re.ASCII)
AMOUNT = re.compile(r"0\.0[1-9]|0\.[1-9]\d|[1-9]\d{0,2}\.\d\d", re.ASCII)  # more than nothing
RESERVE = """INSERT INTO accounts AS a (id, spent) VALUES (%s, %s)
             ON CONFLICT (id) DO UPDATE SET spent = a.spent + excluded.spent WHERE a.spent + excluded.spent <= a.credit
             RETURNING spent"""


def reserve(cursor, claim, asked):
    """Step 1. The checkpoint commits with it: a later attempt does not reserve again."""
    cursor.execute(RESERVE, (asked["account"], asked["amount"]))
    if not cursor.rowcount:
        return False
    cursor.execute("INSERT INTO payouts (record, account, amount) VALUES (once.derive(%s, 'payout'), %s, %s)",
                   (claim, asked["account"], asked["amount"]))
    cursor.execute("SELECT once.checkpoint(%s, 'reserved')", (claim,))
    return True


def transfer(key, asked):
    """Step 2: outside, in no transaction. Asked twice with the same key, the provider transfers once."""
    request = urllib.request.Request(os.environ["PROVIDER"], json.dumps(asked).encode(), {"Idempotency-Key": key})
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)["id"]


def complete(cursor, claim, status, told):
    body = json.dumps(told).encode()
    cursor.execute("SELECT once.complete(%s, %s, %s, %s)", (claim, status, HEADERS, body))
    return status, body


def payout(db, claim, asked):
    with db, db.cursor() as cursor:  # each `with` is one transaction
        cursor.execute("SELECT name, state FROM once.resume(%s)", (claim,))
        name, state = cursor.fetchone() or (None, None)
        if name is None and not reserve(cursor, claim, asked):
            return complete(cursor, claim, 402, {"error": "over the limit of the account"})
        cursor.execute("SELECT once.derive(%s, 'transfer')", (claim,))
        key = cursor.fetchone()[0]
    if name != "transferred":
        state = {"id": transfer(key, asked)}
        with db, db.cursor() as cursor:
            cursor.execute("SELECT once.checkpoint(%s, 'transferred', %s)", (claim, json.dumps(state)))
    with db, db.cursor() as cursor:  # step 3
        cursor.execute("UPDATE payouts SET provider_id = %s WHERE record = once.derive(%s, 'payout')", (state["id"], claim))
        return complete(cursor, claim, 201, {"transfer": state["id"], "amount": asked["amount"]})


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        claim, body = self.headers.get("Once-Claim"), self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            asked = json.loads(body)
            if not (claim and PLAIN.fullmatch(asked["account"]) and AMOUNT.fullmatch(asked["amount"])):
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError):
            return self.answer(422, b'{"error": "account and an amount like 12.50 are needed"}')
        for _ in range(2):
            try:
                with closing(psycopg2.connect(DATABASE)) as db:
                    return self.answer(*payout(db, claim, asked))
            except (psycopg2.Error, OSError) as error:  # what is committed is committed: the next attempt resumes
                print(error, flush=True)
        return self.answer(503, b'{"error": "not now"}')  # under way still, or finished: the gate knows

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "3000"))), Handler)
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
