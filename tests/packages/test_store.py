"""What any store promises through `once serve`: at most one effect, and an honest unknown."""
import json
import re

import pytest

from contract import problem
from harness.wait import until
from stacks import APPS, chosen, named

ASKED = {"scope": "tenant-7", "method": "POST", "target": "/payments", "recover": "hold"}


@pytest.fixture(params=chosen("local", "redis"), ids=named)
def stack(stacks, request):
    """Without a gate: that would claim and record."""
    return stacks[request.param].fresh()


def claim_on(stack):
    """As another caller of the server would."""
    return stack.server.ask("/v1/claim", key=stack.key, body=stack.body().decode(), **ASKED)


def test_releases(stack):
    """Nothing was done, and the application says so: the key is free at once."""
    for then in ("later", "release"):
        body = stack.fresh().body(then=then)
        for _ in range(2):
            answer = stack.post(body)
            assert answer.status == (429 if then == "later" else 503), (answer.status, answer.body)
            assert "Idempotent-Replayed" not in answer.headers
            assert stack.state() == "failed" and stack.database.payments(stack.order) == 0


def test_exception_is_unknown(stack):
    """It may have taken effect, and it has. Nobody runs it again until somebody has settled it."""
    body = stack.body(then="raise")
    assert stack.post(body).status == 500 and stack.database.payments(stack.order) == 1
    for _ in range(2):
        assert problem(stack.post(body), 409, "outcome-unknown")["retryable"] is False
    assert stack.database.payments(stack.order) == 1 and stack.state() == "unknown"


def refuses_later(stack):
    """Raised, a 429 says nothing about what was done before: it may be a third party's, which an application passes on."""
    body = stack.body(then="refuse later")
    answer = stack.post(body)
    assert answer.status in (401, 403, 429) and "Once-Outcome" not in answer.headers, (answer.status, answer.body)
    assert problem(stack.post(body), 409, "outcome-unknown")["retryable"] is False
    assert stack.database.payments(stack.order) == 1 and stack.state() == "unknown"


def test_refusal_after_the_effect_is_unknown(stack):
    if stack.app["refusal"]:
        refuses_later(stack)


def test_gate_learns_what_was_done(gate_stack):
    """What the status does not say goes to the gate in a header, which clients do not get."""
    refuses_later(gate_stack)
    body = gate_stack.fresh().body(then="release")
    for _ in range(2):
        answer = gate_stack.post(body)
        assert answer.status == 503 and "Once-Outcome" not in answer.headers, (answer.status, answer.body)
        assert gate_stack.state() == "failed" and gate_stack.database.payments(gate_stack.order) == 0


def test_unknown(stack):
    stack.server.ask("/v1/doubt", claim=claim_on(stack)["claim"])
    assert problem(stack.post(), 409, "outcome-unknown")["retryable"] is False
    assert stack.database.payments(stack.order) == 0


def test_stale_claim_is_answered_from_the_record(stack):
    """Overtaken before it could record: its client gets what the record says, not what the handler returned."""
    for path, more in (("/v1/complete", {"response": {"status": 200, "headers": [["x-from", "record"]], "body": "settled"}}),
                       ("/v1/release", {})):
        stop = stack.fresh().serve.stop_at(b"/v1/finish")
        finish = stack.begin()
        stop.wait()
        until(lambda: b'"claim"' in b"".join(stack.serve.said).rpartition(b"/v1/finish")[2], "the claim")
        claim = re.search(rb'"claim" *: *"([^"]+)"', b"".join(stack.serve.said).rpartition(b"/v1/finish")[2]).group(1).decode()
        assert stack.server.ask(path, claim=claim, **more)["outcome"] == "done"
        stop.go()
        answer = finish()
        if more:
            assert (answer.status, answer.body, answer.headers.get("X-From")) == (200, b"settled", "record")
        else:
            assert problem(answer, 409, "in-flight")["retryable"] is True
        assert stack.database.payments(stack.order) == 1


def test_lost_replies(stack):
    """Claimed or recorded, and the application does not know: it asks again, and its client notices nothing."""
    for text in (b'"run"', b'"judgement"'):
        stop = stack.fresh().serve.stop_at(text, back=True)
        finish = stack.begin()
        stop.wait()
        stop.cut()
        answer = finish()
        stack.check_once(answer)
        assert "Idempotent-Replayed" not in answer.headers
        assert stack.post().body == answer.body and stack.record()["epoch"] == 1


def test_no_server(stack):
    target, stack.serve.target = stack.serve.target, stack.directory + "/nowhere"
    stack.serve.cut()
    try:
        answer = stack.post()
        assert problem(answer, 503, "store-unavailable")["retryable"] is True and answer.headers.get("Retry-After") == "1"
        assert stack.database.payments(stack.order) == 0
    finally:
        stack.serve.target = target
    stack.check_once(stack.post())


def test_derived_key(stack, provider):
    """For a third party: the same as the server derives for the record."""
    provider.answers.set()
    answer = stack.post(stack.body(provider=provider.url), path="/payouts")
    assert (answer.status, answer.json()) == (201, {"transfer": "t-0"})
    assert provider.asked == [stack.server.ask("/v1/derive", scope="tenant-7", key=stack.key, step="transfer")["key"]]
    assert stack.database.payments(stack.order) == 1


# ------------------------------------------------------------------------------------------------------------- kill -9

INSTANTS = {  # where, which message, of the answer; how many effects there are
    "before the claim": ("serve", b"/v1/claim", False, 0),
    "claimed, not told": ("serve", b'"run"', True, 0),
    "before the effect": ("wire", b"INSERT INTO payments", False, 0),
    "effected, not told": ("wire", b"INSERT 0 1", True, 1),
    "before the record": ("serve", b"/v1/finish", False, 1),
    "recorded, not told": ("serve", b'"judgement"', True, 1),
    "told, not answered": ("link", b" 201 ", True, 1),
}
FEW = ("effected, not told",)


@pytest.fixture(params=[(name, via) for name, via in chosen("local", "redis") if APPS[name].get("instants")], ids=named)
def killed(stacks, request):
    """What it depends on is the client of the server, which applications of a language share: the blocking and the async one."""
    return stacks[request.param].fresh()


def instants(stack, few):
    for name, (where, text, back, effects) in INSTANTS.items():
        if few and name not in FEW:
            continue
        stop = getattr(stack.fresh(), where).stop_at(text, back)
        finish = stack.begin()
        stop.wait()
        assert stack.database.payments(stack.order) == effects, name
        yield name, effects, stop, finish


def check_renewed(stack):
    """The lease grows again while the handler is at work."""
    stop = stack.wire.stop_at(b"INSERT INTO payments")
    finish = stack.begin()
    stop.wait()
    seen = [stack.record()["lease_ms"]]
    until(lambda: seen.append(stack.record()["lease_ms"]) or seen[-1] > seen[-2], "the lease being renewed")
    stop.go()
    stack.check_once(finish())


def test_application_killed_at_every_instant(killed):
    """At most one effect. Whether there was one is answered, or said to be unknown, as soon as the lease is over."""
    stack = killed
    stack.backend.variables["LEASE"] = "3"
    stack.backend.restart()
    check_renewed(stack)
    left = []
    for number, (name, effects, stop, finish) in enumerate(instants(stack, stack.via == "redis")):  # every start takes its time
        stack.backend.kill()
        (stop.go if number % 2 else stop.cut)()  # what was under way arrives all the same, or not
        finish()
        left.append((name, stack.key, stack.order, effects))
        stack.backend.start()
    for name, stack.key, stack.order, effects in left:
        answer = until(lambda: (told := stack.post()) and b"urn:once:problem:in-flight" not in told.body and told,
                       f"an answer after {name}")
        if stack.state() == "completed":
            stack.check_once(answer)
        else:
            problem(answer, 409, "outcome-unknown")
            assert name not in ("before the claim", "recorded, not told", "told, not answered")
        assert effects <= stack.database.payments(stack.order) <= 1, name
    stack.backend.variables["LEASE"] = "60"
    stack.backend.restart()


def test_server_killed_at_every_instant(killed):
    """It is started again, and the application goes on as if nothing had happened."""
    stack = killed
    for name, _, stop, finish in instants(stack, stack.via == "redis"):
        stack.server.kill()
        stop.cut() if stop.text.startswith((b"/v1", b'"')) else stop.go()
        stack.server.start()
        answer = finish()
        stack.check_once(answer)
        assert "Idempotent-Replayed" not in answer.headers and stack.record()["epoch"] == 1, name
        assert stack.post().body == answer.body


def test_first_body_is_the_fingerprint(stack):
    """As the gate and libonce make it: a record that another caller has completed is replayed."""
    claim = claim_on(stack)["claim"]
    told = {"status": 201, "headers": [["content-type", "application/json"]], "body": json.dumps({"by": "another"})}
    assert stack.server.ask("/v1/finish", claim=claim, response=told) == {"judgement": "record", "outcome": "done"}
    answer = stack.post()
    assert (answer.status, answer.json(), answer.headers.get("Idempotent-Replayed")) == (201, {"by": "another"}, "true")
