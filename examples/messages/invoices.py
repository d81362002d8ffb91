"""Writes an invoice for each order event, in the transaction that completes the message: docs/tutorial-messages.md."""
import http.server
import json
import os

import psycopg2


class Invoices(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(write(self.headers["Once-Claim"], order))
        self.send_header("Content-Length", "0")
        self.end_headers()


def write(claim, order):
    """The status to answer with. Both rows are committed at the end of the block, or neither."""
    db = psycopg2.connect(os.environ.get("DATABASE", "postgres:///shop"))
    try:
        with db, db.cursor() as cursor:
            cursor.execute("SELECT once.renew(%s)", (claim,))
            cursor.execute("INSERT INTO invoices (order_id, amount) VALUES (%s, %s)", (order["order"], order["amount"]))
            cursor.execute("SELECT once.complete(%s, 200, '{}', '')", (claim,))
        return 200
    except psycopg2.Error as error:  # ON002: an earlier attempt has committed. Anything else: not this time
        return 200 if error.pgcode == "ON002" else 503
    finally:
        db.close()


if __name__ == "__main__":
    with http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "3000"))), Invoices) as server:
        print("invoices: ready", flush=True)
        server.serve_forever()
