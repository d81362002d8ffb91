"""Clients that go away in the middle, by every way there is: one face for HTTP/1.1 and HTTP/2."""

WAYS = ["h1-fin", "h1-reset", "h2-stream", "h2-fin", "h2-reset"]


class Leaver:
    def __init__(self, gw, way):
        self.protocol, self.way = way.split("-")
        self.client = gw.connect() if self.protocol == "h1" else gw.connect2()
        self.number = None

    def begin(self, key, body, sent, target="/"):
        """The head, and the first `sent` bytes of the body."""
        if self.protocol == "h1":
            self.client.begin("POST", target, key, body)
            self.client.send(body[:sent])
        else:
            self.number = self.client.begin("POST", target, key, body)
            if sent:
                self.client.send_data(self.number, body[:sent], end=False)

    def start(self, key, body=b"a", target="/", headers=()):
        self.number = self.client.start("POST", target, key, body, headers)

    def read_some(self, size):
        """Until that much of the response's body is here, or a little more."""
        if self.protocol == "h1":
            while len(self.client.reader.buffer) < size:
                self.client.reader.fill()
        else:
            while len(self.client.streams[self.number].body) < size:
                self.client.pump()

    def leave(self):
        if self.way == "stream":
            self.client.reset_stream(self.number)
            self.client.ping()  # the gateway has read it
        elif self.way == "fin":
            self.client.close()
        else:
            self.client.reset()
