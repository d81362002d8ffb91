"""HTTP for the bank's tests: one request, and a client that keeps its key until it has an answer."""
import http.client
import json
import threading
import time

PATIENCE = 90
AGAIN = {408, 409, 425, 429, 500, 502, 503, 504}


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def problem(self):
        return self.json["type"].rsplit(":", 1)[1]

    def problem_or_none(self):
        return self.problem if self.status >= 400 else None

    @property
    def replayed(self):
        return self.headers.get("Idempotent-Replayed") == "true"

    def essence(self):
        """What a replay must repeat, byte for byte."""
        return self.status, self.headers.get("Content-Type"), self.headers.get("Location"), self.body

    def __repr__(self):
        return f"{self.status} {self.body!r}"


def ask(host, port, method, path, headers=None, body=None, timeout=30):
    """One request on a connection of its own. OSError or http.client.HTTPException: there was no whole answer."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        data = json.dumps(body) if isinstance(body, dict) else body
        connection.request(method, path, data, headers or {})
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read())
    finally:
        connection.close()


def insist(send, tries=None):
    """Calls `send` until it gives a final answer, as a client does that must know. `tries`: as one that gives up; then None."""
    end = time.monotonic() + PATIENCE
    pause, number = 0.02, 0
    while tries is None or number < tries:
        number += 1
        try:
            answer = send()
            if answer.status not in AGAIN:
                return answer
        except (OSError, http.client.HTTPException) as error:
            answer = error
        assert time.monotonic() < end, f"no final answer in {PATIENCE} s; the last one: {answer!r}"
        time.sleep(pause)
        pause = min(pause * 1.5, 0.25)
    return None


class Later:
    """Something that is done by a thread: its result, or what went wrong there."""

    def __init__(self, function, *arguments):
        self.result = self.error = None
        self.thread = threading.Thread(target=self.run, args=(function, arguments), daemon=True)
        self.thread.start()

    def run(self, function, arguments):
        try:
            self.result = function(*arguments)
        except BaseException as error:  # pylint: disable=broad-except
            self.error = error

    def get(self):
        self.thread.join(PATIENCE + 30)
        assert not self.thread.is_alive(), "it does not end"
        if self.error:
            raise self.error
        return self.result
