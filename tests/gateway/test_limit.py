"""once_early_lookup and $once_limit_key: replays do not count against rate limits, and never come before the access phase."""
import base64

import pytest

from harness import expect
from harness.leaving import WAYS, Leaver
from harness.upstream import slow
from harness.wait import Gate

ZONE = "limit_req_zone $once_limit_key zone=limit:1m rate=1r/m;"
LIMITED = "once_early_lookup on; limit_req zone=limit; limit_req_status 429;"


def check_refused(response):
    assert response.status == 429, response
    assert "Idempotent-Replayed" not in response.headers and "Idempotency-Expires" not in response.headers


def check_exhausted(gw, **options):
    check_refused(gw.post("exhausted", b"a", **options))


@pytest.mark.parametrize("protocol", ["h1", "h2"])
def test_replays_pass_when_the_limit_is_exhausted(gateway, protocol):
    gw = gateway(LIMITED, http=ZONE)
    original = expect.first(gw.post("k", b"a"))
    check_exhausted(gw)
    client = gw.connect() if protocol == "h1" else gw.connect2()
    for _ in range(5):
        expect.replay(client.request("POST", "/", "k", b"a"), original)
    check_exhausted(gw)
    assert gw.upstream.count("k") == 1 and gw.upstream.total == 1


def test_without_early_lookup_replays_count(gateway):
    gw = gateway("limit_req zone=limit; limit_req_status 429;", http=ZONE)
    expect.first(gw.post("k", b"a"))
    check_refused(gw.post("k", b"a"))
    assert gw.upstream.total == 1


def test_limit_is_by_address_or_by_what_a_map_makes_of_it(gateway):
    """For what is not a replay the variable is the client's address; a map makes it whatever tells callers apart."""
    gw = gateway(LIMITED, http=ZONE)
    expect.first(gw.post("k1", b"a", scope="alice"))
    check_refused(gw.post("k1", b"a", scope="bob"))
    mapped = ZONE.replace("$once_limit_key", "$caller")
    gw = gateway(LIMITED, http='map $once_limit_key $caller { "" ""; default $http_x_scope; }' + mapped)
    original = expect.first(gw.post("k1", b"a", scope="alice"))
    check_refused(gw.post("k2", b"a", scope="alice"))
    expect.first(gw.post("k1", b"a", scope="bob"))
    check_refused(gw.post("k2", b"a", scope="bob"))
    expect.replay(gw.post("k1", b"a", scope="alice"), original)
    assert gw.upstream.total == 2


def test_a_key_that_was_only_seen_in_flight_counts(gateway):
    """Only a known answer is free: hammering a key that is in flight is not."""
    gw, gate = gateway(LIMITED, http=ZONE), Gate()
    gw.upstream.then(slow(gate))
    client = gw.connect()
    client.start("POST", "/", "k", b"a")
    gate.wait_arrival()
    check_refused(gw.post("k", b"a"))
    gate.open()
    original = expect.first(client.finish())
    expect.replay(gw.post("k", b"a"), original)
    assert gw.upstream.total == 1


def test_mismatch_gets_no_answer_of_another_request(gateway):
    """The early look knows no body: a known key passes the limit, and is then compared as always."""
    gw = gateway(LIMITED, http=ZONE)
    expect.first(gw.post("k", b"a"))
    expect.problem(gw.post("k", b"b"), "key-reused")
    assert gw.upstream.total == 1


def test_requests_without_key_count(gateway):
    gw = gateway(LIMITED + "once_require off;", http=ZONE)
    expect.unrecorded(gw.post(body=b"a"), 201)
    check_refused(gw.post(body=b"a"))
    assert gw.upstream.total == 1


def test_methods_that_are_not_guarded_count(gateway):
    gw = gateway(LIMITED, http=ZONE)
    expect.unrecorded(gw.request("GET", "/"), 201)
    check_refused(gw.request("GET", "/"))
    check_refused(gw.request("GET", "/", key="k"))
    assert gw.upstream.total == 1


def test_invalid_keys_count(gateway):
    gw = gateway(LIMITED, http=ZONE)
    assert gw.post("a\x01", b"a").status == 400
    check_refused(gw.post("a\x01", b"a"))
    check_refused(gw.post("k", b"a"))
    assert gw.upstream.total == 0


@pytest.mark.parametrize("size", [0, 1000, 200_000])
@pytest.mark.parametrize("protocol", ["h1", "h2"])
def test_bodies_that_come_while_it_looks(gateway, protocol, size):
    """The look is before the body is read: what comes meanwhile is neither lost nor does it stall."""
    gw = gateway(LIMITED, http=ZONE.replace("1r/m", "1000r/s"))
    client = gw.connect() if protocol == "h1" else gw.connect2()
    original = expect.first(client.request("POST", "/", "k", b"b" * size))
    assert gw.upstream.last().body == b"b" * size
    for _ in range(3):
        expect.replay(client.request("POST", "/", "k", b"b" * size), original)
    assert gw.upstream.count("k") == 1


@pytest.mark.parametrize("way", WAYS)
def test_client_goes_away_while_it_looks(gateway, way):
    """Those that leave are no replays: after some of them the key is counted like any other."""
    gw = gateway(LIMITED.replace("zone=limit;", "zone=limit burst=50 nodelay;"), http=ZONE.replace("1r/m", "1000r/s"))
    original = expect.first(gw.post("k", b"a"))
    for _ in range(10):
        leaver = Leaver(gw, way)
        leaver.start("k")
        leaver.leave()
        leaver = Leaver(gw, way)
        leaver.begin("k", b"b" * 1000, 10)
        leaver.leave()
    expect.replay(gw.post("k", b"a"), original)
    assert gw.upstream.count("k") == 1


def test_many_streams_of_one_connection(gateway):
    """Looks are bounded per connection; those beyond it count like everybody, and none hangs."""
    gw = gateway(LIMITED, http=ZONE.replace("1r/m", "1000r/s"))
    original = expect.first(gw.post("k", b"a"))
    client = gw.connect2()
    numbers = [client.start("POST", "/", "k", b"a") for _ in range(64)]
    answers = [client.finish(number) for number in numbers]
    for answer in answers:
        assert answer.status in (201, 429), answer
        if answer.status == 201:
            expect.replay(answer, original)
    assert sum(answer.status == 201 for answer in answers) >= 8
    assert gw.upstream.count("k") == 1


# ---------------------------------------------------------------------------------------- replay only after the access phase

def basic(user, password):
    return ("Authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())


@pytest.fixture
def passwords(directory):
    path = f"{directory}/passwords"
    with open(path, "w", encoding="ascii") as file:
        file.write("alice:{PLAIN}wonder\nbob:{PLAIN}builder\n")
    return path


@pytest.mark.parametrize("early", ["off", "on"])
def test_auth_basic(gateway, passwords, early):
    """Also for a client that knows key, scope and body: without the password there is neither a stored answer nor a hint of one."""
    gw = gateway(guard="once on; once_scope $remote_user; proxy_pass http://backend; auth_basic r; auth_basic_user_file %s;"
                 "once_early_lookup %s;" % (passwords, early))
    original = expect.first(gw.post("k", b"a", headers=[basic("alice", "wonder")]))
    for headers in ([], [basic("alice", "wrong")], [basic("mallory", "wonder")]):
        response = gw.post("k", b"a", headers=headers)
        assert response.status == 401, response
        assert "Idempotent-Replayed" not in response.headers and "Idempotency-Expires" not in response.headers
        assert original.body not in response.body
    other = expect.first(gw.post("k", b"a", headers=[basic("bob", "builder")]))
    assert other.body != original.body
    expect.replay(gw.post("k", b"a", headers=[basic("alice", "wonder")]), original)
    assert gw.upstream.count("k") == 2


@pytest.mark.parametrize("early", ["off", "on"])
def test_auth_request(gateway, backend, early):
    """The caller's identity is what the authenticator says now."""
    authenticator = backend()

    def authenticate(exchange):
        token = exchange.request.headers.get("Authorization", "")
        if token.startswith("Bearer good-"):
            exchange.respond(200, [("X-User", token[len("Bearer good-"):])], b"")
        else:
            exchange.respond(401, body=b"no")

    authenticator.default = authenticate
    locations = """
        location / {
            auth_request /auth; auth_request_set $user $upstream_http_x_user;
            once on; once_scope $user; once_early_lookup %s; proxy_pass http://backend;
        }
        location = /auth {
            internal; proxy_pass http://%s; proxy_pass_request_body off; proxy_set_header Content-Length "";
        }
    """ % (early, authenticator.name)
    gw = gateway(locations=locations)
    original = expect.first(gw.post("k", b"a", headers=[("Authorization", "Bearer good-alice")]))
    response = gw.post("k", b"a", headers=[("Authorization", "Bearer revoked-alice")])
    assert response.status == 401 and original.body not in response.body
    assert "Idempotent-Replayed" not in response.headers
    other = expect.first(gw.post("k", b"a", headers=[("Authorization", "Bearer good-bob")]))
    assert other.body != original.body
    expect.replay(gw.post("k", b"a", headers=[("Authorization", "Bearer good-alice")]), original)
    assert gw.upstream.count("k") == 2


def test_forbidden_by_address(gateway):
    gw = gateway()
    original = expect.first(gw.post("k", b"a"))
    gw.reconfigure(rules="deny all;")
    gw.nginx.wait_worker_gone(*gw.nginx.reload())
    response = gw.post("k", b"a")
    assert response.status == 403 and original.body not in response.body
    assert gw.upstream.count("k") == 1


def test_satisfy_any(gateway, passwords):
    """Two ways in: either suffices, and the guard comes after both."""
    gw = gateway(guard="once on; once_scope none; proxy_pass http://backend; satisfy any; deny all; auth_basic r;"
                 "auth_basic_user_file %s;" % passwords)
    assert gw.post("k", b"a").status == 401
    original = expect.first(gw.post("k", b"a", headers=[basic("alice", "wonder")]))
    assert gw.post("k", b"a").status == 401
    expect.replay(gw.post("k", b"a", headers=[basic("bob", "builder")]), original)
    assert gw.upstream.count("k") == 1


# ------------------------------------------------------------------------------------ what passes the limit on a false promise

def test_passwords_cannot_be_tried_past_the_limit(gateway, passwords):
    """A client that knows a user's key is not counted before it is authenticated: a few times, and then it is."""
    gw = gateway(guard="once on; once_scope $remote_user; proxy_pass http://backend; auth_basic r; auth_basic_user_file %s; %s"
                 % (passwords, LIMITED), http=ZONE)
    alice = [basic("alice", "wonder")]
    original = expect.first(gw.post("k", b"a", headers=alice))
    check_exhausted(gw, headers=alice)
    for _ in range(40):
        expect.replay(gw.post("k", b"a", headers=alice), original)  # a true replay costs nothing
    answers = [gw.post("k", b"a", headers=[basic("alice", f"guess{number}")]).status for number in range(30)]
    assert answers[:8] == [401] * 8 and answers.count(401) < 15 and answers[-1] == 429, answers
    assert gw.upstream.total == 1


@pytest.mark.parametrize("protocol", ["h1", "h2"])
def test_other_requests_under_a_known_key_count(gateway, protocol):
    gw = gateway(LIMITED, http=ZONE)
    expect.first(gw.post("k", b"a"))
    client = gw.connect() if protocol == "h1" else gw.connect2()
    answers = [client.request("POST", "/", "k", b"b").status for _ in range(30)]
    assert answers[:8] == [422] * 8 and answers.count(422) < 15 and answers[-1] == 429, answers
    assert gw.upstream.total == 1


def test_many_known_keys_are_no_way_past_the_limit(gateway):
    """Each has an account of its own, but the address has only one."""
    gw = gateway(LIMITED, http='map $once_limit_key $caller { "" ""; default $http_x_limit; }'
                 + ZONE.replace("$once_limit_key", "$caller"), workers=2)
    limited = [("X-Limit", "1")]
    for number in range(120):
        expect.first(gw.post(f"k{number}", b"a"))
    gw.post("exhausted", b"a", headers=limited)
    answers = [gw.post(f"k{number}", b"b", headers=limited).status for number in range(120)]
    assert answers.count(422) >= 32 and answers.count(429) >= 1, answers
