"""The page in Debian's Chromium: browser.mjs is the person. Pictures are left in the build directory, ui/."""
import http.server
import os
import shutil
import subprocess
import threading

import pytest

from brokers import free_port
from node import packages
from page import BUILD, ONCE, PATIENCE, Page, Seed
from waiting import until

HERE = os.path.dirname(os.path.abspath(__file__))
PLACE = os.path.join(BUILD, "ui")


@pytest.fixture(name="modules")
def fetch_modules():
    if not shutil.which("chromium"):
        pytest.skip("chromium is not there: the page cannot be tried in a browser")
    return packages(HERE, PLACE)


class Numbers(http.server.BaseHTTPRequestHandler):
    """A gate that has more to say each time; anything else is another site. And a handler of messages, which refuses them until
    somebody asks for /mended."""
    asked, status = 0, 400

    def do_POST(self):  # pylint: disable=invalid-name
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(Numbers.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self):  # pylint: disable=invalid-name
        Numbers.asked += 1
        Numbers.status = 204 if self.path == "/mended" else Numbers.status
        is_metrics = self.path == "/metrics"
        text = f"""once_requests_total{{route="POST /payments",outcome="run"}} {100 * Numbers.asked}
once_requests_total{{route="POST /payments",outcome="replay"}} {100 * Numbers.asked}
once_in_flight{{route="POST /payments"}} 3
once_claim_seconds_bucket{{route="POST /payments",le="0.001"}} {90 * Numbers.asked}
once_claim_seconds_bucket{{route="POST /payments",le="0.01"}} {100 * Numbers.asked}
once_claim_seconds_bucket{{route="POST /payments",le="+Inf"}} {100 * Numbers.asked}
once_build_info{{version="0.2.0",nginx="1.22.1"}} 1
""" if is_metrics else "<!doctype html><title>another site</title>"
        self.send_response(200)
        self.send_header("Content-Type", "text/plain" if is_metrics else "text/html")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass


@pytest.fixture(name="other")
def serve_numbers():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Numbers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://localhost:{server.server_address[1]}/"
    server.shutdown()


class Messages:
    """A consumer whose handler refuses two messages, one of them with a hostile id, and the page of its store."""

    def __init__(self, broker, handler, store):
        port = free_port()
        broker.create("orders")
        broker.create("orders.dlq")
        broker.publish("orders", [{"body": b"{}", "headers": {"ce_id": name, "ce_partitionkey": "k"}}
                                  for name in ("<img src=x onerror=alert(4)>", "event-2")])
        self.consumer = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", ONCE, "consume", broker.url("orders"), "--to",
                                          handler, "--store", store, "--metrics", str(port)], stderr=subprocess.DEVNULL)
        until(lambda: broker.count("orders.dlq")[0] == 2, "letters", PATIENCE)
        self.page = Page(store, "--role", "operate", "--dlq", broker.url("orders.dlq"), "--consume",
                         f"http://127.0.0.1:{port}/metrics")

    def close(self):
        self.consumer.terminate()
        assert self.consumer.wait(PATIENCE) == 0 and self.page.close() == 0


def test_in_a_browser(modules, other, tmp_path, rabbitmq):
    store, second = f"local:{tmp_path}/store", f"local:{tmp_path}/second"
    seed = Seed(store)
    seed.make("completed", "order-1", "POST /payments", b"<script>alert(3)</script>\xff")
    for key in ("order-2", "order-3"):
        seed.make("unknown", key, "POST /payments")
    seed.make("unknown", "<img src=x onerror=alert(1)>", "POST /<script>alert(2)</script>")
    seed.make("pending", "retry-4", "POST /transfers")
    seed.make("failed", "order-5", "POST /payments")
    seed.make("many", "bulk-", 120)
    seed.close()
    seed = Seed(second)
    seed.make("unknown", "order-6", "POST /payouts")
    seed.close()
    page = Page(store, "--role", "operate", "--gate", other + "metrics", "--relay", "http://127.0.0.1:1/metrics")
    viewer = Page(second)
    messages = Messages(rabbitmq, other + "handler", f"local:{tmp_path}/third")
    client = page.client()
    until(lambda: not any(row["lease_ms"] for row in client.get("/api/records?stuck=1").json["records"]), "leases to end", PATIENCE)
    page.again()  # the token was used
    done = subprocess.run(["node", os.path.join(HERE, "browser.mjs"), page.address, viewer.address, other, modules, ONCE, store,
                           messages.page.address], cwd=modules, capture_output=True, text=True, check=False, timeout=500)
    print(done.stdout, done.stderr)
    assert done.returncode == 0 and done.stdout.count("ok: ") == 12
    assert page.close() == 0 and viewer.close() == 0
    assert rabbitmq.count("orders.dlq") == (0, 0)
    messages.close()
