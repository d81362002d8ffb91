"""A stack for each test: client, gateway (nginx), backend (an example), PostgreSQL; and hands on both connections between them."""
import importlib.util
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import threading

import psycopg2
import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
PATH = os.path.join(HERE, "..", "gateway", "conftest.py")
spec = importlib.util.spec_from_file_location("gateway_fixtures", PATH)
fixtures = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fixtures)
globals().update({name: value for name, value in vars(fixtures).items() if not name.startswith("__")})
sys.path.insert(0, HERE)

from backends import EXAMPLES, Backend, command_of  # noqa: E402
from harness.gateway import Gateway  # noqa: E402
from harness.message import Closed  # noqa: E402
from wire import Wire  # noqa: E402

SOCKET = os.path.join(os.environ["ONCE_PG_DIR"], ".s.PGSQL.5432")
# No lease ends by itself while a busy machine takes its time: tests end them.
RULES = {"once_recover": "transactional", "once_lease": "20s", "once_wait": "2s", "proxy_read_timeout": "20s"}
numbers = itertools.count(1)


class Database:
    """As its owner: what really happened."""

    def __init__(self):
        self.connection = None
        self.connect()

    def connect(self):
        self.connection = psycopg2.connect(os.environ["ONCE_PG_URL"])
        self.connection.autocommit = True

    def rows(self, text, *values):
        with self.connection.cursor() as cursor:
            cursor.execute(text, values or None)
            return cursor.fetchall() if cursor.description else []

    def one(self, text, *values):
        return self.rows(text, *values)[0][0]

    def payments(self, order):
        """How often it was paid."""
        return self.one("SELECT count(*) FROM payments WHERE order_id = %s", order)

    def spent(self, account):
        return str(self.one("SELECT coalesce(sum(spent), 0) FROM accounts WHERE id = %s", account))

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
    with open(os.path.join(EXAMPLES, "schema.sql"), encoding="utf-8") as file:
        found.rows(file.read())
    found.rows("CREATE ROLE shop LOGIN; GRANT once_application TO shop;"
               "GRANT SELECT, INSERT, UPDATE ON accounts, payments, payouts TO shop;"
               "CREATE ROLE sleeper LOGIN IN ROLE shop; ALTER ROLE sleeper SET idle_in_transaction_session_timeout = '300ms'")
    subprocess.run([fixtures.environment.ONCE, "stats", os.environ["ONCE_PG_GATEWAY_URL"]], check=True, stdout=subprocess.DEVNULL)
    yield found
    found.connection.close()


class Stack:
    def __init__(self, gateway, backend, wire, link, database):
        self.gateway, self.backend, self.wire, self.link, self.database = gateway, backend, wire, link, database
        self.path = "/payments"
        self.fresh()

    def fresh(self):
        """Unused names."""
        number = next(numbers)
        self.key, self.order, self.account = f"key-{number}", f"order-{number}", f"account-{number}"
        self.wire.said.clear()
        self.link.said.clear()
        return self

    def body(self, amount="12.50", order=None):
        return ('{"order": "%s", "account": "%s", "amount": "%s"}' % (order or self.order, self.account, amount)).encode()

    def pay(self, key=None, amount="12.50", order=None):
        return self.gateway.post(key or self.key, self.body(amount, order), self.path)

    def start(self):
        """Pays in a thread of its own; gives a function that waits for the answer."""
        answers = []

        def run():
            try:
                answers.append(self.pay())
            except (Closed, OSError) as error:  # the gateway is gone
                answers.append(error)

        thread = threading.Thread(target=run)
        thread.start()

        def finish():
            thread.join()
            return answers[0]

        return finish

    def retry(self, *what):
        """As a client does: the same request until there is an answer. It does not wait for leases of the dead."""
        for _ in range(40):
            answer = self.pay(*what)
            if answer.status not in (409, 502, 503, 504) or b"this order" in answer.body:
                return answer
            self.database.end_lease(what[0] if what else self.key)
        raise AssertionError(f"never answered: {answer.status} {answer.body}")

    def check_paid_once(self, answer, key=None):
        """One effect; one response, which everybody gets."""
        assert answer.status == 201, (answer.status, answer.body)
        assert self.database.payments(self.order) == 1
        assert self.database.spent(self.account) == "12.50"
        assert self.database.state(key or self.key)[0] == "completed"
        again = self.pay(key)
        assert again.status == 201 and again.body == answer.body
        assert again.headers.get("Idempotent-Replayed") == "true"


class Stacks:
    """Made when they are needed, one for each language and set of rules, and used by one test after the other."""

    def __init__(self, database):
        self.database, self.made, self.closing = database, {}, []

    def gate(self, link, workers=1, server="", **rules):
        directory = tempfile.mkdtemp(prefix="door.")
        self.closing.append(lambda: shutil.rmtree(directory, ignore_errors=True))
        text = " ".join(f"{name} {value};" for name, value in (RULES | rules).items())
        gate = Gateway(directory, text, workers=workers, upstream=link, server=server,
                       store=os.environ["ONCE_PG_GATEWAY_URL"])
        self.closing.append(gate.close)
        return gate.start()

    def start(self, language, variables, **rules):
        wire, link = Wire(SOCKET), Wire(None)
        backend = Backend(command_of(language), wire, link, **variables)
        self.closing += [wire.close, link.close, backend.close]
        backend.start()
        return Stack(self.gate(link, **rules), backend, wire, link, self.database)

    def start_beside(self, stack):
        """A second backend, which gets what comes from now on."""
        backend = Backend(stack.backend.command, stack.wire, stack.link)
        self.closing.append(backend.close)
        return backend.start()

    def get(self, language="c", **rules):
        name = (language, tuple(sorted(rules.items())))
        if name not in self.made:
            self.made[name] = self.start(language, {}, **rules)
        return self.made[name].fresh()

    def close(self):
        errors = []
        for close in reversed(self.closing):
            try:
                close()
            except AssertionError as error:
                errors.append(str(error))
        assert not errors, "\n".join(errors)


@pytest.fixture(scope="session")
def stacks(database):
    made = Stacks(database)
    yield made
    made.close()


@pytest.fixture
def stack(stacks):
    return stacks.get
