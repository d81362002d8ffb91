"""For tests of handlers, without a server: records, events and accepted messages in memory.

    records = Memory(connection)              # what the handler finds as once.current().connection
    idempotent = once.idempotent(records, scope="test")
    ... call the handler ...
    assert records.events == [("orders", "o-1", "placed", b'{"n":1}')]
"""
from __future__ import annotations

import hashlib
from typing import Any, Dict, List, Optional, Set, Tuple

from .transport import Records, Row, Transport

Id = Tuple[str, str]


class Refused(Exception):
    """As PostgreSQL refuses a claim: by its SQLSTATE."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


class Memory(Records):
    """`blocking=False` for async handlers."""

    def __init__(self, connection: Any = None, blocking: bool = True) -> None:
        self.connection, self.blocking = connection, blocking
        self.responses: Dict[Id, Tuple[Any, Tuple[Any, ...]]] = {}  # fingerprint and response
        self.checkpoints: Dict[Id, Tuple[str, str]] = {}
        self.claims: Dict[str, Id] = {}
        self.open: Dict[Id, Transport] = {}
        self.events: List[Tuple[str, Optional[str], str, bytes]] = []
        self.accepted: Set[Id] = set()

    def __call__(self) -> Transport:
        return MemoryTransport(self)


class MemoryTransport(Transport):
    broken = False

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory.connection, memory.blocking)
        self.memory = memory
        self.changes: List[Any] = []  # what a commit does
        self.fingerprints: Dict[Id, Any] = {}

    async def begin(self) -> None:
        pass

    async def commit(self) -> None:
        for change, *values in self.changes:
            change(*values)
        await self.rollback()

    async def rollback(self) -> None:
        self.changes = []
        self.memory.open = {id: holder for id, holder in self.memory.open.items() if holder is not self}

    async def close(self) -> None:
        pass

    async def call(self, name: str, *values: Any) -> Row:
        row: Row = getattr(self, name)(*values)
        return row

    def claim(self, scope: str, key: str, method: str, target: str, body: bytes, lease: float, ttl: float, wait: bool,
              claim_id: str) -> Row:
        id, fingerprint = (scope, key), (method, target, body)
        known, response = self.memory.responses.get(id, (fingerprint, ()))
        if self.memory.open.setdefault(id, self) is not self or known != fingerprint:
            return ("mismatch" if known != fingerprint else "busy", None, 1.0)
        self.memory.claims[claim_id], self.fingerprints[id] = id, fingerprint
        return ("replay", None, None, *response) if response else ("run", claim_id, None)

    def renew(self, claim: str) -> Row:
        if self.recorded(claim):
            raise Refused("ON002")
        if self.memory.open.setdefault(self.memory.claims.setdefault(claim, ("gate", claim)), self) is not self:
            raise Refused("ON001")
        return None

    def recorded(self, claim: str) -> Row:
        return self.memory.responses.get(self.memory.claims.get(claim, ("", "")), (None, None))[1]

    def complete(self, claim: str, status: int, headers: str, body: bytes) -> None:
        id = self.memory.claims[claim]
        made = self.fingerprints.get(id), (status, headers, body, "plain", None)
        self.changes.append((self.memory.responses.__setitem__, id, made))

    def release(self, claim: str) -> None:
        pass

    def lock(self, natural_key: str) -> None:
        pass

    def emit(self, topic: str, key: Optional[str], type: str, payload: bytes, headers: str, claim: Optional[str]) -> Row:
        self.changes.append((self.memory.events.append, (topic, key, type, payload)))
        return (hashlib.sha256(repr((topic, key, type, payload, claim)).encode()).hexdigest()[:32],)

    def accept(self, subscriber: str, message_id: str) -> Row:
        self.changes.append((self.memory.accepted.add, (subscriber, message_id)))
        return ((subscriber, message_id) not in self.memory.accepted,)

    def derive(self, claim: str, step: str) -> Row:
        return ("d2-" + hashlib.sha256(repr((self.memory.claims[claim], step)).encode()).hexdigest()[:52],)

    def checkpoint(self, claim: str, name: str, state: str) -> None:
        self.changes.append((self.memory.checkpoints.__setitem__, self.memory.claims[claim], (name, state)))

    def resume(self, claim: str) -> Row:
        return self.memory.checkpoints.get(self.memory.claims[claim])
