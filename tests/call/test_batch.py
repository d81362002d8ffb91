"""Batches: each line once, in the order of its group, over any number of kills. CALL_LINES: how many lines."""
import json
import os
import random
import signal
import subprocess
import time

import pytest
from stage import PATIENCE, Backend, Caller, Gate
from waiting import until

LINES = int(os.environ.get("CALL_LINES", "400"))
GROUPS = 7


@pytest.fixture(name="backend")
def fixture_backend():
    backend = Backend()
    yield backend
    backend.close()


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_batch_is_killed_again_and_again(tmp_path, backend):
    """Killed whenever some more effects have been seen; the last run is left alone."""
    gate = Gate(backend)
    lines = [{"name": f"payout-{n}", "json": {"id": str(n)}, **({"group": str(n % GROUPS)} if n % 3 else {})} for n in range(LINES)]
    file, results = write_lines(tmp_path / "lines", lines), tmp_path / "results"
    caller, choice = Caller(tmp_path), random.Random(1)
    words = ["--batch", file, "-o", str(results), "-s", "--parallel-max", "8", f"{gate.url}/pay"]
    for kill in range(1, 4):
        process = subprocess.Popen(caller.command(*words), env={**os.environ, "no_proxy": "*"})
        enough = LINES * kill // 5 + choice.randrange(LINES // 10)
        until(lambda some=enough: len(backend.effects) >= some, f"{enough} effects", 30 * PATIENCE)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -9
    subprocess.run(caller.command(*words), check=True, timeout=30 * PATIENCE)
    gate.close()
    assert sorted(backend.effects, key=int) == [str(n) for n in range(LINES)]
    for group in range(GROUPS):
        order = [int(n) for n in backend.effects if int(n) % 3 and int(n) % GROUPS == group]
        assert order == sorted(order)
    told = read_lines(results)
    assert sorted(line["line"] for line in told) == list(range(1, LINES + 1))
    for line in told:
        assert line["end"] == "answered" and line["status"] == 201
        assert json.loads(line["body"])["id"] == lines[line["line"] - 1]["json"]["id"] == line["name"].split("-")[1]
    assert any(line["remembered"] for line in told)


def test_group_is_held_behind_a_line_without_an_answer(tmp_path, backend):
    results, caller = tmp_path / "results", Caller(tmp_path)
    file = write_lines(tmp_path / "lines", [
        {"name": "1", "group": "a", "data": "1"},
        {"name": "2", "group": "a", "data": "2", "url": f"{backend.url}/answer/500"},
        {"name": "3", "group": "a", "data": "3"},
        {"key": "4", "group": "b", "data": "4", "url": f"{backend.url}/answer/404"},
        {"key": "5", "group": "b", "data": "5", "headers": {"Authorization": "mine"}},
    ])
    words = ["--batch", file, "-o", str(results), "--retry", "0", "-H", "Authorization: common", "-s", f"{backend.url}/pay"]
    caller.run(*words, check=8)
    told = {line["line"]: (line["end"], line["exit"]) for line in read_lines(results)}
    assert told == {1: ("answered", 0), 2: ("open", 8), 3: ("held", 8), 4: ("answered", 1), 5: ("answered", 0)}
    assert backend.of("3") == [] and backend.of("5") == [("5", "mine")] and backend.of("1")[0][1] == "common"


def test_server_that_fails_is_not_stormed(tmp_path, backend):
    """Each line would be sent a dozen times. The budget: as many retries as calls at the same time, a sixteenth of that each
    second, and a fifth of the lines."""
    lines, calls, seconds = 64, 32, 2
    file = write_lines(tmp_path / "lines", [{"name": str(n), "data": str(n)} for n in range(lines)])
    before = time.monotonic()
    Caller(tmp_path).run("--batch", file, "-s", "-o", str(tmp_path / "results"), "--parallel-max", str(calls),
                         "--retry-delay", "1ms", "--retry-max-time", f"{seconds}s", f"{backend.url}/answer/503", check=8)
    took = time.monotonic() - before
    retries = len(backend.requests) - lines
    assert {line["end"] for line in read_lines(tmp_path / "results")} == {"open"}
    assert 0 < retries <= calls + calls / 16 * took + lines / 5


def test_batch_goes_on_after_an_outage(tmp_path, backend):
    """More retries are needed than the budget has at the beginning."""
    file = write_lines(tmp_path / "lines", [{"name": str(n), "json": {"id": str(n), "fail": 2}} for n in range(10)])
    Caller(tmp_path).run("--batch", file, "-s", "-o", str(tmp_path / "results"), "--retry-delay", "1ms", f"{backend.url}/flaky",
                         check=0)
    assert sorted(backend.effects, key=int) == [str(n) for n in range(10)] and len(backend.requests) == 30


@pytest.mark.parametrize("line, said", [
    ("{", "line 2: is not JSON"),
    ("[]", "line 2: is not a JSON object"),
    ('{"json": 1}', "line 2: needs a name or a key"),
    ('{"name": "a", "json": 1, "data": "x"}', "line 2: has json and data"),
    ('{"name": "a", "jsno": 1}', "line 2: the members are"),
])
def test_file_is_checked_before_anything_is_sent(tmp_path, backend, line, said):
    path = tmp_path / "lines"
    path.write_text('{"name": "good", "json": {"id": "good"}}\n' + line + "\n")
    refused = Caller(tmp_path).run("--batch", str(path), f"{backend.url}/pay", check=2)
    assert said in refused.stderr and not backend.requests
