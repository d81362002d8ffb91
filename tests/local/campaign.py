#!/usr/bin/python3
"""Four processes work with one store on a filesystem of their own, while they are killed and stopped, the disk is filled, the
time of day is set, and the power fails; then a checker that knows nothing but what was acknowledged asks for every key.

    campaign.py --seconds 3600 [--seed N] [--kinds ext4,xfs,btrfs]

0 lost, 0 granted twice, or the campaign fails. Needs root and loop devices; ONCE_DRIVER names the program.

 - A key `key-...` is completed under hold by the process that made it up, and some stay claimed for ever. Each is granted once.
 - A key `hot-...` is claimed and released by all processes. No epoch is granted twice.
 - A key `short-...` is kept for a second: so segments are compacted all the time.
"""
import argparse
import collections
import contextlib
import os
import random
import shutil
import sys
import tempfile
import time
import uuid

from drive import Driver, Impossible, Volume, forget_index, sh

WORKERS = 4
WEIGHTS = {"kill": 6, "stop": 4, "kill of all": 1, "full disk": 1}
ROOM = 0.5  # of a volume: a store that has more of it is checked to its end, and another one begun
WALL = (0, 0, 0, -86400, -3600, 3600, 86400)  # seconds that the time of day is wrong


class Checker:
    """What was acknowledged, by the lines that the workers wrote."""

    def __init__(self, directory):
        self.directory, self.places = directory, {}
        self.granted, self.completed, self.violations = {}, {}, []
        self.hot, self.counts, self.errors = collections.defaultdict(set), collections.Counter(), collections.Counter()

    def read(self, path):
        """New whole lines of the file."""
        with open(path, "rb") as file:
            file.seek(self.places.get(path, 0))
            text = file.read()
        text = text[:text.rfind(b"\n") + 1]
        self.places[path] = self.places.get(path, 0) + len(text)
        for line in text.decode().splitlines():
            what, key, epoch, *more = line.split(" ")
            self.counts[what] += 1
            if what == "G":
                self.grant(key, int(epoch))
            elif what == "C" and key.startswith("key-"):
                self.completed[key] = (int(epoch), int(more[0]))
            elif what == "P" and key in self.completed and more[0] != "replay":
                self.violations.append(f"a completed key was answered so: {line}")
            elif what == "X":
                self.violations.append(f"another body: {line}")
            elif what == "E":
                self.errors[more[0]] += 1

    def grant(self, key, epoch):
        if key.startswith("hot-"):
            if epoch in self.hot[key]:
                self.violations.append(f"{key} epoch {epoch} was granted twice")
            self.hot[key].add(epoch)
        elif key.startswith("key-"):
            if key in self.granted:
                self.violations.append(f"{key} was granted twice, epochs {self.granted[key]} and {epoch}")
            self.granted[key] = epoch

    def expect(self, path, keys):
        """Writes what the driver's `check` reads."""
        with open(path, "w", encoding="ascii") as file:
            for key in keys:
                if key in self.completed:
                    file.write(f"{key} {self.completed[key][0]} {self.completed[key][1]}\n")
                else:
                    file.write(f"{key} {self.granted[key]} -\n")


class Machine:
    """One volume with one store, and the processes on it."""

    def __init__(self, kind, directory, below, choice, allowed):
        self.kind, self.below, self.choice, self.allowed = kind, below, choice, allowed
        self.directory = tempfile.mkdtemp(prefix=f"{kind}-", dir=directory)
        self.volume, self.used, self.is_over = Volume(kind, 600, below=below), 0, False
        self.store = self.volume.join("store")
        self.workers, self.files, self.names = [None] * WORKERS, set(), 0
        self.checker, self.faults, self.checked = Checker(self.directory), collections.Counter(), set()
        self.boot = None
        self.reboot()
        self.volume.unmount()

    def reboot(self):
        self.boot = os.path.join(self.directory, f"boot-{self.kind}")
        with open(self.boot, "w", encoding="ascii") as file:
            file.write(f"{uuid.UUID(int=self.choice.getrandbits(128), version=4)}\n")

    def url(self):
        size = self.choice.choice(["64k", "256k", "1m"])
        return f"local:{self.store}?segment={size}&reap=100ms&store_timeout=2s"

    def driver(self):
        return Driver(boot=(self.boot, 0), wall=self.choice.choice(WALL))

    def start(self, number):
        """A worker. It may be that it cannot open the store: the disk is full."""
        worker = self.driver()
        self.workers[number] = worker
        answer = worker(f"open {self.url()}")
        if answer != "ok":
            if "ONCE_E_FULL" not in answer and "ONCE_E_CONFLICT" not in answer:
                self.checker.violations.append(f"cannot open: {answer}")
            self.stop(number)
            return
        self.names += 1
        path = os.path.join(self.directory, f"log-{self.kind}-{self.names}")
        self.files.add(path)
        worker(f"load {path} {self.names} {self.choice.choice([4, 32, 128])} {self.choice.choice([100, 400])}")

    def stop(self, number):
        if self.workers[number]:
            code = self.workers[number].process.poll()
            if code is not None:
                self.checker.violations.append(f"a worker ended by itself: {code}")
            self.workers[number].kill()
        self.workers[number] = None

    # ---- faults

    def kill_one(self):
        number = self.choice.randrange(WORKERS)
        self.stop(number)
        self.start(number)

    def stop_one(self):
        number = self.choice.randrange(WORKERS)
        worker = self.workers[number]
        if worker and worker.process.poll() is None:
            worker.stop()
            time.sleep(self.choice.random() * 1.5)
            if self.choice.random() < 0.5:
                worker.go_on()
            else:
                self.stop(number)
                self.start(number)

    def kill_all(self):
        for number in range(WORKERS):
            self.stop(number)
        if self.choice.random() < 0.5:
            forget_index(self.store)
            self.faults["index removed"] += 1
        for number in range(WORKERS):
            self.start(number)

    def fill_disk(self):
        path = self.volume.join("filler")
        self.volume.fill()
        time.sleep(0.3)
        if self.choice.random() < 0.5:
            self.kill_one()
        os.remove(path)

    def check_live(self):
        """fsck while all of them work."""
        one = self.driver()
        answer = one(f"fsck local:{self.store}")
        self.faults["fsck"] += 1
        if not answer.startswith("0 "):
            self.checker.violations.append(f"fsck of a store in use: {answer}")
        one.kill()

    def restart_dead(self):
        for number in range(WORKERS):
            if self.workers[number] is None:
                self.start(number)

    def fail_power(self):
        """All that is not on the disk is gone; then the machine boots, or only mounts the filesystem again. What a worker is
        answered after this moment does not count: on a machine without power nobody is answered (and ext4 can say that a sync
        worked whose extents it could not convert any more)."""
        later = None
        if self.kind == "btrfs" or self.choice.random() < 0.5:
            for worker in filter(None, self.workers):
                worker.stop()
        sizes = {path: os.path.getsize(path) for path in self.files}
        if self.kind == "btrfs":
            later = self.volume.image + ".later"
            self.volume.image_now(later)
        else:
            self.volume.fail()
        for number in range(WORKERS):
            self.stop(number)
        for path, size in sizes.items():
            os.truncate(path, size)
        self.volume.unmount()
        if later:
            self.volume.roll_back(later)
        sh("cp", "--sparse=always", self.volume.image, os.path.join(self.directory, f"image-{self.kind}"))  # as evidence
        if self.choice.random() < 0.5:
            self.reboot()
            self.faults["reboot"] += 1
        else:
            self.faults["remount"] += 1
        self.volume.mount()
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.volume.join("filler"))  # its removal may not have been on the disk

    # ---- a round

    def check(self, everything=False):
        """Reads what was acknowledged, and asks for it."""
        for path in sorted(self.files):
            self.checker.read(path)
        checker = self.checker
        keys = [key for key in checker.granted if everything or key not in self.checked]
        expected = os.path.join(self.directory, f"expected-{self.kind}")
        checker.expect(expected, keys)
        one = self.driver()
        answer = one(f"open {self.url()}")
        if answer != "ok":
            checker.violations.append(f"cannot open: {answer}")
            one.kill()
            return 0
        answer = one(f"check {expected}", 600)
        if not answer.startswith("ok"):
            checker.violations.append(answer)
        for key, epochs in sorted(checker.hot.items()):
            answer = one(f"claim {key} recover=retry lease=1s ttl=30d")
            if answer.startswith("run") and int(answer.partition("=")[2]) in epochs:
                checker.violations.append(f"{key} was granted again: {answer}")
            elif answer.startswith("run"):
                epochs.add(int(answer.partition("=")[2]))
        answer = one(f"fsck local:{self.store}")
        if not answer.startswith("0 0:"):
            checker.violations.append(f"fsck: {answer}")
        if self.choice.random() < 0.5:
            one.close()
        else:
            one.kill()
        self.checked.update(key for key in keys if self.choice.random() < 0.99)
        return len(keys)

    def round(self, seconds):
        self.volume.mount()
        strikes = {"kill": self.kill_one, "stop": self.stop_one, "kill of all": self.kill_all, "full disk": self.fill_disk}
        weights = [WEIGHTS[name] for name in self.allowed]
        for number in range(WORKERS):
            self.start(number)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self.choice.random() * 0.5)
            name = self.choice.choices(self.allowed, weights)[0]
            strikes[name]()
            self.faults[name] += 1
            self.restart_dead()
            if self.choice.random() < 0.05:
                self.check_live()
        self.fail_power()
        self.faults["power failure"] += 1
        asked = self.check()
        room = os.statvfs(self.volume.path)
        self.used = 1 - room.f_bavail / room.f_blocks
        self.volume.unmount()
        return asked

    def end(self):
        self.volume.mount()
        asked = self.check(everything=True)
        self.volume.unmount()
        return asked

    def close(self):
        for number in range(WORKERS):
            with contextlib.suppress(Exception):
                if self.workers[number]:
                    self.workers[number].kill()
        if self.volume.is_mounted:
            with contextlib.suppress(Exception):
                forget_index(self.store)
        self.volume.close()


def conclude(machine, sums):
    """Checks every key of the store; whether a rule was broken."""
    asked, checker, machine.is_over = machine.end(), machine.checker, True
    print(f"{machine.kind}: {len(checker.granted):,} keys granted, {len(checker.completed):,} completed, "
          f"{checker.counts['R']:,} releases, {checker.counts['P']:,} asks of known keys; {asked:,} checked at the end; "
          f"faults {dict(machine.faults)}; errors {dict(checker.errors)}", flush=True)
    for violation in checker.violations[:20]:
        print(f"VIOLATION {machine.kind}: {violation}", flush=True)
    sums["keys"] += len(checker.granted)
    sums["violations"] += len(checker.violations)
    return bool(checker.violations)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--round", type=float, default=8)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--kinds", default="ext4,xfs,btrfs")
    parser.add_argument("--faults", default=",".join(WEIGHTS))
    parser.add_argument("--unsynced", action="store_true", help="syncs do nothing: ends with the first violation, which must come")
    chosen = parser.parse_args()
    if chosen.unsynced:
        os.environ["DRIVER_UNSYNCED"] = "1"
    print(f"seed {chosen.seed}", flush=True)
    choice = random.Random(chosen.seed)
    directory = tempfile.mkdtemp(prefix="once-campaign-")
    machines, host, failed = [], None, False
    try:
        for kind in chosen.kinds.split(","):
            below = None
            if kind == "btrfs":
                host = Volume("xfs", 4000)
                below = host.path
            machines.append(Machine(kind, directory, below, choice, chosen.faults.split(",")))
        end, rounds, sums = time.monotonic() + chosen.seconds, 0, collections.Counter()
        while not failed and time.monotonic() < end:
            place = rounds % len(machines)
            machine = machines[place]
            rounds += 1
            asked = machine.round(chosen.round)
            failed = bool(machine.checker.violations)
            print(f"round {rounds}: {machine.kind}, {asked} keys checked", flush=True)
            if machine.used > ROOM and not failed:
                failed = conclude(machine, sums)
            if machine.is_over and not failed:
                machine.close()
                shutil.rmtree(machine.directory)
                machines[place] = Machine(machine.kind, directory, machine.below, choice, machine.allowed)
        for machine in machines:
            failed |= not machine.is_over and conclude(machine, sums)
        print(f"{sums['keys']:,} keys acknowledged, {sums['violations']} violations" +
              ("" if sums["violations"] else ": 0 lost, 0 double"), flush=True)
    except Impossible as why:
        print(f"campaign: this machine does not allow it: {why}", file=sys.stderr)
        return 1 if os.environ.get("CI") == "true" else 77
    finally:
        for machine in machines:
            machine.close()
        if host:
            host.close()
        if failed == chosen.unsynced:
            shutil.rmtree(directory, ignore_errors=True)
        else:
            print(f"what was acknowledged is in {directory}; repeat it with --seed {chosen.seed}", flush=True)
    return 1 if failed != chosen.unsynced else 0


if __name__ == "__main__":
    sys.exit(main())
