"""A world for the bank: a database, banks, gates in front of them, and ways to stop or kill any of them at a chosen moment."""
import contextlib
import ctypes
import itertools
import os
import shlex
import signal
import socket
import subprocess
import threading

import psycopg2

from harness import environment
from harness.wait import until  # which finds tests/support
from http_client import ask
from processes import alive, descendants, send

DIR = os.environ["ONCE_PG_DIR"]
CTL = shlex.split(os.environ["ONCE_PG_CTL"])
EXAMPLES = os.path.join(environment.BUILD, "examples")
SCHEMA = os.path.join(environment.SOURCE, "examples", "bank", "schema.sql")
PATIENCE = 60
libc = ctypes.CDLL(None)
numbers = itertools.count(1)
ports = itertools.count(20000)


def die_with_parent():
    libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def psql(database, *arguments):
    subprocess.run(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", database, *arguments], check=True,
                   stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)


class Program:
    """Something that was started, and the lines that it says."""

    def __init__(self, command, ready, variables=None):
        self.lines, self.said = [], threading.Condition()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, start_new_session=True, preexec_fn=die_with_parent,
                                        env=dict(os.environ, **(variables or {})))
        threading.Thread(target=self.read, daemon=True).start()
        self.ready_line = self.wait(ready)

    def read(self):
        for line in self.process.stdout:
            with self.said:
                self.lines.append(line.rstrip("\n"))
                self.said.notify_all()
        with self.said:
            self.lines.append("")  # its end
            self.said.notify_all()

    def wait(self, text):
        def found():
            return next((line for line in self.lines if text in line), None)
        with self.said:
            self.said.wait_for(lambda: found() or self.lines[-1:] == [""], PATIENCE)
            assert found(), f"it did not say {text!r} but:\n" + "\n".join(self.lines[-20:])
            return found()

    @property
    def pid(self):
        return self.process.pid

    def pids(self):
        return descendants(self.process.pid)

    def kill(self):
        """kill -9 of it and all that it started, at once."""
        pids = self.pids()
        send(signal.SIGKILL, pids)
        self.process.wait(PATIENCE)
        for pid in pids[1:]:
            until(lambda: not alive(pid), f"the end of process {pid}")

    def freeze(self):
        send(signal.SIGSTOP, self.pids())

    def thaw(self):
        send(signal.SIGCONT, self.pids())

    def end(self, number=signal.SIGTERM):
        """In an orderly way: its exit code."""
        if self.process.poll() is None:
            self.thaw()
            self.process.send_signal(number)
        return self.ended()

    def ended(self):
        """Its exit code; the signal to end is not sent again: a leak checker that has just stopped the process would hang."""
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            return "had to be killed"


class Stops:
    """The other side of examples/bank/stops.h: requests whose key begins with "stop-" tell where they are, and go on when told."""

    def __init__(self, path):
        self.path = path
        self.held, self.arrived = set(), {}
        self.changed = threading.Condition()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(128)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.meet, args=(sock,), daemon=True).start()

    def meet(self, sock):
        try:
            place, key, bank, server = sock.makefile().readline().split()
        except (OSError, ValueError):
            sock.close()
            return
        with self.changed:
            if (place, key) in self.held:
                self.held.discard((place, key))  # once: later tries pass
                self.arrived[place, key] = (sock, int(bank), int(server))
                self.changed.notify_all()
                return
        sock.close()

    def hold(self, place, key):
        """The next one that comes there waits."""
        with self.changed:
            self.held.add((place, key))

    def reached(self, place, key):
        """Waits until a transaction is there. Returns the bank's process, and the server's."""
        with self.changed:
            assert self.changed.wait_for(lambda: (place, key) in self.arrived, PATIENCE), f"{key} did not come to {place}"
            return self.arrived[place, key][1:]

    def go(self, place, key):
        with self.changed:
            self.arrived.pop((place, key))[0].close()

    def close(self):
        self.listener.close()
        for sock, _, _ in self.arrived.values():
            sock.close()


class World:
    """A database of its own with the schema of the bank, on the server of with-server."""

    def __init__(self, directory, lease="30s", idle_ms=10000, provider=None, fenced=True):
        self.directory, self.lease, self.idle_ms, self.provider = directory, lease, idle_ms, provider
        self.name = f"bank{os.getpid()}_{next(numbers)}"
        self.host = environment.address()
        self.programs, self.complaints, self.connections = [], [], []
        psql("template1", "-c", f"CREATE DATABASE {self.name} TEMPLATE postgres")
        psql(self.name, "-f", SCHEMA, "-c", "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'teller') THEN "
             "CREATE ROLE teller LOGIN; END IF; END $$", "-c", "GRANT bank TO teller")
        subprocess.run([environment.ONCE, "stats", self.url("gateway")], check=True, stdout=subprocess.DEVNULL)
        if not fenced:
            psql(self.name, "-f", os.path.join(os.path.dirname(os.path.abspath(__file__)), "unfenced.sql"))
        self.stops = Stops(os.path.join(directory, "stops"))

    def url(self, user):
        return f"postgres://{user}@/{self.name}?host={DIR}&port=5432"

    # ---------------------------------------------------------------------------------------------------- programs

    def bank(self, *options, port=None):
        """Starts one; the same port again is the same bank after a crash."""
        port = port or next(ports)
        more = ["--provider", self.provider, "--provider-timeout", "1000"] if self.provider else []
        bank = Program([os.path.join(EXAMPLES, "example_bank_stops"), "--database", self.url("teller"), "--listen",
                        f"{self.host}:{port}", "--idle", str(self.idle_ms), *more, *options], "listening on",
                       {"BANK_STOPS": self.stops.path})
        bank.port, bank.options, bank.kind = port, options, "bank"
        self.programs.append(bank)
        return bank

    def gate(self, bank, port=None, workers=1):
        """In front of a bank."""
        port = port or next(ports)
        route = f"recover=transactional lease={self.lease}"
        gate = Program([environment.ONCE, "gate", "--nginx", environment.NGINX, "--module", environment.MODULE,
                        "--upstream", f"http://{self.host}:{bank.port}", "--listen", f"{self.host}:{port}",
                        "--store", self.url("gateway"), "--set", "once_store_timeout 3s", "--scope", "header:Bank-Customer",
                        "--route", f"POST /transfers {route}", "--route", f"POST /payouts {route}",
                        "--workers", str(workers), *(["--user", "postgres"] if os.geteuid() == 0 else [])], "once gate: ready")
        gate.port, gate.bank, gate.kind = port, bank, "gate"
        self.programs.append(gate)
        return gate

    def again(self, program):
        """Restarts what was killed, at its old address."""
        self.programs.remove(program)
        if program.kind == "bank":
            return self.bank(*program.options, port=program.port)
        return self.gate(program.bank, port=program.port)

    def close(self):
        """Ends everything; what was wrong with how it ended."""
        self.stops.close()
        for connection in self.connections:
            connection.close()
        for program in reversed(self.programs):
            code = program.end(signal.SIGQUIT if program.kind == "gate" else signal.SIGTERM)
            if code != 0:
                self.complaints.append(f"a {program.kind} ended with {code}:\n" + "\n".join(program.lines[-20:]))
            self.complaints += [line for line in program.lines if "Sanitizer" in line or "runtime error" in line]
        return self.complaints

    # ---------------------------------------------------------------------------------------------------- requests

    def ask(self, program, method, path, customer=None, body=None, key=None, headers=(), timeout=30):
        headers = dict(headers)
        if customer is not None:
            headers["Bank-Customer"] = customer
        if key is not None:
            headers["Idempotency-Key"] = key
        return ask(self.host, program.port, method, path, headers, body, timeout)

    def account(self, bank, name, amount=None, currency="EUR"):
        """An account that belongs to a customer of the same name, with that amount in it."""
        made = self.ask(bank, "PUT", f"/accounts/{name}", name, {"holder": name, "currency": currency})
        assert made.status == 201, made
        if amount:
            self.fund(bank, name, amount, currency)

    def fund(self, bank, name, amount, currency="EUR"):
        body = {"from": f"@cash-{currency}", "to": name, "amount": amount, "currency": currency}
        paid = self.ask(bank, "POST", "/transfers", "@bank", body, f"fund-{name}-{next(numbers)}")
        assert paid.status == 201, paid

    # ---------------------------------------------------------------------------------------------------- database

    def connect(self):
        """A transaction of the test's own, as the owner of everything."""
        connection = psycopg2.connect(dbname=self.name)
        self.connections.append(connection)
        return connection

    def rows(self, query, *values):
        with self.snapshot() as rows:
            return rows(query, *values)

    @contextlib.contextmanager
    def snapshot(self):
        """A function that gives the rows of a query; all of them see the database as it is now."""
        connection = psycopg2.connect(dbname=self.name)
        connection.set_session(isolation_level="REPEATABLE READ")

        def rows(query, *values):
            with connection.cursor() as cursor:
                cursor.execute(query, values)
                return cursor.fetchall()
        try:
            yield rows
        finally:
            connection.close()

    def one(self, query, *values):
        return self.rows(query, *values)[0][0]

    def balance(self, name):
        return self.one("SELECT coalesce(sum(amount), 0) FROM bank.ledger WHERE account = %s", name)

    def transfers(self, key):
        """How often a key moved money."""
        return self.one("SELECT count(*) FROM bank.transfers WHERE idempotency_key = %s", key)

    def audit(self):
        """What must be true of every world at every time."""
        with self.snapshot() as rows:
            assert rows("SELECT * FROM bank.audit") == []
            assert rows("SELECT a.currency, sum(l.amount) FROM bank.ledger l JOIN bank.accounts a ON a.id = l.account "
                        "GROUP BY 1 HAVING sum(l.amount) <> 0") == [], "money was made or lost"
            assert rows("SELECT account, number FROM bank.ledger WHERE balance < 0 AND account NOT LIKE '@%%'") == []
            assert rows("SELECT customer, idempotency_key FROM bank.transfers GROUP BY 1, 2 HAVING count(*) > 1") == [], "a double"
            assert rows("SELECT count(*) FROM bank.ledger") == rows(
                "SELECT 2 * (SELECT count(*) FROM bank.transfers) + 2 * (SELECT count(*) FROM bank.payouts) "
                "+ 2 * (SELECT count(*) FROM bank.payouts WHERE status <> 'reserved')")
            assert rows("SELECT count(*) FROM once.outbox WHERE topic = 'bank.transfers'") == rows(
                "SELECT count(*) FROM bank.transfers"), "not one event for each transfer"
            assert rows("SELECT count(*) FROM once.outbox WHERE topic = 'bank.payouts'") == rows(
                "SELECT count(*) FROM bank.payouts WHERE status <> 'reserved'"), "not one event for each payout that ended"


# ------------------------------------------------------------------------------------------------------------ server


def server_said(words):
    """How often so far, in its log."""
    with open(os.path.join(DIR, "log"), encoding="utf-8", errors="replace") as log:
        return log.read().count(words)


def server_pid():
    with open(os.path.join(DIR, "data", "postmaster.pid"), encoding="ascii") as file:
        return int(file.readline())


def server_works():
    return subprocess.run(["psql", "-X", "-q", "-d", "template1", "-c", "SELECT 1"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False).returncode == 0


def kill_server():
    """kill -9 of every process of PostgreSQL at once; returns when it is there again."""
    send(signal.SIGSTOP, [server_pid()])  # no new children from here on
    pids = descendants(server_pid())
    send(signal.SIGKILL, pids)
    for pid in pids:
        until(lambda: not alive(pid), f"the end of process {pid}")
    # Where orphans are not reaped, a dead server looks alive to the next one.
    for lock in ("data/postmaster.pid", ".s.PGSQL.5432.lock"):
        os.unlink(os.path.join(DIR, lock))
    subprocess.run(CTL + ["start"], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def kill_backend(pid):
    """kill -9 of one process of PostgreSQL, which then restarts all of them; returns when it works again."""
    send(signal.SIGKILL, [pid])
    until(lambda: not alive(pid), f"the end of process {pid}")
    until(server_works, "PostgreSQL working again", PATIENCE)
