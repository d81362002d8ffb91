"""A gateway as a test sees it: nginx with the module, a store, an upstream, and clients for them."""
import os
import re
import socket
import subprocess

from . import environment, http1, http2
from .disk import Disk
from .nginx import Nginx
from .store import Store
from .upstream import Upstream

HEAD = """\
{before}
load_module {module};
{user}
worker_processes {workers};
daemon off;
pid {directory}/nginx.pid;
error_log stderr {level};
{main}
events {{
    worker_connections 512;
}}
http {{
    client_body_temp_path {directory}/client_body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    access_log off;
    proxy_http_version 1.1;
    once_store {store};
    upstream backend {{ server {upstream}; }}
    {http}
    server {{
        listen {address}:{port};
        listen {address}:{port2} http2;
        {tls}
        {server}
        {locations}
    }}
}}
"""

TLS = """\
listen {address}:{port_tls} ssl http2;
        ssl_certificate {certificate};
        ssl_certificate_key {key};
"""

GUARD = "once on; once_scope $http_x_scope optional; proxy_pass http://backend;"

next_port = [10000]


def load(*names):
    """load_module lines of packaged modules: in `main` they follow the one of the gateway, in `before` they precede it."""
    return " ".join(f"load_module {environment.MODULES}/{name}.so;" for name in names)


LUA = load("ndk_http_module", "ngx_http_lua_module")
LUA_HTTP = 'lua_package_path "/usr/share/lua/5.1/?.lua;;"; lua_shared_dict runs 1m; lua_socket_log_errors off;'


def take_port():
    """No other process takes ports on our own address: counting is enough."""
    next_port[0] += 1
    return next_port[0]


def make_certificate(directory):
    certificate, key = os.path.join(directory, "certificate.pem"), os.path.join(directory, "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=gateway", "-addext", "subjectAltName=DNS:gateway,DNS:localhost,IP:127.0.0.1",
                    "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


class Gateway:
    def __init__(self, directory, rules="", locations=None, http="", server="", main="", before="", workers=1, store=None, tls=None,
                 upstream=None, guard=GUARD, disk=False):
        """`rules` go into the location / that is guarded; `locations` replaces it as text. @directory@, @upstream@, @address@
        and @port@ in any part become what they are here."""
        self.directory = str(directory)
        self.host = environment.address()
        self.port, self.port2, self.port_tls = take_port(), take_port(), take_port()
        self.upstream = upstream or Upstream()
        self.store = Store(store or f"local:{self.directory}/store?segment=1m")
        self.tls = tls
        self.parts = {"rules": rules, "locations": locations, "http": http, "server": server, "main": main, "before": before,
                      "workers": workers, "guard": guard}
        self.disk = Disk(self.directory) if disk else None
        self.nginx = Nginx(self.directory, self.configuration(), workers, self.disk.variables if disk else None)
        self.clients = []

    def configuration(self):
        parts = self.parts
        locations = parts["locations"]
        if locations is None:
            locations = "location / { %s %s }" % (parts["guard"], parts["rules"])
        tls = ""
        if self.tls:
            tls = TLS.format(address=self.host, port_tls=self.port_tls, certificate=self.tls[0], key=self.tls[1])
        text = HEAD.format(module=environment.MODULE, user="user root;" if environment.ROOT else "", workers=parts["workers"],
                           directory=self.directory, level=environment.LEVEL, main=parts["main"], before=parts["before"],
                           store=self.store.url, upstream=self.upstream.name, http=parts["http"], server=parts["server"],
                           locations=locations,
                           address=self.host, port=self.port, port2=self.port2, tls=tls)
        if environment.version() >= (1, 25, 1):  # it is a directive, and the parameter of listen is warned of
            text = re.sub(r"(listen [^;]*) http2;", r"\1;", text).replace("    server {", "    server { http2 on;", 1)
        for name, value in (("directory", self.directory), ("upstream", self.upstream.name), ("address", self.host),
                            ("port", str(self.port))):
            text = text.replace(f"@{name}@", value)
        return text

    def reconfigure(self, **parts):
        """Writes the configuration with some parts changed; a reload uses it."""
        self.parts.update(parts)
        self.nginx.workers = self.parts["workers"]
        self.nginx.write(self.configuration())

    def start(self):
        self.nginx.start()
        return self

    # --------------------------------------------------------------------------------------------------- clients

    def connect(self, tls=False):
        """HTTP/1.1."""
        address = (self.host, self.port_tls if tls else self.port)
        client = http1.Connection(address, self.tls[0] if tls else None)
        self.clients.append(client)
        return client

    def connect2(self, tls=False):
        """HTTP/2."""
        address = (self.host, self.port_tls if tls else self.port2)
        client = http2.Connection(address, self.tls[0] if tls else None)
        self.clients.append(client)
        return client

    def request(self, method="POST", target="/", key=None, body=None, headers=(), **options):
        """On a connection of its own."""
        with self.connect() as client:
            return client.request(method, target, key, body, headers, **options)

    def post(self, key=None, body=b'{"amount":1}', target="/", headers=(), scope=None, **options):
        headers = list(headers) + ([("X-Scope", scope)] if scope is not None else [])
        return self.request("POST", target, key, body, headers, **options)

    # ------------------------------------------------------------------------------------------------------- end

    def close(self):
        """All processes end in an orderly way, and none logged an error."""
        if self.disk:
            self.disk.heal()
        for client in self.clients:
            try:
                client.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            client.close()
        try:
            if self.nginx.running:
                self.nginx.quit()
            complaints = self.nginx.complaints() if self.nginx.log else []
            assert not complaints, "nginx complained:\n" + "\n".join(complaints)
        finally:
            self.nginx.destroy()
            self.upstream.close()
