"""The stacks that PACKAGES_SUITE chooses, started once for all tests of a run."""
import importlib.util
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "door"))
spec = importlib.util.spec_from_file_location("gateway_fixtures", os.path.join(HERE, "..", "gateway", "conftest.py"))
fixtures = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fixtures)
globals().update({name: value for name, value in vars(fixtures).items() if name.startswith("pytest_")})

from contract import Provider  # noqa: E402
from harness import environment  # noqa: E402
from stacks import APPS, MODES, SCHEMA, Database, chosen, named  # noqa: E402


def pytest_collection_modifyitems(config, items):
    """A test of a variant that no application of this run has is none, and not skipped."""
    empty = [item for item in items for mark in item.iter_markers("skip") if "empty parameter set" in mark.kwargs.get("reason", "")]
    config.hook.pytest_deselected(items=empty)
    items[:] = [item for item in items if item not in empty]


@pytest.fixture(scope="session")
def database():
    found = Database()
    found.rows(SCHEMA)
    subprocess.run([environment.ONCE, "stats", os.environ["ONCE_PG_GATEWAY_URL"]], check=True, stdout=subprocess.DEVNULL)
    yield found
    found.connection.close()


@pytest.fixture(scope="session")
def stacks(database):
    made = {(name, via): MODES[APPS[name]["mode"]](APPS[name], via, database) for name, via in chosen()}
    errors = []
    with ThreadPoolExecutor(4) as starters:  # until the end: what a thread has started dies with it
        list(starters.map(lambda stack: stack.start(), made.values()))
        yield made
        for stack in made.values():
            try:
                stack.close()
            except AssertionError as error:
                errors.append(str(error))
    assert not errors, "\n".join(errors)


@pytest.fixture(params=chosen(), ids=named)
def stack(stacks, request):
    return stacks[request.param].fresh()


@pytest.fixture(params=chosen("gate"), ids=named)
def gate_stack(stacks, request):
    return stacks[request.param].fresh()


@pytest.fixture(params=chosen("direct"), ids=named)
def direct_stack(stacks, request):
    return stacks[request.param].fresh()


@pytest.fixture
def provider():
    made = Provider()
    yield made
    made.close()
