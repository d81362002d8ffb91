#!/usr/bin/python3
"""What `make run-shop` shows: one purchase from the bank's transaction to the customer's phone; the same purchase once more; and a
purchase in the middle of which the consumer and notify are killed. scripts/run-shop starts it.

    show.py [--once] [--broker rabbitmq|kafka] [--mail retry|hold]

--once: ends after the show. Exits 0 if everything was as promised.
"""
import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from parts import PATIENCE, until  # noqa: E402
from shop import ONCE, Shop  # noqa: E402
from brokers import Missing  # noqa: E402


def say(text=""):
    print(text, flush=True)


class Show:
    def __init__(self, shop, mail):
        self.shop, self.policy, self.notifier = shop, mail, shop.notifiers[0]
        self.wrong = []

    def purchase(self, key, amount):
        answer = self.shop.transfer("alice", "bookshop", amount, key)
        say(f"   POST /transfers  Idempotency-Key: {key}  alice pays {amount} EUR to the bookshop")
        replayed = answer.headers.get("Idempotent-Replayed") == "true"
        say(f"   {answer.status}  transaction {json.loads(answer.text)['transaction_id']}" + ("  (replayed)" if replayed else ""))
        return answer.text

    def await_notices(self, count):
        """Until alice has been notified of that many purchases. Mail under hold may be missing for good: it is not awaited then."""
        notifier = self.notifier
        notifier.push.wait(lambda provider: len(provider.messages) >= count, PATIENCE)
        notifier.sms.wait(lambda provider: len(provider.messages) >= count, PATIENCE)
        if self.policy == "retry":
            notifier.mail.wait(lambda mails: len({mail.id for mail in mails}) >= count, PATIENCE)
        until(lambda: len(self.shop.booked()) >= count, "the books")

    def count(self, expected):
        """What there is of everything, against what there has to be."""
        notifier, mails = self.notifier, self.notifier.mail.mails
        found = {"transfers in the bank's ledger": len(self.shop.transfers()),
                 "entries in the shop's books": len(self.shop.booked()),
                 "SMS": len(notifier.sms.messages),
                 "push messages": len(notifier.push.messages)}
        for what, number in found.items():
            good = number == expected
            say(f"   {number:>3}  {what}" + ("" if good else f"   WRONG: {expected} expected"))
            if not good:
                self.wrong.append(what)
        copies, different = len(mails), len({mail.id for mail in mails})
        say(f"   {copies:>3}  mails in the box" + (f", of which {copies - different} a second copy" if copies > different else ""))

    def first(self):
        say("\n1. A purchase. The transfer and its event commit together; relay, broker, consumer and notify carry it on.")
        self.answer = self.purchase("order-1", "19.99")
        self.await_notices(1)
        self.count(1)

    def again(self):
        say("\n2. The same purchase once more, as if the answer had got lost. Nothing happens twice.")
        if self.purchase("order-1", "19.99") != self.answer:
            self.wrong.append("the second answer is another one")
        self.count(1)

    def crash(self):
        say("\n3. Another purchase. Mail server and providers have their messages and are about to say so: the consumer and\n"
            "   notify are killed (kill -9) before they can record it.")
        notifier = self.notifier
        killed = threading.Event()

        def after_mail(_):
            notifier.mail.after = lambda _: None
            for provider in (notifier.sms, notifier.push):
                provider.wait(lambda provider: len(provider.requests) >= 2, PATIENCE)
            notifier.consumer.kill()
            notifier.service.kill()
            say("   killed; both are started again, and the broker delivers the event again")
            killed.set()

        notifier.mail.after = after_mail
        notifier.sms.after = notifier.push.after = lambda _: killed.wait(PATIENCE)
        self.purchase("order-2", "5.00")
        killed.wait(PATIENCE)
        until(self.settled, "what becomes of the mail")
        self.await_notices(2)
        self.count(2)
        notifier.push.wait(lambda provider: len(provider.requests) >= 3, PATIENCE)
        say(f"\n   One transfer, one push: the provider was asked twice for it ({len(notifier.push.requests)} requests in all) "
            "and sent it once,\n   because it deduplicates by the key that notify derives from the event's id.")
        self.honest_about_mail()

    def settled(self):
        """Retry: the copy has come. Hold: the record says that nobody knows, or the mail is there once and recorded."""
        if self.policy == "retry":
            return len(self.notifier.mail.mails) >= 3
        with open(self.notifier.service.log, encoding="utf-8", errors="replace") as log:
            return '"message":"held"' in log.read()

    def honest_about_mail(self):
        mails = self.notifier.mail.mails
        ids = [mail.id for mail in mails]
        doubled = next((identity for identity in ids if ids.count(identity) > 1), None)
        say("\n   And the mail? Nobody deduplicates mail. notify died after the mail server had it and before that was recorded;")
        if self.policy == "retry":
            say("   nobody can know. Under --mail retry it was sent again: two copies, one Message-ID, none lost:")
            say(f"      {doubled}")
            if ids.count(doubled) != 2 or len(set(ids)) != 2:
                self.wrong.append("mails")
        else:
            say("   nobody can know. Under --mail hold it was not sent again: never doubled, and if the server had lost it, lost.")
            say(f"   The event is among the dead letters, its record is unknown until someone settles it:\n"
                f"      {ONCE} keys list --stuck {self.notifier.store}")
            if len(ids) != len(set(ids)) or len(ids) != 2:
                self.wrong.append("mails")

    def run(self):
        for scene in (self.first, self.again, self.crash):
            scene()


def hints(shop):
    say(f"""
Go on in another terminal (Ctrl-C here ends it):

  another purchase:  curl -i http://127.0.0.1:{shop.port}/transfers -H 'Bank-Customer: alice' -H 'Idempotency-Key: order-3' \\
                       -d '{{"from": "alice", "to": "bookshop", "amount": "7.50", "currency": "EUR"}}'
  what was sent:     {ONCE} keys list {shop.notifiers[0].store}
  what they say:     tail -f {shop.directory}/*.log
  kill something:    it is started again
""")


def perform(directory, options):
    shop = Shop(directory, options.broker, {"notify": options.mail})
    show = Show(shop, options.mail)
    try:
        broker = {"kafka": "Kafka", "rabbitmq": "RabbitMQ"}[options.broker]
        say(f"Starting PostgreSQL, {broker}, gate, bank, relay, consumers, notify, books...")
        shop.start()
        shop.open_account("alice", "100.00")
        shop.open_account("bookshop", None)
        show.run()
        if not options.once:
            hints(shop)
            signal.pause()
    except KeyboardInterrupt:
        say("\nending...")
    except BaseException:
        for part in shop.parts:
            print(f"--- {part.name}\n{part.last_words()}", file=sys.stderr)
        raise
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        wrong = shop.close()
    if wrong:
        say(f"did not end well: {wrong}")
    for what in show.wrong:
        say(f"not as promised: {what}")
    return 1 if wrong or show.wrong else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--broker", default="rabbitmq", choices=["rabbitmq", "kafka"])
    parser.add_argument("--mail", default="retry", choices=["retry", "hold"])
    options = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="shop.")
    for number in (signal.SIGINT, signal.SIGTERM):  # scripts/run-shop ignores Ctrl-C, so that this program ends first
        signal.signal(number, signal.default_int_handler)
    try:
        return perform(directory, options)
    except Missing as missing:
        say(f"run-shop: {missing}")
        return 77
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
