"""Starlette with asyncpg, or with an AsyncSession of SQLAlchemy on it (DRIVER=sqlalchemy)."""
import json
import os
import uuid

import asyncpg
from sqlalchemy import NullPool
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import business
import once


def connect():
    return asyncpg.connect(business.DATABASE, statement_cache_size=0)


if os.environ.get("DRIVER") == "sqlalchemy":
    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=NullPool, connect_args={
        "prepared_statement_cache_size": 0, "prepared_statement_name_func": lambda: f"once_{uuid.uuid4().hex}"})
    idempotent = business.guard(async_sessionmaker(engine))
else:
    engine = None
    idempotent = business.guard(connect)


async def run(plan):
    op = once.current_async()

    async def execute(text, values):
        if engine:
            return (await (await op.connection.connection()).exec_driver_sql(text, values)).fetchone()
        if op.connection:
            return await op.connection.fetchrow(text, *values)
        connection = await connect()  # any store: a transaction of its own
        try:
            return (await connection.fetch(text, *values))[0]
        finally:
            await connection.close()

    return await business.run_async(plan, op, execute)


@idempotent
async def payments(request):
    try:
        answer = await run(business.pay(await request.json()))
    except business.Refused as refused:
        raise HTTPException(429 if refused.later else 402, "refused") from refused
    if answer.body:
        return Response(answer.body, answer.status, media_type=answer.kind)
    return JSONResponse(answer.value, answer.status, answer.headers)


@idempotent
async def payouts(request):
    return JSONResponse((await run(business.pay_out(await request.json()))).value, 201)


async def events(request):
    connection = await connect()
    try:
        return JSONResponse({"new": await once.bind_async(connection).accept("ledger", json.dumps(await request.json()))})
    finally:
        await connection.close()


app = Starlette(routes=[Route(f"/{handler.__name__}", handler, methods=["POST"]) for handler in (payments, payouts, events)])
app.add_middleware(once.ASGIMiddleware)
business.serve_asgi(app)
