"""Each profile, rule by rule: what is expected comes from the table that the module itself reads (harness/profiles.py)."""
import contextlib
import email.utils
import itertools
import json
import os
import time

import pytest

from harness import environment, expect
from harness.profiles import error, read, tables
from harness.upstream import answer, refusing_address, slow
from harness.wait import Gate

NAMES, PROFILES = read()
STORE = None if "ONCE_REDIS_URL" in os.environ else "memory:"  # None: that of tests/redis/gateway_store.py
numbers = itertools.count(int(time.time() * 1000) % 10**9)

REFUSING, keeper = refusing_address()

# What each location has beside the profile.
LOCATIONS = {
    "/": "", "/now": "once_wait off;", "/scoped": "once_scope $http_x_who;", "/quota": "once_quota 1/1h;",
    "/timed": "once_expires_header X-Kept-Until;",
    "/held": "once_store local:@directory@/held; once_recover hold;",
    "/down": "once_store redis://127.0.0.1:1; once_store_timeout 200ms;",
    "/refused": f"proxy_pass http://{REFUSING};",
}


class Spoken:
    """A gateway that speaks as one profile, and its rules."""

    def __init__(self, gateway, name):
        self.rules = PROFILES[name]
        locations = ""
        for path, rules in LOCATIONS.items():
            scope = "" if "once_scope" in rules else "once_scope none;"
            backend = "" if "proxy_pass" in rules else "proxy_pass http://backend;"
            locations += f"location {path} {{ once on; once_profile {name}; {scope} {backend} {rules} }}\n"
        self.gw = gateway(locations=locations, http="once_lease 60s;", store=STORE)

    def key(self):
        """A new one, good in every profile: a UUID of version 7, in quotes where they are demanded."""
        text = f"{next(numbers):012x}"
        return f"{text[:8]}-{text[8:]}-7000-8000-000000000000"

    def sent(self, key):
        return f'"{key}"' if "strict" in self.rules["once_key"] else key

    def post(self, key=None, body=b'{"amount":1}', target="/", method="POST", headers=()):
        headers = [("Content-Type", "application/json"), *headers]
        with self.gw.connect() as client:
            return client.request(method, target, None, body, [("Idempotency-Key", self.sent(key)), *headers] if key else headers)

    def first(self, response, status=201):
        assert response.status == status and self.rules["once_replay_header"] not in response.headers, response
        return response

    def replay(self, response, original):
        assert response.header(self.rules["once_replay_header"]) == "true", response
        assert (response.status, response.body) == (original.status, original.body), (response, original)
        return response

    def error(self, response, problem, key=None):
        """Status and body are those of the table."""
        status, code, kind = error(self.rules, problem)
        assert response.status == (status or 502), response
        template = self.rules["once_error_body"]
        if template == "problem":
            expect.problem(response, problem, (1, 3600) if response.header("Retry-After") else None, status)
            assert response.json()["error"] == {"type": kind, "code": code, "message": response.json()["detail"]}
        else:
            assert response.header("Content-Type") == "application/json", response
            said = response.json()
            detail = said["messages"][0]["content"] if "messages" in said else (said.get("error") or said)["message"]
            assert detail and len(detail) > 20, response
            for name, value in (("type", kind), ("code", code), ("status", str(response.status)), ("detail", detail)):
                template = template.replace(f"$once_error_{name}", value)
            assert said == json.loads(template), (said, template)
        name, *value = self.rules["once_error_header"].split()
        if value:
            retryable = "true" if expect.STATUS[problem][1] else "false"
            assert response.headers.all(name) == [value[0].replace("$once_error_retryable", retryable)], response
        assert self.rules["once_replay_header"] not in response.headers, response
        self.echo(response, key)
        return response

    def echo(self, response, key):
        name = self.rules["once_echo_key"]
        if name == "off":
            assert "Idempotency-Key" not in response.headers, response
        else:
            assert response.headers.all(name) == ([key] if key else []), response

    @contextlib.contextmanager
    def in_flight(self, key, target="/"):
        """A request that stands before a gate in the backend."""
        gate = Gate()
        self.gw.upstream.then(slow(gate))
        client = self.gw.connect()
        headers = [("Idempotency-Key", self.sent(key)), ("Content-Type", "application/json")]
        client.start("POST", target, None, b'{"amount":1}', headers)
        gate.wait_arrival()
        try:
            yield gate, client
        finally:
            gate.open()


@pytest.fixture(params=NAMES)
def spoken(request, gateway):
    return Spoken(gateway, request.param)


def test_documented_as_it_is():
    with open(os.path.join(environment.SOURCE, "docs", "profiles.md"), encoding="utf-8") as file:
        lines = file.read().splitlines()
    missing = [line for line in tables() if line not in lines]
    assert not missing, "docs/profiles.md lacks what tests/gateway/harness/profiles.py prints:\n" + "\n".join(missing)


def check_methods(spoken):
    for method in ("POST", "PATCH", "PUT", "DELETE"):
        key = spoken.key()
        original = spoken.first(spoken.post(key, method=method))
        again = spoken.post(key, method=method)
        if method in spoken.rules["once_methods"].split():
            spoken.replay(again, original)
        else:
            spoken.first(again)
            assert spoken.gw.upstream.count(key) == 2


def check_key(spoken):
    rules = spoken.rules
    if rules["once_require"] == "on":
        spoken.error(spoken.post(), "key-missing")
    else:
        assert spoken.post().status == 201
    key = spoken.key()
    original = spoken.first(spoken.post(key))
    strict = "strict" in rules["once_key"]
    other_form = spoken.gw.post(key if strict else f'"{key}"', headers=[("Content-Type", "application/json")])
    if strict:
        spoken.error(other_form, "key-invalid")
    else:
        spoken.replay(other_form, original)
    spoken.error(spoken.post("x" * 256), "key-invalid")
    uuid4 = f"{spoken.key()[:14]}4{spoken.key()[15:]}"
    for bad, formats in (("short", ("min=22", "uuid7")), (uuid4, ("uuid7",))):
        if rules["once_key_format"] in formats:
            spoken.error(spoken.post(bad), "key-invalid")
        else:
            spoken.first(spoken.post(f"{bad}" if bad == uuid4 else spoken.key()[:12] + bad))


def check_scope(spoken):
    key = spoken.key()
    spoken.error(spoken.post(key, target="/scoped"), "scope-missing")
    spoken.first(spoken.post(key))
    elsewhere = spoken.post(key, target="/elsewhere")
    if spoken.rules["once_scope_path"] == "on":
        spoken.first(elsewhere)
    else:
        spoken.error(elsewhere, "key-reused", key)


def check_fingerprint(spoken):
    key = spoken.key()
    original = spoken.first(spoken.post(key, b'{"a":1,"b":[1,2],"c":null}'))
    spoken.echo(original, key)
    same = spoken.post(key, b'{ "b": [1,2], "c": null, "a": 1.0 }')
    if spoken.rules["once_fingerprint"] == "json":
        spoken.echo(spoken.replay(same, original), key)
    else:
        spoken.error(same, "key-reused", key)
    for other in (b'{"a":1,"b":[1,2]}', b'{"a":1,"b":[2,1],"c":null}'):
        spoken.error(spoken.post(key, other), "key-reused", key)


def check_in_flight(spoken):
    key = spoken.key()
    with spoken.in_flight(key) as (gate, client):
        if spoken.rules["once_wait"] != "off":
            other = spoken.gw.connect()
            other.start("POST", "/", None, b'{"amount":1}', [("Idempotency-Key", spoken.sent(key))])
            gate.open()
            original = spoken.first(client.finish())
            spoken.replay(other.finish(), original)
    key = spoken.key()
    with spoken.in_flight(key, "/now") as (gate, client):
        busy = spoken.error(spoken.post(key, target="/now"), "in-flight", key)
        assert int(busy.header("Retry-After")) >= 1
        gate.open()
        original = spoken.first(client.finish())
        spoken.replay(spoken.post(key, target="/now"), original)
    assert spoken.gw.upstream.count(key) == 1


def check_server_errors(spoken):
    key = spoken.key()
    spoken.gw.upstream.then(answer(500, body=b"broken"))
    original = spoken.first(spoken.post(key), 500)
    again = spoken.post(key)
    if spoken.rules["once_record"] == "all":
        spoken.replay(again, original)
    else:
        spoken.first(again)


def check_retention(spoken):
    name, key = spoken.rules["once_expires_header"], spoken.key()
    for response in (spoken.post(key), spoken.post(key)):
        assert (response.header(name) is not None) == (name != "off"), response
        assert name != "off" or "Idempotency-Expires" not in response.headers, response
    until = email.utils.parsedate_to_datetime(spoken.post(spoken.key(), target="/timed").header("X-Kept-Until")).timestamp()
    assert abs(until - time.time() - 3600 * int(spoken.rules["once_ttl"].rstrip("h"))) < 120


def check_troubles(spoken):
    gw, key = spoken.gw, spoken.key()
    spoken.error(spoken.post(key, target="/refused"), "backend-unavailable", key)
    gw.upstream.then(lambda exchange: exchange.reset())
    key = spoken.key()
    spoken.error(spoken.post(key, target="/now"), "response-lost", key)
    spoken.error(spoken.post(key, target="/now"), "in-doubt", key)
    gw.upstream.then(lambda exchange: exchange.reset())
    key = spoken.key()
    spoken.error(spoken.post(key, target="/held"), "response-lost", key)
    spoken.error(spoken.post(key, target="/held"), "outcome-unknown", key)
    spoken.first(spoken.post(spoken.key(), target="/quota"))
    key = spoken.key()
    # of the caller: also where the path is part of the scope, which clients choose
    spoken.error(spoken.post(key, target="/quota/elsewhere"), "quota-exceeded", key)
    assert spoken.rules["once_on_store_error"] == "fail"
    key = spoken.key()
    spoken.error(spoken.post(key, target="/down"), "store-unavailable", key)


def test_speaks_by_its_rules(spoken):
    """One nginx for all: the requests do not touch each other, each has a key of its own."""
    spoken.gw.nginx.expect("redis|Connection refused|connect\\(\\) failed|once: store|prematurely closed|reset by peer")
    for check in (check_methods, check_key, check_scope, check_fingerprint, check_in_flight, check_server_errors, check_retention,
                  check_troubles):
        check(spoken)


# --------------------------------------------------------------------------------------------------- who wins, own profiles

def test_location_wins_over_inherited_over_profile(gateway):
    """Also where the profile stands further inside than what is set by hand."""
    gw = gateway(http="once_error key-missing status=418; once_echo_key X-Outer;", server="once_replay_header X-Server;",
                 locations="location / { once on; once_scope none; proxy_pass http://backend; once_profile acp; "
                           "once_error key-missing code=mine; }"
                           "location /plain { once on; once_scope none; proxy_pass http://backend; }"
                           "location /none { once on; once_scope none; proxy_pass http://backend; once_profile default; "
                           "once_echo_key off; }"
                           "location /nest { once_profile stripe; location /nest/egg { once on; once_scope none; "
                           "proxy_pass http://backend; once_require on; } }")
    missing = gw.post()
    assert (missing.status, missing.json()["code"], missing.json()["type"]) == (418, "mine", "invalid_request"), missing
    original = gw.post("k")
    assert original.header("X-Outer") == "k" and "Idempotency-Key" not in original.headers
    again = gw.post("k")
    assert again.header("X-Server") == "true" and "Idempotent-Replayed" not in again.headers
    expect.problem(gw.post(target="/plain"), "key-missing", status=418)
    assert gw.post("p", target="/plain").header("X-Outer") == "p"
    assert "X-Outer" not in gw.post("n", target="/none").headers
    nested = gw.post(target="/nest/egg")
    assert (nested.status, nested.json()["error"]["code"]) == (418, "idempotency_key_missing")
    assert gw.post("e", target="/nest/egg").header("X-Outer") == "e"


def test_profile_of_ones_own(gateway):
    """A base, and what differs; the base of a base, too."""
    gw = gateway(http="""once_profile_define house stripe {
                             once_error key-reused status=418 code=again;
                             once_require on;
                             once_error_body '<p class="$once_error_name">$once_error_title: $once_error_retryable</p>' text/html;
                         }
                         once_profile_define shed house { once_echo_key X-Key; }
                         once_profile shed;""",
                 locations="location / { once on; once_scope none; proxy_pass http://backend; }"
                           "location /house { once on; once_scope none; proxy_pass http://backend; once_profile house; }")
    missing = gw.post()
    assert (missing.status, missing.header("Content-Type")) == (400, "text/html"), missing
    assert missing.body == b'<p class="key-missing">Idempotency key is missing: false</p>\r\n'
    assert gw.post("k").header("X-Key") == "k"
    assert gw.post("k", b"other").status == 418
    assert gw.post("h", target="/house").header("Idempotency-Key") == "h"
    gw.upstream.then(answer(500, body=b"broken"))
    assert [gw.post("e").status, gw.post("e").status] == [500, 500]


def test_what_a_backend_echoes_is_not_doubled(gateway):
    gw = gateway("once_profile stripe;")
    gw.upstream.default = lambda exchange: exchange.respond(201, [("Idempotency-Key", "something else")])
    for response in (gw.post("k"), gw.post("k")):
        assert response.headers.all("Idempotency-Key") == ["k"], response


def test_texts_are_escaped(gateway):
    gw = gateway("""once_error key-missing 'code=a"b\\\\c' 'type=\u00fc\u2028';
                    once_error_body '{"t":"$once_error_type","c":"$once_error_code"}';""".replace("\u2028", "\t"))
    assert json.loads(gw.post().body.decode()) == {"t": "\u00fc\t", "c": 'a"b\\c'}
