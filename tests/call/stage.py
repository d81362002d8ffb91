"""What `once call` is tried on: a backend that counts effects, a gate in front of it, and a connection that loses answers."""
import atexit
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "gateway"))
from brokers.process import free_port  # pylint: disable=wrong-import-position
from harness import environment  # pylint: disable=wrong-import-position
from waiting import until  # pylint: disable=wrong-import-position

ONCE = environment.ONCE
PATIENCE = 120
IS_ROOT = os.geteuid() == 0
USER = "www-data"
INDEX = tempfile.mkdtemp(prefix="once-call-", dir="/dev/shm")  # of the journals: memory
atexit.register(shutil.rmtree, INDEX, True)


class Handler(http.server.BaseHTTPRequestHandler):
    """/pay has an effect. /flaky answers 503 as often as the body's `fail` says before that. /lost has its effect, and cuts the
    connection the first time. /answer/NNN answers with that."""
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        backend = self.server.backend
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        intent = json.loads(body) if body.startswith(b"{") else {"id": body.decode()}
        with backend.lock:
            backend.requests.append((intent["id"], self.headers["Idempotency-Key"], self.headers["Authorization"]))
            tries = backend.tries[intent["id"]] = backend.tries.get(intent["id"], 0) + 1
            status = 201
            if self.path.startswith("/answer/"):
                status = int(self.path.rsplit("/", 1)[1])
            elif self.path == "/flaky" and tries <= intent["fail"]:
                status = 503
            else:
                backend.effects.append(intent["id"])
        if self.path == "/lost" and tries == 1:
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        self.answer(status, json.dumps({"id": intent["id"], "tries": tries}).encode())

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in self.server.backend.headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True

    def handle_error(self, *_):  # a client that was killed
        pass


class Backend:
    """With a context, of TLS: the handshake is made by the thread of the connection, at its first read."""

    def __init__(self, context=None):
        self.lock, self.requests, self.effects, self.tries, self.headers = threading.Lock(), [], [], {}, []
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.backend = self
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self.server.server_port}"
        if context:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def of(self, intent):
        """The requests of an intent: key and credentials."""
        return [request[1:] for request in self.requests if request[0] == intent]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Gate:
    """`once gate` before a backend, with a store of its own."""

    def __init__(self, backend, *options):
        self.port, self.directory = free_port(), tempfile.mkdtemp(prefix="once-call-", dir="/dev/shm")
        directory = self.directory
        self.store = f"local:{directory}/store?index={directory}/index"
        os.mkdir(f"{directory}/index")
        if IS_ROOT:
            os.chmod(directory, 0o755)
            for path in (directory, f"{directory}/index"):
                shutil.chown(path, USER, USER)
        shutil.copy(ONCE, f"{directory}/once")  # for a user that may not see the build directory
        self.log = open(f"{directory}/log", "wb")
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", "--", ONCE, "gate", "--nginx", environment.NGINX, "--module", environment.MODULE,
             "--upstream", backend.url, "--listen", f"127.0.0.1:{self.port}", "--store", self.store, "--scope", "none",
             "--set", "once_lease 1s", *options, *(["--user", USER] if IS_ROOT else [])],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, cwd=directory, env={**os.environ, "TMPDIR": directory})
        scheme = "https" if "--tls-cert" in options else "http"
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        until(self.listens, "the gate", PATIENCE)

    def listens(self):
        assert self.process.poll() is None, "the gate has ended"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def once(self, *words):
        """A command for its store, as the user that it belongs to."""
        become = ["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups", "--"] if IS_ROOT else []
        command = [*become, f"{self.directory}/once", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout

    def read_log(self):
        with open(f"{self.directory}/log", encoding="utf-8", errors="replace") as log:
            return log.read()

    def close(self):
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.log.close()
        shutil.rmtree(self.directory)


class Proxy:
    """Passes bytes on to a port. Of the first `losses` connections the answer is lost: the server has sent it."""

    def __init__(self, port, losses):
        self.target, self.losses, self.lost = port, losses, 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near = self.listener.accept()[0]
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.target))
            loses = self.lost < self.losses
            self.lost += loses
            threading.Thread(target=self.copy, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self.copy, args=(far, near, loses), daemon=True).start()

    @staticmethod
    def copy(source, target, loses):
        try:
            while data := source.recv(65536):
                if loses:
                    break
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()


class Caller:
    """`once call` with a journal of its own."""

    def __init__(self, directory):
        self.journal = f"{directory}/journal"

    def command(self, *words):
        return [ONCE, "call", "--journal", f"local:{self.journal}?index={INDEX}", *words]

    def run(self, *words, env=None, check=None):
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=PATIENCE, check=False,
                              env={**os.environ, "no_proxy": "*", **(env or {})})
        if check is not None:
            assert done.returncode == check, (done.returncode, done.stdout, done.stderr)
        return done
