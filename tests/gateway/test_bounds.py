"""What a client can make a gateway hold is bounded: memory (once_memory), files (once_bodies), new records (once_quota),
unknown ones (once_unknown_max)."""
import os
import re
import socket

import pytest

from harness import expect
from harness.gateway import GUARD
from harness.upstream import answer, slow
from harness.wait import Gate, all_at_once, until

STATUS = "location = /status { once_status; }"
MIB = 1 << 20


def rss(gw):
    """Of the one worker."""
    with open(f"/proc/{gw.nginx.worker_pids()[0]}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+) kB", status.read())[1]) << 10


def measured(gw, name, route="/", **labels):
    """A sample of /status; several labels in the order of the text."""
    wanted = ",".join([f'route="{route}"'] * bool(route) + [f'{label}="{value}"' for label, value in labels.items()])
    wanted = name + ("{%s}" % wanted if wanted else "")
    lines = [line for line in gw.request("GET", "/status").body.decode().splitlines() if line.startswith(wanted + " ")]
    assert len(lines) == 1, (wanted, lines)
    return float(lines[0].split()[-1])


def slow_reader(gw, key):
    """Asks, and reads nothing of the response but that it begins."""
    client = gw.connect()
    client.start("POST", "/", key, b'{"amount":1}')
    assert client.sock.recv(12, socket.MSG_PEEK | socket.MSG_WAITALL) == b"HTTP/1.1 201"
    return client


# ---------------------------------------------------------------------------------------------------------------- memory

@pytest.mark.weighs
def test_readers_of_one_response_share_it(gateway):
    """One copy for all of them, and no more."""
    gw = gateway("once_store_body 16m; send_timeout 300s;")
    body = os.urandom(12 * MIB)
    gw.upstream.default = answer(201, body=body)
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)
    before = rss(gw)
    readers = [slow_reader(gw, "k") for _ in range(20)]
    assert rss(gw) - before < 40 * MIB
    for client in readers[:3]:
        expect.replay(client.finish(), original)


def test_memory_is_limited(gateway):
    """What does not fit is not lost: a first response passes and is recorded without its body, a replay gets Retry-After."""
    gw = gateway(locations="location / { %s once_store_body 16m; send_timeout 300s; } %s" % (GUARD, STATUS),
                 http="once_memory 33m;")
    gw.upstream.default = answer(201, body=bytes(range(256)) * (12 * MIB // 256))
    for key in ("k1", "k2", "k3"):
        expect.first(gw.post(key))
    until(lambda: measured(gw, "once_memory_bytes", None) == 0, "nothing to be held")
    readers = [slow_reader(gw, key) for key in ("k1", "k2", "k1", "k2")]
    assert 24 * MIB <= measured(gw, "once_memory_bytes", None) < 25 * MIB

    expect.problem(gw.post("k3"), "out-of-memory")
    assert measured(gw, "once_refused_total", reason="memory") == measured(gw, "once_requests_total", outcome="refused") == 1
    passed = expect.first(gw.post("k4"))
    assert len(passed.body) == 12 * MIB
    replayed = gw.post("k4")
    assert replayed.status == 201 and replayed.header("Once-Body") == "omitted" and replayed.body == b"", replayed
    assert measured(gw, "once_memory_omitted_total") == 1
    gw.upstream.default = answer(201)
    expect.once(lambda: gw.post("small"))

    for reader in readers:
        reader.reset()
    until(lambda: measured(gw, "once_memory_bytes", None) == 0, "the memory to be given back")
    assert len(gw.post("k3").body) == 12 * MIB
    assert [gw.upstream.count(key) for key in ("k1", "k2", "k3", "k4")] == [1, 1, 1, 1]


def test_json_bodies_count(gateway):
    """A document is kept until it is whole: also clients that never finish it hold no more than the limit."""
    gw = gateway(locations="location / { %s once_fingerprint json; } %s" % (GUARD, STATUS), http="once_memory 33m;")
    document = b'"' + b"x" * (MIB - 2) + b'"'
    clients = []
    for number in range(33):
        clients.append(gw.connect())
        clients[-1].begin("POST", "/", f"k{number}", document, [("Content-Type", "application/json")])
        clients[-1].send(document[:-1])
    until(lambda: measured(gw, "once_memory_bytes", None) == 33 * (MIB - 1), "all documents to be there but for their ends")
    late = gw.post("late", document, headers=[("Content-Type", "application/json")])
    expect.problem(late, "out-of-memory")
    assert gw.store.state("late") is None
    clients.pop().reset()
    until(lambda: measured(gw, "once_memory_bytes", None) == 32 * (MIB - 1), "one of them to be forgotten")
    expect.once(lambda: gw.post("late", document, headers=[("Content-Type", "application/json")]))
    clients[0].send(document[-1:])
    assert clients[0].finish().status == 201
    assert gw.upstream.total == 2


def test_bodies_in_files_are_limited(gateway):
    """By what is announced; those that lie in no file are none of them."""
    gw = gateway(locations="location / { %s } %s" % (GUARD, STATUS), http="once_bodies 1m;")
    held = gw.connect()
    held.begin("POST", "/", "held", b"x" * 700_000)
    held.send(b"x" * 100_000)
    until(lambda: gw.post("probe", b"x" * 400_000).status == 503, "the first to be counted")
    expect.problem(gw.post("large", b"x" * 400_000), "out-of-memory")
    assert gw.post("chunked", b"x" * 400_000, chunked=True, piece=50_000).status == 503
    assert gw.store.state("large") is None and gw.store.state("chunked") is None
    expect.once(lambda: gw.post("small"))
    expect.once(lambda: gw.post("fits", b"x" * 300_000))
    expect.once(lambda: gw.post("fits too", b"x" * 300_000, chunked=True, piece=50_000))
    assert measured(gw, "once_refused_total", reason="bodies") == measured(gw, "once_requests_total", outcome="refused") >= 3
    held.send(b"x" * 600_000)
    assert held.finish().status == 201
    held.close()
    expect.once(lambda: gw.post("large", b"x" * 1_000_000))
    assert gw.upstream.count("large") == gw.upstream.count("held") == 1


# ----------------------------------------------------------------------------------------------------------------- quota

def test_a_scope_makes_no_more_records_than_its_quota(gateway):
    gw = gateway(locations="location / { %s } location /other { %s } location /free { %s once_quota off; } %s"
                 % (GUARD, GUARD, GUARD, STATUS), http="once_quota 3/1h;", workers=2)
    originals = {key: expect.first(gw.post(key, scope="a")) for key in ("k1", "k2")}
    gw.upstream.then(answer(429))
    assert gw.post("k3", scope="a").status == 429
    gw.store.wait_state("k3", "failed")

    refused = expect.problem(gw.post("k4", scope="a"), "quota-exceeded", retry_after=(1100, 1200))
    assert "k4" not in refused.body.decode()
    expect.problem(gw.post("k4", target="/other", scope="a"), "quota-exceeded", retry_after=(1100, 1200))
    assert gw.store.state("k4") is None
    for key, original in originals.items():
        expect.replay(gw.post(key, scope="a"), original)
    expect.problem(gw.post("k1", b"other", scope="a"), "key-reused")
    expect.first(gw.post("k3", scope="a"))
    expect.first(gw.post("k1", scope="b"))
    expect.first(gw.post("k4", target="/free", scope="a"))

    gw.nginx.reload()
    expect.problem(gw.post("k5", scope="a"), "quota-exceeded", retry_after=(1100, 1200))
    assert measured(gw, "once_refused_total", reason="quota") == measured(gw, "once_requests_total", outcome="refused") == 2
    assert measured(gw, "once_refused_total", "/other", reason="quota") == 1


def test_replays_take_nothing_of_the_quota(gateway):
    gw = gateway("once_quota 2/1h;")
    original = expect.first(gw.post("k"))
    for _ in range(5):
        expect.replay(gw.post("k"), original)
        expect.problem(gw.post("k", b"other"), "key-reused")
    expect.first(gw.post("k2"))
    expect.problem(gw.post("k3"), "quota-exceeded", retry_after=(1, 1800))


def test_the_quota_holds_when_all_come_at_once(gateway):
    gw = gateway("once_quota 5/1h;", workers=2)
    answers = all_at_once([lambda key=f"k{number}": gw.post(key) for number in range(30)])
    assert [response.status for response in answers].count(201) == 5
    for response in answers:
        assert response.status in (201, 429, 503), response  # 503: a worker that cannot look up keys yet
    assert gw.upstream.total == 5 and len(gw.store.records()) == 5


# --------------------------------------------------------------------------------------------------------------- unknown

def test_unknown_records_are_limited(gateway):
    """Those that are there are answered as always; new ones wait until one is settled, wherever that happens."""
    gw = gateway(locations="location / { %s once_recover hold; once_unknown_max 2; } location /other { %s once_recover hold; } %s"
                 % (GUARD, GUARD, STATUS), workers=2)
    assert measured(gw, "once_unknown_records") == 0
    original = expect.first(gw.post("done"))
    for key in ("u1", "u2"):
        gw.upstream.then(lambda exchange: exchange.reset())
        assert gw.post(key).status == 502
        gw.store.wait_state(key, "unknown")
    until(lambda: measured(gw, "once_unknown_records") == 2, "both to be counted")

    expect.problem(gw.post("new"), "too-many-unknown")
    gw.nginx.reload()
    expect.problem(gw.post("new"), "too-many-unknown")
    assert gw.store.state("new") is None
    assert measured(gw, "once_refused_total", reason="unknown") == 2
    expect.replay(gw.post("done"), original)
    expect.problem(gw.post("u1"), "outcome-unknown")
    expect.first(gw.post("new", target="/other"))

    gw.store.settle_failed("u1", "--force")
    until(lambda: gw.post("new2").status == 201, "the gateway to notice that one was settled")
    assert measured(gw, "once_unknown_records") == 1
    gw.store.settle_completed("u2", 201, b"settled", "--force")
    assert gw.post("u2").body == b"settled"
    assert measured(gw, "once_unknown_records") == 0
    assert gw.upstream.count("u1") == gw.upstream.count("u2") == 1


def test_unknown_records_of_before_are_counted_when_they_are_met(gateway):
    rules = "location / { %s once_recover hold; once_unknown_max 1; } %s" % (GUARD, STATUS)
    gw = gateway(locations=rules)
    gw.upstream.then(lambda exchange: exchange.reset())
    gw.post("u")
    gw.store.wait_state("u", "unknown")
    gw.nginx.quit()
    gw.start()
    expect.problem(gw.post("u"), "outcome-unknown")
    expect.problem(gw.post("new"), "too-many-unknown")


# ----------------------------------------------------------------------------------------------------------------- store

def fill(gw, keys, size=100):
    """Until the store takes no more; the original responses by key."""
    originals = {}
    for key in keys:
        gw.upstream.then(answer(201, body=os.urandom(size)))
        response = gw.post(key)
        if response.status == 503:
            expect.problem(response, "store-unavailable")
            return originals
        originals[key] = expect.first(response)
    raise AssertionError(f"there is room for all of {len(originals)}")


def in_store(gw, name):
    """A gauge of the one store."""
    lines = [line for line in gw.request("GET", "/status").body.decode().splitlines() if line.startswith(f"once_store_{name}{{")]
    assert len(lines) == 1 and 'store="local:' in lines[0], lines
    return int(lines[0].split()[-1])


def test_a_store_at_its_bound_refuses_new_keys_only(gateway, directory):
    """max_records, over all workers: what is known is answered, what runs is recorded, and what is purged makes room."""
    gw = gateway(locations="location / { %s once_recover hold; } %s" % (GUARD, STATUS), workers=2,
                 store=f"local:{directory}/store?segment=1m&max_records=10")
    gw.nginx.expect("is full")
    gate = Gate()
    with gw.connect() as client:
        gw.upstream.then(slow(gate))
        client.start("POST", "/", "running", b"a")
        gate.wait_arrival()
        originals = fill(gw, [f"k{number}" for number in range(20)])
        assert len(originals) == 9
        gate.open()
        originals["running"] = expect.first(client.finish())
    asked = gw.upstream.total
    for key, original in originals.items():
        expect.replay(gw.post(*([key, b"a"] if key == "running" else [key])), original)
    expect.problem(gw.post("new"), "store-unavailable")
    assert gw.upstream.total == asked
    assert measured(gw, "once_refused_total", reason="full") == 2
    assert measured(gw, "once_requests_total", outcome="refused") == 2
    assert measured(gw, "once_store_errors_total") == 0
    assert [in_store(gw, name) for name in ("records", "max_records", "max_bytes")] == [10, 10, 0]
    assert in_store(gw, "bytes") >= MIB
    gw.nginx.log.wait("is full: it has 10 records .max_records=10.*once_quota")

    gw.store.run("keys", "purge", "--note=test", "--yes", gw.store.url, gw.store.record("k0")["id"])
    expect.once(lambda: gw.post("new"))
    expect.problem(gw.post("another"), "store-unavailable")
    stats = gw.store.stats()
    assert (stats["records"], stats["max_records"]) == (10, 10)
    assert "of 10 at most (100 %)" in gw.store.run("stats", gw.store.url).stdout.decode()


def test_the_log_of_a_store_is_bounded(gateway, directory):
    """max_bytes: a flood of new keys takes no more of the disk. What is purged is given back when the reaper comes by."""
    gw = gateway(store=f"local:{directory}/store?segment=64k&max_bytes=512k&reap=100ms")
    gw.nginx.expect("is full")
    originals = fill(gw, (f"k{number}" for number in range(1000)), 10000)
    assert len(originals) > 10
    segments = os.path.join(str(directory), "store", "segments")
    assert sum(os.stat(os.path.join(segments, name)).st_size for name in os.listdir(segments)
               if name.endswith(".log")) <= 640 << 10
    for key, original in originals.items():
        expect.replay(gw.post(key), original)
    gw.store.run("keys", "purge", "--note=test", "--all", "--yes", gw.store.url)
    until(lambda: gw.post("later").status == 201, "the files of what was purged to go")
