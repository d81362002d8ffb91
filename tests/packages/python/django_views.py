"""Django with its own connection: views, and ATOMIC_REQUESTS as many projects have it."""
import json
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.core.wsgi import get_wsgi_application
from django.http import Http404, HttpResponse, JsonResponse
from django.urls import path

import business
import once

where = urlsplit(business.DATABASE)
settings.configure(LOGGING_CONFIG=None, ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="of a test", DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql", "HOST": where.hostname, "PORT": where.port, "USER": where.username,
    "NAME": "postgres", "ATOMIC_REQUESTS": not business.STORE, "DISABLE_SERVER_SIDE_CURSORS": True}})
django.setup()
from django.db import connection  # noqa: E402
idempotent = business.guard()


def run(plan):
    def execute(text, values):
        with connection.cursor() as cursor:
            cursor.execute(business.percent(text), values)
            return cursor.fetchone()

    return business.run(plan, once.current(), execute)


@idempotent
def payments(request):
    try:
        answer = run(business.pay(json.loads(request.body)))
    except business.Refused as refused:
        raise PermissionDenied() if refused.later else Http404("refused") from refused
    if answer.body:
        return HttpResponse(answer.body, status=answer.status, content_type=answer.kind)
    return JsonResponse(answer.value, status=answer.status, headers=answer.headers)


@idempotent
def payouts(request):
    return JsonResponse(run(business.pay_out(json.loads(request.body))).value, status=201)


def events(request):
    return JsonResponse({"new": once.bind(connection).accept("ledger", json.dumps(json.loads(request.body)))})


urlpatterns = [path(view.__name__, view) for view in (payments, payouts, events)]
business.serve_wsgi(get_wsgi_application())
