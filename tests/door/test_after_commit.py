"""Whatever happens between backend and gateway once the backend has committed: the record stays as it was committed, byte for byte,
and the client is answered from it."""
import json
import os

import psycopg2
import pytest

from conftest import Stacks
from harness.upstream import Upstream
from harness.wait import Gate, until

HEADERS = json.dumps([["Content-Type", "application/json"], ["Location", "/payments/7"], ["X-Twice", "a"], ["X-Twice", "b"]])
BODY = b'{"payment": 7, "recorded": "by the backend"}'
LARGE = b"x" * (2 << 20)


class Paying(Upstream):
    """A backend that commits, and then does what a test wants."""

    def __init__(self):
        super().__init__()
        self.name_of_database = os.environ["ONCE_PG_URL"].replace("owner@", "shop@")
        self.after = None
        self.default = self.pay

    def transact(self, exchange, before_commit=None, commit=True):
        db = psycopg2.connect(self.name_of_database)
        cursor = db.cursor()
        order = json.loads(exchange.request.body)["order"]
        claim = exchange.request.headers.get("Once-Claim")
        cursor.execute("INSERT INTO accounts VALUES (%s, 12.50) ON CONFLICT (id) DO UPDATE SET spent = accounts.spent + 12.50",
                       ("a-" + order,))
        cursor.execute("INSERT INTO payments (idempotency_key, order_id, account, amount) VALUES (%s, %s, %s, 12.50)",
                       (exchange.request.key, order, "a-" + order))
        cursor.execute("SELECT once.complete(%s, 201, %s, %s)", (claim, HEADERS, BODY))
        if before_commit:
            before_commit()
        if commit:
            db.commit()
        db.close()

    def pay(self, exchange):
        self.transact(exchange)
        self.after(exchange)


def start(database, **rules):
    stacks, upstream = Stacks(database), Paying()
    yield stacks.gate(upstream, server="location = /status { once_status; }", **rules), upstream, database
    stacks.close()


@pytest.fixture(scope="module")
def paying(database):
    yield from start(database)


@pytest.fixture(scope="module")
def hasty(database):
    """Does not wait long for a backend, nor for a record that is held. Long enough for a commit on a busy machine."""
    yield from start(database, proxy_read_timeout="1500ms", once_store_timeout="500ms")


def row(database, key):
    """The record, all of it."""
    return database.rows("SELECT k::text FROM once.keys k WHERE key = convert_to(%s, 'UTF8')", key)


def check(paying, key, after, client=None):
    gate, upstream, database = paying
    committed = []

    def then(exchange):
        committed.append(row(database, key))
        after(exchange)

    upstream.after = then
    body = json.dumps({"order": key}).encode()
    answer = (client or gate.post)(key, body)
    if answer is not None:
        assert answer.status == 201 and answer.body == BODY, (answer.status, answer.body)
        assert answer.headers.get("Location") == "/payments/7" and answer.headers.all("X-Twice") == ["a", "b"]
    again = gate.post(key, body)
    assert again.status == 201 and again.body == BODY and again.headers.get("Idempotent-Replayed") == "true"
    assert database.payments(key) == 1 and upstream.count(key) == 1
    assert committed == [row(database, key)] and database.state(key) == ("completed", 1)


@pytest.mark.parametrize("status", [200, 201, 204, 302, 400, 401, 404, 408, 409, 429, 500, 501, 502, 503, 504])
def test_other_status(paying, status):
    """Judged as an answer, as a release or as doubt: the record knows better."""
    check(paying, f"status-{status}", lambda exchange: exchange.respond(status, [("X-Mine", "1")], b"the backend's own"))


@pytest.mark.parametrize("word", ["final", "retry", "unknown"])
@pytest.mark.parametrize("status", [201, 503])
def test_overruled(paying, word, status):
    check(paying, f"said-{word}-{status}",
          lambda exchange: exchange.respond(status, [("Once-Outcome", word), ("Once-Retain", "1")], b"other"))


@pytest.mark.parametrize("how", ["reset", "close", "half a head", "half a body", "half a large body", "no HTTP", "large"])
def test_lost_reply(paying, how):
    def after(exchange):
        if how == "reset":
            exchange.reset()
        elif how == "close":
            exchange.close()
        elif how == "half a head":
            exchange.send(b"HTTP/1.1 201 Crea")
            exchange.close()
        elif how == "half a body":
            exchange.begin(201, [("Content-Length", "100")])
            exchange.send(b"half")
            exchange.close()
        elif how == "half a large body":
            exchange.begin(201, [("Content-Length", str(len(LARGE)))])
            exchange.send(LARGE[:len(LARGE) // 2])
            exchange.close()
        elif how == "no HTTP":
            exchange.send(b"\0\1\2 nothing that a gateway knows\r\n\r\n")
            exchange.close()
        else:
            try:
                exchange.respond(201, [], LARGE)
            except OSError:  # the reader does not want all of it
                exchange.closed = True
    check(paying, "lost-" + how.replace(" ", "-"), after)


def test_silence(hasty):
    check(hasty, "silence", lambda exchange: exchange.wait_gone())


def test_forgotten(paying):
    """A backend that does not complete its record gets a warning; what it answers is recorded all the same."""
    gate, upstream, database = paying
    upstream.then(lambda exchange: exchange.respond(404, [], b"not even there"))
    assert gate.post("forgotten-404").status == 404
    assert not gate.nginx.log.find("without once.complete")
    upstream.then(lambda exchange: exchange.respond(201, [], b"paid, and not recorded"))
    assert gate.post("forgotten").body == b"paid, and not recorded"
    gate.nginx.log.wait(r"\[warn\].*answered 201 without once.complete\(\)")
    assert 'once_without_complete_total{route="/"} 1\n' in gate.request("GET", "/status").body.decode()
    assert database.state("forgotten") == ("completed", 1)


def test_client_leaves(paying):
    gate = paying[0]
    gone = Gate()

    def client(key, body):
        connection = gate.connect()
        connection.start("POST", "/", key, body)
        gone.wait_arrival()
        connection.reset()
        gone.open()

    def after(exchange):
        gone.pass_through()
        exchange.respond(500, [], b"nobody is there")

    check(paying, "leaves", after, client)


@pytest.mark.parametrize("commit", [True, False])
def test_gateway_gives_up_before_the_end(hasty, commit):
    """The gateway's doubt meets the open transaction: it waits for it, and loses. After a rollback it counts."""
    gate, upstream, database = hasty
    key, door = f"late-{commit}", Gate()

    def late(exchange):
        upstream.transact(exchange, door.pass_through, commit)
        exchange.wait_gone()

    upstream.then(late)
    body = json.dumps({"order": key}).encode()
    answer = gate.post(key, body)
    assert answer.status == 504, answer.body  # which promises nothing
    assert database.state(key) == ("pending", 1)
    door.wait_arrival()
    door.open()
    if commit:
        until(lambda: database.state(key) == ("completed", 1), "the commit")
        answer = gate.post(key, body)
        assert answer.status == 201 and answer.headers.get("Idempotent-Replayed") == "true"
        assert upstream.count(key) == 1
    else:
        upstream.after = lambda exchange: exchange.respond(201, [], b"own")
        until(lambda: database.end_lease(key) or gate.post(key, body).status == 201, "the second attempt")
        assert database.state(key) == ("completed", 2) and upstream.count(key) == 2
    assert database.payments(key) == 1
    gate.nginx.expect("has not taken the end of an operation")
