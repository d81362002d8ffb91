"""A shell for the commands of a page, typed one after the other."""
import os
import signal
import subprocess
import threading

from harness import environment
from harness.nginx import die_with_parent
from harness.upstream import refusing_address
from harness.wait import PATIENCE, Timeout


class Shell:
    """Takes commands, and tells what was printed up to their end."""

    def __init__(self):
        variables = dict(os.environ, PATH=f"{environment.BUILD}:{os.environ['PATH']}", PYTHONUNBUFFERED="1")
        self.process = subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, cwd=environment.SOURCE, env=variables,
                                        start_new_session=True, preexec_fn=die_with_parent)
        self.lines, self.changed = [], threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line)
                self.changed.notify_all()

    def run(self, text):
        with self.changed:
            begin = len(self.lines)
            self.process.stdin.write(text + "\necho; echo the end of it\n")
            self.process.stdin.flush()
            if not self.changed.wait_for(lambda: "the end of it\n" in self.lines[begin:], PATIENCE * 3):
                raise Timeout(f"{text} did not end; it printed:\n" + "".join(self.lines[begin:]))
            return "".join(self.lines[begin:])

    def wait(self, text, count=1):
        """For what a program in the background says."""
        with self.changed:
            if not self.changed.wait_for(lambda: "".join(self.lines).count(text) >= count, PATIENCE * 2):
                raise Timeout(f"no line has {text!r}; the lines:\n" + "".join(self.lines))

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        self.process.wait(PATIENCE)


def free_port():
    name, sock = refusing_address()
    sock.close()
    return name.split(":")[1]
