"""Importance correction in the loop: the gradient is the weighted one, by hand, and a run logs what it corrected."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import tiny_lm
import torch
from ranks import dealt, on_ranks
from runs import run_of

from anygrpo.metrics.catalogue import describe
from anygrpo.train import parallel
from anygrpo.train.batches import minibatches, own_part, prepare, weigh
from anygrpo.train.collect import begin, whole_of
from anygrpo.train.folder import read_rows
from anygrpo.train.importance import corrected
from anygrpo.train.log_probs import with_reference
from anygrpo.train.loop import train

NAMES = {"mismatch/ratio_mean", "mismatch/ratio_max", "mismatch/ess", "mismatch/log_prob", "mismatch/truncated"}


def mismatched(rollout, shift):
    """As an engine would report it whose log-probs are off by `shift` [T] at each decision."""
    return replace(rollout, log_probs=rollout.log_probs - shift)


def ready(folder, shift, *flags):
    run = run_of(folder, "--policy.arguments", "{picks = 2}", *flags)
    planned, numbers = run.enter(0)
    rollout = mismatched(begin(run, planned, 0, run.clock)(), shift)
    prepared = prepare(rollout, planned.stage, numbers, None)
    own, metrics = corrected(run.policy, prepared, planned.stage, 16) if run.policy.corrects else (prepared, {})
    batch = weigh(own, planned.stage)
    run.updater.accumulate(batch, planned.stage, numbers, 16, measure=False)
    gradient = torch.cat([p.grad.flatten() for p in run.updater.parameters])
    run.close()
    return gradient, metrics, batch


def test_equal_ratios_scale_the_gradient_and_the_cap_holds(tmp_path):
    free, nothing, _ = ready(tmp_path / "free", torch.zeros(2))
    assert nothing == {}
    on = ["--algorithm.importance", "truncate"]
    one, metrics, _ = ready(tmp_path / "one", torch.zeros(2), *on)
    torch.testing.assert_close(one, free, rtol=1e-5, atol=1e-8)
    assert metrics["mismatch/ess"] == pytest.approx(1)
    assert metrics["kl/rollout"] == pytest.approx(0, abs=1e-9)
    more, metrics, _ = ready(tmp_path / "more", torch.full((2,), math.log(1.5)), *on)
    torch.testing.assert_close(more, 1.5 * free, rtol=1e-5, atol=1e-8)
    assert metrics["mismatch/ratio_mean"] == pytest.approx(1.5, rel=1e-5)
    assert metrics["mismatch/truncated"] == 0
    capped, metrics, _ = ready(tmp_path / "capped", torch.full((2,), math.log(5.0)), *on)
    torch.testing.assert_close(capped, 2.0 * free, rtol=1e-5, atol=1e-8)
    assert metrics["mismatch/truncated"] == 1
    assert metrics["kl/rollout"] == pytest.approx(5 - 1 - math.log(5), rel=1e-5)
    gone, _, _ = ready(tmp_path / "gone", torch.full((2,), math.log(5.0)), "--algorithm.importance", "mask")
    assert gone.abs().max() == 0


def test_a_sequence_has_one_factor(tmp_path):
    flags = ["--algorithm.importance", "truncate", "--algorithm.importance-level", "sequence"]
    shift = torch.tensor([math.log(3.0), math.log(0.5)])
    _, _, batch = ready(tmp_path / "a", shift, *flags)
    live = batch.mask.any(-1)
    torch.testing.assert_close(batch.importance[live], torch.full_like(batch.importance[live], 1.5))
    assert (batch.importance[~live] == 0).all()


def test_ratios_are_to_the_old_policy_and_entropy_is_not_weighted(tmp_path):
    shift = torch.full((2,), math.log(1.9))
    flags = ["--algorithm.lambda-pg", "0.0", "--algorithm.entropy-coef", "0.1"]
    plain, _, _ = ready(tmp_path / "a", shift, *flags)
    weighted, _, batch = ready(tmp_path / "b", shift, *flags, "--algorithm.importance", "truncate")
    torch.testing.assert_close(weighted, plain)
    assert batch.importance.max() == pytest.approx(1.9, rel=1e-5)


def test_the_sampled_kl_is_weighted(tmp_path):
    flags = ["--algorithm.lambda-pg", "0.0", "--algorithm.beta", "1.0", "--algorithm.importance"]
    a, _, _ = ready_moved(tmp_path / "a", torch.zeros(2), *flags, "truncate")
    b, _, _ = ready_moved(tmp_path / "b", torch.full((2,), math.log(1.5)), *flags, "truncate")
    assert a.abs().max() > 0
    torch.testing.assert_close(b, 1.5 * a, rtol=1e-4, atol=1e-7)


def ready_moved(folder, shift, *flags):
    run = run_of(folder, "--policy.arguments", "{picks = 2}", *flags)
    planned, numbers = run.enter(0)
    with torch.no_grad():
        run.policy.net.bias += torch.arange(5) / 5
    rollout = mismatched(begin(run, planned, 0, run.clock)(), shift)
    own, metrics = corrected(run.policy, prepare(rollout, planned.stage, numbers, None), planned.stage, 16)
    batch = with_reference(run.policy, weigh(own, planned.stage), 16)
    run.updater.accumulate(batch, planned.stage, numbers, 16, measure=False)
    run.close()
    return torch.cat([p.grad.flatten() for p in run.updater.parameters]), metrics, batch


def test_a_whole_run_logs_what_it_corrected(tmp_path):
    flags = ["--algorithm.importance", "truncate", "--algorithm.minibatches", "2", "--training.steps", "20"]
    run = run_of(tmp_path / "run", *flags, "--optimizer.learning-rate", "0.05")
    run.evaluate_start()
    train(run)
    run.close()
    rows = read_rows(run.folder.metrics)[0]
    assert rows[1].keys() >= NAMES | {"kl/rollout"}
    assert rows[1]["mismatch/ratio_max"] == pytest.approx(1, abs=1e-5)
    assert all(describe(name) for name in NAMES | {"kl/rollout", "staleness"})
    assert rows[-1]["eval/reward"] > rows[0]["eval/reward"] + 0.15


def test_a_policy_of_one_trained_tensor(tmp_path):
    """Nothing looks for a second one: not the reference's log-probs, nor the old policy's."""
    flags = ["--policy.arguments", "{picks = 2, bias = false}", "--algorithm.importance", "truncate"]
    _, _, batch = ready(tmp_path / "one", torch.zeros(2), *flags)
    run = run_of(tmp_path / "run", *flags, "--algorithm.beta", "0.1", "--training.steps", "2")
    assert len(run.policy.parameters()) == 1
    ref = with_reference(run.policy, batch, 16).ref
    torch.testing.assert_close(ref, batch.old)  # the reference is the start
    train(run)
    run.close()
    rows = read_rows(run.folder.metrics)[0]
    assert len(rows) == 2
    assert rows[1].keys() >= NAMES | {"kl/reference"}


def two_ranks(folder):
    run = run_of(folder / f"r{torch.distributed.is_initialized()}", "--algorithm.importance", "truncate")
    planned, numbers = run.enter(0)
    size, parallel.dist.get_world_size = parallel.dist.get_world_size, lambda: 1
    every = begin(run, planned, 0, run.clock)()  # as a single process would draw it
    parallel.dist.get_world_size = size
    spread = torch.linspace(-1, 1, every.log_probs.numel()).view_as(every.log_probs)
    rollout = dealt(mismatched(every, spread))
    whole, first = whole_of(rollout)
    prepared = prepare(whole, planned.stage, numbers, None)
    own, metrics = corrected(run.policy, own_part(prepared, rollout, first), planned.stage, 5)
    batch = weigh(next(iter(minibatches(own, planned.stage, 3))), planned.stage)
    run.updater.accumulate(batch, planned.stage, numbers, 5, measure=False)
    run.close()
    return metrics, torch.cat([p.grad.flatten() for p in run.updater.parameters]).tolist()


@pytest.mark.cpu
def test_ranks_correct_and_report_as_one(tmp_path):
    ((metrics, gradient),) = on_ranks(1, two_ranks, tmp_path)
    assert 0 < metrics["mismatch/truncated"] < 1
    for other, other_gradient in on_ranks(2, two_ranks, tmp_path):
        assert other == pytest.approx(metrics, rel=1e-5)
        torch.testing.assert_close(torch.tensor(other_gradient), torch.tensor(gradient), rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("importance", ["none", "truncate"])
def test_a_language_models_engine_is_corrected_or_scored_again(tmp_path, importance):
    """An engine whose log-probs are .1 too low: its own numbers stay where the loop corrects, and only there."""
    run = run_of(
        tmp_path / "run",
        policy={"kind": "python", "function": f"{tiny_lm.__file__}:policy"},
        task={"kind": "python", "function": f"{tiny_lm.__file__}:Even"},
        algorithm={"prompts_per_step": 3, "group_size": 4, "advantage": "overall", "importance": importance},
        training={"steps": 2},
        evaluation={"at_start": False},
    )
    generate = run.policy.engine.generate

    def off(*arguments):
        made = generate(*arguments)
        return replace(made, log_probs=made.log_probs - 0.1)

    run.policy.engine.generate = off
    train(run)
    run.close()
    for row in read_rows(run.folder.metrics)[0]:
        assert row["ratio/max"] == pytest.approx(1, abs=1e-5)
        if importance == "truncate":
            assert row["mismatch/log_prob"] == pytest.approx(0.1, rel=1e-3)
            assert row["mismatch/ratio_mean"] == pytest.approx(math.exp(0.1), rel=1e-3)
        else:
            assert "mismatch/log_prob" not in row
