"""A synchronous standby that stands still for longer than the relay waits for a statement."""
import signal

from harness import in_order, until
from postgres import Servers
from processes import descendants, send

CONNECTIONS = 4  # to fetch, to mark, to renew leases, to watch
STALL_S = 66     # a statement is given up after 60 s; a connection that was lost is made again within one
RELAY = "FROM pg_stat_activity WHERE application_name = 'once relay'"


def test_a_synchronous_standby_that_stands_still(database, relay, endpoint):
    """Server processes whose commits wait for it stay, whether the relay waits for them or not. It opens no others beside them, and
    goes on when they are answered."""
    servers = Servers()
    servers.follow()
    most = 0

    def waited():
        """For how long a commit of the relay has been waiting."""
        nonlocal most
        count, seconds = servers.primary.run("SELECT count(*), coalesce(max(extract(epoch FROM clock_timestamp() - query_start))"
                                             f" FILTER (WHERE wait_event = 'SyncRep'), 0) {RELAY}")[0]
        most = max(most, count)
        return seconds

    def taken():
        with endpoint.lock:
            return [(int(r.body) % 20, r.headers["ce-id"], int(r.body)) for r in endpoint.requests]

    try:
        one = relay(endpoint.url(), lease="20s")
        database.run("SET synchronous_commit = local")  # the application does not wait
        database.emit_many(20, 200)
        database.until_empty()
        standby = descendants(servers.standby.pid())
        send(signal.SIGSTOP, standby)
        try:
            database.emit_many(20, 200, first=201)
            until(lambda: len(taken()) >= 400, "they are published")
            until(lambda: waited() >= STALL_S, "a commit has waited for longer than the relay does", 3 * STALL_S)
        finally:
            send(signal.SIGCONT, standby)
        assert one.said("the database is unreachable")
        assert most <= CONNECTIONS
        database.emit_many(20, 200, first=401)
        database.until_empty()
        until(lambda: one.said("the database is reachable")[1:], "it says so")
        came, twice = in_order(taken())
        assert came == 600, "all of them"
        assert len([number for *_, number in taken() if number not in range(201, 401)]) == 400, "those that could be marked, once"
        print(f"\n{most} connections, {came} events, {twice} of them twice")
        assert database.dead() == [] and one.stop() == 0
    finally:
        servers.close()
