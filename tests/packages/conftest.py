"""For each application of apps.json a stack that its tests share: client, perhaps a gate (nginx), application, PostgreSQL."""
import importlib.util
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg2
import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "door"))
spec = importlib.util.spec_from_file_location("gateway_fixtures", os.path.join(HERE, "..", "gateway", "conftest.py"))
fixtures = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fixtures)
globals().update({name: value for name, value in vars(fixtures).items() if name.startswith("pytest_")})

from backends import Backend  # noqa: E402
from harness import environment  # noqa: E402
from harness.gateway import Gateway  # noqa: E402
from harness.http1 import Connection  # noqa: E402
from harness.message import Closed  # noqa: E402
from wire import Wire  # noqa: E402

SOCKET = os.path.join(os.environ["ONCE_PG_DIR"], ".s.PGSQL.5432")
POOL = os.path.join(os.environ["ONCE_PG_DIR"], ".s.PGSQL.6432")
PLACE = os.path.join(environment.BUILD, "packages")
# No lease ends by itself while a busy machine takes its time: tests end them.
RULES = "once_recover transactional; once_lease 60s; once_wait off; proxy_read_timeout 60s;"
JSON = [("Content-Type", "application/json")]
numbers = itertools.count(1)
with open(os.path.join(HERE, "apps.json"), encoding="utf-8") as file:
    APPS = {app["name"]: app for app in json.load(file)}

COMMANDS = {  # by language
    "python": lambda program: [os.path.join(PLACE, "venv", "bin", "python"), os.path.join(HERE, "python", program)],
}
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


@pytest.fixture(scope="session")
def database():
    found = Database()
    found.rows(SCHEMA)
    subprocess.run([environment.ONCE, "stats", os.environ["ONCE_PG_GATEWAY_URL"]], check=True, stdout=subprocess.DEVNULL)
    yield found
    found.connection.close()


class Stack:
    """`via`: gate, or direct."""

    def __init__(self, app, via, database):
        self.app, self.via, self.database = app, via, database
        self.wire, self.link = Wire(SOCKET), Wire(None)
        command = COMMANDS[app["suite"].split("-")[0]](app["program"])
        self.backend = Backend(command, self.wire, self.link, **app.get("environment", {}))
        self.directory = tempfile.mkdtemp(prefix="packages.")
        self.gateway = None
        self.begins = b"once.renew" if via == "gate" else b"once.claim"
        self.fresh()

    def start(self):
        self.backend.start()
        if self.via == "gate":
            self.gateway = Gateway(self.directory, RULES, upstream=self.link, store=os.environ["ONCE_PG_GATEWAY_URL"])
            self.gateway.start()
        return self

    def fresh(self):
        number = next(numbers)
        self.key, self.order = f"key-{number}", f"order-{number}"
        self.wire.said.clear()
        self.link.said.clear()
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
        """As a client does: the same request until it is answered. It does not wait for leases of the dead."""
        for _ in range(200):
            try:
                answer = self.post(*args, **options)
                if answer.status not in (409, 502, 503, 504):
                    return answer
            except (Closed, OSError):
                pass
            self.database.end_lease(self.key)
        raise AssertionError("never answered")

    def check_once(self, answer, status=201, effects=1):
        """One effect; one response, which everybody gets."""
        assert answer.status == status, (answer.status, answer.body, self.backend.lines[-20:])
        assert self.database.payments(self.order) == effects
        assert self.database.state(self.key)[0] == "completed"
        assert self.database.one("SELECT count(*) FROM once.outbox WHERE key = %s", self.order) == effects

    def close(self):
        try:
            if self.gateway:
                self.gateway.close()
        finally:
            self.backend.close()
            self.wire.close()
            self.link.close()
            shutil.rmtree(self.directory, ignore_errors=True)


def chosen(*ways):
    """PACKAGES_SUITE chooses; PACKAGES_APPS, too, by name."""
    suite, names = os.environ.get("PACKAGES_SUITE"), os.environ.get("PACKAGES_APPS", "").split()
    return [(name, via) for name, app in APPS.items() for via in ways or ("direct", "gate")
            if suite in (None, app["suite"]) and (not names or name in names)]


@pytest.fixture(scope="session")
def stacks(database):
    made = {pair: Stack(APPS[pair[0]], pair[1], database) for pair in chosen()}
    errors = []
    with ThreadPoolExecutor(4) as starters:  # until the end: what a thread has started dies with it
        list(starters.map(lambda stack: stack.start(), made.values()))
        yield made
        for stack in made.values():
            try:
                stack.close()
            except AssertionError as error:
                errors.append(str(error))
    assert not errors, "\n".join(errors)


@pytest.fixture(params=chosen(), ids="-".join)
def stack(stacks, request):
    return stacks[request.param].fresh()


@pytest.fixture(params=chosen("gate"), ids="-".join)
def gate_stack(stacks, request):
    return stacks[request.param].fresh()


@pytest.fixture(params=chosen("direct"), ids="-".join)
def direct_stack(stacks, request):
    return stacks[request.param].fresh()
