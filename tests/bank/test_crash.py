"""The crash matrix: kill -9 of {the bank, a gateway worker, the whole gate, a process of PostgreSQL, all of PostgreSQL} while one
request is at each of {after claim, before commit, after commit before the response, after the response before the gateway
recorded}, under load. Afterwards: no money made or lost, every acknowledged key in the ledger once, replays byte-equal. A bank that
outlives its gate goes on when another try has been answered: without the fence that is a double.

    CRASH_ROUNDS   how often each of them is killed (1)
    CRASH_SEED     of the load
"""
import os
import random

import pytest

import world as places
from harness.wait import until
from http_client import Later, insist
from load import Load
from test_zombie import STALE

PLACES = ["after-claim", "before-commit", "after-commit", "after-response"]
ROUNDS = int(os.environ.get("CRASH_ROUNDS", "1"))
SEED = int(os.environ.get("CRASH_SEED", random.randrange(1 << 30)))


@pytest.fixture(scope="module")
def there(lasting):
    world = lasting(lease="2s")
    world.main = world.bank()
    world.front = world.gate(world.main)
    for place in PLACES:
        world.account(world.main, f"payer-{place}", "100")
    world.account(world.main, "payee")
    world.load = Load(world, lambda: world.front, SEED)
    print(f"seed {SEED}")
    yield world
    world.load.end()
    print("acknowledged, refused, never heard of:", world.load.check())
    world.audit()


def body_of(place):
    return {"from": f"payer-{place}", "to": "payee", "amount": "1.00", "currency": "EUR"}


def post(world, place, key):
    return world.ask(world.front, "POST", "/transfers", f"payer-{place}", body_of(place), key)


def hold_the_record(world, key):
    """A transaction that has the record: the gateway cannot record the response that it is about to get."""
    holder = world.connect()
    with holder.cursor() as cursor:
        cursor.execute("SELECT FROM once.keys WHERE key = %s FOR UPDATE", (key,))
        assert cursor.rowcount == 1
    return holder


def stop_at_each(world, kind, number):
    """One request stands at each place. Their keys by place, the clients, and the processes that serve them."""
    keys, clients, backends, holder = {}, {}, {}, None
    # The payee is locked by the one before the commit: that one comes last.
    for place in sorted(PLACES, key=lambda place: place == "before-commit"):
        key = keys[place] = f"stop-{kind}-{place}-{number}"
        world.stops.hold(place, key)
        if place == "after-response":
            world.stops.hold("after-commit", key)
        clients[place] = Later(insist, lambda place=place, key=key: post(world, place, key))
        if place == "after-response":
            world.stops.reached("after-commit", key)
            holder = hold_the_record(world, key)
            world.stops.go("after-commit", key)
        backends[place] = world.stops.reached(place, key)[1]
    return keys, clients, backends, holder


def kill_bank(world, backends):
    world.main.kill()
    world.main = world.again(world.main)
    world.front.bank = world.main


def kill_worker(world, backends):
    # once gate -> nginx master -> workers
    master = places.descendants(world.front.pid)[1]
    worker = places.descendants(master)[1]
    places.send(9, [worker])
    until(lambda: not places.alive(worker), "the end of the worker")
    until(lambda: len(places.descendants(master)) > 1, "another worker")


def kill_gate(world, backends):
    world.front.kill()
    world.front = world.again(world.front)


def kill_backend(world, backends):
    places.kill_backend(backends["before-commit"])


def kill_postgres(world, backends):
    places.kill_server()


def let_the_late_one_go(world, place, key):
    """Its gate died, another try has done what it was about to do: it goes on now, and must be refused."""
    said = places.server_said(STALE)
    world.stops.go(place, key)
    until(lambda: places.server_said(STALE) > said or world.transfers(key) > 1, "the end of the late one", places.PATIENCE)
    assert world.transfers(key) == 1, "a double"


KILLS = {"bank": kill_bank, "worker": kill_worker, "gate": kill_gate, "backend": kill_backend, "postgres": kill_postgres}


@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize("kind", KILLS)
def test_killed_at_every_place(there, kind, number):
    keys, clients, backends, holder = stop_at_each(there, kind, number)
    before = len(there.load.told)
    KILLS[kind](there, backends)
    late = "after-claim" if kind in ("worker", "gate") else None  # it lives, but its lease is not renewed
    for place, key in keys.items():
        if place != late:
            there.stops.go(place, key)
    holder.close()
    answers = {place: client.get() for place, client in clients.items()}
    if late:
        let_the_late_one_go(there, late, keys[late])
    for place, key in keys.items():
        assert answers[place].status == 201, (place, answers[place])
        assert there.transfers(key) == 1, place
        again = insist(lambda place=place, key=key: post(there, place, key))
        assert again.essence() == answers[place].essence() and again.replayed, place
    for place in PLACES[2:]:  # it had committed: that one is the answer
        assert there.one("SELECT id::text FROM bank.transfers WHERE idempotency_key = %s", keys[place]) == \
            answers[place].json["transaction_id"]
    until(lambda: len(there.load.told) > before + 5, "the load going on", places.PATIENCE)
    there.audit()
