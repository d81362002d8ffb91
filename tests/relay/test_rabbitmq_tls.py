"""The relay and a RabbitMQ that speaks TLS and wants a client certificate."""
import pytest


def url(rabbitmq, exchange, certificates, host="127.0.0.1", port=None, client=True):
    query = f"?cert={certificates.file('client')}&key={certificates.key('client')}" if client else ""
    return f"amqps://guest:guest@{host}:{port or rabbitmq.tls_port}/%2F/{exchange}{query}"


def test_events(database, rabbitmq, certificates, relay, name):
    rabbitmq.create(name, exchange=name)
    relay(url(rabbitmq, name, certificates), "--cacert", certificates.file("authority"))
    database.emit_many(5, 200)
    database.until_empty()
    assert rabbitmq.count(name)[0] == 200


@pytest.mark.parametrize("what", ["stranger", "name", "expired", "no client certificate"])
def test_a_broker_that_is_not_as_it_should_be(database, rabbitmq, certificates, impostor, relay, name, what):
    """The log says why, and what to do. Nothing is published or dead, nothing is lost."""
    bad, words = {
        "stranger": ({}, ("not trusted", "--cacert FILE")),
        "name": ({"host": "localhost"}, ("for another name", "use one of its names")),
        "expired": ({"port": impostor.port}, ("has expired", "needs a new one")),
        "no client certificate": ({"client": False}, ("client certificate", "cert=FILE&key=FILE")),
    }[what]
    rabbitmq.create(name, exchange=name)
    one = relay(url(rabbitmq, name, certificates, **bad),
                "--cacert", certificates.file("stranger" if what == "stranger" else "authority"))
    database.emit("k", 1)
    line = one.until_said("the destination is unavailable")[0]
    assert all(word in line["reason"] for word in words), line
    assert database.waiting() == 1 and database.dead() == [] and rabbitmq.count(name)[0] == 0
    assert one.stop() == 0
    relay(url(rabbitmq, name, certificates), "--cacert", certificates.file("authority"))
    database.until_empty()
    assert rabbitmq.count(name)[0] == 1
