"""POST /payouts: three steps with checkpoints. Wherever it is killed, it goes on, and the provider pays once."""
import pytest

from http_client import AGAIN, Later, insist
from provider import Provider

# Where it is killed. Those within a transaction keep others from the accounts: one at a time.
PLACES = [["before-reserved"], ["before-settled"], ["after-reserved", "before-paid", "after-paid", "after-settled"]]


@pytest.fixture(scope="module", params=["direct", "gate"])
def there(lasting, request):
    provider = Provider()
    world = lasting(provider=provider.url, lease="1s")
    world.teller, world.kind = provider, request.param
    world.start = lambda: world.bank(*(["--direct", "--lease", "500ms"] if request.param == "direct" else []))
    world.main = world.front = world.start()
    if request.param == "gate":
        world.front = world.gate(world.main)
    world.account(world.main, "alice", "1000")
    yield world
    world.audit()
    provider.close()


def wish(amount="5", destination="DE02 1203"):
    return {"account": "alice", "destination": destination, "amount": amount, "currency": "EUR"}


def post(world, key, body=None, front=None):
    """One request."""
    return world.ask(front or world.front, "POST", "/payouts", "alice", body or wish(), key)


def pay(world, key, body=None, front=None):
    """Until there is an answer: a gate with so short a lease may find that half of it has passed, and send nothing."""
    return insist(lambda: post(world, key, body, front))


def state(world):
    return tuple(world.balance(name) for name in ("alice", "@reserved-EUR", "@outside-EUR"))


def moved(before, after):
    return tuple(new - old for old, new in zip(before, after))


def test_money_leaves_once(there):
    before, paid = state(there), len(there.teller.paid)
    first = pay(there, "pay")
    assert first.status == 201 and first.json["status"] == "paid" and first.json["amount"] == "5.00"
    again = pay(there, "pay")
    assert again.replayed and again.essence() == first.essence()
    assert moved(before, state(there)) == (-5, 0, 5)
    assert len(there.teller.paid) == paid + 1
    shown = there.ask(there.front, "GET", first.headers["Location"], "alice")
    assert shown.status == 200 and shown.body == first.body
    # The provider's key is derived: the same for the same payout, and not ours.
    assert there.teller.asked[-1].startswith("d1-") and "pay" not in there.teller.asked[-1]


def test_refusals_are_final(there):
    before = state(there)
    assert pay(there, "too-much", wish("100000")).problem == "insufficient-funds"
    assert pay(there, "too-much", wish("100000")).replayed
    assert pay(there, "nowhere", wish(destination="")).problem == "bad-text"
    assert pay(there, "not-hers", dict(wish(), account="bob")).problem == "unknown-account"
    assert pay(there, "banks", dict(wish(), account="@cash-EUR")).problem == "unknown-account"
    assert state(there) == before


def test_what_the_provider_refuses_comes_back(there):
    before = state(there)
    there.teller.refuse = True
    try:
        first = pay(there, "refused")
        assert first.status == 422 and first.problem == "payout-refused"
    finally:
        there.teller.refuse = False
    assert pay(there, "refused").essence() == first.essence()
    assert state(there) == before
    assert there.one("SELECT status FROM bank.payouts WHERE idempotency_key = 'refused'") == "returned"


@pytest.mark.parametrize("stray", [(404, {"error": "no such path"}), (400, "a proxy's page"), (200, {})],
                         ids=lambda stray: str(stray[0]))
def test_a_stray_answer_gives_nothing_back(there, stray):
    """It paid; then something in between answers instead of it. That is no refusal: the amount stays reserved."""
    before, paid, key = state(there), len(there.teller.paid), f"stray-{stray[0]}"
    there.teller.stray = stray
    try:
        assert post(there, key).status in AGAIN
    finally:
        there.teller.stray = None
    assert moved(before, state(there)) == (-5, 5, 0) and len(there.teller.paid) == paid + 1
    assert pay(there, key).status == 201
    assert moved(before, state(there)) == (-5, 0, 5) and len(there.teller.paid) == paid + 1


@pytest.mark.parametrize("lost", ["lose_requests", "lose_answers"])
def test_a_provider_that_does_not_answer_is_asked_again(there, lost):
    before, paid, asked = state(there), len(there.teller.paid), len(there.teller.asked)
    setattr(there.teller, lost, 1)
    first = post(there, f"quiet-{lost}")
    assert first.status in AGAIN
    assert pay(there, f"quiet-{lost}").status == 201
    assert len(there.teller.asked) >= asked + 2 and len(set(there.teller.asked[asked:])) == 1
    assert len(there.teller.paid) == paid + 1
    assert moved(before, state(there)) == (-5, 0, 5)


@pytest.mark.parametrize("places", PLACES, ids=lambda places: "+".join(places))
def test_killed_between_any_two_steps_it_goes_on(there, places):
    before, paid, asked = state(there), len(there.teller.paid), len(there.teller.asked)
    answers = {}
    for place in places:
        key = f"stop-{place}"
        there.stops.hold(place, key)
        answers[key] = Later(pay, there, key)
        there.stops.reached(place, key)
    there.main.kill()
    there.main = there.again(there.main)
    if there.kind == "direct":
        there.front = there.main
    for key, answer in answers.items():
        answer = answer.get()
        assert answer.status == 201 and answer.json["status"] == "paid"
        assert answer.json["provider_id"] in [payment["id"] for payment in there.teller.paid.values()]
        assert pay(there, key).essence() == answer.essence()
        assert there.one("SELECT count(*) FROM bank.payouts WHERE idempotency_key = %s", key) == 1
    assert moved(before, state(there)) == (-5 * len(places), 0, 5 * len(places))
    assert len(there.teller.paid) == paid + len(places)
    # Asked once more only where it was not known that it had paid.
    assert len(there.teller.asked) == asked + len(places) + places.count("before-paid")


def test_a_payout_whose_record_is_gone_goes_on(there):
    """Killed after the reservation, and then the record purged: the reservation is found by its key, and used."""
    before, key = state(there), "stop-purged"
    there.stops.hold("after-reserved", key)
    first = Later(lambda: insist(lambda: post(there, key), tries=1))
    there.stops.reached("after-reserved", key)
    there.main.kill()
    first.get()
    with there.connect() as connection, connection.cursor() as cursor:
        cursor.execute("DELETE FROM once.keys WHERE key = %s", (key,))
    there.main = there.again(there.main)
    if there.kind == "direct":
        there.front = there.main
    assert pay(there, key).status == 201
    assert moved(before, state(there)) == (-5, 0, 5)


def test_a_zombie_between_steps_changes_nothing(there):
    """Frozen after the reservation until another bank has finished the payout; then it goes on, and is refused."""
    before, paid, key = state(there), len(there.teller.paid), "stop-zombie"
    second = there.start()
    front = there.gate(second) if there.kind == "gate" else second
    there.stops.hold("after-reserved", key)
    slow = Later(pay if there.kind == "gate" else post, there, key)
    there.stops.reached("after-reserved", key)
    frozen = [there.main] + ([there.front] if there.kind == "gate" else [])
    for program in frozen:
        program.freeze()
    there.stops.go("after-reserved", key)
    winner = pay(there, key, front=front)
    assert winner.status == 201
    for program in frozen:
        program.thaw()
    answer = slow.get()
    if there.kind == "gate":  # the gate answers from the record
        assert answer.essence() == winner.essence()
    else:
        assert answer.status == 409 and answer.problem in ("stale-claim", "already-completed")
    assert moved(before, state(there)) == (-5, 0, 5)
    assert len(there.teller.paid) == paid + 1
