"""once_status: what is counted, for each route, over all workers, and what survives."""
import re

import pytest

from harness import expect
from harness.gateway import GUARD
from harness.message import head
from harness.upstream import slow
from harness.wait import Gate, until

STATUS = "location = /status { once_status; }"


def locations(rules="", more=""):
    return "location / { %s %s } %s %s" % (GUARD, rules, more, STATUS)


def read_json(gw, route="/"):
    response = gw.request("GET", "/status", headers=[("Accept", "application/json")])
    assert response.status == 200 and response.header("Content-Type") == "application/json", response
    routes = {entry["route"]: entry for entry in response.json()["routes"]}
    return routes[route] if route else routes


def read_text(gw):
    """Sample name with labels -> value; the format is checked on the way."""
    response = gw.request("GET", "/status")
    assert response.status == 200, response
    assert response.header("Content-Type").startswith("text/plain; version=0.0.4"), response
    samples, types = {}, {}
    text = response.body.decode()
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types, f"{name} is described twice"
            types[name] = kind
        elif not line.startswith("# HELP "):
            match = re.fullmatch(r'([a-z_]+)(\{(?:[a-z]+="(?:[^"\\]|\\.)*",?)*\})? (\d+(?:\.\d+)?)', line)
            assert match, line
            family = re.sub("_(bucket|sum|count)$", "", match[1])
            assert match[1] in types or types.get(family) == "histogram", line
            assert match[1] + (match[2] or "") not in samples, f"{line} stands there twice"
            samples[match[1] + (match[2] or "")] = float(match[3])
    return samples


def counted(gw, outcome, route="/"):
    return read_text(gw)['once_requests_total{route="%s",outcome="%s"}' % (route, outcome)]


def ended(gw, end, route="/"):
    return read_text(gw)['once_claims_total{route="%s",end="%s"}' % (route, end)]


@pytest.mark.parametrize("workers", [1, 2])
def test_each_outcome_is_counted(gateway, workers):
    gw = gateway(locations=locations("once_recover hold;"), workers=workers)
    expect.first(gw.post("k"))
    for _ in range(3):
        gw.post("k")
    for _ in range(2):
        gw.post("k", b"other")
    gw.post()
    gw.post("a\x01")
    gw.upstream.then(lambda exchange: exchange.reset())
    gw.post("u")
    gw.store.wait_state("u", "unknown")
    gw.post("u")
    gw.upstream.then(lambda exchange: exchange.respond(429))
    gw.post("r")
    gw.store.wait_state("r", "failed")
    gw.request("GET", "/")
    until(lambda: ended(gw, "released") == 1, "the release to be counted")
    entry = read_json(gw)
    wanted = {"run": 3, "replay": 3, "mismatch": 2, "missing": 1, "invalid": 1, "unknown": 1, "busy": 0, "waited": 0,
              "completed": 1, "doubted": 1, "released": 1, "lost": 0, "store_errors": 0, "in_flight": 0}
    assert {name: entry[name] for name in wanted} == wanted
    for outcome in ("run", "replay", "mismatch", "missing", "invalid", "unknown", "busy"):
        assert counted(gw, outcome) == wanted[outcome], outcome
    for end in ("completed", "doubted", "released", "lost"):
        assert ended(gw, end) == wanted[end], end
    assert gw.upstream.total == 4


def test_in_flight_busy_and_waited(gateway):
    gw, gate = gateway(locations=locations(more="location /w { %s once_wait 20s; }" % GUARD)), Gate()
    gw.upstream.default = slow(gate)
    first = gw.connect()
    first.start("POST", "/", "k", b"a")
    gate.wait_arrival()
    assert read_json(gw)["in_flight"] == 1
    assert read_text(gw)['once_in_flight{route="/"}'] == 1
    expect.problem(gw.post("k", b"a"), "in-flight")
    assert read_json(gw)["busy"] == 1
    second, waiter = gw.connect(), gw.connect()
    second.start("POST", "/w", "w", b"a")
    gate.wait_arrival()
    waiter.start("POST", "/w", "w", b"a")
    gw.post("w", b"other", "/w")
    gate.open()
    expect.first(first.finish())
    original = expect.first(second.finish())
    expect.replay(waiter.finish(), original)
    entry = read_json(gw, "/w")
    assert (entry["run"], entry["replay"], entry["waited"], entry["busy"]) == (1, 1, 1, 0)
    assert until(lambda: read_json(gw)["in_flight"] == 0, "nothing in flight")
    assert gw.upstream.total == 2


def test_store_errors_are_counted(gateway):
    passed = "location /passed { %s once_store_timeout 1s; once_on_store_error pass; }" % GUARD
    gw = gateway(locations=locations("once_store_timeout 1s;", passed), disk=True)
    gw.nginx.expect("No space|full|cannot be written")
    expect.first(gw.post("before"))
    gw.disk.fill()
    expect.problem(gw.post("k"), "store-unavailable")
    assert gw.post("k", target="/passed").status == 201
    gw.disk.heal()
    assert read_json(gw)["store_errors"] == 1
    assert read_text(gw)['once_store_errors_total{route="/"}'] == 1
    # every guarded request has one outcome: the sum is the number of requests
    assert counted(gw, "error") == 1 and counted(gw, "run") == 1 and counted(gw, "pass") == 0
    assert counted(gw, "pass", "/passed") == 1 and counted(gw, "error", "/passed") == 0
    assert sum(value for name, value in read_text(gw).items() if name.startswith("once_requests_total")) == 3
    assert gw.upstream.total == 2


def test_what_answers_is_named(gateway):
    gw = gateway(locations=locations())
    version = gw.request("GET", "/status", headers=[("Accept", "application/json")]).json()["version"]
    found = [name for name in read_text(gw) if name.startswith("once_build_info")]
    assert len(found) == 1 and re.fullmatch(r'once_build_info\{program="gate",version="%s",nginx="\d+\.\d+\.\d+",'
                                            r'stores="memory,local[a-z,]*"\}' % re.escape(version), found[0])
    assert gw.upstream.total == 0


def test_histograms(gateway):
    gw = gateway(locations=locations())
    for number in range(5):
        expect.first(gw.post(f"k{number}"))
    samples = read_text(gw)
    for name in ("once_claim_seconds", "once_complete_seconds"):
        buckets = [(label, value) for label, value in samples.items() if label.startswith(f"{name}_bucket")]
        values = [value for _, value in buckets]
        assert values == sorted(values), f"{name} is not cumulative"
        assert 'le="+Inf"' in buckets[-1][0] and buckets[-1][1] == 5
        bounds = [float(re.search(r'le="([^"]*)"', label)[1]) for label, _ in buckets]
        assert bounds == sorted(bounds)
        assert samples[f'{name}_count{{route="/"}}'] == 5
        assert 0 < samples[f'{name}_sum{{route="/"}}'] < 60
    entry = read_json(gw)
    assert entry["claim_seconds"]["count"] == entry["complete_seconds"]["count"] == 5
    assert gw.upstream.total == 5


def test_survives_reload_and_killed_workers(gateway):
    gw, gate = gateway(locations=locations()), Gate()
    expect.first(gw.post("k1"))
    gw.nginx.wait_worker_gone(*gw.nginx.reload())
    assert counted(gw, "run") == 1
    expect.first(gw.post("k2"))
    gw.upstream.then(lambda exchange: gate.pass_through())
    client = gw.connect()
    client.start("POST", "/", "k3", b"a")
    gate.wait_arrival()
    assert read_json(gw)["in_flight"] == 1
    gw.nginx.kill_worker()
    gate.open()
    assert counted(gw, "run") == 3
    assert until(lambda: read_json(gw)["in_flight"] == 0, "what the killed worker had in flight to be taken back")
    assert gw.upstream.total == 3


def test_in_flight_over_a_reload(gateway):
    """What an old worker does is counted with what the new ones do, and ends when it ends."""
    gw, gate = gateway(locations=locations()), Gate()
    gw.upstream.then(slow(gate))
    client = gw.connect()
    client.start("POST", "/", "k", b"a")
    gate.wait_arrival()
    old = gw.nginx.reload()
    assert read_json(gw)["in_flight"] == 1
    gate.open()
    expect.first(client.finish())
    gw.nginx.wait_worker_gone(*old)
    assert read_json(gw)["in_flight"] == 0
    assert read_json(gw)["completed"] == 1
    assert gw.upstream.total == 1


def test_routes_have_names(gateway):
    more = "location /a/ { %s } location /named { %s once_name 'payments \"EU\"'; } location ~ ^/re { %s }" % (GUARD, GUARD, GUARD)
    gw = gateway(locations=locations(more=more))
    expect.first(gw.post("k1", target="/a/1"))
    expect.first(gw.post("k2", target="/named"))
    expect.first(gw.post("k3", target="/regex"))
    routes = read_json(gw, None)
    assert routes["/a/"]["run"] == 1 and routes['payments "EU"']["run"] == 1 and routes["/"]["run"] == 0
    assert routes["^/re"]["run"] == 1
    assert counted(gw, "run", r"payments \"EU\"") == 1
    assert gw.upstream.total == 3


def test_a_new_route_after_a_reload(gateway):
    gw = gateway(locations=locations())
    expect.first(gw.post("k"))
    gw.reconfigure(locations=locations(more="location /new { %s }" % GUARD))
    gw.nginx.wait_worker_gone(*gw.nginx.reload())
    expect.first(gw.post("n", target="/new"))
    assert counted(gw, "run") == 1 and counted(gw, "run", "/new") == 1
    assert gw.upstream.total == 2


def test_tells_nothing_of_keys(gateway):
    gw = gateway(locations=locations())
    expect.first(gw.post("very-secret-key", scope="very-secret-scope"))
    for headers in ([], [("Accept", "application/json")]):
        assert b"very-secret" not in gw.request("GET", "/status", headers=headers).body
    assert gw.upstream.total == 1


@pytest.mark.parametrize("accept, json", [("application/json", True), ("text/plain", False), ("*/*", False),
                                          ("application/openmetrics-text, text/plain;q=0.5", False)])
def test_format_by_accept(gateway, accept, json):
    gw = gateway(locations=locations())
    response = gw.request("GET", "/status", headers=[("Accept", accept)])
    assert response.status == 200
    assert response.header("Content-Type").startswith("application/json" if json else "text/plain")
    assert gw.upstream.total == 0


def test_methods_of_the_status(gateway):
    gw = gateway(locations=locations())
    head = gw.request("HEAD", "/status")
    assert head.status == 200 and head.body == b""
    assert gw.post("k", target="/status").status == 405
    with gw.connect() as client:
        assert client.request("GET", "/status").status == 200
        assert client.request("GET", "/status").status == 200
    assert gw.connect2().request("GET", "/status").status == 200
    assert gw.upstream.total == 0


def test_many_routes(gateway):
    more = "".join("location /r%d { %s }" % (number, GUARD) for number in range(100))
    gw = gateway(locations=locations(more=more))
    expect.first(gw.post("k", target="/r99"))
    routes = read_json(gw, None)
    assert len(routes) == 101 and routes["/r99"]["run"] == 1
    assert counted(gw, "run", "/r99") == 1
    assert gw.upstream.total == 1
