"""A Redis that lost everything, the secrets too: gateways whose ids for the same key differ do not both run it.

What is lost is lost (docs/stores.md): a key that was used before may run again. One that is new must not run twice.
    with-server [--sentinel|--cluster] pytest -p gateway_store test_lost.py
"""
import os
import signal
import subprocess
import time

import pytest

DIR, URL = os.environ["ONCE_REDIS_DIR"], os.environ["ONCE_REDIS_URL"]
PORTS = os.environ["ONCE_REDIS_PORTS"].split()
KIND = URL.split(":")[0]


def redis(port, *arguments):
    """Repeated while it fails: a sentinel disconnects the clients of a server that it promotes."""
    done = None

    def succeeds():
        nonlocal done
        done = subprocess.run([f"{DIR}/cli", port, *arguments], check=False, capture_output=True, text=True)
        return done.returncode == 0

    until(succeeds)
    return done.stdout


def until(happens, patience=30):
    end = time.monotonic() + patience
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.05)


def masters():
    return [port for port in PORTS if "role:master" in redis(port, "INFO", "replication")]


def empty(ports):
    """Replicas, too: a replica that takes over at this moment has nothing."""
    for port in ports:
        redis(port, "CONFIG", "SET", "replica-read-only", "no")
        redis(port, "FLUSHALL")


def flush():
    """An operator's mishap."""
    empty(PORTS)


def restart():
    """A server without persistence."""
    with open(f"{DIR}/{PORTS[0]}.pid", encoding="ascii") as file:
        os.kill(int(file.read()), signal.SIGKILL)
    subprocess.run([os.environ["ONCE_REDIS_START"], PORTS[0]], check=True)


def promote_empty():
    """The replicas have nothing when one of them takes over."""
    old = masters()
    empty(set(PORTS) - set(old))
    with open(f"{DIR}/{old[0]}.pid", encoding="ascii") as file:
        os.kill(int(file.read()), signal.SIGKILL)
    PORTS.remove(old[0])
    until(masters)


def flush_the_secrets():
    """One server of a cluster: the others keep their records."""
    empty(port for port in PORTS if "secrets" in redis(port, "KEYS", "*"))


WAYS = {"redis": [flush, restart], "redis+sentinel": [flush, promote_empty], "redis+cluster": [flush, flush_the_secrets]}[KIND]


def refused(answer):
    return answer.status == 503 and "secrets" in answer.json()["detail"] and "Retry-After" in answer.headers


def new_one(gateway, old):
    gw = gateway("once_recover hold; once_store_timeout 20s;", store=old.store.url, upstream=old.upstream)
    assert gw.post("first of the new one").status == 201
    return gw


def test_whoever_still_knows_the_secrets_puts_them_back(gateway):
    old = gateway("once_recover hold; once_store_timeout 20s;")
    assert old.post("before").status == 201
    flush()
    assert old.post("new").status == 201  # at once
    new = new_one(gateway, old)
    for gw in old, new:
        assert gw.post("new").headers.get("Idempotent-Replayed") == "true"
        assert gw.post("first of the new one").headers.get("Idempotent-Replayed") == "true"


def test_nobody_is_left_behind_by_a_refusal(gateway):
    """Where a claim is granted before the secrets are known to be others, it is given back."""
    old = gateway("once_recover hold;")
    old.nginx.expect("secrets")
    assert old.post("before").status == 201
    flush()
    new = new_one(gateway, old)
    assert refused(old.post("new"))
    until(lambda: not [record for record in new.store.records() if record["state"] in ("pending", "unknown")])


@pytest.mark.parametrize("lose", WAYS, ids=lambda way: way.__name__)
def test_what_is_new_runs_once(gateway, lose):
    old = gateway("once_recover hold; once_store_timeout 20s;")  # one worker: it has the secrets before they are lost
    old.nginx.expect("secrets")
    old.nginx.expect("no connection|this is not what Redis|did not answer in time|is a replica")
    assert old.post("before").status == 201
    lose()

    new = new_one(gateway, old)
    new.nginx.expect("no connection")
    for i in range(8):  # records on all servers
        first, second = (old, new) if i % 2 else (new, old)
        answers = {first: first.post(f"new {i}"), second: second.post(f"new {i}")}
        assert refused(answers[old]), (i, answers[old].status)
        assert answers[new].status == 201, i
        assert old.upstream.count(f"new {i}") == 1, i
    old.nginx.log.wait("has other secrets than this program")

    old.nginx.wait_worker_gone(*old.nginx.reload())  # which is what an operator does
    assert old.post("new 0").headers.get("Idempotent-Replayed") == "true"
    assert old.post("after").status == 201 and new.post("after").headers.get("Idempotent-Replayed") == "true"
