#!/usr/bin/env python3
"""A stand-in for an outside provider that pays: deduplicates by key, and counts. The tests let it lose requests and answers,
and refuse.

    provider.py [PORT]     POST /payments {"destination", "amount", "currency"} with Idempotency-Key; GET /payments: all of them
"""
import http.server
import json
import sys
import threading


class Provider:
    def __init__(self, port=0):
        self.paid, self.asked = {}, []  # key: id; every key as it came
        self.lose_requests = self.lose_answers = 0
        self.refuse, self.stray = False, None  # for good; an answer that is none of the provider's
        self.lock = threading.Lock()
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):  # pylint: disable=invalid-name
                provider.handle(self)

            def do_GET(self):  # pylint: disable=invalid-name
                provider.answer(self, 200, {"asked": len(provider.asked), "payments": list(provider.paid.values())})

            def log_message(self, *_):  # pylint: disable=arguments-differ
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/payments"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def handle(self, request):
        key = request.headers["Idempotency-Key"]
        wish = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        with self.lock:
            self.asked.append(key)
            if self.lose_requests:
                self.lose_requests -= 1
                request.close_connection = True
                return
            if self.refuse:
                status, body = 422, {"error": "no such destination"}
            else:
                payment = self.paid.setdefault(key, {"id": f"pay-{len(self.paid) + 1}", **wish})
                status, body = 201, {"id": payment["id"]}
            if self.stray:
                status, body = self.stray
            if self.lose_answers:
                self.lose_answers -= 1
                request.close_connection = True
                return
        self.answer(request, status, body)

    @staticmethod
    def answer(request, status, body):
        data = json.dumps(body).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


if __name__ == "__main__":
    print("provider: listening on", Provider(int(sys.argv[1]) if len(sys.argv) > 1 else 0).url, flush=True)
    threading.Event().wait()
