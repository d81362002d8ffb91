"""FastAPI with blocking handlers, which run in threads; a SQLAlchemy session."""
import json

from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from sqlalchemy import NullPool, create_engine
from sqlalchemy.orm import sessionmaker

import business
import once

engine = create_engine(business.DATABASE.replace("postgres://", "postgresql+psycopg://"), poolclass=NullPool,
                       connect_args={"prepare_threshold": None})
Session = sessionmaker(engine)
app = FastAPI()
app.add_middleware(once.ASGIMiddleware)
idempotent = business.guard(Session, lambda request: "tenant-7")


def run(plan):
    op = once.current()

    def execute(text, values):
        if op.connection:
            return op.connection.connection().exec_driver_sql(business.percent(text), values).fetchone()
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:  # any store
            return connection.exec_driver_sql(business.percent(text), values).fetchone()

    return business.run(plan, op, execute)


async def asked_of(request: Request):
    return await request.json()


@app.post("/payments", status_code=201)
@idempotent
def payments(response: Response, asked: dict = Depends(asked_of)):
    try:
        answer = run(business.pay(asked))
    except business.Refused as refused:
        raise HTTPException(429 if refused.later else 402, "refused") from refused
    if answer.body:
        return Response(answer.body, answer.status, media_type=answer.kind)
    if answer.status != 201:
        return JSONResponse(answer.value, answer.status)
    response.headers.update(answer.headers)
    return answer.value


@app.post("/payouts", status_code=201)
@idempotent
def payouts(asked: dict = Depends(asked_of)):
    return run(business.pay_out(asked)).value


@app.post("/events")
def events(event: dict):
    with Session.begin() as session:
        return {"new": once.bind(session).accept("ledger", json.dumps(event))}


business.serve_asgi(app)
