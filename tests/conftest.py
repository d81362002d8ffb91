"""For every test with pytest: in CI (CI=true) a skipped test has failed. ctest reports a run with skipped tests as passed.

And a test has an end: after TEST_PATIENCE seconds the stacks of all threads show what it waits for, and the run ends. That is for
waits inside libraries; a test's own have their bounds and say more (support/waiting.py).
"""
import faulthandler
import os

import pytest

CI = os.environ.get("CI") == "true"
PATIENCE = float(os.environ.get("TEST_PATIENCE", "400"))  # less than what ctest waits for a whole file


def refuse(report, reason):
    if CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which is not allowed in CI: {reason}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):  # pylint: disable=unused-argument
    report = (yield).get_result()
    refuse(report, call.excinfo and call.excinfo.value)


def pytest_configure(config):
    with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        config.once_stderr = os.fdopen(os.dup(2), "w")  # what is captured would be lost


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    faulthandler.dump_traceback_later(PATIENCE, exit=True, file=item.config.once_stderr)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    """A module that skips itself as a whole (importorskip, allow_module_level)."""
    report = (yield).get_result()
    refuse(report, f"{collector.nodeid}: {report.longrepr}")
