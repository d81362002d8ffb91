"""Requests and responses as records see them, the key of a request, and the errors that a client gets."""
from __future__ import annotations

import datetime
import decimal
import json
import re
import uuid
from email.utils import formatdate
from typing import Any, Iterable, List, Optional, Tuple
from urllib.parse import quote

Headers = List[Tuple[str, str]]
CLAIM = re.compile(r"[A-Za-z0-9_-]{70}")
SAFE = "/:@!$&'()*+,;=~"  # what a path may have as it is (RFC 3986): most clients do not encode it
# Of the connection or of the moment, or made anew by every server: not part of a record.
NOT_RECORDED = frozenset(("connection", "keep-alive", "proxy-authenticate", "proxy-connection", "te", "trailer",
                          "transfer-encoding", "upgrade", "content-length", "date", "server", "set-cookie"))
# Sent before any effect: the gate and `once serve` leave the key free.
EARLY = frozenset((401, 403, 407, 421, 425, 429))

PROBLEMS = {  # the same as the gateway's: nginx/ngx_http_once_problem.c
    "key-missing": (400, False, "invalid_request_error", "Idempotency key is missing",
                    "This operation needs an idempotency key in the header Idempotency-Key. Send a new, unique key with each new "
                    "operation, and the same key with each retry of it."),
    "key-invalid": (400, False, "invalid_request_error", "Idempotency key is invalid",
                    "A key is 1 to 255 visible ASCII characters, sent once."),
    "scope-missing": (400, False, "invalid_request_error", "Caller is not known",
                      "Idempotency keys belong to a caller, and this request does not say whose it is."),
    "in-flight": (409, True, "idempotency_error", "A request with this idempotency key is in progress",
                  "Send the same request again later to get its response."),
    "outcome-unknown": (409, False, "idempotency_error", "The outcome of this operation is not known",
                        "An earlier request with this key may have taken effect. It is not run again until its outcome has been "
                        "settled."),
    "key-reused": (422, False, "idempotency_error", "Idempotency key was used for another request",
                   "The first request with this key was different. Send a new key with a new operation."),
    "store-unavailable": (503, True, "api_error", "Idempotency records are not available",
                          "Send the same request with the same key again later."),
}
# What is wrong with a header, by the first pattern that matches; then with the key in it. Rules and texts are lib/core/key.c's.
QUOTED = r'"(?:[^"\\]|\\["\\])*'
WRONG_HEADER = (
    (QUOTED + r'\\(?!["\\])', 'the key has a backslash that escapes nothing; inside quotes only \\" and \\\\ are escapes'),
    (QUOTED + r"\Z", "the key's closing quote is missing; add it"),
    (QUOTED + r'"[ \t]*,', "the key header has several keys, separated by commas; send exactly one"),
    (QUOTED + r'"[ \t]*;', "the key has parameters after its closing quote; send the key alone"),
    (QUOTED + r'".', 'there is text after the key\'s closing quote; write a quote inside a key as \\"'),
    (r'(?!").*,', "the key has a comma, as if several were joined; send exactly one, in double quotes if the comma belongs to it"),
)
WRONG_KEY = (
    (r"\Z", "the key is empty; send 1 to 255 characters"),
    (r".*[^\x00-\x7f]", "the key has a byte that is not ASCII; use visible ASCII characters only"),
    (r".*[\x00-\x1f\x7f]", "the key has a control character; use visible ASCII characters only"),
    (r".{256}", "the key is longer than 255 bytes; send a shorter one"),
)


def plain(value: object) -> object:
    """For json.dumps: what business data is made of besides JSON's own types."""
    if isinstance(value, (decimal.Decimal, uuid.UUID)):
        return str(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not JSON; convert it first")


def to_json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=plain).encode("utf-8")


def to_bytes(value: object) -> bytes:
    """Bytes and text as they are, everything else as JSON."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    return value.encode("utf-8") if isinstance(value, str) else to_json(value)


def header_text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")


class Response:
    """What is recorded and sent: a status, headers in their order, and a body of bytes."""

    def __init__(self, status: int, headers: Iterable[Tuple[str, str]] = (), body: bytes = b"") -> None:
        self.status, self.headers, self.body = status, list(headers), body

    @classmethod
    def json(cls, value: object, status: int = 200, headers: Iterable[Tuple[str, str]] = ()) -> "Response":
        return cls(status, [("Content-Type", "application/json"), *headers], to_json(value))

    @property
    def recorded_headers(self) -> Headers:
        return [(name, value) for name, value in self.headers if name.lower() not in NOT_RECORDED]

    @property
    def is_final(self) -> bool:
        """Whether it answers the key for good. Everything else rolls back and leaves the key free."""
        return 200 <= self.status < 500 and self.status not in EARLY and self.status != 408

    @property
    def sent_headers(self) -> List[Tuple[bytes, bytes]]:
        """In bytes, with the length of the body."""
        fields = [(name.encode("ascii"), value.encode("utf-8")) for name, value in self.headers if name.lower() != "content-length"]
        length = [] if self.status in (204, 304) else [(b"Content-Length", str(len(self.body)).encode("ascii"))]
        return fields + length


def expires(at: float) -> Tuple[str, str]:
    return "Idempotency-Expires", formatdate(at, usegmt=True)


class Answered(Exception):
    """There is nothing to run: `response` is what the client gets (a replay, or an error of the contract)."""

    def __init__(self, response: Response) -> None:
        super().__init__(f"answered with {response.status}")
        self.response = response


class Release(Answered):
    """A handler raises it when nothing was done: the key is free, and the client gets `response`, by default a 503."""

    def __init__(self, response: Optional[Response] = None) -> None:
        told = {"error": "nothing was done; send the same request again later"}
        made = response or Response.json(told, 503, [("Retry-After", "1")])
        super().__init__(Response(made.status, made.headers, made.body))


def problem(name: str, detail: str = "", retry_after: Optional[float] = None) -> Answered:
    status, retryable, kind, title, usual = PROBLEMS[name]
    detail = detail or usual
    body = {"type": f"urn:once:problem:{name}", "title": title, "status": status, "detail": detail, "retryable": retryable,
            "error": {"type": kind, "code": name, "message": detail}}
    headers = [("Content-Type", "application/problem+json"), ("Content-Language", "en"), ("Cache-Control", "no-store")]
    if retry_after is not None:
        headers.append(("Retry-After", str(max(1, -int(-retry_after // 1)))))
    return Answered(Response(status, headers, to_json(body)))


def parse_key(values: List[str]) -> str:
    """The key of a request, from all its Idempotency-Key headers: `"k"` and `k` are the same."""
    if not values:
        raise problem("key-missing")
    if len(values) > 1:
        raise problem("key-invalid", f"the key header was sent {len(values)} times; send it once")
    header = values[0].strip(" \t")
    key = re.sub(r"\\(.)", r"\1", header[1:-1]) if header[:1] == '"' else header
    for text, rules in ((header, WRONG_HEADER), (key, WRONG_KEY)):
        for pattern, detail in rules:
            if re.match(pattern, text, re.DOTALL):
                raise problem("key-invalid", detail)
    return key


def target_of(path: str, query: str) -> str:
    return path + ("?" + query if query else "")


class Request:
    """What tells one operation from another. `Request.of` makes one of a framework's request."""

    def __init__(self, method: str, target: str, headers: Iterable[Tuple[str, str]] = (), body: bytes = b"",
                 native: Any = None) -> None:
        self.method, self.target, self.headers, self.body, self.native = method, target, list(headers), body, native

    def all(self, name: str) -> List[str]:
        return [value for field, value in self.headers if field.lower() == name.lower()]

    @property
    def key(self) -> str:
        return parse_key(self.all("Idempotency-Key"))

    @property
    def claim(self) -> Optional[str]:
        """From the gate. Without one the application claims by itself."""
        values = self.all("Once-Claim")
        if values and not (len(values) == 1 and CLAIM.fullmatch(values[0])):
            raise problem("key-invalid", "the header Once-Claim is not a claim; only once gate may send it")
        return values[0] if values else None

    @classmethod
    def of(cls, request: Any) -> "Request":
        if isinstance(request, cls):
            return request
        if isinstance(request, dict):  # WSGI
            environ, body = request, request.get("once.body")
        elif hasattr(request, "META"):  # Django
            environ, body = request.META, request.body
        elif hasattr(request, "environ"):  # Flask
            environ, body = request.environ, request.get_data()
            if not body and (request.content_length or request.form or request.files):
                raise RuntimeError("the body of the request was read before once.idempotent, as a form for instance, and its "
                                   "bytes are gone: call request.get_data() before that")
        elif hasattr(request, "scope"):  # Starlette, after `await request.body()`
            return cls.of_asgi(request.scope, request._body, request)
        else:
            raise TypeError(f"{type(request).__name__} is not a request that once knows; make a once.Request of it")
        if body is not None and len(body) < int(environ.get("CONTENT_LENGTH") or 0):
            raise Answered(Response.json({"error": "the body is shorter than its Content-Length: it was cut off"}, 400))
        headers = [(name[5:].replace("_", "-"), value) for name, value in environ.items() if name.startswith("HTTP_")]
        target = environ.get("RAW_URI") or environ.get("REQUEST_URI") or ""
        if not target.startswith("/"):  # the server does not tell, or it is a proxy's
            path = (environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")).encode("latin-1", "replace")
            target = target_of(quote(path, SAFE), environ.get("QUERY_STRING", ""))
        return cls(environ["REQUEST_METHOD"], target, headers, body or b"", request)

    @classmethod
    def of_asgi(cls, scope: Any, body: bytes = b"", native: Any = None) -> "Request":
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        raw = scope.get("raw_path")
        target = target_of(raw.decode("latin-1") if raw else quote(scope["path"], SAFE),
                           scope.get("query_string", b"").decode("latin-1"))
        return cls(scope["method"], target, headers, body, native or scope)
