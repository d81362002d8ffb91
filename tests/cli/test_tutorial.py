"""docs/tutorial-gate.md: the commands as they are there, in one shell. Only ports, files and waits differ, and root names a user,
which owns the store."""
import os
import shutil
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from shell import BUILD, PATIENCE, SOURCE, Shell, blocks, free_port, page  # noqa: E402
from waiting import until  # noqa: E402


@pytest.fixture
def directory():
    """Workers of another user go through it."""
    path = tempfile.mkdtemp(prefix="tutorial.")
    os.chmod(path, 0o711)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_gate(directory):
    ports, root = {"3000": free_port(), "8080": free_port()}, os.geteuid() == 0
    backend, gate, pay, refused, smash, repeat, settle, replay = blocks(page("tutorial-gate.md"))
    with open(os.path.join(SOURCE, "examples", "gate", "payments.py"), encoding="utf-8") as file:
        program = file.read().replace("/tmp/", f"{directory}/")
    with open(f"{directory}/payments.py", "w", encoding="utf-8") as file:
        file.write(program)
    if root:  # `once keys` as the owner of the store, from where the owner can run it
        shutil.copy(os.path.join(BUILD, "once"), directory)

    def here(commands):
        commands = commands.replace("/tmp/", f"{directory}/") \
            .replace("python3 examples/gate/", f"PORT={ports['3000']} python3 {directory}/")
        if root:
            commands = commands.replace("once gate ", "once gate --user nobody ") \
                .replace("once keys ", f"runuser -u nobody -- {directory}/once keys ")
        for old, new in ports.items():
            commands = commands.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
        return commands.replace("curl ", "curl -sS ")

    def paid(amount):
        with open(f"{directory}/payments.txt", encoding="utf-8") as file:
            return file.read().split().count(amount)

    shell = Shell()
    try:
        head, tail = here(backend).split("sleep 1\n")  # by hand one waits; here one looks
        shell.run(head)
        shell.wait("payments: ready")
        shell.run(tail)
        assert paid("12.50") == 2
        shell.run(here(gate).replace("sleep 1\n", ""))
        shell.wait("once gate: ready")
        said = shell.run(here(pay))
        assert said.count("HTTP/1.1 201") == 2 and said.count("Idempotent-Replayed: true") == 1 and paid("20.00") == 1, said
        said = shell.run(here(refused))
        assert "urn:once:problem:key-reused" in said and "urn:once:problem:key-missing" in said and paid("99.00") == 0, said
        head, tail = here(smash).split("sleep 1\n")
        shell.run(head)
        until(lambda: paid("5.00") == 1, "the payment", PATIENCE)
        shell.run(tail)
        shell.wait("urn:once:problem:response-lost")
        head, tail = here(repeat).split("sleep 1\n")
        shell.run(head)
        shell.wait("payments: ready", 2)
        assert "urn:once:problem:outcome-unknown" in shell.run(tail)
        until(lambda: "settled: the record is now completed" in shell.run(here(settle)), "the end of the lease", PATIENCE)
        said = shell.run(here(replay))
        assert "HTTP/1.1 201" in said and "Idempotent-Replayed: true" in said and paid("5.00") == 1, said
    finally:
        shell.close()
