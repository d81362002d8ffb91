"""nginx as Debian packages it: its nginx.conf and the commands of its unit, a master of root, workers of www-data."""
import os
import pwd
import re
import shlex
import signal
import subprocess

import pytest

from harness import environment, expect, http1
from harness.gateway import take_port
from harness.upstream import Upstream
from harness.wait import PATIENCE, until

UNIT = "/lib/systemd/system/nginx.service"
CONFIGURATION = "/etc/nginx/nginx.conf"
WORKERS = pwd.getpwnam("www-data").pw_uid

# A new binary needs what the sanitized module was started with.
ENVIRONMENT = "env LD_PRELOAD; env ASAN_OPTIONS; env UBSAN_OPTIONS;" if environment.slow() else ""

SITE = """
server {{
    listen {address}:{port};
    location / {{
        once on;
        once_scope none;
        once_store local:{directory}/store;
        proxy_pass http://{upstream};
    }}
}}
"""


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def alive(pid):
    try:
        return "\nState:\tZ" not in read(f"/proc/{pid}/status")
    except (FileNotFoundError, ProcessLookupError):
        return False


class Service:
    """What systemd does with the unit, in a directory instead of /etc, /run and /var."""

    def __init__(self, directory, upstream):
        self.directory, self.address = directory, (environment.address(), take_port())
        self.pid_path, self.log_path = f"{directory}/run/nginx.pid", f"{directory}/log/nginx/error.log"
        self.temporary = [f"{directory}/{name}" for name in ("body", "proxy", "fastcgi", "uwsgi", "scgi")]
        self.masters = set()
        os.chmod(directory, 0o755)
        text = read(CONFIGURATION)
        assert "user www-data;" in text, text
        for place, here in (("/etc/nginx/mime.types", "/etc/nginx/mime.types "), ("/etc/nginx/", f"{directory}/etc/"),
                            (f"{directory}/etc/mime.types ", "/etc/nginx/mime.types"), ("/run/", f"{directory}/run/"),
                            ("/var/log/", f"{directory}/log/")):
            text = text.replace(place, here)
        paths = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        paths = "".join(f"{name}_temp_path {path};" for name, path in zip(paths, self.temporary))
        write(f"{directory}/etc/nginx.conf", text)
        write(f"{directory}/etc/modules-enabled/50-mod-http-once.conf", f"load_module {environment.MODULE};\n{ENVIRONMENT}\n")
        write(f"{directory}/etc/conf.d/paths.conf", paths + "\n")
        write(f"{directory}/etc/sites-enabled/default", SITE.format(address=self.address[0], port=self.address[1],
                                                                    directory=directory, upstream=upstream.name))
        for path in (self.pid_path, self.log_path):
            os.makedirs(os.path.dirname(path), exist_ok=True)

    def run(self, name):
        """A command of the unit, by its name there."""
        line, = re.findall(rf"^{name}=-?(.*)$", read(UNIT), re.M)
        words = [word.replace("/run/nginx.pid", self.pid_path) for word in shlex.split(line)]
        if words[0] == "/usr/sbin/nginx":
            words[0:1] = [environment.NGINX, "-c", f"{self.directory}/etc/nginx.conf", "-e", self.log_path]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE * 2, check=False)
        assert done.returncode == 0, f"{name}: {done.stdout} {done.stderr} {read(self.log_path)}"

    def master(self, suffix=""):
        """The pid in its file; None: there is none."""
        try:
            pid = int(read(self.pid_path + suffix))
        except (FileNotFoundError, ValueError):
            return None
        self.masters.add(pid)
        return pid

    def start(self):
        self.run("ExecStartPre")
        self.run("ExecStart")
        return until(self.master, "the master having written its pid")

    def stop(self):
        self.run("ExecStop")
        until(lambda: self.master() is None, "the master being gone")

    def workers(self, master):
        try:
            return set(read(f"/proc/{master}/task/{master}/children").split())
        except FileNotFoundError:
            return set()

    def reload(self):
        master = self.master()
        old = self.workers(master)
        self.run("ExecReload")
        until(lambda: self.workers(master) and not self.workers(master) & old, "all workers being new ones")

    def upgrade(self):
        old = self.master()
        os.kill(old, signal.SIGUSR2)
        until(lambda: self.master() not in (None, old) and self.master(".oldbin") == old, "a new master beside the old one")
        os.kill(old, signal.SIGQUIT)
        until(lambda: not alive(old), "the old master being gone")

    def post(self, key):
        with http1.Connection(self.address) as client:
            return client.request("POST", "/", key, b"a")

    def close(self):
        for pid in self.masters:
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass


@pytest.fixture
def service(directory):
    upstream = Upstream()
    made = Service(directory, upstream)
    yield made
    made.close()
    upstream.close()


@pytest.mark.skipif(not environment.ROOT, reason="only root can start workers of another user")
def test_start_reload_restart_and_upgrade(service, directory):
    """The first start makes the store for www-data; root can look at it afterwards."""
    service.start()
    original = expect.first(service.post("k"))
    assert os.stat(f"{directory}/store").st_uid == WORKERS
    service.run("ExecStartPre")
    service.reload()
    expect.replay(service.post("k"), original)
    service.stop()
    service.start()
    expect.replay(service.post("k"), original)
    service.upgrade()
    expect.replay(service.post("k"), original)
    service.reload()
    expect.replay(service.post("k"), original)
    service.stop()
    assert not re.findall(r"\[(?:alert|emerg|crit)\].*|AddressSanitizer.*", read(service.log_path))


@pytest.mark.skipif(not environment.ROOT, reason="only root can start workers of another user")
@pytest.mark.parametrize("user, said", [(12345, "belongs to another user"), (WORKERS, "chmod 700")])
def test_store_that_the_workers_could_not_use(service, directory, user, said):
    """Is refused before anything is started: root sees it with the workers' eyes."""
    os.mkdir(f"{directory}/store")
    os.chmod(f"{directory}/store", 0o755)
    os.chown(f"{directory}/store", user, user)
    with pytest.raises(AssertionError, match=said):
        service.run("ExecStartPre")
