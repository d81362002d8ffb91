"""The HTTP contract of the gateway: each row of its table and each point below it, in that order."""
import re

import pytest

from harness import expect
from harness.gateway import GUARD
from harness.store import Store
from harness.upstream import refusing_address
from harness.wait import Gate, until

HOLD = "once_recover hold;"


def answer(status, headers=(), body=None):
    return lambda exchange: exchange.respond(status, headers, body)


# ---------------------------------------------------------------------------------------------------------- the rows

@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
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
    gw = gateway()
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

    def slow(exchange):
        gate.pass_through()
        exchange.respond()

    gw.upstream.default = slow
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
        self.say("once-local 99\n")

    def say(self, text):
        with open(f"{self.path}/format", "w", encoding="ascii") as file:
            file.write(text)

    def heal(self):
        self.say("once-local 1\n")


def test_store_unreachable_fails_closed(gateway, directory):
    store = ClosedStore(directory)
    gw = gateway(store=store.url)
    gw.nginx.expect(r"\[crit\].*closed")
    expect.problem(gw.post("k"), "store-unavailable")
    assert gw.upstream.total == 0
    expect.unrecorded(gw.request("GET", "/"), 201)
    assert gw.upstream.total == 1
    assert gw.nginx.log.find(r"\[crit\]"), "the reason is not in the log"
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
    gw = gateway("once_store_timeout 300ms;", store=f"'{url}'")
    gw.nginx.expect("once")
    expect.problem(gw.post("k"), "store-unavailable")
    assert not gw.nginx.log.find("very-secret")
    assert gw.nginx.log.find("postgres"), "the log does not say which store it is"
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
    assert link.startswith("<https://example.com/idempotency>") and 'rel="describedby"' in link, link
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


# ------------------------------------------------------------------------------------------------ which are recorded

@pytest.mark.parametrize("status", [200, 202, 203, 226, 301, 302, 303, 307, 308, 400, 402, 404, 405, 409, 410, 418, 422, 451])
def test_recorded_statuses(gateway, status):
    gw = gateway()
    gw.upstream.default = answer(status, [("X-Number", "7")])
    original = expect.first(gw.post("k"), status)
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 1


@pytest.mark.parametrize("recover", ["retry", "hold"])
@pytest.mark.parametrize("status", [401, 403, 407, 421, 425, 429])
def test_released_statuses(gateway, status, recover):
    gw = gateway(f"once_recover {recover};")
    gw.upstream.then(answer(status, [("Retry-After", "7")], b"not yet"))
    response = expect.unrecorded(gw.post("k"), status)
    assert response.body == b"not yet" and response.header("Retry-After") == "7"
    assert gw.store.wait_state("k", "failed")["status"] == status
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 2


def test_once_release_lists_others(gateway):
    gw = gateway("once_recover hold; once_release 503 404;")
    for count, status in enumerate((503, 404), 1):
        gw.upstream.then(answer(status))
        expect.unrecorded(gw.post("k"), status)
        gw.store.wait_state("k", "failed")
        assert gw.upstream.count("k") == count
    gw.upstream.then(answer(429))
    original = expect.first(gw.post("k"), 429)  # no longer listed: an answer as every other
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 3


@pytest.mark.parametrize("status", [500, 501, 505, 502, 503, 504, 408])
def test_record_all_is_stripes_way(gateway, status):
    gw = gateway("once_record all;")
    gw.upstream.default = answer(status, body=b"failed")
    original = expect.first(gw.post("k"), status)
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 1


def test_record_takes_a_status_out(gateway):
    gw = gateway("once_record 2xx 3xx 4xx !404;")
    gw.upstream.then(answer(404))
    expect.unrecorded(gw.post("k"), 404)
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 2


# ------------------------------------------------------------------------------------------------------------- doubt

@pytest.mark.parametrize("status", [408, 502, 503, 504])
def test_doubtful_statuses_under_retry(gateway, status):
    gw = gateway("once_lease 1s;")
    gw.upstream.then(answer(status, body=b"in between"))
    response = expect.unrecorded(gw.post("k"), status)
    assert response.body == b"in between"
    assert gw.store.wait_state("k", "unknown")["policy"] == "retry"
    expect.problem(gw.post("k"), "in-flight", retry_after=(1, 2))
    assert gw.upstream.count("k") == 1
    gw.store.wait_lease_over("k")
    original = expect.first(gw.post("k"))
    assert gw.store.show("k")["epoch"] == 2
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 2


@pytest.mark.parametrize("status", [408, 502, 503, 504])
def test_doubtful_statuses_under_hold(gateway, status):
    gw = gateway("once_lease 500ms;" + HOLD)
    gw.upstream.then(answer(status))
    expect.unrecorded(gw.post("k"), status)
    gw.store.wait_state("k", "unknown")
    expect.problem(gw.post("k"), "outcome-unknown")
    gw.store.wait_lease_over("k")
    expect.problem(gw.post("k"), "outcome-unknown")
    assert gw.upstream.count("k") == 1


@pytest.mark.parametrize("status", [500, 501, 505, 507, 599])
def test_other_5xx_under_retry_are_claimable_at_once(gateway, status):
    gw = gateway()
    gw.upstream.then(answer(status, body=b"broken"), answer(status, body=b"again"))
    assert expect.unrecorded(gw.post("k"), status).body == b"broken"
    assert expect.unrecorded(gw.post("k"), status).body == b"again"
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 3


@pytest.mark.parametrize("status", [500, 501, 505])
def test_other_5xx_under_hold_are_unknown(gateway, status):
    gw = gateway(HOLD)
    gw.upstream.then(answer(status, body=b"broken"))
    assert expect.unrecorded(gw.post("k"), status).body == b"broken"
    gw.store.wait_state("k", "unknown")
    expect.problem(gw.post("k"), "outcome-unknown")
    assert gw.upstream.count("k") == 1


# ------------------------------------------------------------------------------------------- the backend overrules

def test_backend_says_retry(gateway):
    gw = gateway(HOLD)
    gw.upstream.then(answer(500, [("Once-Outcome", "retry")]), answer(200, [("once-outcome", " Retry ")]))
    expect.unrecorded(gw.post("k"), 500)
    gw.store.wait_state("k", "failed")
    expect.unrecorded(gw.post("k"), 200)
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 3


@pytest.mark.parametrize("status", [500, 503, 401, 429])
def test_backend_says_final(gateway, status):
    gw = gateway()
    gw.upstream.default = answer(status, [("Once-Outcome", "final")])
    original = expect.first(gw.post("k"), status)
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 1


def test_backend_says_unknown(gateway):
    gw = gateway(HOLD)
    gw.upstream.then(answer(200, [("Once-Outcome", "unknown")]))
    expect.unrecorded(gw.post("k"), 200)
    gw.store.wait_state("k", "unknown")
    expect.problem(gw.post("k"), "outcome-unknown")
    assert gw.upstream.count("k") == 1


def test_backend_says_something_else(gateway):
    gw = gateway()
    gw.upstream.default = answer(200, [("Once-Outcome", "perhaps"), ("Once-Retain", "soon")])
    original = expect.first(gw.post("k"), 200)
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 1


def test_backend_says_how_long(gateway):
    gw = gateway()
    gw.upstream.default = answer(201, [("Once-Retain", "600")])
    original = expect.first(gw.post("k"), ttl=600)
    expect.replay(gw.post("k"), original)
    assert abs(gw.store.show("k")["expires_ms"] - 600_000) < 30_000
    assert gw.upstream.count("k") == 1


# ------------------------------------------------------------------------------- certainly not executed, or not sent twice

@pytest.mark.parametrize("recover", ["retry", "hold"])
def test_connection_refused_releases(gateway, recover):
    refusing, sock = refusing_address()
    gw = gateway(f"once_recover {recover}; proxy_pass http://$http_x_to;", guard="once on; once_scope none;")
    response = gw.post("k", headers=[("X-To", refusing)])
    expect.unrecorded(response, 502)
    gw.store.wait_state("k", "failed")
    original = expect.first(gw.post("k", headers=[("X-To", gw.upstream.name)]))
    expect.replay(gw.post("k", headers=[("X-To", refusing)]), original)
    assert gw.upstream.count("k") == 1
    sock.close()


TWO = "upstream two { server @upstream@ max_fails=0; server %s max_fails=0; }"
TO_TWO = "once on; once_scope none; proxy_pass http://two;"


def test_no_byte_sent_may_go_to_the_next_server(gateway):
    refusing, sock = refusing_address()
    gw = gateway(guard=TO_TWO, http=TWO % refusing)
    for number in range(4):
        expect.first(gw.post(f"k{number}"))
        assert gw.upstream.count(f"k{number}") == 1
    sock.close()


@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize("failure", ["reset", "close", "garbage", "mid-header"])
def test_never_sent_twice_by_nginx(gateway, backend, failure, method):
    """Also when nginx is told to try the next server on errors, and thinks that the method allows it: the first may have done it."""
    second = backend()
    gw = gateway("once_methods POST PUT; proxy_next_upstream error timeout invalid_header http_500 http_502 http_503 http_504;" + HOLD,
                 guard=TO_TWO, http=TWO % second.name)

    def fail(exchange):
        if failure == "garbage":
            exchange.send(b"what?\r\n\r\n")
        if failure == "mid-header":
            exchange.send(b"HTTP/1.1 200 OK\r\nContent-")
        if failure == "reset":
            exchange.reset()
        else:
            exchange.close()

    gw.upstream.default = second.default = fail
    for number in range(4):
        assert gw.request(method, "/", f"k{number}", b"a").status == 502
        assert gw.upstream.count(f"k{number}") + second.count(f"k{number}") == 1
        gw.store.wait_state(f"k{number}", "unknown")
        expect.problem(gw.request(method, "/", f"k{number}", b"a"), "outcome-unknown")
    assert gw.upstream.total + second.total == 4


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429, 404, 403])
def test_next_upstream_on_a_status_is_not_followed(gateway, backend, status):
    second = backend()
    gw = gateway("proxy_next_upstream http_500 http_502 http_503 http_504 http_429 http_404 http_403;",
                 guard=TO_TWO, http=TWO % second.name)
    gw.upstream.default = second.default = answer(status, body=b"said")
    for number in range(2):
        response = gw.post(f"k{number}")
        assert (response.status, response.body) == (status, b"said")
        assert gw.upstream.count(f"k{number}") + second.count(f"k{number}") == 1


# ------------------------------------------------------------------------------------------------ headers to the backend

def test_claim_goes_to_the_backend(gateway):
    gw, gate = gateway(), Gate()

    def slow(exchange):
        gate.pass_through()
        exchange.respond()

    gw.upstream.then(slow)
    with gw.connect() as client:
        client.start("POST", "/", "k", b"a")
        gate.wait_arrival()
        claim = gw.upstream.last().headers.get("Once-Claim")
        assert re.fullmatch(r"[A-Za-z0-9._~-]+", claim), claim
        assert gw.store.show("k")["claim"] == claim
        gate.open()
        expect.first(client.finish())
    assert gw.upstream.count("k") == 1


def test_claims_differ(gateway):
    gw = gateway()
    for number in range(3):
        expect.first(gw.post(f"k{number}"))
    claims = {request.headers.get("Once-Claim") for request in gw.upstream.requests}
    assert len(claims) == 3
    assert gw.upstream.total == 3


@pytest.mark.parametrize("method, key", [("POST", "k"), ("GET", None)])
def test_once_headers_of_clients_are_stripped(gateway, method, key):
    gw = gateway()
    forged = [("Once-Claim", "forged"), ("once-outcome", "final"), ("ONCE-Anything", "x"), ("Once-", "y"), ("Oncely", "stays"),
              ("X-Last", "stays")]
    many = [(f"X-{number}", "v") for number in range(40)]  # more than nginx puts into one part of its list
    response = gw.request(method, "/", key, b"a", many[:19] + forged + many[19:])
    assert response.status == 201
    headers = gw.upstream.last().headers
    once = [(name, value) for name, value in headers if name.lower().startswith("once-")]
    if key:
        assert len(once) == 1 and once[0][0] == "Once-Claim" and once[0][1] != "forged", once
    else:
        assert once == []
    assert headers.get("Oncely") == "stays" and headers.get("X-Last") == "stays"
    for name, _ in many:
        assert headers.get(name) == "v", name
    assert gw.upstream.total == 1


# --------------------------------------------------------------------------------------------- headers of the replay

def test_headers_that_are_not_replayed(gateway):
    gw = gateway()
    gw.upstream.default = answer(201, [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("Date", "Sun, 06 Nov 1994 08:49:37 GMT"),
                                       ("Server", "backend"), ("Keep-Alive", "timeout=5"), ("X-Kept", "yes")])
    original = expect.first(gw.post("k"))
    assert original.headers.all("Set-Cookie") == ["a=1", "b=2"]
    response = expect.replay(gw.post("k"), original)
    assert "Set-Cookie" not in response.headers
    assert "1994" not in response.header("Date", "")
    assert response.header("Server", "") != "backend"
    assert "Keep-Alive" not in response.headers
    assert response.header("X-Kept") == "yes"
    assert gw.upstream.count("k") == 1


def test_headers_that_the_connection_header_names_are_hop_by_hop(gateway):
    gw = gateway()
    gw.upstream.default = answer(201, [("Connection", "X-Hop"), ("X-Hop", "1"), ("Proxy-Connection", "x"), ("Upgrade", "h2c"),
                                       ("Proxy-Authenticate", "Basic"), ("X-Kept", "yes")])
    expect.first(gw.post("k"))
    response = gw.post("k")
    assert response.status == 201 and response.header("Idempotent-Replayed") == "true"
    assert response.header("X-Kept") == "yes"
    for name in ("X-Hop", "Upgrade", "Proxy-Authenticate", "Proxy-Connection"):
        assert name not in response.headers, name
    assert gw.upstream.count("k") == 1


def test_set_cookie_is_replayed_when_allowed(gateway):
    gw = gateway("once_replay_headers Set-Cookie;")
    gw.upstream.default = answer(201, [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")])
    original = expect.first(gw.post("k"))
    response = expect.replay(gw.post("k"), original)
    assert response.headers.all("Set-Cookie") == ["a=1", "b=2"]
    assert gw.upstream.count("k") == 1


@pytest.mark.parametrize("directive, name", [("once_replay_header X-Replayed;", "X-Replayed"), ("once_replay_header off;", None)])
def test_replay_marker(gateway, directive, name):
    gw = gateway(directive)
    original = expect.first(gw.post("k"))
    response = gw.post("k")
    assert (response.status, response.body) == (201, original.body)
    assert "Idempotent-Replayed" not in response.headers
    if name:
        assert response.header(name) == "true" and name not in original.headers
    assert gw.upstream.count("k") == 1


# ----------------------------------------------------------------------------------------------------- once_store_body

def check_omitted(gw, body, status=201):
    gw.upstream.default = answer(status, [("X-Own", "1")], body)
    original = expect.first(gw.post("k"), status)
    assert original.body == body and "Once-Body" not in original.headers
    for _ in range(2):
        response = gw.post("k")
        assert (response.status, response.body) == (status, b""), response
        assert response.header("Once-Body") == "omitted"
        assert response.header("Idempotent-Replayed") == "true"
        assert response.header("X-Own") == "1"
        assert response.header("Content-Length", "0") == "0"
    assert gw.store.show("k")["response"]["body_omitted"] is True
    assert gw.upstream.count("k") == 1


def test_store_body_off(gateway):
    check_omitted(gateway("once_store_body off;"), b"personal data")


def test_larger_than_store_body(gateway):
    check_omitted(gateway("once_store_body 1k;"), b"x" * 1025)


def test_larger_than_the_default_of_store_body(gateway):
    check_omitted(gateway(), b"y" * (1024 * 1024 + 1))


def test_exactly_store_body(gateway):
    gw = gateway("once_store_body 1k;")
    gw.upstream.default = answer(201, body=b"z" * 1024)
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 1


@pytest.mark.parametrize("size", [0, 1, 4096, 70_000, 1024 * 1024])
def test_bodies_up_to_the_default(gateway, size):
    gw = gateway()
    gw.upstream.default = answer(200, body=b"b" * size)
    original = expect.first(gw.post("k"), 200)
    assert len(original.body) == size
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 1


def test_large_response_is_recorded_before_its_first_byte(gateway):
    """The client that has seen a byte can rely on the record, although the rest is not there yet."""
    gw, gate = gateway("once_store_body 1k; proxy_buffering off;"), Gate()

    def slowly(exchange):
        exchange.begin(201, [("Content-Length", "200000")])
        exchange.send(b"x" * 100_000)
        gate.pass_through()
        exchange.send(b"x" * 100_000)

    gw.upstream.then(slowly)
    with gw.connect() as client:
        client.start("POST", "/", "k", b"a")
        client.sock.recv(1)
        assert gw.store.state("k") == "completed"
        response = gw.post("k", b"a")
        assert (response.status, response.header("Once-Body"), response.body) == (201, "omitted", b"")
        gate.open()
        client.reader.buffer[:0] = b"H"
        original = expect.first(client.finish())
    assert original.body == b"x" * 200_000
    assert gw.upstream.count("k") == 1


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


def test_scope_is_stored_as_a_hash_only(gateway):
    gw = gateway()
    expect.first(gw.post("k", scope="Bearer very-secret-token"))
    shown = gw.store.run("keys", "export", "--bodies", gw.store.url).stdout
    assert b"very-secret" not in shown
    found = gw.store.run("keys", "list", "--json", "--scope", "Bearer very-secret-token", gw.store.url).stdout
    assert b'"k"' in found
    assert gw.upstream.total == 1


# ----------------------------------------------------------------------------------------------- other directives

def test_retry_after_can_be_fixed(gateway):
    gw, gate = gateway("once_retry_after 17;"), Gate()

    def slow(exchange):
        gate.pass_through()
        exchange.respond()

    gw.upstream.then(slow)
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


def test_variables_in_the_log(gateway):
    gw = gateway(http="log_format once '$once_key|$once_outcome|$once_epoch|$once_age|$status';",
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
