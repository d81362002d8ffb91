"""The campaign must be able to fail: each rule of truth.py is broken once, and noticed. No processes here."""
import os
import sys
import types

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "examples", "shop")]

import truth  # noqa: E402

TRANSFERS = [("t1", "p0"), ("t2", "p1"), ("t3", "p0")]


def provider(*texts):
    messages = {f"key-{n}": {"text": text} for n, text in enumerate(texts)}
    return types.SimpleNamespace(name="push", messages=messages, order=list(messages))


def notifier(subjects=("t1", "t2", "t3"), sms=("t1", "t2", "t3"), push=("t1", "t2", "t3"), kills=(), ids=None):
    mails = [types.SimpleNamespace(subject=subject, id=(ids or {}).get(n, f"id-{subject}"), at=n * 100.0)
             for n, subject in enumerate(subjects)]
    return types.SimpleNamespace(name="notify", mail=types.SimpleNamespace(mails=mails), sms=provider(*sms), push=provider(*push),
                                 service=types.SimpleNamespace(kills=list(kills)), store="memory:")


class Books:
    def __init__(self, *booked):
        self.list = booked

    def booked(self):
        return [(transfer, dict(TRANSFERS).get(transfer)) for transfer in self.list]

    def rows(self, _):
        return [(transfer, f"event-{transfer}") for transfer, _ in TRANSFERS]


def test_what_is_as_promised_passes():
    truth.check_books(Books("t1", "t2", "t3"), TRANSFERS)
    truth.check_books(Books("t2", "t1", "t3"), TRANSFERS)  # of two payers: no order between them
    truth.check_messages(notifier(), TRANSFERS)
    assert truth.check_mail_retry(notifier(), TRANSFERS) == 0
    assert truth.check_mail_retry(notifier(subjects=["t1", "t1", "t2", "t3"], kills=[(20.0, 40.0)]), TRANSFERS) == 1


@pytest.mark.parametrize("booked", [("t1", "t2"), ("t1", "t2", "t3", "t3"), ("t3", "t2", "t1"), ("t1", "t2", "t3", "t4")])
def test_books_that_lack_double_or_reorder(booked):
    with pytest.raises(AssertionError):
        truth.check_books(Books(*booked), TRANSFERS)


@pytest.mark.parametrize("messages", [("t1", "t2"), ("t1", "t2", "t3", "t1"), ("t3", "t2", "t1")])
@pytest.mark.parametrize("channel", ["sms", "push"])
def test_messages_that_lack_double_or_reorder(channel, messages):
    with pytest.raises(AssertionError):
        truth.check_messages(notifier(**{channel: messages}), TRANSFERS)


@pytest.mark.parametrize("broken, why", [
    (notifier(subjects=["t1", "t2"]), "lost"),
    (notifier(subjects=["t1", "t1", "t2", "t3"]), "no crash"),
    (notifier(subjects=["t1", "t1", "t2", "t3"], kills=[(200.0, 250.0)]), "no crash"),
    (notifier(subjects=["t1", "t1", "t2", "t3"], kills=[(20.0, 40.0)], ids={1: "another"}), "Message-ID"),
])
def test_mail_under_retry_that_is_not_as_promised(broken, why):
    with pytest.raises(AssertionError, match=why):
        truth.check_mail_retry(broken, TRANSFERS)


def records(monkeypatch, *lines):
    done = types.SimpleNamespace(returncode=0, stdout="\n".join(lines).encode())
    monkeypatch.setattr(truth.subprocess, "run", lambda *_, **__: done)


def test_mail_under_hold(monkeypatch):
    records(monkeypatch, '{"key": "transfer.completed:event-t2:p1", "state": "unknown"}')
    assert truth.check_mail_hold(Books(), notifier(subjects=["t1", "t3"]), TRANSFERS) == (1, 1)
    with pytest.raises(AssertionError, match="doubled"):
        truth.check_mail_hold(Books(), notifier(subjects=["t1", "t1", "t2", "t3"], kills=[(20.0, 40.0)]), TRANSFERS)
    with pytest.raises(AssertionError, match="does not say so"):
        truth.check_mail_hold(Books(), notifier(subjects=["t2", "t3"]), TRANSFERS)
