"""Rewards beside sampling give what rewards in turn give, and really are beside it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from runs import run_of

from anygrpo.errors import ConfigError
from anygrpo.train.collect import begin
from anygrpo.train.loop import train


class Slow:
    """`score` in a thread that takes as long as it is told; every event is noted in order."""

    def __init__(self, task):
        self.task, self.events, self.gates = task, [], []
        self.threads = ThreadPoolExecutor(4)

    def score_async(self, prompts, outputs):
        number, gate = len(self.gates), threading.Event()
        self.gates.append(gate)
        self.events.append(f"score {number} begins")

        def work():
            gate.wait(20)
            self.events.append(f"score {number} ends")
            scores = self.task.score(prompts, outputs)
            scores.rewards[0, 0] = float("nan")
            return scores

        return self.threads.submit(work)


def slow_run(folder, *flags):
    run = run_of(folder, "--training.sample-chunk", "2", *flags)  # 8 prompts: 4 chunks
    task = run.stages[0].task
    slow, sample = Slow(task), run.policy.sample

    def noted(prompts, group_size, seed):
        slow.events.append(f"sample {len(slow.gates)}")
        for gate in slow.gates[: len(slow.gates) - 1]:  # a reward takes as long as the next chunk's sampling
            gate.set()
        return sample(prompts, group_size, seed)

    run.policy.sample = noted
    task.score_async = slow.score_async
    return run, slow


def test_the_next_chunk_is_sampled_while_rewards_are_made(tmp_path):
    run, slow = slow_run(tmp_path / "run")
    planned, _ = run.enter(0)
    threading.Timer(0.2, lambda: [gate.set() for gate in slow.gates]).start()
    begin(run, planned, 0, run.clock)()
    order = {event: i for i, event in enumerate(slow.events)}
    for chunk in range(3):
        assert order[f"score {chunk} begins"] < order[f"sample {chunk + 1}"] < order[f"score {chunk} ends"]
    run.close()


def plain(run):
    """The same faults by the plain `score`."""
    task = run.stages[0].task
    score = task.score

    def faulty(prompts, outputs):
        scores = score(prompts, outputs)
        scores.rewards[0, 0] = float("nan")
        return scores

    task.score = faulty
    return run


def test_the_results_are_those_of_rewards_in_turn(tmp_path):
    run, slow = slow_run(tmp_path / "beside")
    planned, _ = run.enter(0)
    threading.Timer(0.05, lambda: [gate.set() for gate in reversed(slow.gates)]).start()
    beside = begin(run, planned, 0, run.clock)()
    run.close()
    flags = ["--training.sample-chunk", "2", "--training.overlap-rewards", "false"]
    run = plain(run_of(tmp_path / "turn", *flags))
    turn = begin(run, run.enter(0)[0], 0, run.clock)()
    run.close()
    for name in ("rewards", "valid", "log_probs", "mask", "ended", "version"):
        assert torch.equal(getattr(beside, name), getattr(turn, name)), name
    assert torch.equal(beside.samples["arms"], turn.samples["arms"])
    assert torch.equal(beside.components["hit"].nan_to_num(7), turn.components["hit"].nan_to_num(7))
    assert beside.reasons == turn.reasons
    assert set(beside.reasons) == {(p, 0) for p in (0, 2, 4, 6)}
    assert set(beside.reasons.values()) == {"reward is not finite"}


def test_chunks_draw_with_seeds_of_their_own_and_one_chunk_is_the_whole(tmp_path):
    drawn = {}
    for size in (None, 8, 4):
        flags = [] if size is None else ["--training.sample-chunk", str(size)]
        run = run_of(tmp_path / str(size), *flags)
        rollout = begin(run, run.enter(0)[0], 0, run.clock)()
        drawn[size] = rollout.samples["arms"]
        run.close()
    assert torch.equal(drawn[None], drawn[8])
    assert torch.equal(drawn[None][:4], drawn[4][:4])
    assert not torch.equal(drawn[None][4:], drawn[4][4:])


def test_a_reward_that_raises_beside_ends_the_run_with_its_own_message(tmp_path):
    run = run_of(tmp_path / "run", "--training.sample-chunk", "4")

    def broken(prompts, outputs):
        raise RuntimeError("the judge is gone")

    run.stages[0].task.score_async = lambda *a: ThreadPoolExecutor(1).submit(broken, *a)
    with pytest.raises(RuntimeError, match="the judge is gone"):
        train(run)
    run.close()


def test_everything_but_samples_is_on_the_host(tmp_path):
    run = run_of(tmp_path / "run")
    planned, _ = run.enter(0)
    rollout = begin(run, planned, 0, run.clock)()
    meta = {name: getattr(rollout, name).device.type for name in ("log_probs", "mask", "rewards", "valid", "ended")}
    assert set(meta.values()) == {"cpu"}
    run.close()


class Reads(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts numbers that Python reads from tensors: on a GPU each of them waits for the device."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function is torch.ops.aten._local_scalar_dense.default
        return function(*args, **(kwargs or {}))


def test_an_update_reads_one_number(tmp_path):
    from anygrpo.train.batches import prepare, weigh

    flags = ["--algorithm.beta", "0.1", "--algorithm.kl", "exact", "--algorithm.entropy-coef", "0.01"]
    run = run_of(tmp_path / "run", *flags)
    planned, numbers = run.enter(0)
    batch = weigh(prepare(begin(run, planned, 0, run.clock)(), planned.stage, numbers, None), planned.stage)
    run.updater.optimizer.step = lambda: None  # on a CPU torch's own step reads its counters
    with Reads() as reads:
        run.updater.accumulate(batch, planned.stage, numbers, 16, measure=False)
        run.updater.step(0.1, measure=False)
    assert reads.count == 1  # the gradient's norm, which decides whether the step is taken
    run.close()


def test_a_policy_that_gives_nothing_to_learn_from_is_named(tmp_path):
    run = run_of(tmp_path)
    type(run.policy).judged, held = (lambda self, prompts, rollout: None), type(run.policy).judged
    try:
        with pytest.raises(ConfigError, match=rf"{type(run.policy).__name__}\.judged returned a NoneType"):
            train(run)
    finally:
        type(run.policy).judged = held
        run.close()


class Lazy:
    """Prompts that are made as they are asked for, by number alone."""

    def __init__(self, made):
        self.made = made

    def __len__(self):
        return len(self.made)

    def __getitem__(self, place: int):
        return self.made[place.__index__()]


@pytest.mark.parametrize("form", [tuple, Lazy])
def test_prompts_may_be_any_sequence(tmp_path, form):
    def weights(name, form):
        run = run_of(tmp_path / name, "--training.steps", "3")
        task = run.stages[0].task
        prompts = task.prompts
        task.prompts = lambda step, count: form(prompts(step, count)) if step < 10 else prompts(step, count)
        train(run)
        run.close()
        return run.policy.net.weight.detach().clone()

    assert torch.equal(weights("as it is", form), weights("list", list))


def test_data_may_end_in_a_smaller_step_but_not_in_none(tmp_path):
    run = run_of(tmp_path / "run", "--training.steps", "3")
    task = run.stages[0].task
    prompts = task.prompts
    task.prompts = lambda step, count: prompts(step, count)[: {1: 3, 2: 0}.get(step)]
    with pytest.raises(ConfigError, match=r"BestArm\.prompts returned a list of 0.*\n.*8 prompts \(fewer at the end"):
        train(run)
    run.close()
    assert run.samples_seen == (8 + 3) * 8
