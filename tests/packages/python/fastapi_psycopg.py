"""FastAPI with async handlers, psycopg 3."""
import json

import psycopg
from fastapi import FastAPI, HTTPException, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

import business
import once


def connect():
    return psycopg.AsyncConnection.connect(business.DATABASE, prepare_threshold=None, autocommit=bool(business.STORE))


app = FastAPI()
app.add_middleware(once.ASGIMiddleware)
idempotent = business.guard(connect)


class Payment(BaseModel):
    order: str
    note: object = None
    then: str = ""
    provider: str = ""


async def run(plan):
    op = once.current_async()

    async def execute(text, values):
        if op.connection:
            return await (await op.connection.execute(business.percent(text), values)).fetchone()
        async with await connect() as connection:  # any store: a transaction of its own
            return await (await connection.execute(business.percent(text), values)).fetchone()

    return await business.run_async(plan, op, execute)


@app.post("/payments", status_code=201)
@idempotent
async def payments(payment: Payment, response: Response):
    try:
        answer = await run(business.pay(payment.model_dump()))
    except business.Refused as refused:
        raise HTTPException(429 if refused.later else 402, "refused") from refused
    if answer.body:
        return Response(answer.body, answer.status, media_type=answer.kind)
    if answer.status != 201:
        return JSONResponse(answer.value, answer.status)
    response.headers.update(answer.headers)
    return answer.value  # FastAPI makes the response


@app.post("/payouts", status_code=201)
@idempotent
async def payouts(payment: Payment):
    return (await run(business.pay_out(payment.model_dump()))).value


@app.post("/events")
async def events(event: dict):
    async with await connect() as connection:
        return {"new": await once.bind_async(connection).accept("ledger", json.dumps(event))}


business.serve_asgi(app)
