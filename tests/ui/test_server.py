"""The server of the page: who is heard, what is answered, and what cannot be talked out of it."""
import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import time

import pytest

from brokers import free_port
from page import ONCE, PATIENCE, Client, Page, Seed, counted
from waiting import until

HOSTILE_KEY = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module", name="store")
def make_store(tmp_path_factory):
    url = f"local:{tmp_path_factory.mktemp('ui')}/store"
    seed = Seed(url)
    seed.make("completed", "order-1", "POST /payments", "{\"id\": \"pay_1\"}")
    seed.make("completed", "bytes", "POST /payments", "<script>alert(3)</script>")
    for name in ("unknown", "moved", "bulk-1", "bulk-2", "forced"):
        seed.make("unknown", f"unknown-{name}", "POST /payments")
    seed.make("unknown", HOSTILE_KEY, "POST /<script>alert(2)</script>")
    seed.make("pending", "silent", "POST /transfers")
    seed.make("running", "running", "POST /payouts")
    seed.make("failed", "failed", "POST /payments")
    seed.make("many", "bulk-", 300)
    seed.close()
    return url


@pytest.fixture(scope="module", name="page")
def start_page(store):
    page = Page(store, "--role", "operate")
    yield page
    assert page.close() == 0


@pytest.fixture(scope="module", name="operator")
def sign_in(page):
    return page.client()


def wait_for_leases(client):
    """The records of the seed are held for a second; those with a live lease are not to be settled."""
    until(lambda: counted(client)["stuck"] == 7 and all(row["lease_ms"] == 0 for row in listed(client, "stuck=1")),
          "leases to end", PATIENCE)


def listed(client, query):
    """All records that pass, page after page."""
    rows, cursor = [], None
    while True:
        answer = client.get(f"/api/records?{query}" + (f"&cursor={cursor}" if cursor else ""))
        assert answer.status == 200, answer.body
        rows += answer.json["records"]
        cursor = answer.json["cursor"]
        if cursor is None:
            return rows


# ------------------------------------------------------------------------------------------------------------ who is heard


def test_nothing_but_the_page_without_a_session(page):
    client = Client(page.port)
    for path in ("/", "/app.js", "/style.css", "/icon.svg"):
        answer = client.get(path)
        assert answer.status == 200
        assert answer.headers["Cache-Control"] == "no-store"
        policy = answer.headers["Content-Security-Policy"]
        assert "script-src 'self'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    for path in ("session", "records", "record?id=" + 64 * "0", "response", "stats", "metrics", "audit", "outbox",
                 "letters?from=0"):
        assert client.get(f"/api/{path}").status == 401
    for path in ("settle", "erase", "logout", "outbox/retry", "outbox/drop", "letters/replay"):
        assert client.post(f"/api/{path}", {}).status == 401
    assert client.get("/api/records", Cookie=f"once_ui_{client.port}=" + 32 * "a").status == 401
    assert client.get("/../etc/passwd").status == 404


def test_a_token_is_for_one_browser(store):
    page = Page(store)
    token = page.token
    assert re.fullmatch("[a-z2-7]{32}", token)
    client = Client(page.port)
    assert client.login("x" + token[1:]).status == 401
    answer = client.login(token)
    assert answer.status == 200
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Secure" not in cookie
    assert answer.json["role"] == "view"
    assert cookie.startswith(f"once_ui_{page.port}=")  # another page of this host has another one
    assert Client(page.port).login(token).status == 401
    assert client.get("/api/stats").status == 200
    second = page.again()
    assert second != token and Client(page.port).login(second).status == 200
    assert client.post("/api/logout", {}).status == 200
    assert client.get("/api/stats").status == 401
    assert page.close() == 0


@pytest.mark.parametrize("host, status", [(None, 200), ("localhost:{}", 200), ("127.0.0.1:{}", 200), ("evil.example:{}", 421),
                                          ("127.0.0.1.nip.io:{}", 421), ("127.0.0.1", 421), ("", 421)])
def test_another_name_is_not_served(page, host, status):
    client = Client(page.port)
    named = {} if host is None else {"Host": host.format(page.port)}
    for path in ("/", "/app.js"):
        assert client.get(path, **named).status == status


def test_a_post_of_another_page_is_refused(page, operator):
    own = f"http://127.0.0.1:{page.port}"
    body = {"items": [], "outcome": "failed", "note": "x"}
    assert operator.post("/api/settle", body).status == 400  # it is heard
    for headers in ({"Origin": None}, {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": own + ".evil.example"},
                    {"Origin": own, "Sec_Fetch_Site": "cross-site"}, {"X_Once_Csrf": None}, {"X_Once_Csrf": ""},
                    {"X_Once_Csrf": 32 * "a"}):
        assert operator.post("/api/settle", body, **headers).status == 403, headers
    for kind in (None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        assert operator.post("/api/settle", body, Content_Type=kind).status == 415
    assert Client(page.port).post("/api/login", {"token": "x"}, Origin="https://evil.example").status == 403
    assert operator.get("/api/records", Origin="https://evil.example").status == 403
    for method in ("PUT", "DELETE", "OPTIONS"):
        assert operator.send(method, "/api/settle").status == 405


def test_what_can_be_understood_in_two_ways_is_refused(store):
    page = Page(store, "--trust-header", "X-User")
    host = f"Host: 127.0.0.1:{page.port}\r\n"
    for method, headers in (("GET", host + "Host: evil.example\r\n"), ("GET", host + "X-User: root\r\nX-User: ann\r\n"),
                            ("POST", host + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
                            ("POST", host + "Content-Length: 5\r\nContent-Length: 50\r\n")):
        with socket.create_connection(("127.0.0.1", page.port), timeout=PATIENCE) as line:
            line.sendall(f"{method} /api/session HTTP/1.1\r\n{headers}\r\n".encode() + (b"0\r\n\r\n" if method == "POST" else b""))
            assert line.recv(12) == b"HTTP/1.1 400", headers
    assert page.close() == 0


def test_a_viewer_cannot_decide(store):
    page = Page(store)
    viewer = page.client()
    record = viewer.record("unknown-unknown")
    assert record["state"] == "unknown" and "claim" not in record
    assert "claim" not in viewer.get(f"/api/record?id={record['id']}").json["record"]
    for path in ("settle", "erase", "outbox/retry", "outbox/drop", "letters/replay"):
        answer = viewer.post(f"/api/{path}", {"items": [{"id": record["id"], "claim": "x"}], "outcome": "failed", "note": "x",
                                              "role": "operate"})
        assert answer.status == 403
    assert viewer.get("/api/session?role=operate", X_Role="operate").json["role"] == "view"
    assert viewer.record("unknown-unknown")["state"] == "unknown"
    page.close()


def test_tokens_in_a_file(store, tmp_path):
    path = tmp_path / "tokens"
    ann, bob = "a" * 30, "b" * 30
    path.write_text(f"# who may do what\noperate {ann} Ann Operator\nview {bob} bob\n")
    path.chmod(0o644)
    refused = subprocess.run([ONCE, "ui", store, "--listen", "0", "--token-file", str(path)], capture_output=True, text=True,
                             check=False, timeout=PATIENCE)
    assert refused.returncode == 2 and "chmod 600" in refused.stderr
    path.chmod(0o600)
    page = Page(store, "--token-file", str(path))
    assert page.token == ""
    first, second, again = Client(page.port), Client(page.port), Client(page.port)
    assert (first.login(ann).json["role"], first.login(ann).json["name"]) == ("operate", "Ann Operator")
    assert second.login(bob).json["role"] == "view"
    assert again.login(ann).status == 200  # it is hers, not used up
    path.write_text(f"view {bob} bob\n")
    page.process.send_signal(signal.SIGHUP)
    page.announced()
    assert first.get("/api/stats").status == 401  # revoked
    assert second.get("/api/stats").status == 200
    assert first.login(ann).status == 401
    path.write_text(f"view {bob[:-1]}c bob\n")  # his token was found out, and replaced
    page.process.send_signal(signal.SIGHUP)
    page.announced()
    assert second.get("/api/stats").status == 401
    assert second.login(f"{bob[:-1]}c").status == 200
    path.write_text("operate short x\n")
    page.process.send_signal(signal.SIGHUP)
    until(lambda: second.get("/api/stats").status == 200, "an answer", PATIENCE)
    assert page.close() == 0
    path.write_text("everything tokentokentokentoken x\n")
    refused = subprocess.run([ONCE, "ui", store, "--listen", "0", "--token-file", str(path)], capture_output=True, text=True,
                             check=False, timeout=PATIENCE)
    assert refused.returncode == 2 and "line 1" in refused.stderr and "tokentoken" not in refused.stderr


def test_nobody_signs_others_out(store, tmp_path):
    """However often one person signs in: only sessions of the same name make room."""
    path = tmp_path / "tokens"
    ann, bob = "a" * 30, "b" * 30
    path.write_text(f"operate {ann} Ann\nview {bob} bob\n")
    path.chmod(0o600)
    page = Page(store, "--token-file", str(path))
    other, first, last = Client(page.port), Client(page.port), Client(page.port)
    assert other.login(bob).status == first.login(ann).status == 200
    for _ in range(600):  # more than there are places
        assert last.login(ann).status == 200
    assert other.get("/api/stats").status == last.get("/api/stats").status == 200
    assert first.get("/api/stats").status == 401
    assert page.close() == 0


def test_more_people_than_places(store):
    """Names that a proxy says are not bounded: those who are signed in stay so, and others are told."""
    page = Page(store, "--trust-header", "X-User")
    client = Client(page.port)
    client.keep(client.get("/api/session", X_User="first"))
    statuses = {client.get("/api/session", X_User=f"user{i}", Cookie=None).status for i in range(600)}
    assert statuses == {200, 503}
    assert "sign out" in client.get("/api/session", X_User="user600", Cookie=None).json["error"]
    assert client.get("/api/stats", X_User="first").status == 200
    assert page.close() == 0


def test_a_proxy_says_who_it_is(store):
    page = Page(store, "--trust-header", "X-User", "--role", "operate", "--origin", "https://ops.example", "--prefix", "/once/")
    assert page.address == "https://ops.example/once/"
    with socket.socket() as probe:  # the port is not announced: it is the proxy's
        probe.settimeout(PATIENCE)
    port = listening(page.process.pid)
    client = Client(port, "/once")
    there = {"Host": "ops.example"}
    assert client.get("/api/session", **there).status == 401
    assert client.get("/api/session", X_User="", **there).status == 401
    answer = client.get("/api/session", X_User="ann@example.com", **there)
    assert answer.status == 200 and answer.json["name"] == "ann@example.com"
    assert "Path=/once/" in answer.headers["Set-Cookie"] and "; Secure" in answer.headers["Set-Cookie"]
    client.keep(answer)
    assert client.get("/api/stats", X_User="ann@example.com", **there).status == 200
    assert client.get("/api/stats", X_User="bob@example.com", **there).status == 401  # her cookie is not his
    assert client.get("/api/stats", **there).status == 401
    own = {"Origin": "https://ops.example", "X_User": "ann@example.com", **there}
    assert client.post("/api/settle", {"items": []}, **own).status == 400
    assert client.post("/api/settle", {"items": []}, **{**own, "Origin": "http://ops.example"}).status == 403
    assert client.get("/", Host="other.example").status == 421
    assert client.get("/api/session", X_User=b"J\xfcrgen", **there).status == 401  # not UTF-8: no name for the audit trail
    assert client.get("/api/session", X_User="Jürgen".encode(), **there).json["name"] == "Jürgen"
    bare = Client(port)
    assert bare.get("/once/app.js", **there).status == 200
    assert bare.get("/app.js", **there).status == 404
    assert bare.get("/oncewards/app.js", **there).status == 404
    assert page.close() == 0


NGINX = """
daemon off;
pid {directory}/pid;
error_log stderr;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location /once/ {{
            proxy_pass http://127.0.0.1:{page};
            proxy_set_header Host $http_host;
            proxy_set_header X-User ann;
        }}
    }}
}}
"""


def test_behind_a_real_proxy(store, tmp_path):
    """nginx with the page below a path, as docs/ui.md has it: what a client says of itself does not count."""
    port = free_port()
    page = Page(store, "--trust-header", "X-User", "--role", "operate", "--origin", f"http://127.0.0.1:{port}", "--prefix", "/once")
    path = tmp_path / "nginx.conf"
    path.write_text(NGINX.format(directory=tmp_path, port=port, page=listening(page.process.pid)))
    with subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", "nginx", "-c", str(path)], stderr=subprocess.DEVNULL) as nginx:
        client = Client(port, "/once")

        def answers():
            try:
                return client.get("/api/session", X_User="mallory").status == 200
            except OSError:
                return False

        until(answers, "nginx", PATIENCE)
        answer = client.get("/api/session", X_User="mallory")
        assert answer.json["name"] == "ann" and "Path=/once/" in answer.headers["Set-Cookie"]
        client.keep(answer)
        assert client.get("/").status == client.get("/app.js").status == 200
        assert b"app.js" in client.get("/").body and len(client.get("/api/records").json["records"]) == 50
        assert client.post("/api/settle", {"items": []}).status == 400  # it is heard
        assert client.post("/api/settle", {"items": []}, Origin="http://127.0.0.1:1").status == 403
        nginx.terminate()
    assert page.close() == 0


def listening(pid):
    """The port on which a process listens."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # it is closed by now
            inodes.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    with open("/proc/net/tcp", encoding="ascii") as file:
        for line in file.read().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                return int(fields[1].split(":")[1], 16)
    raise AssertionError("it does not listen")


def test_what_is_not_served(store):
    for options, word in ((("--listen", "0.0.0.0:0"), "TLS"), (("--listen", "x"), "--listen"), (("--role", "root"), "--role"),
                          (("--trust-header", "a b"), "header"), (("--origin", "https://a.example/b"), "--origin"),
                          (("--prefix", "once"), "--prefix"), (("--gate", "file:///etc/passwd"), "--gate"),
                          (("--dlq", "kafka://127.0.0.1/orders"), "NAME.dlq"), (("--dlq", "http://127.0.0.1/x.dlq"), "--dlq"),
                          (("--token-file", "/x", "--role", "view"), "token file")):
        refused = subprocess.run([ONCE, "ui", store, *options], capture_output=True, text=True, check=False, timeout=PATIENCE)
        assert refused.returncode in (2, 3) and word in refused.stderr, (options, refused.stderr)


# ------------------------------------------------------------------------------------------------------------ what it shows


def test_lists(operator):
    wait_for_leases(operator)
    assert len(listed(operator, "")) == 311
    assert {row["key"] for row in listed(operator, "stuck=1")} == {"unknown-unknown", "unknown-moved", "unknown-bulk-1",
                                                                 "unknown-bulk-2", "unknown-forced", HOSTILE_KEY, "silent"}
    assert [row["key"] for row in listed(operator, "state=failed")] == ["failed"]
    assert {row["key"] for row in listed(operator, "state=pending,failed")} == {"failed", "silent", "running"}
    assert [row["key"] for row in listed(operator, "route=PAYOUTS")] == ["running"]
    assert len(listed(operator, "key=bulk-1&state=completed")) == 111
    scope = operator.record("order-1")["scope_hash"]
    assert len(listed(operator, f"scope_hash={scope[:8]}")) == 311
    assert len(listed(operator, "older=1h")) == 0
    assert len(listed(operator, "younger=1h")) == 311
    for query in ("state=x", "older=x", "younger=0", "scope_hash=xyz", "cursor=00", "cursor=zz"):
        assert operator.get(f"/api/records?{query}").status == 400
    assert operator.get("/api/records?cursor=" + 80 * "f").status == 200  # any bytes: nothing more to see


def test_a_page_is_bounded(operator):
    """Whatever passes, and however little: work ends with a page or with its time, and the cursor goes on."""
    first = operator.get("/api/records").json
    assert 0 < len(first["records"]) <= 50 and first["cursor"] and first["looked"] <= 50
    nothing = operator.get("/api/records?key=nobody").json
    assert nothing["records"] == [] and nothing["cursor"] is None


def test_one_record(operator):
    record = operator.record("order-1")
    answer = operator.get(f"/api/record?id={record['id']}")
    assert answer.json["record"]["claim"] == record["claim"]
    assert "body_base64" not in answer.body.decode() and "pay_1" not in answer.body.decode()  # on demand only
    response = operator.get(f"/api/response?id={record['id']}").json
    assert response["status"] == 201 and response["body"] == "{\"id\": \"pay_1\"}"
    assert response["headers"] == [{"name": "Content-Type", "value": "text/html"}]
    hostile = operator.get(f"/api/response?id={operator.record('bytes')['id']}")
    assert hostile.headers["Content-Type"] == "application/json"
    assert hostile.headers["X-Content-Type-Options"] == "nosniff"
    assert operator.get(f"/api/response?id={operator.record('failed')['id']}").status == 404
    assert operator.get("/api/record?id=" + 64 * "0").status == 404
    for wrong in ("", "x", 63 * "0", 64 * "g"):
        assert operator.get(f"/api/record?id={wrong}").status == 400


def test_counts(operator):
    stats = counted(operator)
    assert stats["up"] and stats["records"] == 311 and stats["completed"] >= 302


# ---------------------------------------------------------------------------------------------------------------- deciding


def test_settling(operator):
    wait_for_leases(operator)
    record = operator.record("unknown-unknown")
    for more, word in (({"note": ""}, "note"), ({"note": " \n"}, "note"), ({"note": 5000 * "x"}, "longer"),
                       ({"outcome": "x"}, "outcome"),
                       ({"outcome": "completed"}, "status"), ({"outcome": "completed", "status": 199}, "status"),
                       ({"outcome": "completed", "status": 200, "headers": ["a\r\nb: c"]}, "header"),
                       ({"dry_run": "true"}, "dry_run"), ({"dry_run": 1}, "dry_run"), ({"dry_run": None}, "dry_run"),
                       ({"force": 1}, "force"), ({"outcome": "completed", "status": 2**32 + 200}, "status"),
                       ({"outcome": "completed", "status": 200, "body": {"a": 1}}, "body"),
                       ({"outcome": "completed", "status": 200, "headers": "A: b"}, "headers"),
                       ({"items": []}, "items"), ({"items": 101 * [{}]}, "items")):
        answer = operator.settle(record, **more)
        assert answer.status == 400 and word in answer.json["error"], answer.body
    assert operator.settle(record, dry_run=True).json["done"] == 1
    assert operator.record("unknown-unknown")["state"] == "unknown"
    answer = operator.settle(record, outcome="completed", status=201, headers=["X-Made: by hand"], body="{\"by\": \"hand\"}",
                             note="ledger 7")
    assert answer.status == 200 and answer.json["results"][0]["state"] == "completed"
    shown = operator.get(f"/api/response?id={record['id']}").json
    assert shown["body"] == "{\"by\": \"hand\"}" and shown["headers"] == [{"name": "X-Made", "value": "by hand"}]
    answer = operator.settle(record)
    assert answer.status == 409 and not answer.json["results"][0]["done"]
    trail = operator.get("/api/audit").json
    assert trail["faults"] == 0 and [entry["step"] for entry in trail["entries"][-2:]] == ["intent", "result"]
    assert trail["entries"][-2]["note"] == "ledger 7" and trail["entries"][-2]["record"] == record["id"]
    story = operator.get(f"/api/record?id={record['id']}").json
    assert [entry["step"] for entry in story["decisions"]] == ["intent", "result"]


def test_the_trail_is_read_in_steps(operator, store):
    """Backwards from its end, a bounded number of entries at a time, each once; what is not whole is noticed on the way."""
    path = f"{store.partition(':')[2]}/audit"
    before = trail_of(operator)
    with open(path, "rb") as file:
        whole = file.read()
    pending = operator.record("silent")
    for _ in range(60):  # refused, which leaves its entries as well
        assert operator.post("/api/erase", {"id": pending["id"], "claim": pending["claim"], "note": 190 * "x"}).status == 409
    assert len(operator.get("/api/audit").json["entries"]) < 110
    after = trail_of(operator)
    numbers = [entry["number"] for entry in after]
    assert numbers == list(range(len(numbers), 0, -1)) and after[-len(before):] == before and len(after) >= len(before) + 120
    with open(path, "rb") as file:
        text = file.read()
    assert text.startswith(whole)
    at = text.index(b"\n", len(text) // 2) + 1
    with open(path, "r+b") as file:  # a line is taken out
        file.truncate(at)
        file.seek(at)
        file.write(text[text.index(b"\n", at) + 1:])
    assert len(trail_of(operator, faults=1)) == len(after) - 1
    with open(path, "r+b") as file:
        file.write(text)
    assert operator.get("/api/audit?cursor=" + 80 * "f").status == 200
    assert operator.get("/api/audit?cursor=x").status == 400


def trail_of(client, faults=0):
    entries, cursor, found = [], "", 0
    while cursor is not None:
        answer = client.get(f"/api/audit?cursor={cursor}").json
        entries, cursor, found = entries + answer["entries"][::-1], answer["cursor"], found + answer["faults"]
    assert found == faults
    return entries


def test_a_record_that_moved_on_refuses(operator, store):
    until(lambda: operator.record("unknown-moved")["lease_ms"] == 0, "its lease", PATIENCE)
    judged = operator.record("unknown-moved")
    done = subprocess.run([ONCE, "keys", "release", store, judged["id"], "--note", "by another person", "--yes"],
                          capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    seed = Seed(store)
    seed.make("running", "unknown-moved", "POST /payments")  # the next attempt
    answer = operator.settle(judged, force=True)
    assert answer.status == 409 and "moved on" in answer.json["results"][0]["why"]
    assert operator.record("unknown-moved")["state"] == "pending"
    seed.close()


def test_a_live_lease_is_waited_for(operator):
    record = operator.record("running")
    answer = operator.settle(record)
    assert answer.status == 409 and "lease is live" in answer.json["results"][0]["why"]
    assert operator.settle(record, force=True).status == 200


def test_several_at_once(operator):
    rows = [operator.record(f"unknown-bulk-{i}") for i in (1, 2)]
    items = [{"id": row["id"], "claim": row["claim"]} for row in rows] + [{"id": rows[0]["id"], "claim": "other"}, {"id": 7}]
    body = {"items": items, "outcome": "failed", "note": "the batch never ran"}
    dry = operator.post("/api/settle", {**body, "dry_run": True}).json
    assert [result["done"] for result in dry["results"]] == [True, True, False, False]
    assert operator.record("unknown-bulk-1")["state"] == "unknown"
    answer = operator.post("/api/settle", body)
    assert answer.status == 200 and answer.json["done"] == 2
    assert operator.record("unknown-bulk-2")["state"] == "failed"
    assert operator.post("/api/settle", {**body, "outcome": "completed", "status": 200}).status == 400


def test_events_are_in_postgres_only(operator):
    assert operator.get("/api/outbox").status == 404
    assert operator.post("/api/outbox/drop", {"ids": ["x"], "note": "x"}).status == 404


# --------------------------------------------------------------------------------------------------------------- robustness


def test_bodies_are_bounded(operator):
    assert operator.post("/api/settle", {"note": 600 * 1024 * "x"}).status == 413
    for body in ("", "[]", "{", "{\"a\":1,\"a\":2}", "\0", 2000 * "["):
        answer = operator.send("POST", "/api/settle", body, Origin=f"http://127.0.0.1:{operator.port}",
                               Content_Type="application/json", X_Once_Csrf=operator.csrf)
        assert answer.status == 400
    assert operator.get("/api/records?key=" + 40000 * "x").status >= 400
    assert operator.get("/api/stats").status == 200


def test_slow_clients_do_not_keep_others_out(page, operator):
    """As many as there are places send a byte now and then; they are ended, and meanwhile waiting requests are answered."""
    slow = []
    for _ in range(48):
        line = socket.create_connection(("127.0.0.1", page.port), timeout=PATIENCE)
        line.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        slow.append(line)
    assert operator.get("/api/stats").status == 200

    def trickle():
        left = 0
        for line in slow:
            try:
                line.send(b"x")
                line.setblocking(False)
                left += line.recv(1) != b""
            except BlockingIOError:
                left += 1
            except OSError:
                pass
        time.sleep(0.5)
        return left == 0

    until(trickle, "the slow ones to be ended", 2 * PATIENCE)
    for line in slow:
        line.close()
    assert operator.get("/api/stats").status == 200


def check_erasing(client):
    record, stuck = client.record("order-2"), client.record("order-1")
    assert client.post("/api/erase", {"id": record["id"], "claim": record["claim"]}).status == 400  # no note
    assert client.post("/api/erase", {"id": record["id"], "claim": stuck["claim"], "note": "asked to"}).status == 409
    assert client.post("/api/erase", {"id": stuck["id"], "claim": stuck["claim"], "note": "asked to"}).status == 409
    assert client.post("/api/erase", {"id": record["id"], "claim": record["claim"], "note": "asked to"}).status == 200
    shown = client.get(f"/api/response?id={record['id']}").json
    assert shown["status"] == 201 and shown["body"] == ""


def check_one_cursor_at_once(client, redis):
    """The same cursor from several tabs: one goes on with the list, the others are to begin again."""
    cursor = client.get("/api/records").json["cursor"]
    request = f"GET /api/records?cursor={cursor} HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\nCookie: {client.cookie}\r\n\r\n"
    redis.send_signal(signal.SIGSTOP)
    lines, answered = [], []
    while not answered and len(lines) < 8:
        lines.append(socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE))
        lines[-1].sendall(request.encode())
        answered = select.select(lines, [], [], 0.5)[0]
    first = (answered or select.select(lines, [], [], PATIENCE)[0])[0]
    redis.send_signal(signal.SIGCONT)
    assert first.recv(12) == b"HTTP/1.1 410"  # without waiting for the store
    assert {line.recv(12) for line in lines if line != first} <= {b"HTTP/1.1 200", b"HTTP/1.1 410", b"HTTP/1.1 503"}
    for line in lines:
        line.close()
    until(lambda: client.get("/api/records").status == 200, "the store to answer", PATIENCE)


def check_page_of_a_frozen_store(client, redis):
    """Requests that wait for the store keep nobody else waiting."""
    request = f"GET /api/records HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\nCookie: {client.cookie}\r\n\r\n"
    redis.send_signal(signal.SIGSTOP)
    lines = []
    while len(lines) < 12 and not select.select(lines, [], [], 0.1)[0]:  # time enough for a thread to take each
        lines.append(socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE))
        lines[-1].sendall(request.encode())
    assert client.get("/").status == 200 and client.get("/api/session").status == 200
    assert not select.select(lines, [], [], 0)[0]
    redis.send_signal(signal.SIGCONT)
    for line in lines:
        assert line.recv(12) in (b"HTTP/1.1 200", b"HTTP/1.1 503")
        line.close()
    until(lambda: client.get("/api/records").status == 200, "the store to answer", PATIENCE)


def test_a_store_that_goes_away(tmp_path):
    """Redis: a record is erased there; it is killed and comes back, the page says so, and goes on."""
    port = free_port()
    command = ["redis-server", "--port", str(port), "--save", "", "--dir", str(tmp_path)]
    url = f"redis://127.0.0.1:{port}"

    def up():
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True
        except OSError:
            return False

    with open(os.devnull, "w", encoding="ascii") as nowhere:
        redis = subprocess.Popen(command, stdout=nowhere)
        until(up, "Redis", PATIENCE)
        seed = Seed(url)
        seed.make("unknown", "order-1", "POST /payments")
        seed.make("completed", "order-2", "POST /payments", "Ann, Main Street 7")
        seed.make("many", "bulk-", 200)
        seed.close()
        page = Page(url, "--role", "operate")
        client = page.client()
        until(lambda: client.get("/api/records").status == 200 and client.record("order-1"), "the record", PATIENCE)
        assert counted(client)["server"].startswith("Redis 7.")
        check_erasing(client)
        check_one_cursor_at_once(client, redis)
        check_page_of_a_frozen_store(client, redis)
        redis.kill()
        redis.wait(PATIENCE)
        answer = client.get("/api/records")
        assert answer.status == 503 and "list the records" in answer.json["error"], answer.body
        until(lambda: not counted(client)["up"], "the page to notice", PATIENCE)
        redis = subprocess.Popen(command, stdout=nowhere)
        until(lambda: client.get("/api/records").status == 200, "the store to come back", PATIENCE)
        assert client.get("/api/records?cursor=" + "ff" + 78 * "0").status == 410
        assert page.close() == 0
        redis.terminate()
        redis.wait(PATIENCE)


def test_peers(store):
    """What a gate, or anything, says at /metrics: numbers where there are some, and no trouble otherwise."""
    text = ("# HELP x y\nonce_requests_total{route=\"POST /\\\"a\\\\\",outcome=\"run\"} 12\nonce_in_flight 3\nnan NaN\ninf +Inf\n"
            "broken{ 1\nbroken{a=\"b} 1\n{} 1\nno_number{a=\"b\"} \nbytes{a=\"\xff\"} 1\nexact 1e3\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/metrics"
        page = Page(store, "--gate", url, "--relay", "http://127.0.0.1:1/metrics")
        client = page.client()
        assert client.get("/api/metrics").status == 200
        server.settimeout(PATIENCE)
        line, _ = server.accept()
        line.recv(4096)
        line.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + text.encode("latin-1"))
        line.close()
        gate, relay = until(lambda: client.get("/api/metrics").json["peers"], "numbers", PATIENCE)
    assert gate["up"] and not relay["up"] and relay["error"]
    found = [(sample["name"], sample["value"]) for sample in gate["samples"]]
    assert found == [("once_requests_total", 12), ("once_in_flight", 3), ("exact", 1000)]
    assert gate["samples"][0]["labels"] == {"route": "POST /\"a\\", "outcome": "run"}
    assert page.close() == 0


def test_it_ends_at_once_with_silent_peers(store):
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        server.settimeout(PATIENCE)
        page = Page(store, *(40 * ["--gate", f"http://127.0.0.1:{server.getsockname()[1]}/metrics"]))
        assert page.client().get("/api/metrics").status == 200
        line, _ = server.accept()
        assert page.close() == 0  # they have two seconds each: 80, which is longer than it is waited for
        line.close()


def test_it_ends_at_once_with_clients(store):
    page = Page(store)
    client = page.client()
    held = socket.create_connection(("127.0.0.1", page.port))
    assert client.get("/api/stats").status == 200
    assert page.close() == 0
    held.close()
