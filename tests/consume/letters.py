"""Dead letters on the page of `once ui`: the same for every broker."""
import json
import os
import sys

from harness import HERE, once, until

sys.path.append(os.path.join(HERE, "..", "ui"))


def check_page(url, store, name, one, handler):
    """`one` consumes `name`, and has made letters of r-0, r-1 and r-2, which `handler` refused. They are seen with their reasons
    and replayed once each: by the mark of the letter that was judged, with a note, by somebody who may."""
    from page import Page  # it needs ONCE_BUILD
    operator, viewer = Page(store, "--role", "operate", "--dlq", url), Page(store, "--dlq", url)
    client, looker = operator.client(), viewer.client()
    shown = client.get("/api/session").json["letters"]
    assert len(shown) == 1 and name in shown[0] and "guest:guest" not in shown[0]
    letters = client.get("/api/letters?from=0").json["letters"]
    assert [(letter["id"], letter["reason"], letter["status"], letter["state"]) for letter in letters] \
        == [(f"r-{i}", "rejected", "400", "failed") for i in range(3)]
    marks = [letter["mark"] for letter in letters]
    assert len(set(marks)) == 3
    assert [letter["mark"] for letter in looker.get("/api/letters?from=0").json["letters"]] == marks  # the same at each look
    check_refusals(client, looker, marks)

    handler.answer = lambda request: 204  # it was mended
    body = {"from": "0", "marks": marks[:2], "note": "mended"}
    dry = client.post("/api/letters/replay", {**body, "marks": marks[:2] + [32 * "0"], "dry_run": True})
    assert dry.status == 200 and dry.json["done"] == 2
    assert [(result["done"], result.get("to")) for result in dry.json["results"]] == [(True, name), (True, name), (False, None)]
    assert "no longer there" in dry.json["results"][2]["why"]
    assert len(handler.keys()) == 3 and json_trail(store) == []  # nothing happened
    done = client.post("/api/letters/replay", body)
    assert done.status == 200 and done.json["done"] == 2, done.body
    until(lambda: handler.keys()[3:] == ["r-0", "r-1"], "both to be handled again")
    again = client.post("/api/letters/replay", body)
    assert again.status == 409 and "no longer there" in again.json["results"][0]["why"]  # they moved on
    until(lambda: [letter["id"] for letter in client.get("/api/letters?from=0").json["letters"]] == ["r-2"], "one to be left")
    trail = json_trail(store)
    assert [(entry["act"], entry["step"], entry.get("result"), entry.get("note")) for entry in trail] \
        == [("dlq replay", "intent", None, "mended"), ("dlq replay", "result", "published", None)] * 2
    assert trail[0]["object"] == f"letter r-0 to {name}" and trail[0]["by"]
    one.wait_metric("handled_total", 2)
    assert operator.close() == 0 and viewer.close() == 0


def check_refusals(client, looker, marks):
    body = {"from": "0", "marks": marks, "note": "mended"}
    assert looker.post("/api/letters/replay", body).status == 403
    for wrong, status in (({"note": ""}, 400), ({"marks": []}, 400), ({"marks": 201 * marks[:1]}, 400), ({"marks": [7]}, 400),
                          ({"marks": ["x"]}, 400), ({"dry_run": "true"}, 400), ({"from": "1"}, 404), ({"from": "-1"}, 404),
                          ({"from": "0x"}, 404), ({"from": 0}, 404), ({"marks": [32 * "0"]}, 409)):
        assert client.post("/api/letters/replay", {**body, **wrong}).status == status, wrong
    assert client.get("/api/letters").status == client.get("/api/letters?from=7").status == 404


def json_trail(store):
    return [json.loads(line) for line in once("audit", "list", "--json", store).splitlines()]
