"""A real nginx in a directory of its own, on an address of its own. Its error log is a pipe to here: what it says is an event
that a test can wait for, and nothing it says goes unread."""
import ctypes
import os
import re
import signal
import subprocess
import threading
import time

from . import environment
from .wait import PATIENCE, Timeout

# Whatever a test does, nginx must not say these, unless the test expects it.
FORBIDDEN = re.compile(
    r"\[(alert|emerg|crit)\]|AddressSanitizer|LeakSanitizer|runtime error:|exited on signal|open socket|stack smashing")

PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None)


def die_with_parent():
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Log:
    """The lines of the error log, read by a thread as they come."""

    def __init__(self, pipe, path):
        self.pipe, self.path = pipe, path
        self.lines, self.ended = [], False
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        with open(self.path, "ab") as file:
            for line in self.pipe:
                file.write(line)
                file.flush()
                with self.changed:
                    self.lines.append(line.decode("utf-8", "replace").rstrip("\n"))
                    self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def find(self, pattern, since=0):
        with self.changed:
            return [line for line in self.lines[since:] if re.search(pattern, line)]

    def mark(self):
        with self.changed:
            return len(self.lines)

    def wait(self, pattern, count=1, since=0, patience=PATIENCE):
        with self.changed:
            self.changed.wait_for(lambda: len(self.find(pattern, since)) >= count or self.ended, patience)
            found = self.find(pattern, since)
        if len(found) < count:
            raise Timeout(f"nginx did not say {count} x {pattern!r}; it said:\n" + "\n".join(self.lines[-30:]))
        return found

    def wait_end(self, patience=PATIENCE):
        """Until every process of this nginx is gone."""
        with self.changed:
            if not self.changed.wait_for(lambda: self.ended, patience):
                raise Timeout("some process of nginx is still there; it said:\n" + "\n".join(self.lines[-30:]))


class Nginx:
    def __init__(self, directory, configuration, workers=1, variables=None):
        self.directory, self.workers = str(directory), workers
        self.variables = dict(os.environ, **(variables or {}))
        self.path = os.path.join(self.directory, "nginx.conf")
        self.expected = []
        self.process = self.log = None
        self.write(configuration)

    def write(self, configuration):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(configuration)

    def command(self, *more):
        return [environment.NGINX, "-p", self.directory, "-c", self.path, "-e", "stderr", *more]

    def test(self):
        """`nginx -t`: whether the configuration is accepted, and what is said about it."""
        done = subprocess.run(self.command("-t"), capture_output=True, text=True, timeout=PATIENCE, check=False)
        return done.returncode == 0, done.stderr

    def start(self):
        self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, start_new_session=True, preexec_fn=die_with_parent,
                                        env=self.variables)
        self.log = Log(self.process.stderr, os.path.join(self.directory, "error.log"))
        self.log.wait(r"start worker process \d+", self.workers)
        return self

    # ------------------------------------------------------------------------------------------------- processes

    @property
    def running(self):
        return self.process is not None and self.process.poll() is None

    def worker_pids(self):
        """Of workers that take connections: not those that are about to leave."""
        leaving = {int(pid) for line in self.log.find("gracefully shutting down") for pid in re.findall(r" (\d+)#", line)}
        return [pid for pid in self.children() if pid not in leaving]

    def children(self):
        pid = self.process.pid
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(child) for child in file.read().split()]

    def signal(self, number):
        os.kill(self.process.pid, number)

    def reload(self):
        """A new configuration generation; returns when its workers take connections. The pids of the old ones."""
        old, mark = self.worker_pids(), self.log.mark()
        self.signal(signal.SIGHUP)
        self.log.wait(r"start worker process \d+", self.workers, since=mark)
        for pid in old:
            self.log.wait(rf" {pid}#\d+: gracefully shutting down", since=mark)
        return old

    def wait_worker_gone(self, *pids):
        for pid in pids:
            self.log.wait(rf"worker process {pid} exited|process {pid} exited")

    def kill_worker(self, pid=None):
        """kill -9; returns when another worker has taken its place."""
        pid = pid or self.worker_pids()[0]
        self.expect(rf"worker process {pid} exited on signal 9")
        mark = self.log.mark()
        os.kill(pid, signal.SIGKILL)
        self.log.wait(rf"worker process {pid} exited on signal 9", since=mark)
        self.log.wait(r"start worker process \d+", since=mark)

    def kill_all(self):
        """kill -9 of everything at once, as when the machine's memory runs out."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)
        self.log.wait_end()

    def quit(self):
        """Graceful: returns when everybody has left, which they must by themselves."""
        self.leave(signal.SIGQUIT)

    def term(self):
        self.leave(signal.SIGTERM)

    def leave(self, number):
        self.signal(number)
        try:
            self.log.wait_end()
            self.process.wait(PATIENCE)
        except (Timeout, subprocess.TimeoutExpired):
            self.destroy()
            raise
        assert self.process.returncode == 0, f"nginx ended with {self.process.returncode}"

    def destroy(self):
        if self.process is None:
            return
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(PATIENCE)

    # ------------------------------------------------------------------------------------------------------- log

    def expect(self, pattern):
        """A line like this is no complaint in this test."""
        self.expected.append(pattern)

    def complaints(self):
        return [line for line in self.log.find(FORBIDDEN.pattern)
                if not any(re.search(pattern, line) for pattern in self.expected)]

    def wait_quiet(self, seconds):
        """Lets time pass where time itself is what is tested: a lease, a ttl."""
        time.sleep(seconds)
