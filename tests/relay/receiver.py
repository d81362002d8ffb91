"""An HTTP endpoint that can be killed: writes what it got to a file, and answers after that."""
import http.server
import os
import sys
import urllib.parse

PORT, FILE = int(sys.argv[1]), os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        key = urllib.parse.unquote(self.path.rpartition("/")[2])
        os.write(FILE, f"{key} {self.headers['ce-id']} {body}\n".encode())
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        """A relay that was killed cut the connection."""


Server(("127.0.0.1", PORT), Handler).serve_forever()
