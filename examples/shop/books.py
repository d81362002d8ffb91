#!/usr/bin/python3
"""The shop's books: a handler for once consume that owns a database. Each transfer becomes one row, in the same transaction as the
row of the inbox that says so: once.accept is true once for each event id, whatever is delivered, retried or killed.

    books.py IP:PORT DATABASE      the table has to be there: TABLE is how it is made
"""
import http.server
import json
import sys

import psycopg2

TABLE = """
CREATE TABLE IF NOT EXISTS public.books (
    number bigint GENERATED ALWAYS AS IDENTITY,
    event text NOT NULL,
    transfer text NOT NULL,
    payer text NOT NULL,
    amount numeric NOT NULL
)"""


def write(database, event, payload):
    """True: it is new."""
    connection = psycopg2.connect(database)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute("SELECT once.accept('books', %s)", (event,))
            new = cursor.fetchone()[0]
            if new:
                cursor.execute("INSERT INTO public.books (event, transfer, payer, amount) VALUES (%s, %s, %s, %s)",
                               (event, payload["transaction_id"], payload["from"], payload["amount"]))
            return new
    finally:
        connection.close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {}
        try:
            new = write(self.server.database, self.headers["ce-id"], json.loads(body))
            status = 201 if new else 200
        except psycopg2.Error:  # it may even have been committed: the next try finds out
            status, headers = 503, {"Once-Outcome": "retry", "Retry-After": "1"}
        except (KeyError, ValueError):
            status = 422
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def main():
    host, port = sys.argv[1].split(":")
    server = http.server.ThreadingHTTPServer((host, int(port)), Handler)
    server.daemon_threads = True
    server.database = sys.argv[2]
    print(f"books: listening on {sys.argv[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
