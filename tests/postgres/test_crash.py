#!/usr/bin/env python3
"""The postgres store under load while things are killed: nothing acknowledged is lost, nothing happens twice under hold.

    test_crash.py LOAD SKEW SCENARIO [SECONDS]     inside with-server

Scenarios: workers (kill -9 of processes that use the store), backends (kill -9 of server processes), server (immediate
shutdown and start), promote (the primary disappears, a standby is promoted), stall (a synchronous standby stands still).
SECONDS: how long the load runs (8).
In all of them one of the processes has its clock five minutes ahead.
"""
import collections
import glob
import os
import random
import shlex
import signal
import subprocess
import sys
import time

LOAD, SKEW, SCENARIO = sys.argv[1:4]
SECONDS = float(sys.argv[4]) if len(sys.argv) > 4 else 8
DIR = os.environ["ONCE_PG_DIR"]
CTL = shlex.split(os.environ["ONCE_PG_CTL"])
URL = os.environ["ONCE_PG_GATEWAY_URL"]
KEYS = int(5000 * SECONDS)
WORKERS = 3


def sh(command, **more):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more).stdout


def psql(query, *options):
    return subprocess.run(["psql", "-X", "-q", "-t", "-A", *options, "-c", query], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, check=False).stdout.split()


class Worker:
    count = 0

    def __init__(self, url, seconds, skewed):
        Worker.count += 1
        env = dict(os.environ, LD_PRELOAD=SKEW) if skewed else os.environ
        self.skewed, self.url = skewed, url
        self.process = subprocess.Popen([LOAD, "run", url, f"{DIR}/load-{Worker.count}", str(seconds), str(KEYS)], env=env)


def start(url=URL):
    return [Worker(url, SECONDS, skewed=i == 0) for i in range(WORKERS)]


def kill_workers(workers, until):
    while time.time() < until:
        time.sleep(0.7)
        i = random.randrange(WORKERS)
        workers[i].process.kill()
        workers[i].process.wait()
        workers[i] = Worker(URL, max(until - time.time(), 0.5), workers[i].skewed)


def kill_backends(workers, until):
    while time.time() < until:
        time.sleep(1.0)
        for pid in psql("SELECT pid FROM pg_stat_activity WHERE application_name = 'once' LIMIT 1"):
            os.kill(int(pid), signal.SIGKILL)


def kill_server(workers, until):
    while time.time() < until:
        time.sleep(1.5)
        sh(CTL + ["-m", "immediate", "stop"])
        time.sleep(0.3)
        sh(CTL + ["start"], stdin=subprocess.DEVNULL)


def wait_for(workers):
    for worker in workers:
        worker.process.wait(timeout=60)


def on_standby(command):
    return [part.replace(f"{DIR}/data", f"{DIR}/standby").replace(f"{DIR}/log", f"{DIR}/log2") for part in command]


def make_standby():
    """A synchronous one: what was acknowledged is there, too."""
    as_user = CTL[:-8]  # pg_ctl and its seven arguments come last
    binary = os.path.dirname(CTL[len(as_user)])
    sh(as_user + [f"{binary}/pg_basebackup", "-h", DIR, "-D", f"{DIR}/standby", "-R", "-X", "stream", "-c", "fast",
                  "-d", "application_name=standby"])
    with open(f"{DIR}/standby/postgresql.conf", "a", encoding="utf-8") as conf:
        conf.write("port = 5433\n")
    sh(on_standby(CTL) + ["start"], stdin=subprocess.DEVNULL)
    psql("ALTER SYSTEM SET synchronous_standby_names = '*'")
    psql("SELECT pg_reload_conf()")
    for _ in range(100):
        if psql("SELECT sync_state FROM pg_stat_replication") == ["sync"]:
            return
        time.sleep(0.1)
    sys.exit("the standby does not follow")


def promote():
    global URL
    make_standby()
    # Both hosts; libpq finds the one that takes writes.
    URL = f"postgres://gateway@/postgres?host={DIR},{DIR}&port=5432,5433"
    workers = start(URL)
    time.sleep(SECONDS / 3)
    sh(CTL + ["-m", "immediate", "stop"])
    time.sleep(SECONDS / 6)
    before = acknowledged()
    sh(on_standby(CTL) + ["promote"])
    psql("ALTER SYSTEM SET synchronous_standby_names = ''", "-p", "5433")
    psql("SELECT pg_reload_conf()", "-p", "5433")
    wait_for(workers)
    if acknowledged() <= before:
        sys.exit("nothing was acknowledged after the promotion")


def processes_of(path):
    """Of the server whose directory it is."""
    with open(f"{path}/postmaster.pid", encoding="ascii") as lines:
        first = lines.readline().strip()
    return [first] + sh(["pgrep", "-P", first]).split()


def signal_standby(number):
    for pid in processes_of(f"{DIR}/standby"):
        os.kill(int(pid), number)


def backends():
    return int(psql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'once'")[0])


def stall():
    """Commits wait for the standby, and are given up, again and again: no handle has more than its 4 connections meanwhile."""
    make_standby()
    workers = start()
    time.sleep(SECONDS / 8)
    signal_standby(signal.SIGSTOP)
    until, most = time.time() + SECONDS * 5 / 8, 0
    while time.time() < until:
        most = max(most, backends())
        time.sleep(0.1)
    before = acknowledged()
    signal_standby(signal.SIGCONT)
    wait_for(workers)
    print(f"{most} connections while it stood still, {acknowledged() - before} acknowledged afterwards")
    if most > 4 * WORKERS:
        sys.exit(f"{WORKERS} handles took {most} connections")
    done = set(psql("SELECT key FROM once.records WHERE state = 'completed'"))
    lost = [key for key in all_effects() if f"key-{key}" not in done]
    if lost or acknowledged() <= before:
        sys.exit(f"done and not recorded: {lost[:10]}")


def acknowledged():
    count = 0
    for path in glob.glob(f"{DIR}/load-*.acks"):
        with open(path, encoding="ascii") as lines:
            count += sum(1 for _ in lines)
    return count


def all_effects():
    effects = collections.Counter()
    for path in glob.glob(f"{DIR}/load-*.effects"):
        with open(path, encoding="ascii") as lines:
            effects.update(line.strip() for line in lines)
    return effects


def check_effects():
    effects = all_effects()
    twice = [key for key, count in effects.items() if count > 1]
    print(f"{len(effects)} effects, {len(twice)} twice, {acknowledged()} acknowledged")
    if twice or not effects:
        sys.exit(f"happened twice: {twice[:10]}")


def main():
    if SCENARIO in ("promote", "stall"):
        {"promote": promote, "stall": stall}[SCENARIO]()
    else:
        trouble = {"workers": kill_workers, "backends": kill_backends, "server": kill_server}[SCENARIO]
        workers = start()
        trouble(workers, time.time() + SECONDS - 1)
        wait_for(workers)
    check_effects()
    print(sh([LOAD, "verify", URL] + sorted(glob.glob(f"{DIR}/load-*.acks"))), end="")


main()
