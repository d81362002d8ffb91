"""PostgreSQL that can be killed, stopped and failed over: the server of tests/postgres/with-server, and a standby beside it.

Clients connect to ADDRESS, which leads to whichever server is the primary, as a virtual address does.
"""
import contextlib
import os
import shlex
import signal
import subprocess

import psycopg2
from processes import alive, descendants, send
from waiting import until

DIR = os.environ.get("ONCE_PG_DIR", "")
CTL = shlex.split(os.environ.get("ONCE_PG_CTL", ""))
AS_USER = CTL[:-8]  # pg_ctl and its seven arguments come last
PATIENCE = 120
ADDRESS = 5400
POOL = 6400


def url(user="owner", port=ADDRESS, database="postgres", **more):
    return f"postgres://{user}@/{database}?host={DIR}&port={port}" + "".join(f"&{name}={value}" for name, value in more.items())


def socket_of(port):
    return os.path.join(DIR, f".s.PGSQL.{port}")


def quietly(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}"


class Node:
    """One server: its data, its socket."""

    def __init__(self, name, port):
        self.name, self.port, self.data = name, port, os.path.join(DIR, name)

    def control(self, *what):
        log = "log" if self.name == "data" else "log2"
        quietly([part.replace(f"{DIR}/data", self.data).replace(f"{DIR}/log", f"{DIR}/{log}") for part in CTL] + list(what))

    def pid(self):
        with open(os.path.join(self.data, "postmaster.pid"), encoding="ascii") as file:
            return int(file.readline())

    def kill(self):
        """kill -9 of every process of it at once."""
        main = self.pid()
        send(signal.SIGSTOP, [main])  # no new children from here on
        pids = descendants(main)
        send(signal.SIGKILL, pids)
        for pid in pids:
            until(lambda: not alive(pid), f"the end of process {pid}", PATIENCE)
        # Where orphans are not reaped, a dead server looks alive to the next one.
        for lock in (os.path.join(self.data, "postmaster.pid"), socket_of(self.port) + ".lock"):
            if os.path.exists(lock):
                os.unlink(lock)

    def connect(self):
        connection = psycopg2.connect(url(port=self.port))
        connection.autocommit = True
        return connection

    def run(self, query):
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchall() if cursor.description else []

    def backends(self):
        """Processes that serve clients."""
        try:
            return [pid for pid, in self.run("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' "
                                             "AND pid <> pg_backend_pid()")]
        except psycopg2.Error:
            return []


class Servers:
    def __init__(self):
        self.primary, self.standby = Node("data", 5432), None
        self.synchronous = True
        self.lead()

    def lead(self):
        """The address leads to the primary from now on."""
        link = socket_of(ADDRESS)
        os.symlink(socket_of(self.primary.port), link + ".new")
        os.replace(link + ".new", link)

    def kill(self):
        self.primary.kill()
        self.primary.control("start")

    def kill_backend(self, choice):
        """kill -9 of one process: the server restarts all of them."""
        pids = self.primary.backends()
        if pids:
            send(signal.SIGKILL, [choice.choice(pids)])
            until(self.works, "PostgreSQL working again", PATIENCE)

    def stop_backend(self, choice):
        """One process of the server stands still, with whatever it holds; the function ends that."""
        pids = self.primary.backends()
        chosen = [choice.choice(pids)] if pids else []
        send(signal.SIGSTOP, chosen)
        return lambda: send(signal.SIGCONT, chosen)

    def stop(self):
        """The whole server stands still."""
        pids = descendants(self.primary.pid())
        send(signal.SIGSTOP, pids)
        return lambda: send(signal.SIGCONT, pids)

    def works(self):
        try:
            return bool(self.primary.run("SELECT 1"))
        except psycopg2.Error:
            return False

    def follow(self, synchronous=True):
        """A standby is made. A synchronous one has what was acknowledged; the other one may miss some of it."""
        other = Node("standby" if self.primary.name == "data" else "data", 5433 if self.primary.port == 5432 else 5432)
        self.primary.run(f"ALTER SYSTEM SET synchronous_standby_names = '{'*' if synchronous else ''}'")
        self.primary.run("SELECT pg_reload_conf()")
        quietly(["rm", "-rf", other.data])
        binary = os.path.dirname(CTL[len(AS_USER)])
        quietly(AS_USER + [f"{binary}/pg_basebackup", "-h", DIR, "-p", str(self.primary.port), "-U", "owner", "-D", other.data,
                           "-R", "-X", "stream", "-c", "fast", "--no-sync", "-d", "application_name=standby"])
        with open(os.path.join(other.data, "postgresql.conf"), "a", encoding="utf-8") as conf:
            conf.write(f"port = {other.port}\n")
        other.control("start")
        self.standby, self.synchronous = other, synchronous
        wanted = "sync" if synchronous else "async"
        until(lambda: self.primary.run("SELECT sync_state FROM pg_stat_replication") == [(wanted,)], "the standby follows",
              PATIENCE)

    def fail_over(self, behind=lambda: None):
        """The primary is killed, the standby takes over, and the old one follows. `behind()`: while the standby gets nothing."""
        if not self.synchronous:
            receiver = self.standby.run("SELECT pid FROM pg_stat_wal_receiver")
            send(signal.SIGSTOP, [pid for pid, in receiver])
            behind()
        self.primary.kill()
        if not self.synchronous:
            send(signal.SIGCONT, [pid for pid, in receiver])
        self.standby.control("promote")
        self.primary = self.standby
        self.lead()
        self.follow(self.synchronous)

    def close(self):
        """with-server stops and removes what is there."""
        if self.standby:
            self.standby.kill()
        if self.primary.name != "data":
            self.primary.kill()


POOLER = """\
[databases]
* = host={dir} port={address}
[pgbouncer]
listen_addr =
listen_port = {pool}
unix_socket_dir = {dir}
auth_type = trust
auth_file = {dir}/campaign-users
pool_mode = transaction
default_pool_size = 40
max_client_conn = 500
server_login_retry = 0.2
server_lifetime = 5
logfile = {dir}/pgbouncer.log
"""


def pooler_command():
    """PgBouncer in transaction mode, before ADDRESS."""
    settings = os.path.join(DIR, "campaign-pool.ini")
    with open(os.path.join(DIR, "campaign-users"), "w", encoding="ascii") as file:
        file.write("".join(f'"{user}" ""\n' for user in ("owner", "gateway", "application")))
    with open(settings, "w", encoding="ascii") as file:
        file.write(POOLER.format(dir=DIR, address=ADDRESS, pool=POOL))
    return [*AS_USER, "pgbouncer", "-q", settings]
