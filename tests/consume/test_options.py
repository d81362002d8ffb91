"""Values that make no sense are refused at the start, with a sentence that names the option, and never met later."""
import os
import subprocess
import time

import pytest

from harness import ONCE

KAFKA, TO = "kafka://127.0.0.1:1/orders?group=g", ("--to", "http://127.0.0.1:1/")
CONSUME = ("consume", KAFKA, *TO)
AMQP = "amqp://127.0.0.1:1/%2F/q"
STORE = "postgres://127.0.0.1:1/x"
LONG = "x" * 300

HOSTILE = [
    (("consume", KAFKA), "missing --to URL"),
    (("consume", KAFKA, "--to", ""), "--to must not be empty"),
    (("consume", KAFKA, "--to", "ftp://h/"), "--to must be http"),
    (("consume", KAFKA, "--to", "http://h:99999/"), "--to must be http"),
    (("consume", KAFKA, "--to", "nonsense"), "--to must be http"),
    ((*CONSUME, "--store", ""), "--store must not be empty"),
    ((*CONSUME, "--store", "ftp://x"), "ftp"),
    ((*CONSUME, "--subscriber", ""), "--subscriber must not be empty"),
    ((*CONSUME, "--subscriber", LONG), "--subscriber"),
    ((*CONSUME, "--subscriber", "a\r\nX: y"), "--subscriber must not have control characters"),
    (("consume", f"kafka://h/orders?group={LONG}", *TO), "--subscriber"),
    ((*CONSUME, "--id", ""), "--id must not be empty"),
    ((*CONSUME, "--id", "header:"), "--id is header:NAME"),
    ((*CONSUME, "--id", "json:x"), "--id is header:NAME"),
    ((*CONSUME, "--id", "offset"), "--id is header:NAME"),
    ((*CONSUME, "--fingerprint", "x"), "--fingerprint must be"),
    ((*CONSUME, "--order", ""), "--order must not be empty"),
    ((*CONSUME, "--order", "random"), "--order must be"),
    ((*CONSUME, "--concurrency", "0"), "--concurrency must be between 1 and 1024"),
    ((*CONSUME, "--concurrency", "-1"), "--concurrency needs a whole number"),
    ((*CONSUME, "--concurrency", "99999999999999999999"), "--concurrency needs a whole number"),
    ((*CONSUME, "--window", "1"), "--window must be"),
    ((*CONSUME, "--window", "1000000"), "--window must be"),
    ((*CONSUME, "--tries", "0"), "--tries"),
    ((*CONSUME, "--tries", "4294967297"), "--tries is too large"),
    ((*CONSUME, "--timeout", "0"), "--timeout"),
    ((*CONSUME, "--timeout", "-5s"), "--timeout needs a duration"),
    ((*CONSUME, "--timeout", "400d"), "--timeout must be at most 30d"),
    ((*CONSUME, "--backoff", "0s"), "--backoff"),
    ((*CONSUME, "--backoff-max", "99999d"), "--backoff-max must be at most 30d"),
    ((*CONSUME, "--drain", "soon"), "--drain needs a duration"),
    ((*CONSUME, "--dead-letter", ""), "--dead-letter must not be empty"),
    ((*CONSUME, "--dead-letter", LONG), "--dead-letter: the name of a Kafka topic"),
    ((*CONSUME, "--dead-letter", "a topic"), "--dead-letter: the name of a Kafka topic"),
    ((*CONSUME, "--dead-letter", "orders"), "--dead-letter: orders is where the messages come from"),
    (("consume", f"kafka://h/{'x' * 247}?group=g", *TO), "--dead-letter: the name of a Kafka topic"),
    (("consume", AMQP, *TO, "--dead-letter", "x" * 256), "--dead-letter: the name of a queue"),
    ((*CONSUME, "--ttl", ""), "--ttl must not be empty"),
    ((*CONSUME, "--ttl", "-1"), "--ttl"),
    ((*CONSUME, "--lease", "0"), "--lease"),
    ((*CONSUME, "--recover", "hope"), "--recover"),
    ((*CONSUME, "--release", "999999"), "--release"),
    ((*CONSUME, "--header", ""), "--header must not be empty"),
    ((*CONSUME, "--header", "a b"), "--header needs the name of a header"),
    ((*CONSUME, "--header", "Once-Claim"), "--header: Once-Claim cannot come from a message"),
    ((*CONSUME, "--header", "transfer-encoding"), "--header: transfer-encoding cannot come"),
    ((*CONSUME, "--content-type", ""), "--content-type must not be empty"),
    ((*CONSUME, "--content-type", "a/b\nX: y"), "--content-type must not have control characters"),
    ((*CONSUME, "--cacert", "/nowhere"), "--cacert: cannot read /nowhere"),
    ((*CONSUME, "--metrics", ""), "--metrics must not be empty"),
    ((*CONSUME, "--log", "loud"), "--log must be"),
    (("consume", "", *TO), "the URL must be SCHEME://"),
    (("consume", "orders", *TO), "the URL must be SCHEME://"),
    (("consume", "http://h/x", *TO), "the URL must be kafka://"),
    (("consume", "kafka://h/orders", *TO), "the URL must be kafka://"),
    (("consume", "kafka://h/?group=g", *TO), "the URL must be kafka://"),
    (("consume", "kafka://h/orders?group=", *TO), "the URL must be kafka://"),
    (("consume", "kafka://h:99999/orders?group=g", *TO), "a port that is not a number from 1 to 65535"),
    (("consume", "kafka://h:x/orders?group=g", *TO), "a port that is not a number from 1 to 65535"),
    (("consume", "kafka://h,,g/orders?group=g", *TO), "host 2 is missing"),
    (("consume", "kafka://h/^or.*?group=g", *TO), "the name of a Kafka topic"),
    (("consume", "kafka://h/a%00b?group=g", *TO), "bad %-escape"),
    (("consume", "kafka://h/orders?group=g&no.such.property=1", *TO), "no.such.property"),
    (("consume", "kafka://h/orders?group=g&enable.auto.commit=true", *TO), "cannot be changed"),
    (("consume", "amqp://h/q", *TO), "must be amqp://"),
    (("consume", "amqp://h:0/%2F/q", *TO), "a port that is not a number from 1 to 65535"),
    (("consume", "amqp://h/%2F/q?nonsense=1", *TO), "has no parameter nonsense"),
    (("consume", "amqp://h/%2F/q?heartbeat=-1", *TO), "heartbeat must be between 0 and 65535"),
    (("consume", f"amqp://h/%2F/{LONG}", *TO), "must be amqp://"),
    (("relay", STORE, "kafka://h/t", "--source", ""), "--source must not be empty"),
    (("relay", STORE, "kafka://h/t", "--source", "a\nb"), "--source must not have control characters"),
    (("relay", STORE, "kafka://h/a topic"), "the name of a Kafka topic"),
    (("relay", STORE, "kafka://h:0/t"), "a port that is not a number from 1 to 65535"),
    (("relay", STORE, "http://h:99999/x", "--unsigned"), "a port that is not a number from 1 to 65535"),
    (("relay", STORE, "http://h h/x", "--unsigned"), "the URL must be http"),
    (("relay", STORE, "http:///x", "--unsigned"), "host 1 is missing"),
    (("relay", STORE, "https://h/x"), "webhooks need --secret-file FILE"),
    (("relay", STORE, "https://h/x", "--unsigned", "--secret-file", "/dev/null"), "not both"),
    (("relay", STORE, "kafka://h/t", "--unsigned"), "are for webhooks"),
    (("relay", STORE, "amqp://h/x", "--secret-file", "/dev/null"), "are for webhooks"),
    (("relay", STORE, "amqp://h/x?cacrt=1"), "parameters"),
    (("relay", STORE, "kafka://h/t", "--cacert", "/nowhere"), "--cacert: cannot read /nowhere"),
    (("relay", STORE, "kafka://h/t", "--tries", "4294967297"), "--tries is too large"),
    (("relay", STORE, "kafka://h/t", "--window", "4294967360"), "--window is too large"),
    (("relay", STORE, "kafka://h/t", "--timeout", "0"), "--timeout"),
    (("relay", STORE, "kafka://h/t", "--drain", "9999999d"), "--drain must be at most 30d"),
    (("relay", STORE, "kafka://h/t", "--metrics", ""), "--metrics must not be empty"),
    (("dlq", "list", "kafka://h/orders.dlq", "--limit", "-1"), "--limit needs a whole number"),
    (("dlq", "replay", "kafka://h/orders.dlq", "--to", ""), "--to must not be empty"),
    (("dlq", "replay", "kafka://h/orders.dlq", "--to", LONG), "--to is too long"),
    (("dlq", "replay", "kafka://h/orders.dlq", "--id", ""), "--id must not be empty"),
    (("dlq", "replay", "kafka://h/letters"), "give --to NAME, or --any"),
    (("dlq", "replay", "amqp://h/%2F/letters"), "give --to NAME, or --any"),
    (("dlq", "replay", "amqp://h/%2F/.dlq"), "give --to NAME, or --any"),
    (("dlq", "replay", "nonsense://h/x"), "the URL must be kafka://"),
    (("outbox", "list", STORE, "zz"), "is not the beginning of an event id"),
    (("outbox", "list", STORE, ""), "is not the beginning of an event id"),
    (("outbox", "list", STORE, "--limit", "5000000000"), "--limit is too large"),
    (("outbox", "retry", STORE, LONG), "is not the beginning of an event id"),
    (("outbox", "drop", STORE), "missing events"),
]


@pytest.mark.parametrize("arguments,words", HOSTILE, ids=lambda value: None if isinstance(value, str) else "_".join(value)[:60])
def test_it_is_refused(arguments, words, tmp_path):
    store = {"ONCE_STORE": f"local:{tmp_path}/store"} if arguments[0] == "consume" else {}
    done = subprocess.run([ONCE, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=60, env={**os.environ, **store})
    assert words in done.stdout, done.stdout
    assert done.returncode == 2, done.stdout


def test_a_kafka_that_is_not_there_is_told_at_once():
    begun = time.monotonic()
    done = subprocess.run([ONCE, "dlq", "list", "kafka://127.0.0.1:1/orders.dlq"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=60)
    assert "Connection refused" in done.stdout and done.returncode == 3, done.stdout
    assert done.stdout.startswith("once: ") and done.stdout.count("\n") == 1, "no head of a table above it"
    assert time.monotonic() - begun < 10
