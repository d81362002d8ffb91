"""What a transaction of PostgreSQL promises on top, behind the gate and without it."""
import json
import signal

import pytest

from contract import problem
from harness.http1 import Connection
from harness.wait import all_at_once, until
from stacks import APPS, POOL, SOCKET, chosen, named


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


def test_nothing_done(stack):
    """All is undone, and the gate learns it: the next request runs at once, without the end of a lease."""
    for then in ("release", "refuse later") if stack.app["refusal"] else ("release",):
        body = stack.fresh().body(then=then)
        for _ in range(2):
            answer = stack.post(body)
            assert answer.status in ((503,) if then == "release" else (401, 403, 429)), (answer.status, answer.body)
            assert "Once-Outcome" not in answer.headers and b"urn:once:problem" not in answer.body
            assert stack.database.payments(stack.order) == 0


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


def test_fence_after_a_checkpoint(direct_stack, provider):
    """Without a gate: a checkpoint has committed the claim, so that another attempt can overtake it. It cannot commit then."""
    stack = direct_stack
    body = stack.body(provider=provider.url)
    finish = stack.begin(body, path="/payouts")
    until(lambda: len(provider.asked) == 1, "the provider is asked")
    stack.database.end_lease(stack.key)
    overtaking = stack.begin(body, path="/payouts")
    until(lambda: len(provider.asked) == 2, "the provider is asked by another attempt")
    provider.answers.set()
    told, answer = finish(), overtaking()
    assert problem(told, 503, "store-unavailable")["retryable"] is True
    assert answer.status == 201 and answer.json() == {"transfer": "t-0"}, answer
    assert stack.database.payments(stack.order) == 1 and stack.database.state(stack.key) == ("completed", 2)


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
    stack.wire.divert(SOCKET + ".nowhere")
    try:
        answer = stack.post()
        assert problem(answer, 503, "store-unavailable")["retryable"] is True and answer.headers.get("Retry-After") == "1"
    finally:
        stack.wire.divert(SOCKET)
    stack.check_once(stack.post())


def test_serializable_conflicts(stack):
    """Different keys for the same order at the same time: each conflict is repeated, nobody is refused."""
    stack.database.rows("ALTER ROLE shop SET default_transaction_isolation = 'serializable'")
    stack.wire.cut()
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
        stack.wire.cut()
    assert [answer.status for answer in answers] == [201] * 3, [answer.body for answer in answers]
    assert sorted(answer.json()["number"] for answer in answers) == [1, 2, 3]
    assert b"".join(stack.wire.said).count(stack.begins) >= 4  # one of them twice


def test_pgbouncer(stack):
    """In transaction mode: no session state."""
    stack.wire.divert(POOL)
    try:
        answers = all_at_once([lambda n=n: stack.post(key=f"{stack.key}-{n}") for n in range(4)])
        assert [answer.status for answer in answers] == [201] * 4, ([answer.body for answer in answers], stack.backend.lines[-20:])
        assert stack.post(key=f"{stack.key}-0").body == answers[0].body
        assert stack.database.payments(stack.order) == 4
    finally:
        stack.wire.divert(SOCKET)


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


@pytest.fixture(params=[(name, via) for name, via in chosen() if via == "direct" or APPS[name].get("instants")], ids=named)
def killed(stacks, request):
    return stacks[request.param].fresh()


def test_killed_at_every_instant(killed):
    """kill -9 between every two steps. Afterwards there is nothing, or the payment with its response. What it depends on is the
    same for all applications of a language: one of them is killed at each instant, the others, and behind a gate, at one."""
    stack = killed
    for number, (name, (where, text, back)) in enumerate(INSTANTS.items()):
        if not (stack.app.get("instants") and stack.gateway is None) and \
                name != ("before the record" if stack.gateway else "committed, not told"):
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


def test_steps_resume(killed, provider):
    """Killed while a third party is at work: the next attempt goes on behind the checkpoint, with the same key for the other."""
    stack = killed
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
    again = stack.post(body, path="/payouts")
    assert again.body == answer.body and again.headers.get("Idempotent-Replayed") == "true"
