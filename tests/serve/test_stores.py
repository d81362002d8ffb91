"""once serve over Redis and PostgreSQL: the same answers, what SQL says about the same records, and a store that goes away."""
import os
import signal

import psycopg2
import pytest
from service import PATIENCE, Server, claim_id
from waiting import until

REDIS, POSTGRES = os.environ["ONCE_REDIS_URL"], os.environ.get("ONCE_PG_URL")
CREATED = {"status": 201, "headers": [["content-type", "application/json"]], "body": '{"id": 17}'}


@pytest.fixture(name="client", params=["redis", "postgres"])
def start(request, tmp_path):
    url = {"redis": REDIS, "postgres": POSTGRES}[request.param]
    if url is None:
        pytest.skip("built without PostgreSQL")
    server = Server(url, folder=tmp_path)
    yield server.client()
    server.close()


def test_a_life(client):
    key = claim_id()
    ask = {"scope": "s", "method": "POST", "target": "/x", "body": "b"}
    claim = client.run(key, **ask, recover="retry", lease_ms=30000)
    assert client.claim(key, **ask)["outcome"] == "busy"
    assert client.claim(key, **{**ask, "body": "c"})["outcome"] == "mismatch"
    assert client.ask("renew", claims=[claim]) == {"outcomes": ["done"]}
    made = client.ask("derive", claim=claim, step="charge")["key"]
    assert client.ask("finish", claim=claim, response={"status": 500}) == {"outcome": "done", "judgement": "release"}
    second = client.run(key, **ask)
    assert client.ask("derive", claim=second, step="charge")["key"] == made
    assert client.ask("renew", claims=[claim, second]) == {"outcomes": ["lost", "done"]}
    assert client.ask("finish", claim=second, response=CREATED)["outcome"] == "done"
    assert client.claim(key, **ask)["response"] == CREATED
    assert client.ask("complete", claim=second, response={"status": 200}) == {"outcome": "already", "response": CREATED}
    assert client.ask("complete", claim=claim, response={"status": 200}) == {"outcome": "lost", "response": CREATED}
    assert client.ask("recorded", claim=second)["recorded"]
    assert client.ask("get", scope="s", key=key)["record"]["state"] == "completed"


def test_the_lease_of_a_claim(client):
    """A renewal extends by the lease that the claim was granted with, also at a server that did not grant it."""
    key = claim_id()
    claim = client.run(key, lease_ms=500000)
    assert client.ask("renew", claims=[claim]) == {"outcomes": ["done"]}
    assert client.ask("get", key=key)["record"]["lease_ms"] > 400000


def test_lost_replies(client):
    key, ask = claim_id(), {"claim_id": claim_id(), "renew": "connection"}
    claim = client.run(key, **ask)
    assert client.run(key, **ask) == claim
    assert client.ask("finish", claim=claim, response={"status": 503})["judgement"] == "doubt"
    assert client.claim(key)["outcome"] == "unknown"


@pytest.mark.skipif(POSTGRES is None, reason="built without PostgreSQL")
def test_the_same_in_sql(tmp_path):
    server = Server(POSTGRES, folder=tmp_path)
    client, key = server.client(), claim_id()
    claim = client.run(key, scope="s")
    with psycopg2.connect(POSTGRES) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT once.derive(%s, 'charge')", (claim,))
        assert cursor.fetchone()[0] == client.ask("derive", claim=claim, step="charge")["key"]
        cursor.execute("SELECT once.complete(%s, 201, '[]'::jsonb, 'made'::text)", (claim,))
    assert client.claim(key, scope="s")["response"]["body"] == "made"
    assert client.ask("finish", claim=claim, response=CREATED)["outcome"] == "already"
    server.close()


def test_the_store_goes_away(tmp_path):
    """503 in time, and everything asked again when it is back: nothing ran twice, and nothing was lost."""
    server = Server(REDIS + ("&" if "?" in REDIS else "?") + "store_timeout=1s", folder=tmp_path)
    client, key, ask = server.client(), claim_id(), {"claim_id": claim_id()}
    claim = client.run(key, **ask)
    with open(f"{os.environ['ONCE_REDIS_DIR']}/{os.environ['ONCE_REDIS_PORT']}.pid", encoding="ascii") as file:
        redis = int(file.read())
    os.kill(redis, signal.SIGSTOP)
    try:
        other = {"key": claim_id(), "claim_id": claim_id()}
        for operation, request in (("claim", other), ("finish", {"claim": claim, "response": CREATED})):
            answer = client.post(f"/v1/{operation}", request)
            assert (answer.status, answer.json["code"], answer.json["retryable"]) == (503, "ONCE_E_UNAVAILABLE", True)
        assert client.get("/ready").status == 503
    finally:
        os.kill(redis, signal.SIGCONT)
    until(lambda: client.get("/ready").status == 200, "the store", PATIENCE)
    assert until(lambda: client.ask("recorded", claim=claim)["recorded"], "the write that goes on", PATIENCE)
    assert client.ask("finish", claim=claim, response=CREATED)["outcome"] == "already"
    assert client.claim(**other)["outcome"] == "run"  # perhaps it was granted before the 503
    assert client.ask("get", key=other["key"])["record"]["claim_id"] == other["claim_id"]
    said = server.close()
    assert "the store cannot be used" in said and "works again" in said


def test_it_stops_without_its_store(tmp_path):
    server = Server(REDIS, "--drain", "300ms", folder=tmp_path)
    client = server.client()
    with open(f"{os.environ['ONCE_REDIS_DIR']}/{os.environ['ONCE_REDIS_PORT']}.pid", encoding="ascii") as file:
        redis = int(file.read())
    os.kill(redis, signal.SIGSTOP)
    try:
        client.connection.request("POST", "/v1/claim", '{"key": "k"}', {"Content-Type": "application/json"})
        until(lambda: server.metric("once_serve_requests_total") >= 1, "the request", PATIENCE)
        server.process.send_signal(signal.SIGTERM)
        answer = client.connection.getresponse()
        assert answer.status == 503 and b"stopping" in answer.read()
    finally:
        os.kill(redis, signal.SIGCONT)
    code, said = server.stop()
    assert code == 1 and "not finished" in said
