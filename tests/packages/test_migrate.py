"""docs/migrate.md: the commands as they are there, in one shell, like those of docs/python.md."""
import os
import re

from harness import environment
from harness.wait import until
from shell import Shell, free_port
from stacks import PLACE


def test_old_and_new():
    with open(os.path.join(environment.SOURCE, "docs", "migrate.md"), encoding="utf-8") as file:
        page = file.read()
    for name in ("before", "during"):
        with open(os.path.join(environment.SOURCE, "examples", "migrate", f"{name}.py"), encoding="utf-8") as file:
            assert f"```python\n{file.read()}```" in page
    ports = {"8000": free_port(), "8001": free_port()}
    blocks = [re.sub("8000|8001", lambda match: ports[match.group()], text) for text in re.findall(r"```sh\n(.*?)```", page, re.S)]
    database, begin, smash, repeat, schema, both, smash_new, repeat_new, left, drop = blocks
    shell, started = Shell(), 0

    def start(text):
        """By hand one waits; here one looks. What follows the wait."""
        nonlocal started
        head, tail = re.split(r"sleep \d\n", text)
        shell.run(head)
        started += 1
        shell.wait("Uvicorn running on", started)
        return tail

    def ask(text):
        return shell.run(f'psql -Atd shop -c "{text}"')

    def kill(text):
        """The same: the lock is held until the service has been killed at it."""
        lock, request, end = text.replace("pg_sleep(3)", "pg_sleep(300)").split("sleep 1\n")
        for part, granted in ((lock, True), (request, False)):
            shell.run(part)
            until(lambda: "locks|1" in ask(f"SELECT 'locks', count(*) FROM pg_locks WHERE relation = 'paid'::regclass "
                                           f"AND granted = {granted}"), "a lock")
        shell.run(end)
        ask("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'BEGIN%pg_sleep(300)'")

    def again(text):
        request, look = start(text).split("\n", 1)
        until(lambda: "HTTP/1.1 201" in shell.run(request), "the second attempt")
        return shell.run(look)

    try:
        shell.run(f". {PLACE}/python/venv/bin/activate")
        shell.run(database)
        said = shell.run(start(begin))
        assert said.count("HTTP/1.1 201") == 2 and said.count('"payment":1') == 2, said
        kill(smash)
        until(lambda: "paid|1" in ask("SELECT 'paid', count(*) FROM paid WHERE order_id = 'o-2'"), "what was on its way")
        said = again(repeat)
        assert len(re.findall(r"o-2 +\| +5.00", said)) == 2, said  # the double payment that the page is about
        shell.run(schema)
        said = shell.run(start(both))
        assert said.count("HTTP/1.1 201") == 3 and said.count("HTTP/1.1 409") == 1, said
        assert said.count('"payment":1') == 1 and said.count("empotent-replayed: true") == 1, said
        assert len(re.findall(r"o-1 +\| +12.50", said)) == len(re.findall(r"o-3 +\| +7.00", said)) == 1, said
        assert len(re.findall(r"k-[13] +\| completed +\| +201", said)) == 2, said
        kill(smash_new)
        said = again(repeat_new)
        assert len(re.findall(r"o-4 +\| +9.00", said)) == 1, said
        assert "(0 rows)" in shell.run(left)
        assert "ERROR" not in shell.run(drop)
    finally:
        shell.close()
