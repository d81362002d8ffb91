"""What the gateway says about its stores: counted in the background by one worker, shown by all, and never counted for a scrape."""
import os
import re

import pytest

from harness import expect
from harness.gateway import GUARD
from harness.wait import until

DOORS = "location = /status { once_status; } location = /ready { once_ready; }"


def locations(rules=""):
    return "location / { %s %s } %s" % (GUARD, rules, DOORS)


def gauges(gw):
    """Name without once_store_ -> value, of the only store."""
    text = gw.request("GET", "/status").body.decode()
    return {name: float(value) for name, value in re.findall(r'^once_store_(\w+)\{store="[^"]*"\} (\S+)$', text, re.M)}


def ready(gw):
    answer = gw.request("GET", "/ready")
    assert (answer.status, answer.body) in ((200, b"ok\n"), (503, b"not working\n")), answer
    assert answer.header("Content-Type") == "text/plain"
    return answer.status == 200


def doubt(gw, key):
    gw.upstream.then(lambda exchange: exchange.reset())
    gw.post(key)
    gw.store.wait_state(key, "unknown")


@pytest.mark.parametrize("workers", [1, 2])
def test_stuck_records_are_counted(gateway, workers):
    gw = gateway(locations=locations("once_recover hold;"), http="once_stats 1s;", workers=workers)
    until(lambda: gauges(gw).get("records") == 0, "the first count")
    expect.first(gw.post("done"))
    doubt(gw, "u")
    seen = until(lambda: (now := gauges(gw)).get("unknown_records") == 1 and now, "the unknown record to be counted")
    assert seen["up"] == 1 and seen["stuck_records"] == 1 and seen["oldest_seconds"] > 0, seen
    assert seen["records"] == 2 and seen["bytes"] > 0 and seen["max_records"] == 0, seen
    assert seen["damaged_records"] == 0 and seen["quarantined_ranges"] == 0 and seen["expired_records"] == 0, seen
    assert seen["disk_bytes"] > seen["disk_free_bytes"] > 0, seen
    gw.store.settle_failed("u", "--force")
    until(lambda: gauges(gw)["stuck_records"] == 0, "the settled record to count no longer")
    status = gw.request("GET", "/status", headers=[("Accept", "application/json")]).json()
    assert status["stores"][0]["up"] == 1 and status["stores"][0]["stuck_records"] == 0
    assert gw.upstream.total == 2


def test_a_scrape_counts_nothing(gateway):
    """Neither does a worker that takes over, nor a reload: the pause is that of the store."""
    gw = gateway(locations=locations("once_recover hold;"), http="once_stats 1h;", workers=2)
    first = until(lambda: gauges(gw).get("counted_timestamp_seconds"), "the first count")
    doubt(gw, "u")
    gw.nginx.kill_worker()
    gw.nginx.wait_worker_gone(*gw.nginx.reload())
    for _ in range(20):
        assert ready(gw)
        seen = gauges(gw)
        assert seen["counted_timestamp_seconds"] == first and seen["stuck_records"] == 0, seen


def test_counting_goes_on_without_the_worker_that_did_it(gateway):
    gw = gateway(locations=locations("once_recover hold;"), http="once_stats 1s;", workers=2)
    until(lambda: gauges(gw).get("records") == 0, "the first count")
    for pid in gw.nginx.worker_pids():
        gw.nginx.kill_worker(pid)
    doubt(gw, "u")
    until(lambda: gauges(gw)["stuck_records"] == 1, "another worker to count")


def test_without_counts_it_is_still_asked(gateway):
    gw = gateway(locations=locations(), http="once_stats off;")
    until(lambda: ready(gw), "the store to answer")
    assert gauges(gw)["up"] == 1
    assert not {"stuck_records", "counted_timestamp_seconds", "disk_bytes"} & set(gauges(gw))


def test_a_store_that_does_not_open(prepare, directory):
    """It comes back without a request that asks for it: a load balancer sends none to what is not ready."""
    gw = prepare(locations=locations(), store=f"local:{directory}/above/store")
    gw.nginx.expect("cannot be opened|cannot create")
    gw.start()
    until(lambda: gauges(gw).get("up") == 0, "the store to be missed")
    assert not ready(gw)
    os.mkdir(f"{directory}/above")
    until(lambda: ready(gw) and gauges(gw)["up"] == 1, "the store to answer")
    expect.first(gw.post("k"))


def test_only_get(gateway):
    gw = gateway(locations=locations())
    assert gw.request("HEAD", "/ready").body == b""
    assert gw.post("k", target="/ready").status == 405
