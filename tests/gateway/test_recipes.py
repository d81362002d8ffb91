"""docs/scopes.md: its blocks for nginx as they are, with a verifier and an application that know the callers. What is not verified
gets no stored answer, and two accounts never meet."""
import os
import signal
import subprocess
import time

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from harness import environment, expect
from shell import blocks, free_port, page

TOKENS, SESSIONS, KEYS = blocks(page("scopes.md"), "nginx")
ISSUER, AUDIENCE = "https://login.example.com", "payments"


class Signer:
    def __init__(self):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.private = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self.public = self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def token(self, subject, lasts=3600, sign=None, **claims):
        """`sign`: another key and algorithm."""
        claims = {"sub": subject, "iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + lasts, "jti": os.urandom(8).hex(),
                  **claims}
        return jwt.encode({name: value for name, value in claims.items() if value is not None}, *(sign or (self.private, "ES256")))


def bearer(token):
    return [("Authorization", f"Bearer {token}")]


@pytest.fixture
def signer():
    return Signer()


@pytest.fixture
def verifier(directory, signer):
    """examples/verify/verify.py; its port."""
    port, key = free_port(), os.path.join(directory, "login.pem")
    with open(key, "wb") as file:
        file.write(signer.public)
    path = os.path.join(environment.SOURCE, "examples", "verify", "verify.py")
    settings = {**os.environ, "KEY": key, "ISSUER": ISSUER, "AUDIENCE": AUDIENCE, "PORT": port}
    program = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", "/usr/bin/python3", path], stdout=subprocess.PIPE,
                               env=settings, text=True)
    assert program.stdout.readline() == "verify: ready\n"
    yield port
    program.send_signal(signal.SIGTERM)
    program.wait()
    program.stdout.close()


def refused(gw, target, headers, status=401):
    """Whoever it is: no stored answer, no operation, no record."""
    before = gw.upstream.count("k")
    for key in ("k", "new"):
        response = gw.post(key, target=target, headers=headers)
        assert response.status == status and "Idempotent-Replayed" not in response.headers, response
    assert gw.upstream.count("k") == before and gw.upstream.count("new") == 0


def test_tokens(gateway, signer, verifier):
    gw = gateway(locations=TOKENS.replace("127.0.0.1:9000", f"127.0.0.1:{verifier}"))

    def post(token, headers=()):
        return gw.post("k", target="/payments", headers=[*bearer(token), *headers])

    alice = expect.first(post(signer.token("alice")))
    expect.replay(post(signer.token("alice")), alice)  # another token of the same subject
    bob = expect.first(post(signer.token("bob"), [("X-Account", "alice")]))
    assert bob.body != alice.body and gw.upstream.count("k") == 2
    other = Signer()
    for token in (other.token("alice"), signer.token("alice", -60), signer.token("alice", aud="reports"),
                  signer.token("alice", iss="https://evil.example.com"), signer.token("alice", exp=None), signer.token(None),
                  signer.token(""), signer.token("alice", sign=(None, "none")), signer.token("alice", sign=("k" * 32, "HS256")), "",
                  "alice"):
        refused(gw, "/payments", bearer(token))
    refused(gw, "/payments", [])
    refused(gw, "/payments", [("X-Account", "alice")])
    expect.replay(post(signer.token("alice")), alice)


def test_verifier_without_an_account(gateway, backend):
    """A verifier that lets a request through and does not say whose it is."""
    verifier = backend()
    verifier.default = lambda exchange: exchange.respond(204)
    gw = gateway(locations=TOKENS.replace("127.0.0.1:9000", verifier.name))
    expect.problem(gw.post("k", target="/payments", headers=[("X-Account", "alice")]), "scope-missing")
    assert gw.upstream.total == 0


def test_sessions(gateway):
    """The application knows its sessions: two of alice's, one of bob's."""
    sessions = {"s1": "alice", "s2": "alice", "s3": "bob"}
    gw = gateway(locations=SESSIONS)

    def application(exchange):
        if exchange.request.target != "/session":
            return exchange.respond()
        cookie = exchange.request.headers.get("Cookie") or ""
        account = sessions.get(cookie.removeprefix("session="))
        return exchange.respond(204, [("X-Account", account)]) if account else exchange.respond(401)

    def post(session):
        return gw.post("k", target="/orders", headers=[("Cookie", f"session={session}")])

    def orders():
        return [request.target for request in gw.upstream.requests].count("/orders")

    gw.upstream.default = application
    alice = expect.first(post("s1"))
    expect.replay(post("s2"), alice)  # logged in again
    assert expect.first(post("s3")).body != alice.body
    del sessions["s1"]  # logged out
    for headers in ([("Cookie", "session=s1")], [("Cookie", "session=guessed")], [("X-Account", "alice")], []):
        response = gw.post("k", target="/orders", headers=headers)
        assert response.status == 401 and "Idempotent-Replayed" not in response.headers, response
    assert orders() == 2
    expect.replay(post("s2"), alice)


def test_api_keys(gateway, directory):
    keys = os.path.join(directory, "api-keys")
    with open(keys, "w", encoding="ascii") as file:
        file.write('"old" shop-7; "new" shop-7; "other" shop-8;\n')
    listed, location = KEYS.replace("/etc/nginx/api-keys", keys).split("\nlocation", 1)
    gw = gateway(http=listed, locations="location" + location)

    def post(key):
        return gw.post("k", target="/refunds", headers=[("X-Api-Key", key)])

    shop = expect.first(post("old"))
    expect.replay(post("new"), shop)
    assert expect.first(post("other")).body != shop.body
    refused(gw, "/refunds", [("X-Api-Key", "unknown")])
    refused(gw, "/refunds", [])
