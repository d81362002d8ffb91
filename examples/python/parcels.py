"""Parcels that are sent once, with the records in any store: docs/python.md. The carrier takes its time, and does not know keys."""
import asyncio

from fastapi import FastAPI
from pydantic import BaseModel

import once

app = FastAPI()
app.add_middleware(once.ASGIMiddleware)
idempotent = once.idempotent(once.Store("unix:/tmp/once.sock"), scope="the only client", lease=2)


class Parcel(BaseModel):
    to: str


@app.post("/parcels", status_code=201)
@idempotent
async def send(parcel: Parcel):
    with open("/tmp/sent.txt", "a", encoding="utf-8") as carrier:
        carrier.write(parcel.to + "\n")
    await asyncio.sleep(2)
    return {"sent": parcel.to}
