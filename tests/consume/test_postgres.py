"""With PostgreSQL: as the store, completed by the handler in its own transaction, and for consumers that own their transaction."""
import os
import re
import signal
import subprocess
import sys
import threading

import psycopg2
import pytest

from harness import BUILD, SOURCE, event, once, until
from test_kafka import wait_caught_up

URL = os.environ.get("ONCE_PG_URL")
TARGETS = (8, 25, 45, 60) if os.environ.get("CONSUME_SOAK") else (25, 60)  # killed after that many invoices
pytestmark = pytest.mark.skipif(URL is None, reason="tests/postgres/with-server starts the server")


@pytest.fixture
def database():
    connection = psycopg2.connect(URL)
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS invoices (id bigserial, event text NOT NULL, body text NOT NULL)")
        cursor.execute("TRUNCATE invoices")
    yield connection
    connection.close()


def query(database, text, *values):
    with database.cursor() as cursor:
        cursor.execute(text, values or None)
        return cursor.fetchall() if cursor.description else None


def test_store_is_killed(kafka, name, handler, consume):
    """Nothing is started and nothing is acknowledged without the record; what is known is written when it is back."""
    kafka.create(name, 1)
    gate = threading.Event()
    handler.answer = lambda request: 204 if request.key != "event-0" or gate.wait(60) else 500
    kafka.produce(name, [event(i, key=f"k{i}") for i in range(40)])
    one = consume(kafka.url(name, group=name), "--concurrency", "4", "--lease", "2s", store=URL + "&store_timeout=1s")
    handler.wait(5)
    control = os.environ["ONCE_PG_CTL"].split()
    subprocess.run([*control, "-m", "immediate", "stop"], check=True, stdout=subprocess.DEVNULL)
    gate.set()  # the outcome of the first is known while the store is away
    kafka.produce(name, [event(i, key=f"k{i}") for i in range(30, 60)])
    one.wait_metric("store_errors_total", 1)
    subprocess.run([*control, "start"], check=True, stdout=subprocess.DEVNULL)
    one.wait_metric("handled_total", 60)
    wait_caught_up(kafka, name, name)
    again = {key for key in handler.keys() if handler.count(key) > 1}
    assert {f"event-{i}" for i in range(60)} == set(handler.keys())
    assert len(again) <= 4, f"repeated: {again}: only what was at the handler when its lease ran out"


@pytest.fixture
def own_database():
    """url(NAME) makes one whose secrets can be replaced and lost."""
    admin, made = psycopg2.connect(URL), []
    admin.autocommit = True

    def url(name):
        query(admin, f"CREATE DATABASE {name} TEMPLATE template0")
        made.append(name)
        once("pg", "install", URL.replace("/postgres?", f"/{name}?"))
        return URL.replace("/postgres?", f"/{name}?")
    yield url
    for name in made:
        query(admin, f"DROP DATABASE {name} WITH (FORCE)")
    admin.close()


def run(url, text, *values):
    connection = psycopg2.connect(url)
    connection.autocommit = True
    rows = query(connection, text, *values)
    connection.close()
    return rows


def secrets_of(url):
    return run(url, "SELECT text FROM once.secrets")[0][0]


def replace_secrets(url, text):
    run(url, "UPDATE once.secrets SET text = %s; SELECT once._secrets_store(%s)", text, text)


REFUSED = "not those of the store"


def test_nothing_is_run_with_other_secrets_than_the_store_has(kafka, name, handler, consume, own_database):
    """With them every message has another record than for the other consumers, and would be handled by both."""
    def produce(*numbers):
        kafka.produce(name, [event(i, key=f"k{i}") for i in numbers])

    def wait_refused(*numbers):
        def refused():
            assert one.alive()
            return {line["id"] for line in one.said("the store failed") if REFUSED in line["detail"]}
        until(lambda: {f"event-{i}" for i in numbers} <= refused(), lambda: f"refusals\n{one.last_words()}")

    kafka.create(name, 1)
    produce(0)
    store = own_database("consumed")
    one = consume(kafka.url(name, group=name), store=store)
    handler.wait(1)
    wait_caught_up(kafka, name, name)

    # Replaced by others, then right again.
    right = secrets_of(store)
    replace_secrets(store, secrets_of(own_database("other")))
    produce(0, *range(1, 9))
    wait_refused(*range(9))
    assert one.metric("store_errors_total") >= 9
    assert handler.keys() == ["event-0"] and kafka.committed(name, name) == {0: 1}
    replace_secrets(store, right)
    wait_caught_up(kafka, name, name)
    assert sorted(handler.keys()) == [f"event-{i}" for i in range(9)]
    assert one.metric("duplicates_total") == 1

    # Lost for good, and another consumer is there first.
    run(store, "DROP SCHEMA once CASCADE")
    once("pg", "install", store)
    kafka.create(name + "-two", 1)
    new = [event(i, key=f"k{i}") for i in range(9, 17)]
    for topic in (name, name + "-two"):
        kafka.produce(topic, new)
    two = consume(kafka.url(name + "-two", group=name + "-two"), "--subscriber", name, store=store)
    wait_caught_up(kafka, name + "-two", name + "-two")
    wait_refused(*range(9, 17))
    assert two.metric("handled_total") == 8
    assert sorted(handler.keys()) == sorted(f"event-{i}" for i in range(17)), "each once"
    assert one.stop() == 0
    one.go()  # as an operator does
    wait_caught_up(kafka, name, name)
    assert one.metric("duplicates_total") == 8 and sorted(handler.keys()) == sorted(f"event-{i}" for i in range(17))


def test_handler_completes_in_its_own_transaction(kafka, name, handler, consume, database):
    """Whatever it answers after that: it is done, once."""
    kafka.create(name, 1)
    answers = {"dies": None, "fails": 500, "well": 204}

    def answer(request):
        connection = psycopg2.connect(URL)
        with connection, connection.cursor() as cursor:
            cursor.execute("INSERT INTO invoices (event, body) VALUES (%s, 'x')", (request.key,))
            cursor.execute("SELECT once.complete(%s, 200, NULL, NULL)", (request.headers["Once-Claim"],))
        connection.close()
        return answers[request.key]

    handler.answer = answer
    kafka.produce(name, [event(key) for key in answers] * 2)
    one = consume(kafka.url(name, group=name), "--recover", "transactional", "--lease", "1s", store=URL)
    wait_caught_up(kafka, name, name)
    assert sorted(query(database, "SELECT event FROM invoices")) == [("dies",), ("fails",), ("well",)]
    assert one.metric("handled_total") == 3 and one.metric("duplicates_total") == 3
    assert sorted(handler.keys()) == ["dies", "fails", "well"]


def invoices(language):
    """The example consumer."""
    return [f"{BUILD}/examples/example_invoices"] if language == "c" else \
        [sys.executable, f"{SOURCE}/examples/consumers/python/invoices.py"]


@pytest.mark.parametrize("language", ["c", "python"])
def test_messages_that_no_invoice_can_be_made_of(kafka, name, database, language, tmp_path):
    """They are left out with a line that says which; neither do they end the consumer nor hold it up."""
    query(database, "ALTER TABLE invoices ADD CONSTRAINT long CHECK (length(body) < 1000)")
    kafka.create(name, 1)
    bad = [{"value": None}, {"value": b"\xff\xfe"}, {"value": b"a\0b"}, {"value": "é".encode()[:1]}, {"value": b"\xed\xa0\x80"},
           {"value": b"x" * 2000}, {"value": b"x", "headers": {"ce_id": b"\xff"}}, {"value": b"x", "headers": {"ce_id": None}},
           {"value": b"x", "headers": {"ce_id": b"a\0b"}}, {"value": b"x", "headers": {}}]
    messages = [{"headers": {"ce_id": f"bad-{i}"}, **message} for i, message in enumerate(bad)]
    kafka.produce(name, [event(0), *messages, event(1), {"value": "€ 𝄞".encode(), "headers": {"ce_id": "event-2"}}])
    with open(tmp_path / "log", "wb") as log:
        child = subprocess.Popen([*invoices(language), kafka.servers, name, name, URL], stderr=log)
    try:
        wait_caught_up(kafka, name, name)
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()
        query(database, "ALTER TABLE invoices DROP CONSTRAINT long")
    assert [row[0] for row in query(database, "SELECT event FROM invoices ORDER BY id")] == ["event-0", "event-1", "event-2"]
    said = (tmp_path / "log").read_text()
    assert re.findall(rf"left out: {name}/0@([0-9]+): ", said) == [str(i) for i in range(1, 11)], said


@pytest.mark.parametrize("language", ["c", "python"])
def test_wolverine_1677_business_row_and_inbox_row_commit_together(kafka, name, database, language):
    """The inbox row in a transaction of its own loses or repeats the business row when the consumer dies in between. Here the
    consumer is killed, and a trigger fails some inserts: each event has one invoice, and none without the other."""
    query(database, """
        CREATE SEQUENCE IF NOT EXISTS attempts;
        CREATE OR REPLACE FUNCTION fail_some() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF nextval('attempts') % 7 = 0 THEN RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'now and then'; END IF;
            RETURN NEW;
        END $$;
        DROP TRIGGER IF EXISTS fails ON invoices;
        CREATE TRIGGER fails BEFORE INSERT ON invoices FOR EACH ROW EXECUTE FUNCTION fail_some()""")
    kafka.create(name, 1)
    kafka.produce(name, [event(i) for i in range(60)] * 2)
    child = None
    try:
        for target in TARGETS:
            child = subprocess.Popen([*invoices(language), kafka.servers, name, name, URL], stderr=subprocess.DEVNULL)
            until(lambda: query(database, "SELECT count(*) FROM invoices")[0][0] >= target, f"{target} invoices")
            if target < 60:
                child.send_signal(signal.SIGKILL)
                child.wait()
        wait_caught_up(kafka, name, name)
    finally:
        child.kill()
        child.wait()
        query(database, "DROP TRIGGER fails ON invoices")
    rows = query(database, "SELECT event, count(*) FROM invoices GROUP BY event")
    assert sorted(rows) == sorted((f"event-{i}", 1) for i in range(60))
    inbox = query(database, "SELECT message_id FROM once.inbox WHERE subscriber = %s", name)
    assert sorted(inbox) == sorted((f"event-{i}",) for i in range(60))


def test_expired_records_and_old_messages_are_removed(kafka, name, handler, consume, own_database):
    """By the consumer itself, without a gateway."""
    kafka.create(name, 1)
    kafka.produce(name, [event(0)])
    store = own_database("reaped")
    one = consume(kafka.url(name, group=name), "--ttl", "1s", store=store)
    handler.wait(1)
    wait_caught_up(kafka, name, name)
    run(store, "INSERT INTO once.inbox SELECT now() - interval '8 days', 'them', 'old'; SELECT 1")
    until(lambda: run(store, "SELECT (SELECT count(*) FROM once.keys) + (SELECT count(*) FROM once.inbox)") == [(0,)],
          "removal of all", 120)
    assert one.metric("store_behind_seconds") >= 0
    until(lambda: one.metric("store_messages_behind_seconds") >= 80000, "the metric", 120)
