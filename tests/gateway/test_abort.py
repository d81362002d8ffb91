"""Clients that go away, at every point and by every way."""
import pytest

from harness import environment, expect
from harness.leaving import WAYS, Leaver
from harness.message import Closed
from harness.upstream import answer, slow
from harness.wait import Gate

HOLD = "once_recover hold;"
leaving = pytest.mark.parametrize("way", WAYS)


def check_recorded(gw, key="k", body=b"a"):
    """The outcome was recorded although no client waited for it, and it happened once."""
    gw.store.wait_state(key, "completed")
    response = gw.post(key, body)
    assert response.status == 201 and response.header("Idempotent-Replayed") == "true", response
    assert response.json()["key"] == key
    assert gw.upstream.count(key) == 1


# ------------------------------------------------------------------------------------------------ the client goes away

@pytest.mark.parametrize("method", ["GET", "POST"])
def test_client_of_a_request_that_is_not_guarded(gateway, method):
    """In a guarded location, but without a key that it would need: nginx hangs up on the backend, as it does without the module."""
    gw, gate, gone = gateway("once_require off;"), Gate(), Gate()

    def script(exchange):
        gate.pass_through()
        exchange.wait_gone()
        gone.pass_through()

    gw.upstream.default = script
    with gw.connect() as client:
        client.start(method, "/")
        gate.wait_arrival()
        gate.open()
    gone.wait_arrival()
    gone.open()


@leaving
@pytest.mark.parametrize("sent", [0, 10, 70_000])
def test_client_gone_while_its_body_is_read(gateway, way, sent):
    gw, body = gateway(), b"b" * 100_000
    leaver = Leaver(gw, way)
    leaver.begin("k", body, sent)
    leaver.leave()
    original = expect.first(gw.post("k", body))
    expect.replay(gw.post("k", body), original)
    assert gw.upstream.count("k") == 1
    assert gw.store.show("k")["epoch"] == 1


@leaving
def test_client_gone_while_the_claim_is_asked_for(gateway, way):
    """Nothing was forwarded yet. Either it still is and is recorded, or the claim is given back: never stuck, never twice."""
    gw = gateway(HOLD, disk=True)
    gw.disk.block()
    leaver = Leaver(gw, way)
    leaver.start("k")
    gw.disk.wait_blocked()
    leaver.leave()
    gw.disk.heal()
    if gw.store.wait_state("k", "completed", "failed")["state"] == "completed":
        check_recorded(gw)
    else:
        assert gw.upstream.count("k") == 0
        expect.once(lambda: gw.post("k", b"a"))
        assert gw.upstream.count("k") == 1


@leaving
@pytest.mark.parametrize("buffering", ["on", "off"])
def test_client_gone_while_the_upstream_works(gateway, way, buffering):
    gw, gate = gateway(f"proxy_buffering {buffering};" + HOLD), Gate()
    gw.upstream.then(slow(gate))
    leaver = Leaver(gw, way)
    leaver.start("k")
    gate.wait_arrival()
    leaver.leave()
    expect.problem(gw.post("k", b"a"), "in-flight")
    gate.open()
    check_recorded(gw)


REDIRECTED = {
    "named location": """location / { once on; once_scope none; try_files /nothing @app; }
                         location @app { proxy_pass http://backend; }""",
    "X-Accel-Redirect": """location / { once on; once_scope none; proxy_pass http://backend; }
                           location /second { internal; proxy_pass http://backend; }""",
    "error_page": """location / { once on; once_scope none; proxy_pass http://127.0.0.1:1; error_page 502 = @app; }
                     location @app { proxy_pass http://backend; }""",
}


@leaving
@pytest.mark.parametrize("name", REDIRECTED)
def test_client_gone_while_the_upstream_of_another_location_works(gateway, way, name):
    """Inside of nginx the request has moved to a location that knows nothing of once."""
    gw, gate = gateway(locations=REDIRECTED[name]), Gate()
    if name == "X-Accel-Redirect":
        gw.upstream.then(answer(200, [("X-Accel-Redirect", "/second")], b""))
    gw.upstream.on("/second", slow(gate))
    if name != "X-Accel-Redirect":
        gw.upstream.default = slow(gate)
    leaver = Leaver(gw, way)
    leaver.start("k")
    gate.wait_arrival()
    leaver.leave()
    gate.open()
    before = gw.upstream.total
    gw.store.wait_state("k", "completed")
    response = gw.post("k", b"a")
    assert response.status == 201 and response.header("Idempotent-Replayed") == "true", response
    assert gw.upstream.total == before


@leaving
def test_client_gone_between_header_and_body_of_the_upstream(gateway, way):
    gw, gate = gateway(HOLD), Gate()

    def script(exchange):
        body = exchange.body()
        exchange.begin(201, [("Content-Length", len(body))])
        exchange.send(body[:5])
        gate.pass_through()
        exchange.send(body[5:])

    gw.upstream.then(script)
    leaver = Leaver(gw, way)
    leaver.start("k")
    gate.wait_arrival()
    leaver.leave()
    gate.open()
    check_recorded(gw)


@leaving
def test_client_gone_while_its_response_is_held(gateway, way):
    gw = gateway(HOLD, disk=True)

    def script(exchange):
        gw.disk.block()
        exchange.respond()

    gw.upstream.then(script)
    leaver = Leaver(gw, way)
    leaver.start("k")
    gw.disk.wait_blocked()
    leaver.leave()
    gw.disk.heal()
    check_recorded(gw)


@leaving
@pytest.mark.parametrize("size, rules", [(900_000, ""), (8_000_000, ""), (8_000_000, "proxy_buffering off;")])
def test_client_gone_while_the_response_is_sent(gateway, way, size, rules):
    """8 MB are more than is kept: only status and headers are recorded, before the first byte is sent."""
    # Unbuffered over HTTP/2, nginx itself notices the client's absence only by send_timeout.
    gw = gateway(HOLD + rules + "send_timeout 6s;")
    gw.upstream.then(lambda exchange: exchange.respond(201, [("X-Own", "1")], b"x" * size))
    leaver = Leaver(gw, way)
    leaver.start("k")
    leaver.read_some(1000)
    assert gw.store.state("k") == "completed"
    leaver.leave()
    response = gw.post("k", b"a")
    assert response.status == 201 and response.header("Idempotent-Replayed") == "true"
    assert response.header("X-Own") == "1"
    assert response.body == (b"x" * size if size < 1_000_000 else b"")
    assert gw.upstream.count("k") == 1


@leaving
def test_client_gone_while_a_replay_is_sent(gateway, way):
    gw = gateway()
    gw.upstream.then(lambda exchange: exchange.respond(201, body=b"x" * 1_000_000))
    original = expect.first(gw.post("k", b"a"))
    for _ in range(3):
        leaver = Leaver(gw, way)
        leaver.start("k")
        leaver.read_some(1000)
        leaver.leave()
    expect.replay(gw.post("k", b"a"), original)
    assert gw.upstream.count("k") == 1


def test_client_that_shuts_down_its_sending_side(gateway):
    """Half-closed is not gone for everybody; whether it is answered is nginx's business, that it is recorded is ours."""
    gw, gate = gateway(HOLD), Gate()
    gw.upstream.then(slow(gate))
    client = gw.connect()
    client.start("POST", "/", "k", b"a")
    gate.wait_arrival()
    client.half_close()
    gate.open()
    check_recorded(gw)


@leaving
def test_many_clients_gone_at_any_moment(gateway, way):
    """No gate, no order: whatever the moments were, each key ran at most once and can be answered."""
    gw, count = gateway(HOLD), 12 if environment.slow() else 40
    for number in range(count):
        leaver = Leaver(gw, way)
        leaver.start(f"k{number}")
        if number % 3 == 1:
            gw.upstream.wait_count(f"k{number}", 1)
        leaver.leave()
    for number in range(count):
        key = f"k{number}"
        if gw.store.state(key) is not None:
            gw.store.wait_state(key, "completed", "failed")
        response = gw.post(key, b"a")
        assert response.status in (201, 409), response
        if response.status == 409:  # it comes through only now
            gw.store.wait_state(key, "completed")
        assert gw.upstream.count(key) == 1


def test_send_timeout_while_the_response_is_held(gateway):
    """nginx hangs up on the client; the outcome is recorded all the same."""
    gw = gateway("send_timeout 2s; once_store_timeout 1s;" + HOLD, disk=True)

    def script(exchange):
        gw.disk.block()
        exchange.respond()

    gw.upstream.then(script)
    with gw.connect() as client:
        client.start("POST", "/", "k", b"a")
        gw.disk.wait_blocked()
        try:
            expect.problem(client.finish(), "store-unavailable")
        except (Closed, ConnectionResetError):
            pass
    gw.disk.heal()
    check_recorded(gw)
