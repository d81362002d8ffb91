"""A backend that does what a test tells it, byte by byte, and counts how often it was made to do something.

An execution is a request that arrived whole, counted by the key that the gateway forwarded. The default answer is a 201 whose
body names the execution, so that no two executions answer alike.
"""
import collections
import json
import os
import socket
import struct
import threading

from . import message
from .wait import PATIENCE, Timeout

REASONS = {200: "OK", 201: "Created", 204: "No Content", 304: "Not Modified", 404: "Not Found", 500: "Internal Server Error"}


def reset(sock):
    """Closes with RST: what was sent and not yet read by the peer may be lost, as when a machine dies."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


class Exchange:
    """One request on one connection, in the hands of a script: a function that is called with this."""

    def __init__(self, upstream, sock, request, execution):
        self.upstream, self.sock, self.request, self.execution = upstream, sock, request, execution
        self.closed = False

    def send(self, data):
        self.sock.sendall(data)

    def begin(self, status=201, headers=(), reason=None):
        """The status line and headers as given, and nothing more."""
        reason = REASONS.get(status, "Status") if reason is None else reason
        self.send(message.head(f"HTTP/1.1 {status} {reason}", headers))

    def respond(self, status=201, headers=(), body=None, chunked=False, trailers=(), piece=0):
        """A whole response, framed as its status and `chunked` demand."""
        if body is None:
            body = self.body()
        headers = list(headers)
        if status in (204, 304) or 100 <= status < 200:
            return self.begin(status, headers)
        if not any(name.lower() == "content-type" for name, _ in headers):
            headers.append(("Content-Type", "application/json"))
        if chunked:
            data = message.chunks(body, piece, trailers)
            headers.append(("Transfer-Encoding", "chunked"))
        else:
            data = b"" if self.request.method == "HEAD" else body
            headers.append(("Content-Length", len(body)))
        reason = REASONS.get(status, "Status")
        return self.send(message.head(f"HTTP/1.1 {status} {reason}", headers) + data)

    def body(self):
        """Says which execution this is: no two are alike."""
        text = {"execution": self.execution, "key": self.request.key, "path": self.request.target}
        return json.dumps(text).encode()

    def close(self):
        self.closed = True
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()

    def reset(self):
        self.closed = True
        reset(self.sock)

    def wait_gone(self):
        """Until the gateway closes this connection."""
        try:
            while self.sock.recv(4096):
                pass
        except OSError:
            pass
        self.closed = True


def default_script(exchange):
    exchange.respond()


class Upstream:
    def __init__(self, host="127.0.0.1", family=socket.AF_INET):
        self.listener = socket.socket(family)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(host if family == socket.AF_UNIX else (host, 0))
        self.listener.listen(512)
        self.name = f"unix:{host}" if family == socket.AF_UNIX else "%s:%d" % self.listener.getsockname()
        self.changed = threading.Condition()
        self.requests = []                      # whole ones, in the order of their arrival
        self.counts = collections.Counter()     # executions by key
        self.accepted = 0
        self.errors = []                        # of scripts
        self.scripts = {}                       # by path
        self.queue = collections.deque()        # for the next requests
        self.default = default_script
        self.on_accept = None                   # called with the socket before anything is read; true: it took it over
        self.on_head = None                     # called with the head alone and the socket; true: it took it over
        self.sockets = set()
        self.threads = []
        self.closing = False
        self.acceptor = threading.Thread(target=self.accept, daemon=True)
        self.acceptor.start()

    # ------------------------------------------------------------------------------------------------ for tests

    def on(self, path, script):
        self.scripts[path] = script

    def then(self, *scripts):
        """Scripts for the next requests, one each, whatever their path; afterwards it is as before."""
        self.queue.extend(scripts)

    def count(self, key):
        with self.changed:
            return self.counts[key]

    @property
    def total(self):
        with self.changed:
            return len(self.requests)

    def wait_count(self, key, count):
        with self.changed:
            if not self.changed.wait_for(lambda: self.counts[key] >= count, PATIENCE):
                raise Timeout(f"upstream executed {key!r} {self.counts[key]} times, not {count}")

    def wait_total(self, count):
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.requests) >= count, PATIENCE):
                raise Timeout(f"upstream got {len(self.requests)} requests, not {count}")

    def last(self):
        with self.changed:
            return self.requests[-1]

    def of(self, key):
        """The requests that came with this key."""
        with self.changed:
            return [request for request in self.requests if request.key == key]

    # ------------------------------------------------------------------------------------------------ its threads

    def accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            with self.changed:
                self.accepted += 1
                self.sockets.add(sock)
                self.changed.notify_all()
            thread = threading.Thread(target=self.serve, args=(sock,), daemon=True)
            self.threads.append(thread)
            thread.start()

    def serve(self, sock):
        try:
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.on_accept and self.on_accept(sock):
                return
            reader = message.Reader(sock)
            while self.serve_one(sock, reader):
                pass
        except (message.Closed, OSError):
            pass
        except Exception as error:  # noqa: a script's mistake must fail the test, not vanish with its thread
            if not self.closing:
                self.errors.append(repr(error))
        finally:
            with self.changed:
                self.sockets.discard(sock)
            sock.close()

    def serve_one(self, sock, reader):
        taken = []

        def before_body(request):
            if self.on_head and self.on_head(request, sock):
                taken.append(request)
                raise message.Closed

        request = reader.request(before_body)
        with self.changed:
            self.requests.append(request)
            self.counts[request.key] += 1
            execution = len(self.requests)
            script = self.queue.popleft() if self.queue else self.scripts.get(request.path, self.default)
            self.changed.notify_all()
        exchange = Exchange(self, sock, request, execution)
        script(exchange)
        if not exchange.closed and request.headers.get("Connection", "").lower() == "close":
            exchange.close()
        return not exchange.closed

    def stop_listening(self):
        """From now on connections are refused."""
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        self.acceptor.join(PATIENCE)

    def close(self):
        self.closing = True
        self.stop_listening()
        with self.changed:
            sockets = list(self.sockets)
        for sock in sockets:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self.threads:
            thread.join(PATIENCE)
        if self.name.startswith("unix:"):
            os.unlink(self.name[5:])
        assert not self.errors, f"an upstream script failed: {self.errors}"


def refusing_address(host="127.0.0.1"):
    """An address without a listener, and the socket that keeps it so."""
    sock = socket.socket()
    sock.bind((host, 0))
    return "%s:%d" % sock.getsockname(), sock


# ------------------------------------------------------------------------------------------------------- common scripts

def answer(status=201, headers=(), body=None, **options):
    """A whole response at once."""
    return lambda exchange: exchange.respond(status, headers, body, **options)


def slow(gate, **options):
    """The same, but not before the gate is opened."""
    def script(exchange):
        gate.pass_through()
        exchange.respond(**options)
    return script
