"""For each application a stack that its tests share: client, perhaps a gate (nginx), application, `once serve` in mode store, and
PostgreSQL, where the business table is."""
import glob
import http.client
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading

import psycopg2

from backends import Backend
from harness import environment
from harness.gateway import Gateway
from harness.http1 import Connection
from harness.message import Closed
from harness.nginx import die_with_parent
from harness.wait import PATIENCE, until
from brokers import free_port
from wire import Wire

HERE = os.path.dirname(os.path.abspath(__file__))

SOCKET = os.path.join(os.environ["ONCE_PG_DIR"], ".s.PGSQL.5432")
POOL = os.path.join(os.environ["ONCE_PG_DIR"], ".s.PGSQL.6432")
PLACE = os.path.join(environment.BUILD, "packages")
# No lease ends by itself while a busy machine takes its time: tests end them.
RULES = "once_recover %s; once_lease 60s; once_wait off; proxy_read_timeout 60s;"
JSON = [("Content-Type", "application/json"), ("X-Scope", "tenant-7")]  # a gate's scope, which is the applications' own
numbers = itertools.count(1)
SCHEMA = """
CREATE TABLE payments (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, order_id text NOT NULL, number bigint NOT NULL, note text);
CREATE ROLE shop LOGIN;
GRANT once_application TO shop;
GRANT SELECT, INSERT, UPDATE ON payments TO shop;
"""


class Database:
    """As its owner: what really happened."""

    def __init__(self):
        self.connection = psycopg2.connect(os.environ["ONCE_PG_URL"])
        self.connection.autocommit = True
        self.lock = threading.Lock()

    def rows(self, text, *values):
        with self.lock, self.connection.cursor() as cursor:
            cursor.execute(text, values or None)
            return cursor.fetchall() if cursor.description else []

    def one(self, text, *values):
        return self.rows(text, *values)[0][0]

    def payments(self, order):
        """How often it took effect."""
        return self.one("SELECT count(*) FROM payments WHERE order_id = %s", order)

    def end_lease(self, key):
        """As if its time were over: the next request may take the record over."""
        self.rows("UPDATE once.keys SET lease_until = least(lease_until, once._now_ms()) "
                  "WHERE key = convert_to(%s, 'UTF8') AND state IN (1, 4)", key)

    def state(self, key):
        found = self.rows("SELECT state, epoch FROM once.records WHERE key = %s", key)
        return found[0] if found else None


class Stack:
    """What both modes have. `via` names the variant."""
    gateway = None

    def __init__(self, app, via, database):
        self.app, self.via, self.database = app, via, database
        self.wire, self.link = Wire(SOCKET), Wire(None)
        self.directory = tempfile.mkdtemp(prefix="packages.")
        places = {"source": os.path.join(HERE, app["language"]), "build": os.path.join(PLACE, app["language"])}
        command = [part.format(**places) for part in app["command"]]
        self.backend = Backend(command, self.wire, self.link, **{**app.get("environment", {}), **self.variables()})
        self.fresh()

    def variables(self):
        return {}

    def start(self):
        self.backend.start()
        return self

    def behind(self, policy, store):
        if self.via == "gate":
            self.gateway = Gateway(self.directory, RULES % policy, upstream=self.link, store=store)
            self.gateway.start()
        return self

    def fresh(self):
        number = next(numbers)
        self.key, self.order = f"key-{number}", f"order-{number}"
        for wire in (self.wire, self.link):
            wire.said.clear()
        return self

    def body(self, **more):
        return json.dumps({"order": self.order, **more}).encode()

    def connect(self):
        address = (self.gateway.host, self.gateway.port) if self.gateway else ("127.0.0.1", self.link.port)
        return Connection(address, patience=60)

    def post(self, body=None, key=None, path="/payments"):
        with self.connect() as client:
            return client.request("POST", path, key or self.key, self.body() if body is None else body, JSON)

    def begin(self, *args, **options):
        """Posts in a thread of its own; gives a function that waits for the response."""
        answers = []

        def run():
            try:
                answers.append(self.post(*args, **options))
            except (Closed, OSError) as error:
                answers.append(error)

        thread = threading.Thread(target=run)
        thread.start()

        def finish():
            thread.join()
            return answers[0]

        return finish

    def retry(self, *args, **options):
        """As a client does: the same request until it is answered."""
        for _ in range(200):
            try:
                answer = self.post(*args, **options)
                if answer.status not in (409, 502, 503, 504):
                    return answer
            except (Closed, OSError):
                pass
            self.between_retries()
        raise AssertionError("never answered")

    def between_retries(self):
        pass

    def check_once(self, answer, status=201, effects=1):
        """One effect; one response, which everybody gets."""
        assert answer.status == status, (answer.status, answer.body, self.backend.lines[-20:])
        assert self.database.payments(self.order) == effects
        assert self.state() == "completed"

    def check_event(self, note):
        pass

    def close(self):
        try:
            if self.gateway:
                self.gateway.close()
        finally:
            self.backend.close()
            self.wire.close()
            self.link.close()
            shutil.rmtree(self.directory, ignore_errors=True)


class Transactional(Stack):
    """`via`: gate, or direct."""
    WAYS = ("direct", "gate")

    def __init__(self, app, via, database):
        super().__init__(app, via, database)
        self.begins = b"once.renew" if via == "gate" else b"once.claim"

    def start(self):
        return super().start().behind("transactional", os.environ["ONCE_PG_GATEWAY_URL"])

    def state(self):
        return (self.database.state(self.key) or [None])[0]

    def between_retries(self):
        """It does not wait for leases of the dead."""
        self.database.end_lease(self.key)

    def check_once(self, answer, status=201, effects=1):
        super().check_once(answer, status, effects)
        assert self.database.one("SELECT count(*) FROM once.outbox WHERE key = %s", self.order) == effects

    def check_event(self, note):
        event = bytes(self.database.one("SELECT payload FROM once.outbox WHERE key = %s", self.order))
        assert json.loads(event)["note"] == note


class Server:
    """`once serve` on a store. Over a path (UNIX), or over TCP with a token; the same after a restart."""

    def __init__(self, directory, store, path=None):
        self.token_file, self.process, self.lines = os.path.join(directory, "token"), None, []
        self.address = path or ("127.0.0.1", free_port())
        listen = f"unix:{path}" if path else f"127.0.0.1:{self.address[1]}"
        self.command = [environment.ONCE, "serve", store, "--listen", listen]
        self.command += [] if path else ["--token-file", self.token_file]

    @property
    def token(self):
        if not os.path.exists(self.token_file):
            return None
        with open(self.token_file, encoding="ascii") as file:
            return file.read().strip()

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, preexec_fn=die_with_parent)
        threading.Thread(target=lambda pipe: self.lines.extend(pipe), args=(self.process.stdout,), daemon=True).start()
        until(self.is_ready, lambda: "once serve being ready; it said " + "".join(self.lines))
        return self

    def is_ready(self):
        assert self.process.poll() is None, "".join(self.lines)
        try:
            return self.request("GET", "/ready")[0] == 200
        except OSError:
            return False

    def connect(self):
        if isinstance(self.address, tuple):
            return http.client.HTTPConnection(*self.address, timeout=PATIENCE)
        connection = http.client.HTTPConnection("localhost", timeout=PATIENCE)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(PATIENCE)
        connection.sock.connect(self.address)
        return connection

    def request(self, method, path, asked=None):
        connection = self.connect()
        try:
            headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
            body = None if asked is None else json.dumps(asked)
            connection.request(method, path, body, {**headers, **({"Content-Type": "application/json"} if body else {})})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def ask(self, path, **asked):
        status, body = self.request("POST", path, asked)
        assert status == 200, (path, status, body)
        return json.loads(body)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE)

    def close(self):
        if self.process:
            self.process.kill()
            self.process.wait(PATIENCE)


class Store(Stack):
    """`via`: the local store over a UNIX socket, or Redis over TCP with a token; gate: a gate on that Redis in front of it."""
    WAYS = ("local", "redis", "gate")

    def variables(self):
        path = os.path.join(self.directory, "once.sock") if self.via == "local" else None
        self.url = f"local:{self.directory}/store" if self.via == "local" else os.environ["ONCE_REDIS_URL"]
        self.server = Server(self.directory, self.url, path)
        self.serve = Wire(self.server.address, os.path.join(self.directory, "wire.sock") if path else None)
        return {"ONCE_SERVE": f"unix:{self.serve.name}" if path else f"http://{self.serve.name}", "LEASE": "60"}

    def start(self):
        self.server.start()
        if self.server.token:
            self.backend.variables["ONCE_TOKEN"] = self.server.token
        return super().start().behind("hold", self.url)

    def fresh(self):
        self.serve.said.clear()
        return super().fresh()

    def record(self):
        found = self.server.ask("/v1/get", scope="tenant-7", key=self.key)
        return found["record"] if found["found"] else None

    def state(self):
        return (self.record() or {"state": None})["state"]

    def close(self):
        super().close()
        self.serve.close()
        self.server.close()


def read_apps():
    for file in sorted(glob.glob(os.path.join(HERE, "*", "apps.json"))):
        with open(file, encoding="utf-8") as opened:
            for app in json.load(opened):
                yield {"mode": "transactional", **app, "language": os.path.basename(os.path.dirname(file))}


APPS = {app["name"]: app for app in read_apps()}
MODES = {"transactional": Transactional, "store": Store}


def chosen(*ways):
    """PACKAGES_SUITE chooses; PACKAGES_APPS, too, by name."""
    suite, names = os.environ.get("PACKAGES_SUITE"), os.environ.get("PACKAGES_APPS", "").split()
    return [(name, via) for name, app in APPS.items() for via in MODES[app["mode"]].WAYS
            if (not ways or via in ways) and suite in (None, app["suite"]) and (not names or name in names)
            and (via != "gate" or app["mode"] == "transactional" or app.get("gate"))]


def named(found):
    """The name of what `chosen` has found; pytest asks also when that is nothing."""
    return "-".join(found) if isinstance(found, tuple) else None
