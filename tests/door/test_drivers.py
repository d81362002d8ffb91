"""What drivers send for a string, an object or bytes arrives byte for byte, or fails loudly: never as something else."""
import base64
import functools
import json
import os
import shutil
import subprocess
import sys

import pytest

from backends import PLACE, command_node, run

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "drivers")
DRIVERS = ("psycopg2", "psycopg", "asyncpg", "node-pg", "pgx", "lib/pq", "jdbc")
HEADERS = '{"Content-Type": "application/json", "X-Odd": "a\\"b\\\\c"}'
JAR = "/usr/share/java/postgresql.jar"

STRINGS = ['{"n": 1}', '{"name": "José"}', '{"name": "Jos\\u00e9"}', '{"t": "a\\"b", "u": "a\\nb"}', '{"path": "C:\\\\temp"}',
           "C:\\temp", "\\", "\\\\", "\\101", "\\x4", "line\r\nbreak\ttab \x01 \x7f", "'quoted' $1 %s ? :x", "💶", "", "x" * 100_000]
OBJECTS = [{"n": 1, "path": "C:\\temp", "quote": "a\"b\n", "name": "José 💶", "list": [1, None, True], "": {}}]
LOUD = ["a\0b", "\\x4142"]  # PostgreSQL has no such text; the way in which bytes are written in SQL
BYTES = [bytes(range(256)), b"\x00", b"\xff\xfe", b"\\x41", b"C:\\temp", "José".encode()]
# These know by themselves that bytes are bytes; others ask the server what the parameter is.
SURE_OF_BYTES = ("psycopg2", "psycopg", "jdbc")


@functools.lru_cache(maxsize=None)
def command_of(driver):
    if driver == "node-pg":
        place = os.path.dirname(command_node()[1])
        shutil.copy(os.path.join(HERE, "driver.js"), place)
        return ["node", os.path.join(place, "driver.js")]
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
    numbers = iter(range(1, 1_000_000))

    def __init__(self, database, driver, kind, data, must):
        self.number, self.kind, self.data, self.must = str(next(self.numbers)), kind, data, must
        self.key = f"{driver}-{self.number}"
        self.claim = database.one("SELECT claim FROM once.claim('drivers', %s)", self.key)

    def line(self):
        return "\t".join((self.number, self.kind, self.claim, base64.b64encode(self.data).decode()))

    def fits(self, stored):
        stored = bytes(stored)
        return json.loads(stored) == json.loads(self.data) if self.kind == "object" else stored == self.data


def examples_for(database, driver):
    make = functools.partial(Example, database, driver)
    yield from (make("string", text.encode(), True) for text in STRINGS)
    yield from (make("object", json.dumps(value).encode(), True) for value in OBJECTS)
    yield from (make("string", text.encode(), False) for text in LOUD)
    yield from (make("bytes", data, driver in SURE_OF_BYTES) for data in BYTES)
    yield from (make("cast", data, True) for data in BYTES)


@pytest.mark.parametrize("driver", DRIVERS)
def test_what_arrives(database, driver):
    command = command_of(driver)
    examples = list(examples_for(database, driver))
    port = os.environ["PGPORT"]
    variables = dict(os.environ, HEADERS=HEADERS, DATABASE=f"postgres://shop@127.0.0.1:{port}/postgres?sslmode=disable",
                     JDBC=f"jdbc:postgresql://127.0.0.1:{port}/postgres?user=shop&sslmode=disable")
    done = subprocess.run(command, input="\n".join(example.line() for example in examples) + "\n", env=variables, text=True,
                          capture_output=True, timeout=120, check=False)
    said = dict(line.split("\t", 1) for line in done.stdout.splitlines())
    assert len(said) == len(examples), done.stderr
    for example in examples:
        recorded = database.rows("SELECT body, headers FROM once.recorded(%s)", example.claim)
        emitted = database.rows("SELECT payload FROM once.outbox WHERE topic = 'drivers' AND key = %s", example.number)
        what = f"{driver}, {example.kind} {example.data[:60]!r}: {said[example.number]}"
        if said[example.number] == "ok":
            assert example.fits(recorded[0][0]), f"{what}; recorded {bytes(recorded[0][0])[:60]!r}"
            assert example.fits(emitted[0][0]), f"{what}; emitted {bytes(emitted[0][0])[:60]!r}"
            assert dict(recorded[0][1]) == json.loads(HEADERS), what
        else:
            assert not example.must, what
            assert not recorded and not emitted, f"{what}; but something was stored"
    assert not any(said[example.number] == "ok" for example in examples if example.data in (text.encode() for text in LOUD)
                   and example.kind == "string")
