"""Fixtures of the gateway's tests. `gateway(...)` starts one; what was started ends with the test, and is looked at once more."""
import os
import shutil
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from harness import environment  # noqa: E402
from harness.gateway import Gateway, make_certificate  # noqa: E402
from harness.upstream import Upstream  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "weighs: measures memory, which a sanitizer keeps for itself")
    for path in (environment.MODULE, environment.ONCE, environment.NGINX):
        if not os.path.exists(path):
            pytest.exit(f"{path} is not there: `make build` first, or set ONCE_BUILD (see tests/gateway/README.md)", 2)


def pytest_collection_modifyitems(config, items):
    """With a sanitizer these would measure the sanitizer: they belong to the plain build's run, and are not skipped there."""
    weighing = [item for item in items if item.get_closest_marker("weighs")]
    if weighing and environment.slow():
        config.hook.pytest_deselected(items=weighing)
        items[:] = [item for item in items if item not in weighing]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Shows nginx's log beside a failure."""
    report = (yield).get_result()
    if report.failed:
        for gateway in item.funcargs.get("gateways", []):
            if gateway.nginx.log:
                report.sections.append(("nginx error log", "\n".join(gateway.nginx.log.lines[-60:])))


@pytest.fixture
def directory():
    """Of the test's own. Not below pytest's: socket and store paths stay short, and it goes away also when the test fails."""
    path = tempfile.mkdtemp(prefix="gateway.")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def backend():
    """More upstreams than the one that every gateway has."""
    made = []

    def start(*args, **options):
        made.append(Upstream(*args, **options))
        return made[-1]

    yield start
    for upstream in made:
        upstream.close()


@pytest.fixture
def gateways(directory, backend):
    """All that a test started."""
    made = []
    yield made
    errors = []
    for gateway in reversed(made):
        try:
            gateway.close()
        except AssertionError as error:
            errors.append(str(error))
    assert not errors, "\n".join(errors)


@pytest.fixture
def prepare(gateways, directory):
    """A gateway that is not started: for configurations that are refused, and for those that need more first."""
    def make(*rules, **options):
        if not environment.packaged() and "load_module" in options.get("main", "") + options.get("before", ""):
            pytest.skip("a module of another package, which this nginx cannot load")
        own = os.path.join(directory, str(len(gateways)))
        os.mkdir(own)
        gateways.append(Gateway(own, *rules, **options))
        return gateways[-1]
    return make


@pytest.fixture
def gateway(prepare):
    def start(*rules, **options):
        return prepare(*rules, **options).start()
    return start


@pytest.fixture
def pair(gateway):
    """Two gateways that share a store and an upstream."""
    one = gateway("once_wait 5s; once_recover hold;", workers=2)
    return one, gateway("once_wait 5s; once_recover hold;", workers=2, store=one.store.url, upstream=one.upstream)


@pytest.fixture(scope="session")
def certificate():
    directory = tempfile.mkdtemp(prefix="gateway.")
    yield make_certificate(directory)
    shutil.rmtree(directory, ignore_errors=True)
