"""once_probe: the gateway asks the backend what became of a key, and believes only an explicit answer."""
import socket

import pytest

from harness import expect
from harness.upstream import refusing_address
from harness.wait import Gate

HOLD = "once_recover hold; once_lease 500ms;"


@pytest.fixture
def probed(gateway, backend):
    """A gateway that probes a backend of its own, and a function that makes a key unknown."""
    def start(script, rules=HOLD, options="", **others):
        prober = backend()
        prober.default = script
        gw = gateway(rules + f"once_probe http://{prober.name}/outcome {options};", **others)
        gw.prober = prober
        gw.upstream.then(lambda exchange: exchange.reset())
        return gw
    return start


def final(status=201, body=b"it was done", headers=()):
    return lambda exchange: exchange.respond(200, [("Once-Outcome", "final"), ("Once-Status", str(status)), *headers], body)


def test_final_settles_it_as_completed(probed):
    gw = probed(final(201, b"it was done", [("Content-Type", "text/plain"), ("X-Own", "1")]))
    assert gw.post("k", b"a").status == 502
    gw.store.wait_state("k", "completed")
    response = gw.post("k", b"a")
    assert (response.status, response.body) == (201, b"it was done")
    assert response.header("Content-Type") == "text/plain"
    assert response.header("Idempotent-Replayed") == "true"
    expect.plain(response)
    assert gw.upstream.count("k") == 1


def test_retry_settles_it_as_not_happened(probed):
    gw = probed(lambda exchange: exchange.respond(404, [("Once-Outcome", "retry")]))
    assert gw.post("k", b"a").status == 502
    gw.store.wait_state("k", "failed")
    original = expect.first(gw.post("k", b"a"))
    expect.replay(gw.post("k", b"a"), original)
    assert gw.upstream.count("k") == 2


def test_probe_names_key_and_claim(probed):
    gw = probed(final())
    gw.post("k 1", b"a")
    gw.store.wait_state("k 1", "completed")
    probe = gw.prober.last()
    assert (probe.method, probe.target) == ("GET", "/outcome")
    assert probe.key == "k 1"
    assert probe.headers.get("Once-Claim") == gw.upstream.last().headers.get("Once-Claim")
    assert probe.body == b""
    assert gw.upstream.total == 1


SILENT = {
    "404": lambda exchange: exchange.respond(404, body=b"no such page"),
    "200 without a word": lambda exchange: exchange.respond(200, body=b"{}"),
    "unknown": lambda exchange: exchange.respond(200, [("Once-Outcome", "unknown")]),
    "nonsense": lambda exchange: exchange.respond(200, [("Once-Outcome", "perhaps")]),
    "final without status": lambda exchange: exchange.respond(200, [("Once-Outcome", "final")]),
    "final with a bad status": lambda exchange: exchange.respond(200, [("Once-Outcome", "final"), ("Once-Status", "9")]),
    "final, 1xx": lambda exchange: exchange.respond(200, [("Once-Outcome", "final"), ("Once-Status", "100")]),
    "both": lambda exchange: exchange.respond(200, [("Once-Outcome", "final"), ("Once-Outcome", "retry"), ("Once-Status", "201")]),
    "redirect": lambda exchange: exchange.respond(302, [("Location", "/elsewhere")]),
    "500": lambda exchange: exchange.respond(500),
    "reset": lambda exchange: exchange.reset(),
    "closed": lambda exchange: exchange.close(),
    "garbage": lambda exchange: (exchange.send(b"what?\r\n\r\n"), exchange.close()),
    "half a header": lambda exchange: (exchange.send(b"HTTP/1.1 200 OK\r\nOnce-Outcome: ret"), exchange.close()),
    "truncated": lambda exchange: (exchange.begin(200, [("Once-Outcome", "final"), ("Once-Status", "201"),
                                                       ("Content-Length", "100")]), exchange.send(b"x"), exchange.close()),
    "truncated retry": lambda exchange: (exchange.begin(200, [("Once-Outcome", "retry"), ("Content-Length", "9")]),
                                         exchange.close()),
}


@pytest.mark.parametrize("name", SILENT)
def test_anything_else_settles_nothing(probed, name):
    """A mistyped URL, a stray 404, half an answer: the outcome stays unknown, and nothing runs again."""
    gw = probed(SILENT[name])
    assert gw.post("k", b"a").status == 502
    gw.prober.wait_total(1)
    for _ in range(2):
        expect.problem(gw.post("k", b"a"), "outcome-unknown")
    gw.store.wait_lease_over("k")
    expect.problem(gw.post("k", b"a"), "outcome-unknown")
    assert gw.store.state("k") == "unknown"
    assert gw.upstream.count("k") == 1


def test_backend_that_cannot_be_reached(gateway):
    refusing, sock = refusing_address()
    gw = gateway(HOLD + f"once_probe http://{refusing}/outcome;")
    gw.upstream.then(lambda exchange: exchange.reset())
    assert gw.post("k", b"a").status == 502
    gw.store.wait_state("k", "unknown")
    expect.problem(gw.post("k", b"a"), "outcome-unknown")
    assert gw.upstream.count("k") == 1
    sock.close()


def test_backend_that_does_not_answer(probed):
    """Nothing waits for it forever, not even nginx when it ends."""
    gate = Gate()
    gw = probed(lambda exchange: gate.pass_through(), options="timeout=300ms")
    assert gw.post("k", b"a").status == 502
    gate.wait_arrival()
    expect.problem(gw.post("k", b"a"), "outcome-unknown")
    gate.open()
    assert gw.upstream.count("k") == 1


def test_asked_again_when_somebody_asks(probed):
    """The backend did not know it at first; a later request makes the gateway ask again."""
    gw = probed(lambda exchange: exchange.respond(404))
    assert gw.post("k", b"a").status == 502
    gw.prober.wait_total(1)
    gw.store.wait_state("k", "unknown")
    gw.store.wait_lease_over("k")
    gw.prober.default = final(200, b"known by now")
    response = gw.post("k", b"a")
    if response.status == 409:
        gw.store.wait_state("k", "completed")
        response = gw.post("k", b"a")
    assert (response.status, response.body) == (200, b"known by now")
    assert gw.upstream.count("k") == 1


def test_one_probe_at_a_time(probed):
    """Requests for the same record wait for the answer to the same question."""
    gate = Gate()

    def script(exchange):
        gate.pass_through()
        final(201, b"known")(exchange)

    gw = probed(script)
    assert gw.post("k", b"a").status == 502
    gate.wait_arrival()
    clients = [gw.connect() for _ in range(4)]
    for client in clients:
        client.start("POST", "/", "k", b"a")
    assert gw.post("k", b"other").status == 422  # one worker: it has read the others by now
    assert gw.prober.total == 1
    gate.open()
    for client in clients:
        response = client.finish()
        assert (response.status, response.body) == (201, b"known"), response
    assert gw.prober.total == 1
    assert gw.upstream.count("k") == 1


def test_chunked_answer(probed):
    gw = probed(lambda exchange: exchange.respond(200, [("Once-Outcome", "final"), ("Once-Status", "202")], b"abc" * 1000,
                                                  chunked=True, piece=700))
    gw.post("k", b"a")
    gw.store.wait_state("k", "completed")
    response = gw.post("k", b"a")
    assert (response.status, response.body) == (202, b"abc" * 1000)
    assert gw.upstream.count("k") == 1


@pytest.mark.parametrize("header", [("Cache-Control", "no-store"), ("Once-Body", "omit")])
def test_answer_that_is_not_to_be_stored(probed, header):
    gw = probed(final(201, b"a card number", [header, ("X-Own", "1")]))
    assert gw.post("k", b"a").status == 502
    gw.store.wait_state("k", "completed")
    response = gw.post("k", b"a")
    assert (response.status, response.header("Once-Body"), response.body) == (201, "omitted", b"")
    assert response.header("X-Own") == "1"


def test_answer_that_is_too_large(probed):
    """Not kept in part: settled without its body, or not at all."""
    gw = probed(final(201, b"x" * 3_000_000))
    gw.post("k", b"a")
    gw.prober.wait_total(1)
    response = gw.post("k", b"a")
    assert response.status in (201, 409), response
    if response.status == 201:
        assert response.header("Once-Body") == "omitted" and response.body == b""
    assert gw.upstream.count("k") == 1


def test_probe_over_a_unix_socket(gateway, backend, directory):
    prober = backend(f"{directory}/probe.sock", socket.AF_UNIX)
    prober.default = final(201, b"by a socket")
    gw = gateway(HOLD + f"once_probe http://unix:{directory}/probe.sock:/outcome;")
    gw.upstream.then(lambda exchange: exchange.reset())
    assert gw.post("k", b"a").status == 502
    gw.store.wait_state("k", "completed")
    assert gw.post("k", b"a").body == b"by a socket"
    assert gw.upstream.count("k") == 1


def test_after_a_worker_was_killed(probed):
    """The lease runs out, the record becomes unknown, and asking for it makes the gateway ask."""
    gate = Gate()
    gw = probed(final(201, b"survived"))
    gw.upstream.queue.clear()
    gw.upstream.then(lambda exchange: gate.pass_through())
    client = gw.connect()
    client.start("POST", "/", "k", b"a")
    gate.wait_arrival()
    gw.nginx.kill_worker()
    gate.open()
    gw.store.wait_lease_over("k")
    response = gw.post("k", b"a")
    if response.status == 409:
        gw.store.wait_state("k", "completed")
        response = gw.post("k", b"a")
    assert (response.status, response.body) == (201, b"survived")
    assert gw.upstream.count("k") == 1


def test_completed_records_are_not_probed(probed):
    gw = probed(final())
    gw.upstream.queue.clear()
    original = expect.first(gw.post("k", b"a"))
    expect.replay(gw.post("k", b"a"), original)
    assert gw.prober.total == 0
    assert gw.upstream.count("k") == 1


def test_quit_while_a_probe_is_out(probed):
    gate = Gate()

    def script(exchange):
        gate.pass_through()
        final()(exchange)

    gw = probed(script)
    assert gw.post("k", b"a").status == 502
    gate.wait_arrival()
    gw.nginx.signal(3)
    gw.nginx.log.wait("gracefully shutting down")
    gate.open()
    gw.nginx.log.wait_end()
    assert gw.store.state("k") in ("completed", "unknown")
    assert gw.upstream.count("k") == 1


def test_client_gone_and_probe_finds_out(probed):
    gate = Gate()
    gw = probed(final(201, b"found"))
    gw.upstream.queue.clear()

    def script(exchange):
        gate.pass_through()
        exchange.reset()

    gw.upstream.then(script)
    client = gw.connect()
    client.start("POST", "/", "k", b"a")
    gate.wait_arrival()
    client.reset()
    gate.open()
    gw.store.wait_state("k", "completed")
    response = gw.post("k", b"a")
    assert (response.status, response.body) == (201, b"found")
    assert gw.upstream.count("k") == 1
