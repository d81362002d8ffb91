"""What people and programs see of an error: words, links, pages, and whose page it is."""
import re

import pytest

from harness import environment, expect
from harness.upstream import answer

LOST = "once_lease 500ms; once_recover hold;"


def lost(exchange):
    exchange.reset()


# ------------------------------------------------------------------------------------------------- whose page it is

PAGES = {
    "file": ("error_page 502 /50x.html;", "location = /50x.html { root @directory@; }", 502, b"own words\n"),
    "named": ("error_page 502 @own;", "location @own { return 503 'own words'; }", 502, b"own words"),
    "other status": ("error_page 502 =200 /own;", "location = /own { internal; return 200 'own words'; }", 200, b"own words"),
    "other backend": ("error_page 502 /own;", "location = /own { proxy_pass http://backend; once off; }", 502, b"own words"),
}


@pytest.mark.parametrize("name", PAGES)
def test_operators_error_page_wins(prepare, name):
    rules, server, status, body = PAGES[name]
    gw = prepare(LOST + rules, server=server)
    with open(f"{gw.directory}/50x.html", "w", encoding="ascii") as file:
        file.write("own words\n")
    gw.upstream.on("/own", answer(200, body=b"own words"))
    gw.start()
    gw.upstream.then(lost)
    response = gw.post("k")
    assert (response.status, response.body) == (status, body), response
    gw.store.wait_state("k", "unknown")


@pytest.mark.parametrize("protocol", ["h1", "h2"])
@pytest.mark.parametrize("rules", ["", "error_page 404 /own;", "recursive_error_pages on; error_page 404 /own;"])
def test_without_one_it_is_a_problem(gateway, rules, protocol):
    """Also where there are pages for other errors."""
    gw = gateway(LOST + rules, server="location = /own { return 200 'own words'; }")
    gw.upstream.then(lost)
    client = gw.connect() if protocol == "h1" else gw.connect2()
    expect.problem(client.request("POST", "/", "k", b"a"), "response-lost")
    expect.problem(client.request("POST", "/", "k", b"a"), "outcome-unknown")
    assert gw.upstream.count("k") == 1


def test_second_backend_that_is_not_asked(gateway, backend):
    """What the first one may have done is not repeated by an error page: the problem says so."""
    other = backend()
    gw = gateway(LOST + "error_page 502 = @other;", server="location @other { proxy_pass http://%s; }" % other.name)
    gw.upstream.then(lost)
    gw.nginx.expect("not sent to a second upstream")
    expect.problem(gw.post("k"), "response-lost")
    assert other.total == 0


def test_backends_own_502_is_passed_on(gateway):
    gw = gateway(LOST)
    gw.upstream.then(answer(502, [("Content-Type", "text/html")], b"<p>of the backend"))
    response = gw.post("k")
    assert (response.status, response.body) == (502, b"<p>of the backend")


# ------------------------------------------------------------------------------------------------------------ words

def test_422_has_its_words(gateway):
    """nginx knows none for it; neither in our own answer, nor in a replay."""
    gw = gateway()
    gw.upstream.then(answer(422, body=b"no"))
    expect.first(gw.post("k"), 422)
    again = gw.post("k")
    assert (again.status, again.reason, again.body) == (422, "Unprocessable Content", b"no"), again
    reused = expect.problem(gw.post("k", b"other"), "key-reused")
    assert reused.reason == "Unprocessable Content", reused


@pytest.mark.parametrize("status", [203, 207, 423, 424, 426, 428, 431, 451])
def test_no_status_of_a_replay_is_without_words(gateway, status):
    gw = gateway()
    gw.upstream.then(answer(status))
    expect.first(gw.post("k"), status)
    again = gw.post("k")
    assert again.status == status and again.reason, again


# ------------------------------------------------------------------------------------------------------------- pages

def test_page_of_all_problems(gateway):
    """once_problems: every type is explained under its name, and errors link to it."""
    gw = gateway(server="location = /once/problems { once_problems; }")
    page = gw.request("GET", "/once/problems")
    assert page.status == 200 and page.header("Content-Type") == "text/html; charset=utf-8", page
    for kind in expect.STATUS:
        assert f'<h2 id="{kind}">'.encode() in page.body, kind
    link = expect.problem(gw.post(), "key-missing").header("Link")
    assert link == '</once/problems#key-missing>; rel="describedby"; type="text/html"', link
    assert gw.request("HEAD", "/once/problems").status == 200
    assert gw.post("k", target="/once/problems").status == 405
    assert gw.upstream.total == 0


def test_page_is_not_linked_where_once_docs_says_otherwise(gateway):
    gw = gateway(server="location = /p { once_problems; } location /off { once on; once_scope none; once_docs off; "
                 "proxy_pass http://backend; } location /own { once on; once_scope none; once_docs https://a.example/b#c; "
                 "proxy_pass http://backend; }")
    assert "Link" not in expect.problem(gw.post(target="/off"), "key-missing").headers
    assert "<https://a.example/b#c>;" in expect.problem(gw.post(target="/own"), "key-missing").header("Link")


@pytest.mark.parametrize("place", ["location ~ x { once_problems; }", "location @x { once_problems; }",
                                   "location = /a { once_problems; } location = /b { once_problems; }"])
def test_page_needs_a_path(prepare, place):
    good, said = prepare(server=place).nginx.test()
    assert not good and "once_problems" in said, said


def test_every_problem_is_documented():
    """In the reference, in docs/problems.md under its name, and with the same status."""
    with open(f"{environment.SOURCE}/docs/problems.md", encoding="utf-8") as file:
        explained = re.findall(r"^## ([a-z-]+)$", file.read(), re.MULTILINE)
    assert explained == sorted(expect.STATUS)
    with open(f"{environment.SOURCE}/docs/directives.md", encoding="utf-8") as file:
        rows = re.findall(r"^\| `urn:once:problem:([a-z-]+)` \| (\d+).*? \| (yes|no) \|", file.read(), re.MULTILINE)
    assert {name: (int(status), again == "yes") for name, status, again in rows} == expect.STATUS
