"""The answers of gateways on Redis when it is full, would forget, or is gone."""
import os
import signal
import subprocess
import time

import pytest

DIR = os.environ["ONCE_REDIS_DIR"]
PORT = os.environ["ONCE_REDIS_PORT"]


def redis(*arguments):
    return subprocess.run([f"{DIR}/cli", PORT, *arguments], check=True, capture_output=True, text=True).stdout


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
    gw = gateway("once_store_timeout 1s;")
    assert gw.post("before").status == 201
    with open(f"{DIR}/{PORT}.pid", encoding="ascii") as file:
        os.kill(int(file.read()), signal.SIGKILL)
    try:
        assert gw.post("meanwhile").status == 503
    finally:
        subprocess.run([os.environ["ONCE_REDIS_START"], PORT], check=True)
    healed_by = time.monotonic() + 30
    again = gw.post("before")  # appendonly, appendfsync always
    while again.status == 503 and time.monotonic() < healed_by:  # a pause between two connects may outlast a request
        again = gw.post("before")
    assert again.status == 201 and again.headers.get("Idempotent-Replayed") == "true"
    gw.nginx.expect("the store did not answer in time")
    gw.nginx.expect(f"{PORT}: no connection")


def test_secrets_alone_are_not_made_anew(pair, gateway):
    """The records are there: with other secrets they would not be found. An operator puts the secrets back."""
    old = pair[0]
    done = old.post("before")
    assert done.status == 201
    prefix = old.store.url.rpartition("prefix=")[2]
    redis("DEL", f"{prefix}secrets")
    new = gateway("once_recover hold;", store=old.store.url, upstream=old.upstream)
    new.nginx.expect("secrets")
    refused = new.post("before")
    assert refused.status == 503 and "secrets" in refused.json()["detail"]
    new.nginx.log.wait("the store has no secrets that can be used")
    redis("DEL", f"{prefix}mark{{{prefix}secrets}}")
    assert old.post("more").status == 201
    assert new.post("before").body == done.body


@pytest.mark.parametrize("url", ["redis://user:very-secret@127.0.0.1:1/0",
                                 "redis+sentinel://u:very-secret@127.0.0.1:1/name?sentinel_password=very-secret"])
def test_passwords_are_not_told(gateway, url):
    gw = gateway("once_store_timeout 1s;", store=f"'{url}'")
    gw.nginx.expect("once")
    assert gw.post("k").status == 503
    gw.nginx.log.wait("store \"redis")
    assert not gw.nginx.log.find("very-secret")


def test_with_keys_what_is_not_encrypted_is_not_replayed(gateway, directory):
    """Anyone who can write to the server could otherwise make answers up."""
    forger = gateway()
    assert forger.post("k").status == 201
    keys = f"{directory}/keys"
    with open(os.open(keys, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
        file.write("1 " + "5a" * 32 + "\n")
    gw = gateway(store=f"{forger.store.url}&encrypt=file:{keys}", upstream=forger.upstream)
    assert gw.post("k").status == 503
    assert gw.post("sealed").status == 201
    assert gw.post("sealed").headers.get("Idempotent-Replayed") == "true"
    gw.nginx.expect("encrypt_require=off reads it")
