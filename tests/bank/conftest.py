"""Fixtures of the bank's tests: worlds to try it in (world.py). Run inside tests/postgres/with-server; CMakeLists.txt shows how."""
import os
import shutil
import sys
import tempfile

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "gateway"), os.path.join(HERE, "..", "..", "examples", "bank")]

from world import World  # noqa: E402


def make_worlds():
    directory = tempfile.mkdtemp(prefix="bank.")
    made = []

    def make(**options):
        own = os.path.join(directory, str(len(made)))
        os.mkdir(own)
        made.append(World(own, **options))
        return made[-1]

    yield make
    complaints = [complaint for world in made for complaint in world.close()]
    shutil.rmtree(directory, ignore_errors=True)
    assert not complaints, "\n".join(complaints)


@pytest.fixture
def worlds():
    """`worlds(...)` makes one; all end with the test, without an error in any log."""
    yield from make_worlds()


@pytest.fixture(scope="module")
def lasting():
    """The same, for worlds that several tests of a file share."""
    yield from make_worlds()
