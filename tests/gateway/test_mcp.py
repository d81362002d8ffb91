"""once_mcp: calls of guarded tools take effect once, every other message passes, and what cannot be read is refused."""
import gzip
import json
import socket
import threading

import pytest

from harness.wait import until
from shell import blocks, page

JSON = [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")]
ALL = "once_mcp all;"


def call(key="k", id=1, tool="pay", method="tools/call", meta=None, **more):
    meta = dict(meta or {}, **({} if key is None else {"idempotencyKey": key}))
    return {"jsonrpc": "2.0", "id": id, "method": method, **more,
            "params": {"name": tool, "arguments": {"amount": 7}, "_meta": meta}}


def send(gw, message, headers=JSON, **options):
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return gw.request("POST", "/", None, body, headers, **options)


CONTRACT = pytest.mark.parametrize("mcp", [None, "memory:"], indirect=True)  # None: local, or that of tests/redis/gateway_store.py


def result(exchange):
    """As a server answers: a result that names the execution, under the id of the request."""
    id = json.loads(exchange.request.body).get("id")
    exchange.respond(200, [("Mcp-Session-Id", f"s{exchange.execution}")],
                     json.dumps({"jsonrpc": "2.0", "id": id, "result": {"run": exchange.upstream.total}}).encode())


def events(*messages, id_lines=True):
    text = "".join(("id: e%d\n" % i if id_lines else "") + "event: message\ndata: " + json.dumps(m) + "\n\n"
                   for i, m in enumerate(messages))
    return text.encode()


def streams(*before):
    """A server that answers with events."""
    def script(exchange):
        id = json.loads(exchange.request.body).get("id")
        body = events(*before, {"jsonrpc": "2.0", "id": id, "result": {"run": exchange.upstream.total}})
        exchange.respond(200, [("Content-Type", "text/event-stream")], body, chunked=True, piece=50)
    return script


def read_events(response):
    assert response.header("Content-Type").startswith("text/event-stream"), response
    return [json.loads(line[5:]) for line in response.body.decode().split("\n") if line.startswith("data:")]


def error(response, code, kind=None):
    message = response.json()
    assert message["jsonrpc"] == "2.0" and message["error"]["code"] == code, response
    if kind:
        assert message["error"]["data"]["type"] == f"urn:once:problem:{kind}", response
        assert response.status == 200
    return message


@pytest.fixture
def mcp(gateway, request):
    def start(*rules, **options):
        gw = gateway(*rules, **{"store": getattr(request, "param", None), **options})
        gw.upstream.default = result
        return gw
    return start


@CONTRACT
def test_replay_has_the_new_id(mcp):
    gw = mcp(ALL)
    first = send(gw, call(id=1, meta={"progressToken": 1, "traceparent": "a"}))
    assert first.json() == {"jsonrpc": "2.0", "id": 1, "result": {"run": 1}} and first.header("Mcp-Session-Id")
    for id in (1, 2, 1.5, -3, "1", "ä\"\\\n", 9007199254740993, "x" * 200):
        again = send(gw, call(id=id, meta={"progressToken": "other"}))
        assert again.status == 200 and again.header("Idempotent-Replayed") == "true"
        assert again.header("Mcp-Session-Id") is None, "a replay is of another session"
        assert again.json() == {"jsonrpc": "2.0", "id": id, "result": {"run": 1}}
    # the text of the id stays as it was written, also where a double would not hold it
    body = json.dumps(call()).replace('"id": 1,', '"id" : 1e2 ,').encode()
    assert b'"id": 1e2' in send(gw, body).body
    assert gw.upstream.total == 1
    assert gw.upstream.last().headers.all("Idempotency-Key") == ["k"]


@CONTRACT
def test_another_call_is_another_operation(mcp):
    gw = mcp(ALL)
    send(gw, call())
    other = call()
    other["params"]["arguments"]["amount"] = 8
    assert "another call" in error(send(gw, other), -32053, "key-reused")["error"]["message"]
    error(send(gw, call(tool="refund")), -32053, "key-reused")
    assert send(gw, call("k2")).json()["result"] == {"run": 2}
    # the order of members does not matter
    again = call()
    again["params"] = dict(reversed(again["params"].items()))
    assert send(gw, again).header("Idempotent-Replayed") == "true"
    assert gw.upstream.total == 2


def test_everything_else_passes(mcp):
    gw = mcp("once_mcp pay refund_* !refund_quote; once_recover hold;")
    passes = [{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}},
              {"jsonrpc": "2.0", "method": "notifications/initialized"},
              {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, {"jsonrpc": "2.0", "id": 4, "result": {}},
              call(None, tool="search"), call(None, tool="pay_later"), call(None, tool="refund_quote"),
              [{"jsonrpc": "2.0", "id": 1, "method": "ping"}, call(None, tool="search")],
              {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"name": "pay", "method": "tools/call"}}]
    for n, message in enumerate(passes, 1):
        gw.upstream.default = lambda exchange: exchange.respond(200)
        response = send(gw, message)
        assert response.status == 200 and "Idempotency-Expires" not in response.headers, message
        assert gw.upstream.total == n and json.loads(gw.upstream.last().body) == message
    for method in ("GET", "DELETE"):
        assert gw.request(method, "/").status == 200
    before = gw.upstream.total
    for tool in ("pay", "PAY", "refund_all", "Refund_quote"):
        error(send(gw, call(None, tool=tool)), -32602, "key-missing")
    assert gw.upstream.total == before


UNREADABLE = {
    "not JSON": (b"tools/call", -32700), "nothing": (b"", -32700), "cut": (json.dumps(call()).encode()[:-1], -32700),
    "more": (json.dumps(call()).encode() + b"{}", -32700), "a zero byte": (json.dumps(call()).encode() + b"\0", -32700),
    "UTF-16": (json.dumps(call()).encode("utf-16"), -32700), "a mark": (b"\xef\xbb\xbf" + json.dumps(call()).encode(), -32700),
    "NaN": (b'{"id":NaN,"method":"ping"}', -32700), "a comment": (b'/**/{"id":1,"method":"ping"}', -32700),
    "twice": (b'{"id":1,"method":"ping","method":"tools/call","params":{"name":"pay"}}', -32700),
    "twice in disguise": (b'{"id":1,"method":"ping","m\\u0065thod":"tools/call","params":{"name":"pay"}}', -32700),
    "twice inside": (b'{"id":1,"method":"tools/call","params":{"name":"get","name":"pay"}}', -32700),
    "twice the params": (b'{"id":1,"method":"tools/call","params":{"name":"get"},"params":{"name":"pay"}}', -32700),
    "another case": (b'{"id":1,"Method":"tools/call","params":{"name":"pay"}}', -32600),
    "both cases": (b'{"id":1,"method":"ping","METHOD":"tools/call","params":{"name":"pay"}}', -32600),
    "another case inside": (b'{"id":1,"method":"tools/call","params":{"name":"get","Name":"pay"}}', -32602),
    "another case of the method": (b'{"id":1,"method":"Tools/Call","params":{"name":"pay"}}', -32601),
    "a method that is no string": (b'{"id":1,"method":["tools/call"],"params":{"name":"pay"}}', -32600),
    "a method with a zero": (b'{"id":1,"method":"tools/call\\u0000","params":{"name":"pay"}}', -32600),
    "no params": (b'{"id":1,"method":"tools/call"}', -32602),
    "params as a list": (b'{"id":1,"method":"tools/call","params":["pay"]}', -32602),
    "no name": (b'{"id":1,"method":"tools/call","params":{}}', -32602),
    "a name that is no string": (b'{"id":1,"method":"tools/call","params":{"name":{"a":"pay"}}}', -32602),
    "a long name": (json.dumps(call(tool="p" * 129)).encode(), -32602),
    "a text": (b'"tools/call"', -32600), "a number": (b"1", -32600),
    "an empty batch": (b"[]", -32600), "a batch": (json.dumps([call()]).encode(), -32600),
    "hidden in a batch": (json.dumps([call(method="ping"), call(tool="get"), call()]).encode(), -32600),
    "a batch in a batch": (json.dumps([[call()]]).encode(), -32600), "a batch of texts": (b'["tools/call"]', -32600),
    "a notification": (json.dumps({k: v for k, v in call().items() if k != "id"}).encode(), -32600),
    "null as id": (json.dumps(call(id=None)).encode(), -32600), "an object as id": (json.dumps(call(id={"a": 1})).encode(), -32600),
    "a huge id": (json.dumps(call(id="x" * 300)).encode(), -32600), "true as id": (json.dumps(call(id=True)).encode(), -32600),
    "too deep": (b'{"id":1,"method":"ping","params":' + b"[" * 5000 + b"]" * 5000 + b"}", -32700),
    "too long": (json.dumps(call("k", filler="x" * 1_100_000)).encode(), -32600),
}


@pytest.mark.parametrize("chunked", [False, True])
def test_what_cannot_be_read_is_refused(mcp, chunked):
    """A backend may read a guarded call in each of these."""
    gw = mcp("once_mcp all !get; client_max_body_size 2m;")
    for name, (body, code) in UNREADABLE.items():
        response = send(gw, body, **({"chunked": True, "piece": 40_000} if chunked else {}))
        assert response.json()["error"]["code"] == code, (name, response)
        status = 200 if response.json()["id"] is not None else 413 if name == "too long" else 400
        assert response.status == status, (name, response)
    assert gw.upstream.total == 0


def test_other_types_and_codings_are_refused(mcp):
    """A backend that decodes them would read another message."""
    gw = mcp(ALL)
    body = json.dumps(call(None)).encode()
    for headers in ([], [("Content-Type", "text/plain")], [("Content-Type", "application/json; charset=utf-7")],
                    [("Content-Type", "application/json;x=1; CHARSET = utf-16")], [("Content-Type", "application/jsonp")],
                    [("Content-Type", "application/json"), ("Content-Encoding", "identity")]):
        response = send(gw, body, headers)
        assert response.status == 415 and response.json()["error"]["code"] == -32700, (headers, response)
    response = send(gw, gzip.compress(body), JSON + [("Content-Encoding", "gzip")])
    assert response.status == 415
    assert gw.upstream.total == 0
    for type in ("application/json; charset=utf-8", 'Application/JSON;charset="UTF-8"', "application/json ; v=1"):
        assert send(gw, call(type), [("Content-Type", type)]).json()["result"], type


@pytest.mark.parametrize("method", ["tools\\/call", "\\u0074ools/call", "tools\\u002fcall"])
def test_escapes_are_read(mcp, method):
    gw = mcp(ALL)
    body = json.dumps(call()).replace("tools/call", method).replace('"method"', '"m\\u0065thod"').encode()
    assert send(gw, body).json()["result"] == {"run": 1}
    assert send(gw, call(id=2)).json() == {"jsonrpc": "2.0", "id": 2, "result": {"run": 1}}
    error(send(gw, body.replace(b'"idempotencyKey"', b'"other"')), -32602, "key-missing")
    assert gw.upstream.total == 1


def test_keys(mcp):
    """In _meta, otherwise in the header; derived where that is configured."""
    gw = mcp(ALL)
    assert send(gw, call(None), JSON + [("Idempotency-Key", "h")]).json()["result"] == {"run": 1}
    assert send(gw, call("h", id=2)).json()["result"] == {"run": 1}
    assert send(gw, call("m"), JSON + [("Idempotency-Key", "h")]).json()["result"] == {"run": 2}
    message = error(send(gw, call(None, id=5)), -32602, "key-missing")
    assert message["id"] == 5 and "params._meta.idempotencyKey" in message["error"]["message"]
    error(send(gw, call("k" * 256)), -32602, "key-invalid")
    assert gw.upstream.total == 2
    header = mcp(ALL + "once_key Idempotency-Key;")
    assert send(header, {"jsonrpc": "2.0", "id": 1, "method": "initialize"}).status == 200
    error(send(header, call("m")), -32602, "key-missing")
    derived = mcp(ALL + "once_key json:/params/_meta/idempotencyKey derive=24h;",
                  guard="once on; once_scope $http_x_scope; proxy_pass http://backend;")
    mine = JSON + [("X-Scope", "me")]
    until(lambda: send(derived, call(None, tool="other"), mine).header("Once-Derived-Key"), "the store's secrets")
    one = send(derived, call(None, id=1, meta={"progressToken": 1}), mine)
    two = send(derived, call(None, id=2, meta={"progressToken": 2}), mine)
    assert one.header("Once-Derived-Key") and two.json() == {"jsonrpc": "2.0", "id": 2, "result": one.json()["result"]}
    assert send(derived, call(None), JSON + [("X-Scope", "you")]).json()["result"] == {"run": 3}


def test_errors_that_a_model_can_act_on(mcp):
    gw = mcp(ALL + "once_recover hold;")
    release = threading.Event()
    gw.upstream.then(lambda exchange: (release.wait(60), result(exchange)))
    with gw.connect() as client:
        client.start("POST", "/", None, json.dumps(call()).encode(), JSON)
        gw.upstream.wait_total(1)
        busy = send(gw, call(id="b"))
        message = error(busy, -32050, "in-flight")
        assert message["id"] == "b" and "Wait" in message["error"]["message"] and busy.header("Retry-After")
        release.set()
        assert client.finish().json()["result"] == {"run": 1}
    gw.upstream.then(lambda exchange: exchange.reset())
    lost = error(send(gw, call("lost")), -32054, "response-lost")
    assert "same key" in lost["error"]["message"] and lost["error"]["data"]["status"] == 502
    unknown = error(send(gw, call("lost", id=9)), -32052, "outcome-unknown")
    assert unknown["id"] == 9 and unknown["error"]["message"].startswith("Do not call again: the outcome is unknown")
    assert gw.upstream.total == 2


def test_store_away(mcp):
    gw = mcp(ALL, store="redis://127.0.0.1:1/0")
    error(send(gw, call()), -32056, "store-unavailable")
    assert gw.upstream.total == 0
    assert send(gw, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).status == 200
    gw.nginx.expect("did not answer")


def test_sessions_that_are_over(mcp):
    """404: the client begins a new session, and repeats the call with its key."""
    gw = mcp(ALL + "once_recover hold;")
    gw.upstream.then(lambda exchange: exchange.respond(404))
    assert send(gw, call()).status == 404
    assert send(gw, call(id=2)).json() == {"jsonrpc": "2.0", "id": 2, "result": {"run": 2}}


@CONTRACT
def test_events_are_recorded_whole(mcp):
    """Replayed as events: without what belongs to the first request."""
    gw = mcp(ALL)
    log = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x"}}
    progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}
    gw.upstream.default = streams(log, progress)
    first = send(gw, call(id=1))
    assert read_events(first) == [log, progress, {"jsonrpc": "2.0", "id": 1, "result": {"run": 1}}]
    for id in (2, "three"):
        again = send(gw, call(id=id))
        assert again.header("Idempotent-Replayed") == "true" and b"id: e" not in again.body and b"event: message\n" in again.body
        assert read_events(again) == [log, {"jsonrpc": "2.0", "id": id, "result": {"run": 1}}]
    assert gw.upstream.total == 1


@CONTRACT
def test_a_client_that_comes_back(mcp):
    """Its GET with Last-Event-ID is the server's to answer; the same call with its key gets the recorded answer."""
    gw = mcp(ALL)
    gw.upstream.default = streams({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 60_000}})
    with gw.connect() as client:
        client.start("POST", "/", None, json.dumps(call()).encode(), JSON)
        until(lambda: b"id: e0" in client.sock.recv(4096, socket.MSG_PEEK), "an id")
    gw.upstream.default = lambda exchange: exchange.respond(405)
    for headers in ([], [("Idempotency-Key", "k")]):
        resumed = gw.request("GET", "/", None, b"", [("Accept", "text/event-stream"), ("Last-Event-ID", "e0"), *headers])
        assert resumed.status == 405 and b"run" not in resumed.body, "nothing of the record, whoever names an id"
        assert gw.upstream.last().headers.all("Last-Event-ID") == ["e0"]
    again = send(gw, call(id=2))
    assert again.header("Idempotent-Replayed") == "true"
    assert read_events(again)[-1] == {"jsonrpc": "2.0", "id": 2, "result": {"run": 1}}
    assert gw.upstream.total == 3


def test_recipes_for_other_protocols(gateway):
    """docs/mcp.md: A2A, and functions over plain HTTP."""
    gw = gateway(locations=blocks(page("mcp.md"), "nginx")[1])
    mine = [("Content-Type", "application/json"), ("X-Scope", "me")]

    def post(target, body, headers=mine):
        return gw.request("POST", target, None, json.dumps(body).encode(), headers)

    message = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": {"messageId": "m", "parts": []}}}
    for target, body, other in (("/a2a", message, {**message, "id": 2}),
                                ("/tools/pay", {"idempotency_key": "k", "amount": 7}, {"idempotency_key": "k", "amount": 8})):
        before = gw.upstream.total
        first, again = post(target, body), post(target, body)
        assert again.body == first.body and again.header("Idempotent-Replayed") == "true"
        assert post(target, other).status == 422 and gw.upstream.total == before + 1
        assert post(target, body, mine[:1] + [("X-Scope", "you")]).header("Idempotent-Replayed") is None
    before = gw.upstream.total
    for _ in range(2):
        assert "Idempotent-Replayed" not in post("/a2a", {**message, "method": "tasks/get", "params": {"id": "t"}}).headers
    assert gw.upstream.total == before + 2
    assert post("/tools/pay", {"amount": 7}).status == 400 and gw.upstream.total == before + 2


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_events_of_every_form(mcp, end):
    gw = mcp(ALL)
    lines = [": comment", "id: 1", "data:", "", "retry: 5", 'data:{"jsonrpc":"2.0",', 'data: "id":1,"result":', "data:{}}", "", ""]
    text, type = end.join(lines), "text/event-stream; charset=utf-8"
    gw.upstream.default = lambda exchange: exchange.respond(200, [("Content-Type", type)], text.encode())
    assert send(gw, call(id=1)).body == text.encode()
    assert send(gw, call(id=2)).body == b'retry: 5\ndata: {"jsonrpc":"2.0",\ndata: "id":2,"result":\ndata: {}}\n\n'
    assert gw.upstream.total == 1


def test_no_answer_is_doubt(mcp):
    """Streams that end before the answer, and what is no answer at all."""
    gw = mcp(ALL + "once_recover hold;")
    bodies = [("text/event-stream", b"id: 1\ndata:\n\n"), ("text/event-stream", b'data: {"id":1,"result":{}}\n'),
              ("application/json", b"{}"), ("application/json", b'{"id":1,"method":"ping"}'),
              ("text/html", b"<p>"), ("application/json", b"")]
    for n, (type, body) in enumerate(bodies):
        gw.upstream.then(lambda exchange, type=type, body=body: exchange.respond(200, [("Content-Type", type)], body))
        assert send(gw, call(f"k{n}")).body == body
        error(send(gw, call(f"k{n}")), -32052, "outcome-unknown")
    assert gw.upstream.total == len(bodies)


def test_a_server_that_asks_the_client(mcp):
    """Its request must reach the client while the call runs: the stream passes, and is recorded without its body."""
    gw = mcp(ALL + "proxy_buffering off;")
    asks = {"jsonrpc": "2.0", "id": 0, "method": "elicitation/create", "params": {}}
    release = threading.Event()

    def script(exchange):
        exchange.begin(200, [("Content-Type", "text/event-stream"), ("Connection", "close")])
        exchange.send(events(asks))
        release.wait(60)
        exchange.send(events({"jsonrpc": "2.0", "id": 1, "result": {}}))
        exchange.close()

    gw.upstream.default = script
    with gw.connect() as client:
        client.start("POST", "/", None, json.dumps(call()).encode(), JSON)
        until(lambda: b"elicitation" in client.sock.recv(65536, socket.MSG_PEEK), "the request")
        release.set()
        assert read_events(client.finish())[-1] == {"jsonrpc": "2.0", "id": 1, "result": {}}
    again = error(send(gw, call(id=2)), -32058)
    assert again["id"] == 2 and again["error"]["message"].startswith("Do not call again: this call has been made")
    assert gw.upstream.total == 1


def test_large_answers(mcp):
    """Beyond once_store_body a stream passes, and its replay says so."""
    gw = mcp(ALL + "once_store_body 1k;")
    gw.upstream.default = streams({"method": "notifications/message", "params": {"data": "x" * 5000}})
    assert read_events(send(gw, call()))[-1]["result"] == {"run": 1}
    error(send(gw, call(id=2)), -32058)
    assert gw.upstream.total == 1


def test_coded_answers(mcp):
    """Not asked for; sent all the same, it cannot be replayed under another id."""
    gw = mcp(ALL)
    body = gzip.compress(b'{"jsonrpc":"2.0","id":1,"result":{}}')
    gw.upstream.default = lambda exchange: exchange.respond(200, [("Content-Encoding", "gzip")], body)
    assert send(gw, call(), JSON + [("Accept-Encoding", "gzip")]).body == body
    assert "Accept-Encoding" not in gw.upstream.last().headers
    error(send(gw, call(id=2)), -32058)
    assert gw.upstream.total == 1


def test_what_a_record_says(mcp):
    gw = mcp(ALL)
    send(gw, call())
    send(gw, call("odd", tool="a b\u0007"))
    texts = sorted(record["description"] for record in gw.store.records())
    assert texts == ["tools/call", "tools/call pay"]
