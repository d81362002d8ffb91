"""Looking into a gateway's store from outside, with the `once` program: what an operator would see."""
import json
import subprocess

from . import environment
from .wait import PATIENCE, until


class Store:
    def __init__(self, url):
        self.url = url

    def run(self, *arguments, check=True, data=None):
        done = subprocess.run([environment.ONCE, *arguments], capture_output=True, timeout=PATIENCE * 2, check=False, input=data)
        assert not check or done.returncode == 0, f"once {arguments} ended with {done.returncode}: {done.stderr.decode()}"
        return done

    def records(self):
        done = self.run("keys", "list", "--json", self.url, check=False)
        if done.returncode == 3 and b"there is no store" in done.stderr:
            return []  # no worker has made it yet
        assert done.returncode == 0, done.stderr.decode()
        return [json.loads(line) for line in done.stdout.splitlines()]

    def records_of(self, keys):
        """Those of many keys: one look through the store."""
        wanted = set(keys)
        done = self.run("keys", "list", "--json", "--limit", "10000000", self.url)
        return [record for record in map(json.loads, done.stdout.splitlines()) if record.get("key") in wanted]

    def by_id(self, identity):
        return json.loads(self.run("keys", "show", "--json", self.url, identity).stdout)

    def record(self, key):
        """The record of a key that stands in one scope only; None where there is none."""
        found = [record for record in self.records() if record.get("key") == key]
        assert len(found) <= 1, f"{key} stands in {len(found)} scopes"
        return found[0] if found else None

    def state(self, key):
        record = self.record(key)
        return record["state"] if record else None

    def wait_state(self, key, *states):
        return until(lambda: (record := self.record(key)) and record["state"] in states and record,
                     lambda: f"{key} being {' or '.join(states)}; it is {self.state(key)}")

    def wait_lease_over(self, key):
        """The record as it is then."""
        return until(lambda: (record := self.record(key)) and record["lease_ms"] == 0 and record, f"the lease of {key} being over")

    def show(self, key):
        """With claim and response."""
        done = self.run("keys", "show", "--json", self.url, self.record(key)["id"])
        return json.loads(done.stdout)

    def settle_failed(self, key, *more):
        self.run("keys", "settle", "--note=test", "--failed", "--yes", *more, self.url, self.record(key)["id"])

    def settle_completed(self, key, status, body, *more):
        identity = self.record(key)["id"]
        self.run("keys", "settle", "--note=test", "--completed", "--status", str(status), "--body-file", "-", "--yes", *more,
                 self.url, identity,
                 data=body)

    def stats(self):
        return json.loads(self.run("stats", "--json", self.url).stdout)
