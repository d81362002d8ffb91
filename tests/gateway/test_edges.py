"""Edges of the contract: names and values that look like something else."""
import re

import pytest

from harness import expect
from harness.gateway import GUARD, take_port
from harness.upstream import answer


def refused(prepare, rules, *words, **options):
    good, said = prepare(rules, **options).nginx.test()
    assert not good, "accepted"
    for word in words:
        assert word in said, said


# --------------------------------------------------------------------------------------------------------- configuration

def test_location_with_an_empty_name(gateway):
    gw = gateway(locations='location "" { %s }' % GUARD)
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 1


@pytest.mark.parametrize("recover", ["hold", "transactional"])
@pytest.mark.parametrize("store", ["memory:", "memory:shop"])
def test_strict_policies_refuse_a_store_that_forgets(prepare, recover, store):
    refused(prepare, f"once_recover {recover};", "memory:", recover, store=store)


@pytest.mark.parametrize("query", ["durability=claims-relaxed", "dur%61bility=claims-relaxed", "durability=claims%2Drelaxed",
                                   "segment=1m&%64urability=claims-relaxed"])
def test_relaxed_is_seen_however_it_is_written(prepare, query):
    refused(prepare, f"once_recover hold; once_store 'local:@directory@/x?{query}';", "durability", "hold")


# --------------------------------------------------------------------------------------------------------------- headers

FORGED = [("Once-Claim", "forged"), ("once-anything", "forged"), ("Once_Claim", "forged")]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("target", ["/guarded", "/free"])
def test_clients_cannot_say_once(gateway, method, target):
    """Neither where once is off: the backend behind both may be the same."""
    gw = gateway(server="underscores_in_headers on;",
                 locations="location /guarded { %s once_require off; } location / { proxy_pass http://backend; }" % GUARD)
    assert gw.request(method, target, None, b"a", FORGED).status in (200, 201)
    assert not [h for h in gw.upstream.last().headers if re.match("once[-_]", h[0], re.I)]
    assert gw.upstream.total == 1


def test_what_a_backend_says_is_for_the_gateway(gateway):
    gw = gateway(locations="location /guarded { %s } location / { proxy_pass http://backend; }" % GUARD)
    gw.upstream.default = answer(201, [("Once-Outcome", "final"), ("Once-Retain", "5"), ("X-Other", "x")])
    response = gw.post("k", target="/free")
    assert response.header("Once-Outcome") is None and response.header("Once-Retain") is None
    assert response.header("X-Other") == "x"
    assert gw.upstream.count("k") == 1


def test_server_without_guarded_locations_is_left_alone(gateway):
    """It may stand between a gateway and its backend, or answer probes."""
    port = take_port()
    gw = gateway(locations="location / { %s } } server { listen @address@:%d; location / { proxy_pass http://backend; }"
                           % (GUARD, port))
    gw.upstream.default = answer(201, [("Once-Outcome", "final")])
    gw.port = port
    response = gw.post("k", headers=[("Once-Claim", "mine")])
    assert gw.upstream.last().headers.get("Once-Claim") == "mine"
    assert response.header("Once-Outcome") == "final"
    assert gw.upstream.count("k") == 1


@pytest.mark.parametrize("marker", ["Idempotent-Replayed", "X-Again"])
def test_a_backend_cannot_speak_for_the_gateway(gateway, marker):
    gw = gateway(f"once_replay_header {marker};")
    gw.upstream.default = answer(201, [(marker, "true"), ("Idempotency-Expires", "x"), ("Once-Body", "omitted"),
                                       ("Once-Claim", "leak"), ("X-Other", "x")])
    original = gw.post("k")
    assert original.status == 201 and original.header("X-Other") == "x"
    assert original.headers.all(marker) == []
    assert len(original.headers.all("Idempotency-Expires")) == 1 and original.header("Idempotency-Expires") != "x"
    replay = gw.post("k")
    assert replay.status == 201 and replay.header("X-Other") == "x" and replay.body == original.body
    assert replay.headers.all(marker) == ["true"]
    assert len(replay.headers.all("Idempotency-Expires")) == 1
    for response in (original, replay):
        assert not [h for h in response.headers if h[0].lower().startswith("once-")]
    assert gw.upstream.count("k") == 1


def test_a_second_gateway_behind_the_first(gateway):
    gw = gateway(locations="location / { %s } location /outer { once on; once_scope outer-$remote_addr; rewrite ^ / break;"
                           "proxy_pass http://@address@:@port@; }" % GUARD)
    inner = gw.post("k")
    original = gw.post("k", target="/outer")  # of the inner one it is a replay; here something was run
    assert original.status == inner.status and original.body == inner.body
    assert original.header("Idempotent-Replayed") is None
    replay = gw.post("k", target="/outer")
    assert replay.headers.all("Idempotent-Replayed") == ["true"]
    assert len(replay.headers.all("Idempotency-Expires")) == 1
    assert gw.upstream.count("k") == 1


def test_key_of_a_client_beside_the_real_one(gateway):
    """To a CGI, both names are HTTP_IDEMPOTENCY_KEY."""
    gw = gateway("once_key $http_x_id;", server="underscores_in_headers on;")
    gw.request("POST", "/", None, b"a", [("X-Id", "k"), ("Idempotency_Key", "forged"), ("idempotency-KEY", "forged"),
                                         ("Idempotency_Keys", "other")])
    headers = gw.upstream.last().headers
    assert [h[1] for h in headers if re.fullmatch("idempotency[-_]key", h[0], re.I)] == ["k"]
    assert headers.get("Idempotency_Keys") == "other"
    assert gw.upstream.total == 1


# ---------------------------------------------------------------------------------------------------------------- values

@pytest.mark.parametrize("value", ["$arg_order-$arg_line", "x${arg_order}y$arg_line", "$arg_order${arg_line}z"])
def test_key_whose_variables_are_all_empty_is_missing(gateway, value):
    gw = gateway(f'once_key "{value}";')
    for target in ("/", "/?order=&line="):
        expect.problem(gw.post(None, target=target), "key-missing")
    assert gw.upstream.total == 0
    for target in ("/?order=1", "/?line=2", "/?order=1&line=2"):
        original = expect.first(gw.post(None, target=target))
        expect.replay(gw.post(None, target=target), original)
    assert gw.upstream.total == 3


def test_key_with_a_capture(gateway):
    gw = gateway(locations="location ~ ^/(.*)$ { %s once_key 'k-$1$arg_x'; }" % GUARD)
    expect.problem(gw.post(None, target="/"), "key-missing")
    original = expect.first(gw.post(None, target="/a"))
    expect.replay(gw.post(None, target="/a"), original)
    assert gw.upstream.total == 1


def test_scope_whose_variables_are_all_empty_is_missing(gateway):
    gw = gateway(guard='once on; once_scope "$http_x_tenant/$http_x_user"; proxy_pass http://backend;')
    expect.problem(gw.post("k"), "scope-missing")
    original = expect.first(gw.post("k", headers=[("X-User", "u")]))
    expect.replay(gw.post("k", headers=[("X-User", "u")]), original)
    assert gw.upstream.count("k") == 1


@pytest.mark.parametrize("scope, runs", [("none", 1), ("$host", 2), ("$server_name", 2)])
def test_hosts_share_keys_unless_the_scope_tells_them_apart(gateway, backend, scope, runs):
    """As docs/gateway.md says: the host is not a part of what makes two requests the same."""
    other = backend()
    rules = f"once on; once_scope {scope}; proxy_pass"
    gw = gateway(server="server_name a;",
                 locations="location / { %s http://backend; } } server { listen @address@:@port@; server_name b;"
                           "location / { %s http://%s; }" % (rules, rules, other.name))
    for host in ("a", "b"):
        assert gw.request("POST", "/", "k", b"a", host=host).status == 201
    assert gw.upstream.count("k") + other.count("k") == runs
