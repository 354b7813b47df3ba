"""Workers that lie, hang, die and shout."""

import os
import subprocess
import sys
import time

import pytest

from anygrpo.scoring._worker import WrongShape, verdicts
from anygrpo.scoring.workers import LoadFailure, Pool, WorkerFailure

REWARDS = """
import os, sys, time, asyncio, threading
calls = 0

def good(prompts, outputs): return [float(len(o)) for o in outputs]
async def later(prompts, outputs):
    await asyncio.sleep(0.01)
    return [1.0 for _ in outputs]
def hang(prompts, outputs):
    while True: pass
def sleep(prompts, outputs): time.sleep(60)
def die(prompts, outputs): os._exit(7)
def leave(prompts, outputs): sys.exit(0)
def kill(prompts, outputs): os.kill(os.getpid(), 9)
def raises(prompts, outputs): raise KeyError("gone")
def flood(prompts, outputs):
    for _ in range(200): print("x" * 100_000)
    os.write(1, b"y" * 1_000_000); os.write(2, b"z" * 1_000_000)
    return [1.0] * len(outputs)
def child(prompts, outputs):
    pid = os.fork()
    if pid:
        with open(prompts[0], "w") as file: file.write(str(pid))
    time.sleep(60)
def count(prompts, outputs):
    global calls
    calls += 1
    return [calls] * len(outputs)
def daemons(prompts, outputs):
    # a child in a session of its own, and a grandchild whose parent has ended
    import subprocess
    one = subprocess.Popen(["sleep", "300"], start_new_session=True)
    out = subprocess.run(["sh", "-c", "setsid sleep 300 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True)
    with open(prompts[0], "w") as file: file.write(f"{os.getpid()} {one.pid} {out.stdout.strip()}")
    if len(prompts) > 1:
        import re
        re.match(r"(a|aa)+$", "a" * 60 + "b")  # holds the interpreter's lock: no thread of the worker runs
    time.sleep(300)
def greedy(prompts, outputs):
    x = bytearray(400 << 20)
    return [float(len(x))] * len(outputs)
kept = []
def leaks(prompts, outputs):
    kept.append(bytearray(b"x" * (60 << 20)))
    return [float(len(kept))] * len(outputs)
def columns(prompts, outputs, answer, **rest): return [float(o == a) for o, a in zip(outputs, answer)]
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("rewards") / "user.py"
    path.write_text(REWARDS)
    return path


@pytest.fixture(scope="module")
def pool():
    with Pool(1) as pool:
        yield pool


def call(pool, file, name, outputs=("a", "bb"), timeout=10.0, **columns):
    arguments = {"prompts": [""] * len(outputs), "outputs": list(outputs), **columns}
    return pool.submit(f"{file}:{name}", arguments, len(outputs), timeout).result()


def test_values_of_plain_and_async_functions(pool, file):
    assert call(pool, file, "good") == [1.0, 2.0]
    assert call(pool, file, "later") == [1.0, 1.0]
    assert call(pool, file, "columns", answer=["a", "c"], other=[1, 2]) == [1.0, 0.0]


def test_a_worker_is_started_once(pool, file):
    first = call(pool, file, "count")[0]
    assert call(pool, file, "count")[0] == first + 1


@pytest.mark.parametrize("name", ["hang", "sleep"])
def test_time_out_kills_and_the_pool_goes_on(pool, file, name):
    began = time.monotonic()
    call(pool, file, "good")
    with pytest.raises(WorkerFailure, match=r"timed out after 0\.3 s"):
        call(pool, file, name, timeout=0.3)
    assert call(pool, file, "good") == [1.0, 2.0]
    assert time.monotonic() - began < 20


def test_time_out_kills_what_the_worker_started_too(pool, file, tmp_path):
    call(pool, file, "good")
    note = tmp_path / "pid"
    with pytest.raises(WorkerFailure, match="timed out"):
        pool.submit(f"{file}:child", {"prompts": [str(note)], "outputs": ["a"]}, 1, 0.5).result()
    assert _gone(int(note.read_text()))


def _gone(pid):
    for _ in range(200):  # an orphan is reaped by init a moment later
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize(("name", "code"), [("die", "7"), ("kill", "-9")])
def test_death_is_reported_and_survived(pool, file, name, code):
    with pytest.raises(WorkerFailure, match=rf"worker died \(exit code {code}\)"):
        call(pool, file, name)
    assert call(pool, file, "good") == [1.0, 2.0]


def test_exceptions_and_sys_exit_do_not_end_the_worker(pool, file):
    call(pool, file, "good")
    process = pool._workers[0].process
    with pytest.raises(WorkerFailure, match=r"KeyError: 'gone' \(user\.py:\d+\)"):
        call(pool, file, "raises")
    with pytest.raises(WorkerFailure, match="SystemExit"):
        call(pool, file, "leave")
    assert pool._workers[0].process is process


def test_flooded_output_goes_nowhere(pool, file):
    assert call(pool, file, "flood") == [1.0, 1.0]


def test_load_failures_name_what_is_there(pool, file, tmp_path):
    with pytest.raises(LoadFailure) as missing:
        pool.inspect(f"{file}:goood")
    assert missing.value.missing == "goood"
    assert "good" in missing.value.known
    with pytest.raises(LoadFailure, match="FileNotFoundError"):
        pool.inspect(f"{tmp_path}/none.py:f")
    (tmp_path / "broken.py").write_text("import nothing_of_that_name\n")
    with pytest.raises(LoadFailure, match="nothing_of_that_name"):
        pool.inspect(f"{tmp_path}/broken.py:f")


def test_inspect_reads_the_signature(pool, file):
    assert pool.inspect(f"{file}:columns") == {
        "parameters": ["prompts", "outputs", "answer"],
        "needed": ["prompts", "outputs", "answer"],
        "any": True,
        "form": "anygrpo",
        "splits": False,
    }


def test_helper_modules_beside_the_file_are_found(tmp_path):
    (tmp_path / "beside_it.py").write_text("VALUE = 3.0\n")
    (tmp_path / "reward.py").write_text("from beside_it import VALUE\ndef f(prompts, outputs): return [VALUE]\n")
    with Pool(1) as pool:
        assert pool.submit(f"{tmp_path}/reward.py:f", {"prompts": [""], "outputs": [""]}, 1, 10.0).result() == [3.0]


def test_unsendable_columns_are_a_reason_not_a_crash(pool, file):
    with pytest.raises(WorkerFailure, match="cannot be sent"):
        call(pool, file, "columns", answer=[lambda: 0, 1])


def test_closing_leaves_no_process_behind(file):
    pool = Pool(2)
    call(pool, file, "good")
    pids = [worker.process.pid for worker in pool._workers if worker.process]
    assert pids
    pool.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_workers_end_when_the_trainer_is_killed(file):
    code = (
        "import time\nfrom anygrpo.scoring.workers import Pool\npool = Pool(1)\n"
        f"pool.inspect({str(file)!r} + ':good')\nprint(pool._workers[0].process.pid, flush=True)\ntime.sleep(60)"
    )
    trainer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with trainer, trainer.stdout:
        pid = int(trainer.stdout.readline())
        trainer.kill()
    assert _gone(pid)


def _pids(note):
    for _ in range(400):
        if note.exists() and len(words := note.read_text().split()) == 3:
            return [int(word) for word in words]
        time.sleep(0.05)
    raise AssertionError("the reward never began")


def test_children_in_sessions_of_their_own_end_with_the_call(pool, file, tmp_path):
    call(pool, file, "good")
    note = tmp_path / "pids"
    with pytest.raises(WorkerFailure, match="timed out"):
        pool.submit(f"{file}:daemons", {"prompts": [str(note)], "outputs": ["a"]}, 1, 1.5).result()
    assert all(map(_gone, _pids(note)))


@pytest.mark.parametrize("held", [False, True])
def test_all_end_when_the_trainer_is_killed_whatever_the_reward_holds(file, tmp_path, held):
    note = tmp_path / "pids"
    prompts = [str(note), "held"][: 1 + held]
    code = (
        "from anygrpo.scoring.workers import Pool\npool = Pool(1)\n"
        f"pool.submit({str(file)!r} + ':daemons', {{'prompts': {prompts}, 'outputs': ['a']}}, 1, 300.0).result()"
    )
    trainer = subprocess.Popen([sys.executable, "-c", code])
    pids = _pids(note)
    trainer.kill()
    trainer.wait()
    assert all(map(_gone, pids))


def test_a_thread_that_ends_takes_no_worker_with_it(file):
    import threading

    from anygrpo.scoring.workers import Worker

    worker = Worker()
    arguments = {"prompts": [""], "outputs": ["a"]}
    begin = threading.Thread(target=lambda: worker.call(f"{file}:count", arguments, 1, 10.0))
    begin.start()
    begin.join()
    time.sleep(0.3)
    try:
        assert worker.call(f"{file}:count", arguments, 1, 10.0) == [2.0]  # the same process: it has counted one
    finally:
        worker.kill()


def test_memory_is_bounded(file):
    with Pool(1, memory_mb=200) as pool:
        with pytest.raises(WorkerFailure, match="MemoryError"):
            call(pool, file, "greedy")
        assert call(pool, file, "good") == [1.0, 2.0]
    with Pool(1, memory_mb=0) as pool:
        assert call(pool, file, "greedy", outputs=["a"]) == [float(400 << 20)]


def test_workers_are_begun_anew_after_so_many_calls_or_so_much_memory(file):
    with Pool(1, calls=3) as pool:
        counts = [call(pool, file, "count", outputs=["a"])[0] for _ in range(7)]
    assert counts == [1, 2, 3, 1, 2, 3, 1]
    with Pool(1, memory_mb=300) as pool:
        counts = [call(pool, file, "leaks", outputs=["a"])[0] for _ in range(6)]
    assert max(counts) < 5
    assert counts.count(1.0) >= 2


def test_closing_ends_a_call_in_flight(file):
    pool = Pool(1)
    call(pool, file, "good")
    waiting = pool.submit(f"{file}:sleep", {"prompts": [""], "outputs": ["a"]}, 1, 30.0)
    time.sleep(0.3)
    began = time.monotonic()
    pool.close()
    with pytest.raises(WorkerFailure):
        waiting.result()
    assert time.monotonic() - began < 5
    assert pool._workers[0].process is None


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (1.0, r"returned '1\.0' \(float\), wanted a list of 2 numbers"),
        ("ab", r"returned 'ab' \(str\)"),
        (None, "returned None, wanted"),
        ({"a": 1}, r"\(dict\)"),
        ([1.0], "returned 1 values for 2 outputs"),
        ([1.0] * 3, "returned 3 values for 2 outputs"),
    ],
)
def test_results_of_the_wrong_shape(result, message):
    with pytest.raises(WrongShape, match=message):
        verdicts(result, 2)


def test_each_value_is_judged_alone():
    import numpy as np
    import torch

    given = [1, True, None, float("nan"), float("inf"), "0.5", [1], np.float32(0.5), torch.tensor(2.0)]
    values = verdicts(given, 9)
    assert values[:2] == [1.0, 1.0]
    assert values[2:7] == [
        None,
        "returned nan",
        "returned inf",
        {"unfit": "returned '0.5' (str)"},
        {"unfit": "returned '[1]' (list)"},
    ]
    assert values[7:] == [0.5, 2.0]
    assert verdicts(torch.tensor([0.0, 1.0]), 2) == [0.0, 1.0]
    assert verdicts([1e39, 10**400], 2) == [
        "returned 1e+39, more than float32 holds",
        "returned a number that is too large",
    ]
    assert verdicts(np.array([[1.0]]), 1) == [{"unfit": "returned '[1.0]' (list)"}]
