"""Middleware from PyPI as its documents show it, in front of the payments of README.md.

    peers.py asgi-idempotency-header | fastapi-idempotency-key | django-idempotency-key
"""
import asyncio
import json
import socketserver
import sys
import threading
import time
from wsgiref import simple_server

PAUSE = 0.02  # as long as a quick database takes


class Payments:
    """What is behind each of them."""

    def __init__(self):
        self.count, self.lock = 0, threading.Lock()

    def begin(self, kind, body):
        """An answer, or the effect and its number and what was asked."""
        asked = {"amount": len(body)} if kind == "application/octet-stream" else json.loads(body)
        if not asked.get("amount"):
            return (400, {"error": "which amount?"}), None, asked
        with self.lock:
            self.count += 1
            return None, self.count, asked

    @staticmethod
    def end(number, asked):
        if asked.get("then"):
            return asked["then"], {"error": "failed"}
        return 201, {"id": number, "amount": asked["amount"]}


payments = Payments()


def starlette():
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def pay(request):
        refusal, number, asked = payments.begin(request.headers.get("content-type"), await request.body())
        if refusal:
            return JSONResponse(refusal[1], refusal[0])
        await asyncio.sleep(PAUSE)
        status, answer = payments.end(number, asked)
        return JSONResponse(answer, status, {"Location": f"/payments/{number}"} if status == 201 else {})

    async def executions(_):
        return JSONResponse({"count": payments.count})

    return Starlette(routes=[Route("/payments", pay, methods=["POST"]), Route("/executions", executions)])


def asgi_idempotency_header():
    from idempotency_header_middleware import IdempotencyHeaderMiddleware
    from idempotency_header_middleware.backends import MemoryBackend
    return IdempotencyHeaderMiddleware(starlette(), backend=MemoryBackend())


def fastapi_idempotency_key():
    from fastapi_idempotency_key import IdempotencyMiddleware, MemoryBackend
    app = starlette()
    app.add_middleware(IdempotencyMiddleware, backend=MemoryBackend(), header_name="Idempotency-Key", default_ttl=86400)
    return app


def django_idempotency_key():
    """Its default answer to a repetition is 409; None is its setting for the answer of the first request."""
    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.http import JsonResponse
    from django.urls import path

    def pay(request):
        refusal, number, asked = payments.begin(request.content_type, request.body)
        if refusal:
            return JsonResponse(refusal[1], status=refusal[0])
        time.sleep(PAUSE)
        status, answer = payments.end(number, asked)
        return JsonResponse(answer, status=status, headers={"Location": f"/payments/{number}"} if status == 201 else {})

    def executions(_):
        return JsonResponse({"count": payments.count})

    settings.configure(ALLOWED_HOSTS=["*"], SECRET_KEY="none", ROOT_URLCONF=__name__,
                       MIDDLEWARE=["idempotency_key.middleware.IdempotencyKeyMiddleware"],
                       IDEMPOTENCY_KEY={"CONFLICT_STATUS_CODE": None})
    django.setup()
    globals()["urlpatterns"] = [path("payments", pay), path("executions", executions)]
    return get_wsgi_application()


def run_asgi(app):
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            tell(self.servers[0].sockets[0].getsockname()[1])

    Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off")).run()


def run_wsgi(app):
    class Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
        daemon_threads = True
        request_queue_size = 128

    class Handler(simple_server.WSGIRequestHandler):
        def log_message(self, format, *args):  # pylint: disable=redefined-builtin
            pass

    with simple_server.make_server("127.0.0.1", 0, app, Server, Handler) as server:
        tell(server.server_address[1])
        server.serve_forever()


def tell(port):
    print(f"listening on http://127.0.0.1:{port}", flush=True)


PEERS = {
    "asgi-idempotency-header": (run_asgi, asgi_idempotency_header),
    "fastapi-idempotency-key": (run_asgi, fastapi_idempotency_key),
    "django-idempotency-key": (run_wsgi, django_idempotency_key),
}

if __name__ == "__main__":
    run, make = PEERS[sys.argv[1]]
    run(make())
