"""The relay and a Kafka that speaks TLS: brokers with a valid certificate, and without one."""
import pytest
from harness import until

USER = "courier:correct%20horse@"


def url(port, host="127.0.0.1", user="", **options):
    query = "&".join(f"{name.replace('_', '.')}={value}" for name, value in options.items())
    return f"kafka://{user}{host}:{port}/{{topic}}" + (f"?{query}" if query else "")


@pytest.mark.parametrize("how", ["tls", "mutual", "sasl"])
def test_events(database, kafka, certificates, relay, name, how):
    """--cacert makes it TLS, and a user SASL; nothing else is asked for."""
    options = {"user": USER} if how == "sasl" else {}
    if how == "mutual":
        options = {"ssl_certificate_location": certificates.file("client"), "ssl_key_location": certificates.key("client")}
    kafka.create(name)
    relay(url(getattr(kafka, how + "_port"), **options), "--cacert", certificates.file("authority"))
    database.emit_many(5, 200, topic=name)
    database.until_empty()
    assert len(kafka.read(name)) == 200


@pytest.mark.parametrize("what", ["stranger", "name", "expired", "no client certificate", "password"])
def test_a_broker_that_is_not_as_it_should_be(database, kafka, certificates, impostor, relay, name, what):
    """The log says why, and what to do. Nothing is published or dead, nothing is lost, no password goes there."""
    to, authority, words = {
        "stranger": (url(kafka.tls_port), "stranger", ("not trusted", "--cacert FILE")),
        "name": (url(kafka.tls_port, host="localhost"), "authority", ("for another name", "use one of its names")),
        "expired": (url(impostor.port, user=USER), "authority", ("has expired", "needs a new one")),
        "no client certificate": (url(kafka.mutual_port), "authority", ("client certificate", "ssl.certificate.location=FILE")),
        "password": (url(kafka.sasl_port, user="courier:wrong@"), "authority", ("Authentication failed", "password")),
    }[what]
    kafka.create(name)
    one = relay(to, "--cacert", certificates.file(authority), "--drain", "100ms", lease="1s")
    database.emit("k", 1, topic=name)
    until(lambda: [line for line in one.lines() if all(word in line["message"] for word in words)], words)
    assert database.waiting() == 1 and database.dead() == []
    one.stop()
    assert "horse" not in "".join(one.text()) and "wrong@" not in "".join(one.text())
    until(lambda: database.run("SELECT 1 FROM once.relays WHERE seen + lease > clock_timestamp()") == [], "no relay publishes")
    relay(url(kafka.tls_port), "--cacert", certificates.file("authority"))
    database.until_empty()
    assert len(kafka.read(name)) == 1
