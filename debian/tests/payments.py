"""A backend that counts, and what a client gets from the gateway in front of it: one execution, and a replay of its answer."""
import http.client
import http.server
import socket
import sys
import threading
import time


class Backend(http.server.BaseHTTPRequestHandler):
    """Answers every POST with the number of its execution, and every GET with whether there are credentials."""
    protocol_version = "HTTP/1.1"
    count = 0

    def do_POST(self):  # pylint: disable=invalid-name
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        Backend.count += 1
        body = b"payment %d\n" % Backend.count
        self.send_response(201)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):  # pylint: disable=invalid-name
        self.send_response(200 if self.headers.get("X-Api-Key") == "..." else 401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words):  # pylint: disable=arguments-differ
        pass


def start_backend():
    """Returns its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Backend)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def pay(port, key):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", "/payments", b'{"amount": 4200}', {"Idempotency-Key": key, "Authorization": "Bearer alice"})
    response = connection.getresponse()
    return response.status, response.getheader("Idempotent-Replayed"), response.read()


def wait_for(port, process):
    """Until it answers: nginx opens the port already to check its configuration. A process that ended before never will."""
    while True:
        assert process.poll() is None, f"it ended with {process.returncode}"
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", "/")
            connection.getresponse()
            return
        except (OSError, http.client.HTTPException):
            time.sleep(0.1)


def check(port):
    """The first request runs, the second one is answered from the record; another key runs."""
    first, second, other = pay(port, "first"), pay(port, "first"), pay(port, "other")
    assert first == (201, None, b"payment 1\n"), first
    assert second == (201, "true", b"payment 1\n"), second
    assert other == (201, None, b"payment 2\n"), other


if __name__ == "__main__":  # the backend alone
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Backend).serve_forever()
