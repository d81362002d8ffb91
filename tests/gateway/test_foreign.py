"""A module that was built for another nginx: nginx refuses it, and `once gate` says which command mends that."""
import os
import re
import subprocess

import pytest

from harness import environment
from harness.gateway import take_port
from harness.wait import PATIENCE


def number():
    """The version of nginx as modules have it: 1022001. Angie compares its own."""
    major, minor, patch = environment.version("Angie") or environment.version()
    return major * 1000000 + minor * 1000 + patch


def other_version(module):
    """nginx compares the number in the module's structure with its own."""
    own = number().to_bytes(8, "little")
    assert own in module
    return module.replace(own, (number() + 1).to_bytes(8, "little"))


def other_features(module):
    """The signature has a digit for each feature that both must have been built with."""
    signature, = set(re.findall(rb"\d,\d,\d,[01]{30,}\0", module))
    return module.replace(signature, signature[:-2] + (b"0" if signature[-2:-1] == b"1" else b"1") + b"\0")


@pytest.mark.parametrize("change, says", [(other_version, "instead of"), (other_features, "is not binary compatible")])
def test_the_command_that_mends_it(directory, change, says):
    with open(environment.MODULE, "rb") as file:
        module = change(file.read())
    os.chmod(directory, 0o777)  # the store is opened by the user of the workers
    path = f"{directory}/foreign.so"
    with open(path, "wb") as file:
        file.write(module)
    done = subprocess.run([environment.ONCE, "gate", "--nginx", environment.NGINX, "--module", path, "--upstream",
                           "http://127.0.0.1:1", "--listen", f"{environment.address()}:{take_port()}", "--store",
                           f"local:{directory}/store", "--scope", "none", *(["--user", "nobody"] if environment.ROOT else [])],
                          capture_output=True, text=True, timeout=PATIENCE * 2, check=False)
    assert done.returncode != 0
    assert says in done.stderr
    assert f'"make module NGINX={environment.NGINX}"' in done.stderr
