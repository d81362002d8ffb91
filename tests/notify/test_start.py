"""Starting: what is wrong is said, and nothing is half on."""
import os
import socket
import ssl
import subprocess

import pytest

import service as program

TRANSFER = {"transaction_id": "t-1", "from": "alice", "to": "bob", "amount": "19.99", "currency": "EUR", "reference": ""}


def run(*options):
    return subprocess.run([program.NOTIFY, *options], capture_output=True, text=True, timeout=program.PATIENCE, check=False)


def usual(directory, **changes):
    options = {"listen": "127.0.0.1:0", "store": f"local:{directory}/store", "templates": f"{program.EXAMPLE}/templates",
               "users": f"{program.EXAMPLE}/users.json", "from": "a@example.com", "mail-url": "smtp://127.0.0.1:9", **changes}
    return [word for name, value in options.items() if value is not None for word in (f"--{name}", value)]


def write(path, text, mode=0o600):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, mode)
    return path


def test_help_tells_every_option():
    done = run("--help")
    assert done.returncode == 0 and done.stderr == ""
    for option in ("listen", "store", "ttl", "lease", "templates", "users", "mail", "mail-url", "mail-auth", "from", "sms-url",
                   "sms-auth", "push-url", "push-auth", "ca", "timeout"):
        assert f"--{option} " in done.stdout, option


@pytest.mark.parametrize("changes, why", [
    ({"templates": None}, "--templates: is needed"),
    ({"users": "/nonexistent"}, "/nonexistent"),
    ({"templates": "/nonexistent"}, "no such folder"),
    ({"mail-url": None}, "at least one is needed"),
    ({"mail": "maybe"}, "retry or hold"),
    ({"from": "nobody"}, "--from"),
    ({"sms-url": "http://sms.example.com/"}, "only to this machine"),
    ({"sms-url": "ftp://127.0.0.1/"}, "--sms-url wants"),
    ({"listen": "127.0.0.1"}, "IP:PORT"),
    ({"ttl": "soon"}, "ttl"),
    ({"store": "nowhere:"}, "--store"),
    ({"timeout": "0"}, "--timeout"),
    ({"sms-auth": "/nonexistent"}, "--sms-auth"),
    ({"colour": "red"}, "no such option"),
])
def test_what_is_wrong_is_said(directory, changes, why):
    done = run(*usual(directory, **changes))
    assert done.returncode in (1, 2) and why in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1 and done.stdout == ""


@pytest.mark.parametrize("files, why", [
    ({"a/push": "x"}, "a/users: is not there"),
    ({"a/users": "from", "a/push": "x"}, "JSON pointers"),
    ({"a/users": "/from"}, "none of the files"),
    ({"a/users": "/from", "a/push": "{{/amount"}, "{{ without }}"),
    ({"a/users": "/from", "a/push": "{{amount}}"}, "neither a JSON pointer"),
    ({"a/users": "/from", "a/push": ""}, "is empty"),
    ({"a/users": "/from", "a/mail": "Subject\nText"}, "an empty line"),
])
def test_templates_are_checked(directory, files, why):
    for name, text in files.items():
        write(f"{directory}/templates/{name}", text)
    done = run(*usual(directory, templates=f"{directory}/templates"))
    assert done.returncode == 1 and why in done.stderr, done.stderr


def test_users_are_checked(directory):
    users = write(f"{directory}/users.json", '{"alice": {"mail": "no address"}}')
    done = run(*usual(directory, users=users))
    assert done.returncode == 1 and 'user alice: the member "mail"' in done.stderr and "no address" not in done.stderr


def test_a_port_that_is_taken(directory):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        done = run(*usual(directory, listen=f"127.0.0.1:{other.getsockname()[1]}"))
    assert done.returncode == 1 and "cannot listen" in done.stderr


def test_a_secret_that_others_can_read(directory):
    done = run(*usual(directory, **{"mail-auth": write(f"{directory}/auth", "u:p", 0o644)}))
    assert done.returncode == 2 and "chmod 600" in done.stderr


def test_a_token_goes_to_its_provider(notify, world, directory):
    notify("--sms-auth", write(f"{directory}/token", "s3cret\n")).post("e-1", "transfer.completed", TRANSFER)
    assert world.sms.authorization == "Bearer s3cret" and world.push.authorization is None


@pytest.fixture
def certificate(directory):
    key, certificate = f"{directory}/key.pem", f"{directory}/cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
                   check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return certificate, context


def test_a_mail_server_is_verified_before_it_gets_anything(world, services, directory, certificate):
    import outside
    from aiosmtpd.smtp import AuthResult
    path, context = certificate
    logins = []

    def authenticate(server, session, envelope, mechanism, data):
        logins.append((data.login, data.password))
        return AuthResult(success=True)

    server = outside.MailServer(tls_context=context, require_starttls=True, authenticator=authenticate, auth_required=True)
    try:
        auth = write(f"{directory}/auth", "shop:s3cret\n")
        for options, status in (((), 503), (("--ca", path), 200)):
            notify = program.Notify(directory, server.url, world.sms.url, world.push.url, "--mail-auth", auth, *options)
            services.append(notify.start())
            assert notify.post("e-1", "transfer.completed", TRANSFER).status == status
            assert logins == ([] if status == 503 else [(b"shop", b"s3cret")])
            notify.close()
        assert len(server.mails) == 1 and world.counts() == (0, 1, 1)
    finally:
        server.close()
