"""Waiting for things that happen elsewhere: always for an event where there is one, and never without an end."""
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support"))
import waiting  # noqa: E402
from waiting import Timeout  # noqa: E402

# A machine under load, or a sanitizer, is slow: what is exceeded here has failed, not merely taken long.
PATIENCE = float(os.environ.get("GATEWAY_PATIENCE", "30"))


def until(condition, what, patience=PATIENCE):
    return waiting.until(condition, what, patience)


def all_at_once(posts):
    """Calls each in a thread of its own, as nearly at once as can be; their responses."""
    barrier, answers = threading.Barrier(len(posts)), [None] * len(posts)

    def run(number):
        barrier.wait()
        answers[number] = posts[number]()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(posts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert None not in answers
    return answers


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
        """For the test: until a request waits at the gate."""
        if not self.arrivals.acquire(timeout=PATIENCE):
            raise Timeout("nothing came to the gate")
