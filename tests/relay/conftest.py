"""Fixtures of the relay's tests: a database for each test in the server of with-server, brokers, relays, an endpoint."""
import itertools
import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "support")]

from endpoint import Endpoint  # noqa: E402
from harness import Database, Relay  # noqa: E402

pytest_plugins = ["brokers.fixtures"]
numbers = itertools.count(1)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    for relay in item.funcargs.get("relays", []) if report.failed else []:
        report.sections.append(("log of a relay", "\n".join(relay.text()[-60:])))


@pytest.fixture
def database():
    name = f"relay{next(numbers)}"
    subprocess.run(["psql", "-X", "-q", "-d", "template1", "-c", f"CREATE DATABASE {name} TEMPLATE postgres"], check=True)
    one = Database(name)
    yield one
    one.close()


@pytest.fixture
def relays():
    started = []
    yield started
    for relay in started:
        relay.kill()


@pytest.fixture
def relay(database, relays, tmp_path):
    """relay(to, *options) starts one."""
    def start(to, *options, **more):
        relays.append(Relay(database.url, to, tmp_path / f"relay{len(relays)}.log", *options, **more))
        return relays[-1]
    return start


@pytest.fixture
def endpoint():
    one = Endpoint()
    yield one
    one.close()
