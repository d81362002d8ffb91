"""An HTTP endpoint that keeps what it gets, and answers as configured."""
import http.server
import socket
import ssl
import threading
import types


class Endpoint:
    """`answer(request)` returns a status, or (status, headers). Requests have path, headers, body."""

    def __init__(self, certificate=None, key=None, port=0):
        self.requests, self.lock = [], threading.Lock()
        self.answer = lambda request: 204
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                request = types.SimpleNamespace(path=self.path, headers=self.headers,
                                                body=self.rfile.read(int(self.headers["Content-Length"])))
                with endpoint.lock:
                    endpoint.requests.append(request)
                answer = endpoint.answer(request)
                if answer is None:
                    self.close_connection = True
                    return
                status, more = answer if isinstance(answer, tuple) else (answer, {})
                self.send_response(status)
                for name, value in more.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.connections = []

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def process_request(self, request, client_address):
                endpoint.connections.append(request)
                super().process_request(request, client_address)

        self.server = Server(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        self.scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            self.scheme = "https"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def url(self, path="/hooks/{topic}"):
        return f"{self.scheme}://127.0.0.1:{self.port}{path}"

    def bodies(self):
        with self.lock:
            return [request.body.decode() for request in self.requests]

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
