"""`once.idempotent` for the handlers of web frameworks, and middleware for those that make their responses later."""
from __future__ import annotations

import asyncio
import functools
import inspect
import io
import sys
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any, Callable, Coroutine, Iterable, List, Optional, Tuple, TypeVar

from .message import Answered, Request, Response, header_text
from .operation import CURRENT, AsyncOperation, Options, Scope, run
from .transport import drive

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
BODY_LIMIT = 16 << 20
TOO_LARGE = Response.json({"error": "the body is too large"}, 413)


async def attempt(operation: AsyncOperation, call: Callable[[], Any]) -> Any:
    token = CURRENT.set(operation)
    try:
        result = call()
        return await result if inspect.isawaitable(result) else result
    except Exception as error:
        await operation.fail(error)
        raise
    finally:
        CURRENT.reset(token)


class idempotent:
    """Decorates a handler: with one Idempotency-Key it takes effect once, and its response is recorded in its own transaction,
    which `once.current().connection` is in. `connect` returns a connection, or a context manager of one, or is a once.Store; Django
    has its own."""

    def __init__(self, connect: Optional[Callable[[], Any]] = None, *, scope: Scope, **options: Any) -> None:
        self.connect, self.options = connect or Django.connection, Options(scope, **options)

    def __call__(self, handler: F) -> F:
        @functools.wraps(handler)
        async def on_loop(*args: Any, **kwargs: Any) -> Any:
            operation = await Exchange.current().begin(self)
            if operation.transport.blocking:
                raise TypeError("this handler is async, but its connection is not: use an async driver, or a handler without async")
            return await attempt(operation, lambda: handler(*args, **kwargs))

        @functools.wraps(handler)
        def blocking(*args: Any, **kwargs: Any) -> Any:
            async def in_exchange() -> Any:
                return await attempt(await Exchange.current().begin(self), call)

            def call() -> Any:
                return handler(*args, **kwargs)

            django = next((arg for arg in args[:2] if hasattr(arg, "META")), None)
            if EXCHANGE.get(None) is None and django is not None:
                return drive(self.around(Django(django), call))
            if EXCHANGE.get(None) is None and "flask" in sys.modules and sys.modules["flask"].has_request_context():
                return drive(self.around(Flask(), call))
            return drive(in_exchange())

        chosen: Any = on_loop if inspect.iscoroutinefunction(handler) else blocking
        chosen._non_atomic_requests = {"default"}  # for Django's ATOMIC_REQUESTS: the transaction is ours
        return chosen  # type: ignore[no-any-return]

    async def around(self, web: Any, call: Callable[[], Any]) -> Any:
        """A view of Flask or Django."""
        made: List[Any] = []  # the response as it is recorded, the framework's own, and how many headers that has

        async def produce(operation: AsyncOperation) -> Response:
            try:
                native = web.make(await attempt(operation, call))
            except Exception as error:
                if operation.is_repeatable(error) or isinstance(error, Answered):
                    raise
                native = web.make(web.handle(error))
            response = web.read(native)
            made[:] = [response, native, len(response.headers)]
            return made[0]  # type: ignore[no-any-return]

        try:
            response = await run(self.connect, Request.of(web.request), self.options, produce)
        except Answered as cut_off:
            response = cut_off.response
        if not made or made[0] is not response:
            return web.write(response)
        for name, value in response.headers[made[2]:]:
            made[1].headers[name] = value
        return made[1]


class Flask:
    def __init__(self) -> None:
        import flask
        self.flask, self.app, self.request = flask, flask.current_app, flask.request
        self.make, self.handle = self.app.make_response, self.app.handle_user_exception

    def read(self, native: Any) -> Response:
        return Response(native.status_code, native.headers.items(), native.get_data())

    def write(self, response: Response) -> Any:
        fields = [(name, value.encode().decode("latin-1")) for name, value in response.headers]
        return self.flask.Response(response.body, response.status, fields)


class Django:
    def __init__(self, request: Any) -> None:
        self.request = request

    @staticmethod
    def connection() -> Any:
        from django.db import connection
        return connection

    def make(self, native: Any) -> Any:
        native = native.render() if callable(getattr(native, "render", None)) else native
        if not native.streaming:
            return native
        whole = self.write(Response(native.status_code, native.items(), native.getvalue()))
        whole.cookies = native.cookies
        return whole

    def handle(self, error: Exception) -> Any:
        from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
        from django.core.handlers.exception import response_for_exception
        from django.http import Http404
        if not isinstance(error, (Http404, PermissionDenied, BadRequest, SuspiciousOperation)):
            raise error
        return response_for_exception(self.request, error)

    def read(self, native: Any) -> Response:
        return Response(native.status_code, native.items(), native.content)

    def write(self, response: Response) -> Any:
        from django.http import HttpResponse
        made = HttpResponse(response.body, status=response.status)
        del made["Content-Type"]
        for name, value in response.headers:
            made[name] = value
        return made


class Unfinished(Exception):
    """Leads out of the application when its response could not be recorded."""


async def wherever(operation: AsyncOperation, coroutine: Coroutine[Any, Any, T]) -> T:
    """Blocking calls in a thread: the loop goes on."""
    return await asyncio.to_thread(drive, coroutine) if operation.is_open and operation.transport.blocking else await coroutine


class Exchange:
    """One request in ASGIMiddleware: the decorated handler finds it, and it holds the response back until that is recorded."""

    def __init__(self, request: Request, send: Any) -> None:
        self.request, self.send = request, send
        self.operation: Optional[AsyncOperation] = None
        self.error: Optional[Exception] = None

    @staticmethod
    def current() -> "Exchange":
        found = EXCHANGE.get(None)
        if found is None:
            raise RuntimeError("this is no request of Flask or Django; add the middleware: "
                               "app.add_middleware(once.ASGIMiddleware), or once.WSGIMiddleware")
        return found

    async def begin(self, guard: idempotent) -> AsyncOperation:
        try:
            self.operation = self.operation or AsyncOperation(guard.connect, self.request, guard.options)
            return await self.operation.open()
        except Exception as error:
            self.error = error
            raise

    async def run(self, app: Any, scope: Any, receive: Any) -> bool:
        """One attempt. True: something was sent."""
        self.error = None
        self.finishing: Optional["asyncio.Future[Response]"] = None
        self.done, self.start, self.body = False, {}, bytearray()  # type: bool, Any, bytearray
        token = EXCHANGE.set(self)
        try:
            await app(scope, receive, self.pass_on)
            if self.operation is not None and self.operation.is_open:
                raise RuntimeError("the application ended without a response")
            return True
        except Exception as error:
            try:
                if self.operation is None or self.done:
                    raise self.error or error
                await wherever(self.operation, self.operation.go_on(self.error or error))
            except Answered as found:
                await self.answer(found.response)
                return True
            return False
        except BaseException as error:  # cancelled; what is about to be recorded goes on
            if self.operation is not None and self.finishing is None:
                await asyncio.shield(asyncio.ensure_future(wherever(self.operation, self.operation.drop(error))))
            raise
        finally:
            EXCHANGE.reset(token)

    async def pass_on(self, message: Any) -> None:
        if self.error is not None:  # something in between has made an answer of it
            raise Unfinished()
        is_response = message["type"] in ("http.response.start", "http.response.body")
        if self.operation is None or not self.operation.is_open or not is_response:
            self.done = True
            await self.send(message)
        elif message["type"] == "http.response.start":
            self.start = message
        else:
            self.body += message.get("body", b"")
            if not message.get("more_body", False):
                await self.finish(self.operation)

    async def finish(self, operation: AsyncOperation) -> None:
        fields = [(name.decode("latin-1"), header_text(value)) for name, value in self.start.get("headers", ())]
        response = Response(self.start["status"], fields, bytes(self.body))
        try:
            self.finishing = asyncio.ensure_future(wherever(operation, operation.finish(response)))
            sent = await asyncio.shield(self.finishing)
        except Exception as error:
            self.error, self.finishing = error, None
            raise Unfinished() from error
        self.done = True
        if sent is not response:  # overtaken: what the record says
            await self.answer(sent)
            return
        more = [(name.lower().encode(), value.encode()) for name, value in response.headers[len(fields):]]
        await self.send({**self.start, "headers": [*self.start.get("headers", ()), *more]})
        await self.send({"type": "http.response.body", "body": response.body})

    async def answer(self, response: Response) -> None:
        headers = [(name.lower(), value) for name, value in response.sent_headers]
        await self.send({"type": "http.response.start", "status": response.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": response.body})


EXCHANGE: ContextVar[Exchange] = ContextVar("once.exchange")


class ASGIMiddleware:
    """For FastAPI, Starlette and other ASGI applications: handlers that are decorated with once.idempotent run in its transaction,
    and the response is recorded as it is sent. Everything else passes through."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = Exchange(Request.of_asgi(scope), send)
        if not exchange.request.all("Idempotency-Key") and not exchange.request.all("Once-Claim"):
            await exchange.run(self.app, scope, receive)
            return
        body, more = bytearray(), True
        while more and len(body) <= BODY_LIMIT:
            message = await receive()
            if message["type"] != "http.request":  # cut off: nobody waits for an answer, and it is not known what was asked
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if len(body) > BODY_LIMIT:
            await exchange.answer(TOO_LARGE)
            return
        exchange.request.body = bytes(body)
        while True:
            messages = [{"type": "http.request", "body": bytes(body), "more_body": False}]

            async def again(left: List[Any] = messages) -> Any:
                """The body once more, then what follows it."""
                return left.pop() if left else await receive()

            if await exchange.run(self.app, {**scope, "state": dict(scope.get("state", {}))}, again):
                return


class WSGIMiddleware:
    """For any WSGI application: requests that `match` run in a transaction of `guard`, which `once.current()` gives."""

    def __init__(self, app: Any, guard: idempotent,
                 match: Callable[[Request], bool] = lambda request: request.method in ("POST", "PATCH")) -> None:
        self.app, self.guard, self.match = app, guard, match

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        if not self.match(Request.of(environ)):
            return self.app(environ, start_response)  # type: ignore[no-any-return]
        size = int(environ.get("CONTENT_LENGTH") or (BODY_LIMIT + 1 if environ.get("wsgi.input_terminated") else 0))
        body = environ["once.body"] = environ["wsgi.input"].read(min(size, BODY_LIMIT + 1))

        async def produce(operation: AsyncOperation) -> Response:
            made: Response = await attempt(operation, lambda: self.collect({**environ, "wsgi.input": io.BytesIO(body)}))
            return made

        try:
            sent = TOO_LARGE if len(body) > BODY_LIMIT else drive(
                run(self.guard.connect, Request.of(environ), self.guard.options, produce))
        except Answered as cut_off:
            sent = cut_off.response
        reason = HTTPStatus(sent.status).phrase if sent.status in set(HTTPStatus) else "Status"
        start_response(f"{sent.status} {reason}", [(name.decode(), value.decode("latin-1")) for name, value in sent.sent_headers])
        return [sent.body]

    def collect(self, environ: Any) -> Response:
        begun: List[Tuple[str, List[Tuple[str, str]]]] = []
        written: List[bytes] = []

        def start(status: str, headers: List[Tuple[str, str]], info: Any = None) -> Callable[[bytes], None]:
            if info:
                raise info[1]
            begun[:] = [(status, headers)]
            return written.append

        chunks = self.app(environ, start)
        try:
            body = b"".join([*written, *chunks])
        finally:
            if hasattr(chunks, "close"):
                chunks.close()
        status, headers = begun[0]
        return Response(int(status[:3]), [(name, header_text(value.encode("latin-1"))) for name, value in headers], body)
