"""Waiting for things that happen elsewhere: always for an event where there is one, and never without an end."""
import os
import threading
import time

# A machine under load, or a sanitizer, is slow: what is exceeded here has failed, not merely taken long.
PATIENCE = float(os.environ.get("GATEWAY_PATIENCE", "15"))


class Timeout(AssertionError):
    """What a test waited for did not happen."""


def until(condition, what, patience=PATIENCE):
    """For what has no event to wait on, such as a record that another process writes. Returns what `condition` gave. `what` is
    text, or a function that makes it when it is needed."""
    end = time.monotonic() + patience
    pause = 0.002
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise Timeout(f"waited {patience:g} s for: {what() if callable(what) else what}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


class Gate:
    """Closed until it is opened: an upstream stops here, a test lets it go on."""

    def __init__(self):
        self.event = threading.Event()
        self.arrivals = threading.Semaphore(0)

    def open(self):
        self.event.set()

    def pass_through(self):
        """For the side that stops. False: the gate was not opened in time; the test has failed by then."""
        self.arrivals.release()
        return self.event.wait(PATIENCE * 2)

    def wait_arrival(self):
        """For the test: until somebody stands before the gate."""
        if not self.arrivals.acquire(timeout=PATIENCE):
            raise Timeout("nobody came to the gate")
