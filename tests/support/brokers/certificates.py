"""Certificates for tests of TLS, of an authority that is made for them, and a server whose certificate is bad."""
import os
import socket
import ssl
import subprocess
import threading

NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, timeout=60)


class Certificates:
    """Files of `directory`: authority, stranger (another authority), server, expired and client; each is NAME.crt, and its key
    NAME.key. Servers are 127.0.0.1, and not localhost."""

    def __init__(self, directory):
        self.directory = directory
        for name in ("authority", "stranger"):
            openssl("req", "-x509", *NEW_KEY, "-days", "2", "-subj", f"/CN={name}", "-keyout", self.key(name),
                    "-out", self.file(name))
        self.sign("server", 2)
        self.sign("expired", -1)
        self.sign("client", 2)

    def file(self, name):
        return os.path.join(self.directory, name + ".crt")

    def key(self, name):
        return os.path.join(self.directory, name + ".key")

    def sign(self, name, days):
        request, names = os.path.join(self.directory, name + ".csr"), os.path.join(self.directory, name + ".ext")
        with open(names, "w") as out:
            out.write("subjectAltName=IP:127.0.0.1\n")
        openssl("req", *NEW_KEY, "-subj", f"/CN={name}", "-keyout", self.key(name), "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.file("authority"), "-CAkey", self.key("authority"), "-CAcreateserial",
                "-days", str(days), "-extfile", names, "-out", self.file(name))

    def pem(self, *parts):
        """One file with all of them, as Java wants it."""
        path = os.path.join(self.directory, "-".join(os.path.basename(part) for part in parts) + ".pem")
        with open(path, "w") as out:
            for part in parts:
                with open(part) as source:
                    out.write(source.read())
        return path


class Impostor:
    """A server of TLS with the certificate of that name. `heard` is what clients said to it in spite of the certificate."""

    def __init__(self, certificates, name):
        self.heard, self.visits = [], 0
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificates.file(name), certificates.key(name))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            self.visits += 1
            client.settimeout(10)
            try:
                with self.context.wrap_socket(client, server_side=True) as line:
                    self.heard.append(line.recv(100))
            except OSError:  # the client did not like the certificate
                client.close()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)  # else accept() would go on
        self.listener.close()
