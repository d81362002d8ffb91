"""A shop on one machine: once gate, bank, once relay, a broker, once consume, notify, and the shop's books. Needs the environment
that tests/postgres/with-server makes.

                                                           +--> once consume --> notify --> mail, SMS, push
    once gate --> bank --> once.outbox --> once relay --> broker
                                                           +--> once consume --> books (once.accept, in its own transaction)
"""
import http.client
import json
import os
import subprocess
import sys

import psycopg2

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.abspath(os.environ.get("ONCE_BUILD", os.path.join(SOURCE, "build")))
ONCE = os.path.join(BUILD, "once")
EXAMPLES = os.path.join(SOURCE, "examples")
sys.path[:0] = [HERE, os.path.join(EXAMPLES, "notify"), os.path.join(SOURCE, "tests", "support")]

import books  # noqa: E402
import outside  # noqa: E402
from brokers import Kafka, RabbitMQ, free_port  # noqa: E402
from parts import Part, Postgres, Supervisor, until  # noqa: E402

TOPIC = "bank.transfers"
AGAIN = {408, 409, 425, 429, 500, 502, 503, 504}


class Rabbit:
    """How events travel: one exchange, a queue for each subscriber."""

    def __init__(self, directory):
        self.broker = RabbitMQ(directory)

    def start(self, subscribers):
        self.broker.start()
        for subscriber in subscribers:
            # One consumer at a time: what a killed one had is back in its place before the next one gets anything.
            self.broker.create(subscriber, exchange="events", routing_key=TOPIC, **{"x-single-active-consumer": True})

    def sink(self):
        return f"amqp://guest:guest@127.0.0.1:{self.broker.port}/%2F/events"

    def source(self, subscriber):
        return self.broker.url(subscriber)

    def dead_letters(self, subscriber):
        return subscriber + ".dlq"


class KafkaTopic:
    """One topic of four partitions, a group for each subscriber."""

    def __init__(self, directory):
        self.broker = Kafka(directory)

    def start(self, subscribers):
        self.broker.start()
        self.broker.create(TOPIC, partitions=4)
        for subscriber in subscribers:
            self.broker.create(f"{subscriber}.dlq")

    def sink(self):
        return f"kafka://{self.broker.servers}"

    def source(self, subscriber):
        # A killed consumer's partitions are given away when its session is over.
        return self.broker.url(TOPIC, group=subscriber, **{"session.timeout.ms": 3000, "heartbeat.interval.ms": 500})


class Notifier:
    """notify with a world outside of its own, behind a consumer of its own."""

    def __init__(self, shop, name, mail):
        self.name = name
        self.mail, self.sms, self.push = outside.MailServer(), outside.Provider("sms"), outside.Provider("push")
        self.store = f"local:{shop.directory}/{name}-records"
        port = free_port()
        self.service = Part(name, shop.directory, [
            os.path.join(BUILD, "examples", "example_notify"), "--listen", f"127.0.0.1:{port}", "--store", self.store,
            "--lease", shop.lease, "--templates", shop.templates, "--users", shop.users, "--from", "shop@example.com",
            "--mail", mail, "--mail-url", self.mail.url, "--sms-url", self.sms.url, "--push-url", self.push.url])
        self.consumer = shop.consumer(name, f"http://127.0.0.1:{port}/events")

    def close(self):
        for server in (self.mail, self.sms, self.push):
            server.close()


class Shop:
    """`notifiers` are names and what becomes of their mail: {"notify": "retry"}."""

    def __init__(self, directory, broker="rabbitmq", notifiers=None, lease="2s", templates=None, users=None):
        self.directory, self.lease = directory, lease
        self.templates = templates or os.path.join(EXAMPLES, "notify", "templates")
        self.users = users or os.path.join(HERE, "users.json")
        os.mkdir(os.path.join(directory, "broker"))
        self.broker = (KafkaTopic if broker == "kafka" else Rabbit)(os.path.join(directory, "broker"))
        self.postgres = Postgres()
        self.database = os.environ["ONCE_PG_URL"]
        bank_port, self.port = free_port(), free_port()
        books_port = free_port()
        route = "POST /transfers recover=transactional lease=2s"
        self.gate = Part("gate", directory, [ONCE, "gate", "--upstream", f"http://127.0.0.1:{bank_port}",
                                             "--listen", f"127.0.0.1:{self.port}", "--store", self.database,
                                             "--scope", "header:Bank-Customer", "--route", route,
                                             *(["--user", "postgres"] if os.geteuid() == 0 else [])])
        self.bank = Part("bank", directory, [os.path.join(BUILD, "examples", "example_bank"), "--database", self.database,
                                             "--listen", f"127.0.0.1:{bank_port}"])
        self.relay = Part("relay", directory, [ONCE, "relay", "--trace", "--lease", lease, self.database,
                                               self.broker.sink()])
        self.books = Part("books", directory, ["/usr/bin/python3", os.path.join(HERE, "books.py"), f"127.0.0.1:{books_port}",
                                               self.database])
        self.books_consumer = self.consumer("books", f"http://127.0.0.1:{books_port}/events")
        self.notifiers = [Notifier(self, name, mail) for name, mail in (notifiers or {"notify": "retry"}).items()]
        self.parts = [self.bank, self.gate, self.relay, self.books, self.books_consumer]
        for notifier in self.notifiers:
            self.parts += [notifier.service, notifier.consumer]
        self.supervisor = None

    def consumer(self, name, url):
        return Part(f"{name}-consumer", self.directory, [
            ONCE, "consume", self.broker.source(name), "--to", url, "--store", f"local:{self.directory}/{name}-consumed",
            "--subscriber", name, "--lease", self.lease, "--tries", "100", "--backoff-max", "1s"])

    # ------------------------------------------------------------------------------------------- starting and ending

    def start(self):
        schema = os.path.join(EXAMPLES, "bank", "schema.sql")
        subprocess.run(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", schema, "-c", books.TABLE], check=True,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        subprocess.run([ONCE, "stats", self.database], check=True, stdout=subprocess.DEVNULL)  # makes its secrets
        self.broker.start([notifier.name for notifier in self.notifiers] + ["books"])
        for part in self.parts:
            part.start()
        self.supervisor = Supervisor(self.parts)
        until(self.bank_answers, lambda: "the bank: " + self.bank.last_words() + self.gate.last_words())

    def bank_answers(self):
        try:
            return self.ask("GET", "/health").status == 200
        except OSError:
            return False

    def close(self):
        """Ends all; {name: exit code} of what did not end well."""
        codes = {part.name: part.end() for part in self.parts}
        if self.supervisor:
            self.supervisor.end()
        self.broker.broker.stop()
        for notifier in self.notifiers:
            notifier.close()
        return {name: code for name, code in codes.items() if code not in (0, -15)}

    # ------------------------------------------------------------------------------------------------------- the bank

    def ask(self, method, path, customer="", body=None, key=None, traceparent=None):
        """Through the gate."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            headers = {"Bank-Customer": customer, **({"Idempotency-Key": key} if key else {}),
                       **({"traceparent": traceparent} if traceparent else {})}
            connection.request(method, path, json.dumps(body) if body else None, headers)
            response = connection.getresponse()
            response.text = response.read()
            return response
        finally:
            connection.close()

    def insist(self, *request):
        """As a client that must know: the same request with the same key, until there is a final answer."""
        def final():
            try:
                answer = self.ask(*request)
            except (OSError, http.client.HTTPException):
                return None
            return answer if answer.status not in AGAIN else None
        return until(final, f"a final answer to {request[:2]}")

    def open_account(self, name, amount):
        answer = self.insist("PUT", f"/accounts/{name}", name, {"holder": name, "currency": "EUR"})
        assert answer.status in (200, 201), answer.text
        if amount:
            body = {"from": "@cash-EUR", "to": name, "amount": amount, "currency": "EUR"}
            answer = self.insist("POST", "/transfers", "@bank", body, f"fund-{name}")
            assert answer.status == 201, answer.text

    def transfer(self, payer, payee, amount, key, traceparent=None):
        """The answer of the bank, however often it had to be asked."""
        return self.insist("POST", "/transfers", payer, {"from": payer, "to": payee, "amount": amount, "currency": "EUR"}, key,
                           traceparent)

    # --------------------------------------------------------------------------------------------------- the database

    def rows(self, query, *values):
        connection = psycopg2.connect(self.database)
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(query, values)
                return cursor.fetchall()
        finally:
            connection.close()

    def transfers(self):
        """Transfers of customers, those of one payer in the order of the ledger: [(id, payer)]."""
        return self.rows("SELECT t.id::text, t.from_account FROM bank.transfers t JOIN bank.ledger l "
                         "ON l.account = t.from_account AND l.id LIKE '%%' || t.id::text || '%%' "
                         "WHERE t.from_account NOT LIKE '@%%' ORDER BY l.number")

    def booked(self):
        """What the books have: [(transfer, payer)], in the order in which it was written."""
        return self.rows("SELECT transfer, payer FROM public.books WHERE payer NOT LIKE '@%%' ORDER BY number")
