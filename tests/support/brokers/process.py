"""A server process that belongs to a test: it has a group of its own, and dies with its parent."""
import os
import random
import signal
import socket
import subprocess
import time

PATIENCE = float(os.environ.get("BROKER_PATIENCE", "90"))  # a loaded machine starts a JVM slowly; more than this has failed


class Missing(Exception):
    """A program that these tests need is not installed."""


# Above the ports of Redis servers (tests/redis/with-server), below those that the system gives to outgoing connections.
PORTS = range(30000, 32768)
taken = []


def free_port():
    """A port of loopback that no other test takes until this process ends: neither before a server listens there, nor while a
    killed one is away. A socket with the port in its abstract name keeps it."""
    for port in random.sample(PORTS, len(PORTS)):
        keeper = socket.socket(socket.AF_UNIX)
        try:
            keeper.bind(f"\0once-test-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            keeper.close()
            continue
        taken.append(keeper)
        return port
    raise RuntimeError("no free port on loopback")


class Process:
    def __init__(self, name, command, environment, directory):
        self.name = name
        self.log = os.path.join(directory, name + ".log")
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", *command], cwd=directory, env=environment,
                                          stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    @property
    def pid(self):
        return self.child.pid

    def alive(self):
        return self.child.poll() is None

    def kill(self):
        """kill -9 of the process and what it started."""
        self.signal(signal.SIGKILL)
        self.child.wait(PATIENCE)

    def signal(self, number):
        """To the whole group: a broker has helpers."""
        try:
            os.killpg(self.child.pid, number)
        except ProcessLookupError:
            pass

    def until(self, condition, patience=PATIENCE):
        """Asks again until `condition` holds; the process must live meanwhile."""
        end = time.monotonic() + patience
        while not condition():
            if not self.alive():
                raise AssertionError(f"{self.name} ended with {self.child.returncode}:\n{self.last_words()}")
            if time.monotonic() > end:
                raise AssertionError(f"{self.name} did not serve within {patience:g} s:\n{self.last_words()}")
            time.sleep(0.05)

    def last_words(self):
        with open(self.log, "rb") as log:
            return log.read()[-4000:].decode(errors="replace")
