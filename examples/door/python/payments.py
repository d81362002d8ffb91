#!/usr/bin/env python3
"""Payments that are made exactly once: the payment and the record of it are one transaction.

    DATABASE=postgres://shop@localhost/shop PORT=3000 python3 payments.py

Behind `once gate` the claim comes with the request. Without it, this program claims by itself.
"""
import json
import os
import re
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg2

DATABASE = os.environ.get("DATABASE", "postgres://localhost/shop")
HEADERS = '{"Content-Type": "application/json"}'
PLAIN = re.compile(r"[\w.:-]{1,100}", re.ASCII)
AMOUNT = re.compile(r"0\.0[1-9]|0\.[1-9]\d|[1-9]\d{0,2}\.\d\d", re.ASCII)  # more than nothing
UPSERT = """INSERT INTO accounts AS a (id, spent) VALUES (%s, %s)
            ON CONFLICT (id) DO UPDATE SET spent = a.spent + excluded.spent WHERE a.spent + excluded.spent <= a.credit
            RETURNING xmax = 0"""


def pay(cursor, claim, key, asked):
    """The business. What it decides is recorded, whether money moved or not."""
    # Still ours? And one at a time for this order: a second click may well come with a key of its own.
    cursor.execute("SELECT once.renew(%s), once.lock('order:' || %s)", (claim, asked["order"]))
    cursor.execute("SELECT id FROM payments WHERE order_id = %s", (asked["order"],))
    if cursor.rowcount:
        return 409, {"error": "this order is paid", "payment": cursor.fetchone()[0]}
    cursor.execute(UPSERT, (asked["account"], asked["amount"]))
    if not cursor.rowcount:  # the guard of the UPSERT did not let it through
        return 402, {"error": "over the limit of the account"}
    first = cursor.fetchone()[0]  # xmax = 0: the row was inserted just now, and by us
    cursor.execute("INSERT INTO payments (idempotency_key, order_id, account, amount) VALUES (%s, %s, %s, %s) RETURNING id",
                   (key.strip('"'), asked["order"], asked["account"], asked["amount"]))
    return 201, {"payment": cursor.fetchone()[0], "order": asked["order"], "amount": asked["amount"], "first": first}


def ask(cursor, key, body):
    """Without the gate: the claim is part of the same transaction. None: here is the answer already."""
    cursor.execute("SELECT outcome, claim, status, body FROM once.claim('shop', %s, 'POST', '/payments', %s)", (key, body))
    outcome, claim, status, stored = cursor.fetchone()
    if outcome == "run":
        return claim, None
    return None, (status, bytes(stored)) if outcome == "replay" else (409, json.dumps({"error": outcome}).encode())


def transaction(claim, key, body, asked):
    with closing(psycopg2.connect(DATABASE)) as db:
        try:
            with db, db.cursor() as cursor:  # COMMIT at its end, ROLLBACK when anything raises
                answer = None
                if not claim:
                    claim, answer = ask(cursor, key, body)
                if not answer:
                    status, told = pay(cursor, claim, key, asked)
                    answer = status, json.dumps(told).encode()
                    cursor.execute("SELECT once.complete(%s, %s, %s, %s)", (claim, status, HEADERS, answer[1]))
            return answer
        except psycopg2.Error as error:
            if error.pgcode != "ON002":
                raise
            with db, db.cursor() as cursor:  # this claim is completed: we were here before
                cursor.execute("SELECT status, body FROM once.recorded(%s)", (claim,))
                status, stored = cursor.fetchone()
                return status, bytes(stored)


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            asked = json.loads(body)
            if not (PLAIN.fullmatch(asked["order"]) and PLAIN.fullmatch(asked["account"]) and AMOUNT.fullmatch(asked["amount"])):
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError):
            return self.answer(422, b'{"error": "order, account and an amount like 12.50 are needed"}')
        for _ in range(2):  # a COMMIT whose reply was lost may be done: the second time, once.renew tells
            try:
                return self.answer(*transaction(self.headers.get("Once-Claim"), self.headers["Idempotency-Key"], body, asked))
            except psycopg2.Error as error:
                print(error.pgcode, error, flush=True)
        return self.answer(503, b'{"error": "not now"}')  # ON001, or no database: the gate answers from the record

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
