"""Fixtures: an outside world that counts, and a notify in front of it."""
import os
import shutil
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import service  # noqa: E402

try:
    import outside  # noqa: E402
except ImportError:
    outside = None


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Shows the log of notify beside a failure."""
    report = (yield).get_result()
    for notify in item.funcargs.get("services", []) if report.failed else []:
        report.sections.append(("log of notify", "\n".join(notify.lines[-40:])))


@pytest.fixture
def directory():
    path = tempfile.mkdtemp(prefix="notify.")
    yield path
    shutil.rmtree(path, ignore_errors=True)


class World:
    def __init__(self):
        self.mail, self.sms, self.push = outside.MailServer(), outside.Provider("sms"), outside.Provider("push")

    def counts(self):
        """Mails in the box, messages sent by SMS and push."""
        return len(self.mail.mails), len(self.sms.messages), len(self.push.messages)

    def close(self):
        for server in (self.mail, self.sms, self.push):
            server.close()


@pytest.fixture
def world():
    if outside is None:
        pytest.skip("python3-aiosmtpd is not installed: no mail server to test with")
    made = World()
    yield made
    made.close()


@pytest.fixture
def services():
    made = []
    yield made
    for each in made:
        each.close()


@pytest.fixture
def notify(directory, world, services):
    """Starts one. Options go to the command line; `templates` and `users` are paths."""
    def start(*options, **paths):
        services.append(service.Notify(directory, world.mail.url, world.sms.url, world.push.url, *options, **paths))
        return services[-1].start()
    return start
