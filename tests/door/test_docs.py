"""docs/transactional.md, "Ten minutes": the commands as they are there, in one shell. Only ports differ, and root names a user."""
import os
import re

from backends import PYTHON
from harness.wait import until
from shell import Shell, blocks, free_port, page


def test_ten_minutes():
    database, backend, gate, pay, smash, repeat = blocks(page("transactional.md"))
    ports = {"3000": free_port(), "8080": free_port()}

    def ported(text):
        return re.sub("3000|8080", lambda match: ports[match.group()], text).replace("python3 ex", f"{PYTHON} ex") \
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
