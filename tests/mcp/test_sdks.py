"""Agents and tools by the SDKs for Python and TypeScript, each as client and as server, with a gate between them. Answers are lost,
servers and gates killed between the payment and its answer: the ledger, which outlives them, has each intent once."""
import json
import os
import socket
import subprocess
import sys
import threading

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
from brokers import free_port  # noqa: E402 pylint: disable=wrong-import-position
from gate import BUILD, PATIENCE, Gate  # noqa: E402 pylint: disable=wrong-import-position
from shell import blocks, page  # noqa: E402 pylint: disable=wrong-import-position
from waiting import until  # noqa: E402 pylint: disable=wrong-import-position

PLACE = os.path.join(BUILD, "mcp")
RUN = {"python": [os.path.join(PLACE, "venv/bin/python")], "node": ["node"]}
FILE = {"python": "py", "node": "mjs"}
TOOLS = blocks(page("mcp.md"))[0]  # from the annotations
ENVIRONMENT = {**os.environ, "MCP_MODULES": PLACE}


class Server:
    """Of one SDK; a start after its death is on the same port, with the same ledger."""

    def __init__(self, sdk, directory, *more):
        self.port, self.ledger = free_port(), os.path.join(directory, "ledger")
        with open(self.ledger, "w", encoding="utf-8"):
            pass
        self.command = [*RUN[sdk], os.path.join(HERE, "server." + FILE[sdk]), str(self.port), self.ledger, *more]
        self.log, self.process = os.path.join(directory, "server.log"), None
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", *self.command], stdout=log, stderr=log,
                                            env=ENVIRONMENT)
        until(self.is_ready, lambda: open(self.log, encoding="utf-8").read(), PATIENCE)

    def is_ready(self):
        assert self.process.poll() is None, open(self.log, encoding="utf-8").read()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def payments(self):
        with open(self.ledger, encoding="utf-8") as ledger:
            return sorted(line.split()[0] for line in ledger)

    def close(self):
        self.process.kill()
        self.process.wait(PATIENCE)


class Lossy:
    """Forwards connections to a port. While `lose` is set, the answer to a tools/call is dropped with its connection;
    with `cut`, what follows its first event."""

    def __init__(self, port):
        self.port, self.lose, self.lost, self.cut = port, 0, 0, False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client = self.listener.accept()[0]
            server = socket.create_connection(("127.0.0.1", self.port))
            call = threading.Event()
            threading.Thread(target=self.copy, args=(client, server, call, True), daemon=True).start()
            threading.Thread(target=self.copy, args=(server, client, call, False), daemon=True).start()

    def copy(self, source, target, call, up):
        try:
            while data := source.recv(65536):
                if up and b'"tools/call"' in data:
                    call.set()
                if not up and call.is_set() and self.lose:
                    if self.cut:
                        target.sendall(data[:data.index(b"\n\n") + 2])
                    self.lose, self.lost = self.lose - 1, self.lost + 1
                    break
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


# One of each by default; `ctest -C soak` has all of them.
PAIRS = [("python", "node"), ("node", "python json")]
SOAK = os.environ.get("MCP_PAIRS") == "all"
if SOAK:
    PAIRS = [(one, other) for one in RUN for other in ("python", "python json", "node", "node json")]


@pytest.fixture(params=PAIRS, ids=" with ".join)
def pair(request):
    return request.param


@pytest.fixture
def begin(pair):
    """Starts a call; what the application sees is the function that this returns."""
    def start(url, tool, arguments, key=None):
        command = [*RUN[pair[0]], os.path.join(HERE, "client." + FILE[pair[0]]), url + "/mcp", tool, json.dumps(arguments)]
        agent = subprocess.Popen(command + ([key] if key else []), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 env=ENVIRONMENT)

        def finish():
            try:
                out, wrong = agent.communicate(timeout=PATIENCE)
            finally:
                agent.kill()
            return json.loads(out) if out.strip() else {"broken": wrong}
        return finish
    return start


@pytest.fixture
def client(begin):
    return lambda *call: begin(*call)()


@pytest.fixture
def server(pair, tmp_path):
    sdk, *form = pair[1].split()
    made = Server(sdk, str(tmp_path), *form)
    yield made
    made.close()


@pytest.fixture
def gate(server):
    with_url = TOOLS.replace("127.0.0.1:3000", f"127.0.0.1:{server.port}")
    tools = subprocess.run(["bash", "-c", with_url], capture_output=True, text=True, timeout=PATIENCE, check=True).stdout.strip()
    assert tools == "all,!look", tools
    made = Gate(server.port, free_port(), "--scope", "none", "--set", "once_lease 1s", "--set", "proxy_buffering off", "--route",
                f"POST /mcp mcp={tools} recover=hold")
    yield made
    assert made.close() == 0


def test_once_per_intent(client, server, gate):
    """A lost answer, a killed server, a missing key and a reused one: what the application sees, and what was paid."""
    paid = {"text": "paid 7 for a"}
    assert client(gate.address, "pay", {"order": "a", "amount": 7}, "a") == paid
    assert client(gate.address, "pay", {"order": "a", "amount": 7}, "a") == paid, "another session, the same intent"

    lossy = Lossy(int(gate.address.rsplit(":", 1)[1]))
    lossy.lose = 1
    first = client(lossy.address, "pay", {"order": "b", "amount": 7}, "b")
    assert lossy.lost == 1 and "text" not in first, first
    assert client(lossy.address, "pay", {"order": "b", "amount": 7}, "b") == {"text": "paid 7 for b"}

    dead = client(gate.address, "pay", {"order": "c", "amount": 7, "then": "die"}, "c")
    assert dead["code"] == -32054 and dead["data"]["type"].split(":")[-1] in ("response-lost", "response-incomplete"), dead
    server.process.wait(PATIENCE)
    server.start()
    unknown = client(gate.address, "pay", {"order": "c", "amount": 7, "then": "die"}, "c")
    assert unknown["code"] == -32052 and "Do not call again: the outcome is unknown" in unknown["message"], unknown

    missing = client(gate.address, "pay", {"order": "d", "amount": 7})
    assert missing["code"] == -32602 and "params._meta.idempotencyKey" in missing["message"], missing
    reused = client(gate.address, "pay", {"order": "d", "amount": 8}, "a")
    assert reused["code"] == -32053 and reused["data"]["status"] == 422, reused
    assert client(gate.address, "look", {"order": "c"}) == {"text": "1"}, "a tool that only reads needs no key"
    assert server.payments() == ["a", "b", "c"]


@pytest.mark.parametrize("pair", PAIRS if SOAK else PAIRS[:1], ids=" with ".join, indirect=True)
def test_killed_gate(client, begin, server, gate):
    """kill -9 between the payment and its answer: the next gate on that store does not pay again."""
    first = begin(gate.address, "pay", {"order": "e", "amount": 7, "then": "stay"}, "e")
    until(lambda: "e" in server.payments(), "the payment", PATIENCE)
    gate.kill()
    gate.start()
    assert "text" not in first()
    seen = []
    until(lambda: seen.append(client(gate.address, "pay", {"order": "e", "amount": 7, "then": "stay"}, "e")) or
          seen[-1]["code"] == -32052, "the end of the lease", PATIENCE)
    assert all(answer["code"] == -32050 for answer in seen[:-1]), seen
    assert server.payments() == ["e"]


@pytest.mark.parametrize("pair", [("node", "node events")], ids=" with ".join, indirect=True)
def test_resumed_stream(client, server, gate):
    """The rest of an answer is lost after its first event: the SDK resumes by itself, at the server, through the gate."""
    lossy = Lossy(int(gate.address.rsplit(":", 1)[1]))
    lossy.lose, lossy.cut = 1, True
    assert client(lossy.address, "pay", {"order": "f", "amount": 7}, "f") == {"text": "paid 7 for f"} and lossy.lost == 1
    assert client(gate.address, "pay", {"order": "f", "amount": 7}, "f") == {"text": "paid 7 for f"}
    assert server.payments() == ["f"]
