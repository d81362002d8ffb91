"""Packages of npm for tests: in the versions that a package-lock.json pins, in the build directory."""
import os
import shutil
import subprocess

import pytest


def packages(source, place):
    """Fetches what package.json of `source` names into `place`, unless that is there. Without Node or npm the test is skipped."""
    for program in ("node", "npm"):
        if not shutil.which(program):
            pytest.skip(f"{program} is not there")
    os.makedirs(place, exist_ok=True)
    wanted = os.path.join(source, "package-lock.json")
    mark = os.path.join(place, "node_modules", ".fetched")
    if not os.path.exists(mark) or os.path.getmtime(mark) < os.path.getmtime(wanted):
        for name in ("package.json", "package-lock.json"):
            shutil.copy(os.path.join(source, name), place)
        done = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=place, capture_output=True,
                              text=True, check=False, timeout=300)
        if done.returncode:
            pytest.skip(f"packages of npm cannot be fetched: {done.stderr[-500:]}")
        with open(mark, "w", encoding="ascii"):
            pass
    return place
