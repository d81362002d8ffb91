"""The rules and the dashboard as texts: promtool accepts them, every alert is tested and explained, every metric exists."""
import os
import re
import subprocess

import pytest
from deploy import PROMETHEUS, SOURCE, alerts, exported, queries, read, recorded, used

HERE = os.path.dirname(os.path.abspath(__file__))


def promtool(*arguments):
    done = subprocess.run(["promtool", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                          stdin=subprocess.DEVNULL, timeout=120)
    return done.returncode, done.stdout


def test_the_example_is_a_configuration():
    code, said = promtool("check", "config", f"{PROMETHEUS}/prometheus.yml")
    assert code == 0 and "SUCCESS" in said, said


def test_rules():
    code, said = promtool("test", "rules", f"{HERE}/alerts.test.yml")
    assert code == 0 and "SUCCESS" in said, said


def test_every_alert_is_tested():
    """It fires, and it is silent, also before its time."""
    text = read("tests", "prometheus", "alerts.test.yml")
    fires = set(re.findall(r"alertname: (\w+)\n\s+exp_alerts:\n", text))
    silent = set(re.findall(r"alertname: (\w+), exp_alerts: \[\]", text))
    assert fires == silent == set(alerts())


def test_a_rule_that_says_something_else_is_noticed(tmp_path):
    """Otherwise the tests of promtool would show nothing."""
    for name in ("recording.yml", "alerts.yml"):
        (tmp_path / name).write_text(read("deploy", "prometheus", name).replace("> 0.8", "> 0.95"))
    tests = read("tests", "prometheus", "alerts.test.yml").replace("../../deploy/prometheus", str(tmp_path))
    (tmp_path / "alerts.test.yml").write_text(tests)
    code, said = promtool("test", "rules", str(tmp_path / "alerts.test.yml"))
    assert code != 0 and "OnceDiskFilling" in said and "OnceStoreFilling" in said, said


@pytest.mark.parametrize("alert, anchor", alerts().items())
def test_every_alert_has_a_runbook(alert, anchor):
    headings = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
                for heading in re.findall(r"^#+ +(.*)$", read("docs", "operations.md"), re.M)}
    assert anchor in headings
    section = read("docs", "operations.md").split(f"`{alert}`", 1)
    assert len(section) == 2, f"docs/operations.md does not name {alert}"


def test_every_metric_is_exported_and_documented():
    there = exported()
    assert used() <= there, used() - there
    documents = read("docs", "directives.md") + read("docs", "relay.md") + read("docs", "consume.md")
    assert not {name for name in there if name not in documents}
    for name in recorded():
        assert name in read("docs", "operations.md"), name


def test_every_recorded_series_exists():
    text = "\n".join(expression for _, expression in queries()) + read("deploy", "prometheus", "alerts.yml")
    assert set(re.findall(r"\b\w+:\w+:\w+\b", text)) <= recorded()


def test_what_the_operator_reads_names_the_files():
    text = read("docs", "operations.md")
    for part in ("prometheus", "grafana"):
        for name in os.listdir(os.path.join(SOURCE, "deploy", part)):
            assert f"deploy/{part}/{name}" in text, name
