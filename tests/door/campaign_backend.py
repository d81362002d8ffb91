"""A backend of the campaign: one effect for each request, in the transaction that completes the claim. It can be killed.

    campaign_backend.py PORT DATABASE [unfenced]

The table has no unique key: only once stands between a repeated request and a second row. Unfenced, the effect is committed without
once.complete, and the gate records the answer as it comes.
"""
import os
import random
import socket
import sys
import threading

import psycopg2

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from campaign import odd  # noqa: E402

PORT, DATABASE, FENCED = int(sys.argv[1]), sys.argv[2], "unfenced" not in sys.argv[3:]
THREADS, TRIES = 12, 4
LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
RENEW = "SELECT once.renew(%(claim)s);"
EFFECT = "INSERT INTO effects (key, asked, answer) VALUES (%(key)s, %(asked)s, %(answer)s);"
COMPLETE = "SELECT once.complete(%(claim)s, 201, '{\"Content-Type\": \"application/octet-stream\"}', %(answer)s);"
SAVED = "SAVEPOINT inside;" + RENEW + EFFECT + COMPLETE + "ROLLBACK TO inside;"  # what was undone did not happen


def read(sock):
    """Claim, key and body of a request; None if it ends early."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    headers = {}
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip().decode()
    pieces, missing = [body], int(headers.get(b"content-length", 0)) - len(body)
    while missing > 0:
        piece = sock.recv(1 << 20)
        if not piece:
            return None
        pieces.append(piece)
        missing -= len(piece)
    return headers.get(b"once-claim"), headers[b"idempotency-key"], b"".join(pieces)


class Worker(threading.Thread):
    def __init__(self, listener, number):
        super().__init__(daemon=True)
        self.listener, self.level, self.database = listener, LEVELS[number % len(LEVELS)], None
        self.choice = random.Random(os.urandom(8))

    def run(self):
        while True:
            sock, _ = self.listener.accept()
            try:
                asked = read(sock)
                if asked:
                    self.answer(sock, *self.work(*asked))
            except OSError:
                pass
            sock.close()

    @staticmethod
    def answer(sock, status, body):
        sock.sendall(b"HTTP/1.1 %d X\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
                     % (status, len(body)) + body)

    def connect(self):
        if self.database is None or self.database.closed:
            self.database = psycopg2.connect(DATABASE, connect_timeout=5)
            self.database.set_session(isolation_level=self.level)
        return self.database

    def work(self, claim, key, asked):
        """As docs/transactional.md says: repeated where it may be repeated, answered from the record where it is there."""
        for _ in range(TRIES):
            try:
                with self.connect() as connection, connection.cursor() as cursor:
                    return self.effect(cursor, claim, key, asked)
            except psycopg2.Error as error:
                if error.pgcode == "ON001":
                    return 503, b"overtaken"
                if error.pgcode == "ON002":
                    return self.recorded(claim)
                if self.database is not None and error.pgcode not in ("40001", "40P01"):
                    self.database.close()
        return 503, b"not now"

    def effect(self, cursor, claim, key, asked):
        answer = b"%s %016x\n" % (key.encode(), self.choice.getrandbits(64)) + odd(int(key.rpartition("-")[2]))
        text = RENEW + EFFECT + COMPLETE if FENCED else EFFECT
        if FENCED and self.choice.random() < 0.05:
            text = SAVED + text
        cursor.execute(text, {"claim": claim, "key": key, "asked": asked, "answer": answer})
        return 201, answer

    def recorded(self, claim):
        try:
            with self.connect() as connection, connection.cursor() as cursor:
                cursor.execute("SELECT status, body FROM once.recorded(%s)", (claim,))
                status, body = cursor.fetchone()
                return status, bytes(body)
        except psycopg2.Error:
            return 503, b"not now"


def main():
    listener = socket.create_server(("127.0.0.1", PORT), backlog=256)
    workers = [Worker(listener, number) for number in range(THREADS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


main()
