"""For every test with pytest: in CI (CI=true) a skipped test has failed. ctest reports a run with skipped tests as passed."""
import os

import pytest

CI = os.environ.get("CI") == "true"


def refuse(report, reason):
    if CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which is not allowed in CI: {reason}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):  # pylint: disable=unused-argument
    report = (yield).get_result()
    refuse(report, call.excinfo and call.excinfo.value)


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    """A module that skips itself as a whole (importorskip, allow_module_level)."""
    report = (yield).get_result()
    refuse(report, f"{collector.nodeid}: {report.longrepr}")
