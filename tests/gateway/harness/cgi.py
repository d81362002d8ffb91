"""Backends that speak FastCGI, uwsgi and SCGI: just enough to be asked by nginx, counted like every other upstream."""
import struct

from . import message
from .upstream import Exchange, Upstream

BEGIN, END, PARAMS, STDIN, STDOUT = 1, 3, 4, 5, 6


class CgiExchange(Exchange):
    """The answer of a script: header lines with a status among them, framed by the protocol."""

    def respond(self, status=201, headers=(), body=None, **_):
        body = self.body() if body is None else body
        fields = [("Status", f"{status} Said"), *headers]
        if not any(name.lower() == "content-type" for name, _ in headers):
            fields.append(("Content-Type", "application/json"))
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
        self.deliver(lines.encode("latin-1") + b"\r\n" + body)

    def deliver(self, data):
        if self.upstream.protocol == "uwsgi":
            data = data.replace(b"Status: ", b"HTTP/1.1 ", 1)
        if self.upstream.protocol != "fastcgi":
            self.send(data)
            return
        for start in range(0, len(data), 60_000):
            self.record(STDOUT, data[start:start + 60_000])
        self.record(STDOUT, b"")
        self.record(END, struct.pack(">IB3x", 0, 0))

    def record(self, kind, content):
        self.send(struct.pack(">BBHHBx", 1, kind, 1, len(content), 0) + content)


class CgiUpstream(Upstream):
    def __init__(self, protocol):
        self.protocol = protocol
        super().__init__()

    def serve_one(self, sock, reader):
        variables, body = getattr(self, f"read_{self.protocol}")(reader)
        headers = [(name[5:].replace("_", "-"), value) for name, value in variables.items() if name.startswith("HTTP_")]
        request = message.Request(variables["REQUEST_METHOD"], variables["REQUEST_URI"], "", message.Headers(headers), body)
        with self.changed:
            self.requests.append(request)
            self.counts[request.key] += 1
            execution = len(self.requests)
            script = self.queue.popleft() if self.queue else self.default
            self.changed.notify_all()
        exchange = CgiExchange(self, sock, request, execution)
        script(exchange)
        if not exchange.closed:
            exchange.close()
        return False

    @staticmethod
    def read_fastcgi(reader):
        parameters, body = b"", b""
        while True:
            _, kind, _, length, padding = struct.unpack(">BBHHBx", reader.take(8))
            content = reader.take(length)
            reader.take(padding)
            if kind == PARAMS:
                parameters += content
            elif kind == STDIN:
                if not content:
                    return CgiUpstream.pairs(parameters), body
                body += content

    @staticmethod
    def pairs(data):
        found, place = {}, 0
        while place < len(data):
            lengths = []
            for _ in range(2):
                if data[place] < 128:
                    lengths.append(data[place])
                    place += 1
                else:
                    lengths.append(struct.unpack(">I", data[place:place + 4])[0] & 0x7fffffff)
                    place += 4
            name = data[place:place + lengths[0]].decode("latin-1")
            place += lengths[0]
            found[name] = data[place:place + lengths[1]].decode("latin-1")
            place += lengths[1]
        return found

    @staticmethod
    def read_uwsgi(reader):
        _, size, _ = struct.unpack("<BHB", reader.take(4))
        data, found, place = reader.take(size), {}, 0
        while place < size:
            texts = []
            for _ in range(2):
                length = struct.unpack("<H", data[place:place + 2])[0]
                texts.append(data[place + 2:place + 2 + length].decode("latin-1"))
                place += 2 + length
            found[texts[0]] = texts[1]
        return found, reader.take(int(found.get("CONTENT_LENGTH") or 0))

    @staticmethod
    def read_scgi(reader):
        size = b""
        while not size.endswith(b":"):
            size += reader.take(1)
        texts = reader.take(int(size[:-1])).decode("latin-1").split("\0")[:-1]
        reader.take(1)
        found = dict(zip(texts[::2], texts[1::2]))
        return found, reader.take(int(found.get("CONTENT_LENGTH") or 0))
