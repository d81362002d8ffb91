"""Banks that were given up for dead and come back, transactions that are repeated, requests that come twice: the fence holds. And
without it the same tests see a double, so they could."""
import pytest

import world as places
from http_client import Later, insist
from provider import Provider
from wire import Wire

BODY = {"from": "alice", "to": "bob", "amount": "10", "currency": "EUR"}
STALE, ALREADY = "once: the claim is no longer yours", "once: this claim is completed already"


def pairs(worlds, gates=True, **options):
    """Two banks, each behind a gate of its own, on one database: two machines."""
    world = worlds(lease="1s", **options)
    banks = [world.bank(*([] if gates else ["--direct"])) for _ in range(2)]
    world.account(banks[0], "alice", "100")
    world.account(banks[0], "bob")
    return world, [[world.gate(bank), bank] if gates else [bank, bank] for bank in banks]


def freeze_and_overtake(world, machines, place, key):
    """One machine stops at the place; another takes over and answers; then the first goes on. Both answers."""
    (front, bank), (other, _) = machines
    world.stops.hold(place, key)
    slow = Later(insist, lambda: world.ask(front, "POST", "/transfers", "alice", BODY, key))
    world.stops.reached(place, key)
    for program in {front, bank}:
        program.freeze()
    world.stops.go(place, key)
    winner = insist(lambda: world.ask(other, "POST", "/transfers", "alice", BODY, key))
    assert winner.status == 201 and world.transfers(key) == 1
    for program in {front, bank}:
        program.thaw()
    return winner, slow.get()


def test_a_zombie_cannot_commit(worlds):
    world, machines = pairs(worlds)
    before = places.server_said(STALE)
    winner, late = freeze_and_overtake(world, machines, "after-claim", "stop-zombie")
    assert places.server_said(STALE) > before  # in its own transaction, which was rolled back
    assert late.essence() == winner.essence()  # its gate answers from the record
    assert world.transfers("stop-zombie") == 1 and world.balance("alice") == 90
    world.audit()


@pytest.mark.parametrize("gates", [True, False], ids=["gate", "direct"])
def test_a_zombie_in_the_middle_of_a_transaction_loses_it(worlds, gates):
    """PostgreSQL ends the transaction in which nothing happens, so that others get at the account; the zombie starts over, and is
    refused, or told what was done."""
    world, machines = pairs(worlds, gates, idle_ms=500)
    winner, late = freeze_and_overtake(world, machines, "before-commit", "stop-middle")
    assert late.essence() == winner.essence()
    assert world.transfers("stop-middle") == 1 and world.balance("alice") == 90
    world.audit()


def test_without_the_fence_a_zombie_pays_twice(worlds):
    """The same as the first test, which would notice."""
    world, machines = pairs(worlds, fenced=False)
    freeze_and_overtake(world, machines, "after-claim", "stop-zombie")
    assert world.transfers("stop-zombie") == 2 and world.balance("alice") == 80
    with pytest.raises(AssertionError, match="a double"):
        world.audit()


def send_twice(world, bank, key):
    """The same request with the same claim, twice at once."""
    with world.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT claim FROM once.claim('alice', %s, 'POST', '/transfers')", (key,))
        claim = cursor.fetchone()[0]
    answers = [Later(world.ask, bank, "POST", "/transfers", "alice", BODY, key, {"Once-Claim": claim}) for _ in range(2)]
    return sorted((answer.get() for answer in answers), key=lambda answer: answer.status)


def test_a_request_that_comes_twice_acts_once(worlds):
    world, machines = pairs(worlds)
    before = places.server_said(ALREADY)
    first, second = send_twice(world, machines[0][1], "twice")
    assert places.server_said(ALREADY) == before + 1
    assert first.essence() == second.essence() and first.status == 201
    assert {first.replayed, second.replayed} == {True, False}  # refused (ON002), and told what was recorded
    assert world.transfers("twice") == 1
    world.audit()


def test_without_the_fence_a_request_that_comes_twice_acts_twice(worlds):
    world, machines = pairs(worlds, fenced=False)
    first, second = send_twice(world, machines[0][1], "twice")
    assert first.status == second.status == 201 and world.transfers("twice") == 2


@pytest.fixture(params=["gate", "direct"])
def far(worlds, request, tmp_path_factory):
    """A bank, with or without a gate, with a bad network between it and PostgreSQL."""
    provider = Provider()
    world = worlds(lease="10s", provider=provider.url)
    directory = str(tmp_path_factory.mktemp("wire"))
    world.wire, world.teller = Wire(directory, places.DIR), provider
    options = [] if request.param == "gate" else ["--direct"]
    bank = world.bank("--database", world.url("teller").replace(places.DIR, directory), *options)
    world.front = world.gate(bank) if request.param == "gate" else bank
    world.account(bank, "alice", "100")
    world.account(bank, "bob")
    yield world
    world.audit()
    world.wire.close()
    provider.close()


def test_a_commit_whose_reply_is_lost_is_not_done_again(far):
    far.wire.lose = 1
    first = far.ask(far.front, "POST", "/transfers", "alice", BODY, "lost")
    assert far.wire.lost.is_set()
    assert first.status == 201  # the gate's, or the bank's, from the record
    again = far.ask(far.front, "POST", "/transfers", "alice", BODY, "lost")
    assert again.replayed and again.essence() == first.essence()
    assert far.transfers("lost") == 1 and far.balance("alice") == 90


@pytest.mark.parametrize("number", [1, 2], ids=["reserve", "settle"])
def test_nor_is_one_of_a_payout(far, number):
    body = {"account": "alice", "destination": "DE02 1203", "amount": "10", "currency": "EUR"}
    far.wire.lose = number
    first = far.ask(far.front, "POST", "/payouts", "alice", body, "lost")
    assert first.status == 201 and far.wire.lost.is_set()
    again = far.ask(far.front, "POST", "/payouts", "alice", body, "lost")
    assert again.replayed and again.essence() == first.essence()
    assert len(far.teller.paid) == 1 and far.balance("alice") == 90 and far.balance("@reserved-EUR") == 0
