"""What the tests of `once consume` are made of: a handler that remembers, and the program itself."""
import http.server
import json
import os
import signal
import ssl
import subprocess
import threading
import time
import urllib.request

import waiting

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.abspath(os.environ.get("ONCE_BUILD", os.path.join(SOURCE, "build")))
ONCE = os.path.join(BUILD, "once")
PATIENCE = float(os.environ.get("CONSUME_PATIENCE", "60"))  # on a loaded machine; more than that has failed


def until(condition, what, patience=PATIENCE):
    return waiting.until(condition, what, patience)


class Request:
    def __init__(self, headers, body):
        self.headers, self.body = headers, body
        self.key = headers["Idempotency-Key"]


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        """A consumer that was killed cut the connection."""


class Handler:
    """An HTTP server on loopback. `answer(request)` gives a status, or (status, headers), or None: the connection is cut without
    an answer. It runs on a thread of the request and may wait. `cut(request)` as above."""

    def __init__(self, answer=None, port=0, certificate=None, key=None):
        self.answer = answer or (lambda request: 204)
        self.lock = threading.Condition()
        self.requests = []   # as they came
        self.finished = []   # as they were answered
        self.running = self.most = 0
        self.leaving = threading.Event()
        self.server = Server(("127.0.0.1", port), self.make_class())
        self.port = self.server.server_address[1]
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self.port}/events"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def make_class(self):
        handler = self

        class Answering(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self):
                request = Request(self.headers, self.rfile.read(int(self.headers["Content-Length"])))
                handler.arrived(request)
                answer = handler.answer(request)
                handler.done(request)
                if answer is None:
                    self.close_connection = True
                    return
                status, headers = answer if isinstance(answer, tuple) else (answer, {})
                try:
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                except OSError:
                    self.close_connection = True

            def log_message(self, *_):
                pass

        return Answering

    def arrived(self, request):
        with self.lock:
            self.requests.append(request)
            self.running += 1
            self.most = max(self.most, self.running)
            self.lock.notify_all()

    def done(self, request):
        with self.lock:
            self.finished.append(request)
            self.running -= 1
            self.lock.notify_all()

    def wait(self, count, patience=PATIENCE):
        """Until that many requests have come."""
        with self.lock:
            if not self.lock.wait_for(lambda: len(self.requests) >= count, patience):
                raise AssertionError(f"{len(self.requests)} of {count} requests came")

    def keys(self):
        with self.lock:
            return [request.key for request in self.requests]

    def count(self, key):
        return self.keys().count(key)

    def close(self):
        self.leaving.set()
        self.server.shutdown()
        self.server.server_close()


class Consumer:
    """`once consume` as a process. Its log is read back as objects."""

    def __init__(self, directory, number, source, to, store, options=()):
        self.log = os.path.join(directory, f"consume.{number}.log")
        self.command = [ONCE, "consume", source, "--to", to, "--store", store, "--metrics", "127.0.0.1:0", *options]
        self.started = False
        self.go()

    def go(self):
        """Starts, or starts again."""
        from brokers import free_port
        self.port = free_port()
        self.command[self.command.index("--metrics") + 1] = f"127.0.0.1:{self.port}"
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", *self.command], stdin=subprocess.DEVNULL,
                                          stdout=log, stderr=log)
        return self

    def lines(self):
        found = []
        with open(self.log, "rb") as log:
            for line in log.read().split(b"\n"):
                if line.startswith(b"{"):
                    try:
                        found.append(json.loads(line))
                    except ValueError:  # cut by a kill
                        pass
        return found

    def said(self, message):
        return [line for line in self.lines() if message in line["message"]]

    def wait_said(self, message, count=1, patience=PATIENCE):
        return until(lambda: self.alive() and len(self.said(message)) >= count and self.said(message),
                     lambda: f"{count} times {message!r}\n{self.last_words()}", patience)

    def alive(self):
        assert self.child.poll() is None, f"it ended with {self.child.returncode}\n{self.last_words()}"
        return True

    def metrics(self):
        """{name: value}; empty while it does not serve."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as reply:
                text = reply.read().decode()
        except OSError:
            self.alive()
            return {}
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
                for line in text.splitlines() if line and not line.startswith("#")}

    def metric(self, name):
        return self.metrics().get("once_consume_" + name, 0)

    def wait_metric(self, name, value, patience=PATIENCE):
        """Until it is at least that."""
        return until(lambda: self.metric(name) >= value, lambda: f"{name} >= {value}, it is {self.metric(name)}", patience)

    def most_memory(self):
        """Bytes that it has had at once, so far."""
        with open(f"/proc/{self.child.pid}/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))

    def kill(self):
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()

    def terminate(self):
        self.child.send_signal(signal.SIGTERM)

    def stop(self, patience=PATIENCE):
        """Graceful; returns the exit code."""
        self.terminate()
        return self.child.wait(patience)

    def end(self):
        """However it was left. A crash by a signal that the test did not send is a failure."""
        crashed = self.child.poll()
        if crashed is None:
            self.child.send_signal(signal.SIGKILL)
            self.child.wait()
        assert crashed is None or crashed >= 0 or crashed in (-signal.SIGKILL, -signal.SIGTERM), \
            f"it crashed with {crashed}\n{self.last_words()}"

    def last_words(self):
        with open(self.log, "rb") as log:
            return log.read()[-6000:].decode(errors="replace")


def once(*arguments, code=0):
    """Another command of the program; returns its output, of a failure also what it complains about."""
    run = subprocess.run([ONCE, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120,
                         text=True)
    assert run.returncode == code, f"once {' '.join(arguments)}: {run.returncode}\n{run.stdout}{run.stderr}"
    return run.stdout if code == 0 else run.stdout + run.stderr


def event(number, key=None, **more):
    """A message for Kafka's produce: a CloudEvent."""
    identity = number if isinstance(number, str) else f"event-{number}"
    message = {"value": json.dumps({"event_id": identity, "type": "order", **more}).encode(),
               "headers": {"ce_id": identity, "ce_type": "order"}}
    if key is not None:
        message["key"] = key.encode()
    return message


def letter(number, key=None, **more):
    """The same for RabbitMQ's publish."""
    message = event(number, **more)
    if key is not None:
        message["headers"]["ce_partitionkey"] = key
    return {"body": message["value"], "headers": message["headers"]}
