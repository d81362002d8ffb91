"""Strings, objects and bytes as psycopg2, psycopg 3 and asyncpg send them. See ../test_drivers.py."""
import asyncio
import base64
import json
import os
import sys

DATABASE, HEADERS = os.environ["DATABASE"], os.environ["HEADERS"]


def examples(adapt, place):
    """The number of each example, its statement and its arguments. `place` is how the driver writes the n-th argument."""
    for line in sys.stdin:
        number, call, kind, name, data = line.rstrip("\n").split("\t")
        data = base64.b64decode(data)
        value = {"string": data.decode, "object": lambda: adapt(json.loads(data))}.get(kind, lambda: data)()
        at = [place(n) for n in range(1, 5)]
        cast = "::bytea" if kind == "cast" else ""
        yield number, *{
            "complete": (f"SELECT once.complete({at[0]}, {at[1]}, {at[2]}, {at[3]}{cast})", (name, 201, HEADERS, value)),
            "emit": (f"SELECT once.emit('drivers', {at[0]}, 'made', {at[1]}{cast}, {at[2]})", (name, value, HEADERS)),
            "claim": (f"INSERT INTO answers SELECT {at[0]}, outcome FROM once.claim('drivers', {at[1]}, 'POST', '/', "
                      f"{at[2]}{cast}, lease => '1 hour')", (name, name, value)),
            "settle": (f"SELECT once.settle({at[0]}, 'completed', {at[1]}, {at[2]}, {at[3]}{cast}, force => true)",
                       (name, 201, HEADERS, value)),
        }[call]


def tell(number, error=None):
    print(number, "ok" if error is None else f"{type(error).__name__}: {error}".replace("\n", " "), sep="\t", flush=True)


def with_psycopg(connection, adapt):
    for number, statement, arguments in examples(adapt, lambda n: "%s"):
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement, arguments)
            connection.commit()
            tell(number)
        except Exception as error:  # whatever it is: loud is what counts
            connection.rollback()
            tell(number, error)


async def with_asyncpg():
    import asyncpg

    connection = await asyncpg.connect(DATABASE)
    for number, statement, arguments in examples(lambda value: json.dumps(value, ensure_ascii=False), lambda n: f"${n}"):
        try:
            async with connection.transaction():
                await connection.execute(statement, *arguments)
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
