"""Keys and errors: what the gate says, the package says in the same words."""
import json
import os
import re
from urllib.parse import unquote

import pytest

import once
from once.message import PROBLEMS, Request, Response, parse_key, to_json

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")


@pytest.mark.parametrize("value, key", [("k", "k"), (' "k" ', "k"), ('"a\\"b\\\\c"', 'a"b\\c'), ('"a, b"', "a, b"), ("a b", "a b"),
                                        ("k" * 255, "k" * 255)])
def test_keys(value, key):
    assert parse_key([value]) == key


WRONG = {"": "is empty", '""': "is empty", "a,b": "has a comma", '"a': "closing quote is missing", '"a\\': "escapes nothing",
         '"a"b': "text after", '"a", "b"': "several keys", '"a";v': "has parameters", "é": "not ASCII",
         "a\x01": "control character", '"\x7f"': "control character", "k" * 256: "longer than 255"}


def refusal(value):
    with pytest.raises(once.Answered) as caught:
        parse_key([value])
    return caught.value.response


@pytest.mark.parametrize("value", WRONG)
def test_wrong_keys(value):
    assert refusal(value).status == 400 and WRONG[value] in json.loads(refusal(value).body)["detail"]


def test_header_twice():
    with pytest.raises(once.Answered, match="400"):
        parse_key(["a", "a"])


def test_problems_are_the_gates():
    """Every text that is here is in the gate's table, or in its rules for keys."""
    def texts(path):
        with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
            return re.sub(r'(?<!\\)"\s*"', "", file.read())

    gate = texts(("nginx", "ngx_http_once_problem.c"))
    for name, (status, retryable, kind, title, detail) in PROBLEMS.items():
        names = {400: "NGX_HTTP_BAD_REQUEST", 409: "NGX_HTTP_CONFLICT", 503: "NGX_HTTP_SERVICE_UNAVAILABLE"}
        number = names.get(status, str(status))
        entry = gate[gate.index(f'{{ {number}, {int(retryable)}, ngx_string("{name}")'):]
        for text in (kind, title):
            assert entry.index(f'ngx_string("{text}")') < 400, text
        for part in detail.split(" in the header Idempotency-Key"):
            assert part in gate, part
    rules = texts(("lib", "core", "key.c"))
    for value in WRONG:
        detail = json.loads(refusal(value).body)["detail"].replace("\\", "\\\\").replace('"', '\\"').replace("255", "%d")
        assert detail in rules, detail


def test_requests():
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/caf\u00c3\u00a9\x00", "QUERY_STRING": "a=1", "HTTP_IDEMPOTENCY_KEY": "k",
               "HTTP_ONCE_CLAIM": "x" * 70, "once.body": b"{}"}
    request = Request.of(environ)
    assert (request.method, request.target, request.key, request.claim) == ("POST", "/caf%C3%A9%00?a=1", "k", "x" * 70)
    scope = {"type": "http", "method": "POST", "path": "/caf\u00e9\x00", "query_string": b"a=1",
             "headers": [(b"idempotency-key", b"k")]}
    assert Request.of_asgi(scope).target == request.target
    with pytest.raises(once.Answered, match="400"):
        Request("POST", "/", [("Once-Claim", "made up")]).claim
    with pytest.raises(TypeError, match="not a request"):
        Request.of(7)


TARGETS = ["/v1/payments:charge", "/a@b?x=%2f", "/a%2Fb", "/caf%c3%a9", "/it's(1)*~"]


@pytest.mark.parametrize("target", TARGETS)
def test_target_is_as_it_was_sent(target):
    """As the gate has it: the fingerprint is the same with and without one."""
    path, _, query = target.partition("?")
    scope = {"type": "http", "method": "POST", "path": unquote(path), "raw_path": path.encode(), "query_string": query.encode(),
             "headers": []}
    assert Request.of_asgi(scope).target == target
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": unquote(path, "latin-1"), "QUERY_STRING": query}
    assert Request.of({**environ, "RAW_URI": target}).target == Request.of({**environ, "REQUEST_URI": target}).target == target
    assert Request.of({**environ, "RAW_URI": "http://proxy" + target}).target == Request.of(environ).target
    if "%2F" not in target and "%c3" not in target:  # which cannot be known without the server's help
        assert Request.of(environ).target == target
        assert Request.of_asgi({**scope, "raw_path": None}).target == target


@pytest.mark.parametrize("target", TARGETS + ["/a?"])
def test_target_of_a_real_server(target):
    """Werkzeug, which Flask's development server is, and uvicorn; of the latter an empty query cannot be known."""
    import http.client
    import socket
    import threading
    import uvicorn
    from werkzeug.serving import make_server
    seen = []

    def wsgi(environ, start_response):
        seen.append(Request.of(environ).target)
        start_response("200 OK", [])
        return [b""]

    async def asgi(scope, receive, send):
        seen.append(Request.of_asgi(scope).target)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def ask(port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", target)
        connection.getresponse().read()
        connection.close()

    server = make_server("127.0.0.1", 0, wsgi)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    ask(server.server_port)
    thread.join()
    server.server_close()
    with socket.create_server(("127.0.0.1", 0)) as sock:
        other = uvicorn.Server(uvicorn.Config(asgi, log_level="warning", lifespan="off"))
        thread = threading.Thread(target=other.run, kwargs={"sockets": [sock]})
        thread.start()
        ask(sock.getsockname()[1])
        other.should_exit = True
        thread.join()
    assert seen == [target, target.rstrip("?")]


def test_what_is_recorded():
    response = Response(200, [("Date", "now"), ("Set-Cookie", "a=1"), ("X-A", "1"), ("Content-Length", "3")], b"abc")
    assert response.recorded_headers == [("X-A", "1")]
    final = [status for status in range(200, 600) if Response(status).is_final]
    assert {200, 204, 302, 400, 402, 404, 409, 422} <= set(final)
    assert not {401, 403, 407, 408, 421, 425, 429, 500, 503} & set(final)


def test_json():
    import datetime
    import decimal
    assert to_json({"a": decimal.Decimal("12.50"), "d": datetime.date(2026, 1, 2), "s": "é\\"}) == \
        '{"a":"12.50","d":"2026-01-02","s":"é\\\\"}'.encode()
    with pytest.raises(TypeError, match="object is not JSON"):
        to_json(object())
