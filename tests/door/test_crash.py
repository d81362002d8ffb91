"""Backend, gateway, database session and network fail at every instant of a payment. Afterwards there is nothing, or the payment
with its response; the client that asks again gets that response, and nothing was paid twice.

    DOOR_FULL=1    every instant and every failure in every language; otherwise that in C, and what matters most in the others
"""
import os
import shlex
import signal
import subprocess
import threading

import pytest

from backends import LANGUAGES, command_of

CTL = shlex.split(os.environ["ONCE_PG_CTL"])

# What the backend is about to do, or was just told: the message that does not arrive, or not yet.
INSTANTS = {
    "before it begins": ("wire", b"BEGIN", False),
    "in the transaction": ("wire", b"once.complete", False),
    "COMMIT under way": ("wire", b"COMMIT\0", False),
    "committed, not told": ("wire", b"COMMIT\0", True),
    "told, not answered": ("link", b" 201 C", True),
}


def backend_dies(s, stop):
    s.backend.kill()
    stop.cut()
    s.backend.start()


def backend_dies_behind(s, stop):
    """Its last message arrives all the same."""
    s.backend.kill()
    stop.go()
    s.backend.start()


def connection_breaks(s, stop):
    stop.cut()


def gateway_hears_no_more(s, stop):
    """Its connection to the backend breaks, the backend goes on."""
    s.link.cut()
    stop.go()


def gateways_sessions_end(s, stop):
    """Of all stacks: the others must not mind."""
    s.database.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'gateway'")
    stop.go()


def session_ends(s, stop):
    s.database.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", s.wire.name)
    stop.go()


def worker_dies(s, stop):
    s.gateway.nginx.kill_worker()
    stop.go()


def gate_dies(s, stop):
    s.gateway.nginx.kill_all()
    s.gateway.start()
    stop.go()


FAILURES = [backend_dies, backend_dies_behind, connection_breaks, gateway_hears_no_more, session_ends, gateways_sessions_end,
            worker_dies, gate_dies]
FEW = [("in the transaction", backend_dies), ("COMMIT under way", backend_dies_behind), ("committed, not told", worker_dies)]


def survive(s, instant, failure):
    name, text, back = INSTANTS[instant]
    s.fresh()
    stop = getattr(s, name).stop_at(text, back)
    finish = s.start()
    stop.wait()
    done = s.database.payments(s.order)
    assert done == (1 if back else 0), f"{done} payments"
    failure(s, stop)
    first = finish()
    s.database.end_lease(s.key)
    answer = s.retry()
    s.check_paid_once(answer)
    if getattr(first, "status", None) == 201:
        assert first.body == answer.body
    if done:  # what is committed is not run again
        assert s.database.state(s.key) == ("completed", 1)


def cases():
    """Stacks that fail side by side, each with one case after the other."""
    full = os.environ.get("DOOR_FULL")
    for language in LANGUAGES:
        if language == "c" or full:
            for instant in INSTANTS:
                yield language, [(instant, failure) for failure in FAILURES]
        else:
            yield language, FEW


def test_every_instant(stacks):
    wrong, told = [], []

    def run(s, language, plan):
        for instant, failure in plan:
            try:
                survive(s, instant, failure)
                told.append(instant)
            except BaseException as error:  # noqa: a thread's failure is the test's
                wrong.append(f"{language}, {instant}, {failure.__name__}: {error!r}")
                return

    threads = []
    for language, plan in cases():
        command_of(language)  # what cannot be had is skipped here, in the test's own thread
        threads.append(threading.Thread(target=run, args=(stacks.start(language, {}), language, plan)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, "\n".join(wrong)
    assert len(told) == sum(len(plan) for _, plan in cases())


@pytest.mark.parametrize("instant", ["in the transaction", "committed, not told"])
def test_whole_database_dies(stack, instant):
    """PostgreSQL itself, with everything in its memory; it comes back with what was committed."""
    s = stack()

    def crash(_, stop):
        s.database.connection.close()
        subprocess.run(CTL + ["-m", "immediate", "stop"], check=True, stdout=subprocess.DEVNULL)
        stop.go()
        subprocess.run(CTL + ["start"], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        s.database.connect()

    survive(s, instant, crash)


def test_stopped_in_its_transaction(stacks):
    """A worker that stands still with its transaction open keeps its record. The database ends it; then it is overtaken, and what
    it does when it goes on is refused."""
    s = stacks.start("c", {"user": "sleeper"})
    stop = s.wire.stop_at(b"once.complete")
    finish = s.start()
    stop.wait()
    s.backend.signal(signal.SIGSTOP)
    s.gateway.nginx.kill_worker()  # its lease is no longer renewed
    finish()
    stacks.start_beside(s)
    s.database.end_lease(s.key)  # waits for idle_in_transaction_session_timeout
    answer = s.retry()
    assert s.database.state(s.key) == ("completed", 2)
    again = s.wire.stop_at(b"once.renew")
    s.backend.signal(signal.SIGCONT)
    stop.go()
    again.wait()  # its connection is gone, it repeats its transaction: too late
    again.go()
    s.check_paid_once(answer)
    assert s.database.state(s.key) == ("completed", 2)


@pytest.mark.parametrize("text, epoch", [(b"COMMIT\0", 1), (b"once.renew", 2)])
def test_gateway_stands_still(stacks, text, epoch):
    """For longer than the lease, while another gateway is asked. When it goes on, its client gets what the record says: what its
    backend had committed, or what another one did, in whose favour its own was refused."""
    s = stacks.get()
    other = stacks.gate(s.link)
    stop = s.wire.stop_at(text)
    finish = s.start()
    stop.wait()
    worker, = s.gateway.nginx.worker_pids()
    os.kill(worker, signal.SIGSTOP)
    try:
        if epoch == 1:
            stop.go()
        else:
            s.database.end_lease(s.key)
        answer = other.post(s.key, s.body(), "/payments")
    finally:
        os.kill(worker, signal.SIGCONT)
    assert answer.status == 201 and s.database.state(s.key) == ("completed", epoch)
    stop.go()
    first = finish()
    assert first.status == 201 and first.body == answer.body
    s.check_paid_once(first)
