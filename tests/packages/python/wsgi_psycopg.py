"""Plain WSGI below the middleware, psycopg 3."""
import json

import psycopg

import business
import once


def connect():
    return psycopg.connect(business.DATABASE, prepare_threshold=None, autocommit=bool(business.STORE))


def run(plan):
    op = once.current()

    def execute(text, values):
        if op.connection:
            return op.connection.execute(business.percent(text), values).fetchone()
        with connect() as connection:  # any store: a transaction of its own
            return connection.execute(business.percent(text), values).fetchone()

    return business.run(plan, op, execute)


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


business.serve_wsgi(once.WSGIMiddleware(app, business.guard(connect), lambda request: request.target != "/events"))
