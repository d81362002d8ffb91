"""A shell for the commands of a page, typed one after the other."""
import os
import re
import signal
import subprocess
import threading

from brokers import free_port as free_number
from waiting import Timeout

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("ONCE_BUILD", os.path.join(SOURCE, "build")))
PATIENCE = 90  # seconds for a command, or for what a program in the background says: a busy machine takes its time


def free_port():
    """As text: it replaces one in commands."""
    return str(free_number())


def page(name):
    """The text of docs/NAME."""
    with open(os.path.join(SOURCE, "docs", name), encoding="utf-8") as file:
        return file.read()


def blocks(text, language="sh"):
    """What stands between ```LANGUAGE and ```, one text for each."""
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


class Shell:
    """Takes commands, and tells what was printed up to their end. They find `once` in their PATH, and the source where they are."""

    def __init__(self, directory=SOURCE):
        variables = dict(os.environ, PATH=f"{BUILD}:{os.environ['PATH']}", PYTHONUNBUFFERED="1")
        self.process = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", "--", "bash"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=directory, env=variables,
                                        start_new_session=True)
        self.lines, self.changed = [], threading.Condition()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

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
            # What runs in the background may have printed half a line before: the progress of a curl, for instance.
            if not self.changed.wait_for(lambda: any(line.endswith("the end of it\n") for line in self.lines[begin:]), PATIENCE):
                raise Timeout(f"{text} did not end; it printed:\n" + "".join(self.lines[begin:]))
            return "".join(self.lines[begin:])

    def wait(self, text, count=1):
        """For what a program in the background says."""
        with self.changed:
            if not self.changed.wait_for(lambda: "".join(self.lines).count(text) >= count, PATIENCE):
                raise Timeout(f"no line has {text!r}; the lines:\n" + "".join(self.lines))

    def close(self):
        """Ends it with all that it started."""
        try:
            os.killpg(self.process.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        self.process.wait(PATIENCE)
        self.reader.join(30)  # its end is that of the last process that could write
