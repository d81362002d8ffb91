"""A connection that a test can stop at any message, cut, or let go on: between backend and database, or gateway and backend."""
import socket
import threading

from harness.upstream import reset
from harness.wait import PATIENCE, Timeout


class Stop:
    """Where the next message with this text in it waits."""

    def __init__(self, text, back):
        self.text, self.back = text, back
        self.reached, self.decided = threading.Event(), threading.Event()
        self.forward = True

    def is_in(self, data):
        """Some drivers write COMMIT in small letters."""
        return self.text in data or self.text.lower() in data

    def wait(self):
        if not self.reached.wait(PATIENCE * 2):
            raise Timeout(f"no message with {self.text!r} came by")

    def go(self):
        """The message is delivered."""
        self.decided.set()

    def cut(self):
        """The message is lost, and the connection with it."""
        self.forward = False
        self.decided.set()


class Wire:
    """Listens at `port`, or at `path`, and passes everything on to `target`, which may change: a path (UNIX), or (host, port)."""

    def __init__(self, target, path=None):
        self.target = target
        self.lock = threading.Lock()
        self.stops, self.ends, self.said = [], [], []
        if path:
            self.listener, self.name = socket.socket(socket.AF_UNIX), path
            self.listener.bind(path)
            self.listener.listen(128)
        else:
            self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
            self.port = self.listener.getsockname()[1]
            self.name = f"127.0.0.1:{self.port}"
        threading.Thread(target=self.accept, daemon=True).start()

    def stop_at(self, text, back=False):
        """`back`: in what the target answers."""
        stop = Stop(text, back)
        with self.lock:
            self.stops.append(stop)
        return stop

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                if isinstance(self.target, str):
                    far = socket.socket(socket.AF_UNIX)
                    far.connect(self.target)
                else:
                    far = socket.create_connection(self.target)
            except OSError:
                reset(near)
                continue
            for sock in (near, far):
                if sock.family == socket.AF_INET:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.ends.append((near, far))
            for source, sink, back in ((near, far, False), (far, near, True)):
                threading.Thread(target=self.pump, args=(source, sink, back), daemon=True).start()

    def pump(self, source, sink, back):
        try:
            while data := source.recv(65536):
                if not self.may_pass(data, back):
                    for sock in (source, sink):
                        end(sock)
                    return
                sink.sendall(data)
        except OSError:
            pass
        end(sink, socket.SHUT_WR)

    def may_pass(self, data, back):
        with self.lock:
            if not back:
                self.said.append(data)
            found = next((stop for stop in self.stops if stop.back == back and stop.is_in(data)), None)
            if not found:
                return True
            self.stops.remove(found)
        found.reached.set()
        found.decided.wait(PATIENCE * 4)
        return found.forward

    def divert(self, target):
        """To another target, also what is in the pool of a program."""
        self.target = target
        self.cut()

    def cut(self):
        """All connections that there are."""
        with self.lock:
            ends, self.ends = self.ends, []
        for pair in ends:
            for sock in pair:
                end(sock)

    def close(self):
        self.listener.close()
        with self.lock:
            stops, self.stops = self.stops, []
        for stop in stops:
            stop.cut()
        self.cut()


def end(sock, how=socket.SHUT_RDWR):
    try:
        sock.shutdown(how)
    except OSError:
        pass
