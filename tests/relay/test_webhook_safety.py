"""Webhooks and imitations of them: signatures as stock libraries verify them, headers and paths that events cannot
choose, and what stays secret."""
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from endpoint import Endpoint
from harness import ONCE, once, until

HERE = os.path.dirname(os.path.abspath(__file__))
PLACE = os.path.join(os.environ["ONCE_BUILD"], "webhooks")


def fetch(*command):
    done = subprocess.run(command, cwd=PLACE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, timeout=200)
    if done.returncode:
        pytest.skip(f"{command[0]}: {done.stdout[-500:]}")


@pytest.fixture(scope="session")
def stock():
    """What receivers use, in the versions that are locked: the folder of Python's, and that of Node's."""
    python, node = os.path.join(PLACE, "python"), os.path.join(PLACE, "node_modules", "standardwebhooks")
    os.makedirs(PLACE, exist_ok=True)
    for name in os.listdir(os.path.join(HERE, "webhooks")):
        shutil.copy(os.path.join(HERE, "webhooks", name), PLACE)
    if not os.path.exists(os.path.join(python, "standardwebhooks")):
        fetch(sys.executable, "-m", "pip", "install", "--no-deps", "--require-hashes", "--only-binary", ":all:",
              "--root-user-action", "ignore", "--target", python, "-r", "requirements.txt")
    if not os.path.exists(node):
        fetch("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
    sys.path.append(python)
    yield
    sys.path.remove(python)


def python_verifies(secret, headers, body):
    from standardwebhooks import Webhook, WebhookVerificationError  # the fixture `stock` has brought it
    try:
        return {"verified": Webhook(secret).verify(body, headers)}
    except WebhookVerificationError as error:
        return {"refused": str(error)}


def node_verifies(cases):
    lines = "".join(json.dumps({"secret": secret, "headers": headers, "body": body}) + "\n" for secret, headers, body in cases)
    done = subprocess.run(["node", "verify.mjs"], cwd=PLACE, input=lines, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def secrets(tmp_path):
    """Two new secrets, and the file of a relay that changes from the second to the first."""
    made = [once("secret", "webhook").strip() for _ in range(2)]
    path = tmp_path / "secrets"
    path.write_text("\n".join(made) + "\n")
    path.chmod(0o600)
    return made, str(path)


def test_stock_libraries_verify(stock, database, relay, endpoint, secrets):
    """Of two languages, with the new secret and with the old one; and they refuse what was changed: id, time, or body."""
    made, path = secrets
    bodies = [{"total": "12.50"}, {"name": "José \"Ž\" \\ \n 日本"}, {"empty": {}}, {"long": "x" * 100000}]
    relay(endpoint.url("/hooks"), "--secret-file", path)
    events = [database.emit("k", json.dumps(body, ensure_ascii=False).encode()) for body in bodies]
    database.until_empty()
    cases, wanted = [], []
    for request, event, body in zip(endpoint.requests, events, bodies, strict=True):
        headers, text = dict(request.headers), request.body.decode()
        assert headers["webhook-id"] == headers["ce-id"] == event and len(headers["webhook-signature"].split(" ")) == 2
        for secret in made:
            cases.append((secret, headers, text))
            wanted.append({"verified": body})
    secret, headers, text = cases[0]
    stamp = str(int(headers["webhook-timestamp"]) + 1)
    for forged in ({"webhook-id": events[1]}, {"webhook-timestamp": stamp}, {"webhook-signature": "v1,AAAA"}):
        cases.append((secret, {**headers, **forged}, text))
    cases += [(secret, headers, text + " "), (once("secret", "webhook").strip(), headers, text)]
    for answers in ([python_verifies(*case) for case in cases], node_verifies(cases)):
        assert answers[:len(wanted)] == wanted
        assert len(answers) == len(cases) and all("refused" in answer for answer in answers[len(wanted):]), answers[len(wanted):]


def test_the_id_stays_and_the_time_is_that_of_the_attempt(stock, database, relay, endpoint, secrets):
    """Attempts that are a second apart and more: the id is the same, time and signature are new, and each is genuine."""
    endpoint.answer = lambda request: 200 if len(endpoint.requests) > 1 else (503, {"Retry-After": "2"})
    relay(endpoint.url(), "--secret-file", secrets[1])
    event = database.emit("k", b"{}")
    database.until_empty()
    first, second = [dict(request.headers) for request in endpoint.requests]
    assert first["webhook-id"] == second["webhook-id"] == event
    assert int(second["webhook-timestamp"]) > int(first["webhook-timestamp"])
    for headers in (first, second):
        assert python_verifies(secrets[0][0], headers, "{}") == {"verified": {}}


def test_nothing_is_unsigned_by_default(database, relay, endpoint):
    done = subprocess.run([ONCE, "relay", database.url, endpoint.url()], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2 and "--secret-file FILE" in done.stderr and "--unsigned" in done.stderr
    relay(endpoint.url(), "--unsigned")
    database.emit("k", 1)
    database.until_empty()
    assert not [name for name in endpoint.requests[0].headers if name.lower().startswith("webhook-")]


def test_an_event_cannot_speak_for_the_relay(database, relay, endpoint, secrets):
    """Credentials, identity and signature are the relay's: not even those of a row that an older once.emit let pass."""
    forged = ["Authorization", "cookie", "Proxy-Authorization", "ce-id", "ce_id", "CE_TYPE", "Once-Signature", "once-claim",
              "webhook-id", "Webhook_Id", "webhook-signature", "webhook-timestamp", "Idempotency-Key",
              "idempotency_key", "Host", "Content-Length", "Transfer-Encoding", "Connection", "X-Forwarded-For",
              "Forwarded", "X-HTTP-Method-Override", "cloudEvents:id"]
    relay(endpoint.url().replace("//", "//hook:s3cret@"), "--secret-file", secrets[1])
    event = database.one("INSERT INTO once.outbox (id, grp, topic, key, type, payload, headers) VALUES"
                         " (gen_random_uuid(), once._outbox_group('k', NULL), 'orders', 'k', 'placed', '{}', %s)"
                         " RETURNING id::text",
                         json.dumps({"traceparent": "00-1-2-01", "X-Tenant": "7", **dict.fromkeys(forged, "forged")}))
    database.until_empty()
    (request,) = endpoint.requests
    assert [(name, value) for name, value in request.headers.items() if "forged" in value] == []
    assert request.headers["Authorization"].startswith("Basic ") and request.headers.get_all("ce-id") == [event]
    assert request.headers.get_all("webhook-id") == request.headers.get_all("Idempotency-Key") == [event]
    assert request.headers["traceparent"] == "00-1-2-01" and request.headers["X-Tenant"] == "7"


@pytest.mark.parametrize("place", ["key", "topic"])
def test_no_way_out_of_the_path(database, relay, endpoint, place):
    """Dots that a proxy would resolve make an event dead without delaying others; all others arrive where they belong."""
    bad = [".", "..", "../admin", "a/../../b", "..\\x", "%2e%2e", "%252E.", "x/..", "./x", "..;x", "%2e%2e%2fadmin"]
    good = {"...": "...", "v1.2": "v1.2", "a..b": "a..b", "..a": "..a", "a/b": "a%2Fb", "50%": "50%25", "x;..": "x%3B.."}
    relay(endpoint.url("/hooks/{%s}/events" % place))
    for value in [*bad, *good]:
        database.emit(value if place == "key" else "k", 1, topic=value if place == "topic" else "orders")
    database.until_empty()
    assert sorted(request.path for request in endpoint.requests) == sorted(f"/hooks/{path}/events" for path in good.values())
    assert len(database.dead()) == len(bad) and all("another path" in reason for _, _, _, reason in database.dead())


def test_two_dots_of_two_values(database, relay, endpoint):
    relay(endpoint.url("/hooks/{topic}{key}"))
    database.emit(".", 1, topic=".")
    database.emit("b", 2, topic="a")
    database.until_empty()
    assert [request.path for request in endpoint.requests] == ["/hooks/ab"] and len(database.dead()) == 1


def test_no_proxy_of_the_environment(database, relay, endpoint, monkeypatch):
    proxy = Endpoint()
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy.url(""))
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    relay(endpoint.url())
    database.emit("k", 1)
    database.until_empty()
    assert len(endpoint.requests) == 1 and proxy.requests == []
    proxy.close()


def test_the_path_is_not_shown(database, relay, endpoint):
    """It is the secret of many webhooks: neither log, nor database, nor metrics have it. Whether it is the same is known still."""
    endpoint.answer = lambda request: 422
    one = relay(endpoint.url("/services/T0000/B0000/Xs3cret?token=t0ken"), "--log", "debug")
    database.emit("k", 1)
    until(database.dead, "it is refused")
    ((destination,),) = database.run("SELECT destination FROM once.relays")
    assert re.fullmatch(rf"http://127\.0\.0\.1:{endpoint.port}#[0-9a-f]{{8}}", destination)
    assert one.said("started")[0]["destination"] == destination
    rival = relay(endpoint.url("/services/T0000/B0000/elsewhere"), wait=False)
    assert rival.process.wait(60) == 5
    friend = relay(endpoint.url("/services/T0000/B0000/Xs3cret?token=t0ken"), wait=False)
    until(lambda: database.one("SELECT count(*) FROM once.relays") == 2, "the same path is no rival")
    endpoint.close()
    database.emit("k", 1)
    until(lambda: one.said("the destination is unavailable") or friend.said("the destination is unavailable"), "it is away")
    shown = "\n".join([*one.text(), *rival.text(), *friend.text(), one.get("/metrics")[1], one.get("/metrics.json")[1],
                       str(database.run("SELECT * FROM once.relays")), str(database.dead())])
    assert not re.search("services|s3cret|t0ken|elsewhere", shown)


def test_a_path_with_dots_of_its_own(relay):
    for path in ("/a/../b", "/a/%2e%2E/{key}", "/./x"):
        one = relay("http://127.0.0.1:1" + path, "--unsigned", wait=False)
        assert one.process.wait(30) == 2 and "must not contain . or .." in "\n".join(one.text())
