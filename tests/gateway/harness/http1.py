"""HTTP/1.1 clients on raw sockets: pipelining, aborts at any byte, and nothing repaired behind the test's back."""
import socket
import ssl

from . import message
from .upstream import reset
from .wait import PATIENCE


def fields_of(host, key, body, headers, chunked=False):
    """What every request needs, plus what the test wants; a header named by the test replaces the usual one."""
    named = {name.lower() for name, _ in headers}
    fields = [("Host", host)] if "host" not in named else []
    if key is not None:
        fields.append(("Idempotency-Key", key))
    if chunked:
        fields.append(("Transfer-Encoding", "chunked"))
    elif body is not None and "content-length" not in named:
        fields.append(("Content-Length", str(len(body))))
    return fields + list(headers)


class Connection:
    def __init__(self, address, tls=None, patience=PATIENCE, source=None):
        if isinstance(address, str):
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(patience)
            self.sock.connect(address)
        else:
            self.sock = socket.create_connection(address, patience, (source, 0) if source else None)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            context = ssl.create_default_context(cafile=tls)
            context.check_hostname = False
            context.set_alpn_protocols(["http/1.1"])
            self.sock = context.wrap_socket(self.sock)
        self.reader = message.Reader(self.sock)
        self.waiting = []  # methods of the requests that were sent and not answered

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        self.sock.sendall(data)

    def begin(self, method="POST", target="/", key=None, body=None, headers=(), host="gateway"):
        """Sends the head alone; `body` only tells its length."""
        self.waiting.append(method)
        self.send(message.head(f"{method} {target} HTTP/1.1", fields_of(host, key, body, headers)))

    def start(self, method="POST", target="/", key=None, body=None, headers=(), chunked=False, piece=0, host="gateway"):
        """Sends a whole request and does not wait."""
        self.waiting.append(method)
        fields = fields_of(host, key, body, headers, chunked)
        data = message.chunks(body, piece) if chunked else body or b""
        self.send(message.head(f"{method} {target} HTTP/1.1", fields) + data)

    def finish(self):
        """The response to the oldest request that has none."""
        return self.reader.response(self.waiting.pop(0) if self.waiting else "GET")

    def request(self, *args, **options):
        self.start(*args, **options)
        return self.finish()

    def wait_closed(self):
        """Until the gateway closes the connection; what it sent before that."""
        try:
            return self.reader.take_to_end()
        except ConnectionResetError:
            return self.reader.cut(len(self.reader.buffer))

    def reset(self):
        """Gone, with RST."""
        reset(self.sock)

    def half_close(self):
        self.sock.shutdown(socket.SHUT_WR)

    def close(self):
        """Gone, with FIN."""
        self.sock.close()
