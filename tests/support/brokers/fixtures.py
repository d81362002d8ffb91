"""Fixtures for pytest: one broker of each kind for a whole run. `pytest_plugins = ["brokers.fixtures"]` in a conftest.py.

A test that kills a broker starts it again; topics and queues are named after the test (fixture `name`).
"""
import os
import re
import shutil
import tempfile

import pytest

from . import Certificates, Impostor, Kafka, Missing, RabbitMQ

SHARED = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def started(kind, certificates):
    directory = tempfile.mkdtemp(prefix=kind.__name__.lower() + ".", dir=SHARED)
    broker = kind(directory, certificates)
    try:
        broker.start()
    except Missing as missing:
        shutil.rmtree(directory, ignore_errors=True)
        pytest.skip(str(missing))
    return broker


def broker(kind, certificates):
    one = started(kind, certificates)
    yield one
    one.stop()
    shutil.rmtree(one.directory, ignore_errors=True)


@pytest.fixture(scope="session")
def certificates():
    directory = tempfile.mkdtemp(prefix="certificates.", dir=SHARED)
    yield Certificates(directory)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def impostor(certificates):
    """A server that speaks TLS, whose certificate has expired."""
    one = Impostor(certificates, "expired")
    yield one
    one.close()
    assert one.heard == [], "a client talked to it"


@pytest.fixture(scope="session")
def kafka(certificates):
    yield from broker(Kafka, certificates)


@pytest.fixture(scope="session")
def rabbitmq(certificates):
    yield from broker(RabbitMQ, certificates)


@pytest.fixture
def name(request):
    """For topics, queues and groups: no other test has it."""
    return re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-") + "-" + os.urandom(3).hex()
