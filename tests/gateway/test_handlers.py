"""Locations whose handler forwards nothing: scripts and others that answer by themselves. To the gateway they are the backend."""
import pytest

from harness import expect
from harness.gateway import LUA, LUA_HTTP, load
from harness.upstream import answer, refusing_address, slow
from harness.wait import Gate

GUARD = "once on; once_scope none;"


def lua(name, code, more=""):
    """A guarded location that is a script."""
    return "location /%s { %s %s content_by_lua_block { %s } }" % (name, GUARD, more, code)


# ---------------------------------------------------------------------------------------------------------- they answer

# The count of runs is part of every answer: no two runs answer alike.
ANSWERS = {
    "say": (200, 'ngx.say("run ", run)'),
    "length": (201, 'ngx.status = 201; ngx.header.content_length = 7; ngx.print(string.format("run %03d", run))'),
    "pieces": (200, 'for i = 1, 5 do ngx.say(i, " of run ", run); ngx.flush(true) end'),
    "pause": (200, 'ngx.print("run "); ngx.flush(true); ngx.sleep(0.01); ngx.print(run)'),
    "asked": (200, 'ngx.say(ngx.location.capture("/effect", {method = ngx.HTTP_POST}).body)'),
    "nothing": (204, 'ngx.header.x_run = run; ngx.exit(204)'),
    "missing": (404, 'ngx.status = 404; ngx.say("run ", run); ngx.exit(404)'),
    "elsewhere": (302, 'ngx.redirect("/run/" .. run, 302)'),
    "refused": (422, 'ngx.header.x_run = run; ngx.exit(422)'),
}


def test_scripts_are_answered_and_replayed(gateway):
    count = 'local run = ngx.shared.runs:incr(ngx.var.uri, 1, 0); '
    gw = gateway(http=LUA_HTTP, main=LUA, locations="location /effect { internal; proxy_pass http://backend; }"
                 + "".join(lua(name, count + code) for name, (_, code) in ANSWERS.items()))
    for name, (status, _) in ANSWERS.items():
        for protocol in ("h1", "h2"):
            if (name, protocol) == ("asked", "h2"):
                continue  # which the script module itself refuses
            with gw.connect() if protocol == "h1" else gw.connect2() as client:
                original = expect.first(client.request("POST", f"/{name}", f"{name}-{protocol}", b"a"), status)
                expect.replay(client.request("POST", f"/{name}", f"{name}-{protocol}", b"a"), original)
    assert gw.upstream.total == 1


def test_scripts_with_responses_that_are_not_held(gateway):
    """Recorded without their body, and passed on as they come."""
    gw = gateway(http=LUA_HTTP, main=LUA, locations=lua("large", """
        for i = 1, 200 do ngx.print(string.rep(string.char(65 + i % 26), 1000)); ngx.flush(true) end""", "once_store_body 64k;"))
    original = gw.post("k", target="/large")
    assert original.status == 200
    assert original.body == b"".join(bytes([65 + i % 26]) * 1000 for i in range(1, 201))
    replayed = gw.post("k", target="/large")
    assert (replayed.status, replayed.body, replayed.header("Once-Body")) == (200, b"", "omitted")


def test_scripts_that_go_on_after_their_response(gateway):
    """The client has its answer, recorded, while the script does the rest of its work."""
    gw = gateway(http=LUA_HTTP, main=LUA, locations="location /effect { internal; proxy_pass http://backend; }" + lua("script", """
        ngx.say("done"); ngx.eof(); ngx.location.capture("/effect", {method = ngx.HTTP_POST})"""))
    gate = Gate()
    gw.upstream.then(slow(gate))
    with gw.connect() as client:
        original = expect.first(client.request("POST", "/script", "k", b"a"), 200)
        gate.wait_arrival()
        expect.replay(gw.post("k", b"a", "/script"), original)
        gate.open()
        expect.replay(client.request("POST", "/script", "k", b"a"), original)  # its connection is still in step
    assert (original.body, gw.upstream.count("k")) == (b"done\n", 1)


@pytest.mark.parametrize("rest", ["", 'ngx.print("more"); '], ids=["held", "stream"])
def test_scripts_that_go_on_when_the_store_has_failed(gateway, rest):
    """The client gets another response than the script's; whatever the script still writes is dropped."""
    first, second = Gate(), Gate()
    gw = gateway(http=LUA_HTTP + "once_recover hold; once_store_timeout 1s; once_store_body 4k;", main=LUA, disk=True,
                 locations="location ~ ^/(one|two) { internal; proxy_pass http://backend; }" + lua("script", """
        ngx.location.capture("/one"); ngx.print(string.rep("x", %d)); %s; ngx.location.capture("/two"); %s
        """ % (8192 if rest else 10, "ngx.flush()" if rest else "ngx.eof()", rest)))
    gw.upstream.then(slow(first), slow(second))
    with gw.connect() as client:
        client.start("POST", "/script", "k", b"a")
        first.wait_arrival()
        gw.disk.block()
        first.open()
        expect.problem(client.finish(), "store-unavailable")
        gw.disk.heal()
        second.wait_arrival()
        second.open()
        gw.store.wait_state("k", "completed")
        assert client.request("POST", "/script", "k", b"a").header("Idempotent-Replayed") == "true"
    assert gw.upstream.count("k") == 2


def test_echo(gateway):
    """A handler in C."""
    gw = gateway(main=load("ngx_http_echo_module"), locations="""
        location /echo { %s echo "one"; echo_flush; echo "two"; }
        location /slow { %s echo "one"; echo_sleep 0.01; echo "two"; }""" % (GUARD, GUARD))
    for target in ("/echo", "/slow"):
        with gw.connect() as client:
            original = expect.first(client.request("POST", target, target, b"a"), 200)
            assert original.body == b"one\ntwo\n"
            expect.replay(client.request("POST", target, target, b"a"), original)


def test_subrequests_that_write_into_the_response(gateway):
    """Their bytes would come ahead of the header, which is held. They are not sent, and what was done is unknown."""
    gw = gateway(main=load("ngx_http_echo_module"), http="once_recover hold;", locations="""
        location /part { internal; echo part; }
        location /large { internal; proxy_pass http://backend; }
        location /one { %s echo "one"; echo_location /part; echo "two"; }
        location /more { %s echo_location /large; echo_location /part; echo_sleep 0.01; }
        location /async { %s echo "one"; echo_location_async /large; echo "two"; }""" % (GUARD, GUARD, GUARD))
    gw.upstream.default = answer(200, body=b"l" * 100_000)
    for target in ("/one", "/more"):
        expect.problem(gw.post(f"{target}-1", target=target), "response-incomplete")
        expect.problem(gw.connect2().request("POST", target, f"{target}-2", b"a"), "response-incomplete")
        assert gw.store.state(f"{target}-1") == gw.store.state(f"{target}-2") == "unknown"
    with gw.connect() as client:
        client.start("POST", "/async", "k", b"a")
        assert client.wait_closed() == b""
    gw.store.wait_state("k", "unknown")


# -------------------------------------------------------------------------------------------------------- they have acted

@pytest.fixture
def actor(gateway):
    """A gateway whose scripts ask the backend by themselves, under `hold`."""
    def start(*scripts, **options):
        return gateway(http=LUA_HTTP + "once_recover hold; once_lease 2s;", main=LUA, locations="""
            location /effect { internal; proxy_pass http://backend; proxy_set_header Connection ""; }
            location @app { proxy_pass http://backend; }""" + "".join(scripts), **options)
    return start


CAPTURE = 'local done = ngx.location.capture("/effect", {method = ngx.HTTP_POST}); '
SOCKET = """local sock, host, port = ngx.socket.tcp(), ("@upstream@"):match("(.*):(.*)"); assert(sock:connect(host, tonumber(port)))
    assert(sock:send("POST /effect HTTP/1.0\\r\\nContent-Length: 0\\r\\nIdempotency-Key: " .. ngx.var.http_idempotency_key))
    assert(sock:send("\\r\\n\\r\\n"))
    assert(sock:receive("*l")) """


@pytest.mark.parametrize("end", ["term", "abort"])
@pytest.mark.parametrize("way", [CAPTURE, SOCKET], ids=["subrequest", "socket"])
def test_what_a_script_has_begun_is_not_run_again(actor, way, end):
    """The worker is stopped, or the client leaves, while the script waits for an effect. Nobody knows: it is not given back."""
    gw, gate = actor(lua("script", way + 'ngx.say("done")', "lua_check_client_abort on;")), Gate()
    gw.upstream.then(slow(gate))
    with gw.connect() as client:
        client.start("POST", "/script", "k", b"a")
        gate.wait_arrival()
        if end == "term":
            gw.nginx.term()
            gw.start()
        else:
            client.close()
            gw.store.wait_state("k", "unknown", "failed")
    gate.open()
    expect.problem(gw.post("k", b"a", "/script"), "outcome-unknown")
    assert gw.upstream.count("k") == 1


@pytest.mark.parametrize("status, said, state", [(500, "", "unknown"), (500, "retry", "failed"), (503, "", "unknown"),
                                                  (200, "unknown", "unknown"), (409, "", "completed"), (401, "", "failed")])
def test_scripts_are_judged_as_backends_are(actor, status, said, state):
    """By their status, and by what they say to the gateway."""
    verdict = f'ngx.header["Once-Outcome"] = "{said}"; ' if said else ""
    gw = actor(lua("script", CAPTURE + verdict + f'ngx.status = {status}; ngx.say("said"); ngx.exit({status})'))
    response = gw.post("k", target="/script")
    assert response.status == status and response.body == b"said\n"
    expect.plain(response)
    assert gw.store.state("k") == state
    assert gw.upstream.count("k") == 1


def test_an_error_page_is_not_a_second_backend(actor):
    """The script failed after it had acted: the page that forwards is not followed."""
    pages = "error_page 500 = @app;"
    gw = actor(lua("script", CAPTURE + "ngx.exit(500)", pages),
               lua("recursive", CAPTURE + "ngx.exit(500)", pages + "recursive_error_pages on;"))
    for target in ("/script", "/recursive"):
        assert gw.post(target, target=target).status == 502
        assert gw.upstream.count(target) == 1
        expect.problem(gw.post(target, target=target), "outcome-unknown")


def test_a_script_leads_on(actor, nobody):
    """The script asks for it, so it is followed, whatever it did before; if no server answers there, the outcome is unknown."""
    gw = actor(lua("at-once", 'ngx.exec("@app")'), lua("later", CAPTURE + 'ngx.exec("@app")'), lua("nobody", 'ngx.exec("@nobody")'),
               "location @nobody { proxy_pass http://%s; }" % nobody)
    for target, count in (("/at-once", 1), ("/later", 2)):
        original = expect.first(gw.post(target, target=target))
        expect.replay(gw.post(target, target=target), original)
        assert gw.upstream.count(target) == count
    assert gw.post("k", target="/nobody").status == 502
    assert gw.store.state("k") == "unknown"


@pytest.fixture
def nobody():
    """An address where connections are refused."""
    address, sock = refusing_address()
    yield address
    sock.close()
