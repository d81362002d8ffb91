"""How an operation reaches its records: here the functions of the schema `once`, on the connection of the caller's own transaction.

A transport makes named calls and owns a transaction. Everything is written as coroutines; those of blocking drivers never
suspend, so that `drive` runs them to their end without an event loop.
"""
from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
import time
from typing import Any, Callable, Coroutine, Dict, Iterator, Optional, Sequence, Type, TypeVar

Row = Optional[Sequence[Any]]
T = TypeVar("T")

ANSWER = "status, headers::text, body, stored, extract(epoch FROM expires)::float8"
CALLS = {
    "claim": f"SELECT outcome, claim, extract(epoch FROM retry_after)::float8, {ANSWER} FROM once.claim("
             "$1::text, $2::text, $3::text, $4::text, $5::bytea, 'transactional', "
             "make_interval(secs => $6::float8), make_interval(secs => $7::float8), "
             "$8::boolean, $9::text::uuid)",
    "renew": "SELECT once.renew($1::text)",
    "complete": "SELECT once.complete($1::text, $2::integer, $3::text::jsonb, $4::bytea)",
    "recorded": f"SELECT {ANSWER} FROM once.recorded($1::text)",
    "release": "SELECT once.release($1::text)",
    "emit": "SELECT once.emit($1::text, $2::text, $3::text, $4::bytea, $5::text::jsonb, $6::text)::text",
    "accept": "SELECT once.accept($1::text, $2::text)",
    "derive": "SELECT once.derive($1::text, $2::text)",
    "checkpoint": "SELECT once.checkpoint($1::text, $2::text, $3::text::jsonb)",
    "resume": "SELECT name, state::text FROM once.resume($1::text)",
    "lock": "SELECT once.lock($1::text)",
}
FORMAT = {name: re.sub(r"\$\d", "%s", text) for name, text in CALLS.items()}
DRIVERS = ("psycopg", "psycopg2", "psycopg_pool", "asyncpg", "sqlalchemy", "django")
CONFLICTS = ("40001", "40P01")


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise TypeError("this handler is not async, but its connection is: use a blocking driver, or an async handler")


def sqlstate(error: Optional[BaseException]) -> str:
    """Of a driver's error, or of the one that SQLAlchemy or Django has wrapped."""
    while error is not None:
        found = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        if found:
            return str(found)
        error = getattr(error, "orig", None) or error.__cause__
    return ""


def is_drivers(error: BaseException) -> bool:
    """Raised by a driver, or by what stands between it and the application."""
    return any(kind.__module__.partition(".")[0] in DRIVERS for kind in type(error).__mro__)


async def resolve(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def enter(manager: Any) -> Any:
    return await resolve((getattr(manager, "__aenter__", None) or manager.__enter__)())


async def leave(manager: Any, error: Optional[BaseException] = None) -> None:
    await resolve((getattr(manager, "__aexit__", None) or manager.__exit__)(type(error) if error else None, error, None))


class Transport:
    """One connection and its transaction. This one is psycopg 3's, blocking or not."""
    transactional = True  # the handler's effects are rolled back with the record
    owns = False  # the connection is the operation's own, which `connect` has returned
    is_around = False  # it was in a transaction already, which is the operation's to commit

    def __init__(self, connection: Any, blocking: bool = True) -> None:
        self.connection, self.blocking = connection, blocking
        self.block: Any = None  # the context manager of the transaction

    @property
    def in_transaction(self) -> bool:
        """Begun by somebody else: `transaction` is a savepoint then."""
        return bool(self.connection.info.transaction_status)

    def transaction(self) -> Any:
        return self.connection.transaction()

    def cursor(self) -> Any:
        from psycopg.rows import tuple_row  # whatever the application's own rows are
        return self.connection.cursor(row_factory=tuple_row)

    @property
    def broken(self) -> bool:
        return bool(self.connection.closed)

    async def call(self, name: str, *values: Any) -> Row:
        cursor = self.cursor()
        try:
            await resolve(cursor.execute(FORMAT[name], values))
            row: Row = await resolve(cursor.fetchone())
            return row
        finally:
            await resolve(cursor.close())

    async def begin(self) -> None:
        self.is_around = self.owns and self.in_transaction
        block = self.transaction()
        await enter(block)
        self.block = block

    async def commit(self) -> None:
        """A savepoint of the operation's own connection is not enough: nobody else would commit what is around it."""
        block, self.block = self.block, None
        await leave(block)
        if self.is_around:
            await self.commit_around()

    async def commit_around(self) -> None:
        await resolve(self.connection.commit())

    async def rollback(self) -> None:
        block, self.block = self.block, None
        if block is None:
            return
        reason = RuntimeError("rolled back")
        try:
            await leave(block, reason)
        except Exception as error:
            if error is not reason and not self.broken and not is_drivers(error):
                raise

    async def close(self) -> None:
        await resolve(self.connection.close())

    async def pause(self, seconds: float) -> None:
        if self.blocking:
            time.sleep(seconds)
        else:
            await asyncio.sleep(seconds)


class Psycopg2(Transport):
    """Its connection is a manager of transactions, and commits all that it is in."""

    def transaction(self) -> Any:
        return self.savepoint() if self.in_transaction else self.connection

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        with self.cursor() as cursor:
            cursor.execute("SAVEPOINT once")
            try:
                yield
            except BaseException:
                cursor.execute("ROLLBACK TO SAVEPOINT once")
                raise
            cursor.execute("RELEASE SAVEPOINT once")

    def cursor(self) -> Any:
        from psycopg2.extensions import cursor
        return self.connection.cursor(cursor_factory=cursor)


class Asyncpg(Transport):
    @property
    def in_transaction(self) -> bool:
        return bool(self.connection.is_in_transaction())

    async def commit_around(self) -> None:
        await self.connection.execute("COMMIT")

    async def call(self, name: str, *values: Any) -> Row:
        row: Row = await self.connection.fetchrow(CALLS[name], *values)
        return row

    @property
    def broken(self) -> bool:
        return bool(self.connection.is_closed())


class SQLAlchemy(Transport):
    """A Session or a Connection. Its errors say whether the connection is lost."""
    broken = False

    @property
    def in_transaction(self) -> bool:
        return bool(self.connection.in_transaction())

    def transaction(self) -> Any:
        return self.connection.begin_nested() if self.in_transaction else self.connection.begin()

    async def inner(self) -> Any:
        """The Connection of a Session."""
        return await resolve(self.connection.connection()) if hasattr(self.connection, "get_bind") else self.connection

    async def begin(self) -> None:
        await super().begin()
        connection = await self.inner()
        driver = getattr(connection, "sync_connection", connection).connection.dbapi_connection
        if getattr(driver, "autocommit", False) is True or getattr(driver, "isolation_level", None) == "autocommit":
            raise TypeError("the connection has isolation_level AUTOCOMMIT, so that every statement would be committed by itself: "
                            "give once an engine or a connection without it")

    async def call(self, name: str, *values: Any) -> Row:
        connection = await self.inner()
        text = CALLS[name] if connection.dialect.paramstyle == "numeric_dollar" else FORMAT[name]
        row: Row = (await resolve(connection.exec_driver_sql(text, values))).fetchone()
        return row


class Django(Transport):
    in_transaction = False  # what is around is an atomic block, which commits before the response is sent
    raw: Any = None  # the driver's connection: Django replaces a lost one without a word

    def transaction(self) -> Any:
        from django.db import transaction
        return transaction.atomic(using=self.connection.alias)

    def cursor(self) -> Any:
        return self.connection.cursor()

    @property
    def broken(self) -> bool:
        return self.raw is None or bool(self.raw.closed)

    async def begin(self) -> None:
        await super().begin()
        self.raw = self.connection.connection

    async def close(self) -> None:
        if self.broken:  # otherwise it is Django's to keep
            self.connection.close()


class Records:
    """Records that are not in the caller's database: each operation gets a transport of its own."""

    def __call__(self) -> Transport:
        raise NotImplementedError


KINDS: Dict[str, Type[Transport]] = {
    "psycopg.Connection": Transport, "psycopg.AsyncConnection": Transport, "psycopg2.connection": Psycopg2,
    "asyncpg.Connection": Asyncpg, "asyncpg.PoolConnectionProxy": Asyncpg,
    "sqlalchemy.Session": SQLAlchemy, "sqlalchemy.Connection": SQLAlchemy,
    "sqlalchemy.AsyncSession": SQLAlchemy, "sqlalchemy.AsyncConnection": SQLAlchemy,
    "django.BaseDatabaseWrapper": Django, "django.ConnectionProxy": Django,
}


def find(connection: Any) -> Optional[Transport]:
    """Without importing a driver that the application does not use."""
    if isinstance(connection, (Transport, Records)):
        return connection if isinstance(connection, Transport) else connection()
    names = [kind.__module__.partition(".")[0].lstrip("_") + "." + kind.__name__ for kind in type(connection).__mro__]
    if names[0] in ("sqlalchemy.scoped_session", "sqlalchemy.async_scoped_session"):
        return find(connection())  # the Session of this thread or task
    name = next((name for name in names if name in KINDS), None)
    return KINDS[name](connection, not ("Async" in name or "asyncpg" in name)) if name else None


def of(connection: Any) -> Transport:
    found = find(connection)
    if found is None:
        raise TypeError(f"{type(connection).__module__}.{type(connection).__name__} is not a connection that once knows: psycopg, "
                        "psycopg2, asyncpg, SQLAlchemy, Django, once.Store")
    return found


class Source:
    """The connection of one attempt, from whatever `connect` returns: a connection, a context manager, or an awaitable of one."""
    keeps = False  # the connection is not ours to close

    def __init__(self, connect: Callable[[], Any]) -> None:
        self.connect = connect
        self.manager: Any = None

    async def open(self) -> Transport:
        transport = await self._open()
        transport.owns = not self.keeps
        return transport

    async def _open(self) -> Transport:
        made = self.connect()
        is_manager = hasattr(made, "__aenter__") or hasattr(made, "__enter__")
        if not is_manager or isinstance(find(made), Psycopg2):  # which is a manager of transactions
            return of(await resolve(made))
        entered = await enter(made)
        self.manager = made
        return of(entered)

    async def close(self, transport: Transport, error: Optional[BaseException] = None) -> None:
        manager, self.manager = self.manager, None
        if manager is not None:
            await leave(manager, error)
        elif not self.keeps or not transport.transactional:
            await transport.close()
