"""`once gate` as a process of its own, on a new local store, in front of a backend of the test."""
import http.server
import os
import shutil
import signal
import subprocess
import tempfile
import threading

from processes import alive, descendants, send
from waiting import until

BUILD = os.environ["ONCE_BUILD"]
ONCE = os.path.join(BUILD, "once")
PATIENCE = 60


class Gate:
    """Serves at `address` when it is made. Options are added to the command line."""

    def __init__(self, upstream, port, *options):
        self.directory = tempfile.mkdtemp(prefix="once-gate-")
        os.chmod(self.directory, 0o755)  # the workers have another user if root runs the tests
        self.address = f"http://127.0.0.1:{port}"
        self.store = f"local:{self.directory}/store"
        self.command = ["setpriv", "--pdeathsig", "TERM", "--", ONCE, "gate", "--upstream", str(upstream), "--listen",
                        f"127.0.0.1:{port}", "--module", os.path.join(BUILD, "ngx_http_once_module.so"), "--store", self.store,
                        *options, *(["--user", "nobody"] if os.geteuid() == 0 else [])]
        self.process = None
        self.start()

    def start(self):
        with open(os.path.join(self.directory, "log"), "wb") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory,
                                            env={**os.environ, "TMPDIR": self.directory})
        until(self.is_ready, self.log, PATIENCE)

    def kill(self):
        """kill -9, with nginx. start() goes on with the same store at the same address."""
        processes = descendants(self.process.pid)
        send(signal.SIGKILL, processes)
        self.process.wait(PATIENCE)
        until(lambda: not any(alive(pid) for pid in processes), "the end of the gate", PATIENCE)

    def log(self):
        with open(os.path.join(self.directory, "log"), encoding="utf-8", errors="replace") as log:
            return log.read()

    def is_ready(self):
        assert self.process.poll() is None, self.log()
        return "once gate: ready\n" in self.log()

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE)
        shutil.rmtree(self.directory)
        return code


class Handler(http.server.BaseHTTPRequestHandler):
    """For backends of tests: HTTP/1.1 without a log, and answers with a length."""
    protocol_version = "HTTP/1.1"

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass


def serve(handler, port=0):
    """A server of that handler in threads of its own; its port is server.server_address[1]."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
