"""`with once.operation(...)` on every driver, with a real PostgreSQL (ONCE_PG_URL)."""
import asyncio
import contextlib
import itertools
import os
import threading
import time

import asyncpg
import psycopg
import psycopg2
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import once
from once.operation import Options
from once.operation import run as run_operation
from once.transport import drive, find

URL = os.environ["ONCE_PG_URL"]
numbers = itertools.count(1)


def psycopg3():
    return contextlib.closing(psycopg.connect(URL, row_factory=psycopg.rows.dict_row))


def psycopg3_autocommit():
    return contextlib.closing(psycopg.connect(URL, autocommit=True))


def second():
    return contextlib.closing(psycopg2.connect(URL))


def engine(driver="psycopg"):
    return sqlalchemy.create_engine("postgresql+%s://" % driver, creator=lambda: __import__(driver).connect(URL),
                                    poolclass=sqlalchemy.NullPool)


def session():
    return Session(engine())


def session2():
    return Session(engine("psycopg2"))


def core():
    return engine().connect()


async def psycopg3_async():
    return await psycopg.AsyncConnection.connect(URL)


@contextlib.asynccontextmanager
async def closing(connection):
    yield connection
    await connection.close()


async def asyncpg_():
    return closing(await asyncpg.connect(URL))


async def async_session():
    return AsyncSession(create_async_engine("postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(URL),
                                            poolclass=sqlalchemy.NullPool))


def request(key=None, body=b"{}", claim=None):
    return once.Request("POST", "/orders", [("Idempotency-Key", key or f"unit-{next(numbers)}")] +
                        ([("Once-Claim", claim)] if claim else []), body)


@pytest.fixture(scope="module", autouse=True)
def table():
    with psycopg.connect(URL, autocommit=True) as db:
        db.execute("CREATE TABLE IF NOT EXISTS effects (name text)")
        yield


def count(name):
    with psycopg.connect(URL) as db:
        return db.execute("SELECT count(*) FROM effects WHERE name = %s", (name,)).fetchone()[0]


def run_sql(connection, name):
    if hasattr(connection, "exec_driver_sql"):
        connection.exec_driver_sql("INSERT INTO effects VALUES (%s)", (name,))
    elif hasattr(connection, "get_bind"):
        connection.execute(sqlalchemy.text("INSERT INTO effects VALUES (:n)"), {"n": name})
    else:
        connection.cursor().execute("INSERT INTO effects VALUES (%s)", (name,))


@pytest.mark.parametrize("make", [psycopg3, psycopg3_autocommit, second, session, session2, core], ids=lambda make: make.__name__)
def test_block(make):
    asked = request()
    with make() as db:
        with once.operation(db, asked, scope="t") as op:
            run_sql(db, asked.key)
            assert op.resume() == (None, None) and op.derive("charge").startswith("d2-")
            op.lock("order:1")
            op.emit("orders", "o-1", "placed", {"n": "é"})
            op.respond({"id": 7}, 201)
        with pytest.raises(once.Answered) as caught:
            with once.operation(db, asked, scope="t"):
                pytest.fail("ran twice")
    told = caught.value.response
    assert (told.status, told.body) == (201, b'{"id":7}') and ("Idempotent-Replayed", "true") in told.headers
    assert count(asked.key) == 1


@pytest.mark.parametrize("make", [psycopg3, psycopg3_autocommit, second, session, core], ids=lambda make: make.__name__)
def test_exception_frees_the_key(make):
    asked = request()
    with make() as db:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                with once.operation(db, asked, scope="t"):
                    run_sql(db, asked.key)
                    raise ZeroDivisionError
        with pytest.raises(RuntimeError, match="op.respond"):
            with once.operation(db, asked, scope="t"):
                run_sql(db, asked.key)
    assert count(asked.key) == 0


@pytest.mark.parametrize("make", [psycopg3, second, core], ids=lambda make: make.__name__)
def test_success_after_a_failed_statement(make):
    """The handler swallowed an error of the database: its statements are gone, so a 201 is not recorded; a refusal is."""
    asked, refused = request(), request()
    with make() as db:
        with pytest.raises(RuntimeError, match="a statement had failed"):
            with once.operation(db, asked, scope="t") as op:
                run_sql(db, asked.key)
                with contextlib.suppress(Exception):
                    (db.exec_driver_sql if make is core else db.cursor().execute)("SELECT 1 / 0")
                op.respond({"id": 7}, 201)
        with once.operation(db, asked, scope="t") as op:  # the key is free
            run_sql(db, asked.key)
            op.respond({"id": 7}, 201)
        with once.operation(db, refused, scope="t") as op:
            with contextlib.suppress(Exception):
                (db.exec_driver_sql if make is core else db.cursor().execute)("SELECT 1 / 0")
            op.respond({"error": "no"}, 409)
        with pytest.raises(once.Answered) as caught:
            with once.operation(db, refused, scope="t"):
                pytest.fail("ran twice")
    assert caught.value.response.status == 409 and count(asked.key) == 1


@pytest.mark.parametrize("make", [psycopg3_async, asyncpg_, async_session], ids=lambda make: make.__name__)
def test_async_block(make):
    asked = request()

    async def run():
        async with await make() as db:
            async with once.operation(db, asked, scope="t") as op:
                if isinstance(db, AsyncSession):
                    await db.execute(sqlalchemy.text("INSERT INTO effects VALUES (:n)"), {"n": asked.key})
                elif isinstance(db, asyncpg.Connection):
                    await db.execute("INSERT INTO effects VALUES ($1)", asked.key)
                else:
                    await db.execute("INSERT INTO effects VALUES (%s)", (asked.key,))
                await op.checkpoint("done", {"a": 1})
                assert await op.resume() == ("done", {"a": 1})
                op.respond(b"\x00\xff", 200, [("X-A", "1")])
            with pytest.raises(once.Answered) as caught:
                async with once.operation(db, asked, scope="t"):
                    pytest.fail("ran twice")
            return caught.value.response

    told = asyncio.run(run())
    assert told.body == b"\x00\xff" and ("X-A", "1") in told.headers and count(asked.key) == 1


@pytest.mark.parametrize("make", [psycopg3, second, session, session2, core], ids=lambda make: make.__name__)
def test_joins_the_callers_transaction(make):
    """In a transaction that the caller has begun, the caller's COMMIT decides; what the block undoes is its own."""
    asked, before = request(), next(numbers)
    with make() as db:
        run_sql(db, f"before-{before}")
        with once.operation(db, asked, scope="t") as op:
            run_sql(db, asked.key)
            op.respond({})
        db.rollback()
        assert count(asked.key) == count(f"before-{before}") == 0
        run_sql(db, f"before-{before}")
        with pytest.raises(ZeroDivisionError), once.operation(db, asked, scope="t"):
            run_sql(db, asked.key)
            raise ZeroDivisionError
        db.commit()
    assert (count(asked.key), count(f"before-{before}")) == (0, 1)


@pytest.mark.parametrize("make", [psycopg3, second, session, session2, core], ids=lambda make: make.__name__)
def test_connect_returns_a_connection_in_a_transaction(make):
    """Begun by a SET, for instance: nobody else would commit it, so the operation does. A refusal is recorded, too."""
    asked, refused, runs = request(), request(), []

    @contextlib.contextmanager
    def connect():
        with make() as db:
            run_sql(db, asked.key + " before")
            yield db

    async def produce(op):
        run_sql(op.connection, op.request.key)
        runs.append(op.request.key)
        if op.request is refused:
            await op.fail(ValueError())
            return once.Response(409)
        return once.Response(201)

    options = Options("t")
    for each, status in ((asked, 201), (asked, 201), (refused, 409), (refused, 409)):
        assert drive(run_operation(connect, each, options, produce)).status == status
    assert runs == [asked.key, refused.key] and count(asked.key) == 1 and count(refused.key) == 0


@pytest.mark.parametrize("make", [psycopg3_async, asyncpg_, async_session], ids=lambda make: make.__name__)
def test_connect_returns_an_async_connection_in_a_transaction(make):
    asked = request()

    @contextlib.asynccontextmanager
    async def connect():
        made = await make()
        async with made if make is not psycopg3_async else closing(made) as db:
            if make is asyncpg_:
                await db.transaction().start()
            else:
                await db.execute(sqlalchemy.text("SELECT 1") if make is async_session else "SELECT 1")
            yield db

    async def produce(op):
        text = f"INSERT INTO effects VALUES ('{asked.key}')"
        await op.connection.execute(sqlalchemy.text(text) if make is async_session else text)
        return once.Response(201)

    assert asyncio.run(run_operation(connect, asked, Options("t"), produce)).status == 201
    assert count(asked.key) == 1


def test_scoped_session():
    asked, scoped = request(), scoped_session(sessionmaker(engine()))
    with once.operation(scoped, asked, scope="t") as op:
        run_sql(scoped, asked.key)
        op.respond({}, 201)
    assert op.connection is scoped() and count(asked.key) == 1


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2", "asyncpg"])
def test_autocommit(driver):
    """Refused before anything is done: statements would be committed one by one."""
    asked = request()
    made = dict(poolclass=sqlalchemy.NullPool, isolation_level="AUTOCOMMIT")

    async def run():
        options = create_async_engine("postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(URL), **made)
        async with options.connect() as db, once.operation(db, asked, scope="t"):
            pytest.fail("ran")

    with pytest.raises(TypeError, match="AUTOCOMMIT"):
        if driver == "asyncpg":
            asyncio.run(run())
        plain = sqlalchemy.create_engine(f"postgresql+{driver}://", creator=lambda: __import__(driver).connect(URL), **made)
        with plain.connect() as db, once.operation(db, asked, scope="t"):
            pytest.fail("ran")


def test_waits():
    """For the one that is at work, instead of refusing."""
    asked, answers = request(), []

    def second_request():
        try:
            with psycopg.connect(URL, application_name="waits") as db, once.operation(db, asked, scope="t", wait=True):
                pytest.fail("ran twice")
        except once.Answered as answer:
            answers.append(answer.response.body)

    with psycopg.connect(URL) as db, psycopg.connect(URL, autocommit=True) as watch:
        with once.operation(db, asked, scope="t") as op:
            with psycopg.connect(URL) as other, pytest.raises(once.Answered, match="409"):
                with once.operation(other, asked, scope="t"):
                    pytest.fail("ran twice")
            thread = threading.Thread(target=second_request)
            thread.start()
            for _ in range(600):
                if watch.execute("SELECT FROM pg_stat_activity WHERE application_name = 'waits' "
                                 "AND wait_event_type = 'Lock'").rowcount:
                    break
                time.sleep(0.05)
            op.respond({"id": 1})
    thread.join()
    assert answers == [b'{"id":1}']


def test_released_after_a_checkpoint():
    """What a checkpoint has committed stays; the key is free at once, and the next attempt goes on behind it."""
    asked = request()
    with psycopg.connect(URL) as db:
        with pytest.raises(ZeroDivisionError):
            with once.operation(db, asked, scope="t") as op:
                run_sql(db, asked.key)
                op.checkpoint("reserved")
                raise ZeroDivisionError
        with once.operation(db, asked, scope="t") as op:
            assert op.resume() == ("reserved", None)
            op.respond({})
    assert count(asked.key) == 1


@pytest.mark.parametrize("conflicts, status", [(1, 201), (6, 503)])
def test_conflict_after_a_checkpoint(conflicts, status):
    """The next attempt goes on behind the checkpoint with the claim that it has; after the last one the key is free."""
    asked, seen = request(), []

    def connect():
        return psycopg.connect(URL)

    async def produce(op):
        seen.append((await op.resume())[0])
        if seen[-1] is None:
            run_sql(op.connection, asked.key)
            await op.checkpoint("reserved")
        if len(seen) <= conflicts:
            with psycopg.connect(URL) as other:
                op.connection.execute("ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM effects")
                other.execute("UPDATE effects SET name = name WHERE name = %s", (asked.key,))
                other.commit()
                op.connection.execute("UPDATE effects SET name = name WHERE name = %s", (asked.key,))
        return once.Response(201)

    assert drive(run_operation(connect, asked, Options("t"), produce)).status == status
    assert seen == [None] + ["reserved"] * (conflicts if status == 201 else 5)
    assert drive(run_operation(connect, asked, Options("t"), produce)).status == 201 and count(asked.key) == 1


def test_claim_that_was_released_in_between():
    """The answer to the release was lost: the next attempt claims anew."""
    asked, seen = request(), []

    async def produce(op):
        seen.append((await op.resume())[0])
        if seen == [None]:
            await op.checkpoint("reserved")
            with psycopg.connect(URL, autocommit=True) as other:
                other.execute("SELECT once.release(%s)", (op.claim,))
                other.execute("SELECT pg_terminate_backend(%s)", (op.connection.info.backend_pid,))
            op.connection.execute("SELECT 1")
        return once.Response(201)

    assert drive(run_operation(lambda: psycopg.connect(URL), asked, Options("t"), produce)).status == 201
    assert seen == [None, "reserved"]


def test_cancelled_while_it_ends():
    """The transaction is rolled back: the connection can be used again, and the key is free."""
    asked = request()

    async def run():
        async with await psycopg.AsyncConnection.connect(URL) as db:
            block = once.operation(db, asked, scope="t")

            async def cancelled(response):
                raise asyncio.CancelledError

            with pytest.raises(asyncio.CancelledError):
                async with block as op:
                    await db.execute("INSERT INTO effects VALUES (%s)", (asked.key,))
                    op.respond({}, 201)
                    op.finish = cancelled
            assert db.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
            async with once.operation(db, asked, scope="t") as op:
                op.respond({}, 201)

    asyncio.run(run())
    assert count(asked.key) == 0


def test_stale_claim():
    """A gate's claim that was taken over: the application answers 503, and changes nothing."""
    asked = request()
    with psycopg.connect(URL, autocommit=True) as db:
        claim, = db.execute("SELECT claim FROM once.claim('t', %s, 'POST', '/orders', '{}')", (asked.key,)).fetchone()
        db.execute("SELECT once.release(%s)", (claim,))
        with pytest.raises(once.Answered, match="503"):
            with once.operation(db, request(asked.key, claim=claim)):
                pytest.fail("ran")


def test_erased():
    """The texts are gone, the outcome stays."""
    asked = request()
    with psycopg.connect(URL, autocommit=True) as db:
        with once.operation(db, asked, scope="t") as op:
            op.respond({"name": "Jos\u00e9"}, 201)
        db.execute("SELECT once.erase(%s)", (op.claim,))
        with pytest.raises(once.Answered) as caught:
            with once.operation(db, asked, scope="t"):
                pytest.fail("ran twice")
    assert caught.value.response.status == 201 and ("Once-Body", "erased") in caught.value.response.headers
    assert caught.value.response.body == b""


def test_accept():
    with psycopg.connect(URL) as db:
        bound = once.bind(db)
        assert [bound.accept("ledger", "unit-1"), bound.accept("ledger", "unit-1")] == [True, False]


def test_unknown_connection():
    assert find(object()) is None
    with pytest.raises(TypeError, match="not a connection that once knows"):
        once.bind(object())


def test_scope_is_needed():
    with psycopg.connect(URL) as db, pytest.raises(once.Answered, match="400"):
        with once.operation(db, request(), scope=lambda _: ""):
            pytest.fail("ran")
