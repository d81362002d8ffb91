"""What deploy/ has: rules for Prometheus, and the queries of the dashboard."""
import json
import os
import re

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROMETHEUS = os.path.join(SOURCE, "deploy", "prometheus")
NAME = re.compile(r"\bonce_[a-z_]+\b")
HISTOGRAM = re.compile("_(bucket|sum|count)$")


def read(*path):
    with open(os.path.join(SOURCE, *path), encoding="utf-8") as file:
        return file.read()


def alerts():
    """Name -> anchor of its runbook."""
    text = read("deploy", "prometheus", "alerts.yml")
    found = re.findall(r"- alert: (\w+)\n(?:(?!- alert).*\n)*?\s+runbook_url: docs/operations\.md#(\S+)", text)
    assert len(found) == text.count("- alert:") > 10
    return dict(found)


def queries():
    """(title of the panel, expression) of every query of the dashboard, and those of its variables and annotations."""
    board = json.loads(read("deploy", "grafana", "once.json"))
    found = [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel.get("targets", [])]
    return found + [("annotations", one["expr"]) for one in board["annotations"]["list"]]


def recorded():
    return set(re.findall(r"- record: (\S+)", read("deploy", "prometheus", "recording.yml")))


def used():
    """Metrics that rules and dashboard name. Those that the rules record have colons in them."""
    board = json.loads(read("deploy", "grafana", "once.json"))
    variables = [variable["definition"] for variable in board["templating"]["list"] if "definition" in variable]
    texts = [expression for _, expression in queries()] + variables
    for name in ("recording.yml", "alerts.yml"):
        texts += re.findall(r"expr: (.*(?:\n {10}.*)*)", read("deploy", "prometheus", name))
    plain = [re.sub(r"\w+:\w+:\w+|\"[^\"]*\"", "", text) for text in texts]
    return {HISTOGRAM.sub("", name) for text in plain for name in NAME.findall(text)}


def exported():
    """What the programs export, from their tables."""
    found = {"once_build_info"}
    for program in ("relay", "consume"):
        names = re.findall(rf'"(once_{program}_[a-z_]+)"', read("src", program, "report.c"))
        assert len(names) > 10
        found |= set(names)
    status = read("nginx", "ngx_http_once_status.c")
    found |= set(re.findall(r'"(once_[a-z_]+)", "[A-Z]', status))
    found |= set(re.findall(r'print_head\(p, last, "(once_[a-z_]+)"', status))
    gauges = status[status.index("ngx_http_once_gauges[] = {"):status.index("#define NGX_HTTP_ONCE_GAUGES")]
    stores = re.findall(r'\{ "([a-z_]+)",', gauges)
    assert len(stores) > 10
    return found | {f"once_store_{name}" for name in stores}
