"""What `make run-shop` shows, and that Ctrl-C ends all of it and leaves nothing behind."""
import glob
import os
import re
import signal
import subprocess
import tempfile
import threading

import pytest

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("ONCE_BUILD", os.path.join(SOURCE, "build")))
MISSING = 77  # exit code of the show: something that it starts is not installed


def left_behind(directory):
    """Programs that still run with files in the shop's directory."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                if directory.encode() in file.read():
                    found.append(path)
        except OSError:
            pass
    return found


def read_until(stream, lines, text):
    for line in stream:
        lines.append(line)
        if text in line:
            return True
    return False


def test_the_show_and_its_end():
    with tempfile.TemporaryDirectory(prefix="show.") as parent:
        shop = subprocess.Popen([os.path.join(SOURCE, "scripts", "run-shop")], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, start_new_session=True,
                                env={**os.environ, "BUILD": BUILD, "TMPDIR": parent})
        late = threading.Timer(240, lambda: os.killpg(shop.pid, signal.SIGTERM))
        late.start()
        lines = []
        try:
            if read_until(shop.stdout, lines, "kill something:"):
                os.killpg(shop.pid, signal.SIGINT)  # as a terminal does: to all of them
            lines += list(shop.stdout)
            code = shop.wait()
        finally:
            late.cancel()
        text = "".join(lines)
        if code == MISSING:
            pytest.skip(text)
        assert code == 0, text
        check(text)
        assert os.listdir(parent) == [] and left_behind(parent) == []


def check(text):
    counts = re.findall(r"^ +(\d+)  (transfers|entries|SMS|push)", text, re.M)
    assert [int(number) for number, _ in counts] == [1] * 8 + [2] * 4, text
    assert "(replayed)" in text
    assert "3  mails in the box, of which 1 a second copy" in text and "two copies, one Message-ID, none lost" in text
    # Three, and one more for each delivery that a busy machine makes the broker repeat.
    assert int(re.search(r"asked twice for it \((\d+) requests in all\) and sent it once", text)[1]) >= 3, text
    for word in ("WRONG", "not as promised", "did not end well"):
        assert word not in text, text
