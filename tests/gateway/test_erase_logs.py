"""What `once gate` leaves behind of a person whose records were erased: every byte of its logs, its own files, the store and its
index."""
import itertools
import json
import os
import re
import shutil
import subprocess
import tempfile

import pytest

from harness import environment, http1
from harness.gateway import take_port
from harness.upstream import Upstream, answer
from harness.wait import PATIENCE, until

USER = "www-data"
IS_ROOT = os.geteuid() == 0
PERSON = ("X-Person", "CANARY-person")


class Gate:
    def __init__(self, directory, *options):
        self.directory, self.port = directory, take_port()
        self.store = f"local:{directory}/store?index={directory}/index"
        self.upstream = Upstream()
        os.mkdir(f"{directory}/index")
        shutil.copy(environment.ONCE, f"{directory}/once")  # for a user that may not see the build directory
        if IS_ROOT:
            for path in (directory, f"{directory}/index"):
                shutil.chown(path, USER, USER)
        with open(f"{directory}/log", "wb") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", "--", environment.ONCE, "gate", "--nginx", environment.NGINX, "--module",
                 environment.MODULE, "--upstream", f"http://{self.upstream.name}", "--listen", f"127.0.0.1:{self.port}", "--store",
                 self.store, "--scope", "none", "--set", "once_subject $http_x_person", "--set", "once_recover hold",
                 "--set", "once_lease 1s", *options, *(["--user", USER] if IS_ROOT else [])],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory, env={**os.environ, "TMPDIR": directory})
        until(self.serves, lambda: f"the gate\n{self.log()}")

    def serves(self):
        assert self.process.poll() is None, self.log()
        try:
            return self.post("warm-up").status
        except OSError:
            return False

    def post(self, key, body=b"{}", headers=()):
        with http1.Connection(("127.0.0.1", self.port)) as client:
            return client.request("POST", "/payments", key, body, headers=list(headers))

    def start_once(self, *words):
        """As the user that the store belongs to."""
        become = ["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups", "--"] if IS_ROOT else []
        return subprocess.Popen([*become, f"{self.directory}/once", *words], stdout=subprocess.PIPE, text=True, cwd=self.directory)

    def once(self, *words):
        with self.start_once(*words) as process:
            told = process.communicate(timeout=PATIENCE)[0]
        assert process.returncode == 0
        return told

    def log(self):
        with open(f"{self.directory}/log", encoding="utf-8", errors="replace") as file:
            return file.read()

    def close(self):
        self.process.terminate()
        assert self.process.wait(PATIENCE) == 0
        self.upstream.close()


def places(directory, word):
    """The files that have the word, in any byte of them."""
    found = []
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    if word in file.read() or word in name.encode():
                        found.append(os.path.relpath(path, directory))
    return found


@pytest.fixture(name="directory")
def make_directory():
    path = tempfile.mkdtemp(prefix="once-erase.", dir="/dev/shm")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.parametrize("options", [("text",), ("text", "--log-json"), ("hash",), ("hash", "--log-json"), ("off",)],
                         ids=" ".join)
def test_logs_and_files(directory, options):
    gate = Gate(directory, "--log-keys", *options)
    gate.upstream.default = answer(201, [("X-Own", "CANARY-header")], b"CANARY-body" + 20000 * b".")
    for status in (201, 201):
        assert gate.post("CANARY-key", headers=[PERSON]).status == status
    assert gate.post("CANARY-key", b"CANARY-other", [PERSON]).status == 422
    gate.upstream.then(lambda exchange: exchange.reset())
    assert gate.post("CANARY-lost", headers=[PERSON]).status >= 500  # the log has an error about it
    record, = [json.loads(line) for line in gate.once("keys", "list", gate.store, "--json", "--stuck").splitlines()]
    until(lambda: json.loads(gate.once("keys", "show", gate.store, record["id"], "--json"))["lease_ms"] == 0, "its lease")
    gate.once("keys", "release", gate.store, record["id"], "--note", "it never ran", "--yes")
    before = {json.loads(line)["id"] for line in gate.once("keys", "list", gate.store, "--json").splitlines()
              if "CANARY" in line}
    assert len(before) == 2 and "store" in {path.split("/")[0] for path in places(directory, b"CANARY")}

    gate.upstream.default = answer(201, [], b"of somebody else")
    with gate.start_once("keys", "erase", gate.store, "--subject", PERSON[1], "--note", "asked for", "--yes", "--json") as erase:
        for number in itertools.count():  # a worker lets go of what it wrote with its next request
            if erase.poll() is not None:
                break
            gate.post(f"other-{number}")
        told = json.loads(erase.stdout.read())
    assert (told["erased"], told["segments_left"]) == (2, 0), told
    replay = gate.post("CANARY-key", headers=[PERSON])
    assert (replay.status, replay.body, replay.header("Once-Body")) == (201, b"", "erased")
    gate.close()

    assert places(directory, b"CANARY") == (["log"] if options[0] == "text" else [])
    log = gate.log()
    assert "/payments" in log and re.search("reset|prematurely", log)  # of the access log and of nginx itself
    if options[0] == "text":  # as was asked for: keys, and nothing else
        assert set(re.findall(r"CANARY[-\w]*", log)) == {"CANARY-key", "CANARY-lost"}
    ids = set(re.findall(r"\b[0-9a-f]{64}\b", log))
    assert before <= ids if options[0] == "hash" else not ids
    for name in before if options[0] == "hash" else ():  # it still leads to what became of it
        assert json.loads(gate.once("keys", "show", gate.store, name, "--json"))["erased"]
