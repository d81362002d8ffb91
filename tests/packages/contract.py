"""What the tests of both modes check and use."""
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def problem(answer, status, name):
    assert answer.status == status, (answer.status, answer.body)
    assert answer.headers.get("Content-Type") == "application/problem+json"
    told = answer.json()
    assert told["type"] == f"urn:once:problem:{name}" and told["status"] == status
    assert told["error"]["code"] == name and told["error"]["message"] == told["detail"]
    return told


class Provider:
    """Transfers once for each key, and counts."""

    def __init__(self):
        provider = self
        self.asked, self.made, self.answers = [], {}, threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                key = self.headers["Idempotency-Key"]
                provider.asked.append(key)
                told = json.dumps({"id": provider.made.setdefault(key, f"t-{len(provider.made)}")}).encode()
                provider.answers.wait(60)
                self.send_response(200)
                self.send_header("Content-Length", str(len(told)))
                self.end_headers()
                self.wfile.write(told)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.answers.set()
        self.server.shutdown()
        self.server.server_close()
