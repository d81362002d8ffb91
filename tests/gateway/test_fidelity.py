"""What clients get: the first response of a guarded request, its replay, and what nginx sends without the module, compared header
by header and byte by byte through what nginx does to responses. They differ where docs/gateway.md says so, and nowhere else."""
import email.utils
import gzip
import re
import time

import pytest

from harness.gateway import LUA, LUA_HTTP
from harness.upstream import answer

# ------------------------------------------------------------------------------------------------------- what is compared

TEXT = ("first line\nsecond line <!--# echo var=\"host\" --> end\n" * 40).encode()
CYRILLIC = "Оплата принята\n".encode("cp1251") * 30
DATED = [("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT"), ("ETag", '"e"')]
# What a backend may answer: status, headers, body, framing.
ANSWERS = {
    "plain": (200, [("Content-Type", "text/plain")], TEXT),
    "html": (200, [("Content-Type", "text/html")], TEXT),
    "dated": (200, [("Content-Type", "text/html"), *DATED, ("Accept-Ranges", "bytes")], TEXT),
    "utf8": (200, [("Content-Type", "text/html; charset=utf-8")], "Оплата\n".encode() * 50),
    "cp1251": (200, [("Content-Type", "text/html;charset=windows-1251")], CYRILLIC),
    "quoted": (200, [("Content-Type", 'text/html; charset="windows-1251"')], CYRILLIC),
    "params": (200, [("Content-Type", "multipart/mixed; boundary=x; charset=windows-1251")], CYRILLIC),
    "boundary": (200, [("Content-Type", "multipart/mixed; boundary=x")], TEXT),
    "json": (201, [("Content-Type", "application/json"), ("Location", "/orders/1")], b'{"id":1}'),
    "away": (302, [("Content-Type", "text/html"), ("Location", "https://elsewhere.example/x")], b"moved"),
    "home": (303, [("Content-Type", "text/html"), ("Location", "http://backend/orders/2")], b"moved"),
    "beside": (303, [("Content-Type", "text/html"), ("Location", "orders/3"), ("Refresh", "1; url=http://backend/r")], b"moved"),
    "cache": (200, [("Content-Type", "text/html"), *DATED, ("Cache-Control", "no-store"), ("Cache-Control", "private"),
                    ("Expires", "Thu, 01 Jan 1970 00:00:01 GMT")], TEXT),
    "many": (200, [("Content-Type", "text/html"), ("Link", "</a>; rel=preload"), ("Link", "</b>; rel=preload"), ("Vary", "Accept"),
                   ("Vary", "Cookie"), ("X-Own", "1"), ("X-Own", "2"), ("WWW-Authenticate", "Basic")], TEXT),
    "gzipped": (200, [("Content-Type", "text/html"), ("Content-Encoding", "gzip"), *DATED], gzip.compress(TEXT, mtime=0)),
    "part": (206, [("Content-Type", "text/plain"), ("Content-Range", "bytes 0-9/100"), *DATED], b"0123456789"),
    "missing": (404, [("Content-Type", "text/html"), *DATED], b"not here"),
    "conflict": (409, [("Content-Type", "application/problem+json")], b'{"type":"about:blank"}'),
    "nothing": (204, [("ETag", '"e"'), ("X-Own", "1")], b""),
    "untyped": (204, [("Content-Type", "text/html"), *DATED], b""),
    "unchanged": (304, DATED, b""),
    "accel": (200, [("Content-Type", "text/html"), ("X-Accel-Charset", "koi8-r")], CYRILLIC),
    "empty": (200, [("Content-Type", "text/html")], b""),
}

# What nginx may do to it.
FILTERS = {
    "none": "",
    "charset": "charset utf-8;",
    "charset_types": "charset koi8-r; source_charset windows-1251; charset_types *;",
    "override_charset": "charset utf-8; source_charset koi8-r; override_charset on; charset_types *;",
    "gzip": "gzip on; gzip_http_version 1.0; gzip_min_length 0; gzip_types *; gzip_vary on;",
    "gunzip": "gunzip on;",
    "ssi": "ssi on; ssi_types *;",
    "ssi_modified": "ssi on; ssi_last_modified on;",
    "sub": "sub_filter second other; sub_filter_once off; sub_filter_types *;",
    "sub_modified": "sub_filter second other; sub_filter_last_modified on;",
    "addition": "add_before_body /page; add_after_body /page; addition_types *;",
    "expires": "expires 1h;",
    "expires_modified": "expires modified 1h;",
    "expires_epoch": "expires epoch;",
    "add_header": "add_header Cache-Control public; add_header X-Own 3 always; add_header Vary Origin;",
    "add_nothing": "add_header Last-Modified '';",
    "add_trailer": "add_trailer X-Sum 1 always;",
    "ranges": "proxy_force_ranges on;",
    "redirect": "proxy_redirect http://backend/ /shop/; proxy_redirect ~^/orders /bills;",
    "redirect_off": "proxy_redirect off;",
    "relative": "proxy_redirect http://backend/ /shop/; absolute_redirect off;",
    "portless": "proxy_redirect http://backend/ /shop/; port_in_redirect off; server_name_in_redirect on;",
    "cookies": "proxy_cookie_domain a b; proxy_hide_header X-Own;",
    "etag": "etag off; if_modified_since before;",
    "userid": "userid log;",
    "unbuffered": "proxy_buffering off;",
    "all": "charset utf-8; gzip on; gzip_min_length 0; ssi on; sub_filter line row; expires 1h; add_header X-Own 3;",
}

# Ranges of a guarded response are not served: it does not say that they were.
HIDDEN = {"ranges": ["accept-ranges"]}

# What a client may ask for besides.
ASKS = [[], [("Accept-Encoding", "gzip")], [("Range", "bytes=3-7")], [("If-None-Match", '"e"')]]

HTTP = """
    keepalive_requests 100000;
    charset_map windows-1251 utf-8 { %s }
    charset_map windows-1251 koi8-r { CE EF; EF EF; }
    charset_map koi8-r utf-8 { EF D09F; }
""" % " ".join(f"{code:02X} {bytes([code]).decode('cp1251').encode().hex()};" for code in range(0xC0, 0x100))

LOCATIONS = "location = /page { proxy_pass http://backend/page/plain; proxy_method GET; }" + "".join(
    "location /%s/ { once on; once_scope none; once_store_no_store on; proxy_pass http://backend/; %s }" % pair
    for pair in FILTERS.items())


def bare(gw):
    """The same configuration without the module, for an nginx that does not have it."""
    text = re.sub(r"load_module \S*/ngx_http_once_module.so;", "", gw.configuration())
    return re.sub(r"\bonce(_\w+)? [^;{}]*;", "", text)


@pytest.fixture
def both(gateway, prepare):
    """A gateway, and an nginx that has the same configuration and no module."""
    def start(**parts):
        guarded = gateway(**parts)
        plain = prepare(upstream=guarded.upstream, **parts)
        plain.nginx.write(bare(plain))
        return guarded, plain.start()
    return start


def timeless(name, value):
    """`expires 1h` says when that is."""
    if name.lower() == "expires" and abs(email.utils.parsedate_to_datetime(value).timestamp() - time.time() - 3600) < 60:
        return name, "in an hour"
    return name, value


def shown(response, port, also=()):
    """What a client can tell responses apart by. Not: the time, the framing, and what the gateway adds."""
    own = {"date", "idempotency-expires", "idempotent-replayed", "connection", "content-length", "transfer-encoding", *also}
    fields = sorted(timeless(name, value.replace(f":{port}", ":PORT")) for name, value in response.headers
                    if name.lower() not in own)
    body = response.body
    if body.startswith(b"\x1f\x8b"):  # how it is packed depends on what was known of its length
        body = gzip.decompress(body)
    return response.status, fields, body, list(response.trailers)


class Comparison:
    def __init__(self, both, **parts):
        self.guarded, self.plain = both(**parts)
        self.clients = {"h1": (self.guarded.connect(), self.plain.connect()),
                        "h2": (self.guarded.connect2(), self.plain.connect2())}
        self.differences, self.count = [], 0

    def look(self, target, headers=(), hidden=(), body=b"a", protocol="h1"):
        """Asks three times. `hidden`: headers that are not compared."""
        self.count += 1
        guarded, plain = self.clients[protocol]
        first, replay = (guarded.request("POST", target, f"k{self.count}", body, headers) for _ in range(2))
        without = plain.request("POST", target, f"k{self.count}", body, headers)
        assert replay.header("Idempotent-Replayed") == "true", (target, first, replay)
        port = {"h1": lambda gw: gw.port, "h2": lambda gw: gw.port2}[protocol]
        first, replay = (shown(response, port(self.guarded), hidden) for response in (first, replay))
        for name, other in (("bare", shown(without, port(self.plain), hidden)), ("replay", replay)):
            if first != other:
                self.differences.append((f"{protocol} {target}", headers, "first", first, name, other))

    def close(self):
        for guarded, plain in self.clients.values():
            guarded.close()
            plain.close()
        text = "".join("\n%s %s\n  %-6s %.400s\n  %-6s %.400s" % difference for difference in self.differences[:20])
        if self.differences:
            pytest.fail(f"{len(self.differences)} of {self.count} differ:{text}", pytrace=False)


# ------------------------------------------------------------------------------------------------------------------ tests

def test_filters(both):
    """Every filter, every answer: three ways, one response."""
    comparison = Comparison(both, http=HTTP, locations=LOCATIONS, server="server_name shop.example;")

    def script(exchange):
        exchange.respond(*ANSWERS[exchange.request.path.rpartition("/")[2]])

    comparison.guarded.upstream.default = script
    for name in FILTERS:
        for kind in ANSWERS:
            comparison.look(f"/{name}/{kind}", ASKS[1] if "gzip" in FILTERS[name] else ASKS[0], HIDDEN.get(name, ()))
    for kind in ANSWERS:
        for ask in ASKS:
            comparison.look(f"/none/{kind}", ask)
            comparison.look(f"/all/{kind}", ask, protocol="h2")
    comparison.close()


@pytest.mark.parametrize("place", ["before", "main"])
def test_filters_of_other_modules(both, place):
    """What is recorded is the backend's response, whether those modules are loaded ahead of this one or behind it."""
    comparison = Comparison(both, **{place: LUA}, http=LUA_HTTP, locations="""
        location /lua { once on; once_scope none; proxy_pass http://backend; expires 1h;
            header_filter_by_lua_block { ngx.header.content_length = nil; ngx.header.x_own = (ngx.header.x_own or "") .. "+" }
            body_filter_by_lua_block { ngx.arg[1] = ngx.arg[1]:gsub("line", "lineline") } }
        location /type { once on; once_scope none; proxy_pass http://backend; charset utf-8;
            header_filter_by_lua_block { ngx.header.content_type = "text/plain; charset=koi8-r" } }""")
    comparison.guarded.upstream.default = answer(200, [("Content-Type", "text/html"), ("X-Own", "1")], TEXT)
    for target in ("/lua", "/type"):
        comparison.look(target)
        comparison.look(target, protocol="h2")
    comparison.close()


def test_parts_that_forward_the_request_body(both):
    """SSI and additions ask for more when the response is sent. The request's body is still there, also in a temporary file."""
    comparison = Comparison(both, locations="""
        location /part { proxy_pass http://backend; }
        location /ssi { once on; once_scope none; ssi on; proxy_pass http://backend; }
        location /addition { once on; once_scope none; addition_types *; add_after_body /part; proxy_pass http://backend; }""")
    upstream, body = comparison.guarded.upstream, b"b" * 100_000
    upstream.on("/part", lambda exchange: exchange.respond(200, body=b"%d bytes" % len(exchange.request.body)))
    upstream.on("/ssi", answer(200, [("Content-Type", "text/html")], b'<!--# include virtual="/part" -->'))
    upstream.on("/addition", answer(200, [("Content-Type", "text/html")], b""))
    for target in ("/ssi", "/addition"):
        comparison.look(target, body=body)
    comparison.close()
    assert [len(request.body) for request in upstream.requests] == [100_000] * 10
