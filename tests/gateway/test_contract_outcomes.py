"""The HTTP contract of the gateway: what becomes of a response, of a failure, and of a request that never arrived."""
import pytest

from harness import expect
from harness.upstream import answer, refusing_address
from harness.wait import until

HOLD = "once_recover hold;"


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


def test_what_was_refused_before_any_effect_is_bound_briefly(gateway):
    """Two leases, not a day: a stranger's 401 neither keeps a key from its owner nor fills the store."""
    gw = gateway()
    for status in (401, 429):
        gw.upstream.then(answer(status))
        expect.unrecorded(gw.post(f"refused-{status}", b"the stranger's"), status)
        assert gw.store.wait_state(f"refused-{status}", "failed")["expires_ms"] <= 60_000
        expect.problem(gw.post(f"refused-{status}", b"the owner's"), "key-reused")  # until then
    # However often, as long as nothing else came between.
    gw.upstream.then(answer(401))
    expect.unrecorded(gw.post("refused-401", b"the stranger's"), 401)
    assert gw.store.wait_state("refused-401", "failed")["expires_ms"] <= 60_000
    # An effect may have come before these: what was asked stays bound.
    gw.upstream.then(answer(500))
    assert gw.post("failed").status == 500
    gw.upstream.then(answer(200, [("Once-Outcome", "retry")]))
    assert gw.post("asked").status == 200
    for key in ("failed", "asked"):
        assert gw.store.wait_state(key, "failed")["expires_ms"] > 23 * 3600_000
        gw.upstream.then(answer(401))
        expect.unrecorded(gw.post(key), 401)
        assert gw.store.wait_state(key, "failed")["expires_ms"] > 23 * 3600_000


def test_the_owner_gets_the_key_after_two_leases(gateway):
    gw = gateway("once_lease 300ms; once_recover hold;")
    gw.upstream.then(answer(401))
    expect.unrecorded(gw.post("order-9", b"the stranger's"), 401)
    until(lambda: gw.post("order-9", b"alice's").status == 201, "the key being free")
    expect.replay(gw.post("order-9", b"alice's"), gw.post("order-9", b"alice's"))
    assert gw.upstream.count("order-9") == 2


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
    gw = gateway("once_lease 3s;")
    gw.upstream.then(answer(status, body=b"in between"))
    response = expect.unrecorded(gw.post("k"), status)
    assert response.body == b"in between"
    assert gw.store.wait_state("k", "unknown")["policy"] == "retry"
    expect.problem(gw.post("k"), "in-doubt", retry_after=(1, 4))
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
    assert gw.store.wait_state("k", "failed")["expires_ms"] <= 60_000  # two leases
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
    """Also when nginx is configured to try the next server, and thinks that the method allows it: the first may have done it."""
    second = backend()
    gw = gateway("once_methods POST PUT; proxy_next_upstream error timeout invalid_header http_502 http_503 http_504;" + HOLD,
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
