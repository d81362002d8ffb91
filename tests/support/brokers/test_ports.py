"""Tests run side by side: a port that one of them has chosen is no other's, though nothing listens there yet."""
import subprocess
import sys

import pytest

from brokers import process

OTHER = "from brokers import process; process.PORTS = range({port}, {port} + 1); print(process.free_port())"


def other(port):
    """What another process gets that may have only this one."""
    return subprocess.run([sys.executable, "-c", OTHER.format(port=port)], capture_output=True, text=True)


def test_a_port_is_given_once(monkeypatch):
    port = process.free_port()
    monkeypatch.setattr(process, "PORTS", range(port, port + 1))
    with pytest.raises(RuntimeError):
        process.free_port()
    assert "no free port on loopback" in other(port).stderr
    process.taken.pop().close()
    assert other(port).stdout == f"{port}\n"
