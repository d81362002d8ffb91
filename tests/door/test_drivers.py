"""What drivers send for a string, an object or bytes arrives byte for byte, or fails loudly: never as something else."""
import base64
import functools
import json
import os
import shutil
import subprocess
import sys

import pytest

from backends import PLACE, in_node, run

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "drivers")
DRIVERS = ("psycopg2", "psycopg", "asyncpg", "node-pg", "pgx", "lib/pq", "jdbc")
HEADERS = '{"Content-Type": "application/json", "X-Odd": "a\\"b\\\\c"}'
CALLS = ("complete", "emit", "claim", "settle")
JAR = "/usr/share/java/postgresql.jar"

STRINGS = ['{"n": 1}', '{"name": "José"}', '{"name": "Jos\\u00e9"}', '{"t": "a\\"b", "u": "a\\nb"}', '{"path": "C:\\\\temp"}',
           "C:\\temp", "\\", "\\\\", "\\101", "\\x4", "line\r\nbreak\ttab \x01 \x7f", "'quoted' $1 %s ? :x", "💶", "", "x" * 100_000]
OBJECTS = [{"n": 1, "path": "C:\\temp", "quote": "a\"b\n", "name": "José 💶", "list": [1, None, True], "": {}}]
LOUD = ["a\0b", "\\x4142"]  # PostgreSQL has no such text; the way in which bytes are written in SQL
BYTES = [bytes(range(256)), b"\x00", b"\xff\xfe", b"\\x41", b"C:\\temp", "José".encode()]
# What a body must not lose or gain on its way: each of these makes another one of it.
CHANGES = [(b"\\\\", b"\\"), (b"\\", b"\\\\"), (b"\0", b""), (b"\r\n", b"\n"), (b'\\"', b'"'), (b"'", b"''"),
           (b"\xc3\xa9", b"\xe9"), (b"\xff", b"\xc3\xbf"), (b"\xff", b"\xef\xbf\xbd"), (b": ", b":")]
# These know by themselves that bytes are bytes; others ask the server what the parameter is.
SURE_OF_BYTES = ("psycopg2", "psycopg", "jdbc")


@functools.lru_cache(maxsize=None)
def command_of(driver):
    if driver == "node-pg":
        return in_node(os.path.join(HERE, "driver.js"))
    if driver in ("pgx", "lib/pq"):
        if not shutil.which("go"):
            pytest.skip("go is not there")
        os.makedirs(PLACE, exist_ok=True)
        program = os.path.join(PLACE, "drivers-go")
        os.environ.setdefault("GOTOOLCHAIN", "local")
        os.environ.setdefault("CGO_ENABLED", "0")
        run(["go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", program, "."], os.path.join(HERE, "go"),
            "the program in Go cannot be built")
        return [program, driver]
    if driver == "jdbc":
        if not shutil.which("javac") or not os.path.exists(JAR):
            pytest.skip("a JDK (default-jdk-headless) or the JDBC driver (libpostgresql-jdbc-java) is not there")
        return ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", JAR, os.path.join(HERE, "Driver.java")]
    return [sys.executable, os.path.join(HERE, "driver.py"), driver]


class Example:
    """One call with one value. `name` is what the call is made for: a claim, or a key."""
    numbers = iter(range(1, 1_000_000))

    def __init__(self, database, driver, call, kind, data, must):
        self.number, self.call, self.kind, self.data, self.must = str(next(self.numbers)), call, kind, data, must
        self.driver = driver
        self.name = f"{driver}-{self.number}"
        if call in ("complete", "settle"):
            self.name = database.one("SELECT claim FROM once.claim('drivers', %s)", self.name)

    def lines(self):
        """A claim comes twice: the second must be taken for the same request."""
        line = "\t".join((self.number, self.call, self.kind, self.name, base64.b64encode(self.data).decode()))
        return [line] * 2 if self.call == "claim" else [line]

    def fits(self, stored):
        return json.loads(stored) == json.loads(self.data) if self.kind == "object" else stored == self.data

    def check(self, database, said, written):
        """Compares what is stored with what was given. `written` keeps the bytes that each value became: for an object that is the
        driver's choice, and every call must get the same."""
        what = f"{self.driver}, {self.call} with {self.kind} {self.data[:60]!r}: {said}"
        if self.call == "claim":
            stored = [outcome for (outcome,) in database.rows("SELECT outcome FROM answers WHERE name = %s ORDER BY 1", self.name)]
        elif self.call == "emit":
            stored = database.rows("SELECT payload, headers FROM once.outbox WHERE topic = 'drivers' AND key = %s", self.name)
        else:
            stored = database.rows("SELECT body, headers FROM once.recorded(%s)", self.name)
        if said != "ok":
            assert not self.must, what
            assert not stored, f"{what}; but something was stored"
        elif self.call == "claim":
            assert stored == ["busy", "run"], f"{what}; answers {stored}"
            same = written[self.kind, self.data]
            assert self.claim_again(database, same) == "busy", f"{what}; not a claim of {same[:60]!r}"
            for other in {same + b".", same + b"\0", *(same.replace(old, new) for old, new in CHANGES)} - {same}:
                assert self.claim_again(database, other) == "mismatch", f"{what}; also a claim of {other[:60]!r}"
        else:
            body = bytes(stored[0][0])
            assert self.fits(body), f"{what}; stored {body[:60]!r}"
            assert written.setdefault((self.kind, self.data), body) == body, f"{what}; stored {body[:60]!r}, not as other calls"
            assert dict(stored[0][1]) == json.loads(HEADERS), what

    def claim_again(self, database, data):
        return database.one("SELECT outcome FROM once.claim('drivers', %s, 'POST', '/', %s::bytea)", self.name, data)


def examples_for(database, driver):
    for call in CALLS:
        make = functools.partial(Example, database, driver, call)
        yield from (make("string", text.encode(), True) for text in STRINGS)
        yield from (make("object", json.dumps(value).encode(), True) for value in OBJECTS)
        yield from (make("string", text.encode(), False) for text in LOUD)
        yield from (make("bytes", data, driver in SURE_OF_BYTES) for data in BYTES)
        yield from (make("cast", data, True) for data in BYTES)


@pytest.fixture(scope="module", name="caller")
def make_caller(database):
    """A user that may settle, too; and a table for the outcomes of its claims."""
    database.rows("CREATE ROLE caller LOGIN IN ROLE once_application, once_operator;"
                  "CREATE TABLE answers (name text, outcome text); GRANT INSERT ON answers TO caller")
    return "caller"


@pytest.mark.parametrize("driver", DRIVERS)
def test_what_arrives(database, caller, driver):
    command = command_of(driver)
    examples = list(examples_for(database, driver))
    port = os.environ["PGPORT"]
    variables = dict(os.environ, HEADERS=HEADERS, DATABASE=f"postgres://{caller}@127.0.0.1:{port}/postgres?sslmode=disable",
                     JDBC=f"jdbc:postgresql://127.0.0.1:{port}/postgres?user={caller}&sslmode=disable")
    lines = [line for example in examples for line in example.lines()]
    done = subprocess.run(command, input="\n".join(lines) + "\n", env=variables, text=True, capture_output=True, timeout=120,
                          check=False)
    said = dict(line.split("\t", 1) for line in done.stdout.splitlines())
    assert len(said) == len(examples), done.stderr
    written = {}
    for example in examples:
        example.check(database, said[example.number], written)
    assert not any(said[example.number] == "ok" for example in examples if example.data in (text.encode() for text in LOUD)
                   and example.kind == "string")
