"""The judge on middleware of others: what it finds is in docs/judge.md.

    ONCE_BUILD=build python3 test_peers.py      prints that table
"""
import json
import os
import re
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.abspath(os.path.join(HERE, "..", "..", ".."))
BUILD = os.path.abspath(os.environ.get("ONCE_BUILD", os.path.join(SOURCE, "build")))
PLACE = os.path.join(BUILD, "judge", "peers")
PATIENCE = 300
PYTHON = [os.path.join(PLACE, "venv", "bin", "python"), os.path.join(HERE, "peers.py")]
PEERS = {
    "express-idempotency": ["node", os.path.join(HERE, "express.js")],
    "asgi-idempotency-header": PYTHON + ["asgi-idempotency-header"],
    "fastapi-idempotency-key": PYTHON + ["fastapi-idempotency-key"],
    "django-idempotency-key": PYTHON + ["django-idempotency-key"],
}
ASK = ["--body", '{"amount": 4200}', "--refused-body", '{"amount": 0}', "--failing-body", '{"amount": 1, "then": 500}',
       "--header", "Authorization: Bearer of-the-first-caller", "--other-header", "Authorization: Bearer of-the-second-caller",
       "--effect-url", "/executions", "--effect-pointer", "/count", "--binary", "--large", "32k", "--timeout", "60s",
       "--patience", "5s", "--deadline", "5m"]
# Where it matters which of two requests comes first, one run proves a fault, and none its absence.
RACES = {"concurrent", "in-flight", "in-flight-reuse", "cut-answer"}


def verdicts(peer):
    process = subprocess.Popen(PEERS[peer], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               env={**os.environ, "NODE_PATH": os.path.join(PLACE, "node_modules")})
    try:
        url = process.stdout.readline().strip().rpartition(" ")[2]
        ran = subprocess.run([os.path.join(BUILD, "once"), "conformance", f"{url}/payments", "--json", *ASK],
                             capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert ran.returncode in (0, 1), ran.stderr
        return {check["name"]: check["verdict"] for check in json.loads(ran.stdout)["checks"]}
    finally:
        process.kill()
        process.communicate()


def documented():
    """{peer: {check: verdict}} of the table in docs/judge.md."""
    with open(os.path.join(SOURCE, "docs", "judge.md"), encoding="utf-8") as file:
        table = file.read().partition("\n| check |" + "".join(f" {peer} |" for peer in PEERS) + "\n")[2].partition("\n\n")[0]
    rows = [re.split(r" *\| *", line.strip("| ")) for line in table.split("\n")[1:]]
    return {peer: {row[0].strip("`"): row[number + 1] for row in rows} for number, peer in enumerate(PEERS)}


@pytest.mark.parametrize("peer", PEERS)
def test_peer_is_as_documented(peer):
    found, told = verdicts(peer), documented()[peer]
    assert found.keys() == told.keys()
    steady = found.keys() - RACES
    assert {name: found[name] for name in steady} == {name: told[name] for name in steady}
    assert not [name for name in RACES if found[name] == "fail" and told[name] != "fail"]


def main():
    found = {peer: verdicts(peer) for peer in PEERS}
    print("| check |" + "".join(f" {peer} |" for peer in PEERS))
    print("|---" * (1 + len(PEERS)) + "|")
    for name in found["express-idempotency"]:
        print(f"| `{name}` |" + "".join(f" {found[peer][name]} |" for peer in PEERS))


if __name__ == "__main__":
    sys.exit(main())
