"""Reload, quit, TERM and kill -9, at every moment of a request and under load."""
import os
import signal
import threading

import pytest

from harness import environment, expect, nginx
from harness.message import Closed
from harness.upstream import slow
from harness.wait import Gate, until

HOLD = "once_recover hold;"


class Load:
    """Clients that post new keys one after the other until they are stopped, and remember their answers."""

    number = 0

    def __init__(self, gw, clients=4):
        Load.number += 1
        self.gw, self.name = gw, f"load{Load.number}"
        self.answers = {}       # key -> the response, where there was one
        self.failed = []        # keys whose connection ended without one
        self.stopping = threading.Event()
        self.changed = threading.Condition()
        self.threads = [threading.Thread(target=self.run, args=(number,), daemon=True) for number in range(clients)]
        for thread in self.threads:
            thread.start()

    def run(self, client):
        number, connection = 0, None
        while not self.stopping.is_set():
            try:
                connection = connection or self.gw.connect()
            except OSError:  # no server: nothing was asked
                self.stopping.wait(0.01)
                continue
            number += 1
            key = f"{self.name}-{client}-{number}"
            try:
                response = connection.request("POST", "/", key, b"a")
                with self.changed:
                    self.answers[key] = response
                    self.changed.notify_all()
                if response.header("Connection") == "close":
                    connection.close()
                    connection = None
            except (Closed, OSError):
                connection = None
                with self.changed:
                    self.failed.append(key)
                    self.changed.notify_all()
        if connection:
            connection.close()

    def wait_answers(self, more):
        with self.changed:
            goal = len(self.answers) + more
            assert self.changed.wait_for(lambda: len(self.answers) >= goal, 30), f"only {len(self.answers)} answers"

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(30)
        return self


def check_load(gw, load, failures_allowed=True):
    """Every answer that anybody saw is still the answer; nothing ran twice."""
    assert failures_allowed or not load.failed, load.failed
    for key, response in load.answers.items():
        if response.status == 201:
            expect.replay(gw.post(key, b"a"), response)
            assert gw.upstream.count(key) == 1, key
        else:
            assert gw.upstream.count(key) <= 1, key
    for key in load.failed:
        assert gw.upstream.count(key) <= 1, key


# ------------------------------------------------------------------------------------------------------------- reload

def test_reload_while_the_upstream_works(gateway):
    gw, gate = gateway(HOLD), Gate()
    gw.upstream.then(slow(gate))
    with gw.connect() as client:
        client.start("POST", "/", "k", b"a")
        gate.wait_arrival()
        old = gw.nginx.reload()
        expect.problem(gw.post("k", b"a"), "in-flight")  # a worker of the new generation knows it, too
        gate.open()
        original = expect.first(client.finish())
    gw.nginx.wait_worker_gone(*old)
    expect.replay(gw.post("k", b"a"), original)
    assert gw.upstream.count("k") == 1


def test_reload_while_streams_of_one_connection_are_in_every_state(gateway):
    """HTTP/2: the connection gets GOAWAY, and its streams are finished."""
    gw, gate = gateway("once_wait 10s;"), Gate()
    gw.upstream.then(slow(gate), slow(gate))
    client = gw.connect2()
    running = [client.start("POST", "/", key, b"a") for key in ("a", "b")]
    for _ in running:
        gate.wait_arrival()
    waiting = client.start("POST", "/", "a", b"a")
    reading = client.begin("POST", "/", "c", b"body")
    client.ping()
    old = gw.nginx.reload()
    gate.open()
    originals = [expect.first(client.finish(number)) for number in running]
    expect.replay(client.finish(waiting), originals[0])
    client.send_data(reading, b"body")
    expect.first(client.finish(reading))
    client.close()
    gw.nginx.wait_worker_gone(*old)
    for key in "abc":
        assert gw.upstream.count(key) == 1


def test_reload_while_the_upstream_works_and_the_client_is_gone(gateway):
    """Nothing but the detached part is left of the request; the old worker stays for it."""
    gw, gate = gateway(HOLD), Gate()
    gw.upstream.then(slow(gate))
    client = gw.connect()
    client.start("POST", "/", "k", b"a")
    gate.wait_arrival()
    client.reset()
    old = gw.nginx.reload()
    gate.open()
    gw.nginx.wait_worker_gone(*old)
    response = gw.post("k", b"a")
    assert response.status == 201 and response.header("Idempotent-Replayed") == "true"
    assert gw.upstream.count("k") == 1


def test_reload_while_the_claim_is_asked_for(gateway):
    gw = gateway(HOLD, disk=True)
    gw.disk.block()
    with gw.connect() as client:
        client.start("POST", "/", "k", b"a")
        gw.disk.wait_blocked()
        old = gw.nginx.reload()
        gw.disk.heal()
        original = expect.first(client.finish())
    gw.nginx.wait_worker_gone(*old)
    expect.replay(gw.post("k", b"a"), original)
    assert gw.upstream.count("k") == 1


def test_reload_while_the_response_is_held(gateway):
    gw = gateway(HOLD, disk=True)

    def script(exchange):
        gw.disk.block()
        exchange.respond()

    gw.upstream.then(script)
    with gw.connect() as client:
        client.start("POST", "/", "k", b"a")
        gw.disk.wait_blocked()
        old = gw.nginx.reload()
        gw.disk.heal()
        original = expect.first(client.finish())
    gw.nginx.wait_worker_gone(*old)
    expect.replay(gw.post("k", b"a"), original)
    assert gw.upstream.count("k") == 1


def test_reload_while_the_response_is_held_and_the_client_is_gone(gateway):
    gw = gateway(HOLD, disk=True)

    def script(exchange):
        gw.disk.block()
        exchange.respond()

    gw.upstream.then(script)
    client = gw.connect()
    client.start("POST", "/", "k", b"a")
    gw.disk.wait_blocked()
    client.reset()
    old = gw.nginx.reload()
    gw.disk.heal()
    gw.nginx.wait_worker_gone(*old)
    response = gw.post("k", b"a")
    assert response.status == 201 and response.header("Idempotent-Replayed") == "true"
    assert gw.upstream.count("k") == 1


def test_lease_is_renewed_by_a_worker_that_is_leaving(gateway):
    gw, gate = gateway("once_lease 600ms;" + HOLD), Gate()
    gw.upstream.then(slow(gate))
    with gw.connect() as client:
        client.start("POST", "/", "k", b"a")
        gate.wait_arrival()
        old = gw.nginx.reload()
        gw.nginx.wait_quiet(1.5)
        assert gw.store.state("k") == "pending"
        expect.problem(gw.post("k", b"a"), "in-flight")
        gate.open()
        original = expect.first(client.finish())
    gw.nginx.wait_worker_gone(*old)
    expect.replay(gw.post("k", b"a"), original)
    assert gw.upstream.count("k") == 1


def test_old_workers_that_are_not_given_the_time(gateway):
    """worker_shutdown_timeout: nginx closes what is open. What was forwarded is in doubt, and the worker leaves."""
    gw, gate = gateway(HOLD, main="worker_shutdown_timeout 300ms;"), Gate()
    gw.upstream.then(slow(gate))
    client = gw.connect()
    client.start("POST", "/", "k", b"a")
    gate.wait_arrival()
    old = gw.nginx.reload()
    gw.nginx.wait_worker_gone(*old)
    gate.open()
    assert gw.store.state("k") == "unknown"
    expect.problem(gw.post("k", b"a"), "outcome-unknown")
    assert gw.upstream.count("k") == 1


def test_reload_changes_the_store(gateway):
    """What the old workers began they finish where they began it; the new ones know nothing of it."""
    gw, gate = gateway(), Gate()
    gw.upstream.then(slow(gate))
    client = gw.connect()
    client.start("POST", "/", "k", b"a")
    gate.wait_arrival()
    gw.reconfigure(rules="once_store local:@directory@/other?segment=1m;")
    old = gw.nginx.reload()
    other = expect.first(gw.post("k", b"a"))
    gate.open()
    original = expect.first(client.finish())
    client.close()
    gw.nginx.wait_worker_gone(*old)
    assert gw.store.state("k") == "completed"
    expect.replay(gw.post("k", b"a"), other)
    assert original.body != other.body
    assert gw.upstream.count("k") == 2


def test_logs_are_reopened(gateway):
    gw, gate = gateway(HOLD, server="access_log @directory@/access.log;"), Gate()
    gw.upstream.then(slow(gate))
    client = gw.connect()
    client.start("POST", "/", "k", b"a")
    gate.wait_arrival()
    os.rename(f"{gw.directory}/access.log", f"{gw.directory}/access.log.1")
    gw.nginx.signal(signal.SIGUSR1)
    until(lambda: os.path.exists(f"{gw.directory}/access.log"), "the log to be reopened")
    gate.open()
    original = expect.first(client.finish())
    expect.replay(gw.post("k", b"a"), original)
    assert gw.upstream.count("k") == 1


def test_reload_changes_the_rules(gateway):
    gw = gateway("once_ttl 1h;")
    original = expect.first(gw.post("k"), ttl=3600)
    gw.reconfigure(rules="once_ttl 2h; once_replay_header X-Again;")
    gw.nginx.wait_worker_gone(*gw.nginx.reload())
    response = gw.post("k")
    assert (response.status, response.body, response.header("X-Again")) == (201, original.body, "true")
    expect.first(gw.post("new"), ttl=7200)
    assert gw.upstream.count("k") == 1 and gw.upstream.count("new") == 1


def test_reload_with_a_configuration_that_is_refused(gateway):
    gw = gateway()
    original = expect.first(gw.post("k"))
    gw.nginx.expect(r"\[emerg\]")
    gw.reconfigure(rules="once_lease nonsense;")
    gw.nginx.signal(signal.SIGHUP)
    gw.nginx.log.wait(r"\[emerg\].*nonsense")
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_reload_under_load(gateway, workers):
    gw = gateway(HOLD, workers=workers)
    load = Load(gw)
    for _ in range(3 if environment.slow() else 6):
        load.wait_answers(10)
        gw.nginx.reload()
    load.wait_answers(10)
    load.stop()
    # A keepalive connection that nginx closes while a request is on its way is lost with every nginx.
    assert all(response.status == 201 for response in load.answers.values()), "an answer was lost"
    check_load(gw, load)


# --------------------------------------------------------------------------------------------------------- quit, TERM

def test_quit_waits_for_the_upstream(gateway):
    gw, gate = gateway(HOLD), Gate()
    gw.upstream.then(slow(gate))
    with gw.connect() as client:
        client.start("POST", "/", "k", b"a")
        gate.wait_arrival()
        gw.nginx.signal(signal.SIGQUIT)
        gw.nginx.log.wait("gracefully shutting down")
        gate.open()
        expect.first(client.finish())
    gw.nginx.log.wait_end()
    assert gw.store.state("k") == "completed"
    assert gw.upstream.count("k") == 1


@pytest.mark.parametrize("at", ["claim", "hold"])
def test_quit_while_only_the_store_is_waited_for(gateway, at):
    """A request that is suspended has no timer of nginx: the module must keep the worker alive."""
    gw = gateway(HOLD, disk=True)

    def script(exchange):
        if at == "hold":
            gw.disk.block()
        exchange.respond()

    gw.upstream.then(script)
    if at == "claim":
        gw.disk.block()
    with gw.connect() as client:
        client.start("POST", "/", "k", b"a")
        gw.disk.wait_blocked()
        gw.nginx.signal(signal.SIGQUIT)
        gw.nginx.log.wait("gracefully shutting down")
        gw.disk.heal()
        expect.first(client.finish())
    gw.nginx.log.wait_end()
    assert gw.store.state("k") == "completed"
    assert gw.upstream.count("k") == 1


def test_quit_while_the_response_is_held_and_the_client_is_gone(gateway):
    gw = gateway(HOLD, disk=True)

    def script(exchange):
        gw.disk.block()
        exchange.respond()

    gw.upstream.then(script)
    client = gw.connect()
    client.start("POST", "/", "k", b"a")
    gw.disk.wait_blocked()
    client.reset()
    gw.nginx.signal(signal.SIGQUIT)
    gw.nginx.log.wait("gracefully shutting down")
    gw.disk.heal()
    gw.nginx.log.wait_end()
    assert gw.store.state("k") == "completed"
    assert gw.upstream.count("k") == 1


def test_term_while_the_upstream_works(gateway):
    """Forwarded, and the worker does not wait for the end: in doubt."""
    gw, gate = gateway(HOLD), Gate()
    gw.upstream.then(slow(gate))
    client = gw.connect()
    client.start("POST", "/", "k", b"a")
    gate.wait_arrival()
    gw.nginx.expect("open socket")  # nginx's own words when it does not wait
    gw.nginx.term()
    gate.open()
    assert gw.store.state("k") == "unknown"
    assert gw.upstream.count("k") == 1
    gw.start()
    expect.problem(gw.post("k", b"a"), "outcome-unknown")
    assert gw.upstream.count("k") == 1


def test_term_while_the_claim_is_asked_for(gateway):
    """A claim that will not run is not left behind: released, or never made."""
    gw = gateway(HOLD, disk=True)
    expect.first(gw.post("before", b"a"))
    gw.disk.block()
    client = gw.connect()
    client.start("POST", "/", "k", b"a")
    gw.disk.wait_blocked()
    gw.nginx.expect("open socket")
    gw.nginx.signal(signal.SIGTERM)
    gw.nginx.log.wait(r"\d: exiting$")  # the worker, after the master told it
    gw.disk.heal()
    gw.nginx.log.wait_end()
    gw.nginx.process.wait(15)
    assert gw.upstream.count("k") == 0
    assert gw.store.state("k") in (None, "failed")
    gw.start()
    expect.once(lambda: gw.post("k", b"a"))
    assert gw.upstream.count("k") == 1


def test_term_while_the_response_is_held(gateway):
    """The outcome is known: it is written within the time that a worker takes to leave."""
    gw = gateway(HOLD, disk=True)

    def script(exchange):
        gw.disk.block()
        exchange.respond()

    gw.upstream.then(script)
    client = gw.connect()
    client.start("POST", "/", "k", b"a")
    gw.disk.wait_blocked()
    gw.nginx.expect("open socket")
    gw.nginx.signal(signal.SIGTERM)
    gw.disk.heal()
    gw.nginx.log.wait_end()
    gw.nginx.process.wait(15)
    assert gw.store.state("k") == "completed"
    gw.start()
    response = gw.post("k", b"a")
    assert response.status == 201 and response.header("Idempotent-Replayed") == "true"
    assert gw.upstream.count("k") == 1


def test_term_while_the_store_does_not_answer_is_bounded(gateway):
    """A worker does not hang at its end because a disk does. (A call into the kernel cannot be given up: only that it ends.)"""
    gw = gateway(HOLD, disk=True)
    gw.disk.block()
    client = gw.connect()
    client.start("POST", "/", "k", b"a")
    gw.disk.wait_blocked()
    gw.nginx.expect("open socket")
    gw.nginx.signal(signal.SIGTERM)
    gw.nginx.wait_quiet(0.3)
    gw.disk.heal()
    gw.nginx.log.wait_end()
    assert gw.upstream.count("k") == 0
    assert gw.store.state("k") in (None, "failed")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_stopping_under_load(gateway, number):
    gw = gateway(HOLD, workers=2)
    gw.nginx.expect("open socket")
    load = Load(gw)
    load.wait_answers(20)
    gw.nginx.signal(number)
    gw.nginx.log.wait_end()
    load.stop()
    assert all(response.status == 201 for response in load.answers.values())
    gw.start()
    check_load(gw, load)
    for record in gw.store.records():
        assert record["state"] != "pending", record
        if record["state"] == "failed":
            assert gw.upstream.count(record["key"]) == 0, "released although it ran"


# ------------------------------------------------------------------------------------------------------------ kill -9

@pytest.mark.parametrize("recover", ["retry", "hold"])
def test_worker_killed_while_the_upstream_works(gateway, recover):
    gw, gate = gateway(f"once_lease 1s; once_recover {recover};"), Gate()
    gw.upstream.then(slow(gate))
    client = gw.connect()
    client.start("POST", "/", "k", b"a")
    gate.wait_arrival()
    gw.nginx.kill_worker()
    gate.open()
    assert gw.store.state("k") == "pending"
    expect.problem(gw.post("k", b"a"), "in-flight", retry_after=(1, 2))
    gw.store.wait_lease_over("k")
    if recover == "hold":
        expect.problem(gw.post("k", b"a"), "outcome-unknown")
        assert gw.upstream.count("k") == 1
    else:
        expect.once(lambda: gw.post("k", b"a"))
        assert gw.upstream.count("k") == 2


@pytest.mark.parametrize("whole", [False, True])
def test_killed_while_the_response_is_held(gateway, whole):
    """Executed but not recorded: after the lease the policy decides, and it is never run again under hold."""
    gw = gateway("once_lease 1s;" + HOLD, disk=True)

    def script(exchange):
        gw.disk.block()
        exchange.respond()

    gw.upstream.then(script)
    client = gw.connect()
    client.start("POST", "/", "k", b"a")
    gw.disk.wait_blocked()
    if whole:
        gw.nginx.kill_all()
    else:
        gw.nginx.kill_worker()
    gw.disk.heal()
    if whole:
        gw.start()
    gw.store.wait_lease_over("k")
    response = gw.post("k", b"a")
    if response.status == 201:  # its write had reached the disk's cache
        assert response.header("Idempotent-Replayed") == "true"
    else:
        expect.problem(response, "outcome-unknown")
    assert gw.upstream.count("k") == 1


def test_everything_killed_right_after_the_answer(gateway):
    """Recorded, then sent: a client that has the answer gets the same again."""
    gw = gateway(HOLD)
    originals = {}
    for number in range(5):
        key = f"k{number}"
        originals[key] = expect.first(gw.post(key, b"a"))
        gw.nginx.kill_all()
        gw.start()
        for known, original in originals.items():
            expect.replay(gw.post(known, b"a"), original)
    for key in originals:
        assert gw.upstream.count(key) == 1


def test_store_is_usable_after_a_worker_was_killed_inside_it(gateway):
    """Locks that a dead worker held do not stop the others."""
    gw = gateway("once_lease 1s;" + HOLD, workers=2)
    load = Load(gw)
    for _ in range(3 if environment.slow() else 8):
        load.wait_answers(10)
        gw.nginx.kill_worker()
    load.wait_answers(10)
    load.stop()
    check_load(gw, load)
    for key in load.failed:  # claimable or answered after its lease
        until(lambda: gw.post(key, b"a").status != 409 or gw.store.record(key)["lease_ms"] == 0, f"{key} to be free")
        response = gw.post(key, b"a")
        if response.status == 409:
            expect.problem(response, "outcome-unknown")
        else:
            assert response.status == 201, response
        assert gw.upstream.count(key) <= 1, f"{key} ran twice"


def test_whole_gate_killed_under_load(gateway):
    gw = gateway("once_lease 1s;" + HOLD, workers=2)
    for _ in range(2 if environment.slow() else 3):
        load = Load(gw)
        load.wait_answers(15)
        gw.nginx.kill_all()
        load.stop()
        gw.start()
        check_load(gw, load)
        for key in load.failed:
            if gw.store.record(key):
                gw.store.wait_lease_over(key)
            response = gw.post(key, b"a")
            assert response.status == 201 or response.json()["type"].endswith("outcome-unknown"), response
            assert gw.upstream.count(key) <= 1, f"{key} ran twice"


def test_master_killed_alone(gateway, monkeypatch):
    """The workers go on, orphaned, unless the master was to end with its parent; nothing they promised is lost."""
    monkeypatch.setattr(nginx, "die_with_parent", lambda: None)
    gw = gateway(HOLD)
    original = expect.first(gw.post("k", b"a"))
    pids = gw.nginx.children()
    os.kill(gw.nginx.process.pid, signal.SIGKILL)
    gw.nginx.process.wait(15)
    expect.replay(gw.post("k", b"a"), original)
    for pid in pids:
        os.kill(pid, signal.SIGQUIT)
    gw.nginx.log.wait_end()
    assert gw.upstream.count("k") == 1


def test_master_that_ends_with_its_parent_killed(gateway):
    """Then its workers end with it: as with `once gate`, which may be killed together with the master."""
    gw = gateway(HOLD, workers=2)
    original = expect.first(gw.post("k", b"a"))
    gw.nginx.process.send_signal(signal.SIGHUP)
    gw.nginx.log.wait("gracefully shutting down", 2)
    expect.replay(gw.post("k", b"a"), original)
    os.kill(gw.nginx.process.pid, signal.SIGKILL)
    gw.nginx.log.wait_end()
    assert gw.upstream.count("k") == 1
