"""The answers of a gateway while the server is gone, and after foreign writes to the table."""
import os
import shlex
import subprocess
import urllib.parse

from harness.gateway import GUARD
from harness.wait import until

CTL = shlex.split(os.environ["ONCE_PG_CTL"])


def sql(gw, statement):
    """As the owner of everything, in the gateway's database."""
    database = urllib.parse.urlparse(gw.store.url).path.lstrip("/")
    subprocess.run(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", statement], check=True)


def test_gone_is_503_and_heals(gateway):
    gw = gateway(locations="location / { %s once_store_timeout 1s; } location = /ready { once_ready; }" % GUARD)
    until(lambda: gw.request("GET", "/ready").status == 200, "the store to answer")
    assert gw.post("before").status == 201
    subprocess.run(CTL + ["-m", "immediate", "stop"], check=True, stdout=subprocess.DEVNULL)
    try:
        until(lambda: gw.request("GET", "/ready").status == 503, "the server to be missed")
        assert gw.post("meanwhile").status == 503
        assert gw.upstream.count("meanwhile") == 0
    finally:
        subprocess.run(CTL + ["start"], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    until(lambda: gw.request("GET", "/ready").status == 200, "the server to be found again, without a request")
    again = gw.post("before")
    assert again.status == 201 and again.headers.get("Idempotent-Replayed") == "true"
    gw.nginx.expect("the store did not answer in time")
    gw.nginx.log.wait(r"\[error\].*once: store .* failed: ")
    gw.nginx.log.wait(r"\[warn\].*once: store .* has recovered")  # the level that `once gate` shows


def test_what_could_not_have_been_recorded_is_not_replayed(gateway):
    gw = gateway()
    forged = ("once._le32(1) || once._le32(1) || 'X'::bytea || once._le32(25) || E'a\\r\\nSet-Cookie: admin=1\\r\\nb'::bytea"
              " || 'body'::bytea")
    for key, change in {
            "header": f"payload = '\\x0000000000'::bytea || once._le32(length({forged})) || {forged}",
            "interim": "status = 100",
            "unheard-of": "status = 600"}.items():
        assert gw.post(key).status == 201
        assert gw.post(key).headers.get("Idempotent-Replayed") == "true"
        sql(gw, f"UPDATE once.keys SET {change} WHERE key = '{key}'")
        answer = gw.post(key)
        assert answer.status == 503 and "Set-Cookie" not in answer.headers, key
        assert gw.upstream.count(key) == 1
    gw.nginx.expect("a stored response cannot be read: stored bytes are damaged")


def refused(answer):
    return answer.status == 503 and "secrets" in answer.json()["detail"]


def test_a_schema_made_anew_has_other_secrets(gateway):
    """A gateway from before has other ids for the same keys: it must not run what one from after runs as well."""
    old = gateway("once_recover hold;")
    old.nginx.expect("secrets")
    assert old.post("before").status == 201
    sql(old, "DROP SCHEMA once CASCADE")
    database = urllib.parse.urlparse(old.store.url).path
    old.store.run("pg", "install", os.environ["ONCE_PG_URL"].replace("/postgres?", f"{database}?"))
    new = gateway("once_recover hold;", store=old.store.url, upstream=old.upstream)
    for i in range(8):
        first, second = (old, new) if i % 2 else (new, old)
        answers = {first: first.post(f"new {i}"), second: second.post(f"new {i}")}
        assert refused(answers[old]) and answers[new].status == 201, i
        assert old.upstream.count(f"new {i}") == 1, i
    old.nginx.log.wait("has other secrets than this program")
    old.nginx.wait_worker_gone(*old.nginx.reload())
    assert old.post("new 0").headers.get("Idempotent-Replayed") == "true"


def test_secrets_that_were_deleted_come_back_from_whoever_knows_them(gateway):
    old = gateway()
    done = old.post("before")
    sql(old, "CREATE TABLE kept AS SELECT * FROM once.secrets; DELETE FROM once.secrets")
    new = gateway(store=old.store.url, upstream=old.upstream)
    new.nginx.expect("secrets")
    assert refused(new.post("before"))  # there are records: with new secrets they would not be found
    sql(old, "DELETE FROM once.secret_pads WHERE name = 'mark'")
    old.nginx.expect("secrets")
    assert refused(old.post("other"))  # the database does not say which ones it had
    sql(old, "INSERT INTO once.secrets SELECT * FROM kept; SELECT once._secrets_store(s.text) FROM once.secrets s")
    for gw in old, new:
        assert gw.post("before").body == done.body
        assert gw.post("other").status == 201
    assert old.upstream.count("other") == 1


def test_with_keys_what_is_not_encrypted_is_not_replayed(gateway, directory):
    before = gateway()
    assert before.post("k").status == 201
    keys = f"{directory}/keys"
    with open(os.open(keys, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
        file.write("1 " + "5a" * 32 + "\n")
    gw = gateway(store=f"{before.store.url}&encrypt=file:{keys}", upstream=before.upstream)
    assert gw.post("k").status == 503
    assert gw.post("sealed").status == 201 and gw.post("sealed").status == 201
    gw.nginx.expect("encrypt_require=off reads it")
    lenient = gateway(store=f"{gw.store.url}&encrypt_require=off", upstream=before.upstream)
    for key in ("k", "sealed"):
        assert lenient.post(key).headers.get("Idempotent-Replayed") == "true"
        assert before.upstream.count(key) == 1


def test_shows_how_late_expired_records_are_removed(gateway):
    gw = gateway(locations="location / { %s } location = /status { once_status; }" % GUARD)
    for key in ("over", "live"):
        assert gw.post(key).status == 201
    sql(gw, "UPDATE once.keys SET expires = once._now_ms() - 7200000 WHERE key = 'over'; INSERT INTO once.inbox"
            " SELECT now() - interval '8 days', 'them', 'old'")

    def behind(name):
        """In seconds."""
        lines = [line for line in gw.request("GET", "/status").body.decode().splitlines() if line.startswith("once_store_")]
        found = {line.split("{")[0]: float(line.split()[-1]) for line in lines if "{store=" in line}
        return found[f"once_store_{name}_seconds"]

    until(lambda: behind("behind") >= 7200, "the removal of the record", 60)
    until(lambda: behind("messages_behind") >= 86000, "the removal of the message", 60)
    status = gw.request("GET", "/status", headers=[("Accept", "application/json")]).json()
    assert {"behind_seconds", "messages_behind_seconds", "store"} <= set(status["stores"][0])
    until(lambda: behind("behind") == 0, "two passes that find nothing", 60)
