"""Plain WSGI below the middleware, psycopg 3."""
import json

import psycopg

import business
import once


def connect():
    return psycopg.connect(business.DATABASE, prepare_threshold=None)


def run(plan):
    op = once.current()
    return business.run(plan, op, lambda text, values: op.connection.execute(business.percent(text), values).fetchone())


def app(environ, start_response):
    asked = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
    if environ["PATH_INFO"] == "/events":
        with connect() as connection:
            answer = business.Answer(200, {"new": once.bind(connection).accept("ledger", json.dumps(asked))})
    else:
        answer = run((business.pay if environ["PATH_INFO"] == "/payments" else business.pay_out)(asked))
    body = answer.body or json.dumps(answer.value).encode()
    start_response(f"{answer.status} Status", [("Content-Type", answer.kind), *answer.headers.items()])
    return [body]


guard = once.idempotent(connect, scope="tenant-7")
business.serve_wsgi(once.WSGIMiddleware(app, guard, lambda request: request.target != "/events"))
