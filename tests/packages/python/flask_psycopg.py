"""Flask with psycopg2, or with psycopg 3 (DRIVER=psycopg)."""
import json
import os

from flask import Flask, Response, abort, jsonify, request

import business
import once

if os.environ.get("DRIVER") == "psycopg":
    import psycopg

    def connect():
        return psycopg.connect(business.DATABASE, prepare_threshold=None)
else:
    import psycopg2

    def connect():
        return psycopg2.connect(business.DATABASE)

app = Flask(__name__)
idempotent = business.guard(connect)


def run(plan):
    op = once.current()

    def execute(text, values):
        connection = op.connection or connect()
        if connection is not op.connection:  # any store: a transaction of its own
            connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(business.percent(text), values)
            return cursor.fetchone()

    return business.run(plan, op, execute)


@app.post("/payments")
@idempotent
def payments():
    try:
        answer = run(business.pay(request.get_json()))
    except business.Refused as refused:
        abort(429 if refused.later else 404)
    if answer.body:
        return Response(answer.body, answer.status, content_type=answer.kind)
    return jsonify(answer.value), answer.status, answer.headers


@app.post("/payouts")
@idempotent
def payouts():
    return jsonify(run(business.pay_out(request.get_json())).value), 201


@app.post("/events")
def events():
    connection = connect()
    with connection:
        new = once.bind(connection).accept("ledger", json.dumps(request.get_json()))
    connection.close()
    return {"new": new}


business.serve_wsgi(app)
