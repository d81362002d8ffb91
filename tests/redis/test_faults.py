#!/usr/bin/env python3
"""The redis store under load while things go wrong: nothing acknowledged is lost, nothing happens twice under hold.

    test_faults.py LOAD SCENARIO [SECONDS]     inside with-server

Scenarios: workers (kill -9 of processes that use the store), server (kill -9 of a server that writes its log at once, and start),
trouble (CLIENT KILL, SCRIPT FLUSH, CLIENT PAUSE, a server that sleeps), failover (kill -9 of a master behind sentinels or in a
cluster; its replicas are waited for), reshard (slots of a cluster move back and forth). SECONDS: how long the load runs (8).
"""
import collections
import glob
import os
import random
import signal
import subprocess
import sys
import time

LOAD, SCENARIO = sys.argv[1:3]
SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 8
DIR = os.environ["ONCE_REDIS_DIR"]
PORTS = os.environ["ONCE_REDIS_PORTS"].split()
URL = os.environ["ONCE_REDIS_URL"]
KEYS = int(3000 * SECONDS)
WORKERS = 3


def cli(port, *arguments):
    return subprocess.run([f"{DIR}/cli", port, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          check=False).stdout


def kill(port):
    with open(f"{DIR}/{port}.pid", encoding="ascii") as file:
        os.kill(int(file.read()), signal.SIGKILL)


def start_server(port):
    subprocess.run([os.environ["ONCE_REDIS_START"], port], check=True)


class Worker:
    count = 0

    def __init__(self, seconds):
        Worker.count += 1
        self.process = subprocess.Popen([LOAD, "run", URL, f"{DIR}/load-{Worker.count}", str(seconds), str(KEYS)])


def wait_for(workers):
    for worker in workers:
        if worker.process.wait(timeout=60) != 0:
            sys.exit("a worker could not finish")


def lines(pattern):
    for path in glob.glob(f"{DIR}/{pattern}"):
        with open(path, encoding="ascii") as file:
            yield from (line.strip() for line in file)


def acknowledged():
    return sum(1 for _ in lines("load-*.acks"))


def kill_workers(workers, until):
    while time.time() < until:
        time.sleep(0.5)
        i = random.randrange(WORKERS)
        workers[i].process.kill()
        workers[i].process.wait()
        workers[i] = Worker(max(until - time.time(), 0.5))


def kill_server(_, until):
    while time.time() < until:
        time.sleep(1)
        kill(PORTS[0])
        time.sleep(0.2)
        start_server(PORTS[0])


def make_trouble(_, until):
    while time.time() < until:
        for trouble in (["CLIENT", "KILL", "TYPE", "normal"], ["SCRIPT", "FLUSH"], ["CLIENT", "PAUSE", "300"],
                        ["DEBUG", "SLEEP", "0.3"], ["SCRIPT", "FLUSH", "SYNC"]):
            cli(PORTS[0], *trouble)
            time.sleep(0.15)


def masters():
    return [port for port in PORTS if "role:master" in cli(port, "INFO", "replication")]


def make_replica(port, master):
    """Sentinels do that, too, but they take their time; one that is late may even undo it."""
    for _ in range(100):
        cli(port, "REPLICAOF", "127.0.0.1", master)
        time.sleep(0.1)
        if "master_link_status:up" in cli(port, "INFO", "replication"):
            return


def fail_over(_, until):
    before = set(masters())
    victim = sorted(before)[0]
    time.sleep(SECONDS / 4)
    kill(victim)
    for _ in range(300):
        time.sleep(0.05)
        if set(masters()) - before:
            break
    else:
        sys.exit("no replica took over")
    count = acknowledged()
    start_server(victim)
    if "cluster" not in URL:
        make_replica(victim, (set(masters()) - before).pop())
    if time.time() < until:
        time.sleep(until - time.time())
    return count


def reshard(_, until):
    ids = [line.split()[0] for line in cli(PORTS[0], "CLUSTER", "NODES").splitlines() if "master" in line]
    turn = 0
    while time.time() < until:
        turn += 1
        cli(PORTS[0], "--cluster", "reshard", f"127.0.0.1:{PORTS[0]}", "--cluster-from", ids[turn % 3], "--cluster-to",
            ids[(turn + 1) % 3], "--cluster-slots", "100", "--cluster-yes")
    print(f"slots moved {turn} times")


def check_effects():
    effects = collections.Counter(lines("load-*.effects"))
    twice = [key for key, count in effects.items() if count > 1]
    print(f"{len(effects)} effects, {len(twice)} twice, {acknowledged()} acknowledged")
    if twice or len(effects) < 100:
        sys.exit(f"happened twice: {twice[:10]}")


def main():
    trouble = {"workers": kill_workers, "server": kill_server, "trouble": make_trouble, "failover": fail_over,
               "reshard": reshard}[SCENARIO]
    workers = [Worker(SECONDS) for _ in range(WORKERS)]
    count = trouble(workers, time.time() + SECONDS - 1)
    wait_for(workers)
    if count is not None and acknowledged() <= count:
        wait_for([Worker(5)])  # a busy machine may have taken all the time for the failover itself
        if acknowledged() <= count:
            sys.exit("nothing was acknowledged after the failover")
    check_effects()
    verify = subprocess.run([LOAD, "verify", URL] + sorted(glob.glob(f"{DIR}/load-*.acks")), check=False)
    sys.exit(verify.returncode)


main()
