"""once serve on a store of its own, and a client that holds requests and answers against openapi/serve.yaml."""
import atexit
import http.client
import json
import os
import secrets
import signal
import socket
import subprocess

import jsonschema
import yaml
from waiting import until

ONCE = os.path.join(os.environ["ONCE_BUILD"], "once")
PATIENCE = 60

with open(os.path.join(os.path.dirname(__file__), "..", "..", "openapi", "serve.yaml"), encoding="utf-8") as file:
    OPENAPI = yaml.safe_load(file)

VALIDATORS = {}


def resolve(part):
    while "$ref" in part:
        found = OPENAPI
        for name in part["$ref"].split("/")[1:]:
            found = found[name]
        part = found
    return part


def request_schema(path):
    return resolve(OPENAPI["paths"][path]["post"]["requestBody"])["content"]["application/json"]["schema"]


def fits(schema, value):
    """The references of a schema lead into the document."""
    if id(schema) not in VALIDATORS:
        VALIDATORS[id(schema)] = jsonschema.Draft202012Validator({"components": OPENAPI["components"], "allOf": [schema]})
    VALIDATORS[id(schema)].validate(value)


def check_answer(path, method, answer):
    documented = OPENAPI["paths"].get(path, {}).get(method.lower(), {"responses": {}})["responses"]
    if str(answer.status) in documented:
        content = resolve(documented[str(answer.status)])["content"]
    else:
        content = resolve(OPENAPI["components"]["responses"]["problem"])["content"]
    kind = answer.headers["Content-Type"].split(";")[0]
    assert kind in content, (answer.status, kind)
    fits(content[kind]["schema"], answer.json if "json" in kind else answer.body.decode())
    assert answer.headers["Cache-Control"] == "no-store"
    assert (answer.headers["Retry-After"] is not None) == (answer.status == 503 and "json" in kind)


class Answer:
    def __init__(self, response):
        self.status, self.headers = response.status, response.headers
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)


class Connection(http.client.HTTPConnection):
    """To a unix socket, or to a port if the address is HOST:PORT."""

    def __init__(self, address, timeout=PATIENCE):
        super().__init__("localhost", timeout=timeout)
        self.address = address

    def connect(self):
        self.sock = dial(self.address)
        self.sock.settimeout(self.timeout)


def dial(address):
    if address.startswith("unix:"):
        line = socket.socket(socket.AF_UNIX)
        line.settimeout(PATIENCE)
        line.connect(address[5:])
        return line
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE)


class Client:
    """One connection that is kept."""

    def __init__(self, address, token=None):
        self.connection, self.token = Connection(address), token

    def send(self, method, path, body=None, **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token:
            named.setdefault("Authorization", f"Bearer {self.token}")
        self.connection.request(method, path, body, {name: value for name, value in named.items() if value is not None})
        answer = Answer(self.connection.getresponse())
        check_answer(path, method, answer)
        return answer

    def get(self, path, **headers):
        return self.send("GET", path, **headers)

    def post(self, path, body, **headers):
        """Whatever is sent, also what the document forbids."""
        text = body if isinstance(body, (bytes, str)) else json.dumps(body)
        return self.send("POST", path, text, **{"Content_Type": "application/json", **headers})

    def ask(self, operation, **members):
        """A request that fits the document, and its answer."""
        path = f"/v1/{operation}"
        fits(request_schema(path), members)
        answer = self.post(path, members)
        assert answer.status == 200, answer.body
        return answer.json

    def claim(self, key, **members):
        return self.ask("claim", key=key, **members)

    def run(self, key, **members):
        """The text of a claim that is granted."""
        answer = self.claim(key, **members)
        assert answer["outcome"] == "run", answer
        return answer["claim"]

    def lease(self, key):
        """What is left of it."""
        return self.ask("get", key=key)["record"]["lease_ms"]

    def is_renewed(self, key):
        """Waits until the lease is longer than it was, although this client did nothing about it."""
        least = self.lease(key)

        def grew():
            nonlocal least
            left = self.lease(key)
            least = min(least, left)
            return left > least

        return until(grew, "a renewal", PATIENCE)

    def close(self):
        self.connection.close()


class Server:
    def __init__(self, store, *options, listen=None, folder=None, **more):
        self.store = store
        self.listen = listen or f"unix:{folder}/{secrets.token_hex(4)}.sock"
        self.process = subprocess.Popen([ONCE, "serve", store, "--listen", self.listen, *options], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, **more)
        atexit.register(self.process.kill)  # also after a test that failed
        self.lines = [self.process.stdout.readline()]
        assert self.lines[0], self.process.communicate()[1]
        self.address = json.loads(self.lines[0])["address"]

    def client(self, token=None):
        return Client(self.address, token)

    def metric(self, name, client=None):
        client = client or self.client()
        for line in client.get("/metrics").body.decode().splitlines():
            if line.startswith(name + " "):
                return float(line.rpartition(" ")[2])
        raise KeyError(name)

    def stop(self, number=signal.SIGTERM):
        """Returns the exit code and everything that was printed."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, "".join(self.lines) + out + err

    def close(self):
        code, said = self.stop()
        assert code == 0, said
        return said

    def kill(self):
        self.process.kill()
        self.process.communicate(timeout=PATIENCE)


def claim_id():
    return secrets.token_hex(16)
