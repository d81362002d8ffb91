"""Two gateways on one Redis, and what their clients are told when it is full, would forget, or is gone."""
import os
import signal
import subprocess
import threading

import pytest

DIR = os.environ["ONCE_REDIS_DIR"]
PORT = os.environ["ONCE_REDIS_PORT"]


def redis(*arguments):
    return subprocess.run([f"{DIR}/cli", PORT, *arguments], check=True, capture_output=True, text=True).stdout


def all_at_once(calls):
    answers = [None] * len(calls)

    def run(i):
        answers[i] = calls[i]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


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
    for round_ in range(5):
        key = f"burst-{round_}"
        answers = all_at_once([lambda gw=gw: gw.post(key) for gw in (one, two) * 8])
        assert {answer.status for answer in answers} == {201}
        assert len({answer.body for answer in answers}) == 1
        assert one.upstream.count(key) == 1


def test_full_is_503_and_heals(pair):
    one, two = pair
    done = one.post("done")
    redis("CONFIG", "SET", "maxmemory", "1")
    try:
        refused = two.post("new")
        assert refused.status == 503 and "Retry-After" in refused.headers
        assert two.post("done").body == done.body
    finally:
        redis("CONFIG", "SET", "maxmemory", "0")
    assert two.post("new").status == 201
    assert one.upstream.count("new") == 1
    two.nginx.expect("the store has no room")


def test_a_redis_that_would_forget_is_503(gateway):
    redis("CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
    try:
        gw = gateway()
        assert gw.post("k").status == 503
        assert gw.upstream.total == 0
        gw.nginx.expect("option, policy or store URL is wrong")
        gw.nginx.expect("maxmemory-policy is allkeys-lru")
    finally:
        redis("CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction")


def test_gone_is_503_and_heals(gateway):
    gw = gateway("once_store_timeout 500ms;")
    assert gw.post("before").status == 201
    with open(f"{DIR}/{PORT}.pid", encoding="ascii") as file:
        os.kill(int(file.read()), signal.SIGKILL)
    try:
        assert gw.post("meanwhile").status == 503
    finally:
        subprocess.run([os.environ["ONCE_REDIS_START"], PORT], check=True)
    again = gw.post("before")  # appendonly, appendfsync always
    assert again.status == 201 and again.headers.get("Idempotent-Replayed") == "true"
    gw.nginx.expect("the store did not answer in time")
    gw.nginx.expect(f"{PORT}: no connection")


@pytest.mark.parametrize("url", ["redis://user:very-secret@127.0.0.1:1/0",
                                 "redis+sentinel://u:very-secret@127.0.0.1:1/name?sentinel_password=very-secret"])
def test_passwords_are_not_told(gateway, url):
    gw = gateway("once_store_timeout 300ms;", store=f"'{url}'")
    gw.nginx.expect("once")
    assert gw.post("k").status == 503
    gw.nginx.log.wait("store \"redis")
    assert not gw.nginx.log.find("very-secret")
