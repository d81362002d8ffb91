#!/usr/bin/python3
"""The world outside of notify, for trying and testing it: a mail server and a provider of SMS or push messages, on loopback.

    examples/notify/outside.py    starts one of each, prints their URLs and what they get, until Ctrl-C

A mail server does not deduplicate: every mail that it accepts is a mail in the box. A provider does, by the header Idempotency-Key:
however often it is asked with one key, it sends one message.
"""
import email
import email.policy
import http.server
import json
import socket
import sys
import threading
import time

from aiosmtpd.controller import Controller


class Mail:
    def __init__(self, message):
        parsed = email.message_from_bytes(message, policy=email.policy.default)
        self.id = parsed["Message-ID"]
        self.to = parsed["To"]
        self.subject = parsed["Subject"]
        self.text = parsed.get_content()
        self.at = time.monotonic()  # when it came into the box


class MailServer:
    """Real SMTP (aiosmtpd). `refuse`: answers to RCPT in place of 250, one for each mail. `after`: called with each mail that is in
    the box, before the client gets an answer; returns None, or the answer; "hang up" is none at all."""

    def __init__(self, port=0, **options):
        self.mails = []
        self.refuse = []
        self.after = lambda mail: None
        self.changed = threading.Condition()
        if port == 0:
            with socket.socket() as probe:  # the controller connects to its port, and has to know it before
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
        self.controller = Controller(self, hostname="127.0.0.1", port=port, server_hostname="outside.example", **options)
        self.controller.start()
        self.url = f"smtp://127.0.0.1:{port}"

    # aiosmtpd looks for these names
    async def handle_RCPT(self, server, session, envelope, address, options):
        if self.refuse:
            return self.refuse.pop(0)
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        mail = Mail(envelope.content)
        with self.changed:
            self.mails.append(mail)
            self.changed.notify_all()
        answer = await self.ask_after(server, mail)
        if answer == "hang up":
            server.transport.abort()
        return answer or "250 OK"

    async def ask_after(self, server, mail):
        """What is in the box is accepted, even if a callback there fails."""
        try:
            return await server.loop.run_in_executor(None, self.after, mail)
        except RuntimeError as error:
            print(f"mail server: {error}", file=sys.stderr)
            return None

    def wait(self, condition, patience=30):
        """Until `condition(mails)` holds."""
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self.mails), patience), \
                f"{len(self.mails)} mails, not what was waited for"

    def close(self):
        self.controller.stop()


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A client that was killed is nothing to talk about."""


class Provider:
    """`answers`: statuses in place of 202, one for each request; 0: no answer, the connection is closed. `after`: called with the
    message of each request, before it is answered."""

    def __init__(self, name, port=0):
        self.name = name
        self.requests = []  # (key, message), repeated ones too
        self.messages = {}  # key: message. Each is one message to a user
        self.order = []     # keys as they were first seen
        self.traces = {}    # key: traceparent of the last request
        self.answers = []
        self.after = lambda message: None
        self.changed = threading.Condition()
        self.server = Server(("127.0.0.1", port), self.handler())
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/messages"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()

    def handler(provider):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                provider.traces[self.headers["Idempotency-Key"]] = self.headers.get("traceparent")
                status = provider.take(self.headers["Idempotency-Key"], body, self.headers.get("Authorization"))
                provider.after(body)
                if status == 0:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        return Handler

    def take(self, key, message, authorization):
        with self.changed:
            status = self.answers.pop(0) if self.answers else 202
            self.authorization = authorization
            self.requests.append((key, message))
            if (status == 0 or status < 300) and key not in self.messages:
                self.messages[key] = message
                self.order.append(key)
            self.changed.notify_all()
            return status

    def wait(self, condition, patience=30):
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self), patience), \
                f"{self.name}: {len(self.requests)} requests, {len(self.messages)} messages, not what was waited for"

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def show():
    def mailed(mail):
        print(f"mail   {mail.id}  {mail.subject}", flush=True)

    def sent(provider):
        def say(message):
            print(f"{provider.name:<6} {message['text']}   ({len(provider.requests)} requests, "
                  f"{len(provider.messages)} messages)", flush=True)
        return say

    mails, sms, push = MailServer(), Provider("sms"), Provider("push")
    mails.after, sms.after, push.after = mailed, sent(sms), sent(push)
    print(f"--mail-url {mails.url} --sms-url {sms.url} --push-url {push.url}", flush=True)
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        pass
    for server in (mails, sms, push):
        server.close()


if __name__ == "__main__":
    show()
