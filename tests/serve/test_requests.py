"""What once serve accepts and what it refuses: as the document says, and whatever else is sent to it."""
import json
import select
import socket

import jsonschema
import pytest
from brokers import free_port
from service import OPENAPI, PATIENCE, Client, Server, claim_id, dial, fits, request_schema
from waiting import until

CLAIM = 69 * "B" + "A"
SECRET = "canary-4711"
BASES = {
    "claim": {"key": "k", "wait_ms": 0}, "finish": {"claim": CLAIM, "response": {"status": 200}},
    "complete": {"claim": CLAIM, "response": {"status": 200}}, "release": {"claim": CLAIM}, "doubt": {"claim": CLAIM},
    "renew": {"claims": []}, "get": {"key": "k"}, "recorded": {"claim": CLAIM}, "derive": {"claim": CLAIM, "step": "x"},
}
PAIR = ["x", "y"]
VALUES = [
    None, True, False, 0, 1, 9, 10, 99, 100, 999, 1000, 60000, 60001, 86400000, 86400001, 315360000000, 315360000001, -1, 2.5,
    1000.0, 1e300, "", "x", "hold", "retry", "transactional", "caller", "connection", "final", "unknown", "a\nb", "a\u0000b",
    "caf\u00e9", "eHg=", "eHg", "e g=", 32 * "a", 31 * "a", 32 * "g", 64 * "0", 64 * "F", CLAIM, CLAIM + "A", CLAIM[1:] + "=",
    255 * "k", 256 * "k", 65536 * "p", 65537 * "p", [], [CLAIM], [CLAIM, 1], ["x"], {}, {"status": 200}, {"status": 99},
    {"status": "200"}, {"status": 200, "extra": 1}, {"status": 200, "headers": []}, {"status": 200, "headers": [PAIR, PAIR]},
    {"status": 200, "headers": [["x"]]}, {"status": 200, "headers": [["x", 1]]}, {"status": 200, "headers": {"x": "y"}},
    {"status": 200, "headers": 501 * [PAIR]}, {"status": 200, "body": "x"}, {"status": 200, "body": 1},
    {"status": 200, "body": "x", "body_base64": "eA=="}, {"status": 200, "body_base64": "eA=="},
    {"status": 200, "body_base64": "eA="}, {"status": 200, "body_omitted": True}, {"status": 200, "body_omitted": 7},
    {"headers": []},
]
MALFORMED = [
    b"", b" ", b"{", b"}", b"[]", b"null", b"\"x\"", b"1", b"{\"key\": \"a\"} x", b"{\"key\": \"a\", \"key\": \"b\"}",
    b"{'key': 'a'}", b"{\"key\": \"a\",}", b"{\"key\": NaN}", b"{\"key\": \"\xff\"}", b"\xef\xbb\xbf{\"key\": \"a\"}",
    b"{\"key\": \"\\ud800\"}", b"{\"k\\u0000\": 1}", b"{\"key\": \"a\nb\"}", b"{\"key\": 1e999}", 100000 * b"[",
    100000 * b"{\"a\":", b"\x00", b"{\"key\": \"a\"}\x00", b"{\"ttl_ms\": 99999999999999999999999999}",
]


@pytest.fixture(scope="module", name="server")
def start_server(tmp_path_factory):
    server = Server("memory:", "--log", "debug", folder=tmp_path_factory.mktemp("serve"))
    yield server
    said = server.close()
    assert SECRET not in said and "tenant" not in said


@pytest.fixture(name="client")
def connect(server):
    client = server.client()
    yield client
    client.close()


def is_documented(schema, value):
    try:
        fits(schema, value)
    except jsonschema.ValidationError:
        return False
    return True


def properties(schema):
    return {name: value for part in schema.get("oneOf", [schema]) for name, value in part["properties"].items()}


@pytest.mark.parametrize("operation", sorted(BASES))
def test_agrees_with_the_document(client, operation):
    """Every member with values of every kind: the server accepts what the document allows, and nothing else."""
    schema = request_schema(f"/v1/{operation}")
    tried = 0
    for name in properties(schema):
        for value in VALUES:
            if operation == "claim" and name == "wait_ms" and value in (60000, 1000.0, 1000):
                continue  # allowed, and it would wait
            request = {**BASES[operation], name: value}
            if operation == "claim":
                request["scope"] = request.get("scope", claim_id()) if name != "scope" else value
            answer = client.post(f"/v1/{operation}", request)
            allowed = is_documented(schema, request)
            assert (answer.status == 200) == allowed, (name, str(value)[:80], answer.body[:200])
            assert allowed or answer.status in (400, 413)
            tried += allowed
    assert tried > 0
    for wrong in ({**BASES[operation], "extra": 1}, {}, {"extra": 1}, {"KEY": "k"}):
        assert client.post(f"/v1/{operation}", wrong).status == 400
    for name in schema.get("required", []):
        assert client.post(f"/v1/{operation}", {k: v for k, v in BASES[operation].items() if k != name}).status == 400


def test_every_path_is_documented(client):
    posts = {path for path, item in OPENAPI["paths"].items() if "post" in item}
    assert posts == {f"/v1/{name}" for name in BASES}
    for path, item in OPENAPI["paths"].items():
        if "post" in item:
            answer = client.get(path)
            assert answer.status == 405 and answer.headers["Allow"] == "POST"
        else:
            assert client.get(path).status == 200
            answer = client.send("POST", path, "{}", Content_Type="application/json")
            assert answer.status == 405 and answer.headers["Allow"] == "GET, HEAD"
    for path in ("/", "/v1/", "/v1/claims", "/v2/claim", "/V1/CLAIM", "/v1/../v1/claim", "/v1/claim/", "/etc/passwd"):
        assert client.post(path, {}).status == 404
        assert client.get(path).status == 404
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        assert client.send(method, "/v1/claim", "{}", Content_Type="application/json").status == 405


@pytest.mark.parametrize("text", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed(client, text):
    for operation in ("claim", "renew"):
        answer = client.post(f"/v1/{operation}", text)
        assert answer.status == 400 and answer.json["code"] == "ONCE_E_INVALID"
    assert client.claim(claim_id())["outcome"] == "run"  # the same connection goes on


@pytest.mark.parametrize("value", ["[]", "{}", "1", '"\\\\"', '"\\\""'])
def test_many_values(client, value):
    """They would need far more memory than their text."""
    answer = client.post("/v1/claim", '{"key": [' + ",".join(200000 * [value]) + "]}")
    assert answer.status == 400 and "values" in answer.json["detail"]


def test_many_separators_in_a_text(client):
    assert client.claim(claim_id(), body=20000 * "[{,\\\"")["outcome"] == "run"


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonx"])
def test_other_content(client, kind):
    assert client.post("/v1/claim", {"key": "k"}, Content_Type=kind).status == 400


def test_long_headers(client):
    assert client.post("/v1/claim", {"key": claim_id(), "body": 100000 * "x"}, X_Trace=12000 * "t").status == 200


def test_content_with_a_charset(client):
    assert client.post("/v1/claim", {"key": claim_id()}, Content_Type="Application/JSON; charset=utf-8").status == 200


@pytest.mark.parametrize("headers, status, code", [
    ([["a b", "x"]], 400, "ONCE_E_HEADER"), ([["", "x"]], 400, "ONCE_E_HEADER"),
    ([["x", "a\r\nSet-Cookie: b"]], 400, "ONCE_E_HEADER"),
    ([["x", "a\u0000"]], 400, "ONCE_E_HEADER"), ([["x", 300000 * "a"]], 413, "ONCE_E_TOO_BIG")])
def test_response_headers(client, headers, status, code):
    claim = client.run(claim_id())
    for operation in ("complete", "finish"):
        answer = client.post(f"/v1/{operation}", {"claim": claim, "response": {"status": 200, "headers": headers}})
        assert (answer.status, answer.json["code"]) == (status, code)
    assert client.ask("finish", claim=claim, response={"status": 200})["outcome"] == "done"  # it is as it was


def test_base64_has_one_form(client):
    for wrong in ("eHh=", "eHi=", "eB==", "e===", "====", "=", "eHg=eHg=", "eHg=\n", "eH-_"):
        assert client.post("/v1/claim", {"key": "k", "body_base64": wrong}).status == 400, wrong


def test_too_big(tmp_path):
    server = Server("memory:", "--max-request", "64k", folder=tmp_path)
    client = server.client()
    fine = {"key": "k", "body": 60000 * "x"}
    assert client.post("/v1/claim", fine).status == 200
    answer = client.post("/v1/claim", {"key": "k", "body": 70000 * "x"})
    assert answer.status == 413 and answer.json["code"] == "ONCE_E_TOO_BIG"
    client = server.client()
    pieces = (piece for piece in [b"{\"key\": \"k\", \"body\": \""] + 100 * [1000 * b"x"] + [b"\"}"])  # sent in chunks: no length
    assert client.send("POST", "/v1/claim", pieces, Content_Type="application/json").status == 413
    server.close()


def test_memory_is_short_when_a_claim_is_granted(tmp_path):
    """Requests that wait leave no room for the answer to the next caller: it must learn of its claim all the same."""
    page = f"127.0.0.1:{free_port()}"  # has its own memory
    server = Server("memory:", "--max-request", "1k", "--metrics", page, folder=tmp_path)
    client = server.client()
    claim = client.run("k")
    room, count, left = 16 * 1024, 32, 160
    request = {"key": "k", "wait_ms": 60000, "renew": "connection"}
    request["subject"] = ((room - left) // count - len(json.dumps({**request, "subject": ""}))) * "s"
    waiting = [dial(server.address) for _ in range(count)]
    for line in waiting:
        line.sendall(raw("claim", request))
    until(lambda: server.metric("once_serve_waiting", Client(page)) == count, "the waiting callers", PATIENCE)
    probe = json.dumps({"key": "k"}).ljust(left + 1)
    assert client.post("/v1/get", probe).status == 503
    assert client.ask("release", claim=claim) == {"outcome": "done"}
    answered = select.select(waiting, [], [], PATIENCE)[0]
    assert len(answered) == 1 and b'"run"' in answered[0].recv(65536)
    for line in waiting:
        line.close()
    server.close()


def test_a_response_that_no_store_takes(tmp_path):
    server = Server("memory:", "--max-request", "64m", folder=tmp_path)
    client = server.client()
    claim = client.run("k")
    for size, status in ((16 * 1024 * 1024 + 1, 413), (16 * 1024 * 1024, 200)):
        assert client.post("/v1/complete", {"claim": claim, "response": {"status": 200, "body": size * "x"}}).status == status
    assert len(client.claim("k")["response"]["body"]) == 16 * 1024 * 1024
    server.close()


def exchange(server, data, close=True):
    """Sends bytes and returns everything that comes back."""
    with dial(server.address) as line:
        line.sendall(data)
        if close:
            line.shutdown(socket.SHUT_WR)
        found = b""
        while piece := line.recv(65536):
            found += piece
        return found


def raw(operation, request, more=""):
    body = json.dumps(request).encode()
    head = f"POST /v1/{operation} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}{more}\r\n".encode() + body


def test_pipelined(server):
    """Requests that come in one piece are answered one after the other."""
    key = claim_id()
    last = raw("get", {"key": key}, "Connection: close\r\n")
    found = exchange(server, raw("claim", {"key": key}) + raw("claim", {"key": key}) + last, close=False)
    assert found.count(b"HTTP/1.1 200 OK") == 3
    assert found.index(b'"run"') < found.index(b'"busy"') < found.index(b'"found"')


def test_nonsense(server, client):
    for data in (b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"\r\n\r\n", b"POST /v1/claim HTTP/9.9\r\n\r\n", 100000 * b"A",
                 b"GET /v1 HTTP/1.1\r\n" + 3000 * b"X-Header: 0123456789\r\n" + b"\r\n",
                 b"POST /v1/claim HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
                 b"POST /v1/claim HTTP/1.1\r\nContent-Length: 99\r\n\r\n{",
                 b"GET /" + 40000 * b"a" + b" HTTP/1.1\r\n\r\n"):
        try:
            assert b" 200 " not in exchange(server, data), data[:40]
        except ConnectionError:
            pass
    assert client.get("/health").status == 200


def test_slow_callers_hold_up_nobody(server, client):
    """Requests that never end, and one that comes byte by byte."""
    stuck = [dial(server.address) for _ in range(20)]
    for n, line in enumerate(stuck):
        line.sendall(raw("claim", {"key": "slow"})[:5 * n + 1])
    whole = raw("claim", {"key": claim_id()}, "Connection: close\r\n")
    with dial(server.address) as slow:
        for n in range(len(whole)):
            slow.sendall(whole[n:n + 1])
            if n % 40 == 0:
                assert client.get("/health").status == 200
        assert b'"run"' in slow.recv(65536)
    for line in stuck:
        line.close()
    assert client.ask("get", key="slow") == {"found": False}


def test_half_closed(server, client):
    """A caller that has closed its side while it waits does not get a claim: whether it still reads is not known."""
    key = claim_id()
    claim = client.run(key)
    with dial(server.address) as line:
        line.sendall(raw("claim", {"key": key, "wait_ms": 60000}))
        until(lambda: server.metric("once_serve_waiting", client) == 1, "the waiting caller", PATIENCE)
        line.shutdown(socket.SHUT_WR)
        client.ask("release", claim=claim)
        until(lambda: server.metric("once_serve_waiting", client) == 0, "its end", PATIENCE)
        assert b'"run"' not in line.recv(65536)
    assert client.claim(key)["outcome"] == "run"


def test_many_claims_of_one_connection(server, client):
    for n in range(1000):
        request = {"key": f"{SECRET}-{n}", "scope": "tenant", "renew": "connection"}
        client.connection.request("POST", "/v1/claim", json.dumps(request), {"Content-Type": "application/json"})
        assert b'"run"' in client.connection.getresponse().read()
    answer = client.post("/v1/claim", {"key": "one more", "renew": "connection"})
    assert (answer.status, answer.json["code"], answer.json["retryable"]) == (503, "ONCE_E_FULL", True)
    assert client.claim(claim_id())["outcome"] == "run"  # renewed by itself
    other = server.client()
    assert other.claim(claim_id(), renew="connection")["outcome"] == "run"
    other.close()


def test_a_full_store(tmp_path):
    server = Server("memory:?max_records=2", folder=tmp_path)
    client = server.client()
    for key in "ab":
        client.run(key)
    answer = client.post("/v1/claim", {"key": "c"})
    assert (answer.status, answer.json["code"], answer.json["retryable"]) == (503, "ONCE_E_FULL", True)
    assert client.get("/health").status == client.get("/ready").status == 200  # it works for the keys that it has
    assert client.claim("a")["outcome"] == "busy"
    server.close()


def test_scope_required(tmp_path):
    server = Server("memory:", "--scope-required", folder=tmp_path)
    client = server.client()
    for operation, request in (("claim", {"key": "k"}), ("get", {"key": "k"}), ("derive", {"key": "k", "step": "x"})):
        for scope in ({}, {"scope": ""}):
            answer = client.post(f"/v1/{operation}", {**request, **scope})
            assert answer.status == 400 and "--scope-required" in answer.json["detail"]
        assert client.ask(operation, scope="tenant", **request)
    server.close()


def test_more_connections_wait(tmp_path):
    server = Server("memory:", "--connections", "3", folder=tmp_path)
    clients = [server.client() for _ in range(3)]
    for client in clients:
        assert client.get("/health").status == 200
    late = dial(server.address)
    late.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    late.settimeout(0.3)
    with pytest.raises(TimeoutError):
        late.recv(1)
    clients[0].close()
    late.settimeout(PATIENCE)
    assert late.recv(12) == b"HTTP/1.1 200"
    late.close()
    server.close()
