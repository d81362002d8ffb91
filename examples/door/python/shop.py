"""What payments.py and payouts.py have in common: the database, what can be paid at all, and a server."""
import json
import os
import re

import psycopg2
from flask import request
from werkzeug.serving import make_server

import once

PLAIN = re.compile(r"[\w.:-]{1,100}", re.ASCII)
AMOUNT = re.compile(r"0\.0[1-9]|0\.[1-9]\d|[1-9]\d{0,2}\.\d\d", re.ASCII)  # more than nothing


def connect():
    return psycopg2.connect(os.environ.get("DATABASE", "postgres://localhost/shop"))


# Behind the gate the claim comes with the request. Without it, a second request waits for the transaction of the first.
idempotent = once.idempotent(connect, scope="shop", wait=True)


def read(*names):
    """The request, or None: it can never be paid, and nothing of it reaches the database."""
    try:
        asked = json.loads(request.get_data())
        return asked if all(PLAIN.fullmatch(asked[name]) for name in names) and AMOUNT.fullmatch(asked["amount"]) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def serve(app):
    server = make_server("127.0.0.1", int(os.environ.get("PORT", "3000")), app, threaded=True)
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
