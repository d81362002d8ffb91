"""Every operation of once serve and every outcome of it."""
import base64
import concurrent.futures
import json
import subprocess
import time

import pytest
from service import ONCE, PATIENCE, Server, claim_id
from waiting import until

CREATED = {"status": 201, "headers": [["content-type", "application/json"], ["x-many", "a"], ["x-many", "b"]], "body": '{"id": 17}'}
OTHER_CLAIM = 70 * "A"


@pytest.fixture(scope="module", name="server", params=["memory", "local"])
def start_server(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve")
    server = Server("memory:" if request.param == "memory" else f"local:{folder}/store", folder=folder)
    yield server
    server.close()


@pytest.fixture(name="client")
def connect(server):
    client = server.client()
    yield client
    client.close()


@pytest.fixture(name="key")
def make_key():
    return "key-" + claim_id()


def test_about(server, client):
    about = client.get("/v1").json
    assert about["store"] == server.store.split(":")[0] and about["api"] == 1
    assert client.get("/health").body == client.get("/ready").body == b"ok\n"
    assert "once_build_info{program=\"serve\"" in client.get("/metrics").body.decode()
    assert client.get("/metrics.json").status == 200


def test_first_busy_replay_mismatch(client, key):
    ask = {"scope": "tenant-7", "method": "POST", "target": "/payments", "body": '{"amount": 5}', "description": "POST /payments",
           "subject": "ann"}
    answer = client.claim(key, **ask, ttl_ms=60000, lease_ms=20000)
    assert answer["outcome"] == "run" and answer["epoch"] == 1 and answer["lease_ms"] == 20000
    busy = client.claim(key, **ask)
    assert busy["outcome"] == "busy" and 0 < busy["retry_after_ms"] <= 20000
    assert client.claim(key, **{**ask, "body": "{}"}) == {"outcome": "mismatch"}
    assert client.claim(key, **{**ask, "target": "/payouts"}) == {"outcome": "mismatch"}
    assert client.claim(key, **{**ask, "method": "PUT"}) == {"outcome": "mismatch"}
    assert client.claim(key, **{**ask, "scope": "tenant-8"})["outcome"] == "run"
    assert client.ask("finish", claim=answer["claim"], response=CREATED) == {"outcome": "done", "judgement": "record"}
    replay = client.claim(key, **ask)
    assert replay["outcome"] == "replay" and replay["response"] == CREATED and replay["epoch"] == 1
    assert 50000 < replay["expires_ms"] <= 60000
    encoded = {**ask, "body_base64": base64.b64encode(ask["body"].encode()).decode()}
    del encoded["body"]
    assert client.claim(key, **encoded)["outcome"] == "replay"


@pytest.mark.parametrize("body", ["", "x", "\x00nul and \u2028 and \U0001f600 and \"quotes\" \\", b"\xff\xfe\x00not text",
                                  "a" * 300000])
def test_bodies_byte_for_byte(client, key, body):
    def of(response):
        return response["body"].encode() if "body" in response else base64.b64decode(response["body_base64"])

    raw = body if isinstance(body, bytes) else body.encode()
    for n, form in enumerate(({"body_base64": base64.b64encode(raw).decode()}, {"body": body})):
        if isinstance(body, bytes) and "body" in form:
            continue
        claim = client.run(f"{key}-{n}", **form)
        assert client.ask("complete", claim=claim, response={"status": 200, **form}) == {"outcome": "done"}
        response = client.claim(f"{key}-{n}", body_base64=base64.b64encode(raw).decode())["response"]
        assert of(response) == raw and ("body" in response) == isinstance(body, str)


def test_no_body_is_the_empty_one(client, key):
    client.run(key)
    assert client.claim(key, body="")["outcome"] == "busy"


def test_without_a_body(client, key):
    claim = client.run(key)
    client.ask("complete", claim=claim, response={"status": 204, "headers": [], "body_omitted": True})
    response = client.claim(key)["response"]
    assert response == {"status": 204, "headers": [], "body_omitted": True}


def test_what_other_programs_did(tmp_path):
    """A body that was erased, and a header in ISO 8859-1, as HTTP once defined it."""
    store = f"local:{tmp_path}/store"
    server = Server(store, folder=tmp_path)
    client = server.client()
    client.ask("complete", claim=client.run("erased"), response=CREATED)
    client.ask("doubt", claim=client.run("settled", lease_ms=10))
    server.close()
    subprocess.run([ONCE, "keys", "erase", store, "erased", "--yes", "--note", "asked for"], check=True, capture_output=True)
    subprocess.run([ONCE, "keys", "settle", store, "settled", "--yes", "--force", "--note", "seen", "--completed", "--status",
                    "200", "--header", b"X-Name: caf\xe9"], check=True, capture_output=True)
    server = Server(store, folder=tmp_path)
    client = server.client()
    assert client.claim("erased")["response"] == {"status": 201, "headers": [], "body_omitted": "erased"}
    assert ["X-Name", "caf\u00e9"] in client.claim("settled")["response"]["headers"]
    server.close()


# ---------------------------------------------------------------------------------------------------------------- the end


@pytest.mark.parametrize("recover, status, verdict, judgement", [
    ("hold", 200, None, "record"), ("hold", 404, None, "record"), ("hold", 302, None, "record"),
    ("hold", 429, None, "release"), ("retry", 401, None, "release"),
    ("hold", 503, None, "doubt"), ("retry", 504, None, "doubt"), ("hold", 408, None, "doubt"),
    ("hold", 500, None, "doubt"), ("retry", 500, None, "release"), ("retry", 599, None, "release"),
    ("hold", 500, "final", "record"), ("hold", 200, "retry", "release"), ("retry", 200, "unknown", "doubt"),
    ("hold", 101, None, "doubt")])
@pytest.mark.parametrize("renew", ["caller", "connection"])
def test_finish_judges_as_the_gateway(client, key, recover, status, verdict, judgement, renew):
    claim = client.run(key, recover=recover, renew=renew)
    more = {"verdict": verdict} if verdict else {}
    assert client.ask("finish", claim=claim, response={"status": status}, **more) == {"outcome": "done", "judgement": judgement}
    after = client.claim(key, recover=recover)["outcome"]
    assert after == {"record": "replay", "release": "run", "doubt": "busy" if recover == "retry" else "unknown"}[judgement]


def test_a_key_first_used_under_hold_stays_so(client, key):
    """The record's policy counts, not the one of the claim that ends."""
    claim = client.run(key, recover="hold", lease_ms=60000)
    client.ask("release", claim=claim)
    claim = client.run(key, recover="retry")
    assert client.ask("finish", claim=claim, response={"status": 500})["judgement"] == "doubt"


def test_ends_again(client, key):
    claim = client.run(key)
    assert client.ask("complete", claim=claim, response=CREATED) == {"outcome": "done"}
    for again in (client.ask("complete", claim=claim, response={"status": 500}), client.ask("release", claim=claim),
                  client.ask("doubt", claim=claim)):
        assert again == {"outcome": "already", "response": CREATED}
    again = client.ask("finish", claim=claim, response={"status": 500})
    assert again == {"outcome": "already", "judgement": "doubt", "response": CREATED}
    assert client.ask("recorded", claim=claim) == {"recorded": True, "response": CREATED}
    assert client.ask("renew", claims=[claim]) == {"outcomes": ["lost"]}


def test_release_and_doubt(client, key):
    claim = client.run(key, recover="retry", lease_ms=60000)
    assert client.ask("release", claim=claim, status=503, note="no room") == {"outcome": "done"}
    record = client.ask("get", key=key)["record"]
    assert (record["state"], record["status"], record["note"]) == ("failed", 503, "no room")
    assert client.ask("release", claim=claim) == {"outcome": "done"}
    second = client.claim(key, recover="retry", lease_ms=60000)
    assert second["outcome"] == "run" and second["epoch"] == 2
    assert client.ask("release", claim=claim) == {"outcome": "lost"}
    assert client.ask("complete", claim=claim, response=CREATED) == {"outcome": "lost"}
    assert client.ask("recorded", claim=claim) == {"recorded": False, "state": "lost"}
    assert client.ask("doubt", claim=second["claim"], cause="timeout") == {"outcome": "done"}
    record = client.ask("get", key=key)["record"]
    assert (record["state"], record["cause"]) == ("unknown", "timeout")
    assert client.ask("recorded", claim=second["claim"]) == {"recorded": False, "state": "unknown"}
    assert client.claim(key)["outcome"] == "unknown"  # asked under hold
    assert client.ask("complete", claim=second["claim"], response=CREATED) == {"outcome": "done"}
    assert client.ask("complete", claim=claim, response={"status": 200}) == {"outcome": "lost", "response": CREATED}


def test_release_early_frees_the_key(client, key):
    claim = client.run(key, body="one", lease_ms=10, ttl_ms=86400000)
    assert client.ask("release", claim=claim, early=True) == {"outcome": "done"}
    expires = client.ask("get", key=key)["record"]["expires_ms"]
    assert expires < 3600000  # two leases of the server's policy at most, instead of a day
    assert client.claim(key, body="two")["outcome"] == "mismatch"


def test_retention(client, key):
    claim = client.run(key, ttl_ms=60000)
    client.ask("complete", claim=claim, response=CREATED, retain_ms=5000000)
    assert client.claim(key)["expires_ms"] > 4000000


def test_an_unknown_claim(client):
    assert client.ask("complete", claim=OTHER_CLAIM, response=CREATED) == {"outcome": "lost"}
    assert client.ask("finish", claim=OTHER_CLAIM, response={"status": 500}) == {"outcome": "lost", "judgement": "doubt"}
    assert client.ask("release", claim=OTHER_CLAIM) == client.ask("doubt", claim=OTHER_CLAIM) == {"outcome": "lost"}
    assert client.ask("recorded", claim=OTHER_CLAIM) == {"recorded": False, "state": "none"}
    assert client.ask("derive", claim=OTHER_CLAIM, step="x") == {"outcome": "lost"}


# ------------------------------------------------------------------------------------------------------------------ leases


def test_renew(client, key):
    """By the lease of each claim, unless another one is asked for; one answer for each."""
    claims = [client.run(f"{key}-{n}", lease_ms=lease) for n, lease in enumerate((500000, 60000))]
    ended = client.run(key)
    client.ask("complete", claim=ended, response=CREATED)
    time.sleep(0.02)
    before = [client.lease(f"{key}-{n}") for n in range(2)]
    assert before[0] < 500000 and before[1] < 60000
    assert client.ask("renew", claims=[claims[0], ended, OTHER_CLAIM, claims[1]]) == {"outcomes": ["done", "lost", "lost", "done"]}
    after = [client.lease(f"{key}-{n}") for n in range(2)]
    assert after[0] > before[0] and 60000 >= after[1] > before[1]
    assert client.ask("renew", claims=[claims[1]], lease_ms=3600000) == {"outcomes": ["done"]}
    assert client.lease(f"{key}-1") > 3000000
    assert client.ask("renew", claims=[]) == {"outcomes": []}
    assert client.ask("renew", claims=1000 * [claims[0]])["outcomes"] == 1000 * ["done"]


def test_a_silent_caller(client, key):
    """Its lease is over: under retry the next one runs, under hold nobody does."""
    claim = client.run(key, recover="retry", lease_ms=10)
    second = until(lambda: (lambda found: found if found["outcome"] == "run" else None)(client.claim(key, recover="retry")),
                   "the lease", PATIENCE)
    assert second["epoch"] == 2
    assert client.ask("complete", claim=claim, response=CREATED) == {"outcome": "lost"}
    client.run(key + "-hold", lease_ms=10)
    until(lambda: client.claim(key + "-hold")["outcome"] == "unknown", "the lease", PATIENCE)


def test_renewed_by_the_connection(server, client, key):
    """While the connection is open, whatever else it is used for; no longer when it is closed."""
    holder = server.client()
    claim = holder.run(key, renew="connection", lease_ms=1000)
    kept = server.metric("once_serve_kept_claims", client)
    assert kept >= 1
    for other in (client, holder, client):
        assert other.is_renewed(key)
    assert holder.ask("renew", claims=[claim]) == {"outcomes": ["done"]}
    holder.close()
    until(lambda: client.claim(key)["outcome"] == "unknown", "the lease", PATIENCE)
    assert server.metric("once_serve_kept_claims", client) == kept - 1
    assert client.ask("complete", claim=claim, response=CREATED) == {"outcome": "done"}  # nobody else was granted it


def test_ended_on_another_connection(server, client, key):
    holder = server.client()
    claim = holder.run(key, renew="connection")
    kept = server.metric("once_serve_kept_claims", client)
    assert client.post("/v1/complete", {"claim": claim, "response": {"status": 200, "headers": [["a b", ""]]}}).status == 400
    assert server.metric("once_serve_kept_claims", client) == kept  # refused: it is as it was
    assert client.ask("finish", claim=claim, response=CREATED)["outcome"] == "done"
    assert server.metric("once_serve_kept_claims", client) == kept - 1
    assert holder.claim(key)["outcome"] == "replay"
    holder.close()


# -------------------------------------------------------------------------------------------------------------- lost replies


def test_a_lost_reply(server, client, key):
    """The same request with the same id gets the same claim, and a lease that is as long as it says."""
    asks = {key + renew: {"claim_id": claim_id(), "lease_ms": 2000, "renew": renew} for renew in ("caller", "connection")}
    first = server.client()
    claims = {name: first.run(name, **ask) for name, ask in asks.items()}
    first.close()
    time.sleep(1.1)  # more than half of the lease
    for name, ask in asks.items():
        assert client.run(name, **ask) == claims[name]
        assert client.lease(name) > 950
        assert client.ask("finish", claim=claims[name], response=CREATED)["outcome"] == "done"
        assert client.claim(name, **ask)["outcome"] == "replay"


def test_a_released_claim_id_is_used_up(client, key):
    ask = {"claim_id": claim_id()}
    client.ask("release", claim=client.run(key, **ask))
    assert client.claim(key, **ask) == {"outcome": "lost"}
    assert client.claim(key, claim_id=claim_id())["outcome"] == "run"


# ------------------------------------------------------------------------------------------------------------------- waiting


def test_waits_for_the_end(server, client, key):
    """An end that passes through this server wakes those that wait for it."""
    claim = client.run(key, body="x")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(server.client().claim, key, body="x", wait_ms=60000) for _ in range(4)]
        until(lambda: server.metric("once_serve_waiting", client) == 4, "waiters", PATIENCE)
        assert not any(one.done() for one in waiting)
        client.ask("finish", claim=claim, response=CREATED)
        assert [one.result(PATIENCE)["response"] for one in waiting] == 4 * [CREATED]
    assert server.metric("once_serve_waiting", client) == 0


def test_waits_for_a_lease(client, key):
    client.run(key, recover="retry", lease_ms=200)
    assert client.claim(key, recover="retry", wait_ms=60000)["outcome"] == "run"


def test_waits_no_longer_than_asked_for(client, key):
    client.run(key)
    began = time.monotonic()
    assert client.claim(key, wait_ms=200)["outcome"] == "busy"
    assert time.monotonic() - began >= 0.2


def test_one_of_many(server, key):
    """A hundred callers, one key: one runs it, and all get its response."""
    def call():
        client = server.client()
        answer = client.claim(key, body="x", wait_ms=60000)
        if answer["outcome"] == "run":
            client.ask("finish", claim=answer["claim"], response=CREATED)
        client.close()
        return answer["outcome"]

    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        outcomes = list(pool.map(lambda _: call(), range(100)))
    assert sorted(set(outcomes)) == ["replay", "run"] and outcomes.count("run") == 1


# ------------------------------------------------------------------------------------------------------------------- looking


def test_get(client, key):
    assert client.ask("get", key=key) == {"found": False} == client.ask("get", id=64 * "0")
    claim = client.run(key, scope="s", description="POST /x")
    client.ask("complete", claim=claim, response=CREATED)
    record = client.ask("get", scope="s", key=key)["record"]
    assert record["state"] == "completed" and record["claim"] == claim and record["description"] == "POST /x"
    assert record["response"] == {"status": 201, "headers": [{"name": "content-type"}, {"name": "x-many"}, {"name": "x-many"}],
                                  "body_omitted": False, "body_bytes": 10}
    again = client.ask("get", id=record["id"].upper())["record"]
    assert again["id"] == record["id"]


def test_get_as_keys_show(tmp_path):
    server = Server(f"local:{tmp_path}/store", folder=tmp_path)
    client = server.client()
    client.ask("complete", claim=client.run("k", description="d"), response=CREATED)
    shown = json.loads(subprocess.run([ONCE, "keys", "show", f"local:{tmp_path}/store", "k", "--json"], check=True,
                                      capture_output=True).stdout)
    record = client.ask("get", key="k")["record"]
    passing = {"age_ms", "idle_ms", "expires_ms"}
    assert set(record) == set(shown)
    assert {name: value for name, value in record.items() if name not in passing} == \
           {name: value for name, value in shown.items() if name not in passing}
    server.close()


def test_derive(client, key):
    """The same in every attempt, and for no other step, key or later record."""
    first = client.run(key, recover="retry")
    made = client.ask("derive", claim=first, step="charge")["key"]
    assert client.ask("derive", key=key, step="charge")["key"] == made
    assert client.ask("derive", claim=first, step="mail")["key"] != made
    client.ask("release", claim=first)
    second = client.run(key, recover="retry")
    assert client.ask("derive", claim=second, step="charge")["key"] == made
    assert client.ask("derive", claim=first, step="charge") == {"outcome": "lost"}
    assert client.ask("derive", key=key + "x", step="charge") == {"found": False}
    client.run(key + "x")
    assert client.ask("derive", key=key + "x", step="charge")["key"] != made
