"""once.client against a real gate: httpx, in both kinds, and requests. Started by world.py."""
import asyncio
import email.utils
import json
import os
import signal
import subprocess
import sys
import time
import uuid

import httpx
import pytest
import requests

from once import client
from once.client import (AsyncHTTPXTransport, HTTPXTransport, IntentChanged, IntentExpired, Journal, Redirected, RequestsAdapter,
                         Retries, problem)

GATE, LOSSY = os.environ["GATE"], os.environ["LOSSY"]
FAST = Retries(deadline=120, base=0.01, cap=0.05)
BODY = b'{"amount": 4200}'


def with_httpx(url, headers, retries=FAST, journal=None, body=BODY):
    with httpx.Client(transport=HTTPXTransport(retries=retries, journal=journal), timeout=60, follow_redirects=True) as session:
        answer = session.post(url, headers=headers, content=body)
        return answer.status_code, answer.headers, answer.content


def with_httpx_async(url, headers, retries=FAST, journal=None, body=BODY):
    async def send():
        transport = AsyncHTTPXTransport(retries=retries, journal=journal)
        async with httpx.AsyncClient(transport=transport, timeout=60, follow_redirects=True) as session:
            answer = await session.post(url, headers=headers, content=body)
            return answer.status_code, answer.headers, answer.content
    return asyncio.run(send())


def with_requests(url, headers, retries=FAST, journal=None, body=BODY):
    with requests.Session() as session:
        session.mount("http://", RequestsAdapter(retries=retries, journal=journal))
        answer = session.post(url, headers=headers, data=iter([body]), timeout=60)
        return answer.status_code, answer.headers, answer.content


@pytest.fixture(name="post", params=[with_httpx, with_httpx_async, with_requests])
def choose(request):
    return request.param


def seen(key, verb="seen"):
    return requests.get(f"{GATE}/{verb}/{key}", timeout=60).json()


def test_the_key_is_made_once(post):
    status, headers, body = post(f"{GATE}/payments?plan=429,500,ok", {})
    assert status == 201 and "Idempotent-Replayed" not in headers
    assert seen(json.loads(body)["key"]) == {"requests": 3, "payments": 1}


def test_a_lost_answer_is_a_replay(post):
    key = str(uuid.uuid4())
    status, headers, body = post(f"{LOSSY}/payments", {"Idempotency-Key": key})
    assert (status, headers["Idempotent-Replayed"], json.loads(body)["key"]) == (201, "true", key)
    assert seen(key) == {"requests": 1, "payments": 1}


def test_in_flight_waits(post):
    """The first one is at work; its answer is let go by the first pause of the second."""
    key, url, pauses = str(uuid.uuid4()), f"{GATE}/payments?plan=hold", []
    first = subprocess.Popen(["curl", "-s", "-H", f"Idempotency-Key: {key}", "--data-binary", BODY, url], stdout=subprocess.DEVNULL)
    seen(key, "reached")

    def draw(least, most):
        pauses.append((least, most))
        seen(key, "release")
        return 0.0
    status, headers, _ = post(url, {"Idempotency-Key": key, "Content-Type": "application/x-www-form-urlencoded"},
                              Retries(deadline=120, draw=draw))
    assert first.wait(60) == 0 and pauses
    assert (status, headers["Idempotent-Replayed"]) == (201, "true")
    assert seen(key) == {"requests": 1, "payments": 1}


def test_unknown_outcomes_stop(post):
    key = str(uuid.uuid4())
    answer = post(f"{GATE}/held?plan=cut", {"Idempotency-Key": key})
    assert answer[0] == 409 and problem(*answer) == "outcome-unknown"
    assert seen(key) == {"requests": 1, "payments": 1}


def test_another_request_stops(post):
    key = str(uuid.uuid4())
    assert post(f"{GATE}/payments", {"Idempotency-Key": key})[0] == 201
    answer = post(f"{GATE}/payments", {"Idempotency-Key": key}, body=b"{}")
    assert answer[0] == 422 and problem(*answer) == "key-reused"
    assert seen(key) == {"requests": 1, "payments": 1}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_neither_followed_nor_success(post, status):
    key = str(uuid.uuid4())
    with pytest.raises(Redirected, match=f"{status} to .*{key}") as error:
        post(f"{GATE}/payments?plan={status}", {"Idempotency-Key": key, "Authorization": "Bearer s3cret"})
    response = error.value.response
    assert (response.status_code, response.request.method) == (status, "POST")
    assert seen(key) == {"requests": 1, "payments": 0}


def test_the_deadline_ends_it(post):
    """The fourth pause would be too long."""
    def short():
        drawn = iter([0.0, 0.0, 0.0, 1000.0])
        return Retries(deadline=500, draw=lambda *_: next(drawn))
    key = str(uuid.uuid4())
    assert post(f"{GATE}/payments?plan=429", {"Idempotency-Key": key}, short())[0] == 429
    assert seen(key) == {"requests": 4, "payments": 0}
    with pytest.raises((httpx.ConnectError, requests.exceptions.ConnectionError)):
        post("http://127.0.0.1:1/payments", {}, short())


def test_a_killed_process_goes_on(post, tmp_path):
    """kill -9 while the request is at work: the next process has the same key, and pays nothing."""
    key, url = str(uuid.uuid4()), f"{GATE}/payments?plan=hold"
    headers = {"Once-Intent": "order-1"}
    code = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import test_python as t\n" \
           f"t.{post.__name__}({url!r}, {headers | {'Idempotency-Key': key}!r}, journal=t.Journal({str(tmp_path)!r}))"
    with subprocess.Popen([sys.executable, "-c", code]) as child:
        seen(key, "reached")
        child.send_signal(signal.SIGKILL)
        assert child.wait(60) == -signal.SIGKILL
    seen(key, "release")
    journal = Journal(tmp_path)
    status, answer, body = post(url, headers, journal=journal)
    assert (status, json.loads(body)["key"], answer["Idempotent-Replayed"]) == (201, key, "true")
    assert seen(key) == {"requests": 1, "payments": 1}
    assert len(os.listdir(tmp_path)) == 1 and os.stat(journal.path("order-1")).st_mode & 0o777 == 0o600
    with pytest.raises(IntentChanged):
        post(url, headers, journal=journal, body=b"{}")
    journal.ended("order-1", time.time() - 1)
    with pytest.raises(IntentExpired):
        post(url, headers, journal=journal)
    with pytest.raises(ValueError):
        post(url, headers)
    assert seen(key) == {"requests": 1, "payments": 1}


def intent(**options):
    return client.Intent(Retries(draw=lambda least, most: most, **options), None, "POST", "/", {}, b"")


def test_pauses():
    """Full jitter up to a doubling bound, after what Retry-After asks for, within the deadline."""
    one = intent(base=1, cap=5)
    assert [one.failed() for _ in range(4)] == [1, 2, 4, 5]
    assert intent(base=1).answered(503, {"Retry-After": "7"}, b"") == 8
    assert intent(base=1).answered(503, {"Retry-After": "61"}, b"") is None
    assert intent(base=1).answered(503, {"Idempotent-Replayed": "true"}, b"") is None
    assert intent(base=1).answered(409, {}, b"") is None and intent(base=1).answered(409, {"Retry-After": "1"}, b"") == 2
    assert intent(base=1).answered(503, {"Idempotency-Expires": "Thu, 01 Jan 1970 00:00:10 GMT"}, b"") is None
    late = {"Idempotency-Expires": "Thu, 01 Jan 1970 00:00:10 GMT", "Retry-After": "1"}
    told = intent(base=1)
    assert told.answered(409, {"Idempotency-Expires": email.utils.formatdate(time.time() + 30)}, b"") is None
    assert told.failed() == 1 and told.answered(503, {"Retry-After": "40"}, b"") is None and told.answered(503, late, b"") is None
    assert told.failed() is None
    assert intent(base=1).answered(400, {}, b"") is None and intent(base=1).answered(501, {}, b"") is None


def test_others_are_left_alone():
    with httpx.Client(transport=HTTPXTransport()) as session:
        answer = session.get(f"{GATE}/seen/none")
        assert answer.status_code == 200 and "Idempotency-Key" not in answer.request.headers


def test_old_intents_are_forgotten(tmp_path):
    journal = Journal(tmp_path, keep=1)
    journal.key("old", "r", "k")
    (tmp_path / f"{'0' * 64}.torn.new").write_text("{")
    others = ["notes.txt", "orders.json", "half.new"]
    for name in others:
        (tmp_path / name).write_text("{")
    (tmp_path / "orders").mkdir()
    for name in os.listdir(tmp_path):
        os.utime(tmp_path / name, (0, 0))
    journal.key("new", "r", "k")
    Journal(tmp_path, keep=1)
    assert sorted(os.listdir(tmp_path)) == sorted([os.path.basename(journal.path("new")), "orders", *others])


def test_torn_intents_are_called_so_that_they_are_removed(tmp_path, monkeypatch):
    """A process that is killed leaves the file that it was writing."""
    journal, left = Journal(tmp_path, keep=1), []
    monkeypatch.setattr(os, "link", lambda new, _: left.append(os.path.basename(new)))
    journal.key("torn", "r", "k")
    (tmp_path / left[0]).write_text("{")
    os.utime(tmp_path / left[0], (0, 0))
    Journal(tmp_path, keep=1)
    assert not os.listdir(tmp_path)
