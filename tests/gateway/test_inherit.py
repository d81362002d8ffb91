"""Every directive takes effect in its location also when it stands in the server or in http. A row for each: what it is set to, and
requests that are answered otherwise without it, which is tried, too."""
import contextlib
import os
import re
import time

import pytest

from harness import environment, expect
from harness.upstream import answer, slow
from harness.wait import PATIENCE, Gate, until

GUARD = "once on; once_scope $http_x_scope optional; proxy_pass http://backend;"
LIMIT = "limit_req zone=limit; limit_req_status 429;"
ZONE = "limit_req_zone $once_limit_key zone=limit:1m rate=1r/m;"
STATUS = "location = /status { once_status; }"

ROWS = {}


class Row:
    def __init__(self, setting, check, guard, rules, http, instead, disk):
        self.setting, self.check, self.guard, self.rules, self.http = setting, check, guard, rules, http
        self.instead, self.disk = instead, disk


def row(setting, guard=GUARD, rules="", http="", instead="", disk=False):
    """`rules` and `http` are there in any case; `instead` stands in the location where the setting is left out."""
    def add(check):
        ROWS[setting] = Row(setting, check, guard, rules, http, instead, disk)
        return check
    return add


def options_of(line, level):
    parts = {"http": line.http, "server": "", "location": line.rules}
    options = {"disk": line.disk}
    if level == "http" and line.setting.startswith("once_store "):
        options["store"] = line.setting.split()[1].rstrip(";")  # the harness writes it there
    elif level == "nowhere":
        parts["location"] += line.instead
    else:
        parts[level] += line.setting
    locations = "location / { %s %s } %s" % (line.guard, parts["location"], STATUS)
    return {"http": parts["http"], "server": parts["server"], "locations": locations, **options}


@contextlib.contextmanager
def in_flight(gw, key="k"):
    """The gate that it stands before, and its client."""
    gate = Gate()
    gw.upstream.then(slow(gate))
    client = gw.connect()
    client.start("POST", "/", key, b"a")
    gate.wait_arrival()
    try:
        yield gate, client
    finally:
        gate.open()


# ----------------------------------------------------------------------------------------------------------------- rows

@row("once on;", guard="proxy_pass http://backend;", http="once_scope none;")
def once(gw):
    expect.once(lambda: gw.post("k"))
    assert gw.upstream.count("k") == 1


@row("once_name inherited;")
def once_name(gw):
    expect.first(gw.post("k"))
    assert 'once_requests_total{route="inherited",outcome="run"} 1\n' in gw.request("GET", "/status").body.decode()
    assert gw.upstream.count("k") == 1


@row("once_store local:@directory@/elsewhere;")
def once_store(gw):
    expect.once(lambda: gw.post("k"))
    assert os.path.isdir(f"{gw.directory}/elsewhere")
    assert gw.upstream.count("k") == 1


@row("once_store_timeout 1s;", disk=True)
def once_store_timeout(gw):
    expect.first(gw.post("before"))
    gw.disk.block()
    started = time.monotonic()
    expect.problem(gw.post("k"), "store-unavailable")
    assert time.monotonic() - started < 4.5
    assert gw.upstream.count("k") == 0


@row("once_secret_file @directory@/secrets;")
def once_secret_file(gw):
    expect.once(lambda: gw.post("k"))
    assert os.path.isfile(f"{gw.directory}/secrets")
    assert gw.upstream.count("k") == 1


@row("once_methods PUT;")
def once_methods(gw):
    expect.once(lambda: gw.request("PUT", "/", "k", b"a"))
    expect.unrecorded(gw.post("k"), 201)
    assert gw.upstream.count("k") == 2


@row("once_require off;")
def once_require(gw):
    expect.unrecorded(gw.post(), 201)
    assert gw.upstream.total == 1


@row("once_key X-Own strict;")
def once_key(gw):
    expect.once(lambda: gw.post(headers=[("X-Own", '"k"')]))
    expect.problem(gw.post(headers=[("X-Own", "k")]), "key-invalid")
    assert gw.upstream.total == 1


@row("once_scope $http_x_tenant;", guard="once on; proxy_pass http://backend;", instead="once_scope none;")
def once_scope(gw):
    for tenant in ("a", "b"):
        expect.once(lambda tenant=tenant: gw.post("k", headers=[("X-Tenant", tenant)]))
    expect.problem(gw.post("k"), "scope-missing")
    assert gw.upstream.count("k") == 2


@row("once_fingerprint json;")
def once_fingerprint(gw):
    original = expect.first(gw.post("k", b'{"a":1,"b":2}'))
    expect.replay(gw.post("k", b'{ "b": 2, "a": 1 }'), original)
    assert gw.upstream.count("k") == 1


@row("once_ttl 1h;")
def once_ttl(gw):
    expect.first(gw.post("k"), ttl=3600)
    assert gw.upstream.count("k") == 1


@row("once_lease 10m;")
def once_lease(gw):
    with in_flight(gw) as (gate, client):
        assert gw.store.record("k")["lease_ms"] > 60_000
        gate.open()
        expect.first(client.finish())
    assert gw.upstream.count("k") == 1


@row("once_recover hold;")
def once_recover(gw):
    gw.upstream.then(lambda exchange: exchange.reset())
    assert gw.post("k").status == 502
    expect.problem(gw.post("k"), "outcome-unknown")
    assert gw.upstream.count("k") == 1


@row("once_record all;")
def once_record(gw):
    gw.upstream.then(lambda exchange: exchange.respond(500))
    expect.once(lambda: gw.post("k"), status=500)
    assert gw.upstream.count("k") == 1


@row("once_release 404;")
def once_release(gw):
    gw.upstream.then(lambda exchange: exchange.respond(404))
    expect.unrecorded(gw.post("k"), 404)
    expect.first(gw.post("k"))
    assert gw.upstream.count("k") == 2


@row("once_release_ttl 1h;")
def once_release_ttl(gw):
    gw.upstream.then(lambda exchange: exchange.respond(401))
    expect.unrecorded(gw.post("k"), 401)
    assert 3000_000 < gw.store.wait_state("k", "failed")["expires_ms"] <= 3600_000


@row("once_wait 20s max=1;")
def once_wait(gw):
    with in_flight(gw) as (gate, client), gw.connect() as waiter:
        waiter.start("POST", "/", "k", b"a")
        expect.problem(gw.post("k", b"other"), "key-reused")  # one worker: the waiter was read before this
        expect.problem(gw.post("k", b"a"), "too-many-waiters")
        gate.open()
        expect.replay(waiter.finish(), expect.first(client.finish()))
    assert gw.upstream.count("k") == 1


@row("once_store_body off;")
def once_store_body(gw):
    expect.first(gw.post("k"))
    response = gw.post("k")
    assert (response.status, response.body, response.header("Once-Body")) == (201, b"", "omitted")
    assert gw.upstream.count("k") == 1


@row("once_store_no_store on;")
def once_store_no_store(gw):
    gw.upstream.default = answer(201, [("Cache-Control", "no-store")], b"kept")
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)


@row("once_mcp all;")
def once_mcp(gw):
    response = gw.request("POST", "/", "k", b"not JSON", [("Content-Type", "application/json")])
    assert response.status == 400 and response.json()["error"]["code"] == -32700


@row("once_redact X-Own;")
def once_redact(gw):
    gw.upstream.default = answer(201, [("X-Own", "1")], b"kept")
    assert expect.first(gw.post("k")).header("X-Own") == "1"
    assert "X-Own" not in gw.post("k").headers


@row("once_describe inherited;")
def once_describe(gw):
    expect.first(gw.post("k"))
    assert gw.store.record("k")["description"] == "inherited"


@row("once_subject $http_host;")
def once_subject(gw):
    expect.first(gw.post("k"))
    assert gw.store.record("k")["subject_hash"]


@row("once_retry_after 77;")
def once_retry_after(gw):
    with in_flight(gw) as (gate, client):
        expect.problem(gw.post("k", b"a"), "in-flight", (77, 77))
        gate.open()
        expect.first(client.finish())
    assert gw.upstream.count("k") == 1


@row("once_early_lookup on;", rules=LIMIT, http=ZONE)
def once_early_lookup(gw):
    expect.once(lambda: gw.post("k"))
    assert gw.post("exhausted").status == 429
    assert gw.upstream.total == 1


@row("once_on_store_error pass;", rules="once_store_timeout 1s;", disk=True)
def once_on_store_error(gw):
    gw.nginx.expect("No space|full|cannot be written")
    gw.disk.fill()
    expect.unrecorded(gw.post("k"), 201)
    assert gw.upstream.count("k") == 1


@row("once_replay_header X-Again;")
def once_replay_header(gw):
    expect.first(gw.post("k"))
    assert gw.post("k").header("X-Again") == "true"
    assert gw.upstream.count("k") == 1


@row("once_replay_headers Set-Cookie;")
def once_replay_headers(gw):
    gw.upstream.then(lambda exchange: exchange.respond(201, [("Set-Cookie", "a=1")]))
    expect.first(gw.post("k"))
    assert gw.post("k").header("Set-Cookie") == "a=1"
    assert gw.upstream.count("k") == 1


@row("once_quota 1/1h;")
def once_quota(gw):
    expect.first(gw.post("k"))
    expect.problem(gw.post("k2"), "quota-exceeded", retry_after=(3000, 3600))
    assert gw.upstream.total == 1


@row("once_unknown_max 1;", rules="once_recover hold;")
def once_unknown_max(gw):
    gw.upstream.then(lambda exchange: exchange.reset())
    gw.post("u")
    gw.store.wait_state("u", "unknown")
    expect.problem(gw.post("u"), "outcome-unknown")
    expect.problem(gw.post("k"), "too-many-unknown")
    assert gw.upstream.total == 1


@row("once_authorize /authorize;")
def once_authorize(gw):
    gw.upstream.on("/authorize", lambda exchange: exchange.respond(403 if exchange.request.headers.get("X-Scope") else 204))
    expect.once(lambda: gw.post("k"))
    expect.first(gw.post("k", scope="bob"))
    assert gw.post("k", scope="bob").status == 403
    assert gw.upstream.total == 4  # two that ran, two questions


@row("once_profile acp;")
def once_profile(gw):
    response = gw.post()
    assert (response.status, response.json().get("code")) == (400, "idempotency_key_required")
    assert gw.post("k").header("Idempotency-Key") == "k"


@row("once_error key-missing status=428;")
def once_error(gw):
    expect.problem(gw.post(), "key-missing", status=428)


@row("once_error_body '{\"said\":\"$once_error_name\"}';")
def once_error_body(gw):
    assert gw.post().json() == {"said": "key-missing"}


@row("once_error_header X-Again $once_error_retryable;")
def once_error_header(gw):
    assert gw.post().header("X-Again") == "false"


@row("once_echo_key X-Key;")
def once_echo_key(gw):
    assert [gw.post("k").header("X-Key") for _ in range(2)] == ["k", "k"]


@row("once_expires_header X-Until;")
def once_expires_header(gw):
    for response in (gw.post("k"), gw.post("k")):
        assert response.header("X-Until") and "Idempotency-Expires" not in response.headers


@row("once_key_format uuid;")
def once_key_format(gw):
    expect.problem(gw.post("k"), "key-invalid")
    expect.once(lambda: gw.post("0190a1b2-c3d4-4e5f-8a6b-0123456789ab"))


@row("once_scope_path on;")
def once_scope_path(gw):
    expect.once(lambda: gw.post("k"))
    expect.once(lambda: gw.post("k", target="/other?x=1"))
    expect.problem(gw.post("k", target="/other?x=2"), "key-reused")


@row("once_docs https://example.com/keys;")
def once_docs(gw):
    response = expect.problem(gw.post(), "key-missing")
    assert "<https://example.com/keys#key-missing>" in response.header("Link", "")
    assert gw.upstream.total == 0


@row("once_probe http://@upstream@/outcome;", rules="once_recover hold; once_lease 500ms;")
def once_probe(gw):
    gw.upstream.on("/outcome", lambda exchange: exchange.respond(200, [("Once-Outcome", "final"), ("Once-Status", "201")], b"done"))
    gw.upstream.then(lambda exchange: exchange.reset())
    assert gw.post("k").status == 502
    until(lambda: gw.post("k").body == b"done", "the probe", gw.patience)
    assert [request.path for request in gw.upstream.of("k")].count("/") == 1


# ---------------------------------------------------------------------------------------------------------------- tests

@pytest.mark.parametrize("level", ["http", "server", "location"])
@pytest.mark.parametrize("setting", ROWS)
def test_takes_effect(gateway, setting, level):
    gw = gateway(**options_of(ROWS[setting], level))
    gw.patience = PATIENCE
    ROWS[setting].check(gw)


@pytest.mark.parametrize("setting", ROWS)
def test_nothing_of_it_without_the_directive(gateway, setting):
    """Otherwise the row would show nothing."""
    gw = gateway(**options_of(ROWS[setting], "nowhere"))
    gw.nginx.expect("No space|full|cannot be written")
    gw.patience = 2
    with pytest.raises(AssertionError):
        ROWS[setting].check(gw)


def test_every_directive_has_a_row():
    with open(os.path.join(environment.SOURCE, "nginx", "ngx_http_once_directives.c"), encoding="ascii") as file:
        known = re.findall(r'\{ ngx_string\("(once\w*)"\)', file.read())
    assert len(known) > 20
    elsewhere = {"once_bodies", "once_memory", "once_problems", "once_profile_define", "once_ready", "once_stats", "once_status"}
    assert set(known) - elsewhere == {setting.split()[0] for setting in ROWS}
