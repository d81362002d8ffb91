"""The page over PostgreSQL: records with what the database knows of them, dead events, and a user that may only look."""
import os

import psycopg2

from page import PATIENCE, Page, Seed, counted
from waiting import until

URL = os.environ["ONCE_PG_URL"]


def run(query, *values):
    connection = psycopg2.connect(URL)
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        rows = cursor.fetchall() if cursor.description else []
    connection.close()
    return rows


def test_postgres():
    seed = Seed(URL)
    seed.make("completed", "order-1", "POST /payments", "done")
    seed.make("unknown", "order-2", "POST /payments")
    seed.make("many", "bulk-", 200)
    seed.close()
    page = Page(URL, "--role", "operate")
    client = page.client()
    assert client.get("/api/session").json["postgres"]
    assert counted(client)["records"] == 202 and counted(client)["server"].startswith("PostgreSQL 1")
    rows, cursor, pages = [], "", 0
    while cursor is not None:
        answer = client.get(f"/api/records?cursor={cursor}").json
        rows, cursor, pages = rows + answer["records"], answer["cursor"], pages + 1
    assert len({row["id"] for row in rows}) == len(rows) == 202 and pages > 2
    record = until(lambda: [row for row in client.get("/api/records?stuck=1").json["records"] if row["lease_ms"] == 0],
                   "its lease", PATIENCE)[0]
    assert record["key"] == "order-2"
    story = client.get(f"/api/record?id={client.record('order-1')['id']}").json
    assert not story["incomplete"] and story["record"]["response"]["status"] == 201
    assert client.settle(record).status == 200
    check_events(client)
    assert page.close() == 0


def check_events(client):
    """Listed with their reasons; those that are named are published again or dropped, once."""
    for number in range(3):
        run("SELECT once.emit('orders', 'k', 'placed', %s)", str(number).encode())
    run("SELECT once.relay_dead(grp, seq, id, 3, '<b>refused</b>') FROM once.outbox")
    events = client.get("/api/outbox").json["events"]
    assert [(event["state"], event["tries"], event["reason"]) for event in events] == 3 * [("dead", 3, "<b>refused</b>")]
    ids = [event["id"] for event in events]
    for path in ("retry", "drop"):
        assert client.post(f"/api/outbox/{path}", {"ids": ids}).status == 400  # no note
        for wrong in ([], 101 * [ids[0]], ["'); --"], [ids[0][:8]], [7]):
            assert client.post(f"/api/outbox/{path}", {"ids": wrong, "note": "x"}).status == 400
    assert len(client.get("/api/outbox").json["events"]) == 3
    for path in ("retry", "drop"):
        assert client.post(f"/api/outbox/{path}", {"ids": ids, "note": "x", "dry_run": "true"}).status == 400
        assert client.post(f"/api/outbox/{path}", {"ids": ids, "note": "x", "dry_run": True}).json["done"] == 3
    assert len(client.get("/api/outbox").json["events"]) == 3
    assert client.post("/api/outbox/retry", {"ids": ids[:2], "note": "mended"}).json["done"] == 2
    assert client.post("/api/outbox/retry", {"ids": ids[:2], "note": "mended"}).json["done"] == 0
    assert client.post("/api/outbox/drop", {"ids": ids, "note": "x", "dry_run": True}).json["done"] == 1
    assert client.post("/api/outbox/drop", {"ids": ids, "note": "a mistake"}).json["done"] == 1
    assert client.get("/api/outbox").json["events"] == []
    assert len(client.get("/api/outbox?waiting=1").json["events"]) == 2
    acts = [(entry["act"], entry["note"]) for entry in client.get("/api/audit").json["entries"] if "outbox" in entry["act"]]
    assert acts == 2 * [("outbox retry", "mended")] + [("outbox drop", "a mistake")]


def test_a_user_that_may_only_look():
    run("CREATE ROLE looker LOGIN IN ROLE once_monitor")
    page = Page(URL.replace("owner@", "looker@"), "--role", "operate")
    client = page.client()
    record = client.record("bulk-7")
    assert record["state"] == "completed"
    assert client.get(f"/api/response?id={record['id']}").status == 503  # needs more rights, which is said
    assert "once_operator" in client.get(f"/api/response?id={record['id']}").json["error"]
    assert client.post("/api/erase", {"id": record["id"], "claim": record["claim"], "note": "x"}).status >= 400
    assert page.close() == 0
