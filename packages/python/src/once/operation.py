"""One operation: claimed, run and recorded, and repeated when its transaction could not be committed."""
from __future__ import annotations

import json
import logging
import random
import sys
import time
import uuid
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Coroutine, Dict, Iterable, Optional, Tuple, TypeVar, Union

from .message import EARLY, Answered, Release, Request, Response, expires, parse_key, problem, to_bytes, to_json
from .transport import CONFLICTS, Row, Source, Transport, drive, is_drivers, of, sqlstate

if TYPE_CHECKING:
    from typing import Concatenate, ParamSpec
    P = ParamSpec("P")

log = logging.getLogger("once")
T = TypeVar("T")
Scope = Union[str, Callable[[Request], str]]
FAILED_TRANSACTION, OVERTAKEN = "25P02", "ON001"


class Options:
    """`scope`: whose key it is, as text or as a function of the request; a client must not be able to choose it. `wait`: for a
    request with the same key that is at work, instead of 409. `lease`: seconds for which a claim that is committed holds the key.
    `ttl`: seconds for which the response is kept. `attempts`: of the transaction, when it conflicts or its connection is lost."""

    def __init__(self, scope: Scope, wait: bool = False, lease: float = 30, ttl: float = 86400, attempts: int = 6) -> None:
        self.scope, self.wait, self.lease, self.ttl, self.attempts = scope, wait, lease, ttl, attempts


def replay(row: Row, marked: bool) -> Answered:
    status, headers, body, stored, until = row or (0, "[]", b"", "missing", None)
    if stored not in ("plain", "omitted", "erased"):
        return problem("store-unavailable", f"the response is stored in a form that only a gateway reads: {stored}")
    fields = [(name, value) for name, value in json.loads(headers or "[]")]
    fields += [("Once-Body", stored)] if stored != "plain" else []
    fields += [expires(until)] if until else []
    return Answered(Response(status, fields + ([("Idempotent-Replayed", "true")] if marked else []), bytes(body or b"")))


def trace(**attributes: Any) -> None:
    """Attributes of the span that the application is in, if it uses OpenTelemetry: those that the gate sets."""
    module = sys.modules.get("opentelemetry.trace")
    if module is not None:
        module.get_current_span().set_attributes({f"once.{name}": value for name, value in attributes.items()})


class AsyncBound:
    """What any transaction may call, with a request or without one."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.claim: Optional[str] = None

    @property
    def connection(self) -> Any:
        return self.transport.connection

    async def _value(self, name: str, *values: Any) -> Any:
        row = await self.transport.call(name, *values)
        return row[0] if row else None

    async def emit(self, topic: str, key: Optional[str], type: str, payload: object,
                   headers: Optional[Dict[str, str]] = None) -> str:
        """Writes an event that `once relay` publishes if and only if the transaction commits. Returns its id."""
        text = to_json(headers or {}).decode()
        return str(await self._value("emit", topic, key, type, to_bytes(payload), text, self.claim))

    async def accept(self, subscriber: str, message_id: str) -> bool:
        """Whether the message is new to the subscriber: if so, handle it in this transaction."""
        return bool(await self._value("accept", subscriber, message_id))

    async def lock(self, natural_key: str) -> None:
        """One transaction at a time for an account, an order, and so on."""
        await self._value("lock", natural_key)


class AsyncOperation(AsyncBound):
    """One request, over all attempts at it: `open`, then `finish` or `go_on`, which says whether there is another."""

    def __init__(self, connect: Callable[[], Any], request: Request, options: Options) -> None:
        self.source, self.request, self.options = Source(connect), request, options
        self.claim = self.gates_claim = request.claim
        self.claim_id, self.attempt, self.is_open = str(uuid.uuid4()), 0, False
        self.has_checkpoint = False  # in any attempt: it has committed the claim
        self.response: Optional[Response] = None

    def respond(self, value: object, status: int = 200, headers: Iterable[Tuple[str, str]] = ()) -> Response:
        """The response to record: bytes and text as they are, everything else as JSON."""
        is_raw = isinstance(value, (bytes, str))
        self.response = Response(status, headers, to_bytes(value)) if is_raw else Response.json(value, status, headers)
        return self.response

    async def derive(self, step: str) -> str:
        """A key to send to a third party: the same in every attempt, another one for every operation and step."""
        return str(await self._value("derive", self.claim, step))

    async def checkpoint(self, name: str, state: object = None) -> None:
        """Commits what was done so far as the step `name`: a later attempt begins behind it. The next transaction begins without a
        lock on the record: while a third party is asked, this attempt can be overtaken, and is refused then."""
        await self._value("checkpoint", self.claim, name, to_json(state).decode())
        await self._value("renew", self.claim)
        await self.transport.commit()
        self.has_checkpoint = True
        await self.transport.begin()

    async def resume(self) -> Tuple[Optional[str], Any]:
        """The last checkpoint and its state; (None, None): begin at the beginning."""
        row = await self.transport.call("resume", self.claim)
        return (row[0], json.loads(row[1] or "null")) if row else (None, None)

    # ---------------------------------------------------------------------------------- for what is around the handler

    async def open(self) -> "AsyncOperation":
        """The transaction begins, and this request holds the key. Raises Answered if there is nothing to run."""
        self.attempt += 1
        self.error: Optional[BaseException] = None  # what the handler raised; its statements are rolled back
        self.holds = False
        if not self.gates_claim:
            self.request.key  # pylint: disable=pointless-statement
        self.transport = await self.source.open()
        self.is_open = True
        await self.transport.begin()
        if self.attempt > 1 and self.claim:  # the reply to its COMMIT may have been lost
            row = await self.transport.call("recorded", self.claim)
            if row:
                raise replay(row, False)
        await self._hold()
        self._trace("run")
        return self

    def _trace(self, outcome: str) -> None:
        keys = self.request.all("Idempotency-Key")
        trace(outcome=outcome, attempts=self.attempt, **({"key": parse_key(keys)} if keys else {}))

    async def _hold(self) -> None:
        """The claim of the gate, or one of its own. A claim of the gate in any store is the gate's to end."""
        self.claim = await (self._renew(self.gates_claim) if self.gates_claim else self._claim())
        self.holds = self.transport.transactional or not self.gates_claim

    async def _renew(self, claim: str) -> str:
        try:
            await self._value("renew", claim)
            return claim
        except Exception as error:
            state = sqlstate(error)
            if state == "ON002":  # delivered twice
                await self.transport.rollback()
                await self.transport.begin()
                raise replay(await self.transport.call("recorded", claim), False) from error
            if state == OVERTAKEN:  # the gate answers with what the record says
                raise problem("store-unavailable", retry_after=1) from error
            raise

    async def _claim(self) -> str:
        request, options = self.request, self.options
        scope = options.scope(request) if callable(options.scope) else options.scope
        if scope is None or scope == "":
            raise problem("scope-missing")
        if not isinstance(scope, str):
            raise TypeError(f"the scope has to be a str, and it is a {type(scope).__name__}")
        for _ in range(2):
            row = await self.transport.call("claim", scope, request.key, request.method, request.target, request.body,
                                            options.lease, options.ttl, options.wait, self.claim_id)
            outcome, claim, retry_after = (row or ("busy", None, 1))[:3]
            if outcome != "lost":
                break
            self.claim_id = str(uuid.uuid4())  # the claim of an earlier attempt was released
        if outcome in ("run", "mine"):
            return str(claim)
        self._trace(outcome)
        if outcome == "replay":
            raise replay((row or ())[3:], True)
        if outcome in ("mismatch", "unknown"):
            raise problem("key-reused" if outcome == "mismatch" else "outcome-unknown")
        raise problem("in-flight", retry_after=retry_after or 1)

    async def fail(self, error: BaseException) -> None:
        """The handler raised: what it did is undone. The answer that the framework makes of it may still be recorded."""
        self.error = error
        await self.transport.rollback()

    async def finish(self, response: Response) -> Response:
        """Records the response with the effects of the handler, and returns what the client gets: with headers of `once` behind the
        handler's own. What did not work is raised."""
        sent = await self._finish(response)
        self.is_open = False
        await self.source.close(self.transport)
        return sent

    async def _finish(self, response: Response) -> Response:
        if self.error is not None and self.is_repeatable(self.error):
            raise self.error
        if isinstance(self.error, Release) or self.transport.transactional and not response.is_final:
            await self.abandon(self.error)
            self._tell_gate(response, "retry")
            return response
        if not self.transport.transactional:
            # Whoever raised it cannot know what was done before: nothing is undone here, and a 429 may be that of a third party.
            verdict = "unknown" if self.error is not None and response.status in EARLY else None
            held, self.holds = self.holds, False
            row = await self.transport.call("finish", self.claim, response, verdict) if held else None
            if row:
                return replay(row, False).response
            if verdict:
                self._tell_gate(response, verdict)
                return response
        elif self.error is not None or not await self._complete(response):
            await self.transport.begin()
            await self._hold()
            await self._complete(response)
        if not self.gates_claim and response.is_final:
            response.headers.append(expires(time.time() + self.options.ttl))
        return response

    def _tell_gate(self, response: Response, outcome: str) -> None:
        """What it cannot see by the status; clients do not get it."""
        header = ("Once-Outcome", outcome)
        is_seen = response.status in EARLY and outcome == "retry" and not isinstance(self.error, Release)
        if self.gates_claim and not is_seen and header not in response.headers:
            response.headers.append(header)

    async def _complete(self, response: Response) -> bool:
        """False: the transaction had failed already, and has no effects any more."""
        try:
            await self._value("complete", self.claim, response.status, to_json(response.recorded_headers).decode(), response.body)
        except Exception as error:
            if sqlstate(error) != FAILED_TRANSACTION:
                raise
            if response.status < 400:  # a success without its effects must not be recorded
                raise RuntimeError(f"the response is {response.status}, but a statement had failed: raise its error") from error
            await self.transport.rollback()
            return False
        await self.transport.commit()
        return True

    async def abandon(self, error: Optional[BaseException], goes_on: bool = False) -> None:
        """Nothing is recorded. A claim that is committed (by a checkpoint, or because it is in any store) is given back, unless the
        next attempt goes on with it."""
        await self.transport.rollback()
        if isinstance(error, Release):
            self._tell_gate(error.response, "retry")
        if not self.transport.transactional:
            if self.holds:
                await self.transport.call("release" if isinstance(error, Release) else "doubt", self.claim)
        elif self.has_checkpoint and not goes_on and not self.gates_claim and not self.transport.broken:
            await self._release()
        self.holds = False

    async def _release(self) -> None:
        self.has_checkpoint = False
        await self.transport.begin()
        try:
            await self._value("release", self.claim)
        except Exception as error:
            await self.transport.rollback()
            if sqlstate(error) != OVERTAKEN:
                raise
        else:
            await self.transport.commit()

    def is_repeatable(self, error: BaseException) -> bool:
        """A conflict with another transaction, or a connection that was lost: the same again may work."""
        transport = self.transport
        if not transport.transactional or not is_drivers(error) and not isinstance(error, OSError):
            return False
        state = sqlstate(error)
        never_there = not state and not self.holds and (isinstance(error, OSError) or type(error).__name__ == "OperationalError")
        lost = state[:2] == "08" or transport.broken or bool(getattr(error, "connection_invalidated", False))
        return state in CONFLICTS or lost or never_there

    async def drop(self, error: BaseException, goes_on: bool = False) -> None:
        """Ends the attempt: rolled back, its connection given back."""
        if not self.is_open:
            return
        self.is_open = False
        try:
            await self.abandon(error, goes_on)
        finally:
            try:
                await self.source.close(self.transport, error)
            except Exception as raised:
                if raised is not error and not self.transport.broken and not is_drivers(raised):
                    raise

    async def go_on(self, error: BaseException) -> None:
        """Returns if the next attempt is due, and raises what is to be answered otherwise."""
        if not self.is_open and (isinstance(error, OSError) or is_drivers(error)):  # no connection
            raise problem("store-unavailable", retry_after=1) from error
        repeatable = self.is_open and self.is_repeatable(error)
        await self.drop(error, repeatable and self.attempt < self.options.attempts)
        if sqlstate(error) == OVERTAKEN:  # another attempt has the key, and its response
            raise problem("store-unavailable", retry_after=1) from error
        if not repeatable:
            raise error
        log.warning("attempt %d of %d: %s %s", self.attempt, self.options.attempts, sqlstate(error), type(error).__name__)
        if self.attempt >= self.options.attempts:
            raise problem("store-unavailable", retry_after=1) from error
        await self.transport.pause(random.random() * 0.02 * 2 ** min(self.attempt, 6))


async def run(connect: Callable[[], Any], request: Request, options: Options,
              produce: Callable[[AsyncOperation], Awaitable[Response]]) -> Response:
    """Runs `produce` until its response is recorded. Returns the response that the client gets."""
    try:
        operation = AsyncOperation(connect, request, options)
        while True:
            try:
                return await operation.finish(await produce(await operation.open()))
            except Exception as error:
                await operation.go_on(error)
            except BaseException as error:  # the process is to end, or its thread
                await operation.drop(error)
                raise
    except Answered as answer:
        return answer.response


def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return drive(method(self._inner, *args, **kwargs))
    call.__doc__ = method.__doc__
    return call


class Bound:
    """The same for blocking connections."""

    def __init__(self, inner: AsyncBound) -> None:
        self._inner, self.connection, self.claim = inner, inner.connection, inner.claim

    emit, accept, lock = blocking(AsyncBound.emit), blocking(AsyncBound.accept), blocking(AsyncBound.lock)


class Operation(Bound):
    def __init__(self, inner: AsyncOperation) -> None:
        super().__init__(inner)
        self.request, self.respond = inner.request, inner.respond

    @property
    def response(self) -> Optional[Response]:
        found: Optional[Response] = self._inner.response  # type: ignore[attr-defined]
        return found

    derive, checkpoint = blocking(AsyncOperation.derive), blocking(AsyncOperation.checkpoint)
    resume = blocking(AsyncOperation.resume)


CURRENT: ContextVar[AsyncOperation] = ContextVar("once.current")


def current_async() -> AsyncOperation:
    """The operation of the handler that is running."""
    found = CURRENT.get(None)
    if found is None:
        raise LookupError("no operation: the handler is not decorated with once.idempotent")
    return found


def current() -> Operation:
    return Operation(current_async())


def bind(connection: Any) -> Bound:
    """For a transaction without a request, such as that of a consumer: `once.bind(connection).accept("billing", event_id)`."""
    return Bound(AsyncBound(of(connection)))


def bind_async(connection: Any) -> AsyncBound:
    return AsyncBound(of(connection))


class operation:
    """`with once.operation(connection, request, scope=...) as op:` is the transaction, `op.respond` its response. One attempt: an
    exception rolls back and leaves the key free. Raises Answered if there is nothing to run. Also `async with`."""

    def __init__(self, connection: Any, request: Any, scope: Scope = "", **options: Any) -> None:
        self.inner = AsyncOperation(lambda: of(connection), Request.of(request), Options(scope, **options))
        self.inner.source.keeps = True

    async def __aenter__(self) -> AsyncOperation:
        try:
            return await self.inner.open()
        except BaseException as error:
            await self.inner.drop(error)
            raise

    async def __aexit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> None:
        inner, response = self.inner, self.inner.response
        try:
            if error is None and response is None:
                raise RuntimeError("the operation has no response to record: call op.respond(...) in the block")
            sent = await inner.finish(response) if error is None and response else response
        except BaseException as failed:  # also cancelled
            error = failed
            raise
        finally:
            if error is not None:
                await inner.drop(error)
        if sent is not None and sent is not response:  # overtaken: what the record says
            raise Answered(sent)

    def __enter__(self) -> Operation:
        return Operation(drive(self.__aenter__()))

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> None:
        drive(self.__aexit__(kind, error, trace))
