"""once_authorize: a stored answer is for callers that are authorized now. The backend here knows credentials, and revokes them."""
import os
import signal
import threading

import pytest

from harness import expect
from harness.leaving import WAYS, Leaver
from harness.upstream import answer, refusing_address, slow
from harness.wait import Gate, until

RULES = "once_recover hold; once_lease 500ms; once_authorize /authorize;"
GUARD = "once on; once_scope $http_x_key; proxy_pass http://backend;"
CHALLENGE = ("WWW-Authenticate", 'Bearer realm="bank"')
both = pytest.mark.parametrize("protocol", ["h1", "h2"])


class Bank:
    """A backend and the service that it shares its credentials with: one that is gone from them is refused everywhere."""

    def __init__(self, gateway, backend, rules="", location="", **options):
        self.known = {"alice", "bob"}
        self.service = backend()
        self.service.default = self.check
        place = "location = /authorize { internal; proxy_pass http://%s/check; %s }" % (self.service.name, location)
        self.gw = gateway(RULES + rules, guard=GUARD, server=place + options.pop("server", ""), **options)
        self.gw.upstream.default = self.pay

    def refuse(self, exchange):
        exchange.respond(401, [CHALLENGE, ("Content-Type", "text/plain; charset=utf-8")], b"who are you?")

    def check(self, exchange):
        if exchange.request.headers.get("X-Key") in self.known:
            exchange.respond(204)
        else:
            self.refuse(exchange)

    def pay(self, exchange):
        if exchange.request.headers.get("X-Key") in self.known:
            exchange.respond()
        else:
            self.refuse(exchange)

    def post(self, key, body=b"a", caller="alice", protocol="h1", target="/", headers=()):
        client = self.gw.connect() if protocol == "h1" else self.gw.connect2()
        return client.request("POST", target, key, body, [("X-Key", caller), *headers])


def refused(response):
    assert response.status == 401 and response.body == b"who are you?", response
    assert response.header(*CHALLENGE[:1]) == CHALLENGE[1], response
    assert response.header("Content-Type") == "text/plain; charset=utf-8", response
    assert "Idempotent-Replayed" not in response.headers and "Idempotency-Expires" not in response.headers, response
    expect.plain(response)


@both
def test_asked_for_replays_alone(gateway, backend, protocol):
    """What runs is the backend's to check. The question is the caller's own request, without its body."""
    bank = Bank(gateway, backend)
    forged = [("X-Original-Method", "GET"), ("X_Original_URI", "/else"), ("X-Original-URI", "/else"), ("Once-Claim", "forged")]
    original = expect.first(bank.post("k", protocol=protocol, target="/pay?x=1", headers=forged))
    assert bank.service.total == 0
    expect.replay(bank.post("k", protocol=protocol, target="/pay?x=1", headers=forged), original)
    assert bank.service.total == 1
    request = bank.service.last()
    assert (request.method, request.target, request.body) == ("GET", "/check", b""), request
    assert request.headers.get("X-Key") == "alice" and request.headers.get("Idempotency-Key") == "k"
    assert request.headers.all("X-Original-Method") == ["POST"] and request.headers.all("X-Original-URI") == ["/pay?x=1"]
    for name in ("Content-Length", "Transfer-Encoding", "Content-Type", "Once-Claim", "X_Original_URI"):
        assert name not in request.headers, request.headers
    assert bank.gw.upstream.count("k") == 1


@both
def test_revoked_credential_is_told_nothing(gateway, backend, protocol):
    """Neither the answer, nor that there is one, nor that a key is in use: every outcome is the service's refusal instead."""
    bank, gate = Bank(gateway, backend, server="location = /status { once_status; }"), Gate()
    expect.first(bank.post("done"))
    bank.gw.upstream.then(lambda exchange: exchange.reset())
    expect.problem(bank.post("unknown"), "response-lost")
    bank.gw.upstream.then(slow(gate))
    with bank.gw.connect() as running:
        running.start("POST", "/", "busy", b"a", [("X-Key", "alice")])
        gate.wait_arrival()
        bank.known.discard("alice")
        before = bank.gw.upstream.total
        for key, body in (("done", b"a"), ("done", b"other"), ("unknown", b"a"), ("busy", b"a"), ("busy", b"other")):
            refused(bank.post(key, body, protocol=protocol))
        assert bank.gw.upstream.total == before and bank.service.total == 5
        gate.open()
        running.finish()
    refused(bank.post("new", protocol=protocol))  # by the backend
    assert bank.gw.upstream.count("new") == 1 and bank.service.total == 5
    assert b'outcome="denied"} 5\n' in bank.gw.request("GET", "/status").body
    bank.known.add("alice")
    assert bank.post("done").status == 201
    expect.problem(bank.post("done", b"other"), "key-reused")
    expect.problem(bank.post("unknown"), "outcome-unknown")


def slow_check(bank, gate):
    def check(exchange):
        gate.pass_through()
        bank.check(exchange)
    return check


@both
def test_waiters_are_checked_before_and_after(gateway, backend, protocol):
    bank, gate = Bank(gateway, backend, "once_wait 20s;"), Gate()
    bank.gw.upstream.then(slow(gate))
    running = bank.gw.connect()
    running.start("POST", "/", "k", b"a", [("X-Key", "alice")])
    gate.wait_arrival()
    waiting = []
    for _ in range(2):
        client = bank.gw.connect() if protocol == "h1" else bank.gw.connect2()
        waiting.append((client, client.start("POST", "/", "k", b"a", [("X-Key", "alice")])))
    until(lambda: bank.service.total == 2, "both are allowed to wait")
    bank.known.discard("alice")
    refused(bank.post("k", protocol=protocol))  # does not get as far as waiting
    gate.open()
    expect.first(running.finish())
    for client, number in waiting:
        refused(client.finish() if number is None else client.finish(number))
    assert bank.gw.upstream.count("k") == 1


FAILURES = {
    "500": answer(500, body=b"inside"),
    "breaks off": lambda exchange: (exchange.begin(204 + 2, [("Content-Length", "100")]), exchange.send(b"x"), exchange.close()),
    "resets": lambda exchange: exchange.reset(),
    "no HTTP": lambda exchange: (exchange.send(b"what?\r\n\r\n"), exchange.close()),
}


@pytest.mark.parametrize("buffering", ["on", "off"])
def test_service_that_fails(gateway, backend, buffering):
    """A guess reveals nothing."""
    bank = Bank(gateway, backend, location=f"proxy_buffering {buffering};")
    bank.gw.nginx.expect("did not say whether the caller may have the answer|prematurely closed|no valid HTTP|Connection reset")
    original = expect.first(bank.post("k"))
    for name, script in FAILURES.items():
        bank.service.then(script)
        assert b"execution" not in expect.problem(bank.post("k"), "authorization-unavailable").body, name
    for script in (answer(200, body=b"yes"), answer(200, body=b""), answer(200, body=b"yes" * 3000, chunked=True, piece=1000)):
        bank.service.then(script)
        expect.replay(bank.post("k"), original)


def test_service_that_is_away_or_silent(gateway, backend):
    refusing, sock = refusing_address()
    gate = Gate()
    bank = Bank(gateway, backend, location="proxy_read_timeout 200ms;",
                server="location = /away { internal; proxy_pass http://%s; }"
                "location /nobody { once on; once_scope $http_x_key; once_authorize /away; proxy_pass http://backend; }" % refusing)
    bank.gw.nginx.expect("did not say whether the caller may have the answer|Connection refused|timed out")
    expect.first(bank.post("k"))
    bank.service.then(slow_check(bank, gate))
    expect.problem(bank.post("k"), "authorization-unavailable")
    gate.open()
    expect.first(bank.post("n", target="/nobody"))
    expect.problem(bank.post("n", target="/nobody"), "authorization-unavailable")
    sock.close()


def test_large_and_redirecting_refusals(gateway, backend):
    """Its status and headers in any case; of its body up to 64 KiB."""
    bank = Bank(gateway, backend)
    expect.first(bank.post("k"))
    for size in (0, 1, 60_000, 70_000):
        bank.service.then(answer(403, [("X-Why", "revoked")], b"x" * size))
        response = bank.post("k")
        assert response.status == 403 and response.header("X-Why") == "revoked", response
        assert len(response.body) == (size if size <= 65536 else 0), len(response.body)
    bank.service.then(answer(403, body=b"y" * 5000, chunked=True, piece=1000))
    assert bank.post("k").body == b"y" * 5000
    bank.service.then(answer(302, [("Location", "/login"), ("Set-Cookie", "a=1")], b""))
    response = bank.post("k")
    assert (response.status, response.header("Location"), response.header("Set-Cookie")) == (302, "/login", "a=1"), response


@both
@pytest.mark.parametrize("page", ["error_page 401 /own;", "error_page 401 @own;", "error_page 401 = @login;"])
def test_operators_error_page(gateway, backend, page, protocol):
    bank = Bank(gateway, backend, page, server="location = /own { internal; return 401 'own words'; }"
                "location @own { return 401 'own words'; } location @login { proxy_pass http://backend; }")
    expect.first(bank.post("k"))
    bank.known.discard("alice")
    bank.gw.upstream.default = answer(200, body=b"please log in")
    response = bank.post("k", protocol=protocol)
    if "login" in page:
        assert (response.status, response.body) == (200, b"please log in"), response
    else:
        assert (response.status, response.body) == (401, b"own words"), response
    bank.known.add("alice")
    again = bank.post("k")
    assert again.status == 201 and again.header("Idempotent-Replayed") == "true"


def test_answered_by_nginx_itself(gateway):
    """Keys that are listed in the configuration need no service."""
    gw = gateway("once_authorize /authorize;", guard=GUARD,
                 http="map $http_x_key $known { default 0; alice 1; }",
                 server="location = /authorize { internal; if ($known) { return 204; } return 403; }")
    original = expect.first(gw.post("k", headers=[("X-Key", "alice")]))
    expect.replay(gw.post("k", headers=[("X-Key", "alice")]), original)
    expect.first(gw.post("k", headers=[("X-Key", "mallory")]))
    assert gw.post("k", headers=[("X-Key", "mallory")]).status == 403
    assert gw.upstream.total == 2


PAGES = {"named": "error_page 401 = @login;", "uri": "error_page 401 = /login;", "status": "error_page 401 =200 /login;",
         "recursive": "recursive_error_pages on; error_page 401 = @login;"}


@both
def test_error_page_makes_no_yes_of_a_no(gateway, backend, protocol):
    """A login form is a 200. Where it stands in the server, it counts in the location that is asked, too."""
    service = backend()
    places = {f"/{name}/{who}": page for name, page in PAGES.items() for who in ("nginx", "service")}
    server = "location @login { return 200 form; } location = /login { return 200 form; }"
    for place, page in places.items():
        says = "proxy_intercept_errors on; proxy_pass http://%s;" % service.name
        if place.endswith("nginx"):
            says = "if ($http_x_key = alice) { return 204; } return 401;"
        server += "location = %s { internal; %s %s }" % (place, page, says)
        server += "location = /pay%s { once on; once_scope none; once_authorize %s; proxy_pass http://backend; }" % (place, place)
    gw = gateway(server=server)
    service.default = lambda exchange: exchange.respond(200 if exchange.request.headers.get("X-Key") == "alice" else 401)

    def post(place, caller):
        client = gw.connect() if protocol == "h1" else gw.connect2()
        return client.request("POST", "/pay" + place, place, b"a", [("X-Key", caller)])

    for place in places:
        original = expect.first(post(place, "alice"))
        expect.replay(post(place, "alice"), original)
        response = post(place, "mallory")
        assert response.status == 401 and b"execution" not in response.body, (place, response)
        assert "Idempotent-Replayed" not in response.headers, (place, response)


def test_api_keys_in_a_map(gateway):
    """As docs/gateway.md has it: what is not in the map is refused before the key is looked at, also when it is taken out later."""
    known = "map $http_x_api_key $api_client { %s }"
    gw = gateway(guard='if ($api_client = "") { return 401; } once on; once_scope $api_client; proxy_pass http://backend;',
                 http=known % '"4f0c" "shop-7"; "77aa" "shop-7";')

    def post(key):
        return gw.post("k", headers=[("X-Api-Key", key)])

    original = expect.first(post("4f0c"))
    expect.replay(post("77aa"), original)  # another key of the same caller
    assert post("other").status == 401 and gw.post("k").status == 401
    gw.reconfigure(http=known % '"77aa" "shop-7";')
    gw.nginx.reload()
    assert post("4f0c").status == 401
    expect.replay(post("77aa"), original)
    assert gw.upstream.total == 1


@pytest.mark.parametrize("abort", ["on", "off"])
@pytest.mark.parametrize("way", WAYS)
def test_client_that_leaves_meanwhile(gateway, backend, way, abort):
    bank, gate = Bank(gateway, backend, location=f"proxy_ignore_client_abort {abort};"), Gate()
    original = expect.first(bank.post("k"))
    bank.service.then(slow_check(bank, gate))
    leaver = Leaver(bank.gw, way)
    leaver.start("k", headers=[("X-Key", "alice")])
    gate.wait_arrival()
    leaver.leave()
    gate.open()
    expect.replay(bank.post("k"), original)


def test_reload_meanwhile(gateway, backend):
    """A worker that is to quit finishes what it has to ask."""
    bank, gate = Bank(gateway, backend), Gate()
    original = expect.first(bank.post("k"))
    bank.service.then(slow_check(bank, gate))
    client = bank.gw.connect()
    client.start("POST", "/", "k", b"a", [("X-Key", "alice")])
    gate.wait_arrival()
    quitting = threading.Thread(target=bank.gw.nginx.reload)
    quitting.start()
    gate.open()
    expect.replay(client.finish(), original)
    quitting.join()


@pytest.mark.parametrize("authorize", ["off", "/authorize"])
def test_claim_that_was_taken_over_is_no_way_in(gateway, backend, authorize):
    """A worker that stood still for a lease: its caller was refused, or not asked about. It gets no other caller's answer."""
    rules = f"once_recover retry; once_lease 1s; once_scope none; once_authorize {authorize};"
    guard = "once on; proxy_pass http://backend;"
    server = "location = /authorize { internal; return 204; }"
    one = gateway(rules, guard=guard, server=server)
    two = gateway(rules, guard=guard, server=server, store=one.store.url, upstream=one.upstream)
    for status in (401, 404):
        key, gate, client = str(status), Gate(), one.connect()
        one.upstream.then(lambda exchange: (gate.pass_through(), exchange.respond(status, body=b"none of yours")))
        client.start("POST", "/", key, b"a")
        gate.wait_arrival()
        (worker,) = one.nginx.worker_pids()
        os.kill(worker, signal.SIGSTOP)
        until(lambda: two.post(key, b"a").status == 201, "the other gateway took over")
        gate.open()
        os.kill(worker, signal.SIGCONT)
        response = client.finish()
        if status == 401:
            assert response.status == 401 and response.body == b"none of yours", response
        elif authorize == "off":
            assert response.status == 201, response  # the backend let this caller in, and the record is what counts
        else:
            expect.problem(response, "in-flight")
        assert one.post(key, b"a").header("Idempotent-Replayed") == "true"
