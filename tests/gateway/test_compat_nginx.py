"""Beside everything else that nginx does with a response: filters, redirects, mirrors, caches."""
import gzip
import itertools
import os

import pytest

from harness import expect
from harness.gateway import GUARD
from harness.upstream import answer
from harness.wait import until


# -------------------------------------------------------------------------------------------------------------- filters

GZIP = "gzip on; gzip_types application/json text/plain; gzip_min_length 1; gzip_http_version 1.0;"


def test_gzip(gateway):
    """The stored answer is the backend's; it is compressed again for clients that accept that."""
    gw, body = gateway(GZIP), b'{"text":"%s"}' % (b"compressible " * 500)
    gw.upstream.default = answer(200, body=body)
    accept = [("Accept-Encoding", "gzip")]
    original = gw.post("k", headers=accept)
    assert original.header("Content-Encoding") == "gzip" and gzip.decompress(original.body) == body
    replayed = gw.post("k", headers=accept)
    assert replayed.header("Content-Encoding") == "gzip" and gzip.decompress(replayed.body) == body
    assert replayed.header("Idempotent-Replayed") == "true"
    plain = gw.post("k")
    assert "Content-Encoding" not in plain.headers and plain.body == body
    assert gw.upstream.count("k") == 1


def test_response_that_the_backend_compressed(gateway):
    """It is stored and sent as it is, and not compressed once more."""
    gw, packed = gateway(GZIP), gzip.compress(b"text " * 1000, mtime=0)
    gw.upstream.default = answer(200, [("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")], packed)
    original = expect.first(gw.post("k", headers=[("Accept-Encoding", "gzip")]), 200)
    assert original.body == packed
    replayed = gw.post("k", headers=[("Accept-Encoding", "gzip")])
    assert replayed.body == packed and replayed.headers.all("Content-Encoding") == ["gzip"]
    assert gw.upstream.count("k") == 1


def test_gunzip(gateway):
    gw, packed = gateway("gunzip on;"), gzip.compress(b"text " * 1000)
    gw.upstream.default = answer(200, [("Content-Encoding", "gzip")], packed)
    assert gw.post("k").body == b"text " * 1000
    replayed = gw.post("k")
    assert replayed.body == b"text " * 1000 and "Content-Encoding" not in replayed.headers
    assert gw.upstream.count("k") == 1


def test_add_header(gateway):
    gw = gateway("add_header X-After $once_outcome always; add_header X-Key $once_key always;")
    original = gw.post("k")
    assert original.headers.all("X-After") == ["run"] and original.headers.all("X-Key") == ["k"]
    replayed = gw.post("k")
    assert replayed.headers.all("X-After") == ["replay"]
    assert gw.post("k", b"other").headers.all("X-After") == ["mismatch"]
    assert gw.post().headers.all("X-After") == ["missing"]
    assert gw.upstream.count("k") == 1


def test_sub_filter_and_charset(gateway):
    gw = gateway("sub_filter_types *; sub_filter_once off; sub_filter before after; charset utf-8; charset_types text/plain;")
    gw.upstream.default = answer(200, [("Content-Type", "text/plain")], b"before before")
    original = gw.post("k")
    assert original.body == b"after after" and original.header("Content-Type") == "text/plain; charset=utf-8"
    replayed = gw.post("k")
    assert replayed.body == b"after after" and replayed.header("Content-Type") == "text/plain; charset=utf-8"
    assert gw.upstream.count("k") == 1


def test_ssi(gateway, backend):
    other = backend()
    other.default = answer(200, body=b"included")
    gw = gateway(locations="location / { %s ssi on; ssi_types *; } location /part { proxy_pass http://%s; }" % (GUARD, other.name))
    gw.upstream.default = answer(200, [("Content-Type", "text/html")], b'<!--#include virtual="/part" --> and more')
    for _ in range(2):
        assert gw.post("k").body == b"included and more"
    assert gw.upstream.count("k") == 1


# ------------------------------------------------------------------------------------------------- internal redirects

def test_error_page_for_a_failed_upstream(gateway):
    gw = gateway("error_page 502 504 /sorry; once_recover hold;", server="location = /sorry { internal; return 502 'sorry'; }")
    gw.upstream.then(lambda exchange: exchange.reset())
    response = gw.post("k")
    assert (response.status, response.body) == (502, b"sorry")
    gw.store.wait_state("k", "unknown")
    response = gw.post("k")
    assert response.status == 409
    assert gw.upstream.count("k") == 1


def test_error_page_with_another_status(gateway):
    """Another handler answers 200; that is not what the operation answered."""
    gw = gateway("error_page 502 =200 /sorry; once_recover hold;", server="location = /sorry { internal; return 200 'fine'; }")
    gw.upstream.then(lambda exchange: exchange.reset())
    assert gw.post("k").body == b"fine"
    gw.store.wait_state("k", "unknown")
    assert gw.post("k").status == 409
    assert gw.upstream.count("k") == 1


@pytest.mark.parametrize("recover", ["retry", "hold"])
def test_intercepted_error(gateway, recover):
    """The backend's 404 is an answer, although the page is nginx's."""
    gw = gateway(f"proxy_intercept_errors on; error_page 404 /nothing; once_recover {recover};",
                 server="location = /nothing { internal; return 404 'nothing here'; }")
    gw.upstream.default = answer(404, body=b"of the backend")
    original = gw.post("k")
    assert (original.status, original.body) == (404, b"nothing here")
    gw.store.wait_state("k", "completed")
    replayed = gw.post("k")
    assert replayed.status == 404
    assert gw.upstream.count("k") == 1


def test_intercepted_500_under_hold(gateway):
    gw = gateway("proxy_intercept_errors on; error_page 500 @fallback; once_recover hold;",
                 server="location @fallback { return 200 'all is well'; }")
    gw.upstream.default = answer(500)
    assert gw.post("k").body == b"all is well"
    gw.store.wait_state("k", "unknown")
    assert gw.post("k").status == 409
    assert gw.upstream.count("k") == 1


def test_fallback_to_another_backend(gateway, backend):
    """A second backend is a second execution: where bytes were sent to the first, nothing is known."""
    other = backend()
    gw = gateway("error_page 502 @other; once_recover hold;", server="location @other { proxy_pass http://%s; }" % other.name)
    gw.upstream.then(lambda exchange: exchange.reset())
    gw.post("k")
    response = gw.post("k")
    assert response.status in (409, 201), response
    assert gw.upstream.count("k") == 1 and other.total <= 1


def test_error_page_for_our_own_answers(gateway):
    """The operator's page takes the place of our problem; nothing else changes."""
    gw = gateway("error_page 400 /own;", server="location = /own { internal; return 400 'own words'; }")
    response = gw.post()
    assert response.status == 400
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)
    assert gw.upstream.total == 1


def test_named_location(gateway):
    gw = gateway(locations="location / { once on; once_scope none; try_files /nothing @app; }"
                           "location @app { proxy_pass http://backend; }")
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)
    expect.problem(gw.post("k", b"other"), "key-reused")
    assert gw.upstream.count("k") == 1


def test_named_location_that_is_guarded_too(gateway):
    gw = gateway(server="once on; once_scope none;",
                 locations="location / { try_files /nothing @app; } location @app { proxy_pass http://backend; }")
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 1


def test_rewrite_into_a_guarded_location(gateway):
    gw = gateway(locations="location /old { rewrite ^/old(.*) /new$1 last; } location /new { %s }" % GUARD)
    original = expect.first(gw.post("k", target="/old/1"))
    assert gw.upstream.last().target == "/new/1"
    expect.replay(gw.post("k", target="/old/1"), original)
    assert gw.upstream.count("k") == 1


def test_x_accel_redirect(gateway, directory):
    """The backend has done it, and lets nginx send the file."""
    with open(f"{directory}/receipt.txt", "wb") as file:
        file.write(b"receipt " * 1000)
    gw = gateway("once_store_body 64k;", server="location /files/ { internal; alias %s/; sendfile on; }" % directory)
    gw.upstream.default = answer(200, [("X-Accel-Redirect", "/files/receipt.txt"), ("X-Own", "1")], b"")
    original = gw.post("k")
    assert (original.status, original.body) == (200, b"receipt " * 1000)
    replayed = gw.post("k")
    assert (replayed.status, replayed.body) == (200, b"receipt " * 1000)
    assert replayed.header("Idempotent-Replayed") == "true"
    assert gw.upstream.count("k") == 1


@pytest.mark.parametrize("header, value", [("If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT"), ("If-None-Match", "*"),
                                           ("If-Match", '"other"'), ("If-Unmodified-Since", "Sun, 06 Nov 1994 08:49:36 GMT")])
def test_conditions_do_not_change_what_is_recorded(gateway, directory, header, value):
    """nginx would judge them by the file that it sends; the backend sees them."""
    with open(f"{directory}/receipt.txt", "wb") as file:
        file.write(b"receipt")
    os.utime(f"{directory}/receipt.txt", (784111777, 784111777))
    gw = gateway(server="location /files/ { internal; alias %s/; }" % directory)
    gw.upstream.default = answer(200, [("X-Accel-Redirect", "/files/receipt.txt")], b"")
    original = expect.first(gw.post("k", headers=[(header, value)]), 200)
    assert original.body == b"receipt" and gw.upstream.last().headers.get(header) == value
    expect.replay(gw.post("k", headers=[(header, value)]), original)
    assert gw.upstream.count("k") == 1


def test_x_accel_redirect_to_a_named_location(gateway, backend):
    other = backend()
    other.default = answer(200, body=b"from elsewhere")
    gw = gateway(server="location @else { proxy_pass http://%s; proxy_method GET; }" % other.name)
    gw.upstream.default = answer(200, [("X-Accel-Redirect", "@else")], b"")
    assert gw.post("k").body == b"from elsewhere"
    replayed = gw.post("k")
    assert replayed.body == b"from elsewhere" and replayed.header("Idempotent-Replayed") == "true"
    assert gw.upstream.count("k") == 1 and other.total == 1


def test_mirror(gateway, backend):
    """The copy goes out with what runs, not with what is replayed; its answer is dropped."""
    copy = backend()
    copy.default = answer(500)
    gw = gateway("mirror /mirror;", server="location = /mirror { internal; proxy_pass http://%s$request_uri; }" % copy.name)
    original = expect.first(gw.post("k"))
    expect.replay(gw.post("k"), original)
    copy.wait_total(1)
    assert copy.total == 1 and copy.last().body == b'{"amount":1}'
    assert gw.upstream.count("k") == 1


def test_mirror_into_a_guarded_location(gateway):
    """A subrequest is not a caller: it is not guarded, and does not disturb the one that is."""
    gw = gateway("mirror /mirror;", server="location = /mirror { internal; %s }" % GUARD)
    original = expect.first(gw.post("k"))
    gw.upstream.wait_total(2)
    expect.replay(gw.post("k"), original)
    assert gw.upstream.total == 2


def test_proxy_cache(gateway):
    gw = gateway("proxy_cache cache; proxy_cache_valid any 10m; add_header X-Cache $upstream_cache_status;",
                 http="proxy_cache_path @directory@/cache keys_zone=cache:1m;")
    for status in ("MISS", "HIT"):
        assert gw.request("GET", "/c").header("X-Cache") == status
    assert gw.upstream.total == 1
    one, two = expect.first(gw.post("k1")), expect.first(gw.post("k2"))
    assert one.body != two.body
    expect.replay(gw.post("k1"), one)
    assert gw.upstream.count("k1") == 1 and gw.upstream.count("k2") == 1


def test_cache_that_is_updated_in_the_background(gateway):
    """nginx clones the request for that, with the handler that it has at that moment; an `if` leaves the clone no other."""
    gw = gateway("if ($request_method = POST) { set $any 1; } proxy_cache cache; proxy_cache_methods POST; proxy_cache_key one;"
                 "proxy_cache_use_stale updating; proxy_cache_background_update on; add_header X-Cache $upstream_cache_status;",
                 http="proxy_cache_path @directory@/cache keys_zone=cache:1m;")
    gw.upstream.default = answer(200, [("Cache-Control", "max-age=1, stale-while-revalidate=60")])
    keys = itertools.count()
    assert gw.post("k").header("X-Cache") == "MISS"
    until(lambda: gw.post(f"k{next(keys)}").header("X-Cache") == "STALE", "what is cached being stale")
    gw.upstream.wait_total(2)
    assert not gw.nginx.log.find("exited on signal")


# ----------------------------------------------------------------------------------------------------------- methods

def test_guarded_methods_stay_what_they_are(gateway):
    """For limit_except, conditions, the log and the backend a guarded PUT is a PUT."""
    gw = gateway("once_methods POST PUT DELETE; limit_except PUT DELETE { deny all; } add_header X-Method $request_method;"
                 "if ($request_method = LOCK) { return 500; }")
    for method in ("PUT", "DELETE"):
        original = expect.first(gw.request(method, "/", method, b"a"))
        assert original.header("X-Method") == method and gw.upstream.last().method == method
        replayed = expect.replay(gw.request(method, "/", method, b"a"), original)
        assert replayed.header("X-Method") == method
    assert gw.request("POST", "/", "k", b"a").status == 403
    assert gw.upstream.total == 2


def test_proxy_method(gateway):
    gw = gateway("proxy_method PATCH;")
    original = expect.first(gw.post("k"))
    assert gw.upstream.last().method == "PATCH"
    expect.replay(gw.post("k"), original)
    assert gw.upstream.count("k") == 1
