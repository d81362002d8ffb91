"""`once.idempotent` for the handlers of web frameworks, and middleware for those that make their responses later."""
from __future__ import annotations

import asyncio
import functools
import inspect
import io
import sys
from contextvars import ContextVar
from typing import Any, Callable, Coroutine, Iterable, List, Optional, Tuple, TypeVar

from .message import Answered, Request, Response, header_text
from .operation import CURRENT, AsyncOperation, Attempts, Options, Scope, run
from .transport import drive

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
BODY_LIMIT = 16 << 20


def django_connection() -> Any:
    from django.db import connection
    return connection


class idempotent:
    """Decorates a handler: with one Idempotency-Key it takes effect once, and its response is recorded in its own transaction,
    which `once.current().connection` is in. `connect` returns a connection, or a context manager of one; Django has its own."""

    def __init__(self, connect: Optional[Callable[[], Any]] = None, *, scope: Scope, **options: Any) -> None:
        self.connect, self.options = connect or django_connection, Options(scope, **options)

    def __call__(self, handler: F) -> F:
        @functools.wraps(handler)
        async def on_loop(*args: Any, **kwargs: Any) -> Any:
            return await self.within(lambda: handler(*args, **kwargs), blocking=False)

        @functools.wraps(handler)
        def blocking(*args: Any, **kwargs: Any) -> Any:
            def call() -> Any:
                return handler(*args, **kwargs)

            if FRAME.get(None) is not None:
                return drive(self.within(call, blocking=True))
            native = next((arg for arg in args[:2] if hasattr(arg, "META")), None)
            if native is not None:
                return drive(self.in_django(native, call))
            if "flask" in sys.modules and sys.modules["flask"].has_request_context():
                return drive(self.in_flask(call))
            raise RuntimeError("this is no request of Flask or Django; add once.ASGIMiddleware or once.WSGIMiddleware")

        chosen: Any = on_loop if inspect.iscoroutinefunction(handler) else blocking
        chosen._non_atomic_requests = {"default"}  # for Django's ATOMIC_REQUESTS: the transaction is ours
        return chosen  # type: ignore[no-any-return]

    async def within(self, call: Callable[[], Any], blocking: bool) -> Any:
        """Below ASGIMiddleware, which gets the response that the framework makes."""
        frame = FRAME.get(None)
        if frame is None:
            raise RuntimeError("an async handler needs the middleware: app.add_middleware(once.ASGIMiddleware)")
        operation = await frame.begin(self)
        if not blocking and operation.transport.blocking:
            raise TypeError("this handler is async, but its connection is not: use an async driver, or a handler without async")
        return await attempt(operation, call)

    async def in_flask(self, call: Callable[[], Any]) -> Any:
        from flask import current_app, request
        sent: List[Any] = []

        async def produce(operation: AsyncOperation) -> Response:
            try:
                made = current_app.make_response(await attempt(operation, call))
            except Exception as error:
                if operation.is_repeatable(error):
                    raise
                made = current_app.make_response(current_app.handle_user_exception(error))
            sent[:] = [Response(made.status_code, made.headers.items(), made.get_data()), made]
            return sent[0]  # type: ignore[no-any-return]

        response = await run(self.connect, Request.of(request), self.options, produce)
        return sent[1] if sent and sent[0] is response else response.flask()

    async def in_django(self, request: Any, call: Callable[[], Any]) -> Any:
        from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
        from django.core.handlers.exception import response_for_exception
        from django.http import Http404
        sent: List[Any] = []

        async def produce(operation: AsyncOperation) -> Response:
            try:
                made = await attempt(operation, call)
            except (Http404, PermissionDenied, BadRequest, SuspiciousOperation) as error:
                made = response_for_exception(request, error)
            if callable(getattr(made, "render", None)):
                made = made.render()
            body = made.getvalue() if made.streaming else made.content
            sent[:] = [Response(made.status_code, made.items(), body), made]
            return sent[0]  # type: ignore[no-any-return]

        response = await run(self.connect, Request.of(request), self.options, produce)
        return sent[1] if sent and sent[0] is response and not sent[1].streaming else response.django()


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


class Frame:
    """One request in ASGIMiddleware, which the decorated handler finds."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.attempts: Optional[Attempts] = None
        self.error: Optional[BaseException] = None
        self.finishing: Optional["asyncio.Future[Response]"] = None

    async def begin(self, guard: idempotent) -> AsyncOperation:
        self.attempts = self.attempts or Attempts(guard.connect, self.request, guard.options)
        try:
            return await self.attempts.open()
        except Exception as error:
            self.error = error
            raise

    @property
    def operation(self) -> Optional[AsyncOperation]:
        return self.attempts.operation if self.attempts else None


FRAME: ContextVar[Frame] = ContextVar("once.frame")


async def wherever(operation: Optional[AsyncOperation], coroutine: Coroutine[Any, Any, T]) -> T:
    """Blocking calls in a thread: the loop goes on."""
    return await asyncio.to_thread(drive, coroutine) if operation and operation.transport.blocking else await coroutine


class Unfinished(Exception):
    """Leads out of the application when its response could not be recorded."""


class ASGIMiddleware:
    """For FastAPI, Starlette and other ASGI applications: handlers that are decorated with once.idempotent run in its transaction,
    and the response is recorded as it is sent. Everything else passes through."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        frame = Frame(Request.of_asgi(scope))
        if not frame.request.all("Idempotency-Key") and not frame.request.all("Once-Claim"):
            await self.run(frame, scope, receive, send)
            return
        body = await read(receive)
        if body is None:
            await answer(send, Response.json({"error": "the body is too large"}, 413))
            return
        frame.request.body = body
        while not await self.run(frame, {**scope, "state": dict(scope.get("state", {}))}, again(body, receive), send):
            pass

    async def run(self, frame: Frame, scope: Any, receive: Any, send: Any) -> bool:
        """One attempt. True: something was sent."""
        frame.error, sender = None, Sender(frame, send)
        token = FRAME.set(frame)
        try:
            await self.app(scope, receive, sender)
            if frame.operation is not None:
                raise RuntimeError("the application ended without a response")
            return True
        except Exception as error:
            cause = frame.error or error
            if frame.attempts is None or sender.done:
                if isinstance(cause, Answered):
                    await answer(send, cause.response)
                    return True
                raise
            try:
                await wherever(frame.operation, frame.attempts.fail(cause))
            except Answered as found:
                await answer(send, found.response)
                return True
            return False
        except BaseException as error:  # cancelled; what is about to be recorded goes on
            operation, attempts = frame.operation, frame.attempts
            if operation is not None and attempts is not None and frame.finishing is None:
                await asyncio.shield(asyncio.ensure_future(wherever(operation, attempts.drop(error))))
            raise
        finally:
            FRAME.reset(token)


class Sender:
    """Holds a guarded response back until it is recorded."""

    def __init__(self, frame: Frame, send: Any) -> None:
        self.frame, self.send, self.done = frame, send, False
        self.start: Any = None
        self.body = bytearray()

    async def __call__(self, message: Any) -> None:
        operation = self.frame.operation
        if self.frame.error is not None:  # something in between has made an answer of it
            raise Unfinished()
        if operation is None or self.done or message["type"] not in ("http.response.start", "http.response.body"):
            self.done = True
            await self.send(message)
        elif message["type"] == "http.response.start":
            self.start = message
        else:
            self.body += message.get("body", b"")
            if not message.get("more_body", False):
                await self.finish(operation)

    async def finish(self, operation: AsyncOperation) -> None:
        fields = [(name.decode("latin-1"), header_text(value)) for name, value in self.start.get("headers", ())]
        response = Response(self.start["status"], fields, bytes(self.body))
        attempts = self.frame.attempts
        assert attempts
        try:
            self.frame.finishing = asyncio.ensure_future(wherever(operation, attempts.finish(response)))
            await asyncio.shield(self.frame.finishing)
        except Exception as error:
            self.frame.error, self.frame.finishing = error, None
            raise Unfinished() from error
        self.done = True
        await self.send(self.start)
        await self.send({"type": "http.response.body", "body": response.body})


async def read(receive: Any) -> Optional[bytes]:
    body, more = bytearray(), True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False) and message["type"] == "http.request"
        if len(body) > BODY_LIMIT:
            return None
    return bytes(body)


def again(body: bytes, receive: Any) -> Any:
    """The body once more, then what follows it."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Any:
        return messages.pop() if messages else await receive()

    return next_message


async def answer(send: Any, response: Response) -> None:
    headers = [(name.lower(), value) for name, value in response.sent_headers]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


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
        if len(body) > BODY_LIMIT:
            return self.send(Response.json({"error": "the body is too large"}, 413), start_response)

        async def produce(operation: AsyncOperation) -> Response:
            made: Response = await attempt(operation, lambda: self.collect({**environ, "wsgi.input": io.BytesIO(body)}))
            return made

        return self.send(drive(run(self.guard.connect, Request.of(environ), self.guard.options, produce)), start_response)

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

    def send(self, response: Response, start_response: Any) -> List[bytes]:
        from http import HTTPStatus
        reason = HTTPStatus(response.status).phrase if response.status in set(HTTPStatus) else "Status"
        start_response(f"{response.status} {reason}",
                       [(name.decode(), value.decode("latin-1")) for name, value in response.sent_headers])
        return [response.body]
