"""Three lines of defence, each of which keeps the second payment out alone: the fence, the unique key of the business table, and
the lock and look by the order. Without any of them the same schedules pay twice: the tests can fail."""
import pytest

from harness.http1 import Connection
from harness.wait import until

# once.complete as it must not be (idempotent, and it asks for no claim), and once.renew that says yes to everybody.
UNFENCED = """
CREATE OR REPLACE FUNCTION once.complete(claim text, status integer, headers jsonb DEFAULT '[]',
    body anycompatible DEFAULT ''::text, retain interval DEFAULT NULL) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    t record := once._token_decode(claim);
BEGIN
    UPDATE once.keys k SET state = 2, kind = 1, status = $2, payload = once._pack_response($3, once._to_bytes($4)),
        expires = once._now_ms() + 3600000 WHERE k.id = once._short_id(t.id);
END $$;
CREATE OR REPLACE FUNCTION once.renew(claim text, lease interval DEFAULT NULL) RETURNS void LANGUAGE sql SECURITY DEFINER
AS 'SELECT';
"""
SOURCES = "SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE oid::regproc::text IN ('once.complete', 'once.renew')"


def remove_fence(database):
    sources = [source for source, in database.rows(SOURCES)]
    assert len(sources) == 3 # complete with headers as text calls the other one
    database.rows(UNFENCED)
    return lambda: [database.rows(source) for source in sources]


def remove_unique_key(database):
    database.rows("ALTER TABLE payments DROP CONSTRAINT payments_idempotency_key_key")
    return lambda: database.rows("""
        DELETE FROM payments p USING payments q WHERE p.idempotency_key = q.idempotency_key AND p.id > q.id;
        ALTER TABLE payments ADD UNIQUE (idempotency_key)""")


def remove_look_at_order(database):
    """The shop sees only what it wrote itself just now: it does not know that the order is paid."""
    database.rows("""
        ALTER TABLE payments ENABLE ROW LEVEL SECURITY, ADD COLUMN writer xid8 DEFAULT pg_current_xact_id();
        CREATE POLICY blind ON payments FOR SELECT TO shop USING (writer = pg_current_xact_id());
        CREATE POLICY busy ON payments FOR INSERT TO shop WITH CHECK (true)""")
    return lambda: database.rows("""
        ALTER TABLE payments DISABLE ROW LEVEL SECURITY; DROP POLICY blind ON payments; DROP POLICY busy ON payments;
        ALTER TABLE payments DROP COLUMN writer""")


DEFENCES = {"fence": remove_fence, "unique key": remove_unique_key, "look at the order": remove_look_at_order}


@pytest.fixture
def only(database):
    """Takes away all defences but these."""
    undo = []

    def remove_others(*kept):
        undo.extend(remove(database) for name, remove in DEFENCES.items() if name not in kept)

    yield remove_others
    for restore in reversed(undo):
        restore()


def delivered_twice(s):
    s.pay()
    with Connection(s.link.target) as twin:
        twin.send(b"".join(s.link.said))
        twin.waiting.append("POST")
        twin.finish()


def reply_to_commit_lost(s):
    stop = s.wire.stop_at(b"COMMIT\0", back=True)
    finish = s.start()
    stop.wait()
    stop.cut()
    finish()


def zombie(s):
    stop = s.wire.stop_at(b"once.renew")
    finish = s.start()
    stop.wait()
    s.gateway.nginx.kill_worker()
    finish()
    s.database.end_lease(s.key)
    s.retry()
    # Until it is through with it, or was refused and comes again.
    through, again = s.link.stop_at(b"HTTP/1.1 ", back=True), s.wire.stop_at(b"once.renew")
    stop.go()
    until(lambda: through.reached.is_set() or again.reached.is_set(), "the zombie's end")
    through.go()
    again.go()
    with s.wire.lock, s.link.lock:
        s.wire.stops.clear()
        s.link.stops.clear()


@pytest.mark.parametrize("defences, schedule", [
    (defences, schedule) for defences in (["fence"], ["unique key"], ["look at the order"], [])
    for schedule in (delivered_twice, reply_to_commit_lost)] + [(["fence"], zombie), ([], zombie)])
def test_each_line_of_defence(stack, only, defences, schedule):
    """Any one of them alone keeps the second payment out. With none there is one: the schedule can fail."""
    s = stack()
    only(*defences)
    schedule(s)
    assert s.database.spent(s.account) == ("12.50" if defences else "25.00")
