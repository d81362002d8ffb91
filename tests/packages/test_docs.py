"""docs/LANGUAGE.md: the commands as they are there, in one shell. Only ports differ, root names a user, and what step 1 would fetch
is what `prepare` has installed."""
import os
import re

import pytest

from stacks import PLACE, SOCKET
from harness import environment
from harness.wait import until
from shell import Shell, blocks, free_port, page
from wire import Wire


class Page:
    """`install` is in its step 1, for which `instead` stands here; `ready` is what the service prints."""

    def __init__(self, example, install, instead, ready, replace=()):
        self.example, self.install, self.instead, self.ready, self.replace = example, install, instead, ready, dict(replace)


PAGES = {
    "python": Page("shop.py", "pip install ./packages/python fastapi uvicorn 'psycopg[binary]'",
                   f". {PLACE}/python/venv/bin/activate", "Uvicorn running on"),
    "go": Page("shop.go", "(cd examples/go && go build -o /tmp/shop .)",
               "export GOPROXY=off GOTOOLCHAIN=local GOFLAGS=-buildvcs=false CGO_ENABLED=0; "
               f"(cd examples/go && go build -o {PLACE}/go/shop .)",
               "shop: ready", {"/tmp/shop": f"{PLACE}/go/shop"}),
    "node": Page("shop.js", "npm install --prefix /tmp/shop --install-links ./packages/node express pg",
                 f"cp examples/node/shop.js {PLACE}/node", "shop: ready", {"/tmp/shop": f"{PLACE}/node"}),
    "java": Page("src/main/java/shop/Shop.java", "mvn -q -f packages/java install -DskipTests", "", "Started Shop",
                 {"mvn -q -f examples/java package\n": "", "examples/java/target": f"{PLACE}/java/tree/examples/java/target"}),
}


@pytest.mark.parametrize("language", PAGES)
def test_ten_minutes(language):
    its = PAGES[language]
    text = page(f"{language}.md")
    with open(os.path.join(environment.SOURCE, "examples", language, its.example), encoding="utf-8") as file:
        assert f"\n{file.read()}```" in text
    package, database, start, pay, smash, repeat, gate = blocks(text)[:7]
    assert its.install in package
    wire = Wire(SOCKET)  # the server listens on a UNIX socket only
    ports = {"8000": free_port(), "8080": free_port(), "localhost": wire.name}

    def ported(commands):
        for old, new in its.replace.items():
            commands = commands.replace(old, new)
        return re.sub("8000|8080|localhost", lambda match: ports[match.group()], commands) \
            .replace("once gate ", "once gate --user postgres " if os.geteuid() == 0 else "once gate ")

    shell = Shell()
    try:
        shell.run(its.instead)
        shell.run(database)
        shell.run(ported(start).replace("sleep 1\n", ""))  # by hand one waits; here one looks
        shell.wait(its.ready)
        said = shell.run(ported(pay))
        assert said.count("HTTP/1.1 201") == 2 and said.lower().count("idempotent-replayed: true") == 1, said
        assert said.count("urn:once:problem:key-reused") == 1 and said.count("urn:once:problem:key-missing") == 1, said
        assert said.count("12.50\n") == 1 and re.search(r"k-1 +\| completed +\| +1 \| +201", said), said
        shell.run(ported(smash))
        head, tail = ported(repeat).split("sleep 4\n")
        shell.run(head)
        shell.wait(its.ready, 2)
        request, look = tail.split("\n", 1)
        until(lambda: "HTTP/1.1 201" in shell.run(request), "the second attempt")
        said = shell.run(look)
        assert len(re.findall(r"o-2 +\| +5.00", said)) == 1 and len(re.findall(r"payments +\| o-2 +\| paid", said)) == 1, said
        head, tail = ported(gate).split("sleep 1\n")
        shell.run(head)
        shell.wait("once gate: ready")
        said = shell.run(tail)
        assert said.count("HTTP/1.1 201") == 2 and said.lower().count("idempotent-replayed: true") == 1, said
        assert len(re.findall(r"o-3 +\| +7.00", said)) == 1, said
    finally:
        shell.close()
        wire.close()


class Parcels:
    """The program in examples/LANGUAGE, its directory or itself on the page and `here`; `slow` makes its carrier take its time.
    Without that, requests say how long it takes, and `prepare` has built the program, as `build` does on the page."""

    def __init__(self, program, there, here, ready="parcels: ready", slow=None, build=""):
        self.program, self.there, self.here, self.ready, self.slow, self.build = program, there, here, ready, slow, build


PARCELS = {
    "python": Parcels("parcels.py", "examples/python", PLACE + "/python", "Uvicorn running on",
                      ("asyncio.sleep(2)", "asyncio.sleep(2 if parcel.to == 'Hamburg' else 600)")),
    "node": Parcels("parcels.js", "/tmp/shop", PLACE + "/node",
                    slow=("sleep(2000)", "sleep(request.body.to === 'Hamburg' ? 2000 : 600000)")),
    "go": Parcels("parcels/parcels.go", "/tmp/parcels", PLACE + "/go/parcels",
                  build="(cd examples/go && go build -o /tmp/parcels ./parcels)\n"),
    "java": Parcels("src/main/java/parcels/Parcels.java", "examples/java/target", PLACE + "/java/tree/examples/java/target"),
}


@pytest.mark.parametrize("language", PARCELS)
def test_any_store(language, tmp_path):
    """Its files are the test's own, and the carrier waits to be killed."""
    its = PARCELS[language]
    text = page(f"{language}.md")
    with open(os.path.join(environment.SOURCE, "examples", language, its.program), encoding="utf-8") as file:
        program = file.read()
    assert f"\n{program}```" in text
    port = free_port()

    def own(commands):
        commands = commands.replace("8001", port).replace('"Porto", "takes": 2', '"Porto", "takes": 600')
        return commands.replace(its.there, "HERE").replace("/tmp/", f"{tmp_path}/").replace("HERE", its.here)

    if its.slow:
        with open(os.path.join(its.here, its.program), "w", encoding="utf-8") as file:
            file.write(own(program).replace(*its.slow))
    assert its.build in text
    start, smash, repeat = map(own, blocks(text.replace(its.build, ""))[7:])
    shell = Shell()
    try:
        shell.run(PAGES[language].instead)
        head, tail = start.split("sleep 4\n")
        shell.run(head)
        shell.wait('"message":"listening"')
        shell.wait(its.ready)
        said = shell.run(tail)
        assert said.count("HTTP/1.1 201") == 2 and said.lower().count("idempotent-replayed: true") == 1, said
        head, tail = smash.split("sleep 1\n")
        shell.run(head)
        until(lambda: "Porto" in (tmp_path / "sent.txt").read_text(encoding="utf-8"), "the parcel")
        shell.run(tail)
        head, tail = repeat.split("sleep 4\n")
        shell.run(head)
        shell.wait(its.ready, 2)
        request, look = tail.split("\n", 1)
        until(lambda: "urn:once:problem:outcome-unknown" in shell.run(request), "the lease's end")
        said = shell.run(look)
        assert said.count("Hamburg\n") == said.count("Porto\n") == 1 and re.search(r"unknown.*p-2|p-2.*unknown", said), said
    finally:
        shell.close()
