"""Banks that were given up for dead and come back, transactions that are repeated, requests that come twice: the fence holds. And
without it the same tests see a double, so they could."""
import os

import pytest

import world as places
from http_client import Later, insist
from wire import Wire

BODY = {"from": "alice", "to": "bob", "amount": "10", "currency": "EUR"}


def stale_claims():
    """How often the server has refused one so far."""
    with open(os.path.join(places.DIR, "log"), encoding="utf-8", errors="replace") as log:
        return log.read().count("once: the claim is no longer yours")


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
    before = stale_claims()
    winner, late = freeze_and_overtake(world, machines, "after-claim", "stop-zombie")
    assert stale_claims() > before  # in its own transaction, which was rolled back
    assert late.essence() == winner.essence()  # its gate answers from the record
    assert world.transfers("stop-zombie") == 1 and world.balance("alice") == 90
    world.audit()


@pytest.mark.parametrize("gates", [True, False], ids=["gate", "direct"])
def test_a_zombie_in_the_middle_of_a_transaction_loses_it(worlds, gates):
    """PostgreSQL ends the transaction in which nothing happens, so that others get at the account; the zombie begins anew, and is
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
    first, second = send_twice(world, machines[0][1], "twice")
    assert first.status == 201 and second.status == 409 and second.problem == "already-completed"
    assert world.transfers("twice") == 1
    world.audit()


def test_without_the_fence_a_request_that_comes_twice_acts_twice(worlds):
    world, machines = pairs(worlds, fenced=False)
    first, second = send_twice(world, machines[0][1], "twice")
    assert first.status == second.status == 201 and world.transfers("twice") == 2


@pytest.mark.parametrize("gates", [True, False], ids=["gate", "direct"])
def test_a_commit_whose_reply_is_lost_is_not_done_again(worlds, tmp_path_factory, gates):
    world = worlds(lease="2s")
    directory = str(tmp_path_factory.mktemp("wire"))
    wire = Wire(directory, places.DIR)
    bank = world.bank("--database", world.url("teller").replace(places.DIR, directory), *([] if gates else ["--direct"]))
    front = world.gate(bank) if gates else bank
    world.account(bank, "alice", "100")
    world.account(bank, "bob")
    wire.lose = True
    first = world.ask(front, "POST", "/transfers", "alice", BODY, "lost")
    assert wire.lost.is_set()
    assert first.status == 201  # the gate's, or the bank's, from the record
    again = world.ask(front, "POST", "/transfers", "alice", BODY, "lost")
    assert again.replayed and again.essence() == first.essence()
    assert world.transfers("lost") == 1 and world.balance("alice") == 90
    world.audit()
    wire.close()
