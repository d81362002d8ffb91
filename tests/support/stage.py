"""What campaigns with a PostgreSQL stand on: servers, a pool and proxies before them, parts, and the faults of all of these."""
import glob
import os
import shutil
import tempfile
import time

import postgres
from brokers import Missing
from campaign import PATIENCE, Faults, Part, python, size

HERE = os.path.dirname(os.path.abspath(__file__))
FAILOVERS = ("none", "synchronous", "asynchronous")


class Stage:
    def __init__(self, directory, chosen, schema):
        self.directory, self.chosen, self.parts, self.failovers = directory, chosen, [], []
        self.servers = postgres.Servers()
        self.servers.primary.run(schema)
        if chosen.failover != "none":
            self.servers.follow(chosen.failover == "synchronous")
        self.pool = self.part("pool", postgres.pooler_command(), lambda: os.path.exists(postgres.socket_of(postgres.POOL)))

    def part(self, name, command, ready=lambda: True, **more):
        self.parts.append(Part(name, command, self.directory, ready, **more))
        return self.parts[-1]

    def proxy(self, port, target, rate, text="COMMIT"):
        """Returns the port, where connections are cut after a COMMIT (or any message: "") and before its reply."""
        listen = postgres.socket_of(port)
        self.part(f"proxy-{port}", python(f"{HERE}/proxy.py", listen, postgres.socket_of(target), f"{self.directory}/lost-{port}",
                                          self.chosen.seed, rate, text), lambda: os.path.exists(listen))
        return port

    def lost_replies(self):
        return sum(size(path) for path in glob.glob(f"{self.directory}/lost-*"))

    def faults(self, stop_seconds):
        """The parts that there are, and the servers."""
        faults = Faults(self.chosen, stop_seconds)
        for part in self.parts:
            faults.part(part)
        faults.add("kill", "server", self.servers.kill)
        faults.add("kill", "server process", lambda: self.servers.kill_backend(faults.choice))
        faults.add("stop", "server process", lambda: self.servers.stop_backend(faults.choice), 2)
        faults.add("stop", "server", self.servers.stop)
        if self.chosen.failover != "none":
            faults.add("failover", "server", self.fail_over)
        return faults

    def fail_over(self):
        begin = time.time()
        self.failovers.append((begin, begin + PATIENCE))
        self.servers.fail_over(lambda: time.sleep(0.3))  # commits that no other server has
        self.failovers[-1] = (begin, time.time())

    def may_be_lost(self, moment):
        """What was committed then may be lost with an asynchronous standby: shortly before the old primary's end."""
        return self.chosen.failover == "asynchronous" and any(begin - 5 < moment < end for begin, end in self.failovers)

    def faced(self, faults):
        return f"{faults.text()}, {self.lost_replies():,} lost replies"

    def close(self):
        for part in self.parts:
            part.close()
        self.servers.close()


def perform(prefix, make, conduct):
    """The exit code of a campaign: that of conduct(world), or 77 without a broker to start. make(directory) returns the world."""
    directory = tempfile.mkdtemp(prefix=prefix, dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    world = None
    try:
        world = make(directory)
        return conduct(world)
    except Missing as missing:
        print(missing)
        return 77
    finally:
        if world:
            world.close()
        shutil.rmtree(directory, ignore_errors=True)
