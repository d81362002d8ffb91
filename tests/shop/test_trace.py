"""One key through all of the shop: gate, bank and PostgreSQL, relay, broker, consumers, notify, provider. What `once trace` says
about it is compared with what each of them has. Inside tests/postgres/with-server."""
import json
import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "examples", "shop"))

from parts import PATIENCE, until  # noqa: E402
from shop import ONCE, TOPIC, Shop  # noqa: E402
from brokers import Missing  # noqa: E402

KEY = "order-4711"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    shop = Shop(str(tmp_path_factory.mktemp("shop")))
    try:
        shop.start()
    except Missing as missing:
        pytest.skip(str(missing))
    yield shop
    assert shop.close() == {}


@pytest.fixture(scope="module")
def paid(shop):
    """The answer of a transfer that has reached everybody, asked for twice."""
    shop.open_account("alice", "100")
    shop.open_account("bookshop", None)
    first, again = (shop.transfer("alice", "bookshop", "19.99", KEY, TRACE) for _ in range(2))
    assert first.status == again.status == 201 and first.text == again.text
    assert again.headers["Idempotent-Replayed"] == "true"
    shop.notifiers[0].sms.wait(lambda sms: any("19.99" in str(message) for message in sms.messages.values()), PATIENCE)
    until(lambda: "19.99" in str(shop.rows("SELECT amount FROM public.books")), "the books")
    # What has left the outbox was published, and both consumers have ended their claims.
    until(lambda: shop.rows("SELECT count(*) FROM once.outbox") == [(0,)], "an empty outbox")
    stores = [f"local:{shop.directory}/{name}" for name in ("books-consumed", "notify-consumed")]
    until(lambda: all('"pending":0' in once("stats", "--json", store) for store in stores), "the consumers' records")
    return json.loads(first.text)


def once(*arguments):
    done = subprocess.run([ONCE, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def follow(shop, *options):
    also = [part for name in ("books-consumed", "notify-consumed", "notify-records")
            for part in ("--also", f"local:{shop.directory}/{name}")]
    return once("trace", shop.database, KEY, "--step", "sms", *also, *options)


@pytest.fixture(scope="module")
def found(shop, paid):
    return json.loads(follow(shop, "--json"))


def test_the_request(shop, paid, found):
    record = found["record"]
    assert record["key"] == KEY and record["state"] == "completed" and record["status"] == 201 and record["epoch"] == 1
    assert record["description"] == "POST /transfers" and ":" in record["holder"]


def test_the_transaction_is_the_one_of_the_transfer(shop, paid, found):
    row, = shop.rows("SELECT xmin::text, id::text FROM bank.transfers WHERE idempotency_key = %s", KEY)
    assert found["transaction"]["id"] == row[0] and paid["transaction_id"] == row[1]


def test_the_event_is_the_one_that_was_handled(shop, paid, found):
    event, = found["events"]
    assert event["type"] == "transfer.completed" and event["topic"] == TOPIC and event["state"] == "published"
    assert event["destination"].startswith("amqp://127.0.0.1:") and "guest" not in event["destination"]
    booked = shop.rows("SELECT event FROM public.books WHERE transfer = %s", paid["transaction_id"])
    assert booked == [(event["id"],)]
    assert [handled["subscriber"] for handled in event["handled"]] == ["books"]
    assert shop.rows("SELECT subscriber FROM once.inbox WHERE message_id = %s", event["id"]) == [("books",)]


def test_the_consumers_and_the_third_party(shop, found):
    event, sms = found["events"][0], shop.notifiers[0].sms
    records = {(os.path.basename(record["store"]), record["key"]): record for record in event["records"]}
    for consumer in ("books-consumed", "notify-consumed"):
        assert records[consumer, event["id"]]["state"] == "completed"
    keys = {step["key"] for record in event["records"] for step in record["derived"] if "notify-records" in record["store"]}
    got = {key.strip('"') for key, message in sms.messages.items() if "19.99" in str(message)}
    assert got and got <= keys, f"the provider got {got}, the trace has {keys}"


def test_the_trace_went_all_the_way(shop, found):
    sms = shop.notifiers[0].sms
    key = next(key for key, message in sms.messages.items() if "19.99" in str(message))
    assert sms.traces[key] == TRACE


def test_the_logs_of_the_consumers_have_the_key(shop, found):
    event = found["events"][0]["id"]
    for part in (shop.books_consumer, shop.notifiers[0].consumer):
        with open(part.log, encoding="utf-8") as log:
            lines = [json.loads(line) for line in log if event in line]
        assert lines and all(line["idempotency_key"] == KEY for line in lines), part.name


def test_as_text(shop, found):
    text, event = follow(shop), found["events"][0]
    for part in (KEY, "completed", f"transaction  {found['transaction']['id']}", f"event        {event['id']}", "published",
                 "by books (inbox)", "for step sms"):
        assert part in text, text


def test_a_key_that_nobody_used(shop, found):
    done = subprocess.run([ONCE, "trace", shop.database, "never-used"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert done.returncode == 4
