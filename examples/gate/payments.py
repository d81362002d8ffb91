"""Takes payments, and knows nothing of keys: docs/tutorial-gate.md."""
import http.server
import json
import os
import time


class Payments(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with open("/tmp/payments.txt", "a", encoding="utf-8") as file:  # the effect
            file.write(f"{asked['amount']}\n")
        time.sleep(asked.get("slow", 0))
        body = json.dumps({"paid": asked["amount"]}).encode()
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    with http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "3000"))), Payments) as server:
        print("payments: ready", flush=True)
        server.serve_forever()
