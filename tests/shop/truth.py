"""What must be true of a shop, whatever was killed. `transfers` are those that were committed: [(id, payer)], in their order."""
import collections
import json
import subprocess

from shop import ONCE

# Under retry: mails that came once more. Under hold: mails that did not come, and records whose outcome is unknown.
Found = collections.namedtuple("Found", "extra missing doubtful")


LATE = 5  # seconds that a mail server may take to read what a client sent before it was killed


def texts(provider):
    return collections.Counter(message["text"] for message in list(provider.messages.values()))


def arrived(shop, transfers):
    """Everything has come where it goes. Mail under hold may be missing: examine looks at that."""
    wanted = {transfer for transfer, _ in transfers}
    return {transfer for transfer, _ in shop.booked()} >= wanted and all(
        set(texts(notifier.sms)) >= wanted and set(texts(notifier.push)) >= wanted for notifier in shop.notifiers) and \
        {mail.subject for mail in list(shop.notifiers[0].mail.mails)} >= wanted


def progress(shop, transfers):
    told = {n.name: (len(n.mail.mails), len(n.sms.messages), len(n.push.messages)) for n in shop.notifiers}
    return f"{len(transfers)} transfers, {len(shop.booked())} in the books, (mails, SMS, pushes): {told}"


def check_order(what, transfers, came):
    place = {transfer: number for number, transfer in enumerate(came)}
    for payer in {payer for _, payer in transfers}:
        places = [place[transfer] for transfer, owner in transfers if owner == payer]
        assert places == sorted(places), f"{what}: the transfers of {payer} came in another order"


def check_books(shop, transfers):
    """Effects in the consumer's database = committed transfers, those of one payer in their order."""
    booked = [transfer for transfer, _ in shop.booked()]
    assert collections.Counter(booked) == collections.Counter(transfer for transfer, _ in transfers), \
        "the books have not each transfer once"
    check_order("books", transfers, booked)


def check_messages(notifier, transfers):
    """SMS and pushes = distinct event ids, those of one payer in their order."""
    for provider in (notifier.sms, notifier.push):
        assert texts(provider) == collections.Counter(transfer for transfer, _ in transfers), \
            f"{notifier.name}: not one {provider.name} for each transfer"
        check_order(provider.name, transfers, [provider.messages[key]["text"] for key in provider.order])


def check_mail_retry(notifier, transfers):
    """Never lost; one more copy of a mail only where notify was killed in between; all copies have one Message-ID."""
    copies = collections.defaultdict(list)
    for mail in notifier.mail.mails:
        copies[mail.subject].append(mail)
    assert set(copies) == {transfer for transfer, _ in transfers}, "a mail was lost"
    assert len({mail.id for mail in notifier.mail.mails}) == len(copies), "a copy has another Message-ID"
    for transfer, mails in copies.items():
        for first, second in zip(mails, mails[1:]):
            assert any(after >= first.at - LATE and before <= second.at for before, after in notifier.service.kills), \
                f"two mails of {transfer}, and no crash between them"
    return len(notifier.mail.mails) - len(copies)


def in_doubt(notifier):
    """Event ids whose record says that it is unknown whether the mail was sent."""
    done = subprocess.run([ONCE, "keys", "list", "--json", "--limit", "1000000", notifier.store], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return {record["key"].split(":")[1] for record in map(json.loads, done.stdout.splitlines())
            if record["state"] in ("unknown", "pending")}


def missing_mails(shop, notifier, transfers):
    """Event ids of transfers without a mail."""
    event_of = dict(shop.rows("SELECT transfer, event FROM public.books"))
    subjects = {mail.subject for mail in list(notifier.mail.mails)}
    return {event_of[transfer] for transfer, _ in transfers if transfer not in subjects}


def held(shop, transfers):
    """Under hold every mail has come, or is in doubt: nothing is tried again any more."""
    notifier = shop.notifiers[1]
    missing = missing_mails(shop, notifier, transfers)
    return not missing or missing <= in_doubt(notifier)


def check_mail_hold(shop, notifier, transfers):
    """Never doubled; the record of each that is missing is unknown."""
    subjects = [mail.subject for mail in notifier.mail.mails]
    assert len(subjects) == len(set(subjects)), "a mail was doubled under hold"
    missing, doubtful = missing_mails(shop, notifier, transfers), in_doubt(notifier)
    assert missing <= doubtful, "a mail is missing, and its record does not say so"
    return len(missing), len(doubtful)


def examine(shop, transfers):
    retry, hold = shop.notifiers
    check_books(shop, transfers)
    for notifier in shop.notifiers:
        check_messages(notifier, transfers)
    extra = check_mail_retry(retry, transfers)
    return Found(extra, *check_mail_hold(shop, hold, transfers))
