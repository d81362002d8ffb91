"""Says whose request it is, for auth_request of nginx: verifies the JWT of a request. docs/scopes.md.

    pip install 'pyjwt[crypto]'                  # Debian: python3-jwt, python3-cryptography
    KEY=login.pem ISSUER=https://login.example.com AUDIENCE=payments PORT=9000 python3 verify.py
"""
import http.server
import os
import urllib.parse

import jwt

with open(os.environ["KEY"], encoding="ascii") as pem:
    KEY = pem.read()  # the public key of what signs; for keys that rotate: jwt.PyJWKClient(URL)


def account(authorization):
    """The subject, in a form that a header can have."""
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer":
        raise jwt.InvalidTokenError("no bearer token")
    claims = jwt.decode(token.strip(), KEY, algorithms=["ES256"], issuer=os.environ["ISSUER"], audience=os.environ["AUDIENCE"],
                        options={"require": ["exp", "sub"]})
    if not claims["sub"]:
        raise jwt.InvalidTokenError("an empty subject")
    return urllib.parse.quote(str(claims["sub"]))


class Verifier(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        try:
            whose = account(self.headers.get("Authorization", ""))
            self.send_response(204)
            self.send_header("X-Account", whose)
        except jwt.InvalidTokenError:
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Bearer")
            self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        """Nothing: nginx logs the request."""


if __name__ == "__main__":
    with http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "9000"))), Verifier) as server:
        print("verify: ready", flush=True)
        server.serve_forever()
