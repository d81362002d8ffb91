"""The test double, and the decorator on it: no server is needed."""
import asyncio

import flask
import pytest

import once
from once.testing import Memory

HEADERS = {"Idempotency-Key": "k-1"}


def make(memory):
    app = flask.Flask(__name__)
    calls = []

    @app.post("/orders")
    @once.idempotent(memory, scope="t")
    def orders():
        calls.append(once.current().connection)
        once.current().emit("orders", "o-1", "placed", {"n": 1})
        if flask.request.get_json().get("fail"):
            raise ZeroDivisionError
        return {"number": len(calls)}, 201

    return app.test_client(), calls


def test_flask():
    memory = Memory("a connection")
    client, calls = make(memory)
    first, again = (client.post("/orders", json={}, headers=HEADERS) for _ in range(2))
    assert (first.status_code, first.json) == (again.status_code, again.json) == (201, {"number": 1})
    assert again.headers["Idempotent-Replayed"] == "true" and calls == ["a connection"]
    assert memory.events == [("orders", "o-1", "placed", b'{"n":1}')]
    assert client.post("/orders", json={"n": 2}, headers=HEADERS).status_code == 422
    assert client.post("/orders", json={}).status_code == 400


def test_exception():
    memory = Memory()
    client, calls = make(memory)
    assert [client.post("/orders", json={"fail": 1}, headers=HEADERS).status_code for _ in range(2)] == [500, 500]
    assert len(calls) == 2 and memory.events == []


@pytest.mark.parametrize("scope", [{"id": 1}, 7, 0, b"a", object()])
def test_a_scope_is_text(scope):
    with pytest.raises(TypeError, match="the scope has to be a str"):
        once.operation(Memory(), once.Request("POST", "/", list(HEADERS.items()), b""), scope=lambda request: scope).__enter__()


def test_behind_a_gate():
    client, calls = make(Memory())
    headers = {**HEADERS, "Once-Claim": "c" * 70}
    assert [client.post("/orders", json={}, headers=headers).json for _ in range(2)] == [{"number": 1}] * 2 and len(calls) == 1
    assert client.post("/orders", json={}, headers={**HEADERS, "Once-Claim": "forged"}).status_code == 400


async def call(app, headers=(), body=b"{}"):
    sent, messages = [], [{"type": "http.request", "body": body[:1], "more_body": True},
                          {"type": "http.request", "body": body[1:], "more_body": False}]

    async def receive():
        return messages.pop(0)

    async def send(message):
        sent.append(message)

    await app({"type": "http", "method": "POST", "path": "/orders", "query_string": b"", "headers": list(headers)}, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def test_asgi():
    """Chunks become one response; what is not decorated passes through; a handler that does not fit its driver is refused."""
    memory, seen = Memory(blocking=False), []

    @once.idempotent(memory, scope="t")
    async def handler():
        seen.append(once.current_async().claim)

    async def app(scope, receive, send):
        await handler()
        await send({"type": "http.response.start", "status": 201, "headers": [(b"x-a", b"1")]})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        await send({"type": "http.response.body", "body": b"b"})

    async def open_app(scope, receive, send):
        assert (await receive())["body"] == b"{}"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"open"})

    key = [(b"idempotency-key", b"k-1")]
    guarded = once.ASGIMiddleware(app)
    assert asyncio.run(call(guarded, key)) == asyncio.run(call(guarded, key)) == (201, b"ab") and len(seen) == 1
    assert asyncio.run(call(guarded))[0] == 400
    assert asyncio.run(call(once.ASGIMiddleware(open_app), key)) == (200, b"open")
    memory.blocking = True
    with pytest.raises(TypeError, match="use an async driver"):
        asyncio.run(call(guarded, [(b"idempotency-key", b"k-2")]))


def test_cancelled():
    """A request that is cancelled gives its transaction and its connection back."""
    memory, reached = Memory(blocking=False), []

    @once.idempotent(memory, scope="t")
    async def handler():
        reached.append(list(memory.open))
        await asyncio.Event().wait()

    async def app(scope, receive, send):
        await handler()

    async def run():
        task = asyncio.ensure_future(call(once.ASGIMiddleware(app), [(b"idempotency-key", b"k-1")]))
        while not reached:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert reached == [[("t", "k-1")]] and memory.open == {}


def test_asgi_body_cut_off():
    """Nothing runs, and the key stays free."""
    memory, ran = Memory(blocking=False), []

    async def app(scope, receive, send):
        ran.append(await receive())

    async def run():
        messages = [{"type": "http.request", "body": b'{"amount":1', "more_body": True}, {"type": "http.disconnect"}]

        async def receive():
            return messages.pop(0)

        async def send(message):
            pytest.fail("answered")

        scope = {"type": "http", "method": "POST", "path": "/orders", "query_string": b"", "headers": [(b"idempotency-key", b"k")]}
        await once.ASGIMiddleware(once.idempotent(memory, scope="t")(app))(scope, receive, send)

    asyncio.run(run())
    assert ran == [] and memory.claims == {}


def test_wsgi_body_cut_off():
    import io
    memory, told = Memory(), []
    guarded = once.WSGIMiddleware(lambda environ, start_response: pytest.fail("ran"), once.idempotent(memory, scope="t"))
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "HTTP_IDEMPOTENCY_KEY": "k", "wsgi.input": io.BytesIO(b"{}"),
               "CONTENT_LENGTH": "3"}
    assert b"cut off" in b"".join(guarded(environ, lambda *args: told.append(args)))
    assert told[0][0] == "400 Bad Request" and memory.claims == {}


def test_flask_body_cut_off():
    import io
    memory = Memory()
    client, calls = make(memory)
    answer = client.post("/orders", headers=HEADERS, environ_overrides={
        "wsgi.input": io.BytesIO(b"{"), "CONTENT_LENGTH": "2", "CONTENT_TYPE": "application/json"})
    assert answer.status_code == 400 and calls == [] and memory.claims == {}


def test_django_body_cut_off():
    import io
    from django.conf import settings
    from django.core.handlers.wsgi import WSGIRequest
    from django.http import HttpResponse
    if not settings.configured:
        settings.configure()
    memory, ran = Memory(), []

    @once.idempotent(memory, scope="t")
    def view(request):
        ran.append(request.body)
        return HttpResponse("", status=201)

    for size, status in (("3", 400), ("2", 201)):
        asked = WSGIRequest({"REQUEST_METHOD": "POST", "PATH_INFO": "/", "HTTP_IDEMPOTENCY_KEY": "k", "CONTENT_LENGTH": size,
                             "wsgi.input": io.BytesIO(b"{}")})
        assert view(asked).status_code == status
    assert ran == [b"{}"]


def test_flask_form_was_read_before():
    """Then the bytes are gone, and another form would look the same."""
    memory, app = Memory(), flask.Flask(__name__)
    early = [lambda: flask.request.form]

    @app.before_request
    def before():
        early[0]()

    @app.post("/orders")
    @once.idempotent(memory, scope="t")
    def orders():
        return flask.request.form["n"], 201

    app.testing = True
    client = app.test_client()
    with pytest.raises(RuntimeError, match="get_data"):
        client.post("/orders", data={"n": "1"}, headers=HEADERS)
    assert memory.claims == {}
    early[0] = lambda: (flask.request.get_data(), flask.request.form)
    assert [client.post("/orders", data={"n": n}, headers=HEADERS).status_code for n in "112"] == [201, 201, 422]


@pytest.mark.parametrize("size, expected", [("2", b"{}"), (None, b"{} and more"), ("0", b"")])
def test_wsgi_bodies(size, expected):
    """With a length, and in chunks, of which the server knows the end."""
    import io

    def app(environ, start_response):
        start_response("201 Created", [("X-A", "caf\u00c3\u00a9")])
        return [environ["wsgi.input"].read(), once.current().request.body]

    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "HTTP_IDEMPOTENCY_KEY": "k", "wsgi.input": io.BytesIO(b"{} and more"),
               "wsgi.input_terminated": True, **({"CONTENT_LENGTH": size} if size else {})}
    guarded, told = once.WSGIMiddleware(app, once.idempotent(Memory(), scope="t")), []
    assert b"".join(guarded(environ, lambda *args: told.append(args))) == expected * 2
    assert told[0][0] == "201 Created" and ("X-A", "caf\u00c3\u00a9") in told[0][1]


def test_interrupted():
    memory = Memory()
    app = flask.Flask(__name__)

    @once.idempotent(memory, scope="t")
    def handler():
        raise KeyboardInterrupt

    with app.test_request_context("/orders", method="POST", headers=HEADERS), pytest.raises(KeyboardInterrupt):
        handler()
    assert memory.open == {}


def test_outside_of_a_handler():
    with pytest.raises(LookupError, match="not decorated"):
        once.current()
    with pytest.raises(RuntimeError, match="ASGIMiddleware"):
        once.idempotent(Memory(), scope="t")(lambda: None)()


def test_trace():
    """Where the application has a span, it is told what the key came to."""
    from opentelemetry.sdk.trace import TracerProvider
    spans, tracer = [], TracerProvider().get_tracer("test")
    client, _ = make(Memory())
    for body in ({}, {}, {"n": 2}):
        with tracer.start_as_current_span("request") as span:
            client.post("/orders", json=body, headers=HEADERS)
        spans.append(dict(span.attributes))
    assert spans == [{"once.outcome": outcome, "once.attempts": 1, "once.key": "k-1"} for outcome in ("run", "replay", "mismatch")]
