"""Batches: each line once, in the order of its group, over any number of kills. CALL_LINES: how many lines."""
import json
import os
import random
import signal
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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
    ("{", "is not a JSON object"),
    ("[]", "is not a JSON object"),
    ('{"name": "a", "name": "b"}', "is not a JSON object"),
    ('{"json": 1}', "needs a name or a key"),
    ('{"name": "a", "json": 1, "data": "x"}', "has json and data"),
    ('{"name": "a", "jsno": 1}', "jsno: the members are"),
    ('{"name": 1}', "name: is not a text"),
    ('{"name": ""}', "a name or key has 1 to"),
    ('{"key": "\\u00e4"}', "a key is printable ASCII"),
    ('{"key": "' + "k" * 256 + '"}', "a name or key has 1 to"),
    ('{"name": "a", "url": "ftp://127.0.0.1/"}', "the URL must be"),
    ('{"name": "a", "url": "http://me:secret@127.0.0.1/"}', "the URL has credentials"),
    ('{"name": "a", "url": "http://127.0.0.1/' + "x" * 65536 + '"}', "URL and headers are over 60 KiB"),
    ('{"name": "a", "method": "PO ST"}', "the method is no token"),
    ('{"name": "a", "headers": []}', "headers: is not an object"),
    ('{"name": "a", "headers": {"X y": "1"}}', "headers: X y is not a name"),
    ('{"name": "a", "headers": {"X": "1\\n2"}}', "headers: X is not a name"),
    ('{"name": "a", "headers": {"X": 1}}', "headers: X is not a name"),
    ('{"name": "a", "headers": {"idempotency-key": "1"}}', "the client sets Idempotency-Key itself"),
    ('{"name": "good", "json": {"id": "good"}}', "name: line 1 has the same one"),
])
def test_file_is_checked_before_anything_is_sent(tmp_path, backend, line, said):
    path = tmp_path / "lines"
    path.write_text('{"name": "good", "json": {"id": "good"}}\n\n' + line + "\n")
    (tmp_path / "results").write_text("of an earlier run\n")
    refused = Caller(tmp_path).run("--batch", str(path), "-o", str(tmp_path / "results"), "--parallel-max", "1",
                                   f"{backend.url}/pay", check=2)
    assert (tmp_path / "results").read_text() == "of an earlier run\n"
    assert f"line 3: {said}" in refused.stderr and "secret" not in refused.stderr and not backend.requests


def test_results_do_not_replace_the_file(tmp_path, backend):
    file = write_lines(tmp_path / "lines", [{"name": "a", "data": "a"}])
    before = (tmp_path / "lines").read_bytes()
    for out in ("lines", "link"):
        if out == "link":
            os.symlink("lines", tmp_path / "link")
        refused = Caller(tmp_path).run("--batch", file, "-o", str(tmp_path / out), f"{backend.url}/pay", check=2)
        assert "would replace the file" in refused.stderr and (tmp_path / "lines").read_bytes() == before
    assert not backend.requests
    (tmp_path / "results").write_text("x" * 100000)
    Caller(tmp_path).run("--batch", file, "-o", str(tmp_path / "results"), f"{backend.url}/pay", check=0)
    assert [line["line"] for line in read_lines(tmp_path / "results")] == [1]


@pytest.mark.parametrize("line, body", [
    (r'{"name": "a", "json": 12345678901234567890123}', "12345678901234567890123"),
    (r'{"json":{"id":"a","n":1.10,"big":123456789012345678.901,"e":1E2},"name":"a"}',
     r'{"id":"a","n":1.10,"big":123456789012345678.901,"e":1E2}'),
    (r' { "name" : "a" , "group": "{\"json\": 1}", "json" : [ 1.0, "\u00e9 \"}]" , { } ] } ', r'[ 1.0, "\u00e9 \"}]" , { } ]'),
    (r'{"name": "json", "\u006as\u006fn": {"json": -0.0}}' + "\r", '{"json": -0.0}'),
    ('{"name": "a", "headers": {"json": "2"}, "json": "é"}', '"é"'),
    ('{"name": "a", "json": null}', "null"),
    (r'{"name": "a", "data": "\u00e9 1.10"}', "é 1.10"),
])
def test_json_is_sent_as_it_is_written(tmp_path, line, body):
    """Byte for byte: a number of money must not become another text."""
    seen = []

    class Echo(BaseHTTPRequestHandler):
        def do_POST(self):
            seen.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):  # pylint: disable=arguments-differ
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    (tmp_path / "lines").write_text(line + "\n")
    Caller(tmp_path).run("--batch", str(tmp_path / "lines"), "-s", f"http://127.0.0.1:{server.server_port}/", check=0)
    server.shutdown()
    server.server_close()
    assert seen == [body.encode()]
