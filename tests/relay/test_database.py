"""What the relay makes of its database: encodings, headers, isolation levels, one that cannot be reached."""
import datetime
import json
import os
import subprocess
import urllib.parse

from harness import Database, Relay, once, until

NESTED = 2500


def test_headers_as_postgresql_has_them(database, relay, endpoint):
    """A number or a nesting that a reader of JSON does not want changes nothing, neither of itself nor of the others."""
    relay(endpoint.url())
    given = '{"a": 5, "traceparent": "00-1-2-01", "huge": 1e400, "price": 1.10, "big": 12345678901234567890123, "yes": true,' \
            ' "none": null, "list": [1, "x"], "Content-Type": "text/plain", "quote": "a\\"b"}'
    database.run("SELECT once.emit('orders', 'k', 'placed', convert_to('1', 'UTF8'), %s::jsonb)", given)
    database.run("SELECT once.emit('orders', 'k', 'placed', convert_to('2', 'UTF8'), %s::jsonb)",
                 f'{{"deep": {"[" * NESTED}{"]" * NESTED}, "traceparent": "00-3-4-01"}}')
    database.run("SELECT once.emit('orders', 'k', 'placed', convert_to('3', 'UTF8'), '{\"only\": [\"x\"]}')")
    database.until_empty()
    first, second, third = (request.headers for request in endpoint.requests)
    assert first["a"] == "5" and first["price"] == "1.10" and first["big"] == "12345678901234567890123"
    assert first["huge"] == "1" + "0" * 400 and first["yes"] == "true" and first["none"] == "null"
    assert json.loads(first["list"]) == [1, "x"] and first["quote"] == 'a"b'
    assert first["traceparent"] == "00-1-2-01" and first["Content-Type"] == "text/plain"
    assert second["traceparent"] == "00-3-4-01" and third["only"] == '["x"]'


def check_names(database, endpoint):
    database.emit("clé", 1, topic="café", headers={"traceparent": "00-1-2-01", "who": "zoë"})
    database.until_empty()
    (request,) = endpoint.requests
    assert urllib.parse.unquote(request.path) == "/café/clé"
    assert request.headers["traceparent"] == "00-1-2-01" and urllib.parse.unquote(request.headers["who"]) == "zoë"


def test_an_environment_that_says_latin1(database, relay, endpoint, monkeypatch):
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    relay(endpoint.url("/{topic}/{key}"))
    check_names(database, endpoint)
    endpoint.answer = lambda request: 400
    database.emit("clé", 2)
    until(database.dead, "it is dead")
    assert "cl\\xc3\\xa9" in once("outbox", "list", url=database.url), "the program's own connections, too"


def test_a_database_in_latin1(relays, endpoint, tmp_path):
    subprocess.run(["psql", "-X", "-q", "-d", "template1", "-c", "CREATE DATABASE latin1 ENCODING 'LATIN1' TEMPLATE template0"],
                   check=True)
    database = Database("latin1")
    once("pg", "install", database.url)
    relays.append(Relay(database.url, endpoint.url("/{topic}/{key}"), tmp_path / "relay.log"))
    check_names(database, endpoint)
    database.close()


def test_serializable_applications_do_not_fail_because_of_the_relay(database, relay, endpoint):
    database.run(f"ALTER DATABASE {database.one('SELECT current_database()')} SET default_transaction_isolation = 'serializable'")
    relay(endpoint.url(), lease="1s", poll="50ms")
    seen = "SELECT max(seen) FROM once.relays"
    watcher = database.connect()
    watcher.set_session(isolation_level="READ COMMITTED", autocommit=True)

    def turns(count):
        last = datetime.datetime.min.replace(tzinfo=datetime.timezone.utc)
        for _ in range(count):
            def moved():
                with watcher.cursor() as cursor:
                    cursor.execute(seen)
                    return (now := cursor.fetchone()[0]) > last and now
            last = until(moved, "the relay has its turn")

    for i in range(3):
        with database.connect() as connection:
            database.emit("k", i, connection=connection)
            turns(4)
    database.until_empty()
    assert endpoint.bodies() == ["0", "1", "2"]
    watcher.close()


def test_a_database_that_cannot_be_reached_at_the_start(relays, endpoint, tmp_path):
    """It is said, and said again; and nothing is waited for at the end."""
    url = os.environ["ONCE_PG_URL"].replace("port=", "port=1")
    relays.append(Relay(url, endpoint.url(), tmp_path / "relay.log", "--drain", "10m", wait=False))
    one = relays[-1]
    until(lambda: len(one.said("the database is unreachable")) >= 2, "it is said again")
    assert all("No such file" in line["reason"] for line in one.said("the database is unreachable"))
    assert one.stop() == 0
    assert len(one.said("ended")) == 1
