"""Fixtures of the tests of `once consume`: real brokers, one start of each for the whole run; handlers and consumers."""
import os
import shutil
import sys
import tempfile

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
pytest_plugins = ["brokers.fixtures"]

from harness import Consumer, Handler, once  # noqa: E402


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Shows what the consumers said beside a failure."""
    report = (yield).get_result()
    if report.failed and report.when == "call":
        for consumer in item.funcargs.get("consumers", []):
            report.sections.append(("once consume", consumer.last_words()))


@pytest.fixture
def directory():
    path = tempfile.mkdtemp(prefix="consume.", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def handlers():
    made = []
    yield made
    for handler in made:
        handler.close()


@pytest.fixture
def handler(handlers):
    """Answers 204 to everything by default."""
    handlers.append(Handler())
    return handlers[-1]


@pytest.fixture
def consumers():
    made = []
    yield made
    for consumer in made:
        consumer.end()


@pytest.fixture
def consume(consumers, directory, handler):
    """consume(FROM, options...) starts one with the store of the test; it is stopped at the end, and must not have crashed."""
    def start(source, *options, to=None, store=None):
        number = len(consumers)
        consumers.append(Consumer(directory, number, source, to or handler.url, store or f"local:{directory}/store", options))
        return consumers[-1]
    return start


@pytest.fixture
def replay(directory):
    """replay(options..., FROM) runs `once dlq replay` with the trail in the store of the test, if there is one."""
    def run(*arguments, code=0):
        store = f"local:{directory}/store" if os.path.exists(f"{directory}/store") else "memory:"
        return once("dlq", "replay", "--note", "mended", "--store", store, *arguments, code=code)
    return run
