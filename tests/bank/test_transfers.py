"""POST /transfers, with the gate in front and without it."""
import http.client
import json
import signal

import pytest

import world as places
from http_client import Later, insist


def transfer(source, target, amount, currency="EUR", **more):
    return {"from": source, "to": target, "amount": amount, "currency": currency, **more}


@pytest.fixture(scope="module", params=["direct", "gate"])
def there(lasting, request):
    """A bank with accounts, and the program to ask: itself, or the gate before it."""
    world = lasting()
    world.kind = request.param
    world.front = world.main = world.bank(*(["--direct"] if request.param == "direct" else []))
    if request.param == "gate":
        world.front = world.gate(world.main)
    for name in ("alice", "bob", "carol"):
        world.account(world.main, name, "1000")
    world.account(world.main, "yuki", "5000", "JPY")
    world.account(world.main, "sato", None, "JPY")
    yield world
    world.audit()


def post(world, key, body, customer="alice"):
    return world.ask(world.front, "POST", "/transfers", customer, body, key)


def test_money_moves_once(there):
    body = transfer("alice", "bob", "10.5", reference="invoice 7")
    alice, bob = there.balance("alice"), there.balance("bob")
    first = post(there, "once", body)
    assert first.status == 201 and not first.replayed
    assert first.json == {"transaction_id": first.json["transaction_id"], "status": "completed", "amount": "10.50",
                          "currency": "EUR", "created_at": first.json["created_at"]}
    for _ in range(3):
        again = post(there, "once", body)
        assert again.replayed and again.essence() == first.essence()
    assert (alice - there.balance("alice"), there.balance("bob") - bob) == (10.5, 10.5)
    assert there.transfers("once") == 1
    shown = there.ask(there.front, "GET", first.headers["Location"], "alice")
    assert shown.status == 200 and shown.body == first.body
    assert there.ask(there.front, "GET", first.headers["Location"], "bob").status == 404
    event = there.rows("SELECT convert_from(payload, 'UTF8'), type FROM once.outbox o JOIN once.records r ON r.id = o.record "
                       "WHERE r.key = 'once'")
    assert len(event) == 1 and event[0][1] == "transfer.completed"
    assert json.loads(event[0][0])["transaction_id"] == first.json["transaction_id"]


def test_a_key_belongs_to_its_customer(there):
    assert post(there, "shared", transfer("alice", "bob", "1")).status == 201
    assert post(there, "shared", transfer("bob", "alice", "2"), "bob").status == 201
    assert there.transfers("shared") == 2


def test_a_key_is_for_one_request(there):
    assert post(there, "two", transfer("alice", "bob", "1")).status == 201
    other = post(there, "two", transfer("alice", "bob", "2"))
    assert other.status == 422 and other.problem == "key-reused"
    assert there.transfers("two") == 1


@pytest.mark.parametrize("problem, body", [
    ("insufficient-funds", transfer("alice", "bob", "999999")),
    ("unknown-account", transfer("alice", "nobody", "1")),
    ("unknown-account", transfer("nobody", "alice", "1")),
    ("unknown-account", transfer("bob", "alice", "1")),  # not hers
    ("unknown-account", transfer("alice", "@cash-EUR", "1")),  # the bank's own
    ("same-account", transfer("alice", "alice", "1")),
    ("other-currency", transfer("alice", "yuki", "1")),
    ("other-currency", transfer("alice", "bob", "1", "USD")),
    ("unknown-currency", transfer("alice", "bob", "1", "ABC")),
    ("unknown-currency", transfer("alice", "bob", "1", "eur")),
    ("bad-amount", transfer("alice", "bob", "0")),
    ("bad-amount", transfer("alice", "bob", "0.00")),
    ("bad-amount", transfer("alice", "bob", "-1")),
    ("bad-amount", transfer("alice", "bob", "1.001")),
    ("bad-amount", transfer("alice", "bob", "1.5", "JPY")),
    ("bad-amount", transfer("alice", "bob", "1e2")),
    ("bad-amount", transfer("alice", "bob", "01")),
    ("bad-amount", transfer("alice", "bob", "1.")),
    ("bad-amount", transfer("alice", "bob", ".5")),
    ("bad-amount", transfer("alice", "bob", "1" * 16)),
    ("bad-amount", transfer("alice", "bob", 1.5)),
    ("bad-account", transfer("alice", "bob/../x", "1")),
    ("bad-account", transfer("alice", None, "1")),
    ("bad-text", transfer("alice", "bob", "1", reference="x" * 141)),
    ("not-json", "{"),
    ("not-json", "[]"),
    ("not-json", '{"from":"alice","from":"bob"}'),
])
def test_a_refusal_is_final(there, problem, body):
    """It says why, is recorded, and stays the answer also when it would go well now."""
    key = f"refused-{problem}-{abs(hash(str(body)))}"
    first = post(there, key, body)
    assert first.status == (400 if problem == "not-json" else 422) and first.problem == problem
    assert first.headers["Content-Type"] == "application/problem+json"
    assert first.json["retryable"] is False
    again = post(there, key, body)
    assert again.replayed and again.essence() == first.essence()
    assert there.transfers(key) == 0


def test_a_refusal_stays_when_money_has_come(there):
    there.account(there.main, "poor")
    body = transfer("poor", "bob", "5")
    assert post(there, "poor-1", body, "poor").problem == "insufficient-funds"
    there.fund(there.main, "poor", "5")
    assert post(there, "poor-1", body, "poor").problem == "insufficient-funds"
    assert post(there, "poor-2", body, "poor").status == 201


def test_digits_are_those_of_the_currency(there):
    assert post(there, "yen", transfer("yuki", "sato", "700", "JPY"), "yuki").json["amount"] == "700"
    assert there.ask(there.front, "GET", "/accounts/sato", "sato").json["balance"] == "700"


def test_a_limit_is_kept(there):
    there.account(there.main, "careful", "100")
    tag = there.ask(there.front, "GET", "/accounts/careful", "careful").headers["ETag"]
    changed = there.ask(there.front, "PUT", "/accounts/careful", "careful",
                        {"holder": "careful", "currency": "EUR", "limit": "20"}, headers={"If-Match": tag})
    assert changed.status == 200
    assert post(there, "limit-1", transfer("careful", "bob", "20.01"), "careful").problem == "over-limit"
    assert post(there, "limit-2", transfer("careful", "bob", "20.00"), "careful").status == 201


def test_without_a_key_or_a_customer_nothing_is_done(there):
    body = transfer("alice", "bob", "1")
    before = there.balance("alice")
    assert there.ask(there.front, "POST", "/transfers", "alice", body).status == 400
    assert there.ask(there.main, "POST", "/transfers", "alice", body).problem == "key-invalid"
    assert there.ask(there.main, "POST", "/transfers", None, body, "nobody").problem == "customer-missing"
    assert there.ask(there.main, "POST", "/transfers", "alice", "x" * 70000, "big").status == 413
    assert there.balance("alice") == before


@pytest.mark.parametrize("name, value", [("Bank-Customer", "bob"), ("Bank-Customer", "alice"), ("Once-Claim", "A" * 70)])
def test_who_asks_is_said_once(there, name, value):
    """A gateway may read the first of two, and the bank the second: then they would not mean the same customer, or claim."""
    body = json.dumps(transfer("alice", "bob", "1"))
    connection = http.client.HTTPConnection(there.host, there.main.port, timeout=30)
    connection.putrequest("POST", "/transfers")
    for line in [("Bank-Customer", "alice"), ("Once-Claim", "B" * 70), ("Idempotency-Key", "said-twice"), (name, value),
                 ("Content-Length", str(len(body)))]:
        connection.putheader(*line)
    connection.endheaders(body.encode())
    response = connection.getresponse()
    assert response.status == 400 and b"bad-request" in response.read()
    connection.close()
    assert there.transfers("said-twice") == 0


def test_duplicates_at_once_move_money_once(there):
    body = transfer("alice", "bob", "1")
    for number in range(3):
        key = f"burst-{number}"
        answers = [Later(insist, lambda key=key: post(there, key, body)) for _ in range(8)]
        answers = [answer.get() for answer in answers]
        assert {answer.status for answer in answers} == {201}
        assert len({answer.body for answer in answers}) == 1
        assert there.transfers(key) == 1


def test_both_directions_at_once_never_wait_for_each_other(there):
    """Without locks some meet at the same entry, without an order of locks in deadlocks."""
    def run(source, target, name):
        for number in range(25):
            answer = post(there, f"cross-{name}-{number}", transfer(source, target, "1"), source)
            assert answer.status == 201, answer  # the first time: no retry was needed
    before = places.server_said("deadlock detected")
    pairs = [("bob", "carol"), ("carol", "bob"), ("bob", "carol"), ("carol", "bob")]
    for thread in [Later(run, *pair, number) for number, pair in enumerate(pairs)]:
        thread.get()
    assert places.server_said("deadlock detected") == before


def test_a_key_whose_record_is_gone_still_moves_money_once(there):
    """The last line of defence, UNIQUE (customer, idempotency_key): it also gives the answer of then."""
    body = transfer("alice", "bob", "3")
    first = post(there, "forgotten", body)
    with there.connect() as connection, connection.cursor() as cursor:
        cursor.execute("DELETE FROM once.keys WHERE key = 'forgotten'")
    again = post(there, "forgotten", body)
    assert first.status == 201 and again.essence() == first.essence() and not again.replayed
    with there.connect() as connection, connection.cursor() as cursor:
        cursor.execute("DELETE FROM once.keys WHERE key = 'forgotten'")
    assert post(there, "forgotten", transfer("alice", "bob", "4")).problem == "key-reused"
    assert there.transfers("forgotten") == 1


def test_the_ledger_cannot_be_changed(there):
    for statement in ("UPDATE bank.ledger SET amount = 1", "DELETE FROM bank.ledger", "TRUNCATE bank.ledger",
                      "INSERT INTO bank.ledger SELECT 'alice', max(number) + 1, 'made-up', 1, 1 FROM bank.ledger"):
        with pytest.raises(Exception, match="append-only|come to zero"):
            there.rows(statement)


def test_paths_and_methods(there):
    assert there.ask(there.front, "GET", "/nothing").status == 404
    wrong = there.ask(there.front, "DELETE", "/accounts/alice", "alice")
    assert wrong.status == 405 and wrong.headers["Allow"] == "GET, PUT"
    assert there.ask(there.front, "GET", "/health").json == {"status": "ok"}
    assert there.ask(there.front, "GET", "/transfers/x", "alice").status == 404


def test_a_forged_claim_moves_nothing(there):
    """A client that reaches the bank itself with a made-up claim is refused; without a gate the claim is not even read."""
    body = transfer("alice", "bob", "1")
    answer = there.ask(there.main, "POST", "/transfers", "alice", body, f"forged-{there.kind}", {"Once-Claim": "A" * 70})
    if there.kind == "gate":
        assert answer.status == 409 and answer.problem == "stale-claim" and there.transfers("forged-gate") == 0
    else:
        assert answer.status == 201


def test_it_ends_when_requests_have(worlds):
    """SIGTERM while a transfer is under way: it is finished and answered first."""
    world = worlds()
    bank = world.bank("--direct")
    world.account(bank, "alice", "10")
    world.account(bank, "bob")
    world.stops.hold("before-commit", "stop-term")
    answer = Later(world.ask, bank, "POST", "/transfers", "alice", transfer("alice", "bob", "1"), "stop-term")
    world.stops.reached("before-commit", "stop-term")
    bank.process.send_signal(signal.SIGTERM)
    with pytest.raises(OSError):  # the listener is gone
        while True:
            world.ask(bank, "GET", "/health")
    world.stops.go("before-commit", "stop-term")
    assert answer.get().status == 201
    assert bank.ended() == 0
    world.audit()
