"""A network that fails between a client and the gateway: an HTTP/1.1 forwarder that loses requests and responses on purpose."""
import random
import socket
import threading

from . import http1, message
from .upstream import reset

FAULTS = ["lose request", "lose response", "half request", "half response", "impatient"]


class Chaos:
    def __init__(self, gw, seed, share=0.5, faults=FAULTS):
        self.gw, self.random, self.share, self.faults = gw, random.Random(seed), share, list(faults)
        self.lock = threading.Lock()
        self.done = dict.fromkeys(["none", *faults], 0)
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(128)
        self.port = self.listener.getsockname()[1]
        self.sockets = []
        threading.Thread(target=self.accept, daemon=True).start()

    def choose(self):
        with self.lock:
            name = self.random.choice(self.faults) if self.random.random() < self.share else "none"
            self.done[name] += 1
            return name

    def accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.sockets.append(sock)
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        reader = message.Reader(sock)
        try:
            while self.exchange(sock, reader.request()):
                pass
        except (message.Closed, OSError):
            pass
        sock.close()

    def exchange(self, sock, request):
        """Forwards one request, with one fault at most; False: the client's connection is gone."""
        fault = self.choose()
        if fault == "lose request":
            reset(sock)
            return False
        data = message.head(f"{request.method} {request.target} HTTP/1.1", request.headers) + request.body
        with http1.Connection((self.gw.host, self.gw.port)) as to_gateway:
            to_gateway.send(data[:-3] if fault == "half request" else data)
            if fault == "half request":
                reset(sock)
                return False
            if fault == "impatient":  # hangs up on both sides, maybe before the gateway has read anything
                reset(sock)
                to_gateway.reset()
                return False
            to_gateway.waiting.append(request.method)
            response = to_gateway.finish()
        return self.answer(sock, response, fault)

    @staticmethod
    def answer(sock, response, fault):
        fields = [(name, value) for name, value in response.headers if name.lower() not in ("transfer-encoding", "content-length")]
        fields.append(("Content-Length", len(response.body)))
        data = message.head(f"HTTP/1.1 {response.status} {response.reason}", fields) + response.body
        if fault == "lose response":
            reset(sock)
            return False
        if fault == "half response":
            sock.sendall(data[:-5])
            sock.close()
            return False
        sock.sendall(data)
        return response.header("Connection") != "close"

    def close(self):
        self.listener.close()
        for sock in self.sockets:
            sock.close()
