"""The relay behind PgBouncer: the pool goes on when the server behind it is another one, or an earlier state of it."""
import os
import shutil
import subprocess

import psycopg2
from harness import Relay, in_order, until

DIR = os.environ.get("ONCE_PG_DIR", "")


def pool(command):
    connection = psycopg2.connect(f"postgres://owner@/pgbouncer?host={DIR}&port=6432")
    connection.autocommit = True
    connection.cursor().execute(command)
    connection.close()


def server(*what):
    subprocess.run([*os.environ["ONCE_PG_CTL"].split(), *what], check=True, stdout=subprocess.DEVNULL)


def test_a_server_that_lost_commits(database, relays, endpoint, tmp_path):
    """Numbers and transaction ids begin again below what was read: nothing is skipped, and nothing comes out of order."""
    relays.append(Relay(database.url.replace("port=5432", "port=6432"), endpoint.url("/{key}"), tmp_path / "relay.log",
                        lease="5m"))
    database.emit_many(7, 50)
    database.until_empty()
    pool("PAUSE")
    database.connection.close()
    server("-m", "fast", "stop")
    shutil.copytree(f"{DIR}/data", f"{DIR}/earlier", symlinks=True)
    subprocess.run(["chown", "-R", "--reference", f"{DIR}/data", f"{DIR}/earlier"], check=True)
    server("start")
    pool("RESUME")
    database.connection = database.connect()
    database.connection.autocommit = True
    database.emit_many(7, 300, first=51)  # what will be lost
    database.until_empty()
    pool("PAUSE")
    database.connection.close()
    server("-m", "immediate", "stop")
    shutil.rmtree(f"{DIR}/data")
    os.rename(f"{DIR}/earlier", f"{DIR}/data")
    server("start")
    pool("RESUME")
    database.connection = database.connect()
    database.connection.autocommit = True
    before = len(endpoint.requests)
    database.emit_many(7, 100, first=1001)
    until(lambda: len(endpoint.requests) - before >= 100, "the new ones are published")
    database.until_empty()
    found = [(r.path, r.headers["ce-id"], int(r.body)) for r in endpoint.requests[before:]]
    assert in_order([one for one in found if one[2] > 1000])[0] == 100
    assert len(relays[-1].said("another server answers, or an earlier state of the same one: all groups are read again")) >= 1
