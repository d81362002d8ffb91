"""Strings, objects and bytes as psycopg2, psycopg 3 and asyncpg send them. See ../test_drivers.py."""
import asyncio
import base64
import json
import os
import sys

DATABASE, HEADERS = os.environ["DATABASE"], os.environ["HEADERS"]


def examples():
    for line in sys.stdin:
        number, kind, claim, data = line.rstrip("\n").split("\t")
        data = base64.b64decode(data)
        value = {"string": data.decode, "object": lambda: json.loads(data)}.get(kind, lambda: data)()
        yield number, kind, claim, value, "::bytea" if kind == "cast" else ""


def tell(number, error=None):
    print(number, "ok" if error is None else f"{type(error).__name__}: {error}".replace("\n", " "), sep="\t", flush=True)


def with_psycopg(connection, adapt):
    for number, kind, claim, value, cast in examples():
        value = adapt(value) if kind == "object" else value
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT once.complete(%s, %s, %s, %s{cast})", (claim, 201, HEADERS, value))
                cursor.execute(f"SELECT once.emit('drivers', %s, 'made', %s{cast}, %s)", (number, value, HEADERS))
            connection.commit()
            tell(number)
        except Exception as error:  # whatever it is: loud is what counts
            connection.rollback()
            tell(number, error)


async def with_asyncpg():
    import asyncpg

    connection = await asyncpg.connect(DATABASE)
    for number, kind, claim, value, cast in examples():
        value = json.dumps(value, ensure_ascii=False) if kind == "object" else value
        try:
            async with connection.transaction():
                await connection.execute(f"SELECT once.complete($1, $2, $3, $4{cast})", claim, 201, HEADERS, value)
                await connection.execute(f"SELECT once.emit('drivers', $1, 'made', $2{cast}, $3)", number, value, HEADERS)
            tell(number)
        except Exception as error:
            tell(number, error)
    await connection.close()


if sys.argv[1] == "psycopg2":
    import psycopg2
    from psycopg2.extras import Json

    with_psycopg(psycopg2.connect(DATABASE), Json)
elif sys.argv[1] == "psycopg":
    import psycopg
    from psycopg.types.json import Jsonb

    with_psycopg(psycopg.connect(DATABASE), Jsonb)
else:
    asyncio.run(with_asyncpg())
