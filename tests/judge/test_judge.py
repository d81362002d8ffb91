"""`once conformance http://...` judged itself: a sound API and our own gate pass, every check fails where its rule is broken,
nothing is sent that was not asked for, and no credential is printed."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as tree

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

from api import FAULTS, Api  # noqa: E402
from brokers import free_port  # noqa: E402

SOURCE = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.abspath(os.environ.get("ONCE_BUILD", os.path.join(SOURCE, "build")))
ONCE = os.path.join(BUILD, "once")
PATIENCE = 120
TOKENS = ("token-of-the-first-caller", "token-of-the-second-caller")
# Everything that a check can need. The limits are generous: a busy machine is no broken API.
WHOLE = ["--body", '{"amount": 4200}', "--refused-body", '{"amount": 0}', "--failing-body", '{"amount": 1, "then": 500}',
         "--header", f"Authorization: Bearer {TOKENS[0]}", "--other-header", f"Authorization: Bearer {TOKENS[1]}",
         "--effect-url", "/executions", "--effect-pointer", "/count", "--binary", "--large", "32k", "--timeout", "60s",
         "--deadline", "10m"]


def once(*words):
    return subprocess.run([ONCE, "conformance", *words], capture_output=True, text=True, timeout=PATIENCE, check=False)


def judge(url, *words):
    """The exit code, and the verdicts by name."""
    ran = once(f"{url}/payments", "--json", *words)
    assert ran.returncode in (0, 1), ran.stderr
    found = json.loads(ran.stdout)
    return ran.returncode, {check["name"]: check for check in found["checks"]}


def named(checks, verdict):
    return {name: check["why"] for name, check in checks.items() if check["verdict"] == verdict}


@pytest.fixture
def api(request):
    made = Api(**getattr(request, "param", {}))
    yield made
    made.close()


@pytest.fixture
def gate():
    """A gate in front of an API without any layer."""
    backend = Api(layer=False)
    port = free_port()
    user = ["--user", "www-data"] if os.geteuid() == 0 else []
    directory = tempfile.mkdtemp(prefix="once-judge-")
    os.chmod(directory, 0o755)  # for that user
    process = subprocess.Popen([ONCE, "gate", "--upstream", backend.url, "--listen", str(port),
                                "--store", f"local:{directory}/store",
                                "--scope", "header:Authorization", "--route", "POST /payments recover=hold", *user],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line == "once gate: ready\n":
            break
    else:
        raise AssertionError("".join(lines))
    yield f"http://127.0.0.1:{port}"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE)
    backend.close()
    shutil.rmtree(directory)


def test_sound_api_passes_every_check(api):
    code, checks = judge(api.url, *WHOLE, "--require")
    assert (code, named(checks, "fail"), named(checks, "not judged")) == (0, {}, {})


def test_gate_passes_every_check(gate):
    code, checks = judge(gate, *WHOLE, "--require")
    assert (code, named(checks, "fail"), named(checks, "not judged")) == (0, {}, {})


@pytest.mark.parametrize("fault, names", FAULTS.items())
def test_fault_is_found(fault, names):
    broken = Api(fault)
    try:
        code, checks = judge(broken.url, *WHOLE, "--require", "--patience", "1s", "--filter", ",".join(names))
        failed = named(checks, "fail")
        assert code == 1 and set(failed) == set(names), named(checks, "pass")
        for name in names:  # shown by a request and a response
            assert checks[name]["why"] and checks[name]["exchanges"][-1]["response"]
    finally:
        broken.close()


def test_every_check_has_a_fault():
    listed = re.findall(r"^(\S+)$", once("http://localhost/", "--list").stdout, re.M)
    assert sorted(listed) == sorted({name for names in FAULTS.values() for name in names})


@pytest.mark.parametrize("api", [{"stripe": True}], indirect=True)
def test_profiles_differ(api):
    code, checks = judge(api.url, *WHOLE, "--profile", "stripe")
    assert (code, named(checks, "fail")) == (0, {})
    assert set(named(checks, "not judged")) == {"key-empty", "key-malformed", "key-twice", "key-forms"}
    code, checks = judge(api.url, *WHOLE, "--filter", "reuse-status,error-told")
    assert code == 1 and set(named(checks, "fail")) == {"reuse-status", "error-told"}


def test_without_a_count_answers_tell_executions_apart(api):
    code, checks = judge(api.url, "--body", '{"amount": 1}', "--filter", "concurrent,replay-body")
    assert code == 0 and set(named(checks, "pass")) == {"first-request", "other-key", "concurrent", "replay-body"}
    broken = Api("is not atomic")
    try:
        code, checks = judge(broken.url, "--body", '{"amount": 1}', "--filter", "concurrent")
        assert code == 1 and set(named(checks, "fail")) == {"concurrent"}
    finally:
        broken.close()


def test_what_is_not_given_is_not_sent(api):
    """Without further options only the body, and the body with one more member, go to one URL."""
    code, checks = judge(api.url, "--body", '{"amount": 1}', "--large", "0")
    assert code == 0
    lacking = {"after-4xx", "after-5xx", "scope-replay", "scope-reuse", "large-body", "binary-body"}
    assert lacking == set(named(checks, "not judged")), named(checks, "not judged")
    bodies = {exchange["request"]["body"] for check in checks.values() for exchange in check["exchanges"]}
    assert bodies == {'{"amount": 1}', '{"amount": 1,"once_conformance":"xxxxy"}'}


def test_plan_sends_nothing(api):
    ran = once(f"{api.url}/payments?key=hunter22", *WHOLE, "--plan")
    assert ran.returncode == 0 and "Nothing has been sent" in ran.stdout
    assert next(api.numbers) == 1 and api.effects == 0
    for name in ("concurrent", '{"amount":1', "once_conformance", "at most"):
        assert name.replace(":1", ": 1") in ran.stdout or name in ran.stdout
    assert "hunter22" not in ran.stdout and not any(token in ran.stdout for token in TOKENS)


def test_requests_are_bounded(api):
    code, checks = judge(api.url, *WHOLE, "--requests", "20")
    assert code == 0 and next(api.numbers) <= 21
    assert "could need more requests" in checks["concurrent"]["why"]


def test_credentials_are_never_printed(api, tmp_path):
    """Although the API repeats them in its answers, and the check fails."""
    secret = tmp_path / "headers"
    secret.write_text(f"Authorization: Bearer {TOKENS[0]}\n")
    report = tmp_path / "report.xml"
    words = ["--body", '{"amount": 1}', "--header", f"@{secret}", "--effect-url", "/executions", "--effect-pointer", "/count"]
    api.fault = "replays a new body"
    url = api.url.replace("http://", "http://me:hunter22@")
    for form in ([], ["--json"]):
        ran = once(f"{url}/payments?token=hunter23", *words, "--junit", str(report), *form, "--filter", "replay-*")
        assert ran.returncode == 1 and "[hidden]" in ran.stdout, ran.stdout
        for word in (*TOKENS, "hunter22", "hunter23"):
            assert word not in ran.stdout + ran.stderr + report.read_text()


def test_junit(api, tmp_path):
    report = tmp_path / "report.xml"
    api.fault = "answers 409 for a reused key"
    ran = once(f"{api.url}/payments", *WHOLE, "--filter", "reuse-status", "--junit", str(report))
    assert ran.returncode == 1 and "FAIL" in ran.stdout and "> Idempotency-Key: " in ran.stdout and "< 409" in ran.stdout
    suite = tree.parse(report).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")
    assert suite.find("testcase[@name='reuse-status']/failure").get("message") == "409, not 422"


def test_nothing_is_judged_without_a_first_answer(api):
    port = free_port()
    ran = once(f"http://127.0.0.1:{port}/payments", "--body", "{}")
    assert ran.returncode == 3 and "first-request" in ran.stdout and "1 failed" in ran.stdout
    ran = once(f"{api.url}/payments", "--body", '{"amount": 1}', "--effect-url", "/executions", "--effect-pointer", "/none")
    assert ran.returncode == 3 and 'no whole number and no array at "/none"' in ran.stderr and api.effects == 0


@pytest.mark.parametrize("words, why", [
    (["http://localhost/", "--seed", "1"], "--seed is for a store"),
    (["memory:", "--body", "x"], "--body is for an API"),
    (["http://localhost/", "--profile", "none"], "--profile must be one of draft07, stripe"),
    (["http://localhost/", "--header", "x"], "a header must be"),
    (["http://localhost/", "--header", "Idempotency-Key: x"], "the judge makes the keys"),
    (["http://localhost/", "--header", "Content-Length: 1"], "is the judge's own"),
    (["http://localhost/", "--threads", "17"], "--threads must be between 2 and 16"),
    (["http://localhost/", "--effect-pointer", "/x"], "--effect-pointer needs --effect-url"),
    (["http://localhost/", "--effect-url", "file:///x"], "--effect-url must be"),
    (["http://localhost/", "--timeout", "2h"], "--timeout and --deadline"),
])
def test_mistakes_are_named(words, why):
    ran = once(*words)
    assert ran.returncode == 2 and why in ran.stderr


def test_documents_have_the_tables():
    """docs/judge.md names the checks as --list does."""
    with open(os.path.join(SOURCE, "docs", "judge.md"), encoding="utf-8") as file:
        rows = re.findall(r"^\| `([a-z0-9-]+)` \| (MUST|SHOULD|rule)(?: ([0-9.]+))? \| (.*) \|$", file.read(), re.M)
    listed = re.findall(r"^(\S+)\n    (MUST|SHOULD|rule)(?: ([0-9.]+))?: (.*)$", once("http://localhost/", "--list").stdout, re.M)
    assert rows == listed


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
