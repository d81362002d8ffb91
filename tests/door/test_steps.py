"""A payout in three steps, one of them a third party's (examples/door/python/payouts.py), killed and overtaken between any two: it
goes on where it stopped, and the provider transfers once. And a backend that claims by itself, without the gate."""
import json
import threading

from harness.http1 import Connection
from harness.upstream import Upstream
from test_examples import at_once
from wire import Wire


class Provider(Upstream):
    """Transfers once for each key, however often it is asked."""

    def __init__(self):
        super().__init__()
        self.transfers = {}
        self.default = self.transfer

    def transfer(self, exchange):
        with self.changed:
            identity = self.transfers.setdefault(exchange.request.key, f"t-{len(self.transfers) + 1}")
        exchange.respond(200, [("Connection", "close")], json.dumps({"id": identity}).encode())
        exchange.close()


class Payouts:
    """A stack with a provider, and hands on the connection to it, too."""

    def __init__(self, stacks):
        self.provider = Provider()
        host, port = self.provider.name.split(":")
        self.outside = Wire((host, int(port)))
        stacks.closing += [self.provider.close, self.outside.close]
        self.stack = stacks.start("payouts", {"PROVIDER": f"http://{self.outside.name}/transfers"})
        self.stack.path = "/payouts"

    def check(self, answer):
        s = self.stack
        assert answer.status == 201, answer.body
        assert list(self.provider.transfers.values()) == [answer.json()["transfer"]]
        assert s.database.rows("SELECT amount::text, provider_id FROM payouts WHERE account = %s", s.account) \
            == [("12.50", answer.json()["transfer"])]
        assert s.database.spent(s.account) == "12.50" and s.database.state(s.key)[0] == "completed"
        again = s.pay()
        assert again.body == answer.body and again.headers.get("Idempotent-Replayed") == "true"


# Which connection, which message, in which direction; and how often the provider is asked in all.
GAPS = {
    "before all": ("wire", b"once.resume", False, 1),
    "in step 1": ("wire", b"'reserved'", False, 1),
    "between 1 and 2": ("outside", b"POST ", False, 1),
    "in step 2": ("outside", b"200 OK", True, 2),
    "between 2 and 3": ("wire", b"'transferred'", False, 2),
    "in step 3": ("wire", b"once.complete", False, 1),
    "after all": ("link", b" 201 C", True, 1),
}


def killed(payouts, gap):
    where, text, back, asked = GAPS[gap]
    s = payouts.stack
    stop = (payouts.outside if where == "outside" else getattr(s, where)).stop_at(text, back)
    finish = s.start()
    stop.wait()
    s.backend.kill()
    stop.cut()
    s.backend.start()
    finish()
    s.database.end_lease(s.key)
    payouts.check(s.retry())
    assert payouts.provider.total == asked, f"{gap}: the provider was asked {payouts.provider.total} times"


def overtaken(payouts, _):
    """Not killed, only slow on its way to the provider: both attempts ask with the same key, and the slow one is refused then."""
    s = payouts.stack
    stop = payouts.outside.stop_at(b"POST ")
    finish = s.start()
    stop.wait()
    s.gateway.nginx.kill_worker()
    finish()
    s.database.end_lease(s.key)
    answer = s.retry()
    assert s.database.state(s.key) == ("completed", 2)
    late = s.wire.stop_at(b"'transferred'")
    stop.go()
    late.wait()
    late.go()
    payouts.check(answer)
    assert payouts.provider.total == 2


def test_goes_on_where_it_stopped(stacks):
    wrong = []

    def run(payouts, play, gap):
        try:
            play(payouts, gap)
        except BaseException as error:  # noqa: a thread's failure is the test's
            wrong.append(f"{gap}: {error!r}")

    plays = [(killed, gap) for gap in GAPS] + [(overtaken, "overtaken")]
    threads = [threading.Thread(target=run, args=(Payouts(stacks), play, gap)) for play, gap in plays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, "\n".join(wrong)


def test_a_payout_that_can_never_be_is_refused_for_good(stacks):
    payouts = Payouts(stacks)
    s = payouts.stack
    for number, body in enumerate([b"{", b"[]", b"null", b"[" * 3000, b'{"account": "a"}', b'{"account": "a", "amount": "0.00"}',
                                   b'{"account": "a", "amount": 5}', b'{"account": "a\\u0000", "amount": "5.00"}']):
        answer = s.gateway.post(f"{s.key}-{number}", body, s.path)
        assert answer.status == 422, (body[:80], answer.status)
    assert payouts.provider.total == 0 and not b"".join(s.wire.said)


def test_without_the_gate(stack):
    """The claim is part of the backend's own transaction; nothing else changes."""
    s = stack("python")

    def pay(amount="12.50"):
        with Connection(s.backend.link.target) as client:
            return client.request("POST", "/payments", s.key, s.body(amount))

    answers = at_once(*[pay] * 4)
    assert {answer.status for answer in answers} == {201} and len({answer.body for answer in answers}) == 1
    assert s.database.payments(s.order) == 1 and s.database.state(s.key) == ("completed", 1)
    assert pay().body == answers[0].body
    assert pay("13.00").status == 422
