"""A handler of the campaign: one effect for each message, in the transaction that completes the claim. It can be killed.

    campaign_handler.py PORT DATABASE POLICY [unfenced]

The table has no unique key. Under retry, or unfenced, the effect is committed without once.complete, and the answer is all that the
consumer gets. Now and then the connection is cut before the effect, or after it.
"""
import os
import random
import socket
import sys
import threading

import psycopg2

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from campaign import number_of  # noqa: E402

PORT, DATABASE, POLICY = int(sys.argv[1]), sys.argv[2], sys.argv[3]
FENCED = POLICY == "transactional" and "unfenced" not in sys.argv[4:]
CUT = 0.05 if "unfenced" in sys.argv[4:] else 0.001
EFFECT = "BEGIN; INSERT INTO effects (event, key, number) VALUES (%(event)s, %(key)s, %(number)s);"
COMPLETE = "SELECT once.complete(%(claim)s, 200);" if FENCED else ""
TRIES = 4


def serve(sock):
    """Requests of one connection, one after the other."""
    choice, database, data = random.Random(os.urandom(8)), Database(), b""
    try:
        while True:
            while b"\r\n\r\n" not in data:
                piece = sock.recv(65536)
                if not piece:
                    return
                data += piece
            head, _, data = data.partition(b"\r\n\r\n")
            headers = {name.lower(): value.strip().decode() for name, _, value in
                       (line.partition(b":") for line in head.split(b"\r\n")[1:])}
            length = int(headers[b"content-length"])
            while len(data) < length:
                piece = sock.recv(1 << 20)
                if not piece:
                    return
                data += piece
            body, data = data[:length], data[length:]
            if choice.random() < CUT:
                return
            status = database.work({"event": headers[b"idempotency-key"], "key": headers[b"once-message-key"],
                                    "claim": headers[b"once-claim"], "number": number_of(body)})
            if choice.random() < CUT:
                return
            sock.sendall(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status)
    except OSError:
        pass
    finally:
        sock.close()
        database.close()


class Database:
    def __init__(self):
        self.connection = None

    def connect(self):
        if self.connection is None:
            self.connection = psycopg2.connect(DATABASE, connect_timeout=5)
            self.connection.autocommit = True
        return self.connection.cursor()

    def close(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    def work(self, values):
        """The whole transaction in one trip; repeated under the same claim where its end is not known."""
        for _ in range(TRIES):
            try:
                self.connect().execute(EFFECT + COMPLETE + "COMMIT", values)
                return 204
            except psycopg2.Error as error:
                self.close()
                if error.pgcode == "ON001":
                    return 503
                if error.pgcode == "ON002":
                    return 204  # it was committed
                if not FENCED:
                    return 500
        return 503


def main():
    listener = socket.create_server(("127.0.0.1", PORT), backlog=256)
    while True:
        sock, _ = listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=serve, args=(sock,), daemon=True).start()


main()
