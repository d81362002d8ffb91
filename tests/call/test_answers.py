"""One call: what it prints, what it exits with, what it sends, and what it sends never."""
import base64
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import time
from email.utils import formatdate

import pytest
from brokers.certificates import Certificates
from stage import ONCE, PATIENCE, Backend, Caller, Gate, Proxy
from waiting import until


@pytest.fixture(name="backend")
def fixture_backend():
    backend = Backend()
    yield backend
    backend.close()


@pytest.fixture(name="gate")
def fixture_gate(backend):
    gate = Gate(backend, "--set", "once_recover hold")
    yield gate
    gate.close()


@pytest.fixture(name="caller")
def fixture_caller(tmp_path):
    return Caller(tmp_path)


@pytest.fixture(name="made")
def fixture_made(tmp_path):
    (tmp_path / "certificates").mkdir()
    return Certificates(str(tmp_path / "certificates"))


def intent(name, **more):
    return json.dumps({"id": name, **more})


def holds(journal, text):
    found = subprocess.run(["grep", "-r", "-a", "-q", text, journal], check=False).returncode
    assert found in (0, 1)
    return found == 0


def test_ended_call_is_not_sent_again(backend, gate, caller):
    command = ["--name", "a", "--json", intent("a"), f"{gate.url}/pay"]
    first = caller.run(*command, check=0)
    assert json.loads(first.stdout) == {"id": "a", "tries": 1} and first.stderr == ""
    again = caller.run(*command, check=0)
    assert again.stdout == first.stdout and "nothing was sent" in again.stderr
    gate.process.terminate()
    assert caller.run(*command, check=0).stdout == first.stdout
    assert backend.effects == ["a"]
    key = backend.of("a")[0][0]
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", key)


@pytest.mark.parametrize("change", [
    ["--json", intent("b", more=1), "URL/pay"],
    ["--json", intent("b"), "URL/pay?x=1"],
    ["--json", intent("b"), "-H", "X-Tenant: 2", "URL/pay"],
    ["--json", intent("b"), "-X", "PATCH", "URL/pay"],
])
def test_another_request_under_the_name_is_refused(backend, caller, change):
    caller.run("--name", "b", "--json", intent("b"), f"{backend.url}/pay", check=0)
    refused = caller.run("--name", "b", *(word.replace("URL", backend.url) for word in change), check=5)
    assert "different request" in refused.stderr and len(backend.requests) == 1


def test_request_without_a_name_is_its_own_name(backend, caller):
    words = ["--json", intent("own"), f"{backend.url}/pay"]
    caller.run(*words, check=0)
    assert "nothing was sent" in caller.run(*words, check=0).stderr
    caller.run("--name", "own-2", *words, check=0)
    assert backend.effects == ["own", "own"] and len(set(backend.of("own"))) == 2


@pytest.mark.parametrize("status, code", [(200, 0), (303, 12), (404, 1), (409, 1), (422, 1)])
def test_final_answers_are_kept(backend, caller, status, code):
    words = ["--key", f"k-{status}", "-d", "x", f"{backend.url}/answer/{status}"]
    first = caller.run(*words, check=code)
    assert caller.run(*words, check=code).stdout == first.stdout
    assert backend.of("x") == [(f"k-{status}", None)]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirect_is_neither_followed_nor_an_end(backend, caller, status):
    """The server sends it back to itself: a second effect would be seen."""
    backend.headers = [("Location", f"{backend.url}/pay?token=SECRET")]
    words = ["--name", "r", "-d", "r", f"{backend.url}/answer/{status}"]
    said = caller.run(*words, check=12).stderr
    assert f"{status} and names {backend.url}/pay, where nothing was sent" in said and "SECRET" not in said
    assert ("unless it has taken effect" in said) == (status < 307)
    told = json.loads(caller.run("--report", *words, check=12).stdout)
    assert told["end"] == "redirected" and told["attempts"] == 1 and ["Location", backend.headers[0][1]] in told["headers"]
    assert json.loads(caller.run("--resume", check=12).stdout)["end"] == "redirected"
    assert len(backend.of("r")) == 3 and len(set(backend.of("r"))) == 1
    caller.run("--name", "r", "-d", "r", f"{backend.url}/pay", check=5)
    assert len(backend.requests) == 3


def test_recorded_redirect_is_final(backend, gate, caller):
    """The gate has recorded it. The second run gets the record, and ends with it."""
    words = ["--name", "r", "-d", "r", f"{gate.url}/answer/307"]
    caller.run(*words, check=12)
    assert "has ended this call with 307" in caller.run(*words, check=12).stderr
    gate.process.terminate()
    assert "has ended this call with 307" in caller.run(*words, check=12).stderr
    assert len(backend.requests) == 1


def test_recorded_500_is_final(backend, caller):
    backend.headers = [("Idempotent-Replayed", "true")]
    words = ["--name", "r", "-d", "x", f"{backend.url}/answer/500"]
    assert "repeats its answer" in caller.run(*words, check=6).stderr
    caller.run(*words, check=6)
    assert len(backend.requests) == 1


def test_busy_server_is_asked_again_with_one_key(backend, caller):
    done = caller.run("--name", "f", "--report", "--retry-delay", "20ms", "--json", intent("f", fail=2), f"{backend.url}/flaky",
                      check=0)
    assert json.loads(done.stdout)["attempts"] == 3
    assert backend.effects == ["f"] and len(set(backend.of("f"))) == 1


def test_run_gives_up_and_the_next_one_goes_on(backend, caller):
    words = ["--name", "g", "--json", intent("g", fail=2), "--retry", "0", f"{backend.url}/flaky"]
    assert "goes on with the key" in caller.run(*words, check=8).stderr
    caller.run(*words, check=8)
    caller.run(*words, check=0)
    assert len(set(backend.of("g"))) == 1 and len(backend.of("g")) == 3 and backend.effects == ["g"]


def test_in_flight_waits_and_lost_answers_are_replayed(backend, gate, caller):
    proxy = Proxy(gate.port, 2)
    done = caller.run("--name", "l", "--json", intent("l"), f"{proxy.url}/pay", check=0)
    proxy.close()
    assert "an earlier attempt took effect" in done.stderr and proxy.lost == 2
    assert backend.effects == ["l"]


def test_unknown_outcome_stops_until_it_is_settled(backend, gate, caller):
    words = ["--key", "u", "--json", intent("u"), f"{gate.url}/lost"]
    stopped = caller.run(*words, check=7)
    assert "the key u" in stopped.stderr and "may have taken effect" in stopped.stderr
    caller.run(*words, check=7)
    assert backend.effects == ["u"]
    gate.once("keys", "settle", "--key", "u", "--scope", "", "--completed", "--status", "201", "--force", "--yes", "--note", "test",
              gate.store)
    assert "repeats its answer" in caller.run(*words, check=0).stderr
    caller.run(*words, check=0)
    assert backend.effects == ["u"]


def test_key_of_another_request(gate, backend, caller, tmp_path):
    caller.run("--key", "same", "--json", intent("one"), f"{gate.url}/pay", check=0)
    (tmp_path / "other").mkdir()
    other = Caller(tmp_path / "other")
    assert "a different request" in other.run("--key", "same", "--json", intent("two"), f"{gate.url}/pay", check=5).stderr
    assert backend.effects == ["one"]


def test_refused_credentials_are_mended(backend, caller, tmp_path):
    token = tmp_path / "token"
    words = ["--name", "d", "-d", "d", "-H", f"@{token}", f"{backend.url}/answer/403"]
    token.write_text("Authorization: Bearer old-SECRET\n")
    assert "nothing was done" in caller.run(*words, check=11).stderr
    token.write_text("Authorization: Bearer new-SECRET\n")
    caller.run(*words, check=11)
    assert [credentials for _, credentials in backend.of("d")] == ["Bearer old-SECRET", "Bearer new-SECRET"]
    assert len({key for key, _ in backend.of("d")}) == 1
    assert "Authorization" in caller.run("--resume", "--name", "d", check=2).stderr
    caller.run("--resume", "--name", "d", "--expand-header", "Authorization: Bearer {{TOKEN}}", check=11,
               env={"TOKEN": "env-SECRET"})
    assert backend.of("d")[-1][1] == "Bearer env-SECRET"
    assert not holds(caller.journal, "SECRET")
    assert os.stat(caller.journal).st_mode & 0o777 == 0o700


def test_resume_takes_the_request_from_the_journal(backend, caller):
    words = ["--json", intent("s", fail=1), "-H", "X-Shop: 7", "--retry", "0", f"{backend.url}/flaky"]
    caller.run("--name", "s", *words, check=8)
    done = caller.run("--resume", check=0)
    assert json.loads(done.stdout)["name"] == "s" and json.loads(done.stdout)["status"] == 201
    assert "no call is open" in caller.run("--resume", check=0).stderr
    caller.run("--resume", "--name", "s", check=4)
    caller.run("--name", "s", *words, check=0)
    assert backend.effects == ["s"] and len(set(backend.of("s"))) == 1


def test_resume_sends_nothing_whose_intent_is_forgotten(backend, caller):
    words = ["--name", "f", "--json", intent("f", fail=1), "-s", f"{backend.url}/flaky"]
    caller.run("--retry", "0", *words, check=8)
    caller.run("--until", "1s", "--keep", "1s", *words)  # the journal forgets the intent, and still has the request
    time.sleep(2.5)
    caller.run("--resume", "--retry", "0")
    assert len(set(backend.of("f"))) == 1


def test_nothing_is_sent_after_its_time(backend, caller):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/pay"
        words = ["--name", "t", "-d", "t", "--until", "1s", url]
        caller.run(*words, check=9)
        assert "nothing is sent any more" in caller.run(*words, check=9).stderr
        caller.run("--name", "n", "-d", "n", "--retry", "0", url, check=10)
    assert not backend.requests


def test_server_that_forgets_the_key_is_not_asked_after_that(backend, caller):
    backend.headers = [("Idempotency-Expires", "Thu, 01 Jan 2026 00:00:00 GMT")]
    caller.run("--name", "e", "--json", intent("e", fail=9), f"{backend.url}/flaky", check=9)
    assert len(backend.requests) == 1


def test_time_of_forgetting_outlives_a_kill(backend, caller):
    """Killed when the server has been asked twice, so that the journal must know what its first answer said. On a machine that is
    too slow for that, the process ends by itself."""
    words = ["--name", "k", "--retry-delay", "20ms", "--json", intent("k", fail=999), f"{backend.url}/flaky"]
    moment = int(time.time()) + 6
    backend.headers = [("Idempotency-Expires", formatdate(moment, usegmt=True))]
    with subprocess.Popen(caller.command(*words), env={**os.environ, "no_proxy": "*"}, stderr=subprocess.DEVNULL) as process:
        until(lambda: len(backend.requests) > 1 or process.poll() is not None, "a second attempt", PATIENCE)
        process.send_signal(signal.SIGKILL)
    backend.headers = []
    until(lambda: time.time() > moment, "the time of forgetting", PATIENCE)
    sent = len(backend.requests)
    for _ in range(2):
        assert "nothing is sent any more" in caller.run(*words, check=9).stderr
    late = json.loads(caller.run("--resume", check=9).stdout)
    assert late["end"] == "late" and late["attempts"] == 0 and late["until"].startswith(
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment)))
    assert len(backend.requests) == sent


def test_earliest_time_of_forgetting_counts(backend, caller):
    words = ["--name", "m", "--report", "--retry", "0", "--json", intent("m", fail=99), f"{backend.url}/flaky"]
    now, told = int(time.time()), []
    for hours in (5, 3, None, 4):
        backend.headers = [("Idempotency-Expires", formatdate(now + 3600 * hours, usegmt=True))] if hours else []
        told.append(json.loads(caller.run(*words, check=8).stdout)["until"])
    assert told[0] > told[1] and told[1:] == [told[1]] * 3


def test_certificates_are_verified(backend, caller, made):
    gate = Gate(backend, "--tls-cert", made.file("server"), "--tls-key", made.key("server"))
    words = ["--name", "v", "--json", intent("v"), f"{gate.url}/pay"]
    caller.run(*words, check=10)
    caller.run("--cacert", made.file("stranger"), *words, check=8)
    assert not backend.requests
    caller.run("--cacert", made.file("authority"), *words, check=0)
    until(lambda: "HTTP/2" in gate.read_log(), "a request in HTTP/2", PATIENCE)
    gate.close()
    assert backend.effects == ["v"]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_certificate_of_the_client(caller, made, version):
    """TLS 1.2 refuses a client before the request is sent. In TLS 1.3 it is under way then, and the reason may get lost with the
    connection: that is 8."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.file("server"), made.key("server"))
    context.load_verify_locations(made.file("authority"))
    context.verify_mode, context.minimum_version, context.maximum_version = ssl.CERT_REQUIRED, version, version
    backend = Backend(context)
    words = ["--name", "c", "--cacert", made.file("authority"), "--retry", "0", "-d", "c", f"{backend.url}/pay"]
    stranger = ["-E", made.file("stranger"), "--cert-key", made.key("stranger")]
    codes = (10,) if version == ssl.TLSVersion.TLSv1_2 else (8, 10)
    first = caller.run(*words)
    assert first.returncode in codes, first
    wrong = caller.run(*stranger, *words)
    assert wrong.returncode in (8, *codes), wrong  # an earlier run may have sent something
    unusable = caller.run("-E", made.file("client"), "--cert-key", made.key("server"), *words, check=8)
    assert "same command" in unusable.stderr and not backend.requests
    caller.run("-E", made.file("client"), "--cert-key", made.key("client"), *words, check=0)
    assert backend.effects == ["c"]
    both = made.pem(made.file("client"), made.key("client"))
    caller.run("--name", "d", "-E", both, "--cacert", made.file("authority"), "-d", "d", f"{backend.url}/pay", check=0)
    backend.close()
    assert backend.effects == ["c", "d"]


def test_server_that_answers_without_a_certificate(backend, caller, made):
    """nginx ends the handshake, and answers 400."""
    gate = Gate(backend, "--tls-cert", made.file("server"), "--tls-key", made.key("server"),
                "--set", f"ssl_client_certificate {made.file('authority')}", "--set", "ssl_verify_client on")
    words = ["--cacert", made.file("authority"), "--json", intent("n"), f"{gate.url}/pay"]
    caller.run("--name", "missing", *words, check=1)
    caller.run("--name", "wrong", "-E", made.file("stranger"), "--cert-key", made.key("stranger"), *words, check=1)
    assert not backend.requests
    caller.run("--name", "right", "-E", made.file("client"), "--cert-key", made.key("client"), *words, check=0)
    gate.close()
    assert backend.effects == ["n"]


def test_netrc(backend, caller, tmp_path):
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login shop password SECRET\n")
    for name, words in (("without", []), ("with", ["-n"])):
        caller.run("--name", name, *words, "-d", name, f"{backend.url}/pay", env={"HOME": str(tmp_path)}, check=0)
    assert backend.of("without")[0][1] is None
    assert backend.of("with")[0][1] == "Basic " + base64.b64encode(b"shop:SECRET").decode()
    assert not holds(caller.journal, "SECRET")


@pytest.mark.parametrize("words, environment", [(["--proxy", "PROXY"], {}), ([], {"http_proxy": "PROXY", "no_proxy": ""})])
def test_proxy(backend, caller, words, environment):
    """The backend stands in for a proxy: the name has no address, so nothing else can have got the request."""
    words = [word.replace("PROXY", backend.url) for word in words]
    environment = {name: value.replace("PROXY", backend.url) for name, value in {"no_proxy": "", **environment}.items()}
    caller.run("--name", "x", "-d", "x", *words, "http://nowhere.invalid/pay", env=environment, check=0)
    assert backend.effects == ["x"]


def test_two_processes_send_one_request(backend, caller):
    command = caller.command("--name", "p", "--report", "--retry-delay", "20ms", "--json", intent("p", fail=1),
                             f"{backend.url}/flaky")
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    told = [json.loads(process.communicate(timeout=PATIENCE)[0]) for process in processes]
    assert {answer["status"] for answer in told} == {201} and len({answer["body"] for answer in told}) == 1
    assert sorted(answer["remembered"] for answer in told) == [False, True, True, True]
    assert backend.effects == ["p"] and len(backend.of("p")) == 2


@pytest.mark.parametrize("words, said", [
    ([], "give an address"),
    (["--name", "a", "--key", "b", "http://127.0.0.1:1"], "not both"),
    (["--resume", "http://127.0.0.1:1"], "--resume takes"),
    (["ftp://127.0.0.1/"], "http://HOST"),
    (["http://me:secret@127.0.0.1/"], "has credentials"),
    (["-H", "Idempotency-Key: x", "http://127.0.0.1:1"], "give the key as the key"),
    (["-H", "nonsense", "http://127.0.0.1:1"], "Name: value"),
    (["-d", "x", "--json", "{}", "http://127.0.0.1:1"], "one of them"),
    (["--until", "5ms", "http://127.0.0.1:1"], "at least 1s"),
    (["--expand-header", "A: {{NOT_SET_HERE}}", "http://127.0.0.1:1"], "NOT_SET_HERE"),
])
def test_bad_command_lines(caller, words, said):
    refused = caller.run(*words, check=2)
    assert said in refused.stderr and "secret@" not in refused.stderr


def test_journal_of_the_user(backend, tmp_path):
    """It is made, with the directories above it, and nobody else can read it."""
    for _ in range(2):
        done = subprocess.run([ONCE, "call", "--name", "x", "-d", "x", f"{backend.url}/answer/200"], check=True, timeout=PATIENCE,
                              env={**os.environ, "no_proxy": "*", "XDG_STATE_HOME": f"{tmp_path}/state/here"}, capture_output=True)
    assert b"nothing was sent" in done.stderr and len(backend.requests) == 1
    assert os.stat(tmp_path / "state/here/once/call").st_mode & 0o777 == 0o700


def test_output_is_kept_until_there_is_another(backend, caller, tmp_path):
    out = tmp_path / "out"
    caller.run("--name", "k", "-d", "k", "-o", str(out), f"{backend.url}/pay", check=0)
    before = out.read_text()
    caller.run("--name", "k", "-d", "k", "-o", str(out), "ftp://127.0.0.1/", check=2)
    assert json.loads(before) == {"id": "k", "tries": 1} and out.read_text() == before
    caller.run("--name", "k", "-d", "k", "-o", str(out), f"{backend.url}/pay", check=0)
    assert out.read_text() == before


def test_body_that_is_not_kept_is_said(backend, caller):
    backend.headers = [("Once-Body", "omitted")]
    words = ["--name", "w", "-d", "w", f"{backend.url}/pay"]
    for _ in range(2):
        assert "the body of the answer was not kept" in caller.run(*words, check=0).stderr


def test_output(backend, caller, tmp_path):
    out = tmp_path / "out"
    done = caller.run("--name", "o", "-d", "o", "-i", "-o", str(out), "-w", r"%{http_code} %{num_retries} %{end}%%\n",
                      f"{backend.url}/answer/200", check=0)
    assert done.stdout == "200 0 answered%\n"
    head, body = out.read_bytes().split(b"\r\n\r\n")
    assert head.startswith(b"HTTP 200\r\n") and b"Content-Type: application/json" in head
    assert json.loads(body) == {"id": "o", "tries": 1}
