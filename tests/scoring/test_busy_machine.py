"""Right answers on a machine with too much to do: none earns 0. All on one CPU, with others that want it too."""

import json
import subprocess
import sys

import pytest

from anygrpo.scoring import sandbox

needs_sandbox = pytest.mark.skipif(sandbox.refusal() is not None, reason="no sandbox on this machine")

SCRIPT = """
import json, os, subprocess, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.cpu_count = lambda: 64  # what a container says that may use one CPU of 64
from anygrpo.scoring import code, machine
from anygrpo.scoring.reward import Rows
from anygrpo.scoring.sandbox import Limits
assert machine.usable_cpus() == 1
count, hogs, threads = map(int, sys.argv[1:])
if threads > 1:  # a pool that is too large, as if several trainers shared the CPU
    code.usable_cpus = lambda: threads
burn = "import time\\nt = time.process_time()\\nwhile time.process_time() - t < 0.3: pass\\n"
answer, program = burn + "f = lambda x: x", burn + "print(input())"
loop = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(hogs)]
try:
    reward = code.Code("code", 1.0, "tests", False, Limits(seconds=1.0))
    outputs = [answer if i % 2 else program for i in range(count)]
    tests = [["assert f(1) == 1"] if i % 2 else [{"input": "7", "output": "7"}] for i in range(count)]
    print(json.dumps(reward.start(Rows(["p"] * count, outputs, {"tests": tests}))()))
finally:
    for one in loop:
        one.kill()
"""


def outcomes(count, hogs, threads):
    words = [sys.executable, "-c", SCRIPT, str(count), str(hogs), str(threads)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@needs_sandbox
def test_no_right_answer_earns_0_while_others_want_the_cpu():
    assert outcomes(4, hogs=2, threads=3) == [1.0] * 4


@needs_sandbox
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_none_of_two_hundred():
    made = outcomes(200, hogs=4, threads=6)
    assert made.count(0.0) == 0
    print(f"{made.count(1.0)} right, {sum(isinstance(m, str) for m in made)} without a verdict")
    assert made.count(1.0) >= 100


def test_cpus_are_those_of_the_affinity_and_the_quota(tmp_path, monkeypatch):
    from anygrpo.scoring import machine

    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.setattr(machine, "_GROUPS", tmp_path)
    assert machine.usable_cpus() == 16
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert machine.usable_cpus() == 2
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert machine.usable_cpus() == 16
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("50000\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert machine.usable_cpus() == 1
