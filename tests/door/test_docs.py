"""docs/transactional.md, "Ten minutes": the commands as they are there, in one shell. Only ports differ, and root names a user."""
import os
import re
import signal
import subprocess
import threading

from harness import environment
from harness.nginx import die_with_parent
from harness.upstream import refusing_address
from harness.wait import PATIENCE, Timeout, until

PAGE = os.path.join(environment.SOURCE, "docs", "transactional.md")


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


def test_ten_minutes():
    with open(PAGE, encoding="utf-8") as file:
        blocks = re.findall(r"```sh\n(.*?)```", file.read(), re.S)
    database, backend, gate, pay, smash, repeat = blocks
    ports = {"3000": free_port(), "8080": free_port()}

    def ported(text):
        return re.sub("3000|8080", lambda match: ports[match.group()], text).replace("python3 ex", "/usr/bin/python3 ex") \
            .replace("lease=3s", "lease=2s") \
            .replace("once gate ", "once gate --user postgres " if os.geteuid() == 0 else "once gate ")

    shell = Shell()
    try:
        shell.run(database)
        shell.run(ported(backend))
        shell.wait("listening on")
        shell.run(ported(gate))
        shell.wait("once gate: ready")
        said = shell.run(ported(pay))
        assert said.count("HTTP/1.1 201") == 2 and said.count("Idempotent-Replayed: true") == 1, said
        assert said.count("12.50 |") == 1 and re.search(r"k-1 +\| completed +\| +1 \| +201", said), said
        shell.run(ported(smash))
        head, tail = ported(repeat).split("sleep 6\n")  # by hand one waits; here one looks
        shell.run(head)
        shell.wait("listening on", 2)
        request, look = tail.split("\n", 1)
        until(lambda: "HTTP/1.1 201" in shell.run(request), "the second attempt")
        said = shell.run(look)
        assert len(re.findall(r"o-2 +\| +5.00", said)) == 1, said
        assert re.search(r"k-2 +\| completed +\| +2 \| +201", said), said
    finally:
        shell.close()
