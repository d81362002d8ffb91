"""Who may connect, and what happens when a caller or the server goes away."""
import concurrent.futures
import fcntl
import json
import os
import signal
import socket
import stat
import subprocess
import sys

import pytest
from service import ONCE, PATIENCE, Client, Server, claim_id, dial
from waiting import until

HALF = b"POST /v1/get HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
RESPONSE = {"status": 201, "headers": [], "body": "made"}


def refused(*options):
    """The exit code and the error of a server that does not start."""
    done = subprocess.run([ONCE, "serve", *options], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert "listening" not in done.stdout
    return done.returncode, done.stderr


# ------------------------------------------------------------------------------------------------------------------ sockets


def test_a_socket_is_private(tmp_path):
    path = tmp_path / "once.sock"
    server = Server("memory:", listen=f"unix:{path}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    server.close()
    assert not path.exists()
    server = Server("memory:", "--socket-mode", "0660", listen=f"unix:{path}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    server.close()
    for mode in ("0666", "777", "0060", "x", "06600"):
        code, said = refused("memory:", "--listen", f"unix:{path}", "--socket-mode", mode)
        assert code == 2 and "--socket-mode" in said


def test_a_socket_that_was_left(tmp_path):
    """It is replaced only if nobody listens there."""
    path = tmp_path / "once.sock"
    server = Server("memory:", listen=f"unix:{path}")
    code, said = refused("memory:", "--listen", f"unix:{path}")
    assert code == 3 and "another server listens" in said
    assert server.client().get("/health").status == 200
    server.kill()
    assert path.exists()
    server = Server("memory:", listen=f"unix:{path}")
    assert server.client().get("/health").status == 200
    path.unlink()
    path.write_text("of another program")
    server.close()
    assert path.read_text() == "of another program"
    code, said = refused("memory:", "--listen", f"unix:{path}")
    assert code == 3 and "not a socket" in said and path.read_text() == "of another program"


def test_two_servers_begin_at_once(tmp_path):
    path = tmp_path / "once.sock"
    Server("memory:", listen=f"unix:{path}").kill()  # leaves its socket
    command = [ONCE, "serve", "memory:", "--listen", f"unix:{path}"]
    servers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    until(lambda: sum(server.poll() is not None for server in servers) == 3, "three refusals", PATIENCE)
    assert sorted(server.returncode for server in servers if server.poll() is not None) == [3, 3, 3]
    assert Client(f"unix:{path}").get("/health").status == 200
    for server in servers:
        server.kill()
        server.communicate()


def test_a_folder_that_stays_locked(tmp_path):
    folder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    code, said = refused("memory:", "--listen", f"unix:{tmp_path}/once.sock")
    os.close(folder)
    assert code == 3 and "locked" in said


def test_bad_addresses(tmp_path):
    token = ["--token-file", str(tmp_path / "token")]
    for address in ("0.0.0.0:0", "192.0.2.1:0", "[::]:0", "unix:", "x", "127.0.0.1:x", "unix:" + 200 * "p"):
        code, said = refused("memory:", "--listen", address, *token)
        assert code == 2 and "--listen" in said, address
    assert refused("memory:", "--listen", f"unix:{tmp_path}/none/once.sock")[0] == 3
    code, said = refused("memory:", "--listen", "127.0.0.1:0")
    assert code == 2 and "--token-file" in said
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert refused("memory:", "--listen", f"127.0.0.1:{taken.getsockname()[1]}", *token)[0] == 3


def health(address):
    command = [ONCE, "health", "--timeout", "30s", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.returncode, done.stdout + done.stderr


def test_once_health(tmp_path):
    """What a container asks, where there is no other client; proxies of the environment are not used."""
    server = Server("memory:", "--token-file", str(tmp_path / "token"), listen="127.0.0.1:0")
    assert health(f"http://{server.address}/ready") == (0, "ok\n")
    code, said = health(f"http://{server.address}/nothing")
    assert code == 1 and "answered 401" in said
    server.close()
    code, said = health(f"http://{server.address}/ready")
    assert code == 1 and server.address in said
    server = Server("memory:", folder=tmp_path)
    assert health(server.address) == (0, "ok\n")
    server.close()
    assert health(server.address)[0] == 1


def test_a_configuration_file(tmp_path):
    path = tmp_path / "serve.conf"
    path.write_text(f"# of the test\nstore memory:\nlisten unix:{tmp_path}/once.sock\nsocket-mode 0660\nscope-required\n")
    with subprocess.Popen([ONCE, "serve", "--config", path], stdout=subprocess.PIPE, text=True) as server:
        assert "listening" in server.stdout.readline()
        assert Client(f"unix:{tmp_path}/once.sock").post("/v1/claim", {"key": "k"}).status == 400
        assert stat.S_IMODE((tmp_path / "once.sock").stat().st_mode) == 0o660
        server.terminate()
    assert server.returncode == 0


def test_more_connections_than_files(tmp_path):
    code, said = refused("memory:", "--listen", f"unix:{tmp_path}/once.sock", "--connections", "100001")
    assert code == 2 and "--connections" in said
    done = subprocess.run(["prlimit", "--nofile=200:200", ONCE, "serve", "memory:", "--listen", f"unix:{tmp_path}/once.sock"],
                          capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 2 and "ulimit -n" in done.stderr


# -------------------------------------------------------------------------------------------------------------------- tokens


def test_a_token(tmp_path):
    path = tmp_path / "token"
    for host in ("127.0.0.1", "[::1]"):
        server = Server("memory:", "--token-file", str(path), listen=f"{host}:0")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        token = path.read_text().strip()
        assert len(token) >= 43
        assert server.client(token).claim("k")["outcome"] == "run"
        for wrong in (None, "", token[:-1], token + "~", "~" + token[1:], token.swapcase(), f"{token} {token}"):
            client = server.client()
            header = {} if wrong is None else {"Authorization": f"Bearer {wrong}"}
            for path_, body in (("/v1/claim", '{"key": "k"}'), ("/v1/nothing", "{}")):
                answer = client.send("POST", path_, body, Content_Type="application/json", **header)
                assert answer.status == 401 and answer.headers["WWW-Authenticate"] == "Bearer"
            assert client.get("/metrics", **header).status == client.get("/v1", **header).status == 401
            assert client.get("/health").status == client.get("/ready").status == 200
        assert server.client().send("GET", "/v1", Authorization=f"Basic {token}").status == 401
        assert server.client().send("GET", "/v1", Authorization=f"bearer {token}").status == 200
        said = server.close()
        assert token not in said


def test_a_token_is_changed(tmp_path):
    path = tmp_path / "token"
    server = Server("memory:", "--token-file", str(path), listen="127.0.0.1:0")
    old, new = path.read_text().strip(), "0123456789abcdef"
    path.write_text(new + "\n")
    server.process.send_signal(signal.SIGHUP)
    assert "read again" in server.process.stdout.readline()
    assert server.client(old).get("/v1").status == 401
    assert server.client(new).get("/v1").status == 200
    path.chmod(0o644)
    server.process.send_signal(signal.SIGHUP)
    assert "mode 0600" in server.process.stdout.readline()
    assert server.client(new).get("/v1").status == 200
    path.unlink()
    server.process.send_signal(signal.SIGHUP)
    assert "cannot read the token file" in server.process.stdout.readline()
    assert server.client(new).get("/v1").status == 200
    assert not path.exists()
    server.close()


@pytest.mark.parametrize("content, mode", [("0123456789abcdef\n", 0o640), ("0123456789abcdef\n", 0o604), ("short\n", 0o600),
                                           ("0123456789 abcdef\n", 0o600), ("", 0o600), ("0123456789abcdef\nmore\n", 0o600),
                                           (600 * "x", 0o600)])
def test_bad_token_files(tmp_path, content, mode):
    path = tmp_path / "token"
    path.write_text(content)
    path.chmod(mode)
    code, said = refused("memory:", "--listen", "127.0.0.1:0", "--token-file", str(path))
    assert code == 3 and "token file" in said


def test_strangers_are_not_kept(tmp_path):
    """A connection that never asks for anything ends; one that has asked, and holds a claim, does not."""
    server = Server("memory:", "--idle", "1s", folder=tmp_path)
    holder, idle = server.client(), server.client()
    claim = holder.run("k", renew="connection", lease_ms=500)
    assert idle.get("/health").status == 200
    with dial(server.address) as stranger:
        assert idle.connection.sock.recv(1) == b""  # after a second
        assert stranger.recv(1) == b""              # after ten
    assert holder.ask("finish", claim=claim, response=RESPONSE)["outcome"] == "done"
    assert holder.connection.sock.recv(1) == b""
    server.close()


def test_idle_when_its_claims_were_ended_elsewhere(tmp_path):
    server = Server("memory:", "--idle", "1s", folder=tmp_path)
    holder = server.client()
    claim = holder.run("k", renew="connection")
    assert server.client().ask("finish", claim=claim, response=RESPONSE)["outcome"] == "done"
    assert holder.connection.sock.recv(1) == b""
    server.close()


@pytest.mark.parametrize("before", [b"", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_a_request_that_never_begins(tmp_path, before):
    """A byte now and then does not hold a connection for ever."""
    server = Server("memory:", "--idle", "2s", "--token-file", str(tmp_path / "token"), listen="127.0.0.1:0")
    with dial(server.address) as line:
        line.sendall(before)
        line.settimeout(0.3)
        sent = 0

        def ended():
            nonlocal sent
            try:
                line.sendall(b"GET /" if sent == 0 else b"x")
                sent += 1
                return line.recv(65536) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        until(ended, "the end of the connection", PATIENCE / 2)
    server.close()


# -------------------------------------------------------------------------------------------------------- callers that die

CALLER = """
import sys
sys.path[:0] = sys.argv[3:]
from service import Client
client = Client(sys.argv[1])
print(client.run(sys.argv[2], renew="connection", lease_ms=2000), flush=True)
sys.stdin.read()
"""


def test_a_caller_is_killed(tmp_path):
    """Under hold nobody knows what it did: unknown, when its lease is over and not before."""
    server = Server(f"local:{tmp_path}/store", folder=tmp_path)
    client = server.client()
    with subprocess.Popen([sys.executable, "-c", CALLER, server.address, "k", *sys.path[:3]], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as caller:
        claim = caller.stdout.readline().strip()
        assert client.is_renewed("k")
        assert client.claim("k")["outcome"] == "busy"
        caller.kill()
    assert client.claim("k", wait_ms=60000)["outcome"] == "unknown"
    assert client.ask("recorded", claim=claim) == {"recorded": False, "state": "unknown"}
    server.close()


def test_a_caller_is_killed_while_it_sends(tmp_path):
    """Its connection ends although its request never does, and its claims with it."""
    server = Server("memory:", folder=tmp_path)
    client, caller = server.client(), server.client()
    caller.run("k", renew="connection")
    caller.connection.sock.sendall(HALF)
    assert server.metric("once_serve_kept_claims", client) == 1
    caller.close()
    until(lambda: server.metric("once_serve_kept_claims", client) == 0, "the end of its claim", PATIENCE)
    until(lambda: server.metric("once_serve_connections", client) == 1, "the end of its connection", PATIENCE)
    server.close()


def test_a_caller_is_killed_with_bytes_unread(tmp_path):
    """What it has sent after a request that waits is not read until that ends, and must not hide that the caller is gone."""
    server = Server("memory:", folder=tmp_path)
    client, caller = server.client(), server.client()
    client.run("busy", lease_ms=600000)
    caller.run("k", renew="connection")
    caller.connection.request("POST", "/v1/claim", '{"key": "busy", "wait_ms": 60000}', {"Content-Type": "application/json"})
    until(lambda: server.metric("once_serve_waiting", client) == 1, "the waiting caller", PATIENCE)
    caller.connection.sock.sendall(HALF)
    caller.close()
    until(lambda: server.metric("once_serve_kept_claims", client) == 0, "the end of its claim", PATIENCE / 2)
    until(lambda: server.metric("once_serve_waiting", client) == 0, "the end of its wait", PATIENCE / 2)
    server.close()


def test_a_caller_goes_while_it_waits(tmp_path):
    """It is not granted a claim that nobody would run."""
    server = Server("memory:", folder=tmp_path)
    client, waiting = server.client(), server.client()
    claim = client.run("k")
    waiting.connection.request("POST", "/v1/claim", '{"key": "k", "wait_ms": 60000}', {"Content-Type": "application/json"})
    until(lambda: server.metric("once_serve_waiting", client) == 1, "the waiting caller", PATIENCE)
    waiting.close()
    until(lambda: server.metric("once_serve_waiting", client) == 0, "its end", PATIENCE)
    client.ask("release", claim=claim)
    assert client.claim("k")["outcome"] == "run"
    server.close()


# --------------------------------------------------------------------------------------------------------- servers that die


def test_a_server_is_killed(tmp_path):
    """Another one goes on: with claims that are open, and with requests whose replies were lost."""
    store = f"local:{tmp_path}/store"
    first = Server(store, folder=tmp_path)
    client = first.client()
    lost = {"claim_id": claim_id(), "lease_ms": 60000}
    claims = [client.run("a", lease_ms=60000), client.run("b", renew="connection", lease_ms=60000), client.run("c", **lost)]
    done = client.run("d")
    client.ask("finish", claim=done, response=RESPONSE)
    second = Server(store, folder=tmp_path)  # beside it
    first.kill()
    client = second.client()
    assert client.ask("renew", claims=claims) == {"outcomes": 3 * ["done"]}
    assert client.run("c", **lost) == claims[2]
    assert client.ask("recorded", claim=done) == {"recorded": True, "response": RESPONSE}
    for claim in claims:
        assert client.ask("finish", claim=claim, response=RESPONSE)["outcome"] == "done"
    assert [client.claim(key)["outcome"] for key in "abcd"] == 4 * ["replay"]
    second.close()


def test_it_stops(tmp_path):
    """Requests that wait are answered at once, connections end, and claims are there for the next server."""
    store = f"local:{tmp_path}/store"
    server = Server(store, folder=tmp_path)
    client = server.client()
    claim = client.run("k", renew="connection")
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(server.client().post, "/v1/claim", {"key": "k", "wait_ms": 60000}) for _ in range(3)]
        until(lambda: server.metric("once_serve_waiting", client) == 3, "waiters", PATIENCE)
        server.close()
        for one in waiting:
            answer = one.result(PATIENCE)
            assert answer.json["outcome"] == "busy" and answer.headers["Connection"] == "close"
    assert client.connection.sock.recv(1) == b""
    assert not os.path.exists(server.address[5:])
    server = Server(store, folder=tmp_path)
    assert server.client().ask("finish", claim=claim, response=RESPONSE)["outcome"] == "done"
    server.close()


def test_a_half_request_does_not_keep_it(tmp_path):
    server = Server("memory:", "--drain", "300ms", folder=tmp_path)
    with dial(server.address) as line:
        line.sendall(HALF)
        until(lambda: server.metric("once_serve_connections") >= 2, "the connection", PATIENCE)
        code, said = server.stop()
    assert code == 1 and "not finished" in said


def test_its_log_is_json(tmp_path):
    server = Server("memory:", folder=tmp_path)
    for line in server.close().splitlines():
        assert json.loads(line)["program"] == "serve"
