"""The disk below a store as a test wants it: see fault.c."""
import os

from . import environment
from .wait import until

LIBRARY = os.path.join(environment.BUILD, "gateway_fault.so")


class Disk:
    def __init__(self, directory):
        self.path = os.path.join(directory, "disk")
        self.variables = {"GATEWAY_FAULT": self.path, "LD_PRELOAD": LIBRARY}
        self.say("")

    def say(self, word):
        with open(self.path + ".new", "w", encoding="ascii") as file:
            file.write(word)
        os.rename(self.path + ".new", self.path)

    def arrivals(self):
        try:
            return os.stat(self.path + ".arrived").st_size
        except FileNotFoundError:
            return 0

    def block(self):
        """From now on nothing becomes durable."""
        self.say("block")

    def wait_blocked(self, more_than=0):
        """Until a write waits."""
        until(lambda: self.arrivals() > more_than, "a write that waits for the disk")

    def fill(self):
        self.say("full")

    def break_down(self):
        self.say("broken")

    def link(self):
        """From now on a directory "store" that is made is replaced, before anything else happens, by a link to another one,
        which is returned."""
        os.mkdir(self.path + ".target")
        self.say("link")
        return self.path + ".target"

    def heal(self):
        self.say("")
