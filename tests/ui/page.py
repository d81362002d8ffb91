"""once ui, started on a store of its own, records to look at, and a client that sends what it is told to."""
import atexit
import http.client
import json
import os
import re
import signal
import subprocess
import urllib.parse

from waiting import until

BUILD = os.environ["ONCE_BUILD"]
ONCE = os.path.join(BUILD, "once")
PATIENCE = 60


class Seed:
    """Makes records; see seed.c."""

    def __init__(self, url):
        self.process = subprocess.Popen([os.path.join(BUILD, "tests", "ui", "ui_seed"), url], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def make(self, *fields):
        quoted = (urllib.parse.quote(field if isinstance(field, bytes) else str(field)) for field in fields)
        self.process.stdin.write("\t".join(quoted) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "ok\n"

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(PATIENCE) == 0
        self.process.stdout.close()


class Answer:
    def __init__(self, response):
        self.status, self.headers = response.status, response.headers
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)


class Client:
    """A browser's part, without its rules: it can break them."""

    def __init__(self, port, prefix=""):
        self.port, self.prefix, self.cookie, self.csrf = port, prefix, None, None

    def send(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie:
            named.setdefault("Cookie", self.cookie)
        connection.request(method, self.prefix + path, body, {name: value for name, value in named.items() if value is not None})
        answer = Answer(connection.getresponse())
        connection.close()
        return answer

    def get(self, path, **headers):
        return self.send("GET", path, **headers)

    def post(self, path, body, **headers):
        named = {"Origin": f"http://127.0.0.1:{self.port}", "Content_Type": "application/json", "X_Once_Csrf": self.csrf}
        return self.send("POST", path, json.dumps(body), **{**named, **headers})

    def login(self, token):
        answer = self.post("/api/login", {"token": token})
        if answer.status == 200:
            self.keep(answer)
        return answer

    def keep(self, answer):
        self.cookie = answer.headers["Set-Cookie"].split(";")[0]
        self.csrf = answer.json["csrf"]

    def record(self, key):
        """As it is listed, with the claim if it may be seen."""
        found = [row for row in self.get(f"/api/records?key={urllib.parse.quote(key)}").json["records"] if row.get("key") == key]
        return found[0] if found else None

    def settle(self, record, **more):
        return self.post("/api/settle", {"items": [{"id": record["id"], "claim": record["claim"]}], "outcome": "failed",
                                         "note": "checked", **more})


class Page:
    def __init__(self, url, *options, **more):
        self.process = subprocess.Popen([ONCE, "ui", url, "--listen", "0", *options], stdout=subprocess.PIPE, text=True, **more)
        atexit.register(self.process.kill)  # also after a test that failed
        self.address = self.announced()
        self.port = int(re.search(r":(\d+)/", self.address).group(1)) if "127.0.0.1" in self.address else None

    def announced(self):
        return self.process.stdout.readline().split(" ")[2].strip()

    @property
    def token(self):
        return self.address.partition("#")[2]

    def again(self):
        """A new token."""
        self.process.send_signal(signal.SIGHUP)
        self.address = self.announced()
        return self.token

    def client(self, prefix=""):
        client = Client(self.port, prefix)
        if self.token:
            assert client.login(self.token).status == 200
        return client

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE)
        self.process.stdout.close()
        return code


def counted(client):
    """The counts of the store, as soon as there are some."""
    return until(lambda: client.get("/api/stats").json["stats"], "counts", PATIENCE)
