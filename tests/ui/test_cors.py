"""A page of another origin that pays through a gate, in Debian's Chromium: cors.mjs is the person. The gate has the headers of the
recipe in docs/gateway.md, word for word."""
import json
import os
import re
import shutil
import subprocess
import threading

import pytest

from brokers import free_port
from gate import PATIENCE, Gate, Handler, serve
from node import packages

HERE = os.path.dirname(os.path.abspath(__file__))
PLACE = os.path.join(os.environ["ONCE_BUILD"], "ui")
RECIPE = os.path.join(os.path.dirname(os.path.dirname(HERE)), "docs", "gateway.md")


class Shop(Handler):
    """Pays whenever it is asked to. It answers preflights for the key, except for /closed."""
    payments, preflights, keys = [], [], []
    paying, may_answer = threading.Event(), threading.Event()

    def do_OPTIONS(self):  # pylint: disable=invalid-name
        self.preflights.append((self.path, self.headers["Access-Control-Request-Headers"]))
        allowed = "content-type, authorization" + ("" if self.path == "/closed" else ", idempotency-key")
        self.answer(204, Access_Control_Allow_Methods="POST", Access_Control_Allow_Headers=allowed)

    def do_POST(self):  # pylint: disable=invalid-name
        amount = json.loads(self.body())["amount"]
        self.payments.append(self.path)
        self.keys.append(self.headers["Idempotency-Key"])
        number = len(self.payments)
        if self.path == "/slow":
            self.paying.set()
            assert self.may_answer.wait(PATIENCE)
        self.answer(201, json.dumps({"id": f"pay_{number}", "amount": amount}).encode(), Content_Type="application/json")

    def do_GET(self):  # pylint: disable=invalid-name
        if self.path == "/paying":
            assert self.paying.wait(PATIENCE)
        elif self.path == "/answer":
            self.may_answer.set()
        self.answer(200, b"{}", Content_Type="application/json")


class Page(Handler):
    """The page, of an origin of its own."""

    def do_GET(self):  # pylint: disable=invalid-name
        with open(os.path.join(HERE, "cors.html"), "rb") as file:
            self.answer(200, file.read(), Content_Type="text/html; charset=utf-8")


def recipe(origin):
    """The options of the recipe, with the origin of the page."""
    with open(RECIPE, encoding="utf-8") as file:
        text = re.search(r"^### Browsers\n.*?(?=^### )", file.read(), re.M | re.S).group(0)
    found = re.findall(r"--set '(add_header [^']+)'", text)
    assert len(found) == 2, text
    return [word for line in found for word in ("--set", line.replace("https://shop.example.com", origin))]


@pytest.fixture(name="modules")
def fetch_modules():
    if not shutil.which("chromium"):
        pytest.skip("chromium is not there: the page cannot be tried in a browser")
    return packages(HERE, PLACE)


def test_in_a_browser(modules):
    shop, page = serve(Shop), serve(Page)
    origin = f"http://localhost:{page.server_address[1]}"
    gate = Gate(shop.server_address[1], free_port(), "--set", "once_retry_after 1", "--route", "POST /", "--route",
                "POST /payments wait=30s", *recipe(origin))
    done = subprocess.run(["node", os.path.join(HERE, "cors.mjs"), origin, gate.address, modules], cwd=modules,
                          capture_output=True, text=True, check=False, timeout=300)
    print(done.stdout, done.stderr)
    assert done.returncode == 0 and done.stdout.count("ok: ") == 6
    assert gate.close() == 0
    shop.shutdown()
    page.shutdown()
    # one for the page's first payment, one for two clicks, one whose answer was lost, and two of a browser that makes its own keys
    assert Shop.payments == ["/payments", "/payments", "/slow", "/own", "/own"]
    assert len(set(Shop.keys)) == 5
    asked = {path: headers for path, headers in Shop.preflights}
    assert "idempotency-key" in asked["/payments"] and "idempotency-key" in asked["/closed"]
