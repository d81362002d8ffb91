"""A server process that belongs to a test: it has a group of its own, and dies with its parent."""
import os
import signal
import socket
import subprocess
import time

PATIENCE = float(os.environ.get("BROKER_PATIENCE", "90"))  # a loaded machine starts a JVM slowly; more than this has failed


class Missing(Exception):
    """A program that these tests need is not installed."""


def free_port():
    """A free port of loopback. Below the range that outgoing connections take theirs from, so that none of them
    sits on it while a killed broker is away."""
    for _ in range(200):
        port = 12000 + int.from_bytes(os.urandom(2), "big") % 18000
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
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
        self.child.wait()

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
