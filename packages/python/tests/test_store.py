"""`once.Store` with a real `once serve` on a store in memory."""
import asyncio
import contextlib
import itertools
import os
import subprocess
import threading
import time
import uuid
from email.utils import parsedate_to_datetime

import pytest

import once
from once.transport import drive

numbers = itertools.count(1)


@contextlib.contextmanager
def serve(path):
    program = os.path.join(os.environ["ONCE_BUILD"], "once")
    server = subprocess.Popen([program, "serve", f"local:{path}.d", "--listen", f"unix:{path}"], stdout=subprocess.PIPE, text=True)
    try:
        assert '"listening"' in server.stdout.readline()
        threading.Thread(target=server.stdout.read, daemon=True).start()
        yield f"unix:{path}"
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("serve") / "s"
    with serve(path) as made:
        yield made


def request():
    return once.Request("POST", "/orders", [("Idempotency-Key", f"unit-{next(numbers)}")], b"\x00\xff")


def test_block(address):
    asked, store = request(), once.Store(address)
    with once.operation(store, asked, scope="t") as op:
        assert op.connection is None and op.derive("charge").startswith("d2-")
        for call in (lambda: op.emit("a", "b", "c", {}), lambda: op.accept("a", "b"), lambda: op.lock("a"), op.resume,
                     lambda: op.checkpoint("a")):
            with pytest.raises(TypeError, match="needs a transaction"):
                call()
        op.respond(b"\x00\xff", 201, [("X-A", "\u00e9"), ("Set-Cookie", "a=1")])
    with pytest.raises(once.Answered) as caught:
        with once.operation(store, asked, scope="t"):
            pytest.fail("ran twice")
    told = caught.value.response
    assert (told.status, told.body) == (201, b"\x00\xff")
    headers = {name.lower(): value for name, value in told.headers}
    assert abs(parsedate_to_datetime(headers.pop("idempotency-expires")).timestamp() - time.time() - 86400) < 600
    assert headers == {"x-a": "\u00e9", "idempotent-replayed": "true"}


@pytest.mark.parametrize("recover, second", [("hold", 409), ("retry", 409)])
def test_exception_is_doubt(address, recover, second):
    asked, store = request(), once.Store(address, recover=recover)
    with pytest.raises(ZeroDivisionError), once.operation(store, asked, scope="t"):
        raise ZeroDivisionError
    with pytest.raises(once.Answered) as caught, once.operation(store, asked, scope="t"):
        pytest.fail("ran twice")
    assert caught.value.response.status == second


def test_release_frees_the_key(address):
    asked, store, runs = request(), once.Store(address), []
    for _ in range(2):
        with pytest.raises(once.Release), once.operation(store, asked, scope="t"):
            runs.append(1)
            raise once.Release()
    assert len(runs) == 2


def test_behind_a_gate(address):
    """The claim is the gate's, which ends it. One that is none does not run."""
    asked, store = request(), once.Store(address)
    claim = drive(store().call("claim", "t", asked.key, "POST", "/orders", asked.body, 30, 60, False, str(uuid.uuid4())))[1]
    with once.operation(store, once.Request("POST", "/orders", asked.headers + [("Once-Claim", claim)], asked.body)) as op:
        assert op.claim == claim and op.derive("charge").startswith("d2-")
        op.respond({})
    assert drive(store().call("finish", claim, once.Response(201), None)) is None  # nobody has
    for claim in (claim, "A" * 70):
        with pytest.raises(once.Answered, match="503"):
            with once.operation(store, once.Request("POST", "/orders", [("Once-Claim", claim)])):
                pytest.fail("ran")


def record(address, asked):
    transport = once.Store(address)()
    try:
        return drive(transport.ask("get", {"scope": "t", "key": asked.key}, 15))["record"]
    finally:
        drive(transport.close())


def test_renewed_after_a_restart(tmp_path):
    """The connection of the claim is gone with the server; the handler works on, and its claim is renewed at the next one."""
    asked, path = request(), tmp_path / "s"
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        store = once.Store(first.enter_context(serve(path)))
        with once.operation(store, asked, scope="t", lease=6) as op:
            begun = record(f"unix:{path}", asked)
            first.close()
            again = second.enter_context(serve(path))
            found = begun
            while found["lease_until"] == begun["lease_until"]:
                found = record(again, asked)
                assert found["state"] == "pending" and not found["stuck"], found
                time.sleep(0.1)
            op.respond({}, 201)
    assert store.renewals.due == {}


def test_derives_at_the_same_time(address):
    """Also when one of them is not waited for: the connection of the claim has nothing to do with it."""
    asked, store = request(), once.Store(address)

    async def run():
        async with once.operation(store, asked, scope="t") as op:
            given_up = asyncio.ensure_future(op.derive("c"))
            await asyncio.sleep(0)
            given_up.cancel()
            keys = await asyncio.gather(op.derive("a"), op.derive("b"))
            assert keys == [await op.derive("a"), await op.derive("b")] and keys[0] != keys[1]
            op.respond({"n": 1}, 201)
        with pytest.raises(once.Answered) as caught:
            async with once.operation(store, asked, scope="t"):
                pytest.fail("ran twice")
        return caught.value.response.body

    assert asyncio.run(run()) == b'{"n":1}'


def test_waits(address):
    """For the one that is at work, instead of refusing; async."""
    asked, store = request(), once.Store(address)

    async def second():
        with pytest.raises(once.Answered) as caught:
            async with once.operation(store, asked, scope="t", wait=True):
                pytest.fail("ran twice")
        return caught.value.response.status

    async def run():
        async with once.operation(store, asked, scope="t") as op:
            waiting = asyncio.ensure_future(second())
            with pytest.raises(once.Answered, match="409"):
                async with once.operation(store, asked, scope="t"):
                    pytest.fail("ran twice")
            op.respond({}, 201)
        return await waiting

    assert asyncio.run(run()) == 201


def test_addresses(tmp_path):
    with pytest.raises(ValueError, match="unix:PATH"):
        once.Store("redis://127.0.0.1")
    with pytest.raises(once.Answered, match="503"), \
            once.operation(once.Store(f"unix:{tmp_path}/none", patience=0.1), request(), "t"):
        pytest.fail("ran")


def test_refused(address):
    """A mistake is an error that says so, not one to repeat."""
    with pytest.raises(RuntimeError, match="413.*scope"):
        with once.operation(once.Store(address), request(), scope="s" * 100000):
            pytest.fail("ran")
