"""Programs of the shop: started, killed, and started again as a supervisor would."""
import os
import signal
import subprocess
import threading
import time

PATIENCE = float(os.environ.get("SHOP_PATIENCE", "90"))


def until(condition, what, patience=PATIENCE):
    """For what has no event to wait on. Returns what `condition` gave."""
    end = time.monotonic() + patience
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"waited {patience:g} s for: {what() if callable(what) else what}")
        time.sleep(0.02)


class Part:
    """One program. `log` is a file with all that it said, over all its lives."""

    def __init__(self, name, directory, command):
        self.name, self.command = name, command
        self.log = os.path.join(directory, name + ".log")
        self.process = None
        self.wanted = False
        self.lock = threading.Lock()
        self.kills = []  # when

    def start(self):
        with self.lock:
            self.wanted = True
            self.spawn()

    def spawn(self):
        with open(self.log, "ab") as log:
            # It dies with its parent. Not by preexec_fn, which is not for programs with threads.
            self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", *self.command], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, start_new_session=True)

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def keep_alive(self):
        """For the supervisor: what ended although it is wanted is started again."""
        with self.lock:
            if self.wanted and not self.alive():
                self.spawn()

    def kill(self):
        """kill -9; False: it was dead already. The time is taken before and after: it died in between."""
        with self.lock:
            before = time.monotonic()
            if not self.alive():
                return False
            self.process.kill()
            self.process.wait()
            self.kills.append((before, time.monotonic()))
            return True

    def end(self):
        """In an orderly way; its exit code."""
        with self.lock:
            self.wanted = False
            if not self.alive():
                return 0
            self.process.terminate()
            try:
                return self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                return "had to be killed"

    def last_words(self, lines=15):
        try:
            with open(self.log, encoding="utf-8", errors="replace") as log:
                return "".join(log.readlines()[-lines:])
        except OSError:
            return ""


class Supervisor:
    """Starts again what died, as init does for services that shall always run. Its thread has to live as long as what it started:
    the kernel's signal at a parent's death goes by threads."""

    def __init__(self, parts):
        self.parts, self.stop = parts, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.stop.wait(0.2):
            for part in self.parts:
                part.keep_alive()

    def end(self):
        """When all parts have ended."""
        self.stop.set()
        self.thread.join()


class Postgres:
    """The server that tests/postgres/with-server started: killed as a whole, and started again."""

    name = "postgres"

    def __init__(self):
        self.directory = os.environ["ONCE_PG_DIR"]
        self.control = os.environ["ONCE_PG_CTL"].split()
        self.kills = []

    def processes(self):
        with open(os.path.join(self.directory, "data", "postmaster.pid"), encoding="ascii") as file:
            top = int(file.readline())
        with open(f"/proc/{top}/task/{top}/children", encoding="ascii") as file:
            return [top, *map(int, file.read().split())]

    def kill(self):
        pids = self.processes()
        self.kills.append((time.monotonic(), None))
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        until(lambda: not any(map(running, pids)), "the end of PostgreSQL")

    def start(self):
        """Again and again: it does not start as long as a process of its earlier life is in the system's table, be it as a
        zombie."""
        until(lambda: subprocess.run([*self.control, "start"], check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL).returncode == 0, "PostgreSQL")


def running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
