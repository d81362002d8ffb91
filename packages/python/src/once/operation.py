"""One operation: claimed, run and recorded in one transaction, and repeated when the transaction could not be."""
from __future__ import annotations

import json
import logging
import random
import uuid
from contextvars import ContextVar
from typing import Any, Awaitable, Callable, Dict, Iterable, Optional, Tuple, Union

from .message import Answered, Request, Response, problem, to_bytes, to_json
from .transport import CONFLICTS, Row, Source, Transport, drive, is_drivers, of, sqlstate

log = logging.getLogger("once")
Scope = Union[str, Callable[[Request], str]]
FAILED_TRANSACTION = "25P02"


class Options:
    """`scope`: whose key it is, as text or as a function of the request; a client must not be able to choose it. `wait`: for a
    request with the same key that is at work, instead of 409. `lease`: seconds for which a checkpoint holds the key. `ttl`:
    seconds for which the response is kept. `attempts`: of the transaction, when it conflicts or its connection is lost."""

    def __init__(self, scope: Scope, wait: bool = False, lease: float = 30, ttl: float = 86400, attempts: int = 6) -> None:
        self.scope, self.wait, self.lease, self.ttl, self.attempts = scope, wait, lease, ttl, attempts


class Ticket:
    """One request, over all attempts at it."""

    def __init__(self, request: Request, options: Options) -> None:
        self.request, self.options = request, options
        self.claim = self.gates_claim = request.claim
        self.claim_id, self.attempt = str(uuid.uuid4()), 0

    @property
    def scope(self) -> str:
        scope = self.options.scope
        found = scope(self.request) if callable(scope) else scope
        if not found:
            raise problem("scope-missing")
        return found


def replay(row: Row, marked: bool) -> Answered:
    status, headers, body, stored = row or (0, "[]", b"", "missing")
    if stored not in ("plain", "omitted", "erased"):
        return problem("store-unavailable", f"the response is stored in a form that only a gateway reads: {stored}")
    fields = [(name, value) for name, value in json.loads(headers or "[]")]
    fields += [("Once-Body", stored)] if stored != "plain" else []
    return Answered(Response(status, fields + ([("Idempotent-Replayed", "true")] if marked else []), bytes(body or b"")))


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
    def __init__(self, transport: Transport, ticket: Ticket) -> None:
        super().__init__(transport)
        self.ticket, self.request = ticket, ticket.request
        self.response: Optional[Response] = None
        self.error: Optional[BaseException] = None  # what the handler raised; its statements are rolled back
        self.has_checkpoint = False

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

    async def start(self) -> None:
        """The transaction begins, and this request holds the key. Raises Answered if there is nothing to run."""
        try:
            await self._start()
        except Exception:
            await self.transport.rollback()
            raise

    async def _start(self) -> None:
        ticket = self.ticket
        if not ticket.gates_claim:
            ticket.request.key  # pylint: disable=pointless-statement
        await self.transport.begin()
        if ticket.attempt > 1 and ticket.claim:  # the reply to its COMMIT may have been lost
            row = await self.transport.call("recorded", ticket.claim)
            if row:
                raise replay(row, False)
        self.claim = ticket.claim = await (self._renew(ticket.gates_claim) if ticket.gates_claim else self._claim())

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
            if state == "ON001":  # taken over: the gate answers with what the record says
                raise problem("store-unavailable", retry_after=1) from error
            raise

    async def _claim(self) -> str:
        ticket, request = self.ticket, self.request
        row = await self.transport.call("claim", ticket.scope, request.key, request.method, request.target, request.body,
                                        ticket.options.lease, ticket.options.ttl, ticket.options.wait, ticket.claim_id)
        outcome, claim, retry_after = (row or ("busy", None, 1))[:3]
        if outcome in ("run", "mine"):
            return str(claim)
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
        """Records the response with the effects of the handler. What did not work is raised."""
        if self.error is not None and self.is_repeatable(self.error):
            raise self.error
        if not response.is_final:
            await self.transport.rollback()
            await self._release()
            return response
        try:
            if self.error is None:
                await self._complete(response)
                return response
        except Exception as error:
            if sqlstate(error) != FAILED_TRANSACTION:  # that one had no effects any more
                raise
            await self.transport.rollback()
        await self.transport.begin()
        self.claim = await (self._renew(self.ticket.gates_claim) if self.ticket.gates_claim else self._claim())
        await self._complete(response)
        return response

    async def _complete(self, response: Response) -> None:
        headers = to_json(response.recorded_headers).decode()
        await self._value("complete", self.claim, response.status, headers, response.body)
        await self.transport.commit()

    async def _release(self) -> None:
        """Checkpoints have committed the claim: the next request need not wait for its lease."""
        if self.has_checkpoint and not self.ticket.gates_claim and not self.transport.broken:
            await self.transport.begin()
            await self._value("release", self.claim)
            await self.transport.commit()

    async def abandon(self) -> None:
        await self.transport.rollback()
        await self._release()

    def is_repeatable(self, error: BaseException) -> bool:
        """A conflict with another transaction, or a connection that was lost: the same again may work."""
        if not is_drivers(error) and not isinstance(error, OSError):
            return False
        state, transport = sqlstate(error), self.transport
        never_there = not state and self.claim is None and (isinstance(error, OSError) or type(error).__name__ == "OperationalError")
        lost = state[:2] == "08" or transport.broken or bool(getattr(error, "connection_invalidated", False))
        return state in CONFLICTS or lost or never_there


class Attempts:
    """Attempts at one request until one of them is through: `open`, then `finish` or `fail`, which says whether to go on."""

    def __init__(self, connect: Callable[[], Any], request: Request, options: Options) -> None:
        self.ticket, self.source = Ticket(request, options), Source(connect)
        self.operation: Optional[AsyncOperation] = None

    async def open(self) -> AsyncOperation:
        self.ticket.attempt += 1
        self.operation = AsyncOperation(await self.source.open(), self.ticket)
        await self.operation.start()
        return self.operation

    async def finish(self, response: Response) -> Response:
        assert self.operation
        sent = await self.operation.finish(response)
        transport, self.operation = self.operation.transport, None
        await self.source.close(transport)
        return sent

    async def drop(self, error: BaseException) -> None:
        """Ends the attempt: rolled back, its connection given back."""
        operation, self.operation = self.operation, None
        if operation is not None:
            try:
                await operation.abandon()
            finally:
                await self._give_back(operation.transport, error)

    async def fail(self, error: BaseException) -> None:
        """Returns if the next attempt is due, and raises what is to be answered otherwise."""
        operation = self.operation
        if operation is None:  # no connection
            if isinstance(error, OSError) or is_drivers(error):
                raise problem("store-unavailable", retry_after=1) from error
            raise error
        repeatable = operation.is_repeatable(error)
        await self.drop(error)
        if not repeatable:
            raise error
        log.warning("attempt %d of %d: %s %s", self.ticket.attempt, self.ticket.options.attempts, sqlstate(error),
                    type(error).__name__)
        if self.ticket.attempt >= self.ticket.options.attempts:
            raise problem("store-unavailable", retry_after=1) from error
        await operation.transport.pause(random.random() * 0.02 * 2 ** min(self.ticket.attempt, 6))

    async def _give_back(self, transport: Transport, error: BaseException) -> None:
        try:
            await self.source.close(transport, error)
        except Exception as raised:
            if raised is not error and not transport.broken and not is_drivers(raised):
                raise


async def run(connect: Callable[[], Any], request: Request, options: Options,
              produce: Callable[[AsyncOperation], Awaitable[Response]]) -> Response:
    """Runs `produce` until its response is recorded. Returns the response that the client gets."""
    attempts: Optional[Attempts] = None
    while True:
        try:
            attempts = attempts or Attempts(connect, request, options)
            return await attempts.finish(await produce(await attempts.open()))
        except Exception as error:
            try:
                if attempts is None:
                    raise
                await attempts.fail(error)
            except Answered as answer:
                return answer.response
        except BaseException as error:  # the process is to end, or its thread
            if attempts is not None:
                await attempts.drop(error)
            raise


class Bound:
    """The same for blocking connections."""

    def __init__(self, inner: AsyncBound) -> None:
        self._bound = inner
        self.connection = inner.connection

    def emit(self, topic: str, key: Optional[str], type: str, payload: object, headers: Optional[Dict[str, str]] = None) -> str:
        return drive(self._bound.emit(topic, key, type, payload, headers))

    def accept(self, subscriber: str, message_id: str) -> bool:
        return drive(self._bound.accept(subscriber, message_id))

    def lock(self, natural_key: str) -> None:
        drive(self._bound.lock(natural_key))


class Operation(Bound):
    def __init__(self, inner: AsyncOperation) -> None:
        super().__init__(inner)
        self._inner, self.request, self.claim, self.respond = inner, inner.request, inner.claim, inner.respond

    @property
    def response(self) -> Optional[Response]:
        return self._inner.response

    def derive(self, step: str) -> str:
        return drive(self._inner.derive(step))

    def checkpoint(self, name: str, state: object = None) -> None:
        drive(self._inner.checkpoint(name, state))

    def resume(self) -> Tuple[Optional[str], Any]:
        return drive(self._inner.resume())


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
        self.inner = AsyncOperation(of(connection), Ticket(Request.of(request), Options(scope, **options)))

    async def __aenter__(self) -> AsyncOperation:
        await self.inner.start()
        return self.inner

    async def __aexit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> None:
        if error is None and self.inner.response is not None:
            try:
                await self.inner.finish(self.inner.response)
                return
            except Exception:
                await self.inner.transport.rollback()
                raise
        await self.inner.abandon()
        if error is None:
            raise RuntimeError("the operation has no response to record: call op.respond(...) in the block")

    def __enter__(self) -> Operation:
        return Operation(drive(self.__aenter__()))

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> None:
        drive(self.__aexit__(kind, error, trace))
