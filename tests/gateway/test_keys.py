"""Keys that are not in a header: in a JSON body at any depth, from several sources in order, or derived from the content."""
import json
import time

import pytest

from harness import expect
from harness.upstream import answer
from harness.wait import until

POINTER = "json:/params/_meta/idempotencyKey"


def call(key, filler="", **more):
    """As an agent calls a tool."""
    meta = {} if key is None else {"idempotencyKey": key}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "filler": filler,
                       "params": {"name": "pay", "arguments": {"idempotencyKey": "not this one"}, "_meta": meta}, **more}).encode()


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("size", [0, 300_000])
def test_at_any_depth(gateway, chunked, size):
    """Also in a body that arrives in pieces, and is in a file."""
    filler = "x" * size
    gw = gateway(f"once_key {POINTER};")
    options = {"chunked": True, "piece": 777} if chunked else {}
    expect.once(lambda: gw.request("POST", "/", None, call("k", filler), **options))
    assert gw.upstream.last().key == "k"
    expect.first(gw.request("POST", "/", None, call(7, filler), **options))
    assert gw.upstream.last().key == "7"
    expect.problem(gw.request("POST", "/", None, call("k", filler + "y"), **options), "key-reused")
    assert gw.upstream.total == 2


BODIES = {
    "missing": (call(None), "key-missing"), "null": (b'{"params":{"_meta":{"idempotencyKey":null}}}', "key-missing"),
    "a fraction": (call(1.5), "key-missing"), "an object": (call({}), "key-missing"), "a list": (b'["params"]', "key-missing"),
    "not JSON": (call("k")[:-1], "key-missing"), "more than JSON": (call("k") + b"x", "key-missing"),
    "no body": (None, "key-missing"),
    "too deep": (b'{"a":' + b"[" * 80 + b"]" * 80 + b"," + call("k")[1:], "key-missing"),
    "empty": (call(""), "key-missing"), "too long": (call("k" * 256), "key-invalid"), "control": (call("a\nb"), "key-invalid"),
    "twice": (b'{"params":{"_meta":{"idempotencyKey":"a","idempotencyKey":"b"}}}', "key-invalid"),
    "twice further out": (b'{"params":{"_meta":{"idempotencyKey":"a"}},"params":{}}', "key-invalid"),
    "twice in disguise": (b'{"params":{"_meta":{"idempotencyKey":"a","idempotency\\u004bey":"b"}}}', "key-invalid"),
}


def test_what_is_no_key(gateway):
    """Readers of JSON differ on these: what the backend would take for the key is not known."""
    gw = gateway(f"once_key {POINTER};")
    for name, (body, problem) in BODIES.items():
        response = gw.request("POST", "/", None, body)
        assert response.status == 400 and response.json()["type"].endswith(problem), (name, response)
    assert gw.upstream.total == 0
    expect.once(lambda: gw.request("POST", "/", None, b' {"params" : {"_meta":{"idempotency\\u004bey":"\\u006b"}}} '))
    assert gw.upstream.last().key == "k"


def test_sources_in_order(gateway):
    """The first that has a key; what the backend gets is that key, whatever else the client sent."""
    gw = gateway(f"once_key Idempotency-Key {POINTER} json:/items/1/id $http_x_request_id;")
    cases = [("header", [("Idempotency-Key", "header"), ("X-Request-Id", "last")], call("body")),
             ("body", [("X-Request-Id", "last")], call("body", items=[{}, {"id": "item"}])),
             ("item", [("X-Request-Id", "last")], call(None, items=[{"id": 1}, {"id": "item"}])),
             ("last", [("X-Request-Id", "last")], b"not JSON")]
    for key, headers, body in cases:
        expect.once(lambda headers=headers, body=body: gw.request("POST", "/", None, body, headers))
        assert gw.upstream.last().headers.all("Idempotency-Key") == [key]
    expect.problem(gw.request("POST", "/", None, b"nothing"), "key-missing")
    assert gw.upstream.total == len(cases)


def test_quoted_header_stays_as_it_is(gateway):
    gw = gateway(f"once_key Idempotency-Key {POINTER} strict;")
    expect.once(lambda: gw.post('"k"'))
    assert gw.upstream.last().headers.all("Idempotency-Key") == ['"k"']
    expect.problem(gw.post("k"), "key-invalid")


def test_early_lookup_waits_for_the_body(gateway):
    """What follows in the list might name another operation: before the body is read, there is no key."""
    gw = gateway(f"once_key {POINTER} $http_x_id; once_early_lookup on; limit_req zone=z burst=100 nodelay;",
                 http="limit_req_zone $once_limit_key zone=z:1m rate=1000r/s;")
    expect.once(lambda: gw.request("POST", "/", None, call("k"), [("X-Id", "other")]))
    assert gw.upstream.last().key == "k"


# ------------------------------------------------------------------------------------------------------------------ derived

DERIVED = "once on; once_scope $http_x_scope; proxy_pass http://backend; once_key Idempotency-Key derive=24h;"


def away_from_midnight():
    """Of UTC, where one period ends and the next begins."""
    until(lambda: 60 < time.time() % 86400 < 86340, "the next period", 150)


def wait_ready(gw):
    """A worker that has just started does not have the store's secrets yet: without them there is no key."""
    until(lambda: gw.request("POST", "/", None, b"ready?", [("X-Scope", "nobody")]).status != 503, "the store")
    return gw.upstream.total


def test_derived_from_caller_and_content(gateway):
    away_from_midnight()
    gw = gateway(guard=DERIVED + "once_fingerprint json;")
    before = wait_ready(gw)

    def post(body, scope="ada", target="/", **options):
        return gw.request("POST", target, None, body, [("X-Scope", scope), ("Content-Type", "application/json")], **options)

    first, same = post(b'{"a":1,"b":2}'), post(b'{"b":2, "a":1.0}')
    key = first.header("Once-Derived-Key")
    assert key.startswith("h1-") and same.header("Once-Derived-Key") == key
    assert same.header("Idempotent-Replayed") == "true" and same.body == first.body
    assert gw.upstream.last().key == key
    others = [post(b'{"a":1,"b":3}'), post(b'{"a":1,"b":2}', scope="bob"), post(b'{"a":1,"b":2}', target="/?x")]
    assert len({key, *(other.header("Once-Derived-Key") for other in others)}) == 4
    assert all("Idempotent-Replayed" not in other.headers for other in others) and gw.upstream.total == before + 4
    given = gw.post("k", b'{"a":1,"b":2}', scope="ada")
    assert given.status == 201 and "Once-Derived-Key" not in given.headers and gw.upstream.total == before + 5
    expect.problem(gw.request("POST", "/", None, b"{}"), "scope-missing")


def test_errors_say_that_it_was_derived(gateway):
    away_from_midnight()
    gw = gateway(guard=DERIVED + "once_recover hold; once_lease 60s;")
    before = wait_ready(gw)
    gw.upstream.then(lambda exchange: exchange.reset())
    lost, unknown = (gw.request("POST", "/", None, b"a", [("X-Scope", "ada")]) for _ in range(2))
    assert (lost.status, unknown.status, gw.upstream.total) == (502, 409, before + 1)
    assert lost.header("Once-Derived-Key") == unknown.header("Once-Derived-Key") is not None


def test_another_period_is_another_operation(gateway):
    """That is what it promises, and no more."""
    gw = gateway(guard=DERIVED.replace("24h", "1s"))
    gw.upstream.default = answer(201)
    wait_ready(gw)
    before, seen = gw.upstream.total, set()

    def renewed():
        seen.add(gw.request("POST", "/", None, b"a", [("X-Scope", "ada")]).header("Once-Derived-Key"))
        return len(seen) > 1

    until(renewed, "the next second")
    assert gw.upstream.total == before + len(seen)
