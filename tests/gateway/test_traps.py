"""Traps of nginx, each of which has cost a user a day. Where another file has the test already, it is named here."""
import os
import re

import pytest

from harness import expect
from harness.gateway import GUARD
from harness.leaving import WAYS, Leaver
from harness.message import Closed, head
from harness.upstream import answer
from harness.wait import Gate, until


def memory_peak(pid):
    """What a process has used at most, in bytes."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return int(re.search(r"VmHWM:\s+(\d+) kB", file.read())[1]) * 1024


# 1, the bits of r->buffered: test_compat.py::test_ssi, test_sub_filter_and_charset (filters that set others)
# 2, `return` is before our phases: test_conf.py::test_return_is_refused

def test_return_inside_of_an_if_is_not_guarded(gateway):
    """It cannot be seen at configuration; it answers in the rewrite phase, and what does not return is guarded."""
    gw = gateway("if ($arg_maintenance) { return 503; }")
    assert gw.post("k", target="/?maintenance=1").status == 503
    assert gw.store.records() == []
    original = expect.first(gw.post("k", target="/"))
    expect.replay(gw.post("k", target="/"), original)
    assert gw.upstream.count("k") == 1


# 3, internal redirects clear the modules' contexts: test_compat.py has error_page, named locations, X-Accel-Redirect; and:

def test_redirect_back_into_a_guarded_location(gateway):
    """The second pass is the same request: it has its claim already and must not ask for another one."""
    gw = gateway(locations="location / { %s error_page 404 = /again; proxy_intercept_errors on; }"
                           "location /again { %s }" % (GUARD, GUARD))
    gw.upstream.then(answer(404))
    response = gw.post("k")
    assert response.status == 201, response
    replayed = gw.post("k")
    assert replayed.status == 201 and replayed.header("Idempotent-Replayed") == "true", replayed
    assert replayed.body == response.body
    assert gw.upstream.count("k") == 2  # the operator's own doing: two backends were asked, once


def test_try_files_in_a_guarded_location(gateway, directory):
    with open(f"{directory}/page", "w", encoding="ascii") as file:
        file.write("page")
    gw = gateway(locations="location / { once on; once_scope none; root %s; try_files $uri @app; }"
                           "location @app { proxy_pass http://backend; }" % directory)
    assert gw.request("GET", "/page").body == b"page"
    original = expect.first(gw.post("k", target="/other"))
    expect.replay(gw.post("k", target="/other"), original)
    assert gw.upstream.count("k") == 1


# 4, reading the body in a phase: it may be there already, come later, or not at all

@pytest.mark.parametrize("moment", ["with the head", "after the head", "in two parts"])
def test_body_at_any_moment(gateway, moment):
    gw = gateway()
    with gw.connect() as client:
        for key in ("a", "b"):  # twice on one connection: a wrong count shows at the second request at the latest
            fields = [("Host", "g"), ("Idempotency-Key", key), ("Content-Length", "6")]
            data = head("POST / HTTP/1.1", fields)
            client.waiting.append("POST")
            if moment == "with the head":
                client.send(data + b"foobar")
            elif moment == "after the head":
                client.send(data)
                gw.request("GET", "/")  # goes through the same worker: it has read the head by now
                client.send(b"foobar")
            else:
                client.send(data + b"foo")
                gw.request("GET", "/")
                client.send(b"bar")
            expect.first(client.finish())
            assert gw.upstream.of(key)[0].body == b"foobar"
            assert gw.upstream.count(key) == 1


def test_body_that_is_preread_with_the_next_request(gateway):
    """What follows the body belongs to the next request."""
    gw = gateway()
    with gw.connect() as client:
        one = head("POST / HTTP/1.1", [("Host", "g"), ("Idempotency-Key", "a"), ("Content-Length", "3")]) + b"one"
        two = head("POST / HTTP/1.1", [("Host", "g"), ("Idempotency-Key", "b"), ("Content-Length", "3")]) + b"two"
        client.send(one + two[:-1])
        client.waiting += ["POST", "POST"]
        expect.first(client.finish())
        client.send(two[-1:])
        expect.first(client.finish())
    assert [request.body for request in gw.upstream.requests] == [b"one", b"two"]


def test_client_body_timeout(gateway):
    gw = gateway("client_body_timeout 200ms;")
    with gw.connect() as client:
        client.begin("POST", "/", "k", b"never comes")
        try:
            assert client.finish().status == 408
        except Closed:
            pass
    assert gw.upstream.total == 0 and gw.store.records() == []


# 5, large bodies are in a file: test_compat.py::test_request_bodies; and the file must still be there for the upstream:

def test_body_in_a_file_is_fingerprinted_and_forwarded(gateway):
    gw = gateway("client_body_in_file_only clean; client_body_buffer_size 1k;")
    body = os.urandom(300_000)
    original = expect.first(gw.post("k", body))
    assert gw.upstream.last().body == body
    expect.replay(gw.post("k", body), original)
    changed = body[:150_000] + bytes([body[150_000] ^ 1]) + body[150_001:]
    expect.problem(gw.post("k", changed), "key-reused")
    assert gw.upstream.count("k") == 1


# 6, a request that goes away under an operation of the store; 7, 8, while it is held or the upstream works: test_abort.py
# 9, send_timeout: test_abort.py::test_send_timeout_while_the_response_is_held; 10, truncated replies: test_abort.py

# 11, buffers that are recycled, emptied or in files

@pytest.mark.parametrize("rules", [
    "proxy_buffers 2 4k; proxy_buffer_size 4k; proxy_busy_buffers_size 4k; proxy_max_temp_file_size 0;",
    "proxy_buffers 2 4k; proxy_buffer_size 4k; proxy_busy_buffers_size 4k; proxy_max_temp_file_size 1m;",
    "proxy_buffering off; proxy_buffer_size 4k;",
    "proxy_buffers 64 64k;",
    "sendfile on; output_buffers 1 4k;",
])
@pytest.mark.parametrize("size", [3000, 500_000, 5_000_000])
def test_buffers(gateway, rules, size):
    """Byte by byte, whatever the buffers; 5 MB are more than is held."""
    gw, body = gateway(rules), os.urandom(size)
    gw.upstream.default = answer(200, body=body)
    original = expect.first(gw.post("k"), 200)
    assert original.body == body
    replayed = gw.post("k")
    assert replayed.status == 200 and replayed.header("Idempotent-Replayed") == "true"
    assert replayed.body == (body if size <= 1024 * 1024 else b"")
    assert gw.upstream.count("k") == 1


def test_response_that_comes_in_many_small_pieces(gateway):
    gw = gateway("proxy_buffering off;")

    def script(exchange):
        exchange.begin(200, [("Transfer-Encoding", "chunked")])
        for number in range(300):
            exchange.send(b"4\r\n%04d\r\n" % number)
        exchange.send(b"0\r\n\r\n")

    gw.upstream.default = script
    original = expect.first(gw.post("k"), 200)
    assert original.body == b"".join(b"%04d" % number for number in range(300))
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 1


# 12, the hold is bounded

@pytest.mark.weighs
@pytest.mark.parametrize("rules", ["", "proxy_buffering off;", "proxy_max_temp_file_size 0;"])
def test_memory_does_not_grow_with_the_response(gateway, rules):
    gw = gateway(rules)
    size = 60_000_000
    piece = b"z" * 1_000_000

    def script(exchange):
        exchange.begin(200, [("Content-Length", size)])
        for _ in range(size // len(piece)):
            exchange.send(piece)

    expect.first(gw.post("warm"))
    pid = gw.nginx.worker_pids()[0]
    before = memory_peak(pid)
    gw.upstream.default = script
    response = gw.post("k")
    assert response.status == 200 and len(response.body) == size
    assert memory_peak(pid) - before < 8_000_000
    assert gw.post("k").header("Once-Body") == "omitted"
    assert gw.upstream.count("k") == 1


@pytest.mark.weighs
def test_memory_does_not_grow_with_the_request(gateway):
    gw = gateway("client_max_body_size 0;")
    expect.first(gw.post("warm"))
    pid = gw.nginx.worker_pids()[0]
    before = memory_peak(pid)
    original = expect.first(gw.post("k", b"r" * 60_000_000))
    assert memory_peak(pid) - before < 4_000_000
    expect.replay(gw.post("k", b"r" * 60_000_000), original)
    assert gw.upstream.count("k") == 1


# 13, errors in body filters under HTTP/2: test_abort.py::test_upstream_fails_in_the_middle_of_the_body[*-h2]
# 14, subrequests: test_compat.py::test_mirror*, test_ssi; test_limit.py::test_auth_request; and both guarded:

def test_guarded_subrequest_of_auth_request(gateway):
    """`once on` for a whole server, with the authenticator inside of it."""
    gw = gateway(server="once on; once_scope none;", locations="""
        location / { auth_request /auth; proxy_pass http://backend; }
        location = /auth { internal; proxy_pass http://backend; proxy_method GET; proxy_pass_request_body off;
                           proxy_set_header Content-Length ""; proxy_set_header Idempotency-Key ""; }
    """)
    gw.upstream.on("/auth", answer(204))
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 1


# 15, which phase: test_limit.py::test_auth_basic, test_satisfy_any, test_forbidden_by_address; what is before is not recorded:

def test_limit_conn_and_limit_req_are_before_the_guard(gateway):
    gw = gateway("limit_req zone=all; limit_req_status 429;", http="limit_req_zone $binary_remote_addr zone=all:1m rate=1r/m;")
    expect.first(gw.post("k1"))
    assert gw.post("k2").status == 429
    assert gw.store.state("k2") is None
    assert gw.upstream.total == 1


# 16, waiting without threads: test_wait.py

# 18, headers that nginx also keeps elsewhere

def test_headers_stand_there_once(gateway):
    gw = gateway()
    headers = [("Content-Type", "text/plain"), ("Location", "/x"), ("ETag", '"1"'),
               ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
               ("Content-Encoding", "br"), ("Accept-Ranges", "none"), ("Refresh", "5"), ("Expires", "0"), ("Cache-Control", "a"),
               ("Cache-Control", "b"), ("Link", "a"), ("Link", "b"), ("WWW-Authenticate", "Basic"), ("Content-Range", "bytes */9"),
               ("X-Accel-Expires", "0"), ("Content-Disposition", "inline"), ("Retry-After", "9")]
    gw.upstream.default = answer(400, headers, b"body")
    original = expect.first(gw.post("k"), 400)
    replayed = expect.replay(gw.post("k"), original)
    for name in ("Content-Type", "Content-Length", "Location", "ETag", "Last-Modified", "Content-Encoding", "Date", "Server"):
        assert len(replayed.headers.all(name)) == len(original.headers.all(name)) <= 1, name
    assert replayed.headers.all("Cache-Control") == ["a", "b"] and replayed.headers.all("Link") == ["a", "b"]
    assert gw.upstream.count("k") == 1


def test_charset_and_boundary_of_the_content_type(gateway):
    gw = gateway()
    types = ["text/html; charset=iso-8859-1", "multipart/mixed; boundary=\"a;b\"", "application/json;charset=utf-8"]
    for number, text in enumerate(types):
        gw.upstream.default = answer(200, [("Content-Type", text)], b"x")
        original = expect.first(gw.post(f"k{number}"), 200)
        replayed = expect.replay(gw.post(f"k{number}"), original)
        assert replayed.header("Content-Type") == original.header("Content-Type")
    gw.upstream.default = lambda exchange: (exchange.begin(200, [("Content-Length", "1")]), exchange.send(b"x"))
    original = expect.first(gw.post("none"), 200)
    assert "Content-Type" not in expect.replay(gw.post("none"), original).headers
    assert gw.upstream.total == 4


def test_location_is_rewritten_once(gateway):
    """proxy_redirect has done its work before the answer is recorded."""
    gw = gateway("proxy_redirect http://inside/ https://outside/;")
    gw.upstream.default = answer(303, [("Location", "http://inside/a"), ("Refresh", "5; url=http://inside/b")])
    original = expect.first(gw.post("k"), 303)
    assert original.header("Location") == "https://outside/a"
    replayed = expect.replay(gw.post("k"), original)
    assert replayed.header("Location") == "https://outside/a"
    assert gw.upstream.count("k") == 1


def test_proxy_hide_header_and_pass_header(gateway):
    gw = gateway("proxy_hide_header X-Secret; proxy_pass_header Server; proxy_ignore_headers X-Accel-Redirect;")
    gw.upstream.default = answer(201, [("X-Secret", "s"), ("Server", "backend"), ("X-Accel-Redirect", "/nowhere")])
    original = expect.first(gw.post("k"))
    replayed = expect.replay(gw.post("k"), original)
    for response in (original, replayed):
        assert "X-Secret" not in response.headers
    assert original.header("Server") == "backend"
    assert gw.upstream.count("k") == 1


def test_reason_phrase_of_an_unusual_status(gateway):
    gw = gateway()
    gw.upstream.default = lambda exchange: (exchange.begin(299, [("Content-Length", "2")], "Quite Fine"), exchange.send(b"ok"))
    original = expect.first(gw.post("k"), 299)
    assert (original.reason, original.body) == ("Quite Fine", b"ok")
    replayed = expect.replay(gw.post("k"), original)
    assert replayed.status == 299
    assert gw.upstream.count("k") == 1


# ------------------------------------------------------------------------------------------ of the prototype's own list

def test_worker_that_quits_waits_for_the_store(gateway):
    """Suspended on the store, a request has no timer of nginx's own: test_signals.py::test_quit_while_only_the_store_is_waited_for.
    Here: many of them, so that some are in every state."""
    gw = gateway(disk=True)
    gw.disk.block()
    clients = [gw.connect() for _ in range(10)]
    for number, client in enumerate(clients):
        client.start("POST", "/", f"k{number}", b"a")
    gw.disk.wait_blocked()
    gw.nginx.signal(3)
    gw.nginx.log.wait("gracefully shutting down")
    gw.disk.heal()
    answered = 0
    for client in clients:
        try:
            expect.first(client.finish())
            answered += 1
        except (Closed, ConnectionResetError):
            pass  # was accepted, but not yet read when the worker was asked to quit
        client.close()
    assert answered > 0
    gw.nginx.log.wait_end()
    for number in range(10):
        assert gw.upstream.count(f"k{number}") <= 1
    assert {record["state"] for record in gw.store.records()} <= {"completed"}


def test_threads_take_no_signals(gateway):
    """A signal that a library's thread took would never reach nginx's handlers."""
    gw = gateway()
    expect.first(gw.post("k"))
    pid = gw.nginx.worker_pids()[0]
    threads = [int(name) for name in os.listdir(f"/proc/{pid}/task") if int(name) != pid]
    assert threads, "the local store has a thread that writes"
    for thread in threads:
        with open(f"/proc/{pid}/task/{thread}/status", encoding="ascii") as file:
            blocked = int(re.search(r"SigBlk:\s+([0-9a-f]+)", file.read())[1], 16)
        for number in (1, 2, 3, 10, 12, 14, 15, 17, 23, 28, 29):
            assert blocked >> (number - 1) & 1, f"signal {number} is not blocked in a thread"
    assert gw.upstream.count("k") == 1


def test_master_does_not_open_the_store(gateway):
    """What is open before fork is shared by all workers, and its threads are gone in each of them."""
    gw = gateway(workers=2)
    expect.first(gw.post("k"))
    pid = gw.nginx.process.pid
    assert len(os.listdir(f"/proc/{pid}/task")) == 1
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            assert "/store" not in os.readlink(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:
            pass
    with open(f"/proc/{pid}/maps", encoding="ascii") as file:
        assert f"{gw.directory}/store" not in file.read()
    assert gw.upstream.count("k") == 1


def test_descriptors_do_not_leak(gateway):
    """Over many requests of every kind, and for programs that nginx would start."""
    gw = gateway("once_recover hold; once_wait 100ms;")
    pid = gw.nginx.worker_pids()[0]

    def everything(number):
        expect.once(lambda: gw.post(f"a{number}"))
        gw.post(f"a{number}", b"other")
        gw.post()
        gw.upstream.then(lambda exchange: exchange.reset())
        gw.post(f"b{number}")
        leaver = Leaver(gw, WAYS[number % len(WAYS)])
        leaver.start(f"c{number}")
        leaver.leave()
        leaver.client.close()

    for number in range(10):
        everything(number)
    until(lambda: not [record for record in gw.store.records() if record["state"] == "pending"], "everything to end")
    before = len(os.listdir(f"/proc/{pid}/fd"))
    for number in range(10, 30):
        everything(number)
    until(lambda: len(os.listdir(f"/proc/{pid}/fd")) <= before + 2, "descriptors to be closed")
    assert [gw.upstream.count(f"{kind}{number}") for kind in "ab" for number in range(30)] == [1] * 60


def test_errors_of_nginx_itself_are_no_answers(gateway):
    """Nothing was forwarded, nothing was done: what nginx says about that is not recorded."""
    gw = gateway(guard="once on; once_scope none; once_methods DELETE; root @directory@; dav_methods DELETE;")
    for _ in range(2):
        expect.unrecorded(gw.request("DELETE", "/nothing", "k"), 404)
        gw.store.wait_state("k", "failed")
    gw = gateway(guard="once on; once_scope none; proxy_pass http://127.0.0.1:1;")
    for _ in range(2):
        expect.unrecorded(gw.post("k"), 502)
        gw.store.wait_state("k", "failed")
    assert gw.upstream.total == 0


def test_upstream_that_cannot_be_resolved(gateway):
    """No byte was sent: released."""
    gw = gateway(guard="once on; once_scope none; once_recover hold; resolver 127.0.0.1:1 valid=1s; resolver_timeout 300ms;"
                 "proxy_pass http://$http_x_to;")
    assert gw.post("k", headers=[("X-To", "no.such.host.invalid")]).status == 502
    gw.store.wait_state("k", "failed")
    original = expect.first(gw.post("k", headers=[("X-To", gw.upstream.name)]))
    expect.replay(gw.post("k", headers=[("X-To", gw.upstream.name)]), original)
    assert gw.upstream.count("k") == 1


def test_no_live_upstreams(gateway):
    gw = gateway("once_recover hold;", http="upstream dead { server 127.0.0.1:1 down; }",
                 guard="once on; once_scope none; proxy_pass http://dead;")
    assert gw.post("k").status == 502
    gw.store.wait_state("k", "failed")
    assert gw.upstream.total == 0


def test_response_before_the_request_was_read(gateway):
    """The backend answers early and closes: its answer counts, as nginx takes it."""
    gw, gate = gateway("client_max_body_size 0; once_recover hold;"), Gate()

    def early(request, sock):
        gw.upstream.on_head = None
        sock.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge")
        gate.open()
        while sock.recv(65536):
            pass
        return True

    gw.upstream.on_head = early
    original = gw.post("k", b"x" * 2_000_000)
    if original.status == 413:
        expect.replay(gw.post("k", b"x" * 2_000_000), expect.first(original, 413))
    else:
        assert original.status == 502
        gw.store.wait_state("k", "unknown")
    assert gw.upstream.total == 0
