"""GET and PUT /accounts/{id}: ids that clients choose, entity tags, and no lost updates."""
import os
import subprocess

import pytest

import world as places
from http_client import Later


@pytest.fixture(scope="module")
def there(lasting):
    world = lasting()
    world.main = world.bank("--direct")
    return world


def put(world, name, holder="A", currency="EUR", limit=None, customer=None, **headers):
    body = {"holder": holder, "currency": currency, "limit": limit}
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return world.ask(world.main, "PUT", f"/accounts/{name}", customer or name, body, headers=headers)


def get(world, name, customer=None, **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return world.ask(world.main, "GET", f"/accounts/{name}", customer or name, headers=headers)


def test_opening_can_be_repeated(there):
    first = put(there, "open", limit="50")
    assert first.status == 201
    assert first.json == {"id": "open", "holder": "A", "currency": "EUR", "limit": "50.00", "balance": "0.00"}
    again = put(there, "open", limit="50")
    assert again.status == 200 and again.body == first.body and again.headers["ETag"] == first.headers["ETag"]
    assert get(there, "open").body == first.body


def test_opening_at_once_opens_one(there):
    answers = [answer.get() for answer in [Later(put, there, "race") for _ in range(8)]]
    assert sorted(answer.status for answer in answers) == [200] * 7 + [201]


def test_a_change_names_what_it_changes(there):
    tag = put(there, "change").headers["ETag"]
    assert put(there, "change", holder="B").status == 428
    changed = put(there, "change", holder="B", If_Match=tag)
    assert changed.status == 200 and changed.json["holder"] == "B" and changed.headers["ETag"] != tag
    stale = put(there, "change", holder="C", If_Match=tag)
    assert stale.status == 412 and stale.problem == "stale-version"
    assert get(there, "change").json["holder"] == "B"
    # The change whose answer was lost: what it wants is so already.
    assert put(there, "change", holder="B", If_Match=tag).status == 200
    for nonsense in ('"x"', "1", '"1', 'W/"1-0"', '"0-0"'):
        assert put(there, "change", holder="D", If_Match=nonsense).status == 412


def test_of_two_changes_at_once_one_wins(there):
    tag = put(there, "two").headers["ETag"]
    answers = [answer.get() for answer in [Later(lambda n: put(there, "two", holder=f"H{n}", If_Match=tag), n) for n in range(8)]]
    assert sorted(answer.status for answer in answers) == [200] + [412] * 7


def test_money_that_comes_in_is_no_conflict(there):
    """The tag is another one then, for caches; a change that was made for the earlier one is still welcome."""
    tag = put(there, "busy").headers["ETag"]
    there.fund(there.main, "busy", "10")
    shown = get(there, "busy", If_None_Match=tag)
    assert shown.status == 200 and shown.json["balance"] == "10.00" and shown.headers["ETag"] != tag
    assert get(there, "busy", If_None_Match=f'"other", {shown.headers["ETag"]}').status == 304
    assert put(there, "busy", holder="B", If_Match=tag).status == 200


def test_refusals(there):
    put(there, "mine")
    assert get(there, "mine", "somebody").status == 404
    assert put(there, "mine", customer="somebody").problem == "id-taken"
    assert put(there, "mine", currency="USD").problem == "other-currency"
    assert put(there, "mine", holder="B", If_None_Match="*").status == 412
    assert put(there, "none", If_Match='"1-0"').status == 412
    assert put(there, "@cash-EUR", customer="@bank").problem == "bad-account"
    assert put(there, "x" * 65, customer="x").problem == "bad-account"
    assert put(there, "fresh", holder="").problem == "bad-text"
    assert put(there, "fresh", currency="QQQ").problem == "unknown-currency"
    assert put(there, "fresh", limit="1.234").problem == "bad-amount"
    assert get(there, "fresh").status == 404
    assert there.ask(there.main, "GET", "/accounts/mine").problem == "customer-missing"
    assert get(there, "%ff", "mine").status == get(there, "%27", "mine").status == 404
    for customer in ("a b", "\xff", "x" * 129):
        assert get(there, "mine", customer).problem == "bad-request"
    assert put(there, "mine%00", customer="mine").status in (400, 422)


@pytest.mark.parametrize("options, code, text", [
    (["--help"], 0, "usage: bank"),
    (["--database", ""], 2, "which database?"),
    (["--pool", "none"], 2, "--pool needs a number"),
    (["--lease", "soon"], 2, "--lease"),
    (["--nonsense"], 2, "nonsense"),
    (["extra"], 2, 'what is "extra"?'),
    (["--database", "postgres:///x?host=/nowhere"], 1, "no connection to PostgreSQL"),
    (["--database", "{template1}"], 1, "once pg install"),
    (["--listen", "here"], 1, "needs IP:PORT"),
    (["--listen", "{taken}"], 1, "cannot listen"),
])
def test_it_says_why_it_does_not_start(there, options, code, text):
    base = ["--database", there.url("teller")] if "--database" not in options else []
    template1 = there.url("teller").replace(there.name, "template1")
    options = [option.format(template1=template1, taken=f"{there.host}:{there.main.port}") for option in options]
    done = subprocess.run([os.path.join(places.EXAMPLES, "example_bank"), *base, *options], capture_output=True, text=True,
                          timeout=30, check=False)
    assert done.returncode == code and text in done.stdout + done.stderr, done
