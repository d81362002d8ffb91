"""What a record says about itself: which request it was, which process ran it, and why it is in its state."""
import json
import os
import re

import pytest

HOLD = "once_recover hold;"


def test_method_and_path_without_query(gateway):
    gw = gateway()
    gw.post("k", target="/payments/%C3%A4?card=4111")
    record = gw.store.record("k")
    assert record["description"] == "POST /payments/%C3%A4"
    assert record["cause"] == "" and record["subject_hash"] is None
    host, process = record["holder"].rsplit(":", 1)
    assert host == os.uname().nodename[:52] and int(process) > 0
    for name in ("created", "changed", "expires"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", record[name]), name
    assert record["lease_until"] is None


def test_off(gateway):
    gw = gateway("once_describe off;")
    gw.post("k")
    assert gw.store.record("k")["description"] == ""


def test_a_text_with_variables_that_is_cut(gateway):
    gw = gateway("once_describe 'route payments: $arg_what';")
    gw.post("k", target="/payments?what=" + 300 * "x")
    assert gw.store.record("k")["description"] == ("route payments: " + 300 * "x")[:256]


def test_subject_is_a_hash(gateway):
    gw = gateway("once_subject $http_x_user;")
    gw.post("a", headers=[("X-User", "ada")])
    gw.post("b", headers=[("X-User", "ada")])
    gw.post("c", headers=[("X-User", "bob")])
    gw.post("d")
    a, b, c, d = (gw.store.record(key)["subject_hash"] for key in "abcd")
    assert a == b != c and len(a) == 32 and d is None
    listed = gw.store.run("keys", "list", "--json", "--subject", "ada", gw.store.url).stdout.splitlines()
    assert sorted(json.loads(line)["key"] for line in listed) == ["a", "b"]


@pytest.mark.parametrize("script, rules, state, cause", [
    (lambda exchange: exchange.reset(), HOLD, "unknown", "reset"),
    (lambda exchange: exchange.respond(503), HOLD, "unknown", "status 503"),
    (lambda exchange: exchange.respond(200, [("Once-Outcome", "unknown")]), HOLD, "unknown", "Once-Outcome: unknown"),
    (lambda exchange: exchange.respond(500, [("Once-Outcome", "retry")]), "", "failed", "status 500"),
    (lambda exchange: (exchange.begin(201, [("Content-Length", "100")]), exchange.send(b"x"), exchange.close()), HOLD, "unknown",
     "response cut off"),
], ids=["reset", "status", "said", "retry", "cut"])
def test_why_it_is_not_completed(gateway, script, rules, state, cause):
    gw = gateway(rules)
    gw.upstream.then(script)
    gw.post("k")
    assert gw.store.wait_state("k", state)["cause"] == cause


def test_timeout(gateway):
    gw = gateway(HOLD + "proxy_read_timeout 1s;")
    gw.upstream.then(lambda exchange: exchange.wait_gone())
    assert gw.post("k").status == 504
    assert gw.store.wait_state("k", "unknown")["cause"] == "timeout"
