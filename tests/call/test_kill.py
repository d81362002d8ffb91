"""kill -9 between every two steps of a call: before and after each fdatasync, connect, send and recv."""
import json
import os
from concurrent.futures import ThreadPoolExecutor

from stage import Backend, Caller, Gate, environment

KILL = os.path.join(environment.BUILD, "call_kill.so")


def attempt(directory, gate, number):
    """Killed at this step, and then run until its end, as a person would. Returns whether there was such a step: an answer may
    come in fewer pieces than the last time."""
    directory.mkdir()
    caller = Caller(directory)
    words = ["--name", "n", "--json", json.dumps({"id": str(number)}), "-s", f"{gate.url}/pay"]
    first = caller.run(*words, env={"LD_PRELOAD": KILL, "CALL_KILL_AT": str(number)})
    assert first.returncode in (-9, 0), (number, first)
    if number % 2 == 0:
        caller.run("--resume", check=0)
    answer = json.loads(caller.run(*words, check=0).stdout)
    assert answer == {"id": str(number), "tries": 1}
    return first.returncode == -9


def test_every_step(tmp_path):
    backend = Backend()
    gate = Gate(backend)
    count = tmp_path / "count"
    (tmp_path / "0").mkdir()
    Caller(tmp_path / "0").run("--name", "n", "--json", '{"id": "0"}', f"{gate.url}/pay",
                               env={"LD_PRELOAD": KILL, "CALL_KILL_COUNT": str(count)}, check=0)
    steps = int(count.read_text())
    assert steps >= 10  # three syncs before the first byte, a connection, a request, an answer, a sync
    with ThreadPoolExecutor(16) as pool:  # most of the time they wait for a lease
        killed = sum(pool.map(lambda number: attempt(tmp_path / str(number), gate, number), range(1, min(steps, 60))))
    gate.close()
    backend.close()
    assert killed >= 8
    assert sorted(backend.effects, key=int) == [str(number) for number in range(0, min(steps, 60))]
