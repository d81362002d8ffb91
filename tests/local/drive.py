"""Processes that use a store as they are commanded (driver.c), and filesystems of their own for stores, whose power can fail."""
import array
import contextlib
import ctypes
import fcntl
import itertools
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from waiting import Timeout, until  # noqa: E402

DRIVER = os.environ.get("ONCE_DRIVER", "")
PROGRAM = os.environ.get("ONCE_PROGRAM", "")
PATIENCE = float(os.environ.get("DRIVE_PATIENCE", "120"))  # for what must come; more than that has failed
SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN
NO_FLUSH = 2
PROCESS_MADVISE, PAGEOUT = 440, 21
NEW_MOUNTS = 0x20000  # CLONE_NEWNS


def own_mounts():
    """Volumes are mounted for this process and those that it starts. In the namespace of all processes, one that another test makes
    beside this would have a copy of each mount, and a volume could not be unmounted before that test ends."""
    if ctypes.CDLL(None).unshare(NEW_MOUNTS) == 0:  # without the right to, there are no volumes either
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)


own_mounts()


class Impossible(Exception):
    """This machine does not allow it: no loop devices, no rights to mount."""


class Died(AssertionError):
    """A driver ended by itself."""


class Reply:
    def __init__(self, driver, tag, command):
        self.driver, self.tag, self.command, self.text, self.came = driver, tag, command, None, threading.Event()

    def wait(self, patience=None):
        """The text of the answer."""
        end = time.monotonic() + (PATIENCE if patience is None else patience)
        while not self.came.wait(0.02):
            if time.monotonic() > end:
                raise Timeout(f"no answer to {self.command!r}")
            if self.driver.process.poll() is not None and not self.came.wait(0.5):
                raise Died(f"the driver ended with {self.driver.process.returncode} at {self.command!r}")
        return self.text

    def within(self, seconds):
        """The text, or None if it does not come in time."""
        return self.text if self.came.wait(seconds) else None


class Driver:
    """One process with one handle."""

    def __init__(self, url=None, boot=None, fsize=None, wall=0):
        """boot: (file with the id, seconds that it is younger): it runs in another boot. fsize: greatest file that it may write.
        wall: seconds that its time of day is ahead."""
        command, environment = [DRIVER], {**os.environ, "DRIVER_WALL_STEP": str(wall)}
        if boot:
            environment["DRIVER_BOOT_ID"], environment["DRIVER_BOOTED_AFTER"] = boot[0], str(boot[1])
        if fsize:
            command = ["sh", "-c", f'ulimit -f {fsize}; exec "$0"', DRIVER]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self.replies, self.events, self.tags = {}, queue.Queue(), itertools.count()
        threading.Thread(target=self._read, daemon=True).start()
        if url:
            answer = self(f"open {url}")
            assert answer == "ok", answer

    def _read(self):
        for line in self.process.stdout:
            tag, _, text = line.decode().rstrip("\n").partition(" ")
            if tag == "!":
                self.events.put(text)
            else:
                reply = self.replies.pop(tag)
                reply.text = text
                reply.came.set()

    def send(self, command):
        reply = Reply(self, f"t{next(self.tags)}", command)
        self.replies[reply.tag] = reply
        self.process.stdin.write(f"{reply.tag} {command}\n".encode())
        self.process.stdin.flush()
        return reply

    def __call__(self, command, patience=None):
        return self.send(command).wait(patience)

    def event(self, begin, patience=PATIENCE):
        """Waits for an event whose text begins so."""
        while True:
            try:
                text = self.events.get(timeout=patience)
            except queue.Empty:
                raise Timeout(f"no event {begin!r}") from None
            if text.startswith(begin):
                return text

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)
        self.until_stopped()

    def until_stopped(self):
        def is_stopped():
            with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
                return file.read().rsplit(")", 1)[1].split()[0] in "TZ"
        until(is_stopped, "a process that stands still", PATIENCE)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def page_out(self, path):
        """Its pages of files below the path are given back, as when memory is short."""
        libc, ranges = ctypes.CDLL(None, use_errno=True), []
        with open(f"/proc/{self.process.pid}/maps", encoding="utf-8") as file:
            for line in file:
                words = line.split()
                if len(words) > 5 and words[5].startswith(path):
                    ranges.append([int(number, 16) for number in words[0].split("-")])
        pidfd = os.pidfd_open(self.process.pid)
        for begin, end in ranges:
            vector = (ctypes.c_size_t * 2)(begin, end - begin)
            libc.syscall(PROCESS_MADVISE, pidfd, vector, ctypes.c_size_t(1), PAGEOUT, 0)
        os.close(pidfd)
        return len(ranges)

    def kill(self):
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def close(self):
        """Ends it in good order. Returns what once_close said."""
        answer = self("close")
        self.kill()
        return answer


def counts(text):
    """Of an answer to pairs or claims: {"run": 3, ...}."""
    return {name: int(number) for name, _, number in (word.partition("=") for word in text.split())}


def fields(text):
    return dict(word.partition("=")[::2] for word in text.split() if "=" in word)


def fsck(path, *more):
    """Exit code and output."""
    done = subprocess.run([PROGRAM, "fsck", *more, f"local:{path}"], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def segments(path):
    """{name: size} of the log's files."""
    found = {}
    with os.scandir(os.path.join(path, "segments")) as entries:
        for entry in entries:
            if entry.name.endswith(".log"):
                with contextlib.suppress(FileNotFoundError):
                    found[entry.name] = entry.stat().st_size
    return found


def forget_index(path):
    """Removes the index of the store: it is rebuilt from the log."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(os.path.join(path, "index"))
    with open(os.path.join(path, "format"), encoding="ascii") as file:
        lines = file.read().split()
    if "id" in lines:
        for name in os.listdir("/dev/shm"):
            if name.startswith(f"once-{lines[lines.index('id') + 1]}"):
                os.remove(os.path.join("/dev/shm", name))


def sh(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Impossible(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


MAKE = {"ext4": ["mkfs.ext4", "-q", "-F"], "xfs": ["mkfs.xfs", "-q", "-f"], "btrfs": ["mkfs.btrfs", "-q", "-f"]}


class Volume:
    """A filesystem in a file, mounted. The file is sparse: what is below it may have less room than it says."""

    def __init__(self, kind, megabytes, below=None, options="", make=()):
        self.kind, self.options = kind, options
        self.directory = tempfile.mkdtemp(prefix="once-volume-", dir=below)
        self.image, self.path = os.path.join(self.directory, "image"), os.path.join(self.directory, "mounted")
        self.is_mounted, self.device = False, None
        os.mkdir(self.path)
        with open(self.image, "wb") as file:
            file.truncate(megabytes << 20)
        try:
            sh(*MAKE[kind], *make, self.image)
            self.mount()
        except Exception:
            self.close()
            raise

    def mount(self):
        """On the same device as before, if it has one: then it is the same filesystem to those who compare numbers."""
        if self.device is None:
            self.device = sh("losetup", "--find", "--show", self.image).strip()
        sh("mount", *(["-o", self.options] if self.options else []), self.device, self.path)
        self.is_mounted = True

    def roll_back(self, image):
        """To an image of before. It is not mounted."""
        sh("losetup", "--detach", self.device)
        until(lambda: subprocess.run(["losetup", self.device], capture_output=True, check=False).returncode != 0,
              "a free device", PATIENCE)
        os.rename(image, self.image)
        sh("losetup", self.device, self.image)

    def unmount(self):
        if self.is_mounted:
            until(lambda: subprocess.run(["umount", self.path], capture_output=True, check=False).returncode == 0,
                  f"umount of {self.path}", PATIENCE)
        self.is_mounted = False

    def join(self, name):
        return os.path.join(self.path, name)

    def fail(self):
        """The power fails for this filesystem: nothing that is not on the disk comes there any more. It must be mounted again."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, array.array("I", [NO_FLUSH]))
        finally:
            os.close(fd)

    def write_back(self):
        """Everything that is dirty now goes to the disk, as the kernel does it now and then."""
        sh("sync", "-f", self.path)

    def fill(self):
        """Leaves no room."""
        with contextlib.suppress(OSError), open(self.join("filler"), "wb", buffering=0) as file:
            size = 1 << 20
            while size >= 512:
                try:
                    while file.write(b"x" * size):
                        os.fsync(file.fileno())
                except OSError:
                    size //= 2
        self.write_back()

    def image_now(self, to):
        """What a power failure at this moment would leave: the image as it is, at once (the filesystem below it has reflinks)."""
        sh("cp", "--reflink=always", self.image, to)

    def close(self):
        with contextlib.suppress(Timeout):
            self.unmount()
        if self.device:
            subprocess.run(["losetup", "--detach", self.device], check=False)
        subprocess.run(["rm", "-rf", "--one-file-system", self.directory], check=False)
