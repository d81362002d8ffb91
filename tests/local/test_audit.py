"""Schedules that once lost records, filled the disk, ended processes by a signal or made them wait for ever. Each drives several
processes step by step, and filesystems of their own (root and loop devices are needed for those)."""
import contextlib
import fcntl
import itertools
import os
import random
import shutil
import struct
import subprocess
import tempfile
import time

import pytest
from drive import (PATIENCE, Driver, Impossible, Volume, counts, fields, forget_index, fsck, segments, sh, until)

HOLD = "recover=hold lease=1h ttl=30d"
OPTIONS = "reap=off&renew=off"
FRAME = 2048  # bytes that a record of 1000 takes at most, with its claim


@pytest.fixture(name="drive")
def drivers(volume):  # which is unmounted when they have ended
    del volume
    made = []

    def drive(url=None, **more):
        made.append(Driver(url, **more))
        return made[-1]
    yield drive
    for driver in made:
        with contextlib.suppress(OSError):
            driver.kill()


@pytest.fixture(name="store")
def store_path():
    directory = tempfile.mkdtemp(prefix="once-audit-")
    path = os.path.join(directory, "store")
    yield path
    with contextlib.suppress(OSError):
        forget_index(path)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(name="volume")
def volumes():
    made = []

    def volume(*what, **more):
        try:
            made.append(Volume(*what, **more))
        except Impossible as why:
            if os.environ.get("CI") == "true":
                raise
            pytest.skip(str(why))
        return made[-1]
    yield volume
    for one in reversed(made):
        if one.is_mounted and os.path.exists(one.join("store/format")):
            with contextlib.suppress(OSError):
                forget_index(one.join("store"))
        one.close()


@pytest.fixture(name="tmpfs")
def tmpfs_of_the_test():
    """Without it, a program that makes another index at that moment may remove one whose volume is not mounted."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as path:
        yield path


def url(path, **options):
    return f"local:{path}?{OPTIONS}" + "".join(f"&{name}={value}" for name, value in options.items())


def grow(driver, name, megabytes):
    """Makes its segments full-grown: they begin small."""
    assert counts(driver(f"pairs {name}- 0 {megabytes * 10} 100000 ttl=30d"))["done"] == megabytes * 10


def log_bytes(path):
    return sum(segments(path).values())


# ------------------------------------------------------------------------------------------------------------------- space

def retry(drivers, keys, choose, times):
    for number in range(times):
        driver, key = choose(number)
        assert drivers[driver](f"claim k{key} recover=retry lease=1h").startswith("run"), (number, key)
        assert drivers[driver](f"early k{key}").startswith("done")


def test_keys_that_change_hands_need_no_segments(drive, store):
    """Two processes claim and release five keys in turn: a segment for each turn was begun once."""
    two = [drive(url(store)), drive(url(store))]
    retry(two, 5, lambda number: (number % 2, number % 5), 10)
    before = set(segments(store))
    retry(two, 5, lambda number: (number % 2, number % 5), 200)
    assert len(set(segments(store)) - before) == 0


def test_full_grown_writers_that_retry(drive, store):
    """300 retries of 20 keys by two processes whose segments are full-grown."""
    size, chance = 4 << 20, random.Random(18)
    two = [drive(url(store, segment="4m")), drive(url(store, segment="4m"))]
    for number, driver in enumerate(two):
        grow(driver, f"g{number}", 9)
    before = log_bytes(store)
    retry(two, 20, lambda _: (chance.randrange(2), chance.randrange(20)), 300)
    assert log_bytes(store) - before <= 2 * size, "at most the next segment of each"


def wait_for_expiry(driver, key):
    until(lambda: driver(f"get {key}").startswith("error"), f"expiry of {key}", PATIENCE)


def reap_until(driver, path, bound):
    """Reaps until the log has at most `bound` bytes."""
    for _ in range(5):
        answer = driver("reap")
        assert not answer.startswith("error"), answer
        if log_bytes(path) <= bound:
            break
    return log_bytes(path)


def bound_of(live, segment, processes):
    """docs/format.md: twice the live bytes, two segments for each process, eight small ones."""
    return 2 * live * FRAME + 2 * segment * processes + 8 * segment // 16


def test_long_ttl_before_short_ones(drive, store):
    one = drive(url(store, segment="64k"))
    assert counts(one("pairs long 0 100 1000 ttl=30d"))["done"] == 100
    assert counts(one("pairs short 0 2000 1000 ttl=1s"))["done"] == 2000
    wait_for_expiry(one, "short1999")
    bound = bound_of(100, 64 << 10, 1)
    assert log_bytes(store) > 4 * bound, "or nothing is tested"
    assert reap_until(one, store, bound) <= bound
    assert counts(one("claims long 0 100 ttl=30d")) == {"replay": 100}


def test_mixed_ttls(drive, store):
    """1 s, 1 h and 30 d in one store, mixed in every segment; and again after a rebuild."""
    one, two = drive(url(store, segment="256k")), drive(url(store, segment="256k"))
    for part in range(10):
        for driver in (one, two):
            name = f"{'ab'[driver is two]}{part}"
            assert counts(driver(f"pairs s{name}- 0 400 1000 ttl=1s"))["done"] == 400
            assert counts(driver(f"pairs h{name}- 0 20 1000 ttl=1h"))["done"] == 20
            assert counts(driver(f"pairs d{name}- 0 20 1000 ttl=30d"))["done"] == 20
    wait_for_expiry(one, "sb9-399")
    bound = bound_of(800, 256 << 10, 2)
    assert log_bytes(store) > 2 * bound, "or nothing is tested"
    assert reap_until(one, store, bound) <= bound
    for _ in range(2):
        for name in [f"{kind}{who}{part}-" for kind in "hd" for who in "ab" for part in range(10)]:
            assert counts(one(f"claims {name} 0 20 ttl=30d")) == {"replay": 20}
        one.close()
        two.kill()
        forget_index(store)
        one = two = drive(url(store))


def test_stopped_process_pins_its_own_segment_only(drive, store):
    idle, busy = drive(url(store, segment="64k")), drive(url(store, segment="64k"))
    assert idle("claim idle " + HOLD).startswith("run")
    idle.stop()
    assert counts(busy("pairs short 0 2000 1000 ttl=1s"))["done"] == 2000
    wait_for_expiry(busy, "short1999")
    bound = bound_of(1, 64 << 10, 2)
    assert log_bytes(store) > 4 * bound
    assert reap_until(busy, store, bound) <= bound
    idle.go_on()
    assert idle("complete idle 10").startswith("done")


def test_process_that_stops_in_a_compaction(drive, store):
    """It keeps the segment that it was at: others reclaim the rest, and it goes on where it was."""
    stopped, busy = drive(url(store, segment="64k")), drive(url(store, segment="64k", store_timeout="2s"))
    assert counts(stopped("pairs early 0 50 1000 ttl=1s"))["done"] == 50
    assert counts(stopped("pairs long 0 20 1000 ttl=30d"))["done"] == 20
    assert counts(stopped("pairs late 0 50 1000 ttl=1s"))["done"] == 50
    wait_for_expiry(stopped, "late49")
    assert counts(stopped("pairs more 0 60 1000 ttl=30d"))["done"] == 60  # or it begins by sealing its own segment
    stopped("stall .log")
    reaped = stopped.send("reap")
    stopped.event("stalled")  # the copies of what is live are to be synced
    stopped.stop()
    assert counts(busy("pairs short 0 2000 1000 ttl=1s"))["done"] == 2000
    assert counts(busy("pairs kept 0 20 1000 ttl=30d"))["done"] == 20
    wait_for_expiry(busy, "short1999")
    bound = bound_of(300, 64 << 10, 2)
    assert log_bytes(store) > 1.5 * bound, "or nothing is tested"
    assert reap_until(busy, store, bound) <= bound
    assert counts(busy("claims long 0 20 ttl=30d")) == {"replay": 20}
    stopped.go_on()
    stopped("stall off")
    assert not reaped.wait().startswith("error")
    for driver in (stopped, busy):
        assert counts(driver("claims long 0 20 ttl=30d")) == {"replay": 20}
        assert counts(driver("claims kept 0 20 ttl=30d")) == {"replay": 20}
    assert fsck(store)[0] == 0, fsck(store)[1]
    stopped.close()
    busy.kill()
    forget_index(store)
    again = drive(url(store))
    assert counts(again("claims long 0 20 ttl=30d")) == {"replay": 20}
    assert counts(again("claims kept 0 20 ttl=30d")) == {"replay": 20}


def test_writer_that_seals_before_a_takeover_has_its_lock(drive, store):
    """A process is about to take over a segment and stands still before flock(); the writer goes on, seals and is killed."""
    writer, taker = drive(url(store)), drive(url(store))
    assert counts(writer("pairs k 0 2 100"))["done"] == 2
    assert counts(taker("claims k 0 2")) == {"replay": 2}
    writer("stall .log")
    claimed = writer.send("claim k2")
    writer.event("stalled")
    taker("trap stop flock 1")
    got = taker.send("get k2")
    taker.event("trapped")
    taker.until_stopped()
    writer("stall off")
    assert claimed.wait().startswith("run")
    assert writer("complete k2 100").startswith("done")
    assert counts(writer("pairs j 0 6 100"))["done"] == 6
    writer("trap die lock 1")  # behind the frame that seals
    writer.send("close")
    writer.event("trapped")
    writer.process.wait()
    taker.go_on()
    assert not got.wait().startswith("error")
    assert counts(taker("claims k 0 3")) == {"replay": 3}
    assert counts(taker("claims j 0 6")) == {"replay": 6}
    assert fsck(store)[0] == 0, fsck(store)[1]
    taker.kill()
    forget_index(store)
    again = drive(url(store))
    assert counts(again("claims k 0 3")) == {"replay": 3}
    assert counts(again("claims j 0 6")) == {"replay": 6}


@pytest.mark.parametrize("keys", [5, 100])
def test_last_process_that_is_killed_while_it_closes(drive, store, keys):
    """Killed before each step of sealing: the next one opens the store, with the index that was left."""
    for step in itertools.count(1):
        one = drive(url(store))
        assert counts(one(f"pairs k{step} 0 {keys} 300"))["done"] == keys
        one(f"trap die any {step}")
        closed = one.send("close")
        until(lambda: closed.came.is_set() or one.process.poll() is not None, "death or an answer", PATIENCE)
        survived = one.process.poll() is None
        one.kill()
        again = drive(url(store))
        assert counts(again(f"claims k{step} 0 {keys}")) == {"replay": keys}, f"killed at step {step}"
        again.close()
        if survived:
            break
    assert step > 4, "every step was tried"


def test_trail_that_a_stopped_process_has_locked(drive, store):
    """A writer does not wait for it: what else is asked goes on, and the trail is refused for the time being."""
    one = drive(url(store, store_timeout="1s"))
    assert counts(one("pairs k 0 1 100"))["done"] == 1
    with open(f"{store}/audit", "a", encoding="ascii") as file:
        os.chmod(f"{store}/audit", 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        listed = subprocess.run([os.environ["ONCE_PROGRAM"], "audit", "list", url(store, store_timeout="1s")],
                                capture_output=True, text=True, timeout=60)
        assert listed.returncode != 0 and "trail" in listed.stderr, listed
    assert counts(one("claims k 0 1")) == {"replay": 1}


# -------------------------------------------------------------------------------------- a filesystem that goes and comes back

def nothing_granted(answer, allowed=("replay", "busy", "unknown")):
    found = counts(answer)
    assert set(found) <= set(allowed), found
    return found


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_filesystem_that_comes_back_in_the_same_boot(drive, volume, kind):
    """Acknowledged; written back; more acknowledged; the filesystem goes and comes back. An index as old as its last write-back was
    believed, and a new segment took the name of one with frames."""
    disk = volume(kind, 400)
    store = disk.join("store")
    one, two = drive(url(store, segment="64k")), drive(url(store, segment="64k"))
    assert counts(one("pairs a 0 200 400 " + HOLD))["done"] == 200
    disk.write_back()
    assert counts(two("pairs b 0 400 400 " + HOLD))["done"] == 400
    assert counts(one("pairs c 0 400 400 " + HOLD))["done"] == 400
    assert counts(one("claims held 0 50 " + HOLD)) == {"run": 50}
    disk.fail()
    one.kill()
    two.kill()
    disk.unmount()
    disk.mount()
    for _ in range(2):
        again = drive(url(store, segment="64k"))
        assert nothing_granted(again("claims held 0 50 " + HOLD)).get("replay", 0) == 0
        assert counts(again("pairs new 0 200 400 " + HOLD)).get("replay", 0) in (0, 200)
        for name, count in (("a", 200), ("b", 400), ("c", 400)):
            assert nothing_granted(again(f"claims {name} 0 {count} " + HOLD)) == {"replay": count}
        again.close()
        forget_index(store)  # what the log itself has
    assert fsck(store)[0] == 0, fsck(store)[1]


def test_snapshot_that_is_rolled_back(drive, volume):
    """The log goes back to an earlier state in the same boot; nobody removes the index."""
    disk = volume("btrfs", 300)
    live, saved = disk.join("live"), disk.join("saved")
    store = os.path.join(live, "store")
    sh("btrfs", "subvolume", "create", live)
    for round_ in range(4):
        one = drive(url(store, segment="64k"))
        assert counts(one(f"pairs a{round_}- 0 300 400 " + HOLD))["done"] == 300
        assert counts(one(f"claims h{round_}- 0 20 " + HOLD)) == {"run": 20}
        if round_ % 2:
            one.close()
        else:
            one.kill()
        sh("btrfs", "subvolume", "snapshot", live, saved)
        two = drive(url(store, segment="64k"))
        assert counts(two(f"pairs b{round_}- 0 {7 if round_ < 2 else 300} 400 " + HOLD))["done"] > 0
        two.kill()
        os.rename(live, disk.join(f"old-{round_}"))
        os.rename(saved, live)
        three = drive(url(store, segment="64k"))
        for number in range(round_ + 1):
            assert nothing_granted(three(f"claims a{number}- 0 300 " + HOLD)) == {"replay": 300}
            nothing_granted(three(f"claims h{number}- 0 20 " + HOLD), ("busy", "unknown"))
        code, text = fsck(store)
        assert code == 0, text
        assert counts(three(f"pairs c{round_}- 0 100 400 " + HOLD))["done"] == 100
        three.kill()
        forget_index(store) if round_ == 3 else None
        four = drive(url(store, segment="64k"))
        assert nothing_granted(four(f"claims c{round_}- 0 100 " + HOLD)) == {"replay": 100}
        four.kill()


@pytest.mark.parametrize("later", [1, 40, 2000])
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_volume_that_is_rolled_back(drive, volume, kind, later, tmpfs):
    """The same below the filesystem (LVM, a disk of the cloud): device and inodes are the same as before, and so is the boot."""
    disk = volume(kind, 400)
    store, saved = disk.join("store"), disk.image + ".saved"
    one = drive(url(store, segment="64k", index=tmpfs))
    assert counts(one("pairs a 0 300 400 " + HOLD))["done"] == 300
    assert counts(one("claims held 0 20 " + HOLD)) == {"run": 20}
    one.stop()
    disk.write_back()
    number = os.stat(store).st_dev
    sh("cp", "--sparse=always", disk.image, saved)
    one.go_on()
    assert counts(one(f"pairs b 0 {later} 400 " + HOLD))["done"] == later
    one.kill()
    disk.unmount()
    disk.roll_back(saved)
    disk.mount()
    assert os.stat(store).st_dev == number, "or nothing is tested"
    with pytest.raises(AssertionError, match="lacks records that were durable"):
        drive(url(store, segment="64k", index=tmpfs))
    code, text = fsck(f"{store}?index={tmpfs}", "--repair")
    assert code == 0, text
    two = drive(url(store, segment="64k", index=tmpfs))
    assert nothing_granted(two("claims a 0 300 " + HOLD)) == {"replay": 300}
    nothing_granted(two("claims held 0 20 " + HOLD), ("busy", "unknown"))
    code, text = fsck(f"{store}?index={tmpfs}")
    assert code == 0, text
    assert counts(two(f"pairs b 0 {later} 400 " + HOLD)) == {"run": later, "done": later}
    two.kill()
    shutil.rmtree(tmpfs)
    os.mkdir(tmpfs)
    os.remove(os.path.join(store, "index"))
    three = drive(url(store, segment="64k", index=tmpfs))
    assert nothing_granted(three("claims a 0 300 " + HOLD)) == {"replay": 300}
    assert nothing_granted(three(f"claims b 0 {later} " + HOLD)) == {"replay": later}


def test_write_back_that_fails(drive, volume):
    """A thin volume without room: blocks that were written before take writes, new ones fail. Everything was acknowledged; pages of
    an index on that disk were lost in silence, or ended the process when they were needed again."""
    below = volume("ext4", 64)
    disk = volume("ext4", 400, below=below.path, make=["-O", "^has_journal"])
    store = disk.join("store")
    one = drive(url(store))
    assert counts(one("pairs g 0 500 1000 ttl=30d"))["done"] == 500  # the blocks up to the end of the segment were written now
    disk.write_back()
    below.fill()
    assert counts(one("pairs k 0 300 100 " + HOLD)) == {"run": 300, "done": 300}
    with contextlib.suppress(Impossible):
        disk.write_back()
    one.page_out(store)
    assert counts(one("claims k 0 300 " + HOLD)) == {"replay": 300}
    one.kill()


def test_full_disk(drive, volume):
    """btrfs copies on write: also what has room needs more. Refused, never a signal; and what is there is replayed.
    Opening it may be refused, too."""
    disk = volume("btrfs", 128)
    store = disk.join("store")
    one = drive(url(store, store_timeout="1s"))
    assert counts(one("pairs k 0 500 400 " + HOLD))["done"] == 500
    disk.fill()
    found, number = {}, 0
    while "ONCE_E_FULL" not in found and number < 20:
        found = counts(one(f"pairs n{number}- 0 300 100000 " + HOLD))
        number += 1
        assert set(found) <= {"run", "done", "ONCE_E_FULL", "ONCE_E_UNAVAILABLE"}, found
    assert "ONCE_E_FULL" in found
    assert counts(one("claims k 0 500 " + HOLD)) == {"replay": 500}
    one.kill()
    two = drive()
    answer = two(f"open {url(store, store_timeout='1s')}")
    if answer == "ok":
        assert counts(two("claims k 0 500 " + HOLD)) == {"replay": 500}
    else:  # a directory of btrfs needs room for each new name
        assert answer.startswith("error ONCE_E_FULL"), answer
    os.remove(disk.join("filler"))
    disk.write_back()
    if answer != "ok":
        two = drive(url(store, store_timeout="1s"))
    assert counts(two("claims k 0 500 " + HOLD)) == {"replay": 500}
    assert counts(two("pairs again 0 50 400 " + HOLD))["done"] == 50


def test_copied_store_on_a_full_disk(drive, volume):
    """cp shares the extents on xfs: overwriting a page needs room then."""
    disk = volume("xfs", 400)
    first, store = disk.join("first"), disk.join("store")
    one = drive(url(first, store_timeout="1s"))
    assert counts(one("pairs k 0 500 400 " + HOLD))["done"] == 500
    one.close()
    sh("cp", "-a", "--reflink=always", first, store)
    disk.fill()
    two = drive()
    answer = two(f"open {url(store, store_timeout='1s')}")
    if answer == "ok":
        assert counts(two("claims k 0 500 " + HOLD)) == {"replay": 500}
        assert set(counts(two("pairs n 0 300 10000 " + HOLD))) <= {"run", "done", "ONCE_E_FULL", "ONCE_E_UNAVAILABLE"}
        assert counts(two("claims k 0 500 " + HOLD)) == {"replay": 500}
    else:
        assert answer.startswith("error ONCE_E_FULL"), answer
    forget_index(first)


def test_limit_of_file_sizes(drive, store):
    """RLIMIT_FSIZE: an error, not SIGXFSZ."""
    one = drive(fsize=256)  # blocks of 512 bytes
    answer = one(f"open {url(store, store_timeout='500ms')}")
    if answer == "ok":
        answer = one("claim k " + HOLD)
    assert answer.startswith("error") or answer.startswith("run"), answer


# -------------------------------------------------------------------------------------------- processes that stand still

def others(driver, keys, count):
    """Keys whose records are in other shards than those of `keys`: once__index_shard_of()."""
    def shard(name):
        return int.from_bytes(bytes.fromhex(driver(f"id {name}")[:4]), "little") % 1024
    found, number, taken = [], 0, {shard(key) for key in keys}
    while len(found) < count:
        name = f"other{number}"
        number += 1
        if shard(name) not in taken:
            found.append(name)
    return found


def test_process_that_stops_with_a_lock(drive, store):
    """SIGSTOP while it has the lock of a shard: other shards are not delayed, this one answers within the timeout."""
    one, two = drive(url(store)), drive(url(store, store_timeout="2s"))
    assert one("claim warm " + HOLD).startswith("run")
    assert two("claim up " + HOLD).startswith("run")
    keys = others(two, [f"k{step}" for step in range(1, 9)], 20)
    for step in range(1, 9):
        one(f"trap stop lock {step}")
        asked = one.send(f"claim k{step} " + HOLD)
        until(lambda: asked.came.is_set() or not one.events.empty(), "an answer, or the trap", PATIENCE)
        if asked.came.is_set():
            assert step > 1, "it takes no lock that processes share"
            break
        one.event("trapped")
        one.until_stopped()
        begin = time.monotonic()
        same = two.send(f"claim k{step} " + HOLD)
        for key in keys:
            answer = two.send(f"claim {key} recover=retry lease=1h").within(10)
            assert answer and answer.startswith("run"), f"another key got {answer} after {time.monotonic() - begin:.1f} s"
            assert two(f"early {key}").startswith("done")
        assert same.within(10) is not None, "no answer about the key within the timeout"
        one.go_on()
        assert asked.wait().startswith(("run", "busy"))


def test_takeover_that_needs_the_lock_of_a_stopped_process(drive, store):
    """One process was killed before its sync, another one was stopped with the lock of a shard that is concerned. A third one that
    takes over what the first one left waits for that lock, but not as long as what else is asked of it."""
    killed, stopped, third = drive(url(store)), drive(url(store)), drive(url(store, store_timeout="1s"))
    for number, driver in enumerate((killed, stopped, third)):
        assert driver(f"claim warm{number} " + HOLD).startswith("run")
    killed("stall .log")
    killed.send("claims k 0 20 " + HOLD)
    killed.event("stalled")
    killed.kill()
    stopped("trap stop lock 1")
    stopped.send("claim k0 " + HOLD)
    stopped.event("trapped")
    stopped.until_stopped()
    for key in others(third, [f"k{number}" for number in range(20)], 20):
        asked = third.send("get k1")
        begin = time.monotonic()
        answer = third.send(f"claim {key} " + HOLD).within(10)
        assert answer and answer.startswith("run"), f"{answer} after {time.monotonic() - begin:.1f} s"
        assert asked.within(10) is not None
    stopped.go_on()
    assert counts(third("claims k 0 20 " + HOLD)) == {"busy": 20}


# What a process does when it is killed: (commands before, the command, what others may be answered about the key afterwards).
DEATHS = {
    "claim": ([], "claim {key} {hold}", {"run", "busy", "unknown"}),
    "complete": (["claim {key} {hold}"], "complete {key} 100", {"busy", "unknown", "replay"}),
    "complete large": (["claim {key} {hold}"], "complete {key} 400000", {"busy", "unknown", "replay"}),
    "release": (["claim {key} {hold}"], "release {key}", {"busy", "unknown", "run"}),
    "early": (["claim {key} {hold}"], "early {key}", {"busy", "unknown", "run"}),
    "doubt": (["claim {key} {hold}"], "doubt {key}", {"busy", "unknown"}),
    "renew": (["claim {key} {hold}"], "renew {key}", {"busy", "unknown"}),
    "new segments": (["claim {key} {hold}"], "pairs {key}- 0 40 4000 {hold}", {"busy", "unknown"}),
    "reap": (["claim {key} {hold}", "pairs {key}- 0 60 2000 ttl=1s", "get expired"], "reap", {"busy", "unknown"}),
    "close": (["claim {key} {hold}", "complete {key} 100"], "close", {"replay"}),
}


@pytest.mark.parametrize("what", DEATHS)
def test_holder_dies_at_every_step(drive, store, what):
    """Killed before each unlocking of a mutex that processes share and before each call that changes a file: others go on, the
    index is what the log says, and nothing is granted that was."""
    before, command, allowed = DEATHS[what]
    options = {"segment": "64k", "store_timeout": "5s"}
    two = drive(url(store, **options))
    assert counts(two("pairs old 0 50 1000 " + HOLD))["done"] == 50
    step, survived, answers = 1, False, {}
    while not survived and step < 30000:
        key = f"k{step}"
        names = {"key": key, "hold": HOLD}
        one = drive(url(store, **options))
        for line in before:
            if line == "get expired":
                wait_for_expiry(one, f"{key}-59")
            else:
                one(line.format(**names))
        one(f"trap die any {step}")
        reply = one.send(command.format(**names))
        until(lambda: reply.came.is_set() or one.process.poll() is not None, "death or an answer", PATIENCE)
        survived = one.process.poll() is None and reply.came.is_set()
        one.kill()
        answer = two(f"claim {key} {HOLD}").split()[0]
        assert answer in allowed, f"killed at step {step}: {answer}"
        answers[key] = answer
        assert counts(two("claims old 0 50 " + HOLD)) == {"replay": 50}
        step += 1 + step // (2 if what == "reap" else 8)  # which takes many, and seconds before
    assert survived and step > 2, "every step was tried"
    assert two(f"fsck local:{store}").startswith("0 0:"), "the index is as the log"
    two.close()
    forget_index(store)
    three = drive(url(store, **options))
    assert counts(three("claims old 0 50 " + HOLD)) == {"replay": 50}
    for key, answer in answers.items():
        again = three(f"claim {key} {HOLD}").split()[0]
        changes = {("run", "busy"), ("run", "unknown"), ("busy", "unknown")}
        assert again == answer or (answer, again) in changes, (key, answer, again)


def loaded(driver):
    """Pairs that were done, and asks that were refused."""
    done, _, failed = map(int, driver("count").split())
    return done, failed


def test_process_that_stops_under_load(drive, store):
    """Two processes with 128 asks in flight, one is stopped at random again and again: the other one goes on, or answers with an
    error in time."""
    options = {"store_timeout": "2s", "segment": "1m"}
    one, two = drive(url(store, **options)), drive(url(store, **options))
    directory = os.path.dirname(store)
    for number, driver in enumerate((one, two)):
        driver(f"load {directory}/log{number} {number + 1} 128 400")
    stuck = 0
    for _ in range(20):
        one.stop()
        done, failed = loaded(two)
        until(lambda: sum(loaded(two)) > done + failed + 300, "answers of the other process", PATIENCE)
        stuck += loaded(two)[0] <= done  # stopped while it had a lock of the index: the other one answers that it cannot
        one.go_on()
        until(lambda: one("count"), "an answer", PATIENCE)
        until(lambda: loaded(two)[0] > done + 300, "progress of the other process", PATIENCE)
    assert stuck < 10


def test_writer_that_begins_a_segment_on_a_stalled_disk(drive, store):
    one, two = drive(url(store, segment="64k")), drive(url(store, segment="64k", store_timeout="2s"))
    assert two("claim warm " + HOLD).startswith("run")
    assert one("claim up " + HOLD).startswith("run")
    keys = others(two, [f"fill{number}-{key}" for number in range(5) for key in range(20)], 20)
    one("stall .new")
    pending = [one.send(f"pairs fill{number}- 0 20 2000 {HOLD}") for number in range(5)]
    one.event("stalled")
    time.sleep(0.2)  # the claims that can be decided are
    begin = time.monotonic()
    same = [two.send(f"claim fill{number}-{key} {HOLD}") for number in range(5) for key in range(20)]
    answers = [two.send(f"claim {key} " + HOLD) for key in keys]
    for answer in answers:
        text = answer.within(max(0.1, begin + 10 - time.monotonic()))
        assert text and text.startswith("run"), f"another key got {text}"
    for answer in same:
        assert answer.within(max(0.1, begin + 10 - time.monotonic())) is not None, "no answer within the timeout"
    three = drive(url(store, segment="64k", store_timeout="2s"))
    text = three.send("claim three " + HOLD).within(10)
    assert text and text.startswith("run"), f"a new process got {text}"
    one("stall off")
    for reply in pending:
        assert counts(reply.wait())


# ------------------------------------------------------------------------------------------------ durable before it is answered

def test_claim_that_is_repeated_through_another_process(drive, store):
    one, two = drive(url(store)), drive(url(store, store_timeout="1s"))
    assert one("claim up " + HOLD).startswith("run")
    claim = "claim k id=00112233445566778899aabbccddeeff " + HOLD
    one("stall all")
    first = one.send(claim)
    one.event("stalled")
    second = two.send(claim)
    text = second.within(6)
    assert first.text is None
    assert text is None or not text.startswith("run"), "it was granted, and is not durable"
    one("stall off")
    assert first.wait().startswith("run")
    assert two(claim).startswith("run"), "now it is"


# ----------------------------------------------------------------------------------------------------------------- damage

def imitations():
    """A body that looks like the beginnings of frames: headers of format 1 (length, checksum, kind 3), and of format 2."""
    old = b"".join(struct.pack("<IIBxxxI", 48000 + 8 * number, number * 2654435761 % 2**32, 2, 0) + bytes(32)
                   for number in range(13))
    new = b"".join(struct.pack("<IIIBBBxQI", 48000 + 8 * number, number, 0, 1, 2, 0, 1 << 60, 1 << 20) + bytes(36)
                   for number in range(4))
    return old + new


def write_imitation(one, store, tmp_path, pad):
    """A record with that body among others. Where the body is in the file."""
    with open(tmp_path / "body", "wb") as file:
        file.write(b"(marker)" + bytes(pad) + imitations())
    assert counts(one("pairs before 0 10 10 " + HOLD))["done"] == 10
    assert one("claim fake " + HOLD).startswith("run")
    assert one(f"complete fake @{tmp_path}/body").startswith("done")
    assert counts(one("pairs k 0 80 10 " + HOLD))["done"] == 80
    one.close()
    name = os.path.join(store, "segments", sorted(segments(store))[0])
    with open(name, "rb") as file:
        return name, file.read().find(b"(marker)")


def test_body_that_imitates_frames(drive, store, tmp_path):
    """The frame before it is damaged, and 80 keys under hold are behind it. Frames begin at multiples of 8: one of the paddings
    fits."""
    for pad in range(8):
        path = f"{store}{pad}"
        name, at = write_imitation(drive(url(path, segment="64k")), path, tmp_path, pad)
        assert at > 512
        with open(name, "r+b") as file:
            file.seek(at - 512)
            file.write(bytes(512))
        forget_index(path)
        two = drive()
        answer = two(f"open {url(path)}")
        if answer == "ok":
            nothing_granted(two("claims k 0 80 " + HOLD), ("replay", "ONCE_E_CORRUPT"))
            assert not two("claim fake " + HOLD).startswith("run")
            forget_index(path)
        two.kill()


@pytest.mark.parametrize("length", [1, 8])
@pytest.mark.parametrize("distance", [0, 60, 128])
def test_damaged_record_outlives_its_neighbours(drive, store, distance, length):
    """Bits of a pending record under hold are changed, at a distance before its key; its neighbours expire and are removed. Its
    key answers with an error for ever, or the store does not open."""
    one = drive(url(store, segment="64k"))
    assert one("claim marked-key-of-the-damaged-record " + HOLD).startswith("run")
    assert counts(one("pairs short 0 20 1000 ttl=1s lease=1s"))["done"] == 20
    one.close()
    name = os.path.join(store, "segments", sorted(segments(store))[0])
    with open(name, "r+b") as file:
        bytes_ = file.read()
        at = bytes_.find(b"marked-key") - distance
        file.seek(at)
        file.write(bytes(byte ^ 0x20 for byte in bytes_[at:at + length]))
    forget_index(store)
    two = drive()
    answer = two(f"open {url(store, segment='64k')}")
    if answer != "ok":
        assert answer.startswith("error ONCE_E_CORRUPT"), answer
        return
    ask = "claim marked-key-of-the-damaged-record " + HOLD
    assert two(ask) == "error ONCE_E_CORRUPT"
    wait_for_expiry(two, "short19")
    for _ in range(3):
        two("reap")
        assert counts(two("pairs more 0 200 1000 ttl=1s"))
        assert two(ask) == "error ONCE_E_CORRUPT"
    two.close()
    forget_index(store)
    assert drive(url(store))(ask) == "error ONCE_E_CORRUPT"


# ------------------------------------------------------------------------------------------------------------------ clocks

def test_first_process_of_a_boot_dies_at_every_look_at_the_clock(drive, store, tmp_path):
    """The store's clock must not go back by the uptime of the boot before: completed records would expire at the next boot."""
    boots = []
    for number in range(2):
        boots.append(str(tmp_path / f"boot{number}"))
        with open(boots[number], "w", encoding="ascii") as file:
            file.write(f"{number:08x}-1111-4222-8333-444455556666\n")
    with open("/proc/uptime", encoding="ascii") as file:
        uptime = int(float(file.read().split()[0]))
    one = drive(url(store), boot=(boots[0], 0))
    assert counts(one("pairs k 0 20 100 recover=hold ttl=1h"))["done"] == 20
    one.close()
    for step in range(1, 12):
        two = drive(boot=(boots[1], uptime - 10))
        two(f"trap die clock {step}")
        two.send(f"open {url(store)}")
        until(lambda: two.process.poll() is not None or not two.replies, "death or an answer", PATIENCE)
        two.kill()
        # Were the clock of the boot before added to the uptime of this one, what is completed now would expire at the next boot.
        three = drive(url(store), boot=(boots[1], uptime - 10))
        assert counts(three("claims k 0 20 recover=hold ttl=1h")) == {"replay": 20}, f"died at look {step}"
        assert counts(three(f"pairs late{step}- 0 5 100 recover=hold ttl=1h"))["done"] == 5
        three.close()
        four = drive(url(store), boot=(boots[0], 0))
        assert counts(four("claims k 0 20 recover=hold ttl=1h")) == {"replay": 20}, f"the boot after; died at look {step}"
        assert counts(four(f"claims late{step}- 0 5 recover=hold ttl=1h")) == {"replay": 5}, f"died at look {step}"
        four.close()


def test_index_that_was_left_uses_no_number_again(drive, store):
    """Two programs see different tmpfs. The index that the first one left does not know of a segment that the second one made and
    dropped: a new segment with that number would count as dropped."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as left, tempfile.TemporaryDirectory(dir="/dev/shm") as right:
        first = drive(url(store, index=left))
        assert counts(first(f"pairs old 0 50 300 {HOLD}"))["done"] == 50
        first.kill()
        second = drive(url(store, index=right))
        assert counts(second("pairs brief 0 20 300 ttl=1s"))["done"] == 20
        until(lambda: second("reap") and len(segments(store)) == 1, "the short records are gone", PATIENCE)
        second("close")
        second.kill()
        first = drive(url(store, index=left))
        assert counts(first(f"pairs new 0 50 300 {HOLD}"))["done"] == 50
        first.kill()
        second = drive(url(store, index=right))
        assert [second(f"claim {name}7 {HOLD}").split()[0] for name in ("old", "new")] == ["replay", "replay"]
        second("close")


def test_slot_that_is_used_again_is_not_the_same_place(drive, store):
    """A process is stopped between a read of a frame and the shard's lock. Meanwhile the segment goes, and its slot gets another
    one with a frame of the same record at the same offset."""
    keep, first = drive(url(store)), drive(url(store))
    assert first("claim X recover=retry lease=1s ttl=30d").startswith("run")
    assert counts(first("pairs brief 0 40 300 recover=retry lease=1s ttl=1s"))["done"] == 40
    first("close")
    first.kill()
    slow = drive(url(store))
    assert slow("claim other lease=60s ttl=30d").startswith("run")
    time.sleep(1.2)  # the lease of X and the short records end
    slow("trap stop read 1")
    late = slow.send("claim X recover=retry lease=60s ttl=30d")
    slow.event("trapped")
    slow.until_stopped()
    until(lambda: keep("reap") and "0000000000000001.log" not in segments(store), "the first segment goes", PATIENCE)
    other = drive(url(store))
    assert other("claim X recover=retry lease=60s ttl=30d").startswith("run epoch=2")
    slow.go_on()
    assert late.wait(PATIENCE).startswith("busy")
    assert other("complete X 100").startswith("done")


def test_frame_that_others_went_on_from_is_not_covered(drive, store):
    """A frame that nobody synced is what the release of another process is built on. The writer is killed: if its frame went,
    nothing would keep the one before it from counting again."""
    one, two = drive(url(store)), drive(url(store))
    claim = "claim X id=00112233445566778899aabbccddeeff recover=hold lease=2s ttl=30d"
    assert one(claim).startswith("run")
    assert counts(one("pairs k 0 60 300 " + HOLD))["done"] == 60
    assert two(claim).startswith("run")
    one("stall .log")
    one.send("renew X")
    one.event("stalled")
    assert two("early X").startswith("done")
    one.kill()
    two("reap")
    two("close")
    two.kill()

    def gone():
        driver = drive(url(store))
        driver("reap")
        found = driver("get X")
        driver("close")
        driver.kill()
        return "NOT_FOUND" in found
    until(gone, "X expires", PATIENCE)
    last = drive(url(store))
    assert last("claim X " + HOLD).startswith("run epoch=1")

