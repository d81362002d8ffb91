"""`once consume` over TLS: brokers and handlers with a valid certificate, and without one."""
import time

import pytest
from harness import Handler, event, once, until
from test_kafka import wait_caught_up

USER = "courier:correct%20horse@"


def url(kafka, topic, port, certificates, host="127.0.0.1", user="", authority="authority", group=None, **options):
    """Options have underscores for dots."""
    options = {"security_protocol": "sasl_ssl" if user else "ssl", "ssl_ca_location": certificates.file(authority), **options}
    query = "&".join(f"{name.replace('_', '.')}={value}" for name, value in options.items())
    return f"kafka://{user}{host}:{port}/{topic}?{query}" + (f"&group={group}" if group else "")


@pytest.mark.parametrize("how", ["tls", "mutual", "sasl"])
def test_messages_and_dead_letters(kafka, certificates, name, handler, consume, how, replay):
    options = {"port": getattr(kafka, how + "_port")}
    if how == "sasl":
        options.update(user=USER)
    if how == "mutual":
        options.update(ssl_certificate_location=certificates.file("client"), ssl_key_location=certificates.key("client"))
    kafka.create(name)
    kafka.create(name + ".dlq")
    handler.answer = lambda request: 422 if request.key == "bad" else 204
    kafka.produce(name, [event(1), event("bad"), event(1)])
    one = consume(url(kafka, name, certificates=certificates, group=name, **options))
    one.wait_metric("duplicates_total", 1)
    one.wait_metric('dead_letters_total{reason="rejected"}', 1)
    wait_caught_up(kafka, name, name)
    assert sorted(handler.keys()) == ["bad", "event-1"]
    letters = url(kafka, name + ".dlq", certificates=certificates, **options)
    assert '"id":"bad"' in once("dlq", "list", "--json", letters)
    handler.answer = lambda request: 204
    assert replay(letters) == "replayed 1\n"
    one.wait_metric("handled_total", 2)


@pytest.mark.parametrize("what", ["stranger", "name", "expired", "no client certificate", "password"])
def test_a_broker_that_is_not_as_it_should_be(kafka, certificates, impostor, name, handler, consume, what):
    """The log says why, and what to do. Nothing is handled or committed, nothing is lost, no password goes there."""
    bad, words = {
        "stranger": ({"authority": "stranger"}, ("not trusted", "ssl.ca.location=FILE")),
        "name": ({"host": "localhost"}, ("for another name", "use one of its names")),
        "expired": ({"port": impostor.port, "user": USER}, ("has expired", "needs a new one")),
        "no client certificate": ({"port": kafka.mutual_port}, ("certificate", "ssl.certificate.location=FILE")),
        "password": ({"port": kafka.sasl_port, "user": "courier:wrong@"}, ("Authentication failed", "password")),
    }[what]
    kafka.create(name)
    kafka.produce(name, [event(1)])
    one = consume(url(kafka, name, **{"port": kafka.tls_port, "certificates": certificates, "group": name, **bad}))
    line = until(lambda: [said for said in one.lines() if all(word in said["message"] for word in words)],
                 lambda: f"{words}\n{one.last_words()}")[0]
    assert line["level"] == "warn"
    assert handler.keys() == [] and kafka.committed(name, name)[0] == -1001
    assert one.stop() == 0
    assert "horse" not in one.last_words() and "wrong@" not in one.last_words()
    begun = time.monotonic()
    said = once("dlq", "list", url(kafka, name, **{"port": kafka.tls_port, "certificates": certificates, **bad}), code=3)
    assert all(word in said for word in words) and "horse" not in said and "wrong@" not in said, said
    assert time.monotonic() - begun < 10  # and not when it has waited for long enough
    other = consume(url(kafka, name, kafka.tls_port, certificates, group=name))
    other.wait_metric("handled_total", 1)
    wait_caught_up(kafka, name, name)


def test_a_handler_that_is_verified(kafka, certificates, name, handlers, consume):
    handlers.append(Handler(certificate=certificates.file("server"), key=certificates.key("server")))
    kafka.create(name)
    kafka.produce(name, [event(i) for i in range(5)])
    one = consume(kafka.url(name, group=name), "--cacert", certificates.file("authority"), to=handlers[-1].url)
    one.wait_metric("handled_total", 5)
    wait_caught_up(kafka, name, name)
    assert len(handlers[-1].requests) == 5


@pytest.mark.parametrize("what", ["stranger", "name", "expired"])
def test_a_handler_that_is_not_trusted(kafka, certificates, name, handlers, consume, what):
    """No byte of a message reaches it; that costs no try, and is over when the certificate is right."""
    wrong = Handler(certificate=certificates.file("expired" if what == "expired" else "server"),
                    key=certificates.key("expired" if what == "expired" else "server"))
    handlers.append(wrong)
    options = ["--tries", "1", "--backoff", "20ms", "--backoff-max", "100ms", "--lease", "1s"]
    authority = certificates.file("stranger" if what == "stranger" else "authority")
    words = {"stranger": "--cacert FILE", "name": "for another name", "expired": "has expired"}[what]
    kafka.create(name)
    kafka.produce(name, [event(i) for i in range(3)])
    one = consume(kafka.url(name, group=name), "--cacert", authority, *options,
                  to=wrong.url.replace("127.0.0.1", "localhost") if what == "name" else wrong.url)
    lines = one.wait_said("the handler was not reached", 9)
    assert words in lines[0]["detail"]
    assert wrong.requests == [] and kafka.committed(name, name)[0] in (0, -1001)
    assert one.metric('dead_letters_total{reason="tries"}') == 0
    assert one.stop() == 0
    right = Handler(certificate=certificates.file("server"), key=certificates.key("server"))
    handlers.append(right)
    other = consume(kafka.url(name, group=name), "--cacert", certificates.file("authority"), *options, to=right.url)
    other.wait_metric("handled_total", 3)
    assert {request.headers["Once-Tries"] for request in right.requests} == {"1"}
