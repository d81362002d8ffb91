"""Real brokers for the tests of the page."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
pytest_plugins = ["brokers.fixtures"]
