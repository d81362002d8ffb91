"""once_redact: headers and parts of JSON that are not recorded."""
import json
import os

import pytest

from harness import expect
from harness.upstream import answer

JSON = ("Content-Type", "application/json")


def stored_body(gw, key="k"):
    """Byte by byte, as the record has it."""
    return gw.store.run("keys", "show", "--body", gw.store.url, gw.store.record(key)["id"]).stdout


def check_redacted(gw, body, stored, headers=(JSON,)):
    """The first client gets all of it; the record and the replays have what is left."""
    gw.upstream.default = answer(201, [("X-Own", "1"), *headers], body)
    original = expect.first(gw.post("k"))
    assert original.body == body and "Once-Body" not in original.headers
    replay = gw.post("k")
    assert (replay.status, replay.body) == (201, stored)
    assert replay.header("Once-Body") == ("redacted" if stored != body else None)
    assert replay.header("X-Own") == "1" and replay.header("Idempotent-Replayed") == "true"
    assert gw.upstream.count("k") == 1
    return original, replay


@pytest.mark.parametrize("pointers, body, stored", [
    ("/card/number", b'{"card": {"number":"4111", "cvc":1}, "n": 19.990}', b'{"card": {"number":null, "cvc":1}, "n": 19.990}'),
    ("/card", b' {"a":1,"card" : {"number":["}",{}],"x":"\\"}"} ,"b":2}\n', b' {"a":1,"card" : null ,"b":2}\n'),
    ("/card /card/number", b'{"card":{"number":1}}', b'{"card":null}'),
    ("/items/1/iban", b'[1]', b'[1]'),
    ("/items/1/iban", b'{"items":[{"iban":"a"},{"iban":"b"}]}', b'{"items":[{"iban":"a"},{"iban":null}]}'),
    ("/items/*/iban", b'{"items":[{"iban":"a"}, {"iban":["b"]},[],3]}', b'{"items":[{"iban":null}, {"iban":null},[],3]}'),
    ("/0", b'["a",["b"]]', b'[null,["b"]]'),
    ("/name", b'{"n\\u0061me":"ada","name":"eve"}', b'{"n\\u0061me":null,"name":null}'),
    ("/a~1b~0", b'{"a/b~":1,"c":123456789012345678901234567890}', b'{"a/b~":null,"c":123456789012345678901234567890}'),
    ("/a", b'{}', b'{}'),
    ("/a", b'"text"', b'"text"'),
], ids=range(11))
def test_what_a_pointer_leads_to_is_null(gateway, pointers, body, stored):
    gw = gateway(f"once_redact {pointers};")
    check_redacted(gw, body, stored)
    assert stored_body(gw) == stored


def test_headers_are_left_out(gateway):
    gw = gateway("once_redact X-Token x-other;")
    original, replay = check_redacted(gw, b"{}", b"{}", [JSON, ("X-Token", "secret"), ("X-Kept", "2")])
    assert original.header("X-Token") == "secret" and "X-Token" not in replay.headers
    assert replay.header("X-Kept") == "2"


def test_sums_of_the_body_are_left_out(gateway):
    gw = gateway("once_redact /a;")
    _, replay = check_redacted(gw, b'{"a":1}', b'{"a":null}', [JSON, ("ETag", '"1"'), ("Content-Digest", "sha-256=:AA==:")])
    assert "ETag" not in replay.headers and "Content-Digest" not in replay.headers


@pytest.mark.parametrize("body, headers", [
    (b'{"a":1', [JSON]),
    (b'{"a":"\xff"}', [JSON]),
    (b"a=1", [("Content-Type", "text/plain")]),
    (b'{"a":1}', [("Content-Type", "application/jsonl")]),
    (b'{"a":1}', [JSON, ("Content-Encoding", "br")]),
], ids=["cut", "utf-8", "text", "lines", "encoded"])
def test_what_cannot_be_searched_is_not_stored(gateway, body, headers):
    gw = gateway("once_redact /a;")
    gw.upstream.default = answer(201, headers, body)
    assert expect.first(gw.post("k")).body == body
    replay = gw.post("k")
    assert (replay.status, replay.body, replay.header("Once-Body")) == (201, b"", "omitted")
    assert gw.upstream.count("k") == 1


def test_nothing_of_it_is_in_the_files(gateway):
    gw = gateway("once_redact /card X-Token; once_describe off;")
    gw.upstream.default = answer(201, [JSON, ("X-Token", "canary-header")], b'{"card":"canary-body","x":"here"}')
    for number in range(40):
        expect.first(gw.post(f"k{number}"))
    gw.nginx.quit()
    found = b""
    for folder, _, files in os.walk(gw.store.url.split(":", 1)[1].split("?")[0]):
        for name in files:
            with open(os.path.join(folder, name), "rb") as file:
                found += file.read()
    assert b"here" in found and b"canary" not in found


def test_probe(gateway, backend):
    prober = backend()
    prober.default = lambda exchange: exchange.respond(200, [("Once-Outcome", "final"), ("Once-Status", "201"), JSON], b'{"a":1}')
    gw = gateway(f"once_recover hold; once_lease 500ms; once_redact /a; once_probe http://{prober.name}/outcome;")
    gw.upstream.then(lambda exchange: exchange.reset())
    gw.post("k")
    record = gw.store.wait_state("k", "completed")
    assert json.loads(stored_body(gw)) == {"a": None} and record["cause"].startswith("settled by once_probe")
