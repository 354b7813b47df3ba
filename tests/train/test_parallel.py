"""Several ranks train as one: same loss, gradients, metrics and decisions for the same rows, however they are dealt."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from ranks import dealt, on_ranks
from runs import run_of

from anygrpo.train import distributed, parallel
from anygrpo.train.batches import minibatches, needed_rows, own_part, prepare, weigh
from anygrpo.train.build import resumed_run
from anygrpo.train.collect import begin, whole_of
from anygrpo.train.folder import read_rows
from anygrpo.train.log_probs import with_reference
from anygrpo.train.loop import remaining_steps, train

pytestmark = pytest.mark.cpu

WHOLE_BATCH = ["batch", "whitened", "overall", "gdpo", "gpg", "running"]


def ragged(rollout):
    """Rows of different lengths, and some invalid samples."""
    generator = torch.Generator().manual_seed(5)
    p, g, t = rollout.shape
    mask = torch.arange(t) < torch.randint(1, t + 1, (p, g, 1), generator=generator)
    valid = torch.rand(p, g, generator=generator) > 0.15
    rewards = torch.where(valid, rollout.rewards + 0.3 * torch.rand(p, g, generator=generator), 0.0)
    parts = {"hit": rewards, "other": 1 - rewards**2}
    return replace(rollout, mask=mask, valid=valid, rewards=rewards, components=parts, limit=t)


def gradients(folder, *flags):
    """Gradients and tallies of all updates of a step, without taking them; the same samples for any number of ranks."""
    run = run_of(folder / f"run{parallel.world_size()}", *flags, "--policy.arguments", "{picks = 3}")
    planned, numbers = run.enter(0)
    every = ragged(alone(lambda: begin(run, planned, 0, run.clock)()))
    rollout = dealt(every)
    whole, first = whole_of(rollout)
    prepared = prepare(whole, planned.stage, numbers, None)
    out = []
    for part in minibatches(own_part(prepared, rollout, first), planned.stage, 3):
        batch = needed_rows(weigh(part, planned.stage), numbers, planned.stage)
        batch = with_reference(run.policy, batch, 16)
        tally = run.updater.accumulate(batch, planned.stage, numbers, 5, measure=True)
        sums = {name: float(v) for name, v in {**tally.sums, **tally.maxima}.items()}
        out.append((torch.cat([p.grad.flatten() for p in run.updater.parameters]).tolist(), sums))
    run.close()
    return out


def alone(function, *arguments):
    """As a single process would do it."""
    size = parallel.dist.get_world_size
    parallel.dist.get_world_size = lambda: 1
    try:
        return function(*arguments)
    finally:
        parallel.dist.get_world_size = size


def check_equal(tmp_path, ranks, *flags):
    one = gradients(tmp_path, *flags)
    for answer in on_ranks(ranks, gradients, tmp_path, *flags):
        assert len(answer) == len(one)
        for (gradient, sums), (expected, expected_sums) in zip(answer, one):
            torch.testing.assert_close(torch.tensor(gradient), torch.tensor(expected), rtol=2e-5, atol=1e-7)
            assert sums == pytest.approx(expected_sums, rel=1e-5, abs=1e-5)  # log-ratios: sums of rounding


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean", "prompt_mean", "constant"])
def test_gradients_of_uneven_rows_equal_one_process(tmp_path, ranks, reduction):
    flags = ["--algorithm.prompts-per-step", "7", "--algorithm.beta", "0.1", "--algorithm.reduction", reduction]
    check_equal(tmp_path, ranks, *flags, "--algorithm.minibatches", "3", "--algorithm.entropy-coef", "0.01")


@pytest.mark.parametrize("advantage", WHOLE_BATCH)
def test_advantages_that_need_the_whole_step_get_it(tmp_path, advantage):
    check_equal(tmp_path, 2, "--algorithm.prompts-per-step", "5", "--algorithm.advantage", advantage)


def test_a_rank_without_prompts_takes_part(tmp_path):
    check_equal(tmp_path, 4, "--algorithm.prompts-per-step", "3")


STAGES = [
    {"name": "warm", "method": "supervised", "steps": 2},
    {"name": "rce", "method": "rce", "steps": 2},
    {
        "name": "offline",
        "source": "stored",
        "steps": 4,
        "algorithm": {"beta": 0.05, "minibatches": 2, "epochs": 2, "advantage": "running", "target_kl": 0.02},
        "optimizer": {"learning_rate": 0.2, "eps": 0.01},  # Adam would blow rounding up to whole steps
    },
]
VOLATILE = ("time/", "throughput/", "memory/")


def whole_run(folder):
    run = run_of(folder, stages=STAGES, evaluation={"every": 3, "pass_k": 2}, algorithm={"prompts_per_step": 5})
    run.evaluate_start()
    train(run)
    run.close()
    return {name: p.tolist() for name, p in run.policy.net.named_parameters()}, run.version, run.best


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_whole_run_equals_one_process(tmp_path, ranks):
    (weights, version, best), *_ = on_ranks(1, whole_run, tmp_path / "one")
    many = on_ranks(ranks, whole_run, tmp_path / "many")
    assert [(v, b) for _, v, b in many] == [(version, pytest.approx(best))] * ranks
    assert version < 4 + 4 * 4  # target_kl ended some inner updates, on all ranks alike
    for other, _, _ in many:
        for name, value in weights.items():
            torch.testing.assert_close(torch.tensor(other[name]), torch.tensor(value), rtol=1e-4, atol=1e-6)
    one, rows = read_rows(tmp_path / "one" / "metrics.jsonl")[0], read_rows(tmp_path / "many" / "metrics.jsonl")[0]
    assert len(one) == len(rows) == 9
    for a, b in zip(one, rows):
        sampled = "eval/pass_at_2"  # drawn with each rank's own seed
        steady = {k: v for k, v in a.items() if not k.startswith(VOLATILE) and k not in ("stage", sampled)}
        assert {k: b[k] for k in steady} == pytest.approx(steady, rel=1e-3, abs=1e-5)
        assert a.keys() == b.keys()


def sampled_run(folder, prompts):
    run = run_of(folder, "--training.steps", "4", algorithm={"prompts_per_step": prompts, "group_size": 8, "refill": 1})
    train(run)
    run.close()
    return {name: p.tolist() for name, p in run.policy.net.named_parameters()}, run.samples_seen


def test_ranks_sample_apart_and_stay_equal(tmp_path):
    first, second = on_ranks(2, sampled_run, tmp_path / "run", 5)
    assert first == second
    shown = read_rows(tmp_path / "run" / "samples" / "step_00000000.jsonl")[0]
    assert 1 <= len(shown) <= 3  # rank 0's share alone


def test_an_empty_rank_does_not_hang(tmp_path):
    answers = on_ranks(3, sampled_run, tmp_path / "run", 2)
    assert answers[0] == answers[1] == answers[2]


def refused(folder):
    run = run_of(folder)
    before = run.policy.net.weight.detach().clone()
    planned, numbers = run.enter(0)
    rollout = begin(run, planned, 0, run.clock)()
    whole, first = whole_of(rollout)
    part = own_part(prepare(whole, planned.stage, numbers, None), rollout, first)
    if parallel.rank() == 1:
        run.policy.net.weight.register_hook(lambda g: g * float("nan"))
    run.updater.accumulate(weigh(part, planned.stage), planned.stage, numbers, 64, measure=False)
    run.apply(run.updater.step(0.1, measure=False))
    run.close()
    return run.updater.refused, run.version, bool((run.policy.net.weight == before).all())


def test_a_broken_gradient_on_one_rank_is_refused_by_all(tmp_path):
    assert on_ranks(2, refused, tmp_path / "run") == [(1, 0, True)] * 2


def stopped_on_one_rank(folder):
    run = run_of(folder, "--training.steps", "50")
    run.observers.append(lambda row, run: None)
    for step in remaining_steps(run):
        if step == 3 and parallel.rank() == 1:
            run.stop("asked on rank 1")
    run.close()
    return run.step


def test_a_stop_asked_of_one_rank_stops_all_after_the_same_step(tmp_path):
    assert on_ranks(2, stopped_on_one_rank, tmp_path / "run") == [4, 4]


def went_on(folder):
    run = resumed_run(folder, ["--training.steps", "6"])
    start = run.step
    train(run)
    run.close()
    return start, {name: p.tolist() for name, p in run.policy.net.named_parameters()}


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_a_checkpoint_resumes_on_another_number_of_ranks(tmp_path, before, after):
    on_ranks(before, sampled_run, tmp_path / "run", 5)
    answers = on_ranks(after, went_on, tmp_path / "run")
    assert [start for start, _ in answers] == [4] * after
    assert all(weights == answers[0][1] for _, weights in answers)
    steps = [row["step"] for row in read_rows(tmp_path / "run" / "metrics.jsonl")[0]]
    assert steps == list(range(6))


def test_shares_are_consecutive_and_complete():
    def shares(size):
        return alone_as(size)

    def alone_as(size):
        keep = parallel.world_size, parallel.rank
        parts = []
        try:
            for r in range(size):
                parallel.world_size, parallel.rank = lambda: size, lambda r=r: r
                parts.append(parallel.share(list(range(7))))
        finally:
            parallel.world_size, parallel.rank = keep
        return parts

    assert shares(1) == [list(range(7))]
    assert shares(3) == [[0, 1, 2], [3, 4], [5, 6]]
    assert shares(9)[7:] == [[], []]


def test_weights_from_rank_0_count_as_a_change(monkeypatch):
    """Casts of weights are made again by torch's count of changes, which a collective on `.data` does not move."""
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    monkeypatch.setattr(distributed.dist, "broadcast", lambda tensor, src: tensor.fill_(2.0))
    layer = torch.nn.Linear(2, 2)
    layer.bias.requires_grad_(False)
    before, kept = layer.weight._version, layer.bias.clone()
    distributed.same_weights(layer)
    assert (layer.weight == 2.0).all()
    assert layer.weight._version > before
    assert torch.equal(layer.bias, kept)
