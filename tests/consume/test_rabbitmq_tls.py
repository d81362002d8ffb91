"""`once consume` from a RabbitMQ that speaks TLS and wants a client certificate."""
import pytest
from harness import letter, once, until


def url(rabbitmq, queue, certificates, host="127.0.0.1", port=None, authority="authority", client="client"):
    query = f"cacert={certificates.file(authority)}"
    if client:
        query += f"&cert={certificates.file(client)}&key={certificates.key(client)}"
    return f"amqps://guest:guest@{host}:{port or rabbitmq.tls_port}/%2F/{queue}?{query}"


def test_messages_and_dead_letters(rabbitmq, certificates, name, handler, consume, replay):
    rabbitmq.create(name)
    handler.answer = lambda request: 422 if request.key == "bad" else 204
    rabbitmq.publish(name, [letter(1), letter("bad"), letter(1)])
    one = consume(url(rabbitmq, name, certificates))
    one.wait_metric("duplicates_total", 1)
    one.wait_metric('dead_letters_total{reason="rejected"}', 1)
    letters = url(rabbitmq, name + ".dlq", certificates)
    assert '"id":"bad"' in once("dlq", "list", "--json", letters)
    handler.answer = lambda request: 204
    assert replay(letters) == "replayed 1\n"
    one.wait_metric("handled_total", 2)
    assert one.stop() == 0
    assert rabbitmq.count(name) == (0, 0)


@pytest.mark.parametrize("what", ["stranger", "name", "expired", "no client certificate", "no such file"])
def test_a_broker_that_is_not_as_it_should_be(rabbitmq, certificates, impostor, name, handler, consume, what):
    """The log says why, and what to do. Nothing is acknowledged, nothing is lost."""
    bad, words = {
        "stranger": ({"authority": "stranger"}, ("not trusted", "cacert=FILE")),
        "name": ({"host": "localhost"}, ("for another name", "use one of its names")),
        "expired": ({"port": impostor.port}, ("has expired", "needs a new one")),
        "no client certificate": ({"client": None}, ("client certificate", "cert=FILE&key=FILE")),
        "no such file": ({"authority": "nowhere"}, ("cannot be read", "nowhere.crt")),
    }[what]
    rabbitmq.create(name)
    rabbitmq.publish(name, [letter(1)])
    one = consume(url(rabbitmq, name, certificates, **bad))
    until(lambda: [said for said in one.lines() if all(word in said["message"] for word in words)],
          lambda: f"{words}\n{one.last_words()}")
    listed = once("dlq", "list", url(rabbitmq, name, certificates, **bad), code=3)
    assert all(word in listed for word in words)
    assert handler.keys() == [] and rabbitmq.count(name) == (1, 0)
    assert one.stop() == 0
    other = consume(url(rabbitmq, name, certificates))
    other.wait_metric("handled_total", 1)
    assert other.stop() == 0
    assert rabbitmq.count(name) == (0, 0)
