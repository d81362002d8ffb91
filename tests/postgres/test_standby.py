"""What is answered from a record is on the synchronous standby, too, or the answer waits.

A COMMIT waits for a standby that stands still. The primary crashes and starts again: the commit is visible now, but the standby
does not have it, and a failover would take it back. Whatever answers from it must wait for the standby, although it only reads.

    with-server ONCE python3 test_standby.py
"""
import os
import signal
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from postgres import PATIENCE, Servers  # noqa: E402
from processes import descendants, send  # noqa: E402
from waiting import until  # noqa: E402

WRITE = ["SELECT once.accept('mailer', 'm1')", "SELECT once.complete(%s, 201, '{}', 'made')"]
READ = {
    "once.accept of a message that was handled": "SELECT NOT once.accept('mailer', 'm1')",
    "once.claim of a completed record": "SELECT (once.claim('shop', 'k1', wait => false)).outcome = 'replay'",
    "once.recorded": "SELECT outcome = 'replay' FROM once.recorded(%s)",
}


class Statement(threading.Thread):
    """One statement on a connection of its own, in a transaction of its own."""

    def __init__(self, node, text, claim):
        super().__init__(daemon=True)
        self.connection, self.text, self.result, self.error = node.connect(), text, None, None
        self.values = (claim,) if "%s" in text else None
        self.backend = self.connection.get_backend_pid()
        self.start()

    def run(self):
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(self.text, self.values)
                self.result = cursor.fetchone()[0]
        except Exception as error:  # pylint: disable=broad-except
            self.error = error

    def waits_for_standby(self, node):
        return node.run(f"SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = {self.backend}") == [(True,)]


def main():
    servers, wrong = Servers(), []
    servers.follow(synchronous=True)
    primary, stopped = servers.primary, descendants(servers.standby.pid())
    claim = primary.run("SELECT (once.claim('shop', 'k1')).claim")[0][0]
    send(signal.SIGSTOP, stopped)
    try:
        writes = [Statement(primary, text, claim) for text in WRITE]
        for write in writes:
            until(lambda: write.waits_for_standby(primary), f"{write.text} waits for the standby", PATIENCE)
        primary.kill()
        primary.control("start")
        assert primary.run("SELECT count(*) FROM once.inbox") == [(1,)], "the commit is not visible"
        reads = {}
        for what, text in READ.items():
            reads[what] = Statement(primary, text, claim)
            until(lambda: not reads[what].is_alive() or reads[what].waits_for_standby(primary), f"{what} ends or waits", PATIENCE)
            if not reads[what].is_alive():
                wrong.append(f"{what} answers {reads[what].result} ({reads[what].error}), which a failover would take back")
    finally:
        send(signal.SIGCONT, stopped)
    for what, read in reads.items():
        read.join(PATIENCE)
        if read.result is not True:
            wrong.append(f"{what}: {read.result} ({read.error})")
    servers.close()
    print("\n".join(wrong) or f"ok: {len(READ)} answers wait for the standby")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
