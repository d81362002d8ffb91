"""docs/java.md: the commands as they are there, in one shell. Only ports differ, root names a user, and what Maven would build is
what `prepare` has built."""
import os
import re

from stacks import PLACE, SOCKET
from harness import environment
from harness.wait import until
from shell import Shell, free_port
from wire import Wire

BUILD = "mvn -q -f examples/java package\n"


def test_ten_minutes():
    with open(os.path.join(environment.SOURCE, "docs", "java.md"), encoding="utf-8") as file:
        page = file.read()
    with open(os.path.join(environment.SOURCE, "examples/java/src/main/java/shop/Shop.java"), encoding="utf-8") as file:
        assert f"```java\n{file.read()}```" in page
    package, database, start, pay, smash, repeat, gate = re.findall(r"```sh\n(.*?)```", page, re.S)
    assert package == "mvn -q -f packages/java install -DskipTests\n" and BUILD in start
    wire = Wire(SOCKET)
    changed = {"8000": free_port(), "8080": free_port(), "localhost": wire.name, BUILD: "",
               "examples/java/target": f"{PLACE}/java/tree/examples/java/target", "once gate ": "once gate "}
    if os.geteuid() == 0:
        changed["once gate "] = "once gate --user postgres "

    def adapted(text):
        return re.sub("|".join(changed), lambda match: changed[match.group()], text)

    shell = Shell()
    try:
        shell.run(database)
        shell.run(adapted(start))
        shell.wait("Started Shop")
        said = shell.run(adapted(pay))
        assert said.count("HTTP/1.1 201") == 2 and said.count("Idempotent-Replayed: true") == 1, said
        assert said.count("urn:once:problem:key-reused") == 1 and said.count("urn:once:problem:key-missing") == 1, said
        assert said.count("12.50\n") == 1 and re.search(r"k-1 +\| completed +\| +1 \| +201", said), said
        shell.run(adapted(smash))
        head, tail = adapted(repeat).split("sleep 6\n")  # by hand one waits; here one looks
        shell.run(head)
        shell.wait("Started Shop", 2)
        request, look = tail.split("\n", 1)
        until(lambda: "HTTP/1.1 201" in shell.run(request), "the second attempt")
        said = shell.run(look)
        assert len(re.findall(r"o-2 +\| +5.00", said)) == 1 and len(re.findall(r"payments +\| o-2 +\| paid", said)) == 1, said
        head, tail = adapted(gate).split("sleep 1\n")
        shell.run(head)
        shell.wait("once gate: ready")
        said = shell.run(tail)
        assert said.count("HTTP/1.1 201") == 2 and said.count("Idempotent-Replayed: true") == 1, said
        assert len(re.findall(r"o-3 +\| +7.00", said)) == 1, said
    finally:
        shell.close()
        wire.close()
