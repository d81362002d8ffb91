"""The HTTP contract of the gateway: each row of its table, how keys are written, and what errors look like."""
import pytest

from harness import expect
from harness.store import Store
from harness.upstream import answer, slow
from harness.wait import Gate, until

HOLD = "once_recover hold;"


# ---------------------------------------------------------------------------------------------------------- the rows

@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "QUERY", "PURGE", "FOO"])
def test_method_that_is_not_guarded_passes(gateway, method):
    gw = gateway()
    for count in (1, 2):
        response = gw.request(method, "/a?b=c", key="same")
        expect.unrecorded(response, 201)
        assert response.json()["execution"] == count
    assert gw.upstream.count("same") == 2
    assert gw.upstream.last().target == "/a?b=c"
    assert "Once-Claim" not in gw.upstream.last().headers
    assert gw.store.records() == []


def test_once_methods_changes_which_are_guarded(gateway):
    gw = gateway("once_methods PUT DELETE;")
    for method in ("PUT", "DELETE"):
        original = expect.first(gw.request(method, "/", key=method, body=b"1"))
        expect.replay(gw.request(method, "/", key=method, body=b"1"), original)
        assert gw.upstream.count(method) == 1
    for _ in range(2):
        expect.unrecorded(gw.post("post"), 201)
    assert gw.upstream.count("post") == 2


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_missing_key(gateway, method):
    gw = gateway()
    content = expect.problem(gw.request(method, "/", body=b"{}"), "key-missing").json()
    assert "dempotency" in content["title"]
    assert gw.upstream.total == 0


INVALID = {
    "empty": [("Idempotency-Key", "")],
    "blank": [("Idempotency-Key", "   ")],
    "quoted and empty": [("Idempotency-Key", '""')],
    "256 bytes": [("Idempotency-Key", "k" * 256)],
    "256 bytes, quoted": [("Idempotency-Key", '"' + "k" * 256 + '"')],
    "control byte": [("Idempotency-Key", "a\x01b")],
    "tab": [("Idempotency-Key", "a\tb")],
    "delete": [("Idempotency-Key", "a\x7fb")],
    "not ASCII": [("Idempotency-Key", "caf\xe9")],
    "quote that does not end": [("Idempotency-Key", '"abc')],
    "quote inside": [("Idempotency-Key", '"ab"c"')],
    "parameters": [("Idempotency-Key", '"abc";a=1')],
    "bad escape": [("Idempotency-Key", '"a\\bc"')],
    "list": [("Idempotency-Key", "a, b")],
    "list of strings": [("Idempotency-Key", '"a", "b"')],
    "twice": [("Idempotency-Key", "a"), ("Idempotency-Key", "b")],
    "twice the same": [("Idempotency-Key", "a"), ("idempotency-key", "a")],
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_key(gateway, name):
    gw = gateway()
    expect.problem(gw.post(headers=INVALID[name]), "key-invalid")
    assert gw.upstream.total == 0
    assert gw.store.records() == []


@pytest.mark.parametrize("key", ["k" * 255, "a", "with space", "~!@#$%^&*()_+{}|:<>?", "3f2b8c1e-5d57-4f5e-9a53-0a3f6f0f7c11"])
def test_valid_keys(gateway, key):
    gw = gateway()
    original = expect.first(gw.post(key))
    expect.replay(gw.post(key), original)
    assert gw.upstream.count(key) == 1


def test_first_request_is_forwarded_and_recorded(gateway):
    gw = gateway()
    gw.upstream.default = answer(201, [("Location", "/payments/7"), ("ETag", '"v1"')], b"\x00\x01binary\xff")
    response = expect.first(gw.post("k", b"hello", "/pay?x=1", [("X-Own", "kept")]))
    assert response.body == b"\x00\x01binary\xff"
    assert response.header("Location") == "/payments/7"
    assert response.header("ETag") == '"v1"'
    got = gw.upstream.last()
    assert (got.method, got.target, got.body) == ("POST", "/pay?x=1", b"hello")
    assert got.headers.get("X-Own") == "kept"
    record = gw.store.show("k")
    assert record["state"] == "completed" and record["status"] == 201 and record["epoch"] == 1
    assert gw.upstream.count("k") == 1


def test_replay_is_equal_byte_by_byte(gateway):
    gw = gateway("once_store_no_store on;")
    headers = [("Location", "/p/1"), ("X-Twice", "a"), ("X-Twice", "b"), ("Content-Type", "text/plain; charset=utf-8"),
               ("Cache-Control", "no-store"), ("ETag", 'W/"1"'), ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
               ("WWW-Note", "a, b"), ("X-Empty", ""), ("Vary", "Accept"), ("Link", "</a>; rel=next"),
               ("Expires", "Sun, 06 Nov 2094 08:49:37 GMT"), ("Content-Language", "en")]
    gw.upstream.default = answer(202, headers, bytes(range(256)) * 40)
    original = expect.first(gw.post("k"), 202)
    for name, value in headers:
        assert value in original.headers.all(name), name
    for _ in range(3):
        response = expect.replay(gw.post("k"), original)
        assert response.header("Content-Length") == original.header("Content-Length") == "10240"
        for name, value in headers:
            assert value in response.headers.all(name), name
    assert gw.upstream.count("k") == 1


def test_mismatch_body(gateway):
    gw = gateway()
    original = expect.first(gw.post("k", b"a"))
    expect.problem(gw.post("k", b"b"), "key-reused")
    expect.problem(gw.post("k", b""), "key-reused")
    expect.replay(gw.post("k", b"a"), original)
    assert gw.upstream.count("k") == 1


@pytest.mark.parametrize("other", ["/a?x=2", "/a", "/b?x=1", "/a?x=1&y=2", "/A?x=1"])
def test_mismatch_path_or_query(gateway, other):
    gw = gateway()
    original = expect.first(gw.post("k", target="/a?x=1"))
    expect.problem(gw.post("k", target=other), "key-reused")
    expect.replay(gw.post("k", target="/a?x=1"), original)
    assert gw.upstream.count("k") == 1


def test_mismatch_method(gateway):
    gw = gateway()
    original = expect.first(gw.request("POST", "/", "k", b"a"))
    expect.problem(gw.request("PATCH", "/", "k", b"a"), "key-reused")
    expect.replay(gw.request("POST", "/", "k", b"a"), original)
    assert gw.upstream.count("k") == 1


def test_in_flight(gateway):
    gw, gate = gateway(), Gate()
    gw.upstream.default = slow(gate)
    with gw.connect() as one:
        one.start("POST", "/", "k", b"a")
        gate.wait_arrival()
        for _ in range(2):
            expect.problem(gw.post("k", b"a"), "in-flight", retry_after=(1, 30))
        gate.open()
        original = expect.first(one.finish())
    expect.replay(gw.post("k", b"a"), original)
    assert gw.upstream.count("k") == 1


def test_unknown_under_hold(gateway):
    gw = gateway(HOLD)
    gw.upstream.then(lambda exchange: exchange.reset())
    assert gw.post("k").status == 502
    assert gw.store.wait_state("k", "unknown")["policy"] == "hold"
    for _ in range(2):
        expect.problem(gw.post("k"), "outcome-unknown")
    assert gw.upstream.count("k") == 1


def test_unknown_is_settled_by_an_operator_as_failed(gateway):
    gw = gateway(HOLD)
    gw.upstream.then(lambda exchange: exchange.reset())
    gw.post("k")
    gw.store.wait_state("k", "unknown")
    expect.problem(gw.post("k"), "outcome-unknown")
    gw.store.settle_failed("k", "--force")
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 2


def test_unknown_is_settled_by_an_operator_as_completed(gateway):
    gw = gateway(HOLD)
    gw.upstream.then(lambda exchange: exchange.reset())
    gw.post("k")
    gw.store.wait_state("k", "unknown")
    gw.store.settle_completed("k", 201, b"settled", "--force")
    response = gw.post("k")
    assert response.status == 201 and response.body == b"settled"
    assert response.header("Idempotent-Replayed") == "true"
    assert gw.upstream.count("k") == 1


class ClosedStore:
    """A store that cannot be opened: it says that a later version made it. test_abort.py has those that fail later."""

    def __init__(self, directory):
        self.path = f"{directory}/closed"
        self.url = f"local:{self.path}?segment=1m"
        Store(self.url).run("bench", "store", "--pairs", "1", self.url)
        with open(f"{self.path}/format", encoding="ascii") as file:
            self.text = file.read()
        self.say("once-local 99\n")

    def say(self, text):
        with open(f"{self.path}/format", "w", encoding="ascii") as file:
            file.write(text)

    def heal(self):
        self.say(self.text)


def test_store_unreachable_fails_closed(gateway, directory):
    store = ClosedStore(directory)
    gw = gateway(store=store.url)
    gw.nginx.expect(r"\[crit\].*closed")
    expect.problem(gw.post("k"), "store-unavailable")
    assert gw.upstream.total == 0
    expect.unrecorded(gw.request("GET", "/"), 201)
    assert gw.upstream.total == 1
    gw.nginx.log.wait(r"\[crit\]")
    store.heal()
    original = until(lambda: (response := gw.post("k")).status == 201 and response, "the store to be opened")
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 1


def test_store_unreachable_passes_when_told_so(gateway, directory):
    gw = gateway("once_on_store_error pass;", store=ClosedStore(directory).url)
    gw.nginx.expect(r"\[crit\].*closed")
    for _ in range(2):
        expect.unrecorded(gw.post("k"), 201)
    assert gw.upstream.count("k") == 2
    assert "Once-Claim" not in gw.upstream.last().headers


@pytest.mark.parametrize("url", ["postgres://user:very-secret@127.0.0.1:1/db?password=very-secret",
                                 "postgres://127.0.0.1:1/db?password=very-secret&user=very-secret"])
def test_passwords_of_stores_are_not_told(gateway, url):
    gw = gateway("once_store_timeout 1s;", store=f"'{url}'")
    gw.nginx.expect("once")
    expect.problem(gw.post("k"), "store-unavailable")
    gw.nginx.log.wait("store \"postgres:")  # which store it is, but not
    assert not gw.nginx.log.find("very-secret")
    assert gw.upstream.total == 0


# ------------------------------------------------------------------------------------------------ quoted and raw keys

@pytest.mark.parametrize("one, other", [("abc", '"abc"'), ('"abc"', "abc"), ('"a\\"b\\\\c"', 'a"b\\c'), ("  abc", '"abc"  ')])
def test_quoted_and_raw_are_the_same_key(gateway, one, other):
    gw = gateway()
    original = expect.first(gw.post(one))
    expect.replay(gw.post(other), original)
    assert gw.upstream.total == 1


def test_key_reaches_the_backend_as_it_was_sent(gateway):
    gw = gateway()
    expect.first(gw.post('"abc"'))
    assert gw.upstream.last().headers.get("Idempotency-Key") == '"abc"'
    expect.first(gw.post("def"))
    assert gw.upstream.last().headers.get("Idempotency-Key") == "def"
    assert gw.upstream.total == 2


def test_strict_accepts_only_the_quoted_form(gateway):
    gw = gateway("once_key Idempotency-Key strict;")
    expect.problem(gw.post("abc"), "key-invalid")
    original = expect.first(gw.post('"abc"'))
    expect.replay(gw.post('"abc"'), original)
    assert gw.upstream.total == 1


# --------------------------------------------------------------------------------------------------- error answers

def test_problem_links_the_documentation(gateway):
    gw = gateway("once_docs https://example.com/idempotency;")
    response = expect.problem(gw.post(), "key-missing")
    link = response.header("Link")
    assert link.startswith("<https://example.com/idempotency#key-missing>") and 'rel="describedby"' in link, link
    expect.first(gw.post("k"))
    response = expect.problem(gw.post("k", b"other"), "key-reused")
    assert "describedby" in response.header("Link")
    assert gw.upstream.total == 1


def test_problem_without_documentation_has_no_link(gateway):
    gw = gateway()
    assert "Link" not in expect.problem(gw.post(), "key-missing").headers
    assert gw.upstream.total == 0


def test_problem_tells_no_secrets(gateway):
    gw = gateway("once_wait off;")
    expect.first(gw.post("key-1", b"body-secret", scope="scope-secret"))
    response = expect.problem(gw.post("key-1", b"other-secret", scope="scope-secret"), "key-reused")
    assert b"secret" not in response.body
    assert gw.upstream.total == 1


def test_keepalive_after_a_problem(gateway):
    gw = gateway()
    with gw.connect() as client:
        expect.problem(client.request("POST", "/", None, b"a" * 100), "key-missing")
        original = expect.first(client.request("POST", "/", "k", b"a"))
        expect.problem(client.request("POST", "/", "k", b"b"), "key-reused")
        expect.replay(client.request("POST", "/", "k", b"a"), original)
    assert gw.upstream.count("k") == 1


# -------------------------------------------------------------------------------------------- Idempotency-Expires

def test_expires_tells_how_long_the_answer_is_kept(gateway):
    gw = gateway("once_ttl 2h;")
    original = expect.first(gw.post("k"), ttl=7200)
    expect.replay(gw.post("k"), original)
    assert abs(gw.store.show("k")["expires_ms"] - 7200_000) < 30_000
    assert gw.upstream.count("k") == 1


def test_forgotten_after_its_ttl(gateway):
    gw = gateway("once_ttl 1s;")
    original = expect.first(gw.post("k"), ttl=1)
    expect.replay(gw.post("k"), original)
    gw.nginx.wait_quiet(1.2)
    again = expect.first(gw.post("k"), ttl=1)
    assert again.body != original.body
    assert gw.upstream.count("k") == 2
