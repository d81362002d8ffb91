"""The relay with a real RabbitMQ: confirms, messages that no queue wants, a confirm that is lost, a broker that goes away."""
import os
import socket
import threading

import pytest
from harness import Delays, emit_sick, in_order, once, until

LONG = os.environ.get("RELAY_SECONDS")


def url(rabbitmq, exchange, port=None, **options):
    return rabbitmq.url(exchange, **options).replace(f":{rabbitmq.port}/", f":{port or rabbitmq.port}/")


def test_a_message(database, rabbitmq, relay, name):
    rabbitmq.create(name, exchange=name, routing_key="orders.placed")
    relay(url(rabbitmq, name, routing_key="{topic}.{type}"))
    event = database.emit("k", b'{"a": 1}', headers={"traceparent": "00-1-2-01"})
    database.until_empty()
    ((properties, body, delivery),) = rabbitmq.read(name)
    assert body == b'{"a": 1}' and properties.message_id == event and properties.delivery_mode == 2
    assert properties.content_type == "application/json" and properties.type == "placed"
    assert properties.headers["ce_id"] == event and properties.headers["ce_source"].startswith("urn:once:")
    assert properties.headers["ce_partitionkey"] == "k"
    assert properties.headers["traceparent"] == "00-1-2-01" and delivery.routing_key == "orders.placed"


def test_order(database, rabbitmq, relay, name):
    rabbitmq.create(name, exchange=name)
    relay(url(rabbitmq, name))
    database.emit_many(10, 1000)
    database.until_empty()
    found = [(int(body) % 10, properties.message_id, int(body)) for properties, body, _ in rabbitmq.read(name)]
    assert in_order(found) == (1000, 0)


def test_an_event_that_no_queue_wants(database, rabbitmq, relay, name):
    """After its tries it is dead; other keys did not wait, and later ones of its key come after that."""
    rabbitmq.create(name, exchange=name, routing_key="orders")
    one = relay(url(rabbitmq, name), "--tries", "3")
    bad = database.emit("k", 1, topic="nobody")
    good = [database.emit("other", 2), database.emit("k", 3)]
    until(lambda: len(database.dead()) == 1, "it is dead")
    assert database.dead()[0][:3] == (bad, "k", 3) and "NO_ROUTE" in database.dead()[0][3]
    database.until_empty()
    assert [properties.message_id for properties, *_ in rabbitmq.read(name)] == good
    assert one.metric("retries_total") == 2
    rabbitmq.create(name + "-late", exchange=name, routing_key="nobody")
    once("outbox", "retry", "--note=test", "--all", url=database.url)
    database.until_empty()
    assert [properties.message_id for properties, *_ in rabbitmq.read(name + "-late")] == [bad]


def test_a_queue_that_is_full(database, rabbitmq, relay, name):
    """RabbitMQ says nack; when there is room again, it is published."""
    rabbitmq.create(name, exchange=name, **{"x-max-length": 1, "x-overflow": "reject-publish"})
    relay(url(rabbitmq, name), "--tries", "1000")
    events = [database.emit("k", i) for i in range(3)]
    found = []

    def take():
        found.extend(properties.message_id for properties, *_ in rabbitmq.read(name))
        return len(found) == 3

    until(take, "all three come through")
    assert found == events and database.dead() == []


def test_a_full_queue_delays_no_other(database, rabbitmq, relay, name):
    rabbitmq.create(name + "-sick", exchange=name, routing_key="sick", **{"x-max-length": 1, "x-overflow": "reject-publish"})
    rabbitmq.create(name, exchange=name, routing_key="well")
    relay(url(rabbitmq, name))
    delays = Delays()

    def look():
        for properties, *_ in rabbitmq.read(name):
            delays.note(properties.message_id, properties.headers["ce_time"])

    delays.measure_alone(database, look)
    emit_sick(database)
    until(lambda: rabbitmq.count(name + "-sick")[0] == 1, "it is full")
    delays.measure(database, "a full queue", look)
    assert database.dead() == []


def test_no_exchange(database, rabbitmq, relay, name):
    """Nobody is at fault but the operator: nothing is dead, and all of it comes when the exchange is there."""
    one = relay(url(rabbitmq, name))
    events = [database.emit(f"k{i}", i) for i in range(5)]
    one.until_said("the destination is unavailable")
    until(lambda: one.get("/health")[0] == 503, "it is said at /health, too")
    assert database.dead() == []
    rabbitmq.create(name, exchange=name)
    database.until_empty()
    assert sorted(properties.message_id for properties, *_ in rabbitmq.read(name)) == sorted(events)


def test_headers_that_no_frame_holds(database, rabbitmq, relay, name):
    """They can never be sent: dead, and what is under way beside them is not disturbed."""
    rabbitmq.create(name, exchange=name)
    one = relay(url(rabbitmq, name))
    bad = [database.emit("k", 1, headers={"big": "x" * 200000}), database.emit("k", 2, headers={"content-type": "x" * 300})]
    good = database.emit("k", 3)
    until(lambda: len(database.dead()) == 2, "they are dead")
    database.until_empty()
    assert {dead[0] for dead in database.dead()} == set(bad) and one.said("the destination is unavailable") == []
    assert [properties.message_id for properties, *_ in rabbitmq.read(name)] == [good]


def test_a_message_that_is_too_large(database, rabbitmq, relay, name):
    """RabbitMQ closes the channel and does not tell because of which message: it is found, however many wait beside it."""
    rabbitmq.create(name, exchange=name)
    bad = database.emit("bad", b"x" * 5000000)
    database.emit_many(2500, 5000)
    one = relay(url(rabbitmq, name))
    database.until_empty()
    ((dead, _, _, reason),) = database.dead()
    assert dead == bad and "RabbitMQ closes the channel" in reason
    found = [(int(body) % 2500, properties.message_id, int(body)) for properties, body, _ in rabbitmq.read(name)]
    assert in_order(found)[0] == 5000
    closed = [line for line in one.lines() if line["message"].startswith("RabbitMQ closes the channel")]
    assert len(closed) <= 2  # among others, and alone


class Proxy:
    """Passes bytes on; `deaf`: nothing comes back from the broker any more."""

    def __init__(self, port, own=0):
        self.to, self.deaf, self.sockets = port, False, []
        self.listener = socket.create_server(("127.0.0.1", own))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.to))
            self.sockets += [client, server]
            threading.Thread(target=self.copy, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self.copy, args=(server, client, True), daemon=True).start()

    def copy(self, source, sink, back):
        try:
            while data := source.recv(65536):
                if not (back and self.deaf):
                    sink.sendall(data)
        except OSError:
            pass
        source.close()
        sink.close()

    def cut(self):
        for one in self.sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.sockets = []

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)  # else accept() would go on
        self.listener.close()
        self.cut()


def test_a_confirm_that_is_lost(database, rabbitmq, relay, name):
    """The broker has it, but the confirmation is lost: published again, with the same id."""
    rabbitmq.create(name, exchange=name)
    proxy = Proxy(rabbitmq.port)
    relay(url(rabbitmq, name, proxy.port), "--timeout", "1s")
    database.emit("k", 0)
    database.until_empty()
    proxy.deaf = True
    event = database.emit("k", 1)
    until(lambda: rabbitmq.count(name)[0] == 2, "the broker has it")
    assert database.waiting() == 1
    proxy.deaf = False
    proxy.cut()
    later = database.emit("k", 2)
    database.until_empty()
    found = [properties.message_id for properties, *_ in rabbitmq.read(name)][1:]
    assert found == [event, event, later]
    proxy.close()


@pytest.mark.parametrize("how", ["connection", "kill"] if LONG else ["connection"])  # a start of RabbitMQ takes long
def test_rabbitmq_goes_away_and_comes_back(database, rabbitmq, relay, name, how):
    rabbitmq.create(name, exchange=name)
    proxy = Proxy(rabbitmq.port)
    one = relay(url(rabbitmq, name, proxy.port))
    database.emit_many(5, 50)
    database.until_empty()
    proxy.close()
    if how == "kill":
        rabbitmq.kill()
    database.emit_many(5, 50, first=51)
    one.until_said("the destination is unavailable")
    assert one.metric("destination_up") == 0 and database.dead() == []
    if how == "kill":
        rabbitmq.start()
    proxy = Proxy(rabbitmq.port, proxy.port)
    database.until_empty()
    found = [(int(body) % 5, properties.message_id, int(body)) for properties, body, _ in rabbitmq.read(name)]
    assert in_order(found)[0] == 100
    proxy.close()
