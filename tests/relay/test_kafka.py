"""The relay with a real Kafka: what is in a message, order, nothing skipped, sharing, taking over, brokers that go away."""
import os
import re
import signal
import subprocess
import threading

from harness import ONCE, PATIENCE, check_order, headers, once, until


def ids(messages):
    return [headers(m)["ce_id"] for m in messages]


def test_a_message(database, kafka, relay, name):
    kafka.create("shop." + name)
    one = relay(kafka.url("shop.{topic}"), "--source", "urn:shop", "--log", "debug")
    event = database.emit("order-7", b'{"total": 12}', topic=name,
                          headers={"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "n": 5})
    other = database.emit(None, b"\x00\xff", topic=name, headers={"content-type": "image/png"})
    database.until_empty()
    found = {headers(m)["ce_id"]: m for m in kafka.read("shop." + name)}
    message = found[event]
    assert message.key() == b"order-7" and message.value() == b'{"total": 12}'
    got = headers(message)
    assert got["ce_specversion"] == "1.0" and got["ce_type"] == "placed" and got["ce_source"] == "urn:shop"
    assert got["ce_time"].endswith("Z") and got["content-type"] == "application/json" and got["n"] == "5"
    assert got["traceparent"].startswith("00-4bf92f3577b34da6")
    assert found[other].key() is None and found[other].value() == b"\x00\xff"
    assert [value for header, value in found[other].headers() if header == "content-type"] == [b"image/png"]
    line = until(lambda: [l for l in one.said("published") if l["event"] == event], "the log has the event")[0]
    assert one.said("publishing")[0]["relays"] == 1, "a number"
    assert [line for line in one.lines() if None in line.values()] == [], "what there is not is left out"
    assert line["key"] == "order-7" and line["topic"] == name and "total" not in "".join(one.text())


def test_the_key_that_caused_it(database, kafka, relay, name):
    kafka.create(name)
    once("stats", url=database.url)  # makes the secrets
    relay(kafka.url("{topic}"))
    connection = database.connect()
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT claim FROM once.claim('shop-7', 'order-1234', 'POST', '/orders', '')")
        claim = cursor.fetchone()[0]
        cursor.execute("SELECT once.emit(%s, 'k', 'placed', '1', '{}', %s)", (name, claim))
        cursor.execute("SELECT once.complete(%s, 201, '{}', '')", (claim,))
    connection.close()
    database.until_empty()
    (message,) = kafka.read(name)
    assert headers(message)["ce_idempotencykey"] == "order-1234"


def test_what_is_rolled_back_is_not_published(database, kafka, relay, name):
    kafka.create(name)
    relay(kafka.url("{topic}"))
    connection = database.connect()
    database.emit("k", 1, topic=name, connection=connection)
    connection.rollback()
    last = database.emit("k", 2, topic=name)
    connection.close()
    database.until_empty()
    assert ids(kafka.read(name)) == [last]


def test_transactions_that_commit_out_of_sequence(database, kafka, relay, name):
    """watermill#311: a reader that pages by a serial number never sees the lower one, which commits later."""
    kafka.create(name)
    relay(kafka.url("{topic}"))
    slow = database.connect()
    keys = database.neighbours(3)
    low = database.emit(keys[0], 1, topic=name, connection=slow)
    high = [database.emit(key, 1, topic=name) for key in keys[1:]]
    until(lambda: len(kafka.read(name)) == 2, "the others are published")
    slow.commit()
    slow.close()
    database.until_empty()
    assert sorted(ids(kafka.read(name))) == sorted([low, *high])


def test_a_long_transaction_beside_short_ones(database, kafka, relay, name):
    """It delays no other event, and what it emitted comes when it commits; before what is emitted after that with the same key."""
    kafka.create(name)
    relay(kafka.url("{topic}"))
    long = database.connect()
    key, *others = database.neighbours(8)
    early = [database.emit(key, i, topic=name, connection=long) for i in (1, 2)]
    for i in range(1, 301):
        database.emit(others[i % 7], i, topic=name)
        if i % 100 == 0:
            until(lambda: len(kafka.read(name)) == i, "the short ones are published")  # noqa: B023
    early.append(database.emit(key, 3, topic=name, connection=long))
    long.commit()
    early.append(database.emit(key, 4, topic=name))
    long.close()
    database.until_empty()
    messages = kafka.read(name)
    assert check_order(messages) == (304, 0)
    assert [headers(m)["ce_id"] for m in messages if m.key() == key.encode()] == early


def test_a_transaction_that_emitted_very_much(database, kafka, relay, name):
    """All of it appears below what is read already. It is read in pieces, and in order."""
    kafka.create(name)
    one = relay(kafka.url("{topic}"), lease="60s")
    long = database.connect()
    key, other = database.neighbours(2)
    with long.cursor() as cursor:
        cursor.execute("SELECT count(once.emit(%s, %s, 'placed', convert_to(i::text, 'UTF8'))) FROM generate_series(1, 3000) AS i",
                       (name, key))
    database.emit(other, 1, topic=name)
    database.until_empty()
    before = database.one("SELECT pg_current_snapshot()::text")
    one.signal(signal.SIGSTOP)
    long.commit()
    rows = database.run("SELECT seq FROM once.relay_fetch((SELECT owner FROM once.outbox_groups WHERE grp = 5), '{5}', '{1000000}',"
                        " '{0}', '{0}', '{0}', '{}', %s, 1000000, '{}', '{}') WHERE grp = 5", before)
    assert len(rows) == 256
    one.signal(signal.SIGCONT)
    database.emit(key, 3001, topic=name)
    database.until_empty()
    assert check_order(kafka.read(name)) == (3002, 0)
    long.close()


def test_keys_stay_in_order_while_many_emit(database, kafka, relay, name):
    kafka.create(name, 3)
    relays = [relay(kafka.url("{topic}")) for _ in range(2)]

    def work(number):
        connection = database.connect()
        for i in range(1, 201):
            with connection.cursor() as cursor:
                cursor.execute("SELECT once.emit(%s, %s, 'placed', %s::text::bytea)", (name, f"key{number}-{i % 5}", i))
            connection.rollback() if i % 10 == 0 else connection.commit()
        connection.close()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "waited for the events of a thread to be emitted"
    database.until_empty()
    assert check_order(kafka.read(name)) == (720, 0)
    assert [relay.stop() for relay in relays] == [0, 0]


def test_two_relays_share_and_take_over(database, kafka, relay, name):
    kafka.create(name, 2)
    first = relay(kafka.url("{topic}"))
    second = relay(kafka.url("{topic}"), wait=False)
    until(lambda: first.metric("groups") == 32 and second.metric("groups") == 32, "each has its half")
    database.emit_many(50, 2000, topic=name)
    database.until_empty()
    assert first.metric("published_total") > 0 and second.metric("published_total") > 0
    assert first.metric("published_total") + second.metric("published_total") == 2000
    first.kill()
    database.emit_many(50, 2000, topic=name, first=2001)
    database.until_empty()
    until(lambda: second.metric("groups") == 64, "the second has all")
    assert check_order(kafka.read(name)) == (4000, 0)


def test_a_relay_that_was_stopped_and_goes_on(database, kafka, relay, name):
    """SIGSTOP is worse than kill: it comes back. It publishes no event that is not published, and keeps to the order."""
    kafka.create(name)
    first = relay(kafka.url("{topic}"), lease="1s")
    database.emit_many(20, 5000, topic=name)
    until(lambda: first.metric("published_total") > 0, "it publishes")
    first.signal(signal.SIGSTOP)
    second = relay(kafka.url("{topic}"), lease="1s", wait=False)
    database.until_empty()
    first.signal(signal.SIGCONT)
    until(lambda: first.metric("groups") == 32 and second.metric("groups") == 32, "both work again")
    total, _ = check_order(kafka.read(name))
    assert total == 5000


def test_a_lease_that_is_lost_and_regained(database, kafka, relay, name):
    """A group is read again when nothing of it is under way any more: an event that fails among those would be published behind the
    others."""
    kafka.create(name)
    one = relay(kafka.url("{topic}"), lease="1s")
    key, = database.neighbours(1)
    database.emit(key, 1, topic=name)
    database.until_empty()
    kafka.pause()
    for i in (2, 3):
        database.emit(key, i, topic=name)
    until(lambda: one.metric("in_flight") == 2, "both are under way")
    one.signal(signal.SIGSTOP)
    until(lambda: database.one("SELECT count(*) FROM once.outbox_groups WHERE lease_until > clock_timestamp()") == 0, "it is over")
    one.signal(signal.SIGCONT)
    one.until_said("the lease has run out: events in flight may be published twice")
    until(lambda: one.metric("groups") == 63, "it has all groups but that one")
    database.emit(key, 4, topic=name)
    database.emit("other", 5, topic=name)
    until(lambda: one.metric("in_flight") == 3, "the other key goes on")
    assert one.metric("groups") == 63
    kafka.go_on()
    database.until_empty()
    until(lambda: one.metric("groups") == 64, "and that one, too")
    assert [m.value() for m in kafka.read(name) if m.key() == key.encode()] == [b"1", b"2", b"3", b"4"]


def test_killed_between_publish_and_mark(database, kafka, relay, name):
    kafka.create(name)
    first = relay(kafka.url("{topic}"), lease="1s")
    lock = database.connect()
    with lock.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(1)")
    lock.commit()
    database.run("""CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
                    'BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN OLD; END'""")
    database.run("CREATE TRIGGER wait BEFORE DELETE ON once.outbox FOR EACH ROW EXECUTE FUNCTION wait()")
    event = database.emit("k", 1, topic=name)
    until(lambda: kafka.read(name), "it is published")
    first.kill()
    # What it had asked for would still be done by the server, which does not know yet.
    until(lambda: not database.run("""SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                                      WHERE application_name = 'once relay' AND datname = current_database()"""), "it is gone")
    lock.close()
    relay(kafka.url("{topic}"), lease="1s")
    database.until_empty()
    found = ids(kafka.read(name))
    assert set(found) == {event} and len(found) == 2


def test_an_event_that_kafka_refuses(database, kafka, relay, name):
    """It is dead, its neighbours are not; and once outbox brings it back or drops it."""
    kafka.create(name, **{"max.message.bytes": "2000"})
    one = relay(kafka.url("{topic}"))
    before = database.emit("k", 1, topic=name)
    bad = database.emit("k", b"x" * 20000, topic=name)
    after = database.emit("k", 3, topic=name)
    worse = database.emit("k", 4, topic="no topic has such a name")
    database.until_empty()
    until(lambda: len(database.dead()) == 2, "two are dead")
    assert sorted(ids(kafka.read(name))) == sorted([before, after])
    assert {event for event, *_ in database.dead()} == {bad, worse}
    line = one.until_said("event is dead")[0]
    assert line["event"] in (bad, worse) and line["key"] == "k" and line["level"] == "error"
    assert one.metric("dead_total") == 2
    listed = once("outbox", "list", "--json", url=database.url)
    assert bad in listed and worse in listed and '"state":"dead"' in listed and "xxx" not in listed
    assert bad in once("outbox", "list", bad[:9], url=database.url)
    assert "1 events dropped" in once("outbox", "drop", "--note=test", "--yes", worse, url=database.url)
    widen(kafka, name)
    assert "1 events queued" in once("outbox", "retry", "--note=test", bad[:13], url=database.url)
    until(lambda: bad in ids(kafka.read(name)), "the dead one is published after all")
    assert database.dead() == [] and "no dead events" in once("outbox", "list", url=database.url)
    once("outbox", "retry", "--note=test", bad, url=database.url, code=4)
    once("outbox", "drop", url=database.url, code=2)


def widen(kafka, topic):
    from confluent_kafka.admin import ConfigResource
    resource, admin = ConfigResource("topic", topic, set_config={"max.message.bytes": "1000000"}), kafka.admin()
    for done in admin.alter_configs([resource]).values():
        done.result(PATIENCE)


def test_kafka_goes_away_and_comes_back(database, kafka, relay, name):
    kafka.create(name)
    one = relay(kafka.url("{topic}"))
    database.emit("k", 1, topic=name)
    database.until_empty()
    kafka.pause()  # the campaign kills it
    for i in range(2, 102):
        database.emit(f"k{i % 3}", i, topic=name)
    until(lambda: one.metric("lag_events") == 100 and one.metric("lag_seconds") > 0.5, "the lag is reported")
    assert database.dead() == []
    kafka.go_on()
    database.until_empty()
    total, _ = check_order(kafka.read(name))
    assert total == 101 and database.dead() == []


def test_metrics_and_health(database, kafka, relay, name):
    kafka.create(name)
    one = relay(kafka.url("{topic}"))
    database.emit_many(3, 30, topic=name)
    until(lambda: one.metric("published_total") == 30, "all are published")
    until(lambda: one.get("/health") == (200, "ok\n"), "healthy")
    status, text = one.get("/metrics")
    assert status == 200
    for line in ("# TYPE once_relay_published_total counter", "once_relay_published_total 30",
                 "# TYPE once_relay_lag_seconds gauge", "once_relay_retries_total 0", "once_relay_dead_total 0",
                 'once_relay_delay_seconds_bucket{le="+Inf"} 30', "once_relay_groups 64"):
        assert line + "\n" in text
    assert one.get("/elsewhere")[0] == 404


def test_one_outbox_has_one_destination(database, kafka, relay, name):
    relay(kafka.url("{topic}"))
    second = relay(kafka.url("other.{topic}"), wait=False)
    assert second.process.wait(30) == 5
    assert "one outbox has one destination" in "\n".join(second.text())


def test_it_ends_when_empty(database, kafka, relay, name):
    kafka.create(name)
    database.emit_many(10, 3000, topic=name)
    one = relay(kafka.url("{topic}"), "--until-empty")
    assert one.process.wait(60) == 0
    assert len(kafka.read(name)) == 3000 and one.said("ended")[0]["published"] == 3000
    assert database.run("SELECT * FROM once.relays") == []


def test_progress(database, kafka, relay, name):
    """How far it is, while it works; at the end a line that is true."""
    kafka.create(name)
    one = relay(kafka.url("{topic}"), "--progress")
    database.emit_many(10, 300, topic=name)
    until(lambda: re.search(r"^300 published, [0-9]+/s, 0 waiting$", "\n".join(one.text()), re.M), "it tells how far it is")
    assert one.stop() == 0
    with open(one.log, encoding="utf-8") as log:
        assert re.search(r"\n300 published in [0-9]+ s\n", log.read())
    database.emit_many(10, 20, topic=name)
    leader, follower = os.openpty()
    with subprocess.Popen([ONCE, "relay", "--progress", "--until-empty", database.url, kafka.url("{topic}")], stderr=follower,
                          stdout=subprocess.DEVNULL) as child:
        assert child.wait(60) == 0
    os.close(follower)
    shown = b""
    try:
        while more := os.read(leader, 65536):
            shown += more
    except OSError:  # all of it was read
        pass
    os.close(leader)
    assert re.search(rb"20 published in [0-9]+ s\x1b\[K\r\n$", shown)


def test_what_cannot_be(database, relay):
    for to, options, code, said in (("kafka://h/t?acks=0", (), 2, "cannot be changed"),
                                    ("kafka://h/{what}", (), 2, "template"),
                                    ("kafka://h/t", ("--lease", "1ms"), 2, "--lease"),
                                    ("amqp://h/x?nonsense=1", (), 2, "parameters"),
                                    ("ftp://h/t", (), 2, "missing TO"),
                                    ("http://h/x", ("--secret-file", "/dev/null"), 2, "chmod 600"),
                                    ("http://h/x", ("--metrics", "nowhere"), 2, "address of metrics must be")):
        one = relay(to, *options, wait=False)
        assert one.process.wait(30) == code and said in "\n".join(one.text())
    database.run("DROP SCHEMA once CASCADE")
    one = relay("kafka://127.0.0.1:1/t", wait=False)
    assert one.process.wait(30) == 3 and "once pg install" in "\n".join(one.text())
