"""An HTTP endpoint of the campaign: writes what it got to a file, and answers after that. It can be killed.

    campaign_sink.py PORT FILE MOOD SEED

Lines are "ID KEY NUMBER"; the number is -1 where the payload is not what it was. MOOD is a file of one byte, which says how
the topic `sick` is: w(ell), 5 (503), h(angs), c(uts the connection). Now and then a reply is lost after its line was written.
"""
import asyncio
import mmap
import os
import random
import sys
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from campaign import number_of  # noqa: E402

PORT, FILE, MOOD, SEED = sys.argv[1:5]
lines = os.open(FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
with open(MOOD, "rb") as file:
    mood = mmap.mmap(file.fileno(), 1, prot=mmap.PROT_READ)
choice = random.Random(SEED)


class Connection(asyncio.Protocol):
    def __init__(self):
        self.transport, self.data, self.need = None, bytearray(), 0

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.data += data
        while len(self.data) >= self.need:
            end = self.data.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self.data[:end]).split(b"\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in head[1:])}
            self.need = end + 4 + int(headers[b"content-length"])
            if len(self.data) < self.need:
                return
            body = bytes(self.data[end + 4:self.need])
            del self.data[:self.need]
            self.need = 0
            self.request(head[0].split()[1].decode(), headers, body)

    def request(self, path, headers, body):
        _, topic, key = path.split("/")
        state = mood[:1] if topic == "sick" else b"w"
        if state == b"5":
            self.transport.write(b"HTTP/1.1 503 Later\r\nContent-Length: 0\r\n\r\n")
        elif state == b"c":
            self.transport.abort()
        elif state == b"w":
            os.write(lines, b"%s %s %d\n" % (headers[b"ce-id"], urllib.parse.unquote(key).encode(), number_of(body)))
            if choice.random() < 0.0005:
                self.transport.abort()
            else:
                self.transport.write(b"HTTP/1.1 204 Done\r\n\r\n")


async def main():
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", int(PORT), backlog=256)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
