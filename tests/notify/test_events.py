"""What an event has to be, and what is made of it."""
import os

import pytest

TRANSFER = {"transaction_id": "t-1", "from": "alice", "to": "bob", "amount": "19.99", "currency": "EUR", "reference": ""}
ORDER = {"order_id": "o-1", "total": 12.5, "currency": "EUR",
         "customer": {"id": "u-77", "name": "Jürgen", "mail": "j@example.org", "push": "device-77"}}


@pytest.mark.parametrize("status, kind, body, why", [
    (400, "transfer.completed", "{", "not a JSON object"),
    (400, "transfer.completed", "[1]", "not a JSON object"),
    (400, "transfer.completed", '{"from": "alice", "from": "bob"}', "not a JSON object"),
    (422, None, TRANSFER, "no type"),
    (422, "no.such.type", TRANSFER, "no templates"),
    (422, "transfer.completed", {**TRANSFER, "from": "mallory"}, "user who is not known"),
    (422, "transfer.completed", {"amount": "1"}, "no user at /from"),
    (422, "transfer.completed", {**TRANSFER, "from": 7}, "user who is not known"),
    (422, "transfer.completed", {"from": "alice", "to": "bob", "currency": "EUR", "transaction_id": "t"}, "no /amount"),
    (422, "transfer.completed", {**TRANSFER, "amount": {"value": 1}}, "no /amount"),
    (422, "order.placed", {**ORDER, "customer": {"id": "u", "mail": "a@b> RCPT TO:<x@y"}}, 'member "mail"'),
    (422, "order.placed", {**ORDER, "customer": {"mail": "a@example.org"}}, 'member "id"'),
])
def test_a_bad_event_is_refused_with_its_reason_and_has_no_effect(notify, world, status, kind, body, why):
    service = notify()
    answer = service.post("e-1", kind, body, **({"ce-type": None} if kind is None else {}))
    assert answer.status == status and answer.headers["Content-Type"] == "application/problem+json"
    assert answer.body["type"] == "urn:once:problem:notify-bad-event" and answer.body["status"] == status
    assert why in answer.body["detail"] and answer.body["retryable"] is False
    assert world.counts() == (0, 0, 0) and service.records() == []


def test_an_event_that_is_too_big(notify, world):
    answer = notify().post("e-1", "transfer.completed", {**TRANSFER, "reference": "x" * 300000})
    assert answer.status == 413 and "256 KiB" in answer.body["detail"] and world.counts() == (0, 0, 0)


def test_an_event_without_an_id_is_bad(notify, world):
    answer = notify().post(None, "transfer.completed", TRANSFER, **{"Idempotency-Key": None})
    assert answer.status == 422 and "event id" in answer.body["detail"] and world.counts() == (0, 0, 0)


def test_all_spellings_of_an_event_are_one_event(notify, world):
    service = notify()
    order = {**ORDER, "event_id": "e-1", "type": "order.placed"}
    plain = {"ce-id": None, "ce-type": None}
    assert service.post("e-1", "order.placed", order).outcomes() == {"mail": "sent", "push": "sent"}
    assert service.post(None, None, order, **{**plain, "ce_id": "e-1", "ce_type": "order.placed"}).outcomes()["mail"] == "duplicate"
    assert service.post(None, None, order, **plain, **{"Idempotency-Key": "e-1"}).outcomes()["mail"] == "duplicate"
    whole = {"specversion": "1.0", "id": "e-2", "type": "order.placed", "source": "/shop", "data": ORDER}
    headers = {**plain, "Content-Type": "application/cloudevents+json"}
    assert service.post(None, None, whole, **headers).outcomes() == {"mail": "sent", "push": "sent"}
    assert world.counts() == (2, 0, 2)


def test_a_user_can_stand_in_the_event(notify, world):
    notify().post("e-1", "order.placed", ORDER)
    assert world.mail.mails[0].to == "j@example.org" and "Dear Jürgen" in world.mail.mails[0].text
    assert world.counts() == (1, 0, 1)  # no number for SMS: none is sent


def test_values_cannot_add_headers_to_a_mail(notify, world):
    notify().post("e-1", "transfer.completed", {**TRANSFER, "amount": "1\r\nBcc: all@example.com\r\n\r\nbuy"})
    mail = world.mail.mails[0]
    assert mail.subject == "You sent 1  Bcc: all@example.com    buy EUR"


def test_a_subject_in_any_language(notify, world):
    notify().post("e-1", "transfer.completed", {**TRANSFER, "currency": "€ – 日本語の長い件名がここにあります、とても長いです"})
    assert world.mail.mails[0].subject == "You sent 19.99 € – 日本語の長い件名がここにあります、とても長いです"


def test_ids_of_any_characters_have_records_of_their_own(notify, world):
    service = notify()
    for event in ("a:b", "a/b", "a b"[:1] + "#b"):
        assert service.post(event, "transfer.completed", TRANSFER).outcomes()["sms"] == "sent"
        assert service.post(event, "transfer.completed", TRANSFER).outcomes()["sms"] == "duplicate"
    assert world.counts() == (3, 3, 3)


def test_other_paths_are_not_there(notify):
    service = notify()
    assert service.request("POST", "/").status == 404
    assert service.request("GET", "/events").status == 404
    assert service.request("GET", "/health").body == {"status": "up"}


def write(directory, name, text):
    path = os.path.join(directory, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def test_two_users_of_one_event_are_told_each_for_himself(notify, world, directory):
    write(directory, "templates/transfer.completed/users", "/from\n/to\n")
    write(directory, "templates/transfer.completed/push", "{{/amount}} for {{user.id}} by {{event.id}}")
    service = notify(templates=os.path.join(directory, "templates"))
    world.push.answers = [500]
    assert service.post("e-1", "transfer.completed", TRANSFER).status == 503
    assert service.post("e-1", "transfer.completed", TRANSFER).status == 200
    assert {message["text"] for message in world.push.messages.values()} == {"19.99 for alice by e-1", "19.99 for bob by e-1"}
    assert len(world.push.requests) == 3
