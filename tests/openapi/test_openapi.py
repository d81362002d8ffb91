"""The components and the rules of openapi/: a good document passes, each document with one thing missing fails by the rule that is
meant, and what a real gate answers is what the components say."""
import copy
import glob
import json
import os
import re
import shutil
import subprocess

import pytest
import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SPECTRAL = os.path.join(os.environ["ONCE_BUILD"], "openapi", "node_modules", ".bin", "spectral")


def load(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return yaml.safe_load(file)


COMPONENTS = load(ROOT, "openapi", "once.yaml")["components"]
KEY = COMPONENTS["parameters"]["IdempotencyKey"]
RULES = os.path.join(ROOT, "openapi", "spectral.yaml")
EXAMPLES = sorted(os.path.relpath(path, ROOT) for path in glob.glob(os.path.join(ROOT, "examples", "*", "openapi.yaml")))
# What is taken away from the good document, and the rule that must notice.
MISSING = {
    "once-key-parameters": lambda post: post.pop("parameters"),
    "once-key-required": lambda post: post["parameters"].__setitem__(0, {**KEY, "required": False}),
    "once-key-length": lambda post: post["parameters"].__setitem__(0, {**KEY, "schema": {"type": "string", "maxLength": 1000}}),
    "once-answer-400": lambda post: post["responses"].pop("400"),
    "once-answer-409": lambda post: post["responses"].pop("409"),
    "once-answer-409-retry-after": lambda post: post["responses"].__setitem__("409", {"description": "Later.", "content": {
        "application/problem+json": {}}}),
    "once-answer-422": lambda post: post["responses"].pop("422"),
    "once-answer-503": lambda post: post["responses"].pop("503"),
    "once-problem": lambda post: post["responses"].__setitem__("422", {"description": "Another.", "content": {"text/plain": {}}}),
    "once-replay-header": lambda post: post["responses"]["201"]["headers"].pop("Idempotent-Replayed"),
    "once-examples": lambda post: post["responses"]["201"]["content"]["application/json"].pop("examples"),
}


def lint(*files):
    """The codes of what is found, by file."""
    run = subprocess.run([SPECTRAL, "lint", "--quiet", "-f", "json", "-F", "hint", "-r", RULES, *files], capture_output=True,
                         text=True, check=False)
    assert run.returncode in (0, 1), run.stderr
    found = {file: set() for file in files}
    for item in json.loads(run.stdout[run.stdout.index("["):]):
        found.setdefault(item["source"], set()).add(item["code"])
    return found


def test_documents(tmp_path):
    """One run of the judge over all documents: it takes seconds to start."""
    good = load(HERE, "documents", "payments.yaml")
    text = json.dumps(good).replace("../../../openapi/", "")
    shutil.copy(os.path.join(ROOT, "openapi", "once.yaml"), tmp_path)
    files = {"good": tmp_path / "good.json"}
    files["good"].write_text(text)
    for rule, take in MISSING.items():
        document = json.loads(text)
        take(document["paths"]["/payments"]["post"])
        files[rule] = tmp_path / f"{rule}.json"
        files[rule].write_text(json.dumps(document))
    document = json.loads(text)
    del document["paths"]["/previews"]["post"]["x-once"]
    files["acts"] = tmp_path / "acts.json"
    files["acts"].write_text(json.dumps(document))
    for example in EXAMPLES:
        files[example] = os.path.join(ROOT, example)
        for rule, take in MISSING.items():  # the same from the examples' own: rules must also see what is not in our components
            document = json.loads(json.dumps(load(ROOT, example)))  # without what anchors share
            for post in (path["post"] for path in document["paths"].values() if "post" in path):
                if post.get("x-once") not in ("off", False):
                    take(post)
            name = f"{example}-{rule}".replace("/", "-")
            files[name] = tmp_path / f"{name}.json"
            files[name].write_text(json.dumps(document))
    found = lint(*(str(file) for file in files.values()))
    assert all(found[str(files[name])] == set() for name in ("good", *EXAMPLES)), found
    for example in EXAMPLES:
        for rule in MISSING:
            assert rule in found[str(files[f"{example}-{rule}".replace("/", "-")])], (example, rule)
    for rule in MISSING:
        assert rule in found[str(files[rule])], (rule, found[str(files[rule])])
        assert found[str(files[rule])] <= {rule, "once-key-required", "once-problem"}, rule
    assert "once-answer-409" in found[str(files["acts"])]


@pytest.mark.parametrize("name", sorted(COMPONENTS["responses"]))
def test_examples_are_problems(name):
    """The examples are those of docs/problems.md and of the gateway: their types exist there, with that status."""
    example = COMPONENTS["responses"][name]["content"]["application/problem+json"]["example"]
    schema = COMPONENTS["schemas"]["Problem"]
    assert set(schema["required"]) <= set(example)
    code = re.fullmatch(schema["properties"]["type"]["pattern"], example["type"]) and example["type"].rsplit(":", 1)[1]
    with open(os.path.join(ROOT, "docs", "problems.md"), encoding="utf-8") as file:
        section = re.search(rf"^## {code}\n\n(.*?)(?=^## |\Z)", file.read(), re.M | re.S)
    assert section and section.group(1).startswith(str(example["status"])), code
    sources = [open(os.path.join(ROOT, "nginx", file), encoding="utf-8").read() for file in os.listdir(os.path.join(ROOT, "nginx"))]
    assert any(f'"{example["title"]}"' in source for source in sources), example["title"]


def test_copy_is_whole():
    """A document that copies the components instead of referring to them has no reference to what it did not copy."""
    for reference in re.findall(r"'\$ref': '([^']+)'", str(copy.deepcopy(COMPONENTS))):
        value = {"components": COMPONENTS}
        for part in reference.removeprefix("#/").split("/"):
            value = value[part]
