"""HTTP/1.1 messages as bytes on sockets: reading them strictly, keeping everything in them."""
import json


class Closed(Exception):
    """The other side ended the connection where a message should have begun or gone on. `got`: the bytes before that."""

    def __init__(self, got=b""):
        super().__init__(f"connection closed after {len(got)} bytes: {got[:200]!r}")
        self.got = got


class Headers:
    """Header fields in their order, with repetitions."""

    def __init__(self, fields=()):
        self.fields = [(name, value) for name, value in fields]

    def all(self, name):
        return [value for field, value in self.fields if field.lower() == name.lower()]

    def get(self, name, default=None):
        """The value of a header that is there at most once."""
        values = self.all(name)
        assert len(values) <= 1, f"{name} stands there {len(values)} times: {values}"
        return values[0] if values else default

    def __contains__(self, name):
        return bool(self.all(name))

    def __iter__(self):
        return iter(self.fields)

    def __repr__(self):
        return repr(self.fields)


class Request:
    def __init__(self, method, target, version, headers, body, trailers=()):
        self.method, self.target, self.version = method, target, version
        self.headers, self.body, self.trailers = headers, body, Headers(trailers)

    @property
    def path(self):
        return self.target.split("?")[0]

    @property
    def key(self):
        return unquote(self.headers.get("Idempotency-Key", ""))


class Response:
    def __init__(self, status, reason, headers, body, trailers=(), informational=(), version="HTTP/1.1"):
        self.status, self.reason, self.headers, self.body = status, reason, headers, body
        self.trailers, self.informational, self.version = Headers(trailers), list(informational), version

    def header(self, name, default=None):
        return self.headers.get(name, default)

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.status} {self.headers} {self.body[:300]!r}>"


def unquote(key):
    if len(key) >= 2 and key[0] == key[-1] == '"':
        return key[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    return key


class Reader:
    """Reads messages from a socket; what came too early stays for the next one."""

    def __init__(self, sock):
        self.sock, self.buffer = sock, bytearray()

    def fill(self):
        data = self.sock.recv(1 << 20)
        if not data:
            raise Closed(bytes(self.buffer))
        self.buffer += data

    def take(self, size):
        while len(self.buffer) < size:
            self.fill()
        return self.cut(size)

    def cut(self, size):
        data = bytes(self.buffer[:size])
        del self.buffer[:size]
        return data

    def take_line(self):
        while b"\r\n" not in self.buffer:
            self.fill()
        return self.cut(self.buffer.index(b"\r\n") + 2)[:-2].decode("latin-1")

    def take_fields(self):
        fields = []
        while True:
            line = self.take_line()
            if not line:
                return fields
            name, colon, value = line.partition(":")
            assert colon and name == name.strip(), f"bad header line {line!r}"
            fields.append((name, value.strip(" \t")))

    def take_chunks(self):
        body = bytearray()
        while True:
            size = int(self.take_line().split(";")[0], 16)
            if size == 0:
                return bytes(body), self.take_fields()
            body += self.take(size)
            assert self.take(2) == b"\r\n"

    def take_to_end(self):
        try:
            while True:
                self.fill()
        except Closed:
            return self.cut(len(self.buffer))

    def body(self, headers, none=False):
        """The body and the trailers."""
        coding, length = headers.get("Transfer-Encoding"), headers.get("Content-Length")
        assert not (coding and length), f"both a length and a coding: {headers}"
        if none:
            return b"", []
        if coding:
            assert coding.lower() == "chunked", coding
            return self.take_chunks()
        if length is not None:
            return self.take(int(length)), []
        return None, []

    def request(self, before_body=None):
        method, target, version = self.take_line().split(" ")
        headers = Headers(self.take_fields())
        if before_body:
            before_body(Request(method, target, version, headers, b""))
        body, trailers = self.body(headers)
        return Request(method, target, version, headers, body or b"", trailers)

    def response(self, method="GET"):
        informational = []
        while True:
            version, status, reason = (self.take_line() + " ").split(" ", 2)
            headers = Headers(self.take_fields())
            if not 100 <= int(status) < 200 or status == "101":
                break
            informational.append(int(status))
        nothing = method == "HEAD" or status in ("101", "204", "304")
        body, trailers = self.body(headers, nothing)
        if body is None:
            body = self.take_to_end()
        return Response(int(status), reason.strip(), headers, body, trailers, informational, version)


def head(first_line, fields):
    lines = [first_line] + [f"{name}: {value}" for name, value in fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def chunks(body, size=0, trailers=(), last=True):
    """A body in the chunked coding, in pieces of `size` bytes (0: one)."""
    out = b""
    step = size or len(body) or 1
    for start in range(0, len(body), step):
        piece = body[start:start + step]
        out += b"%x\r\n%s\r\n" % (len(piece), piece)
    if last:
        out += b"0\r\n" + head("", trailers)[2:] if trailers else b"0\r\n\r\n"
    return out
