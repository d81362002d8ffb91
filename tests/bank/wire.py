"""A network between a bank and PostgreSQL that loses the reply to a chosen COMMIT."""
import os
import socket
import threading

COMMIT = b"Q" + (4 + len("COMMIT\0")).to_bytes(4, "big") + b"COMMIT\0"


class Wire:
    def __init__(self, directory, server):
        """Listens as a server in `directory` and forwards to the one in `server`."""
        self.server, self.lost = server, threading.Event()
        self.lose, self.deaf = 0, None  # the COMMIT, counted from now on, whose reply is lost; the client that does not get it
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(os.path.join(directory, ".s.PGSQL.5432"))
        self.listener.listen(64)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(os.path.join(self.server, ".s.PGSQL.5432"))
            threading.Thread(target=self.forward, args=(client, server), daemon=True).start()
            threading.Thread(target=self.back, args=(server, client), daemon=True).start()

    def forward(self, client, server):
        try:
            while data := client.recv(65536):
                if self.lose and data == COMMIT:
                    self.lose -= 1
                    self.deaf = client if self.lose == 0 else None
                server.sendall(data)
        except OSError:
            pass
        shut(server)

    def back(self, server, client):
        try:
            while data := server.recv(65536):
                if self.deaf is client:  # the server has committed: the reply is lost
                    self.lost.set()
                    break
                client.sendall(data)
        except OSError:
            pass
        shut(client)

    def close(self):
        self.listener.close()


def shut(sock):
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
