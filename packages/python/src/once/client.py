"""The client's side: a key for each intent, kept over retries, and kept in a journal over restarts where that is asked for.

    httpx.Client(transport=once.client.HTTPXTransport())
    session.mount("https://", once.client.RequestsAdapter())

A POST or PATCH gets an Idempotency-Key unless it has one, and is repeated with it, its bytes unchanged, until the answer says that
repeating is of no use. The answer that comes back is the last one: 409 outcome-unknown and 422 key-reused are for the caller to
read (`problem`). Whatever cannot be sent within the deadline ends as it would without this: with the last answer, or the last
error. A redirect is not followed, whatever the session is set to: it raises `Redirected`.

With a journal and a name (the header Once-Intent, which is not sent) the key is on disk before the first byte is sent, so that a
process that starts again goes on with the same key.
"""
from __future__ import annotations

import dataclasses
import email.utils
import hashlib
import json
import os
import random
import re
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["AsyncHTTPXTransport", "HTTPXTransport", "IntentChanged", "IntentExpired", "Journal", "Redirected", "RequestsAdapter",
           "Retries", "problem"]

KEY, INTENT = "Idempotency-Key", "Once-Intent"
PREFIX = "urn:once:problem:"
MONTH = 30 * 86400.0
OWN = re.compile(r"[0-9a-f]{64}\.(json|.+\.new)")  # what a journal calls its files
REPEATED = (408, 425, 429, 500, 502, 503, 504)


class IntentChanged(Exception):
    """The journal has another request under this name: another method, URL or body."""


class IntentExpired(Exception):
    """The key of this name may be forgotten by now: sending it again could take effect a second time."""


class Redirected(Exception):
    """The answer, in `response`, is a redirect. Sessions follow those: 307 and 308 would send the write, its key and its headers to
    another address; the others would ask that with GET, and its answer would pass for the answer to the write."""

    def __init__(self, response: Any) -> None:
        place = _header(response.headers, "location")
        super().__init__(f"{response.status_code} to {place!r} is not followed: a write is for one URL")
        self.response = response


def problem(status: int, headers: Mapping[str, str], body: bytes) -> str | None:
    """The name of the gateway's problem in an answer, such as outcome-unknown; None: it is none."""
    if status < 400 or not _header(headers, "content-type").startswith("application/problem+json"):
        return None
    try:
        name = json.loads(body)["type"]
    except (ValueError, KeyError, TypeError):
        return None
    return name.removeprefix(PREFIX) if isinstance(name, str) and name.startswith(PREFIX) else None


def _header(headers: Mapping[str, str], name: str) -> str:
    for known, value in headers.items():
        if known.lower() == name:
            return value
    return ""


def _date(text: str) -> float | None:
    """An HTTP date as seconds since 1970."""
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError):
        return None


@dataclasses.dataclass(frozen=True)
class Retries:
    """How long and how often: seconds. The pause is drawn from 0 to base * 2^n, at most cap (full jitter), after what Retry-After
    asks for."""
    deadline: float = 60.0
    base: float = 0.2
    cap: float = 20.0
    methods: tuple[str, ...] = ("POST", "PATCH")
    draw: Callable[[float, float], float] = random.uniform


class Journal:
    """Intents in a directory, a file for each, which processes and threads may share. Nothing of a request is in it but its hash.

    `keep`: how many seconds after its first attempt an intent may be sent again if no answer has said for how long the key is
    remembered. It should not be longer than the API remembers keys.
    """

    def __init__(self, directory: str | os.PathLike[str], keep: float = 24 * 3600) -> None:
        self.directory, self.keep = os.fspath(directory), keep
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        self.forget()

    def path(self, name: str) -> str:
        return os.path.join(self.directory, hashlib.sha256(name.encode()).hexdigest() + ".json")

    def forget(self) -> None:
        """Removes what has been too old to be sent again for a month. Until then its name is not taken for a new intent. Files
        that are not the journal's own are left alone."""
        for entry in os.scandir(self.directory):
            if not OWN.fullmatch(entry.name):
                continue
            try:
                if time.time() - entry.stat().st_mtime < self.keep + MONTH:
                    continue
                with open(entry.path, encoding="utf-8") as file:
                    expires = json.load(file)["expires"] or 0.0
                if time.time() - expires > MONTH:
                    os.unlink(entry.path)
            except FileNotFoundError:
                pass  # by another process
            except ValueError:
                os.unlink(entry.path)  # begun by a process that was killed

    def key(self, name: str, request: str, key: str) -> str:
        """The key of this name, which is `key` if there was none; on disk when this returns."""
        made = {"version": 1, "request": request, "key": key, "created": time.time(), "expires": None}
        found = self._put(name, made, replace=False)
        if found["request"] != request:
            raise IntentChanged(f"{name!r} is another request in the journal: use another name for another intent")
        if time.time() > (found["expires"] or found["created"] + self.keep):
            raise IntentExpired(f"{name!r} was first sent too long ago: find out what became of it before it gets a new name")
        return str(found["key"])

    def ended(self, name: str, expires: float) -> None:
        """An answer said until when the key is remembered."""
        try:
            with open(self.path(name), encoding="utf-8") as file:
                self._put(name, {**json.load(file), "expires": expires}, replace=True)
        except FileNotFoundError:
            pass

    def _put(self, name: str, made: dict[str, Any], replace: bool) -> dict[str, Any]:
        """Writes it whole, or not at all. What another process has put there first is kept unless it is replaced."""
        path = self.path(name)
        handle, new = tempfile.mkstemp(dir=self.directory, prefix=os.path.basename(path).removesuffix("json"), suffix=".new")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(made, file)
                file.flush()
                os.fsync(file.fileno())
            if replace:
                os.replace(new, path)
            else:
                os.link(new, path)
        except FileExistsError:
            with open(path, encoding="utf-8") as file:
                made = json.load(file)
        finally:
            if os.path.exists(new):
                os.unlink(new)
        directory = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        return made


class Intent:
    """One request and its attempts. Sends nothing itself: it says how long to wait before the next attempt, None for no more."""

    def __init__(self, retries: Retries, journal: Journal | None, method: str, url: str, headers: Mapping[str, str],
                 body: bytes) -> None:
        self.retries, self.journal, self.attempts, self.expires = retries, journal, 0, float("inf")
        self.until = time.monotonic() + retries.deadline
        self.name = _header(headers, INTENT.lower())
        self.key = _header(headers, KEY.lower()) or str(uuid.uuid4())
        if self.name:
            if journal is None:
                raise ValueError(f"{INTENT} needs a journal")
            request = hashlib.sha256(b"\0".join((method.encode(), url.encode(), body))).hexdigest()
            self.key = journal.key(self.name, request, self.key)

    @staticmethod
    def concerns(retries: Retries, method: str, headers: Mapping[str, str]) -> bool:
        return method.upper() in retries.methods or bool(_header(headers, KEY.lower()) or _header(headers, INTENT.lower()))

    def failed(self) -> float | None:
        """No answer: reset, timeout, refused."""
        return self._pause(0.0)

    def answered(self, status: int, headers: Mapping[str, str], body: bytes) -> float | None:
        expires = _date(_header(headers, "idempotency-expires"))
        if expires is not None:
            self.expires = min(self.expires, expires)
            if self.journal is not None and self.name:
                self.journal.ended(self.name, self.expires)
        if _header(headers, "idempotent-replayed") == "true" or not self._is_repeated(status, headers, body):
            return None
        return self._pause(self._retry_after(_header(headers, "retry-after")))

    @staticmethod
    def _is_repeated(status: int, headers: Mapping[str, str], body: bytes) -> bool:
        if problem(status, headers, body) is not None:
            return json.loads(body).get("retryable") is True
        return status in REPEATED or (status == 409 and _header(headers, "retry-after") != "")

    @staticmethod
    def _retry_after(text: str) -> float:
        if text.isascii() and text.isdigit():
            return float(text)
        date = _date(text) if text else None
        return max(0.0, date - time.time()) if date is not None else 0.0

    def _pause(self, least: float) -> float | None:
        longest = min(self.retries.cap, self.retries.base * 2 ** min(self.attempts, 32))
        pause = least + self.retries.draw(0.0, longest)
        self.attempts += 1
        return pause if time.monotonic() + pause <= self.until and time.time() + pause < self.expires else None


def _unless_redirected(response: Any, request: Any) -> Any:
    if 300 <= response.status_code < 400 and response.status_code != 304:
        response.request = request
        raise Redirected(response)
    return response


def _send(intent: Intent, request: Any, errors: Any, send: Callable[[], Any], body_of: Callable[[Any], bytes]) -> Any:
    """Sends until the outcome is known, or the intent gives up."""
    while True:
        try:
            response = send()
            pause = intent.answered(response.status_code, response.headers, body_of(response))
        except errors:
            pause = intent.failed()
            if pause is None:
                raise
        else:
            if pause is None:
                return _unless_redirected(response, request)
            response.close()
        time.sleep(pause)


class HTTPXTransport:
    """A transport of httpx.Client around another one."""

    def __init__(self, transport: Any = None, *, retries: Retries = Retries(), journal: Journal | None = None) -> None:
        import httpx
        self._inner, self._errors = transport or httpx.HTTPTransport(), httpx.TransportError
        self._retries, self._journal = retries, journal

    def __enter__(self) -> HTTPXTransport:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._inner.__exit__(*error)

    def close(self) -> None:
        self._inner.close()

    def handle_request(self, request: Any) -> Any:
        if not Intent.concerns(self._retries, request.method, request.headers):
            return self._inner.handle_request(request)
        request.read()
        intent = _prepare(self._retries, self._journal, request)
        return _send(intent, request, self._errors, lambda: self._inner.handle_request(request), lambda response: response.read())


class AsyncHTTPXTransport:
    """The same for httpx.AsyncClient."""

    def __init__(self, transport: Any = None, *, retries: Retries = Retries(), journal: Journal | None = None) -> None:
        import anyio
        import httpx
        self._inner, self._errors, self._sleep = transport or httpx.AsyncHTTPTransport(), httpx.TransportError, anyio.sleep
        self._retries, self._journal = retries, journal

    async def __aenter__(self) -> AsyncHTTPXTransport:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._inner.__aexit__(*error)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def handle_async_request(self, request: Any) -> Any:
        if not Intent.concerns(self._retries, request.method, request.headers):
            return await self._inner.handle_async_request(request)
        await request.aread()
        intent = _prepare(self._retries, self._journal, request)
        while True:
            try:
                response = await self._inner.handle_async_request(request)
                pause = intent.answered(response.status_code, response.headers, await response.aread())
            except self._errors:
                pause = intent.failed()
                if pause is None:
                    raise
            else:
                if pause is None:
                    return _unless_redirected(response, request)
                await response.aclose()
            await self._sleep(pause)


def _prepare(retries: Retries, journal: Journal | None, request: Any) -> Intent:
    intent = Intent(retries, journal, request.method, str(request.url), request.headers, request.content)
    request.headers.pop(INTENT, None)
    request.headers[KEY] = intent.key
    return intent


class RequestsAdapter:
    """An adapter of requests.Session around another one."""

    def __init__(self, adapter: Any = None, *, retries: Retries = Retries(), journal: Journal | None = None) -> None:
        import requests.adapters
        import requests.exceptions
        wrong = requests.exceptions
        self._inner = adapter or requests.adapters.HTTPAdapter()
        self._errors = (wrong.ConnectionError, wrong.Timeout, wrong.ChunkedEncodingError, wrong.ContentDecodingError)
        self._retries, self._journal = retries, journal

    def close(self) -> None:
        self._inner.close()

    def send(self, request: Any, **options: Any) -> Any:
        if not Intent.concerns(self._retries, request.method, request.headers):
            return self._inner.send(request, **options)
        body = request.body
        if hasattr(body, "read"):
            body = body.read()
        elif body is not None and not isinstance(body, (bytes, str)):
            body = b"".join(body)
        body = body.encode() if isinstance(body, str) else body or b""
        if request.body is not None and not isinstance(request.body, (bytes, str)):
            request.headers.pop("Transfer-Encoding", None)
            request.headers["Content-Length"] = str(len(body))
        request.body = body or None
        intent = Intent(self._retries, self._journal, request.method, request.url, request.headers, body)
        request.headers.pop(INTENT, None)
        request.headers[KEY] = intent.key
        return _send(intent, request, self._errors, lambda: self._inner.send(request, **options), lambda response: response.content)
