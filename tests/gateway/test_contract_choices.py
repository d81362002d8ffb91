"""The HTTP contract of the gateway: what an operator can choose for a route."""
import json
import os
import re

import pytest

from harness import environment, expect
from harness.gateway import GUARD
from harness.upstream import slow
from harness.wait import Gate


# ------------------------------------------------------------------------------------------------------------- scopes

def test_scopes_never_meet(gateway):
    gw = gateway()
    one = expect.first(gw.post("k", b"one", scope="alice"))
    two = expect.first(gw.post("k", b"two", scope="bob"))
    none = expect.first(gw.post("k", b"three"))
    expect.replay(gw.post("k", b"one", scope="alice"), one)
    expect.replay(gw.post("k", b"two", scope="bob"), two)
    expect.replay(gw.post("k", b"three"), none)
    assert gw.upstream.count("k") == 3


def test_empty_scope_is_refused_unless_optional(gateway):
    gw = gateway(guard="once on; once_scope $http_x_scope; proxy_pass http://backend;")
    expect.problem(gw.post("k"), "scope-missing")
    expect.problem(gw.post("k", scope=""), "scope-missing")
    assert gw.upstream.total == 0
    original = expect.first(gw.post("k", scope="alice"))
    expect.replay(gw.post("k", scope="alice"), original)
    assert gw.upstream.total == 1


def test_long_scopes(gateway):
    gw = gateway()
    one = expect.first(gw.post("k", scope="s" * 4000 + "1"))
    expect.first(gw.post("k", scope="s" * 4000 + "2"))
    expect.replay(gw.post("k", scope="s" * 4000 + "1"), one)
    assert gw.upstream.count("k") == 2


def test_scope_of_several_parts(gateway):
    gw = gateway(guard="once on; once_scope $http_x_one:$http_x_two; proxy_pass http://backend;")
    expect.first(gw.post("k", headers=[("X-One", "a"), ("X-Two", "b")]))
    expect.first(gw.post("k", headers=[("X-One", "a"), ("X-Two", "c")]))
    assert gw.upstream.count("k") == 2


def test_scope_is_stored_as_a_hash_only(gateway):
    gw = gateway()
    expect.first(gw.post("k", scope="Bearer very-secret-token"))
    shown = gw.store.run("keys", "export", "--bodies", gw.store.url).stdout
    assert b"very-secret" not in shown
    found = gw.store.run("keys", "list", "--json", "--scope", "Bearer very-secret-token", gw.store.url).stdout
    assert b'"k"' in found
    assert gw.upstream.total == 1


# ----------------------------------------------------------------------------------------------- other directives

def test_retry_after_learns_how_long_it_takes(gateway):
    """30 s of lease are left, but operations here take a moment."""
    gw, gate = gateway(), Gate()
    for number in range(5):
        expect.first(gw.post(f"k{number}"))
    gw.upstream.then(slow(gate))
    with gw.connect() as client:
        client.start("POST", "/", "k", b'{"amount":1}')
        gate.wait_arrival()
        expect.problem(gw.post("k"), "in-flight", retry_after=(1, 3))
        gate.open()
        expect.first(client.finish())
    assert gw.upstream.count("k") == 1


def test_retry_after_can_be_fixed(gateway):
    gw, gate = gateway("once_retry_after 17;"), Gate()
    gw.upstream.then(slow(gate))
    with gw.connect() as client:
        client.start("POST", "/", "k", b'{"amount":1}')
        gate.wait_arrival()
        expect.problem(gw.post("k"), "in-flight", retry_after=(17, 17))
        gate.open()
        expect.first(client.finish())
    assert gw.upstream.count("k") == 1


def test_require_off_lets_requests_without_key_pass(gateway):
    gw = gateway("once_require off;")
    for _ in range(2):
        expect.unrecorded(gw.post(), 201)
    assert gw.upstream.total == 2
    assert "Once-Claim" not in gw.upstream.last().headers
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)
    expect.problem(gw.post(headers=[("Idempotency-Key", "")]), "key-invalid")
    assert gw.upstream.total == 3


@pytest.mark.parametrize("value, required", [("1", True), ("on", True), ("", False), ("0", False), ("off", False)])
def test_require_by_variable(gateway, value, required):
    gw = gateway("once_require $http_x_require;")
    response = gw.post(headers=[("X-Require", value)])
    if required:
        expect.problem(response, "key-missing")
    else:
        expect.unrecorded(response, 201)
    assert gw.upstream.total == (0 if required else 1)


def test_key_from_another_header(gateway):
    gw = gateway("once_key X-Request-Id;")
    original = expect.first(gw.post(headers=[("X-Request-Id", "r1")]))
    assert gw.upstream.last().headers.get("Idempotency-Key") == "r1"
    expect.replay(gw.post(headers=[("X-Request-Id", "r1"), ("Idempotency-Key", "ignored")]), original)
    expect.problem(gw.post("k"), "key-missing")
    assert gw.upstream.count("r1") == 1 and gw.upstream.total == 1


def test_key_from_a_body_field(gateway):
    gw = gateway("once_key $once_json_id;")
    original = expect.first(gw.post(body=b'{"id":"evt_1","n":1}'))
    assert gw.upstream.last().headers.get("Idempotency-Key") == "evt_1"
    expect.replay(gw.post(body=b'{"id":"evt_1","n":1}'), original)
    expect.problem(gw.post(body=b'{"id":"evt_1","n":2}'), "key-reused")
    expect.problem(gw.post(body=b'{"n":2}'), "key-missing")
    expect.problem(gw.post(body=b"not json"), "key-missing")
    expect.first(gw.post(body=b'{"id":42}'))
    assert gw.upstream.count("evt_1") == 1 and gw.upstream.count("42") == 1 and gw.upstream.total == 2


def test_key_from_a_query_argument(gateway):
    gw = gateway("once_key $arg_id;")
    original = expect.first(gw.post(target="/?id=a1"))
    expect.replay(gw.post(target="/?id=a1"), original)
    expect.problem(gw.post(target="/"), "key-missing")
    assert gw.upstream.count("a1") == 1 and gw.upstream.total == 1


def test_a_key_from_elsewhere_replaces_the_header_of_the_client(gateway):
    """Two keys must not reach the backend: it could use the other one."""
    gw = gateway("once_key $arg_id;")
    expect.first(gw.post("other", target="/?id=a1"))
    assert gw.upstream.last().headers.all("Idempotency-Key") == ["a1"]
    assert gw.upstream.total == 1


def test_fingerprint_none_ignores_the_body(gateway):
    gw = gateway("once_fingerprint none;")
    original = expect.first(gw.post("k", b"a"))
    expect.replay(gw.post("k", b"b"), original)
    assert gw.upstream.count("k") == 1


def test_fingerprint_json_ignores_spelling(gateway):
    gw = gateway("once_fingerprint json;")
    original = expect.first(gw.post("k", b'{"a":1,"b":[1,2]}', headers=[("Content-Type", "application/json")]))
    spelled = gw.post("k", b'{ "b" : [1, 2], "a" : 1 }', headers=[("Content-Type", "application/json")])
    expect.replay(spelled, original)
    expect.problem(gw.post("k", b'{"a":1,"b":[2,1]}', headers=[("Content-Type", "application/json")]), "key-reused")
    assert gw.upstream.count("k") == 1


def form(boundary, *parts):
    """The body of a form and its header: (name, value) each."""
    text = "".join(f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in parts)
    kind = f"multipart/form-data; boundary={boundary}"
    return {"body": f"{text}--{boundary}--\r\n".encode(), "headers": [("Content-Type", kind)]}


def test_fingerprint_multipart_ignores_the_boundary(gateway):
    """A browser makes up a new one whenever it sends a form. Everything else counts: values, names, order, number."""
    gw = gateway("once_fingerprint multipart;")
    original = expect.first(gw.post("k", **form("first", ("a", "1"), ("b", "2"))))
    expect.replay(gw.post("k", **form("another----7", ("a", "1"), ("b", "2"))), original)
    for parts in [[("a", "1"), ("b", "3")], [("a", "1"), ("c", "2")], [("b", "2"), ("a", "1")], [("a", "1")],
                  [("a", "1"), ("b", "2"), ("b", "2")]]:
        expect.problem(gw.post("k", **form("first", *parts)), "key-reused")
    assert gw.upstream.count("k") == 1


def test_fingerprint_multipart_takes_other_bodies_as_they_are(gateway):
    gw = gateway("once_fingerprint multipart;")
    original = expect.first(gw.post("k", b"a"))
    expect.replay(gw.post("k", b"a"), original)
    expect.problem(gw.post("k", b"b"), "key-reused")
    assert gw.upstream.count("k") == 1


def test_fingerprint_exact_minds_the_boundary(gateway):
    gw = gateway()
    expect.first(gw.post("k", **form("first", ("a", "1"))))
    expect.problem(gw.post("k", **form("another", ("a", "1"))), "key-reused")
    assert gw.upstream.count("k") == 1


def test_the_json_log_of_the_documentation(gateway):
    """As it stands there; every line is JSON, whatever the key contains."""
    with open(os.path.join(environment.SOURCE, "docs", "directives.md"), encoding="utf-8") as file:
        example = re.search(r"log_format once_json .*?;\n", file.read(), re.DOTALL).group(0)
    gw = gateway(http=example, server="access_log @directory@/access.json once_json;")
    key = 'a"b\\c'
    original = expect.first(gw.post(key))
    expect.replay(gw.post(key), original)
    gw.post(key, b"other")
    gw.post()
    gw.request("GET", "/")
    gw.nginx.quit()
    with open(f"{gw.directory}/access.json", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    assert [line["once"]["outcome"] for line in lines] == ["run", "replay", "mismatch", "missing", ""]
    assert [line["once"]["key"] for line in lines] == [key, key, key, "", ""]
    assert [line["status"] for line in lines] == ["201", "201", "422", "400", "201"]
    assert [line["once"]["epoch"] for line in lines[:2]] == ["1", "1"]
    assert float(lines[1]["once"]["age"]) >= 0 and lines[0]["upstream_time"] and not lines[1]["upstream_time"]
    assert gw.upstream.of(key) and gw.upstream.total == 2


def test_variables_in_the_log(gateway):
    gw = gateway(http="log_format once '$once_key|$once_outcome|$once_epoch|$once_age|$status|$once_id';",
                 server="access_log @directory@/access.log once;")
    expect.first(gw.post("k"))
    gw.post("k")
    gw.post("k", b"other")
    gw.post()
    gw.post("a\x01")
    gw.request("GET", "/")
    gw.nginx.quit()
    with open(f"{gw.directory}/access.log", encoding="utf-8") as file:
        lines = [line.strip().split("|") for line in file]
    assert [line[0] for line in lines] == ["k", "k", "k", "-", "-", "-"]
    assert [line[1] for line in lines] == ["run", "replay", "mismatch", "missing", "invalid", "-"]
    assert lines[0][2] == "1" and lines[1][2] == "1"
    assert re.fullmatch(r"\d+(\.\d+)?", lines[1][3]), lines[1]
    assert [line[4] for line in lines] == ["201", "201", "422", "400", "400", "201"]
    assert [line[5] for line in lines] == 3 * [gw.store.record("k")["id"]] + ["-", "-", "-"]
    assert gw.upstream.total == 2


def test_guard_is_what_makes_the_difference(gateway):
    """The same requests where once is off: everything passes."""
    gw = gateway(locations="location / { once off; proxy_pass http://backend; } location /g { %s }" % GUARD)
    for _ in range(2):
        expect.unrecorded(gw.post("k"), 201)
    expect.unrecorded(gw.post(), 201)
    assert gw.upstream.total == 3
    original = expect.first(gw.post("k", target="/g"))
    expect.replay(gw.post("k", target="/g"), original)
    assert gw.upstream.total == 4
