"""When it is unknown whether it was sent: a crash between sending and recording, an answer that is lost.

SMS and push: the provider deduplicates by the key, so it is asked again and there is one message. Mail is not deduplicated. Under
retry it is sent again (never lost, at most one extra a crash, with the same Message-ID); under hold it is not (never doubled)."""
import json

import pytest

TRANSFER = {"transaction_id": "t-1", "from": "alice", "to": "bob", "amount": "19.99", "currency": "EUR", "reference": ""}


def kill_once(service, server):
    """The server has it and is about to say so: notify dies."""
    def after(_):
        server.after = lambda _: None
        service.process.kill()
    server.after = after


def crash(service, event="e-1"):
    with pytest.raises(Exception):
        service.post(event, "transfer.completed", TRANSFER)
    service.ended()
    service.start()


def test_a_mail_under_retry_is_sent_again_with_the_same_id(notify, world):
    service = notify("--mail", "retry", "--lease", "1s")
    kill_once(service, world.mail)
    crash(service)
    assert len(world.mail.mails) == 1
    answer = service.post("e-1", "transfer.completed", TRANSFER)
    assert answer.status in (200, 503)  # 503: the lease of the dead process is not over
    assert answer.status == 200 or int(answer.headers["Retry-After"]) >= 1
    assert service.post_until_done("e-1", "transfer.completed", TRANSFER).status == 200
    assert len(world.mail.mails) == 2 and world.mail.mails[0].id == world.mail.mails[1].id
    assert world.counts() == (2, 1, 1)


def test_a_mail_under_hold_is_never_doubled(notify, world):
    service = notify("--mail", "hold", "--lease", "1s")
    kill_once(service, world.mail)
    crash(service)
    for _ in range(3):
        answer = service.post_until_done("e-1", "transfer.completed", TRANSFER)
        assert answer.status == 422 and answer.body["type"] == "urn:once:problem:notify-held"
        assert answer.body["retryable"] is False and "transfer.completed:e-1:alice" in answer.body["detail"]
    assert world.counts() == (1, 1, 1)
    assert service.wait_log("held")[0]["channel"] == "mail"


@pytest.mark.parametrize("channel", ["sms", "push"])
def test_a_provider_is_asked_again_with_the_same_key(notify, world, channel):
    service = notify("--mail", "hold", "--lease", "1s")
    provider = getattr(world, channel)
    kill_once(service, provider)
    crash(service)
    service.post_until_done("e-1", "transfer.completed", TRANSFER)
    assert len(provider.requests) == 2 and len(provider.messages) == 1
    assert provider.requests[0] == provider.requests[1]
    assert len(world.mail.mails) <= 1 and len(world.sms.messages) == len(world.push.messages) == 1


def lose_answers(world, count):
    left = [count]

    def after(_):
        left[0] -= 1
        return "hang up" if left[0] >= 0 else None
    world.mail.after = after


def test_a_lost_answer_of_the_mail_server_under_retry(notify, world):
    service = notify("--mail", "retry", "--lease", "1s")
    lose_answers(world, 1)
    answer = service.post("e-1", "transfer.completed", TRANSFER)
    assert answer.status == 503 and answer.body["detail"] == "mail: doubt"
    assert service.post_until_done("e-1", "transfer.completed", TRANSFER).status == 200
    assert len(world.mail.mails) == 2 and len({mail.id for mail in world.mail.mails}) == 1
    assert world.counts() == (2, 1, 1)


def test_a_lost_answer_of_the_mail_server_under_hold(notify, world):
    service = notify("--mail", "hold", "--lease", "1s")
    lose_answers(world, 1)
    for _ in range(2):
        answer = service.post("e-1", "transfer.completed", TRANSFER)
        assert answer.status == 422 and answer.body["type"] == "urn:once:problem:notify-held"
    assert world.counts() == (1, 1, 1)


def held_record(service):
    return next(record for record in service.records() if record["state"] == "unknown")


def test_an_operator_settles_a_held_mail_as_not_sent(notify, world):
    service = notify("--mail", "hold", "--lease", "1s")
    lose_answers(world, 1)
    service.post("e-1", "transfer.completed", TRANSFER)
    world.mail.mails.clear()  # the operator looked: it is not there
    service.once("keys", "settle", "--note=test", "--failed", "--force", "--yes", service.store, held_record(service)["id"])
    assert service.post("e-1", "transfer.completed", TRANSFER).outcomes() == {"mail": "sent", "sms": "duplicate",
                                                                            "push": "duplicate"}
    assert world.counts() == (1, 1, 1)


def test_an_operator_settles_a_held_mail_as_sent(notify, world):
    service = notify("--mail", "hold", "--lease", "1s")
    lose_answers(world, 1)
    service.post("e-1", "transfer.completed", TRANSFER)
    service.once("keys", "settle", "--note=test", "--completed", "--status", "250", "--body-file", "-", "--force", "--yes",
                 service.store,
                 held_record(service)["id"], data=b"")
    assert set(service.post("e-1", "transfer.completed", TRANSFER).outcomes().values()) == {"duplicate"}
    assert world.counts() == (1, 1, 1)


@pytest.mark.parametrize("policy", ["retry", "hold"])
def test_a_mail_that_certainly_was_not_sent_is_no_doubt(notify, world, policy):
    """Refused, or cut before its end: it is tried again at once, also under hold."""
    service = notify("--mail", policy)
    world.mail.refuse = ["451 later", "421 closing"]
    assert service.post("e-1", "transfer.completed", TRANSFER).status == 503
    assert service.post("e-1", "transfer.completed", TRANSFER).status == 503
    assert service.post("e-1", "transfer.completed", TRANSFER).outcomes()["mail"] == "sent"
    assert json.dumps(service.records()).count("completed") >= 3
    assert world.counts() == (1, 1, 1)
