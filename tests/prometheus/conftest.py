"""Where the tests of deploy/ find the harness of the gateway, and what helps them."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "gateway"), os.path.join(HERE, "..", "support")]
sys.path.append(os.path.join(HERE, "..", "relay"))
pytest_plugins = ["brokers.fixtures"]
