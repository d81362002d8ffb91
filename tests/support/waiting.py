"""Waiting for what has no event to wait on, such as a record that another process writes: never without an end."""
import time


class Timeout(AssertionError):
    """What a test waited for did not happen."""


def until(condition, what, patience):
    """Returns what `condition` gave. `what` is text, or a function that makes it when it is needed."""
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
