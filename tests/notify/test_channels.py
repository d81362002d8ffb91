"""Each notification once, and each channel for itself."""
import signal
import threading

from service import until

TRANSFER = {"transaction_id": "t-1", "from": "alice", "to": "bob", "amount": "19.99", "currency": "EUR", "reference": ""}


def transfer(**changes):
    return {**TRANSFER, **changes}


def test_one_event_is_one_message_by_each_channel(notify, world):
    service = notify()
    answer = service.post("e-1", "transfer.completed", TRANSFER)
    assert answer.status == 200
    assert answer.outcomes() == {"mail": "sent", "sms": "sent", "push": "sent"}
    assert world.counts() == (1, 1, 1)
    mail = world.mail.mails[0]
    assert mail.subject == "You sent 19.99 EUR" and mail.to == "alice@example.com" and "from your account alice to bob" in mail.text
    assert world.sms.requests[0][1] == {"to": "+4915100000001", "text": "You sent 19.99 EUR to bob."}
    assert world.push.requests[0][1]["to"] == "device-alice"


def test_a_duplicate_is_acknowledged_and_logged(notify, world):
    service = notify()
    service.post("e-1", "transfer.completed", TRANSFER)
    answer = service.post("e-1", "transfer.completed", TRANSFER)
    assert answer.status == 200
    assert answer.outcomes() == {"mail": "duplicate", "sms": "duplicate", "push": "duplicate"}
    assert world.counts() == (1, 1, 1) and len(world.sms.requests) == 1
    for line in service.wait_log("duplicate", 3):
        assert (line["event"], line["key"], line["type"]) == ("e-1", "e-1", "transfer.completed")
        assert list(line)[:4] == ["time", "level", "program", "message"], "as the log of once relay and once consume"


def test_duplicates_at_the_same_time_are_one_message(notify, world):
    service = notify()
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(service.post_until_done("e-1", "transfer.completed", TRANSFER)))
               for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.status for answer in answers] == [200] * 12
    assert world.counts() == (1, 1, 1) and len(world.push.requests) == 1


def test_duplicates_are_known_after_a_restart(notify, world):
    service = notify()
    service.post("e-1", "transfer.completed", TRANSFER)
    service.restart()
    assert set(service.post("e-1", "transfer.completed", TRANSFER).outcomes().values()) == {"duplicate"}
    assert world.counts() == (1, 1, 1)


def test_type_event_and_user_are_the_identity(notify, world):
    service = notify()
    order = {"order_id": "o-1", "customer": "alice", "total": "5.00", "currency": "EUR"}
    service.post("e-1", "transfer.completed", TRANSFER)
    service.post("e-2", "transfer.completed", TRANSFER)
    service.post("e-1", "order.placed", order)
    assert world.counts() == (3, 3, 3)
    assert len({mail.id for mail in world.mail.mails}) == 3


def test_a_failing_sms_does_not_repeat_the_others(notify, world):
    service = notify()
    world.sms.answers = [500, 429]
    for _ in range(2):
        answer = service.post("e-1", "transfer.completed", TRANSFER)
        assert answer.status == 503 and int(answer.headers["Retry-After"]) >= 1 and answer.headers["Once-Outcome"] == "retry"
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.body["type"] == "urn:once:problem:notify-failed" and answer.body["retryable"] is True
        assert world.counts() == (1, 0, 1)
    answer = service.post("e-1", "transfer.completed", TRANSFER)
    assert answer.outcomes() == {"mail": "duplicate", "sms": "sent", "push": "duplicate"}
    assert world.counts() == (1, 1, 1)
    assert len({key for key, _ in world.sms.requests}) == 1


def test_a_failing_mail_does_not_repeat_the_others(notify, world):
    service = notify()
    world.mail.refuse = ["451 try later"]
    assert service.post("e-1", "transfer.completed", TRANSFER).status == 503
    assert world.counts() == (0, 1, 1)
    assert service.post("e-1", "transfer.completed", TRANSFER).outcomes()["mail"] == "sent"
    assert world.counts() == (1, 1, 1)


def test_a_channel_that_hangs_does_not_hold_up_the_others(notify, world):
    service = notify()
    gate = threading.Event()
    world.sms.after = lambda message: gate.wait(60)
    asking = threading.Thread(target=service.post, args=("e-1", "transfer.completed", TRANSFER))
    asking.start()
    sent = lambda: {line["channel"] for line in service.log("sent")}
    until(lambda: sent() == {"mail", "push"}, "mail and push sent and recorded while the SMS hangs")
    gate.set()
    asking.join()
    assert sent() == {"mail", "sms", "push"}


def test_a_provider_whose_answer_is_lost_sends_once(notify, world):
    service = notify()
    world.push.answers = [0, 0]
    assert service.post_until_done("e-1", "transfer.completed", TRANSFER).status == 200
    assert len(world.push.requests) == 3 and world.counts() == (1, 1, 1)


def test_what_a_channel_refuses_for_good_is_a_dead_letter(notify, world):
    service = notify()
    world.mail.refuse = ["550 no such mailbox"]
    answer = service.post("e-1", "transfer.completed", TRANSFER)
    assert answer.status == 422 and answer.body["type"] == "urn:once:problem:notify-refused" and answer.body["retryable"] is False
    assert "alice@" not in str(answer.body)
    assert world.counts() == (0, 1, 1)
    assert service.post("e-1", "transfer.completed", TRANSFER).status == 200  # replayed from the dead letters, the mailbox is there
    assert world.counts() == (1, 1, 1)


def test_what_can_be_tried_again_goes_before_what_cannot(notify, world):
    service = notify()
    world.sms.answers = [400]
    world.push.answers = [503]
    assert service.post("e-1", "transfer.completed", TRANSFER).status == 503
    world.sms.answers = [400]
    answer = service.post("e-1", "transfer.completed", TRANSFER)
    assert answer.status == 422 and world.counts() == (1, 0, 1)


def test_another_payload_under_the_same_id_is_not_sent(notify, world):
    service = notify()
    service.post("e-1", "transfer.completed", TRANSFER)
    answer = service.post("e-1", "transfer.completed", transfer(amount="1999.00"))
    assert answer.status == 422 and world.counts() == (1, 1, 1)


def test_a_notification_is_forgotten_after_its_ttl(notify, world):
    """As documented: a redelivery after that is a new message. once consume remembers for longer."""
    service = notify("--ttl", "1s")
    service.post("e-1", "transfer.completed", TRANSFER)
    assert service.post("e-1", "transfer.completed", TRANSFER).outcomes()["mail"] == "duplicate"
    until(lambda: service.post("e-1", "transfer.completed", TRANSFER).outcomes()["mail"] == "sent", "the ttl being over")
    assert len(world.mail.mails) == 2


def test_an_end_lets_what_was_begun_finish(notify, world):
    service = notify()
    begun, gate, answers = threading.Event(), threading.Event(), []

    def hold(message):
        begun.set()
        gate.wait(60)

    world.push.after = hold
    asking = threading.Thread(target=lambda: answers.append(service.post("e-1", "transfer.completed", TRANSFER)))
    asking.start()
    assert begun.wait(30)
    service.signal(signal.SIGTERM)
    service.wait_log("stopping")
    gate.set()
    asking.join()
    assert service.ended() == 0
    assert answers[0].status == 200 and world.counts() == (1, 1, 1)
    service.start()
    assert set(service.post("e-1", "transfer.completed", TRANSFER).outcomes().values()) == {"duplicate"}


def test_metrics_count_what_became_of_notifications(notify, world):
    service = notify()
    world.sms.answers = [500]
    service.post("e-1", "transfer.completed", TRANSFER)
    service.post("e-1", "transfer.completed", TRANSFER)
    service.post("e-2", "no.such.type", TRANSFER)
    metrics = service.metrics()
    count = lambda channel, outcome: int(metrics[f'notify_notifications_total{{channel="{channel}",outcome="{outcome}"}}'])
    assert (count("mail", "sent"), count("mail", "duplicate"), count("sms", "failed"), count("sms", "sent")) == (1, 1, 1, 1)
    assert metrics["notify_events_total"] == "3" and metrics["notify_bad_events_total"] == "1"


def test_logs_have_ids_and_no_personal_data(notify, world):
    service = notify()
    world.mail.refuse = ["550 <alice@example.com> is unknown"]
    world.sms.answers = [400]
    service.post("e-1", "transfer.completed", transfer(reference="rent of May"))
    service.post("e-2", "transfer.completed", transfer(**{"from": "nobody@example.com"}))
    service.wait_log("bad event")
    text = "\n".join(service.lines)
    for secret in ("@example.com", "+49151", "device-alice", "19.99", "rent of May", "Alice"):
        assert secret not in text, secret
    for line in service.log("refused") + service.log("sent"):
        assert line["event"] == "e-1" and line["key"] == "e-1"
