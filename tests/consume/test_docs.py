"""docs/tutorial-messages.md: the commands as they are there, in one shell. Only ports and the times of giving up differ; and where
by hand one waits, here one looks."""
import os
import re

import pytest

from harness import SOURCE, until
from shell import Shell, blocks, free_port, page

pytestmark = pytest.mark.skipif("ONCE_PG_URL" not in os.environ, reason="tests/postgres/with-server starts the server")
LOCKED = "SELECT 'locks', count(*) FROM pg_locks WHERE relation = 'invoices'::regclass AND granted = {}"
CANCEL = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'BEGIN%pg_sleep(300)'"


def test_messages(kafka):
    text = page("tutorial-messages.md")
    with open(os.path.join(SOURCE, "examples", "messages", "invoices.py"), encoding="utf-8") as file:
        assert f"```python\n{file.read()}```" in text
    port, shell = free_port(), Shell()

    def here(commands):
        return commands.replace("127.0.0.1:9092", kafka.servers).replace("127.0.0.1:3000", f"127.0.0.1:{port}") \
            .replace("python3 ex", f"PORT={port} /usr/bin/python3 ex").replace("--lease 3s", "--lease 2s") \
            .replace("session.timeout.ms=6000", "session.timeout.ms=2000&heartbeat.interval.ms=300") \
            .replace("pg_sleep(4)", "pg_sleep(300)")

    database, order, relay, handler, consumer, smash, again, deliver = map(here, blocks(text))

    def ask(query):
        return shell.run(f'psql -AtqXd shop -c "{query}"')

    def invoices(wanted):
        query = "SELECT string_agg(order_id || ' ' || n, ', ' ORDER BY order_id) FROM (SELECT order_id, count(*) n FROM invoices " \
            "GROUP BY 1) AS each"
        until(lambda: wanted in ask(query).split("\n"), lambda: f"{wanted}; it is {ask(query)}")

    try:
        kafka.create("orders", 3)
        for commands in (database, order, relay, handler):
            assert "ERROR" not in shell.run(commands)
        shell.wait("invoices: ready")
        head, tail = consumer.split("sleep 5\n")
        shell.run(head)
        shell.wait('"message":"handled"')
        said = shell.run(tail)
        assert re.search(r"o-1 +\| +12.50", said) and re.search(r"completed +\| +1\n", said), said
        lock, emit, kill = re.split(r"sleep \d\n", smash)
        shell.run(lock)
        until(lambda: "locks|1" in ask(LOCKED.format("true")), "the lock")
        assert "ERROR" not in shell.run(emit)
        until(lambda: "locks|1" in ask(LOCKED.format("false")), "a handler that waits for it")
        shell.run(kill)
        ask(CANCEL)
        invoices("o-1 1")
        head, tail = again.split("sleep 20\n")
        shell.run(head)
        shell.wait("invoices: ready", 2)
        invoices("o-1 1, o-2 1")
        until(lambda: "0" in ask("SELECT count(*) FROM once.outbox").split("\n"), "an empty outbox")
        said = shell.run(tail)
        assert re.search(r"completed +\| +1\n +completed +\| +2\n", said), said
        head, tail = deliver.split("sleep 5\n")
        seen = "".join(shell.lines).count("duplicate: handled before")
        shell.run(head)
        shell.wait("duplicate: handled before", seen + 2)
        said = shell.run(tail)
        assert re.search(r"o-1 +\| +1\n +o-2 +\| +1\n", said), said
    finally:
        shell.close()
