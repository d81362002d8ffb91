"""Fixtures for pytest: one broker of each kind for a whole run. `pytest_plugins = ["brokers.fixtures"]` in a conftest.py.

A test that kills a broker starts it again; topics and queues are named after the test (fixture `name`).
"""
import os
import re
import shutil
import tempfile

import pytest

from . import Kafka, Missing, RabbitMQ

CI = os.environ.get("CI") == "true"


def started(kind, parent):
    directory = tempfile.mkdtemp(prefix=kind.__name__.lower() + ".", dir=parent)
    broker = kind(directory)
    try:
        broker.start()
    except Missing as missing:
        shutil.rmtree(directory, ignore_errors=True)
        if CI:
            pytest.fail(f"{missing}; in CI nothing is skipped")
        pytest.skip(str(missing))
    return broker


def broker(kind):
    one = started(kind, "/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    yield one
    one.stop()
    shutil.rmtree(one.directory, ignore_errors=True)


@pytest.fixture(scope="session")
def kafka():
    yield from broker(Kafka)


@pytest.fixture(scope="session")
def rabbitmq():
    yield from broker(RabbitMQ)


@pytest.fixture
def name(request):
    """For topics, queues and groups: no other test has it."""
    return re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-") + "-" + os.urandom(3).hex()
