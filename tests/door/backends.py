"""The examples as they are, in each language: built where they must be, started, killed, started again."""
import contextlib
import fcntl
import functools
import os
import shutil
import signal
import subprocess
import threading

import pytest

from harness import environment
from harness.nginx import die_with_parent
from harness.wait import PATIENCE, Timeout

EXAMPLES = os.path.join(environment.SOURCE, "examples", "door")
PLACE = os.path.join(environment.BUILD, "door")
NODE = os.path.join(environment.BUILD, "packages", "node")
PYTHON = os.path.join(environment.BUILD, "packages", "python", "venv", "bin", "python")  # of tests/packages/python/prepare
LANGUAGES = ("c", "python", "node", "go")


@contextlib.contextmanager
def alone():
    """Several tests prepare the same programs at the same time."""
    os.makedirs(PLACE, exist_ok=True)
    with open(os.path.join(PLACE, "lock"), "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(command, directory, what):
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=400)
    if done.returncode:
        pytest.skip(f"{what}: {done.stderr[-500:]}")


def in_node(program):
    """Beside what tests/packages/node/prepare has installed, where Node looks for it."""
    if not os.path.isdir(os.path.join(NODE, "node_modules")):
        pytest.skip("node and npm are not there: the example in Node cannot be tried")
    place = os.path.join(NODE, "door")
    os.makedirs(place, exist_ok=True)
    return ["node", shutil.copy(program, place)]


def command_go():
    if not shutil.which("go"):
        pytest.skip("go is not there: the example in Go cannot be tried")
    os.makedirs(PLACE, exist_ok=True)
    program = os.path.join(PLACE, "payments-go")
    os.environ.setdefault("GOTOOLCHAIN", "local")
    os.environ.setdefault("CGO_ENABLED", "0")
    run(["go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", program, "."], os.path.join(EXAMPLES, "go"),
        "the example in Go cannot be built")
    return [program]


@functools.lru_cache(maxsize=None)
def command_of(language):
    if language == "node":
        return in_node(os.path.join(EXAMPLES, "node", "payments.js"))
    if language == "go":
        with alone():
            return command_go()
    if language == "c":
        return [os.path.join(environment.BUILD, "examples", "example_door")]
    name = "payments" if language == "python" else language
    return [PYTHON, os.path.join(EXAMPLES, "python", f"{name}.py")]


class Backend:
    """One program. `wire` is where it finds its database, `link` where others find it: both outlive it."""

    def __init__(self, command, wire, link, user="shop", **more):
        self.command, self.link = command, link
        self.variables = dict(os.environ, PORT="0", PYTHONUNBUFFERED="1",
                              DATABASE=f"postgres://{user}@{wire.name}/postgres?sslmode=disable&application_name={wire.name}",
                              **more)
        self.process = None
        self.lines = []

    def start(self):
        self.process = subprocess.Popen(self.command, env=self.variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, preexec_fn=die_with_parent)
        ready = threading.Event()
        threading.Thread(target=self.read, args=(self.process.stdout, ready), daemon=True).start()
        if not ready.wait(PATIENCE * 2):
            raise Timeout("the backend did not say where it listens; it said:\n" + "\n".join(self.lines))
        return self

    def read(self, pipe, ready):
        for line in pipe:
            self.lines.append(line.rstrip("\n"))
            if "listening on http://" in line:
                host, port = line.strip().rsplit("/", 1)[1].split(":")
                self.link.target = (host, int(port))
                ready.set()

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait(PATIENCE)

    def restart(self):
        self.kill()
        return self.start()

    def close(self):
        if self.process:
            self.process.kill()
            self.process.wait(PATIENCE)
