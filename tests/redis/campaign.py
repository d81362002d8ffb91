#!/usr/bin/python3
"""Redis under faults: workers that use the store under hold, while they and the servers are killed and stopped.

    tests/redis/with-server [--sentinel|--cluster ...] tests/redis/campaign.py LOAD [--keys N] ...

One server (it writes its log at once, and starts again with what it had), a master with two replicas and sentinels, or a cluster:
then what dies is replaced by its replica, which writes wait for. Checked in the workers' own lists of effects: none twice; and
every completion that was acknowledged is replayed byte for byte. Unfenced, the policy is retry: a second effect after a kill.
"""
import collections
import glob
import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

from campaign import PATIENCE, Faults, Part, Progress, enough, options, result, size  # noqa: E402
from processes import alive  # noqa: E402
from waiting import until  # noqa: E402

DIR, URL = os.environ["ONCE_REDIS_DIR"], os.environ["ONCE_REDIS_URL"]
PORTS = os.environ["ONCE_REDIS_PORTS"].split()
KIND = URL.split(":")[0].partition("+")[2] or "single"
LOAD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else None
LEASE_S = 2  # of LOAD
WORKERS = 3


def cli(port, *arguments):
    return subprocess.run(["timeout", "5", f"{DIR}/cli", port, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, check=False).stdout


def pid(port):
    with open(f"{DIR}/{port}.pid", encoding="ascii") as file:
        return int(file.read())


def role(port):
    """master, replica (that follows), or none of these."""
    text = cli(port, "INFO", "replication")
    if "role:master" in text:
        return "master"
    return "replica" if "master_link_status:up" in text else "none"


class Servers:
    def __init__(self, faults):
        self.faults, self.choice = faults, faults.choice

    def settled(self):
        """As many masters as at the beginning, and replicas that follow them. Nothing stands still for that long."""
        self.faults.thaw()
        roles = collections.Counter(role(port) for port in PORTS)
        return roles["none"] == 0 and roles["master"] == {"single": 1, "sentinel": 1, "cluster": 3}[KIND]

    def wait(self):
        until(self.settled, "all servers are in their places", PATIENCE)

    def kill(self):
        """One dies. A master comes back when another has taken its place: it has nothing, and no replica must follow it then."""
        self.wait()
        port = self.choice.choice(PORTS)
        masters = {one for one in PORTS if role(one) == "master"}
        victim = pid(port)
        os.kill(victim, signal.SIGKILL)
        until(lambda: not alive(victim), "the end of the server", PATIENCE)  # it has the port until then
        if KIND != "single" and port in masters:
            self.until_replaced(port, masters)
        subprocess.run([os.environ["ONCE_REDIS_START"], port], check=True)
        if KIND == "sentinel":
            until(lambda: self.follow(port), "the old one follows", PATIENCE)

    def until_replaced(self, port, masters):
        """By itself; after some seconds, which a busy machine makes a minute, as an operator would help."""
        patience = time.monotonic() + 5

        def replaced():
            self.faults.thaw()
            others = {one: role(one) for one in PORTS if one != port}
            if KIND == "cluster" and time.monotonic() > patience:
                for one in (one for one, what in others.items() if what == "none"):
                    cli(one, "CLUSTER", "FAILOVER", "FORCE")
            return {one for one, what in others.items() if what == "master"} - masters
        until(replaced, "another takes over", PATIENCE)

    @staticmethod
    def follow(port):
        """Sentinels do that, too, but they take their time."""
        master = [one for one in PORTS if one != port and role(one) == "master"]
        if len(master) == 1:
            cli(port, "REPLICAOF", "127.0.0.1", master[0])
            time.sleep(0.1)
        return len(master) == 1 and role(port) == "replica"

    def stop(self):
        self.wait()
        chosen = pid(self.choice.choice(PORTS))
        os.kill(chosen, signal.SIGSTOP)
        return lambda: os.kill(chosen, signal.SIGCONT)

    def trouble(self):
        port = self.choice.choice(PORTS)
        cli(port, *self.choice.choice((["CLIENT", "KILL", "TYPE", "normal"], ["SCRIPT", "FLUSH"], ["CLIENT", "PAUSE", "300"],
                                       ["SCRIPT", "FLUSH", "SYNC"])))

    def reshard(self):
        self.wait()
        ids = [line.split()[0] for line in cli(PORTS[0], "CLUSTER", "NODES").splitlines() if "master" in line and "-" in line]
        source, target = self.choice.sample(ids, 2)
        subprocess.run([f"{DIR}/cli", PORTS[0], "--cluster", "reshard", f"127.0.0.1:{PORTS[0]}", "--cluster-from", source,
                        "--cluster-to", target, "--cluster-slots", "100", "--cluster-yes"], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=False, timeout=PATIENCE)


class Effects:
    """The lists of the workers, read on where they ended."""

    def __init__(self):
        self.places, self.counts = collections.Counter(), collections.Counter()

    def count(self):
        for path in glob.glob(f"{DIR}/load-*.effects"):
            if size(path) > self.places[path]:
                with open(path, "rb") as file:
                    file.seek(self.places[path])
                    text = file.read()
                whole = text[:text.rfind(b"\n") + 1]
                self.places[path] += len(whole)
                self.counts.update(whole.split())
        return len(self.counts)


def verify():
    """What the store says of acknowledged completions: how many there are, and which are wrong."""
    done = subprocess.run([LOAD, "verify", URL, *sorted(glob.glob(f"{DIR}/load-*.acks"))], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False, timeout=1000)
    return int(done.stdout.split()[1]), [line for line in done.stderr.splitlines() if "acknowledged as" in line]


def main():
    chosen = options(__doc__, 70000)
    faults, effects = Faults(chosen, LEASE_S), Effects()
    servers = Servers(faults)
    space = 20000 if chosen.unfenced else int(chosen.keys * 1.3)  # few enough to be asked for again soon
    workers = [Part(f"worker-{number}", [LOAD, "run", URL, f"{DIR}/load-{number}", 100000, space,
                                         "retry" if chosen.unfenced else "hold"], DIR) for number in range(WORKERS)]
    try:
        for worker in workers:
            faults.part(worker, 2)
        faults.add("kill", "server", servers.kill)
        faults.add("stop", "server", servers.stop)
        faults.add("other trouble", "clients and scripts", servers.trouble)
        if KIND == "cluster":
            faults.add("reshard", "server", servers.reshard)
        progress = Progress(lambda: f"{len(effects.counts):,} keys, {faults.text()}")
        if chosen.unfenced:
            end = time.monotonic() + PATIENCE
            faults.run(lambda: effects.count() and max(effects.counts.values()) > 1 or time.monotonic() > end, False)
        else:
            faults.run(enough(chosen, effects.count))
        servers.wait()
        progress.end()
    finally:
        for worker in workers:
            worker.close()
    effects.count()
    acknowledged, lost = verify()
    found = {"double": [key.decode() for key, count in effects.counts.items() if count > 1],
             "lost": [] if chosen.unfenced else lost, "crashes": faults.crashes()}
    told = f"{len(effects.counts):,} keys, {acknowledged:,} acknowledged"
    return result(f"redis, {KIND}", told, faults.text(), found, chosen.unfenced)


if __name__ == "__main__":
    sys.exit(main())
