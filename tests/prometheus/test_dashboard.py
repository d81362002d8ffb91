"""The dashboard against Grafana's own types (@grafana/schema), and by rules that these do not know."""
import json
import os
import re
import subprocess

from deploy import read
from node import packages

HERE = os.path.dirname(os.path.abspath(__file__))
PLACE = os.path.join(os.environ["ONCE_BUILD"], "dashboard")
# What Grafana writes itself, and its types leave out: of queries for Prometheus, and of variables.
BEYOND = {"annotations": ("expr", "titleFormat"), "templating": ("definition",)}


def complaints(board):
    """What tsc says about it."""
    packages(HERE, PLACE)
    for part, names in BEYOND.items():
        for item in board[part]["list"]:
            for name in names:
                item.pop(name, None)
    text = json.dumps(board, indent=1).replace('"mode": "absolute"', '"mode": grafana.ThresholdsMode.Absolute')
    with open(os.path.join(PLACE, "board.ts"), "w", encoding="utf-8") as file:
        file.write(f"import * as grafana from '@grafana/schema';\nexport const board: grafana.Dashboard = {text};\n")
    options = ["--noEmit", "--strict", "--skipLibCheck", "--module", "esnext", "--moduleResolution", "bundler",
               "--target", "es2022"]
    done = subprocess.run(["node", "node_modules/typescript/bin/tsc", *options, "board.ts"], cwd=PLACE, capture_output=True,
                          text=True, check=False, timeout=300)
    return done.stdout


def load():
    return json.loads(read("deploy", "grafana", "once.json"))


def test_the_dashboard_has_the_types_of_grafana():
    assert complaints(load()) == ""
    wrong = load()
    wrong["panels"][1]["gridPos"]["w"] = "wide"
    wrong["refresh"] = 5
    assert "board.ts" in complaints(wrong)


def test_panels_have_places_of_their_own():
    panels = load()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 20
    taken = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not taken & cells, panel["title"]
        taken |= cells
        references = [target["refId"] for target in panel.get("targets", [])]
        assert len(set(references)) == len(references), panel["title"]
        assert panel["type"] == "row" or (references and panel["datasource"]["uid"] == "${datasource}"), panel["title"]


def test_variables_that_queries_use_are_there():
    board = load()
    names = {variable["name"] for variable in board["templating"]["list"]}
    assert set(re.findall(r"\$\{?([a-z]+)\}?", json.dumps(board["panels"]))) <= names
