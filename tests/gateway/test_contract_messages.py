"""The HTTP contract of the gateway: what the backend receives, what a replay repeats, and what of a body is kept."""
import itertools
import json
import os
import re
import subprocess

import pytest

from harness import environment, expect
from harness.upstream import answer, slow
from harness.wait import Gate


# ------------------------------------------------------------------------------------------------ headers to the backend

def test_claim_goes_to_the_backend(gateway):
    gw, gate = gateway(), Gate()
    gw.upstream.then(slow(gate))
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

def check_omitted(gw, body, status=201, headers=()):
    gw.upstream.default = answer(status, [("X-Own", "1"), *headers], body)
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


def test_erased(gateway):
    """The operation stays done, and its status is all that a client can still be told. The worker lets go of what it wrote with its
    next request; an idle one does so when it reaps."""
    gw = gateway("once_subject $http_x_person;")
    gw.upstream.default = answer(201, [("X-Own", "CANARY-header")], b"CANARY-body")
    person = [("X-Person", "CANARY-person")]
    expect.first(gw.post("CANARY-key", headers=person), 201)
    words = ["keys", "erase", gw.store.url, "--subject", "CANARY-person", "--note", "asked for", "--yes", "--json"]
    with subprocess.Popen([environment.ONCE, *words], stdout=subprocess.PIPE) as erase:
        for number in itertools.count():
            if erase.poll() is not None:
                break
            gw.post(f"other-{number}")
        told = json.loads(erase.stdout.read())
    assert (told["erased"], told["segments_left"]) == (1, 0), told
    for _ in range(2):
        response = gw.post("CANARY-key", headers=person)
        assert (response.status, response.body) == (201, b""), response
        assert response.header("Once-Body") == "erased"
        assert response.header("Idempotent-Replayed") == "true"
        assert "X-Own" not in response.headers
    assert gw.post("CANARY-key", body=b"other", headers=person).status == 422
    assert gw.upstream.count("CANARY-key") == 1
    record, = [record for record in gw.store.records() if "erased" in record]
    assert record["key"] == "" and record["status"] == 201, record


def test_store_body_off(gateway):
    check_omitted(gateway("once_store_body off;"), b"personal data")


def test_larger_than_store_body(gateway):
    check_omitted(gateway("once_store_body 1k;"), b"x" * 1025)


def test_larger_than_the_default_of_store_body(gateway):
    check_omitted(gateway(), b"y" * (1024 * 1024 + 1))


# What a backend may say in Cache-Control, and whether the body may be stored.
CACHE_CONTROL = {
    "no-store": False,
    "No-Store": False,
    "private, no-store": False,
    "max-age=0,no-store ,private": False,
    'private="x, y", no-store': False,
    'private="\\", no-store"': True,
    "no-storey": True,
    "x-no-store": True,
    "no-cache, private": True,
    'private="no-store"': True,
    ", ,": True,
}


@pytest.mark.parametrize("value", CACHE_CONTROL)
def test_cache_control_no_store(gateway, value):
    gw = gateway()
    if not CACHE_CONTROL[value]:
        check_omitted(gw, b"a card number", headers=[("Cache-Control", value)])
        return
    gw.upstream.default = answer(201, [("Cache-Control", value)], b"kept")
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)


def test_no_store_in_a_second_header_that_clients_do_not_see(gateway):
    check_omitted(gateway("proxy_hide_header Cache-Control;"), b"a card number",
                  headers=[("Cache-Control", "private"), ("Cache-Control", "no-store")])


def test_no_store_is_no_word_about_what_has_no_body(gateway):
    gw = gateway()
    gw.upstream.default = answer(204, [("Cache-Control", "no-store"), ("Once-Body", "omit")], b"")
    original = expect.first(gw.post("k"), 204)
    response = expect.replay(gw.post("k"), original)
    assert "Once-Body" not in response.headers
    assert gw.store.show("k")["response"]["body_omitted"] is False


def test_store_no_store_on(gateway):
    gw = gateway("once_store_no_store on;")
    gw.upstream.default = answer(201, [("Cache-Control", "no-store")], b"kept all the same")
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 1


def test_a_backend_asks_not_to_store_the_body(gateway):
    """With once_store_no_store on, too; and no client sees the header."""
    check_omitted(gateway("once_store_no_store on;"), b"a card number", headers=[("Once-Body", "omit")])


def test_once_body_that_means_nothing(gateway):
    gw = gateway()
    gw.upstream.default = answer(201, [("Once-Body", "forget")], b"kept")
    original = expect.first(gw.post("k"))
    assert "Once-Body" not in original.headers
    expect.replay(gw.post("k"), original)
    gw.nginx.expect('invalid "Once-Body"')


def test_a_body_that_is_not_stored_is_in_no_file(gateway, directory):
    gw = gateway()
    gw.upstream.default = answer(201, [("Cache-Control", "no-store")], b"4111-1111-1111-1111")
    expect.first(gw.post("k"))
    assert gw.post("k").header("Once-Body") == "omitted"
    for place, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(place, name)
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as file:
                    assert b"4111-1111-1111-1111" not in file.read(), path


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
