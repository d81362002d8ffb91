#!/usr/bin/python3
"""A connection that loses what matters most: between clients and a server at a UNIX socket, as a process of its own.

    proxy.py LISTEN TARGET LOST SEED RATE [TEXT]

Of messages to the server that contain TEXT ("COMMIT"; empty: of all messages) the share RATE is delivered, and the connection is
cut when the server's reply comes: the server has done it, the client does not know. LOST grows by a byte for each.
"""
import asyncio
import os
import random
import sys

LISTEN, TARGET, LOST, SEED, RATE = sys.argv[1:6]
TEXT = (sys.argv[6] if len(sys.argv) > 6 else "COMMIT").encode()
choice, rate = random.Random(SEED), float(RATE)
lost = os.open(LOST, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


class Near(asyncio.Protocol):
    """The client's side. What comes before the server's side is connected waits."""

    def __init__(self):
        self.transport = self.far = None
        self.early, self.doomed = [], False

    def connection_made(self, transport):
        self.transport = transport
        asyncio.get_running_loop().create_task(self.connect())

    async def connect(self):
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: Far(self), TARGET)
        except OSError:
            self.transport.abort()

    def data_received(self, data):
        if TEXT in data and choice.random() < rate:
            self.doomed = True
        if self.far is None:
            self.early.append(data)
        else:
            self.far.write(data)

    def pause_writing(self):
        self.far.pause_reading()

    def resume_writing(self):
        self.far.resume_reading()

    def connection_lost(self, error):
        if self.far is not None:
            self.far.abort()


class Far(asyncio.Protocol):
    def __init__(self, near):
        self.near = near

    def connection_made(self, transport):
        self.near.far = transport
        transport.writelines(self.near.early)

    def data_received(self, data):
        if self.near.doomed:
            os.write(lost, b".")
            self.near.transport.abort()
        else:
            self.near.transport.write(data)

    def pause_writing(self):
        self.near.transport.pause_reading()

    def resume_writing(self):
        self.near.transport.resume_reading()

    def connection_lost(self, error):
        self.near.transport.abort()


async def main():
    if os.path.exists(LISTEN):
        os.unlink(LISTEN)
    server = await asyncio.get_running_loop().create_unix_server(Near, LISTEN, backlog=256)
    os.chmod(LISTEN, 0o777)  # the directory is private; nginx's workers are another user
    await server.serve_forever()


asyncio.run(main())
