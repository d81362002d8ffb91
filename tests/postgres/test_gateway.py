"""Two gateways on one database, and what their clients are told while the server is gone."""
import os
import shlex
import subprocess
import threading

import pytest

CTL = shlex.split(os.environ["ONCE_PG_CTL"])


@pytest.fixture
def pair(gateway):
    """Two gateways that share a store and an upstream."""
    one = gateway("once_wait 5s; once_recover hold;", workers=2)
    return one, gateway("once_wait 5s; once_recover hold;", workers=2, store=one.store.url, upstream=one.upstream)


def test_what_one_ran_the_other_replays(pair):
    one, two = pair
    first = one.post("k")
    again = two.post("k")
    assert first.status == again.status == 201 and first.body == again.body
    assert again.headers.get("Idempotent-Replayed") == "true"
    assert one.upstream.count("k") == 1
    assert two.post("k", body=b"other").status == 422


def test_a_burst_over_both_runs_once(pair):
    one, two = pair
    for number in range(5):
        key, answers = f"burst-{number}", []
        threads = [threading.Thread(target=lambda gw=gw: answers.append(gw.post(key))) for gw in (one, two) * 8]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {answer.status for answer in answers} == {201}
        assert len({answer.body for answer in answers}) == 1
        assert one.upstream.count(key) == 1


def test_gone_is_503_and_heals(gateway):
    gw = gateway("once_store_timeout 500ms;")
    assert gw.post("before").status == 201
    subprocess.run(CTL + ["-m", "immediate", "stop"], check=True, stdout=subprocess.DEVNULL)
    try:
        assert gw.post("meanwhile").status == 503
        assert gw.upstream.count("meanwhile") == 0
    finally:
        subprocess.run(CTL + ["start"], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    again = gw.post("before")
    assert again.status == 201 and again.headers.get("Idempotent-Replayed") == "true"
    gw.nginx.expect("the store did not answer in time")
