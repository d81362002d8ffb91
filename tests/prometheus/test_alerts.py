"""A real Prometheus scrapes a real gateway, relay and consumer with the rules of deploy/prometheus, and each condition is produced
and fires its alert. Times and a few thresholds are smaller; what is asked of the metrics is as it is shipped.
"""
import glob
import json
import os
import re
import shlex
import subprocess
import types
import urllib.error
import urllib.parse
import urllib.request

import psycopg2
import pytest
from brokers import free_port
from deploy import alerts, queries, read
from endpoint import Endpoint
from harness.gateway import Gateway
from harness.upstream import answer, slow
from harness.wait import Gate, until

PATIENCE = 60
CTL = shlex.split(os.environ["ONCE_PG_CTL"])
ONCE = os.path.join(os.environ["ONCE_BUILD"], "once")
LOCATIONS = """
location / {{ {guard} once_recover hold; }}
location /door {{ {guard} once_recover transactional; once_store "{database}"; }}
location = /metrics {{ once_status; }}
"""
# Scraped every half second: what takes minutes and hours in the rules takes seconds here.
SHORTER = [(r"\bfor: \d+[mh]", "for: 0s"), (r"\[5m\]", "[20s]"), (r"\[10m\]", "[30s]"), (r"\[6h\]", "[1m]"), (r"\[1d\]", "[1m]"),
           (r"> 1000$", "> 5"), (r"lag_seconds\) > 60", "lag_seconds) > 1"), (r"disk_used:ratio > 0.8", "disk_used:ratio > @disk@")]


class Prometheus:
    def __init__(self, directory, targets):
        self.directory, self.port = str(directory), free_port()
        self.write("prometheus.yml", self.configuration(targets))
        self.write("recording.yml", self.shorter(read("deploy", "prometheus", "recording.yml")))
        self.write_alerts(disk=2)
        with open(f"{self.directory}/log", "wb") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", "prometheus", f"--config.file={self.directory}/prometheus.yml",
                 f"--storage.tsdb.path={self.directory}/data", f"--web.listen-address=127.0.0.1:{self.port}",
                 "--web.enable-lifecycle", "--log.level=warn"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    @staticmethod
    def configuration(targets):
        text = read("deploy", "prometheus", "prometheus.yml").replace("15s", "500ms")
        for job, address in targets.items():
            text, found = re.subn(rf"(job_name: {job}\n.*\n\s+- targets: )\[.*\]", rf"\1[{address}]", text)
            assert found == 1, job
        return text

    @staticmethod
    def shorter(text):
        for pattern, short in SHORTER:
            text = re.sub(pattern, short, text, flags=re.M)
        assert not re.search(r"\[\d+[mhd]\]|for: [1-9]", text.replace("[1m]", "")), text
        return text

    def write(self, name, text):
        with open(os.path.join(self.directory, name), "w", encoding="utf-8") as file:
            file.write(text)

    def write_alerts(self, disk):
        text = read("deploy", "prometheus", "alerts.yml")
        for pattern, _ in SHORTER:
            assert re.search(pattern, text + read("deploy", "prometheus", "recording.yml"), re.M), pattern
        self.write("alerts.yml", self.shorter(text).replace("@disk@", str(disk)))

    def get(self, path, data=None):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", data, timeout=30) as response:
            return response.read()

    def query(self, expression):
        try:
            answered = json.loads(self.get("/api/v1/query?" + urllib.parse.urlencode({"query": expression})))
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expression}: {error.read().decode()}") from error
        return answered["data"]["result"]

    def is_up(self):
        assert self.process.poll() is None, "Prometheus has ended"
        try:
            return self.get("/-/ready") and len(self.query("up == 1")) == 3
        except OSError:
            return False

    def fired(self):
        """Alerts that have fired so far."""
        return {one["metric"]["alertname"] for one in self.query('max_over_time(ALERTS{alertstate="firing"}[1h])')}

    def until_fired(self, alert):
        until(lambda: alert in self.fired(), lambda: f"{alert}; until now: {self.fired()}", PATIENCE)

    def close(self):
        self.process.kill()
        self.process.wait()


def start(log, *command):
    with open(log, "wb") as out:
        return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--", ONCE, *command], stdin=subprocess.DEVNULL, stdout=out,
                                stderr=out)


@pytest.fixture(scope="module")
def world(tmp_path_factory, rabbitmq):
    directory = tmp_path_factory.mktemp("prometheus")
    here = types.SimpleNamespace(endpoint=Endpoint(), handler=Endpoint(), broker=rabbitmq)
    here.broker.create("orders")
    here.database = psycopg2.connect(os.environ["ONCE_PG_URL"])
    here.database.autocommit = True
    guard = "once on; once_scope none; proxy_pass http://backend;"
    here.gate = Gateway(directory, locations=LOCATIONS.format(guard=guard, database=os.environ["ONCE_PG_GATEWAY_URL"]),
                        http="once_stats 1s; once_store_timeout 2s;",
                        store=f"local:{directory}/store?segment=1m&max_records=40&max_bytes=1g")
    ports = {"once-relay": free_port(), "once-consume": free_port()}
    here.relay = start(f"{directory}/relay.log", "relay", os.environ["ONCE_PG_URL"], here.endpoint.url(), "--unsigned",
                       "--tries", "3", "--poll", "200ms", "--metrics", str(ports["once-relay"]))
    here.consume = start(f"{directory}/consume.log", "consume", here.broker.url("orders"), "--to", here.handler.url("/"),
                         "--store", "memory:", "--recover", "hold", "--metrics", str(ports["once-consume"]))
    here.gate.start()
    targets = {job: f"127.0.0.1:{port}" for job, port in ports.items()}
    here.prometheus = Prometheus(directory, {**targets, "once-gate": f"{here.gate.host}:{here.gate.port}"})
    yield here
    here.prometheus.close()
    for process in (here.relay, here.consume):
        process.kill()
        process.wait()
    here.gate.nginx.expect("store|upstream|once.complete|damaged|server closed")
    here.gate.close()
    here.endpoint.close()
    here.handler.close()
    here.database.close()


def contents(path):
    with open(path, "rb") as file:
        return file.read()


def emit(world, topic):
    with world.database.cursor() as cursor:
        cursor.execute("SELECT once.emit(%s, 'key', 'placed', %s)", (topic, b"{}"))


def test_all_is_well(world):
    prometheus = world.prometheus
    until(prometheus.is_up, "three targets", PATIENCE)
    until(lambda: len(prometheus.query('once_store_up == 1')) == len(prometheus.query("once_store_disk_bytes")) + 1 == 2,
          "both stores to be watched", PATIENCE)
    until(lambda: prometheus.query("once_relay_database_up == 1"), "the relay to be at work", PATIENCE)
    groups = json.loads(prometheus.get("/api/v1/rules"))["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["name"] for rule in rules if rule["type"] == "alerting"} == set(alerts())
    until(lambda: all(rule["health"] == "ok" for group in json.loads(prometheus.get("/api/v1/rules"))["data"]["groups"]
                      for rule in group["rules"]), "each rule to be evaluated", PATIENCE)
    assert prometheus.fired() <= {"OnceTargetDown", "OnceStoreDown"}  # nothing but what was still starting


def test_no_duplicates_and_many(world):
    gate, prometheus = world.gate, world.prometheus
    for number in range(8):
        assert gate.post(f"k{number}").status == 201
    prometheus.until_fired("OnceNoDuplicates")
    until(lambda: prometheus.query('count_over_time(route:once_requests_replayed:ratio_rate5m{route="/"}[1m]) > 4'),
          "a time without them", PATIENCE)
    for number in range(40):
        assert gate.post(f"k{number % 8}").header("Idempotent-Replayed") == "true"
    prometheus.until_fired("OnceDuplicatesSpike")


def test_doubt_and_stuck(world):
    world.gate.upstream.then(lambda exchange: exchange.reset())
    world.gate.post("doubt")
    world.prometheus.until_fired("OnceDoubt")
    world.prometheus.until_fired("OnceStuck")


def test_lost_claims(world):
    gate = Gate()
    world.gate.upstream.then(slow(gate))
    client = world.gate.connect()
    client.start("POST", "/", "lost", b"{}")
    gate.wait_arrival()
    world.gate.store.settle_failed("lost", "--force")
    gate.open()
    client.finish()
    world.prometheus.until_fired("OnceClaimsLost")


def test_without_complete(world):
    world.gate.upstream.then(answer(201))
    assert world.gate.post("forgotten", target="/door").status == 201
    world.prometheus.until_fired("OnceWithoutComplete")


def test_lag_and_dead_events(world):
    world.endpoint.answer = lambda request: 503
    emit(world, "late")
    world.prometheus.until_fired("OnceRelayLag")
    world.endpoint.answer = lambda request: 400
    emit(world, "refused")
    world.prometheus.until_fired("OnceDeadEvents")


def test_parked_messages_and_those_behind_them(world):
    """The handler hangs up: whether it did the work is unknown, and the messages of the same key wait."""
    world.handler.answer = lambda request: None
    world.broker.publish("orders", [{"body": b"{}", "headers": {"ce_id": f"m{number}", "ce_partitionkey": "k"}}
                                    for number in range(9)])
    world.prometheus.until_fired("OnceParked")
    world.prometheus.until_fired("OnceConsumeLag")


def test_filling(world):
    """Of the 40 records that the store may have; and of the disk, with a bound that its filling has passed."""
    for number in range(33 - 10):
        assert world.gate.post(f"more{number}").status == 201
    world.prometheus.until_fired("OnceStoreFilling")
    world.prometheus.write_alerts(disk=0)
    world.prometheus.get("/-/reload", b"")
    world.prometheus.until_fired("OnceDiskFilling")


def test_the_dashboard_shows_data(world):
    """Run as Grafana would, for all routes and stores."""
    for title, expression in queries():
        expression = expression.replace("$__rate_interval", "1m").replace("$route", ".*").replace("$store", ".*")
        found = world.prometheus.query(expression)
        assert found, f"{title}: {expression}"
        assert "quantile" in expression or all(one["value"][1] != "NaN" for one in found), (title, expression, found)


def test_damage(world):
    """A byte of a record changes on the disk, while no program has it in memory."""
    world.gate.nginx.quit()
    (path,) = [path for path in glob.glob(f"{world.gate.directory}/store/segments/*.log") if b"more11" in contents(path)]
    with open(path, "r+b") as file:
        file.seek(contents(path).rindex(b"more11"))  # the first one is the claim, which no longer counts
        file.write(b"X")
    world.gate.start()
    world.prometheus.until_fired("OnceDamage")


def test_what_is_down(world):
    """The database, and then the relay itself. Last: nothing of them is left for others."""
    subprocess.run(CTL + ["-m", "immediate", "stop"], check=True, stdout=subprocess.DEVNULL)
    prometheus = world.prometheus
    until(lambda: len(prometheus.query('ALERTS{alertname="OnceStoreDown", alertstate="firing"}')) == 2, "store and database",
          PATIENCE)
    world.relay.kill()
    world.relay.wait()
    until(lambda: prometheus.query('ALERTS{alertname="OnceTargetDown", job="once-relay", alertstate="firing"}'), "the relay",
          PATIENCE)
    assert prometheus.fired() == set(alerts())
