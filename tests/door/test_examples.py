"""Each example, as it is, behind a real gateway on a real PostgreSQL: what it promises in each language."""
import threading

import pytest

from backends import LANGUAGES
from harness.http1 import Connection

pytestmark = pytest.mark.parametrize("language", LANGUAGES)


def at_once(*functions):
    answers = [None] * len(functions)

    def call(number):
        answers[number] = functions[number]()

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_answers(stack, language):
    """Paid once, replayed, refused; every answer is recorded by the backend's own transaction."""
    s = stack(language)
    first = s.pay()
    assert first.json()["first"] is True and first.json()["amount"] == "12.50"
    s.check_paid_once(first)
    assert s.pay(amount="13.00").status == 422  # the same key for something else
    # Another key, the same order: a client that makes a new key for each click.
    answer = s.pay("%s-click" % s.key)
    assert answer.status == 409 and answer.json() == {"error": "this order is paid", "payment": first.json()["payment"]}
    assert s.database.state("%s-click" % s.key)[0] == "completed"
    # The guard of the UPSERT: 12.50 is spent, 1000 is the limit.
    answer = s.pay(f"{s.key}-more", "990.00", f"{s.order}-more")
    assert answer.status == 402 and s.database.spent(s.account) == "12.50"
    answer = s.pay(f"{s.key}-less", "987.50", f"{s.order}-less")
    assert answer.status == 201 and answer.json()["first"] is False and s.database.spent(s.account) == "1000.00"
    # "KEY" and KEY are one key, also in the business table, which remembers it longer.
    s.account += "-rich"
    answer = s.pay(f'"{s.key}-q"', "0.01", f"{s.order}-q")
    assert answer.status == 201 and s.pay(f"{s.key}-q", "0.01", f"{s.order}-q").body == answer.body
    assert s.database.one("SELECT count(*) FROM payments WHERE idempotency_key = %s", f"{s.key}-q") == 1
    # The backend's own mistake-finding is recorded by the gateway.
    assert s.gateway.post(f"{s.key}-bad", b"{", "/payments").status == 422
    assert s.database.payments(s.order) == 1


WRONG = [b"{", b"[]", b"null", b"7", b"\xff", b"[" * 3000, b'{"order": "o", "amount": "1.00"}'] + [
    ('{"order": %s, "account": "a", "amount": %s}' % pair).encode() for pair in [
        ('"o"', '"0.00"'), ('"o"', '"00.00"'), ('"o"', '"01.00"'), ('"o"', '"-1.00"'), ('"o"', '"1e2"'), ('"o"', '"1000.00"'),
        ('"o"', '"1.001"'), ('"o"', '"\u0661\u0662.\u0665\u0660"'), ('"o"', '1.5'), ('"o"', '["1.00"]'), ('"o"', '"1.00\\n"'),
        ('""', '"1.00"'), ('7', '"1.00"'), ('{"a": 1}', '"1.00"'), ('"o\\u0000"', '"1.00"'), ('"o\\ud800"', '"1.00"'),
        ('"%s"' % ("o" * 101), '"1.00"')]]


def test_what_can_never_be_paid_is_refused_for_good(stack, language):
    """Not "later": a client that repeats it must not do so for ever, and nothing of it comes as far as the database."""
    s = stack(language)
    for number, body in enumerate(WRONG):
        first = s.gateway.post(f"{s.key}-{number}", body, "/payments")
        assert first.status == 422, (body[:80], first.status, first.body)
        again = s.gateway.post(f"{s.key}-{number}", body, "/payments")
        assert again.status == 422 and again.headers.get("Idempotent-Replayed") == "true", body[:80]
    assert not b"".join(s.wire.said)


def test_at_once(stack, language):
    """One key many times, one order with many keys, one new account from many sides: one effect, one inserter, no overdraft."""
    s = stack(language)
    answers = at_once(*[s.retry] * 4)
    assert {answer.status for answer in answers} == {201} and len({answer.body for answer in answers}) == 1
    keys = [lambda n=n: s.retry(f"{s.key}-{n}", "12.50", f"{s.order}-b") for n in range(4)]
    assert sorted(answer.status for answer in at_once(*keys)) == [201, 409, 409, 409]
    s.account += "-new"
    orders = [lambda n=n: s.retry(f"{s.key}-c{n}", "300.00", f"{s.order}-c{n}") for n in range(5)]
    answers = at_once(*orders)
    assert sorted(answer.status for answer in answers) == [201, 201, 201, 402, 402]
    assert sum(answer.json().get("first", False) for answer in answers) == 1
    assert s.database.spent(s.account) == "900.00"


def test_lost_reply_to_commit(stack, language):
    """Committed, and the backend does not know: it repeats the transaction, is refused with ON002, and reads its response."""
    s = stack(language)
    stop = s.wire.stop_at(b"COMMIT\0", back=True)
    finish = s.start()
    stop.wait()
    assert s.database.payments(s.order) == 1
    stop.cut()
    s.check_paid_once(finish())
    assert b"".join(s.wire.said).count(b"once.recorded") == 1
    assert s.database.state(s.key) == ("completed", 1)


def test_request_delivered_twice(stack, language):
    """The same bytes again, while the first is at work and when it is done: refused, and answered with the first one's response."""
    s = stack(language)
    stop = s.wire.stop_at(b"COMMIT\0")
    finish = s.start()
    stop.wait()
    request = b"".join(s.link.said)
    assert request.endswith(s.body())
    with Connection(s.link.target) as twin, Connection(s.link.target) as late:
        twin.send(request)
        stop.go()
        answer = finish()
        late.send(request)
        for other in (twin, late):
            other.waiting.append("POST")
            told = other.finish()
            assert told.status == 201 and told.body == answer.body
    s.check_paid_once(answer)


def test_zombie(stack, language):
    """Its gateway died, its lease ran out, it was overtaken; then it goes on: ON001, and its transaction is rolled back."""
    s = stack(language)
    stop = s.wire.stop_at(b"once.renew")
    finish = s.start()
    stop.wait()
    s.gateway.nginx.kill_worker()
    finish()
    s.database.end_lease(s.key)
    answer = s.retry()
    assert s.database.state(s.key) == ("completed", 2)
    # It was refused. The packages know why and roll back; the example in C does not look, and tries once more.
    second = s.wire.stop_at(b"once.renew" if language == "c" else b"ROLLBACK")
    stop.go()
    second.wait()
    second.go()
    s.check_paid_once(answer)
    assert s.database.state(s.key) == ("completed", 2)
