"""Any store, through `once serve`: at most one effect for each key, and an honest unknown."""
from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import logging
import math
import os
import socket
import threading
import time
from http.client import parse_headers
from typing import Any, Dict, List, Optional, Tuple
from urllib.parse import urlsplit

from .message import Response, problem
from .transport import Records, Row, Transport, drive, resolve

log = logging.getLogger("once")
Json = Dict[str, Any]


class Store(Records):
    """`address`: where `once serve` listens, unix:PATH or http://127.0.0.1:PORT with its `token`. `recover`: what happens when an
    attempt ends and nobody knows what it did; `hold`: the outcome is unknown, `retry`: the next request runs. `patience`: seconds
    for which a call that was not answered is repeated."""

    def __init__(self, address: str, token: Optional[str] = None, recover: str = "hold", patience: float = 15) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("unix", "http"):
            raise ValueError(f"{address!r} is not where once serve listens: unix:PATH, or http://127.0.0.1:PORT")
        self.path = parts.path if parts.scheme == "unix" else ""
        self.host, self.port = parts.hostname or "", parts.port or 80
        self.recover, self.patience, self.renewals = recover, patience, Renewals(self)
        self.head = f"Host: {parts.netloc or 'once'}\r\n" + (f"Authorization: Bearer {token}\r\n" if token else "")

    def __call__(self) -> Transport:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return StoreTransport(self, blocking=True)
        return StoreTransport(self, blocking=False)


class Renewals:
    """Extends the leases of the claims that are at work, in a thread. The server does that, too, but only until the connection of a
    claim ends, as it does when the server is restarted. Most operations are over before anything is due."""
    MOST = 1000  # in one request

    def __init__(self, store: Store) -> None:
        self.store = store
        self.reset()

    def reset(self) -> None:
        self.process, self.changed, self.wakes = os.getpid(), threading.Condition(), -math.inf
        self.due: Dict[str, Tuple[float, float]] = {}  # of a claim: when, and its lease
        self.thread: Optional[threading.Thread] = None

    def add(self, claim: str, lease: float) -> None:
        if self.process != os.getpid():  # forked: the claims are those of another process, and its thread is not here
            self.reset()
        with self.changed:
            when = time.monotonic() + lease / 3
            self.due[claim] = (when, lease)
            if self.thread is None:
                self.thread = threading.Thread(target=self.run, name="once-renewals", daemon=True)
                self.thread.start()
            elif when < self.wakes:
                self.changed.notify()

    def remove(self, claim: str) -> None:
        with self.changed:
            self.due.pop(claim, None)

    def run(self) -> None:
        while True:
            with self.changed:
                now = time.monotonic()
                claims = [claim for claim, (when, _) in self.due.items() if when <= now][:self.MOST]
                if not claims:
                    self.wakes = min((when for when, _ in self.due.values()), default=math.inf)
                    self.changed.wait(None if self.wakes == math.inf else self.wakes - now)
                    self.wakes = -math.inf
                    continue
            for claim, outcome in zip(claims, self.renew(claims)):
                self.go_on(claim, outcome)

    def renew(self, claims: List[str]) -> List[str]:
        transport = StoreTransport(self.store, blocking=True)
        try:
            outcomes: List[str] = drive(transport.ask("renew", {"claims": claims}, 0))["outcomes"]
            return outcomes
        except Exception as error:
            log.warning("%d claims cannot be renewed: %s", len(claims), error.__cause__ or error)
            return ["failed"] * len(claims)
        finally:
            drive(transport.close())

    def go_on(self, claim: str, outcome: str) -> None:
        with self.changed:
            if outcome == "lost":
                self.due.pop(claim, None)
            elif claim in self.due:
                lease = self.due[claim][1]
                self.due[claim] = (time.monotonic() + lease / (3 if outcome == "done" else 10), lease)


def with_body(body: bytes, more: Json) -> Json:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    return {**more, **({"body_base64": base64.b64encode(body).decode()} if "\0" in text else {"body": text})}


def to_row(told: Optional[Json], expires_ms: int = 0) -> Row:
    """A response as the functions of PostgreSQL return it."""
    if told is None:
        return None
    body = base64.b64decode(told["body_base64"]) if "body_base64" in told else told.get("body", "").encode()
    omitted = told.get("body_omitted")
    stored = "erased" if omitted == "erased" else "omitted" if omitted else "plain"
    return (told["status"], json.dumps(told["headers"]), body, stored, expires_ms and time.time() + expires_ms / 1000)


class StoreTransport(Transport):
    """Calls on a connection of the operation's own: the server renews the claim for as long as it is open."""
    transactional = broken = False
    kept: Optional[str] = None  # the claim that is renewed
    reader: Any = None
    writer: Any = None

    def __init__(self, store: Store, blocking: bool) -> None:
        super().__init__(None, blocking)
        self.store = store

    async def begin(self) -> None:
        pass

    async def close(self) -> None:
        if self.kept is not None:
            self.store.renewals.remove(self.kept)
        self.disconnect()

    def disconnect(self) -> None:
        writer, self.reader, self.writer = self.writer, None, None
        with contextlib.suppress(OSError):  # what was not sent
            if writer is not None:
                writer.close()

    async def call(self, name: str, *values: Any) -> Row:
        if name in ("release", "doubt"):
            await self.ask(name, {"claim": values[0]}, self.store.patience)
            return None
        if name not in ("claim", "renew", "finish", "derive"):
            raise TypeError(f"{name} needs a transaction: give once.idempotent a connection to PostgreSQL instead of once.Store")
        row: Row = await getattr(self, name)(*values)
        return row

    async def claim(self, scope: str, key: str, method: str, target: str, body: bytes, lease: float, ttl: float, wait: bool,
                    claim_id: str) -> Row:
        told = await self.ask("claim", with_body(body, {
            "scope": scope, "key": key, "method": method, "target": target, "recover": self.store.recover, "renew": "connection",
            "lease_ms": int(lease * 1000), "ttl_ms": int(ttl * 1000), "wait_ms": 60000 if wait else 0,
            "claim_id": claim_id.replace("-", "")}), min(2, self.store.patience))
        if told["outcome"] in ("run", "mine"):
            self.kept = told["claim"]
            self.store.renewals.add(told["claim"], lease)
        return (told["outcome"], told.get("claim"), told.get("retry_after_ms", 0) / 1000,
                *(to_row(told.get("response"), told.get("expires_ms", 0)) or ()))

    async def renew(self, claim: str) -> None:
        """The gate's: whether it is one, and not overtaken."""
        told = await self.ask("renew", {"claims": [claim]}, min(2, self.store.patience))
        if told["outcomes"] != ["done"]:
            raise problem("store-unavailable", "the claim of the gate is not one of this store, or it was overtaken", 1)

    async def finish(self, claim: str, response: Response, verdict: Optional[str]) -> Row:
        """None: recorded as it is, or judged to be no record. Otherwise what the record says instead."""
        made = with_body(response.body, {"status": response.status, "headers": response.recorded_headers})
        said = {"verdict": verdict} if verdict else {}
        told = await self.ask("finish", {"claim": claim, "response": made, **said}, self.store.patience)
        if told["outcome"] == "lost" and "response" not in told:
            raise problem("in-flight", retry_after=1)
        return to_row(told.get("response"))

    async def derive(self, claim: str, step: str) -> Row:
        other = StoreTransport(self.store, self.blocking)  # a handler may ask at any time, and be cancelled meanwhile
        try:
            return ((await other.ask("derive", {"claim": claim, "step": step}, self.store.patience))["key"],)
        finally:
            await other.close()

    async def ask(self, path: str, asked: Json, patience: float) -> Json:
        """Repeated until it is answered: every call may be."""
        end, delay, limit = time.monotonic() + patience, 0.02, 10 + asked.get("wait_ms", 0) / 1000
        told: Json
        while True:
            cause: Exception
            try:
                exchange = self.exchange(path, json.dumps(asked).encode(), limit)
                status, told = await (exchange if self.blocking else asyncio.wait_for(exchange, limit))
            except (OSError, EOFError, ValueError, asyncio.TimeoutError) as error:
                status, told, cause = 503, {"retryable": True}, error
            else:
                cause = RuntimeError(f"once serve answered {path} with {status}: {told.get('detail')}")
            if status == 200:
                return told
            self.disconnect()
            if not told.get("retryable"):
                raise cause
            if time.monotonic() + delay > end:
                raise problem("store-unavailable", retry_after=1) from cause
            await self.pause(delay)
            delay = min(2 * delay, 0.5)

    async def exchange(self, path: str, body: bytes, limit: float) -> Any:
        if self.writer is None:
            await self.open(limit)
        self.writer.write(f"POST /v1/{path} HTTP/1.1\r\n{self.store.head}Content-Type: application/json\r\n"
                          f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await resolve(self.writer.flush() if self.blocking else self.writer.drain())
        lines = [await resolve(self.reader.readline())]
        while lines[-1] not in (b"\r\n", b"\n", b""):
            lines.append(await resolve(self.reader.readline()))
        if lines[-1] == b"":
            raise EOFError("the connection to once serve was closed")
        size = int(parse_headers(io.BytesIO(b"".join(lines[1:])))["Content-Length"])
        told = json.loads(await resolve(self.reader.read(size) if self.blocking else self.reader.readexactly(size)))
        return int(lines[0].split()[1]), told

    async def open(self, limit: float) -> None:
        store = self.store
        if not self.blocking:
            self.reader, self.writer = await (asyncio.open_unix_connection(store.path) if store.path
                                              else asyncio.open_connection(store.host, store.port))
            return
        if store.path:
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(limit)
            sock.connect(store.path)
        else:
            sock = socket.create_connection((store.host, store.port), limit)
        with sock:  # the file keeps it open
            self.reader = self.writer = sock.makefile("rwb")
