"""The contract of the packages, seen from outside: the same for every application in every mode."""
import json
import time
from email.utils import parsedate_to_datetime

from contract import problem
from harness.wait import all_at_once
from stacks import JSON

STRINGS = ["", "José", 'a"b', "a\nb\tc", "C:\\temp\\new", "\\x00ff", "\\u0041", "日本語",
           "😀", "\u2028\x7f", "'; --", "%s $1", "x" * 70000]


def check_kept(answer):
    """For a day."""
    left = parsedate_to_datetime(answer.headers.get("Idempotency-Expires")).timestamp() - time.time()
    assert 86400 - 600 < left < 86400 + 5, left


def test_first_and_replay(stack):
    first = stack.post()
    stack.check_once(first)
    assert first.json()["order"] == stack.order and first.headers.get("X-Order") == stack.order
    assert "Idempotent-Replayed" not in first.headers
    check_kept(first)
    for key in (stack.key, f'"{stack.key}"'):
        again = stack.post(key=key)
        assert again.status == 201 and again.body == first.body
        assert again.headers.get("Idempotent-Replayed") == "true"
        check_kept(again)
        for name in ("Content-Type", "X-Order", "Content-Length"):
            assert again.headers.get(name) == first.headers.get(name)
    stack.check_once(first)


def test_keys(stack):
    """The same texts as the gate's."""
    with stack.connect() as client:
        told = problem(client.request("POST", "/payments", None, stack.body(), JSON), 400, "key-missing")
    assert "in the header Idempotency-Key" in told["detail"]
    for key, words in (("", "empty"), ("k" * 256, "longer than 255"), ("a, b", "comma"), ('"a', "closing quote"),
                       ('"a" b', "text after"), ('"a\\n"', "backslash"), ("é", "not ASCII"), ('"a", "b"', "several keys"),
                       ('"a";v=1', "parameters")):
        with stack.connect() as client:
            answer = client.request("POST", "/payments", key, stack.body(), JSON)
        assert words in problem(answer, 400, "key-invalid")["detail"], key
    assert stack.database.payments(stack.order) == 0


def test_mismatch(stack):
    first = stack.post()
    assert problem(stack.post(stack.body(note="another")), 422, "key-reused")["retryable"] is False
    stack.check_once(first)


def test_busy(stack):
    stop = stack.wire.stop_at(b"INSERT INTO payments")
    finish = stack.begin()
    stop.wait()
    busy = stack.post()
    assert problem(busy, 409, "in-flight")["retryable"] is True
    assert int(busy.headers.get("Retry-After")) >= 1
    stop.go()
    stack.check_once(finish())
    assert stack.post().headers.get("Idempotent-Replayed") == "true"


def test_refusals_are_recorded(stack):
    """A refusal that is returned commits with what was done; one that is raised undoes it. Both answer the key for good."""
    body = stack.body(then="refuse in the transaction")
    answer = stack.post(body)
    stack.check_once(answer, 402)
    assert stack.post(body).headers.get("Idempotent-Replayed") == "true"
    if stack.app["refusal"]:
        body = stack.fresh().body(then="refuse")
        answer = stack.post(body)
        stack.check_once(answer, stack.app["refusal"], 0)
        again = stack.post(body)
        assert (again.status, again.body) == (answer.status, answer.body)
        assert again.headers.get("Idempotent-Replayed") == "true"


def test_many_at_once(stack):
    answers = all_at_once([stack.post] * 4)
    assert {answer.status for answer in answers} <= {201, 409}
    stack.check_once(stack.retry())


def test_strings(stack):
    """Byte for byte: into the business table, into the outbox, to the client and to the replay."""
    for number, text in enumerate(STRINGS):
        stack.fresh()
        body = json.dumps({"order": stack.order, "note": text}, ensure_ascii=number % 2 == 0).encode()
        first = stack.post(body)
        assert first.status == 201 and first.json()["note"] == text, (first.status, text)
        assert stack.database.one("SELECT note FROM payments WHERE order_id = %s", stack.order) == text
        stack.check_event(text)
        again = stack.post(body)
        assert again.body == first.body and again.headers.get("Idempotent-Replayed") == "true"
    body = stack.fresh().body(then="bytes")
    first, again = stack.post(body), stack.post(body)
    assert first.status == 200 and first.body == again.body == bytes(range(256)) * 2
    assert first.headers.get("Content-Type") == again.headers.get("Content-Type")
