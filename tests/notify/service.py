"""notify as a process: started, killed, looked at. And what posts events to it as once consume does."""
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.abspath(os.environ.get("ONCE_BUILD", os.path.join(SOURCE, "build")))
ONCE = os.path.join(BUILD, "once")
NOTIFY = os.path.join(BUILD, "examples", "example_notify")
EXAMPLE = os.path.join(SOURCE, "examples", "notify")
PATIENCE = float(os.environ.get("NOTIFY_PATIENCE", "30"))

sys.path[:0] = [EXAMPLE, os.path.join(HERE, "..", "support")]  # outside.py, waiting.py
import waiting  # noqa: E402


def until(condition, what):
    return waiting.until(condition, what, PATIENCE)


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = json.loads(response.read())

    def outcomes(self):
        """{"mail": "sent", ...}; of events with one user."""
        return {each["channel"]: each["outcome"] for each in self.body["notifications"]}


class Notify:
    def __init__(self, directory, mail, sms, push, *options, templates=None, users=None):
        self.store = f"local:{directory}/store"
        self.listen = "127.0.0.1:0"
        self.lines = []
        self.process = None
        self.options = ["--store", self.store, "--templates", templates or os.path.join(EXAMPLE, "templates"),
                        "--users", users or os.path.join(EXAMPLE, "users.json"), "--from", "shop@example.com",
                        "--mail-url", mail, "--sms-url", sms, "--push-url", push, *options]

    def start(self):
        self.process = subprocess.Popen([NOTIFY, "--listen", self.listen, *self.options], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self.read_log, args=(self.process.stderr,))
        self.reader.start()
        line = self.process.stdout.readline()
        assert line.startswith("notify: listening on "), f"notify did not start: {self.lines}"
        self.listen = line.split()[-1]  # the same port after a restart
        return self

    def read_log(self, stream):
        for line in stream:
            self.lines.append(line.rstrip("\n"))

    def log(self, what):
        """The lines about it, once the program's output has been read so far."""
        return [line for line in map(json.loads, list(self.lines)) if line["message"] == what]

    def wait_log(self, what, count=1):
        return until(lambda: len(self.log(what)) >= count and self.log(what), f"{count} log lines that say {what}: {self.lines}")

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.ended()

    def ended(self):
        code = self.process.wait(PATIENCE)
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        self.process = None
        return code

    def restart(self):
        if self.process:
            self.kill()
        return self.start()

    def close(self):
        if self.process:
            self.signal(signal.SIGTERM)
            code = self.ended()
            assert code == 0, f"notify ended with {code}: {self.lines[-5:]}"

    def request(self, method, path, body=None, headers=None):
        host, port = self.listen.split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
        try:
            connection.request(method, path, body, headers or {})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def post(self, event, kind, payload, **headers):
        body = payload if isinstance(payload, (bytes, str)) else json.dumps(payload)
        given = {"ce-id": event, "ce-type": kind, "ce-specversion": "1.0", "Idempotency-Key": f'"{event}"',
                 "Content-Type": "application/json", **headers}
        return self.request("POST", "/events", body, {name: value for name, value in given.items() if value is not None})

    def post_until_done(self, event, kind, payload):
        """As once consume does: again while the answer says so. Returns the final answer."""
        def final():
            try:
                answer = self.post(event, kind, payload)
            except (ConnectionError, http.client.HTTPException):
                return None
            return answer if answer.status not in (408, 409, 425, 429) and answer.status < 500 else None
        return until(final, f"a final answer to {event}")

    def metrics(self):
        host, port = self.listen.split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))

    def once(self, *arguments, data=None):
        done = subprocess.run([ONCE, *arguments], capture_output=True, timeout=PATIENCE, check=False, input=data)
        assert done.returncode == 0, f"once {arguments}: {done.stderr.decode()}"
        return done.stdout

    def records(self):
        return [json.loads(line) for line in self.once("keys", "list", "--json", self.store).splitlines()]
