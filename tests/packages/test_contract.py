"""The contract of the packages, seen from outside: each application of apps.json, behind the gate and without it."""
import json
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from conftest import JSON, POOL, SOCKET
from harness.http1 import Connection
from harness.wait import all_at_once, until

STRINGS = ["", "José", 'a"b', "a\nb\tc", "C:\\temp\\new", "\\x00ff", "\\u0041", "日本語",
           "😀", "\u2028\x7f", "'; --", "%s $1", "x" * 70000]


def problem(answer, status, name):
    assert answer.status == status, (answer.status, answer.body)
    assert answer.headers.get("Content-Type") == "application/problem+json"
    told = answer.json()
    assert told["type"] == f"urn:once:problem:{name}" and told["status"] == status
    assert told["error"]["code"] == name and told["error"]["message"] == told["detail"]
    return told


def test_first_and_replay(stack):
    first = stack.post()
    stack.check_once(first)
    assert first.json()["order"] == stack.order and first.headers.get("X-Order") == stack.order
    assert "Idempotent-Replayed" not in first.headers
    for key in (stack.key, f'"{stack.key}"'):
        again = stack.post(key=key)
        assert again.status == 201 and again.body == first.body
        assert again.headers.get("Idempotent-Replayed") == "true"
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


def test_released_by_exception(stack):
    """An exception that nobody handles undoes everything, and the key is free at once."""
    answer = stack.post(stack.body(then="raise"))
    assert answer.status == 500 and stack.database.payments(stack.order) == 0
    body = stack.body(then="raise")
    assert stack.retry(body).status == 500 and stack.database.payments(stack.order) == 0
    state = stack.database.state(stack.key)
    assert state is None or state[0] != "completed"
    later = stack.fresh().post(stack.body(then="later"))
    assert later.status == 429 and stack.database.payments(stack.order) == 0
    assert stack.post(stack.body(then="later")).headers.get("Idempotent-Replayed") is None


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


def test_unknown(direct_stack):
    """A record that somebody has to settle is not run. Behind the gate there is none: transactional knows no such outcome."""
    stack = direct_stack
    stack.database.rows("SELECT once.doubt(c.claim) FROM once.claim('tenant-7', %s, 'POST', '/payments', %s::bytea, 'hold') c",
                        stack.key, stack.body())
    assert problem(stack.post(), 409, "outcome-unknown")["retryable"] is False
    assert stack.database.payments(stack.order) == 0


def test_fence(gate_stack):
    """Overtaken before its transaction: it cannot commit. Without a gate the claim is part of the transaction."""
    stack = gate_stack
    stop = stack.wire.stop_at(stack.begins)
    finish = stack.begin()
    stop.wait()
    stack.gateway.nginx.kill_worker()  # its lease is no longer renewed
    finish()
    stack.database.end_lease(stack.key)
    answer = stack.retry()
    assert stack.database.state(stack.key) == ("completed", 2)
    refused = stack.wire.stop_at(b"ROLLBACK")
    stop.go()
    refused.wait()
    refused.go()
    stack.check_once(answer)
    assert stack.database.state(stack.key) == ("completed", 2)


def test_delivered_twice(gate_stack):
    """The same bytes again while the first is at work."""
    stack = gate_stack
    stop = stack.wire.stop_at(b"COMMIT")
    finish = stack.begin()
    stop.wait()
    request = b"".join(stack.link.said)
    with Connection(stack.link.target, patience=60) as twin:
        twin.send(request)
        stop.go()
        answer = finish()
        twin.waiting.append("POST")
        told = twin.finish()
    assert (told.status, told.body) == (201, answer.body)
    stack.check_once(answer)


def test_lost_reply_to_commit(stack):
    """Committed, and the application does not know: its client gets the response, once, and not as a replay."""
    stop = stack.wire.stop_at(b"COMMIT", back=True)
    finish = stack.begin()
    stop.wait()
    assert stack.database.payments(stack.order) == 1
    stop.cut()
    answer = finish()
    stack.check_once(answer)
    assert "Idempotent-Replayed" not in answer.headers
    assert b"".join(stack.wire.said).count(b"once.recorded") >= 1
    assert stack.post().body == answer.body


def test_lost_connection(stack):
    """In the middle of the transaction: it is repeated, and the client notices nothing."""
    stop = stack.wire.stop_at(b"once.complete")
    finish = stack.begin()
    stop.wait()
    stop.cut()
    answer = finish()
    if answer.status == 409:  # the server has not noticed yet that its client is gone
        answer = stack.retry()
    stack.check_once(answer)


def test_no_database(direct_stack):
    stack = direct_stack
    stack.wire.target = SOCKET + ".nowhere"
    try:
        answer = stack.post()
        assert problem(answer, 503, "store-unavailable")["retryable"] is True and answer.headers.get("Retry-After") == "1"
    finally:
        stack.wire.target = SOCKET
    stack.check_once(stack.post())


def test_serializable_conflicts(stack):
    """Different keys for the same order at the same time: each conflict is repeated, nobody is refused."""
    stack.database.rows("ALTER ROLE shop SET default_transaction_isolation = 'serializable'")
    try:
        keys = [f"{stack.key}-{number}" for number in range(3)]
        stop = stack.wire.stop_at(b"INSERT INTO payments")
        slow = stack.begin(key=keys[0])  # has read, and not written
        stop.wait()
        first = stack.post(key=keys[1])
        stop.go()
        answers = [first, slow(), stack.post(key=keys[2])]
    finally:
        stack.database.rows("ALTER ROLE shop RESET default_transaction_isolation")
    assert [answer.status for answer in answers] == [201] * 3, [answer.body for answer in answers]
    assert sorted(answer.json()["number"] for answer in answers) == [1, 2, 3]
    assert b"".join(stack.wire.said).count(stack.begins) >= 4  # one of them twice


def test_many_at_once(stack):
    answers = all_at_once([stack.post] * 4)
    assert {answer.status for answer in answers} <= {201, 409}
    stack.check_once(stack.retry())


def test_pgbouncer(stack):
    """In transaction mode: no session state."""
    stack.wire.target = POOL
    try:
        answers = all_at_once([lambda n=n: stack.post(key=f"{stack.key}-{n}") for n in range(4)])
        assert [answer.status for answer in answers] == [201] * 4, ([answer.body for answer in answers], stack.backend.lines[-20:])
        assert stack.post(key=f"{stack.key}-0").body == answers[0].body
        assert stack.database.payments(stack.order) == 4
    finally:
        stack.wire.target = SOCKET


def test_strings(stack):
    """Byte for byte: into the business table, into the outbox, to the client and to the replay."""
    for number, text in enumerate(STRINGS):
        stack.fresh()
        body = json.dumps({"order": stack.order, "note": text}, ensure_ascii=number % 2 == 0).encode()
        first = stack.post(body)
        assert first.status == 201 and first.json()["note"] == text, (first.status, text)
        assert stack.database.one("SELECT note FROM payments WHERE order_id = %s", stack.order) == text
        event = bytes(stack.database.one("SELECT payload FROM once.outbox WHERE key = %s", stack.order))
        assert json.loads(event)["note"] == text
        again = stack.post(body)
        assert again.body == first.body and again.headers.get("Idempotent-Replayed") == "true"
    body = stack.fresh().body(then="bytes")
    first, again = stack.post(body), stack.post(body)
    assert first.status == 200 and first.body == again.body == bytes(range(256)) * 2
    assert first.headers.get("Content-Type") == again.headers.get("Content-Type")


def test_accept(stack):
    event = json.dumps({"id": stack.order}).encode()
    assert [stack.post(event, path="/events", key=f"{stack.key}-{n}").json()["new"] for n in range(3)] == [True, False, False]


# ------------------------------------------------------------------------------------------------------------- kill -9

INSTANTS = {  # the message that does not arrive, or not yet
    "before the claim": ("wire", None, False),
    "before the effect": ("wire", b"INSERT INTO payments", False),
    "before the record": ("wire", b"once.complete", False),
    "COMMIT under way": ("wire", b"COMMIT", False),
    "committed, not told": ("wire", b"COMMIT", True),
    "told, not answered": ("link", b" 201 ", True),
}
FEW = ("before the record", "committed, not told")


def test_killed_at_every_instant(stack):
    """kill -9 between every two steps. Afterwards there is nothing, or the payment with its response."""
    for number, (name, (where, text, back)) in enumerate(INSTANTS.items()):
        if name not in (FEW if stack.gateway is None else FEW[:1]) and not (stack.app.get("instants") and stack.gateway is None):
            continue
        stack.fresh()
        stop = getattr(stack, where).stop_at(text or stack.begins, back)
        finish = stack.begin()
        stop.wait()
        assert stack.database.payments(stack.order) == (1 if back else 0), name
        stack.backend.signal(signal.SIGKILL)
        (stop.go if number % 2 else stop.cut)()  # what was under way arrives all the same, or not
        stack.backend.restart()
        first = finish()
        stack.database.end_lease(stack.key)
        answer = stack.retry()
        stack.check_once(answer)
        if getattr(first, "status", None) == 201:
            assert first.body == answer.body
        if back:  # what is committed is not run again
            assert stack.database.state(stack.key) == ("completed", 1)


class Provider:
    """Transfers once for each key, and counts."""

    def __init__(self):
        provider = self
        self.asked, self.made, self.answers = [], {}, threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                key = self.headers["Idempotency-Key"]
                provider.asked.append(key)
                told = json.dumps({"id": provider.made.setdefault(key, f"t-{len(provider.made)}")}).encode()
                provider.answers.wait(60)
                self.send_response(200)
                self.send_header("Content-Length", str(len(told)))
                self.end_headers()
                self.wfile.write(told)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def provider():
    made = Provider()
    yield made
    made.answers.set()
    made.server.shutdown()
    made.server.server_close()


def test_steps_resume(stack, provider):
    """Killed while a third party is at work: the next attempt goes on behind the checkpoint, with the same key for the other."""
    body = stack.body(provider=provider.url)
    finish = stack.begin(body, path="/payouts")
    until(lambda: provider.asked, "the provider is asked")
    assert stack.database.payments(stack.order) == 1  # reserved, and committed
    stack.backend.kill()
    finish()
    stack.backend.start()
    provider.answers.set()
    stack.database.end_lease(stack.key)
    answer = stack.retry(body, path="/payouts")
    assert answer.status == 201 and answer.json() == {"transfer": "t-0"}, answer
    assert stack.database.payments(stack.order) == 1 and len(provider.asked) == 2 and len(provider.made) == 1
    assert stack.database.one("SELECT note FROM payments WHERE order_id = %s", stack.order) == "t-0"
    assert stack.database.state(stack.key) == ("completed", 2)
