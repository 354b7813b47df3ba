"""Filters are neutral or say so; limits, controllers, schedules and seeds mean what they say."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from runs import run_of
from toys import Bandit

from anygrpo.core.rollout import Rollout
from anygrpo.errors import ConfigError
from anygrpo.recipe.algorithm import AlgorithmConfig
from anygrpo.recipe.recipe import Stage
from anygrpo.recipe.training import OptimizerConfig
from anygrpo.train.batches import minibatches, needed_rows, penalised, prepare, weigh
from anygrpo.train.collect import begin
from anygrpo.train.evaluation import held_out_seed
from anygrpo.train.folder import read_rows
from anygrpo.train.log_probs import with_reference
from anygrpo.train.loop import needs_reference, train
from anygrpo.train.stages import numbers_at

REDUCTIONS = ["token_mean", "sequence_mean", "prompt_mean", "constant"]


def stage_of(**algorithm):
    return Stage("s", "grpo", "policy", 10, None, AlgorithmConfig(**algorithm), OptimizerConfig(), None)


def weighed(rollout, **algorithm):
    stage = stage_of(**algorithm)
    return weigh(prepare(rollout, stage, numbers_at(stage, 0, 10), None), stage)


def gradient(folder, *flags, **extra):
    """(gradient of the first update, batch)."""
    run = run_of(folder, *flags, **extra)
    planned, numbers = run.enter(0)
    prepared = prepare(begin(run, planned, 0, run.clock)(), planned.stage, numbers, None)
    batch = needed_rows(weigh(prepared, planned.stage), numbers, planned.stage)
    if needs_reference(planned.stage, numbers):
        batch = with_reference(run.policy, batch, 16)
    run.updater.accumulate(batch, planned.stage, numbers, 16, measure=False)
    run.close()
    given = [torch.zeros_like(p) if p.grad is None else p.grad for p in run.updater.parameters]
    return torch.cat([g.flatten() for g in given]), batch


# --- drop_constant


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_the_weight_of_a_live_group_does_not_follow_how_many_are_dead(reduction):
    """By hand: 16 rows of 10 decisions, of which one group of four has spread."""
    rewards = torch.tensor([[1.0] * 4] * 3 + [[0.0, 1, 0, 1]])
    rollout = Rollout.of({}, torch.zeros(4, 4, 10), torch.ones(4, 4, 10, dtype=torch.bool), rewards=rewards)
    batch = weighed(rollout, reduction=reduction)
    assert float(batch.weights[-1].max()) == pytest.approx(1 / 160)
    assert torch.equal(batch.weights, weighed(rollout, reduction=reduction, filters=()).weights)


@pytest.mark.parametrize(
    "more",
    [
        ["--algorithm.advantage", "batch"],
        ["--algorithm.advantage", "overall"],
        ["--algorithm.advantage", "running"],
        ["--algorithm.advantage", "history"],
        ["--algorithm.advantage", "whitened", "--algorithm.reduction", "prompt_mean"],
        ["--algorithm.beta", "0.1", "--algorithm.entropy-coef", "0.5", "--algorithm.reduction", "sequence_mean"],
        ["--algorithm.kl", "exact", "--algorithm.beta", "0.1", "--algorithm.reduction", "constant"],
    ],
    ids=lambda flags: flags[1],
)
def test_drop_constant_changes_no_update(tmp_path, more):
    with_it, _ = gradient(tmp_path / "a", *more)
    without, _ = gradient(tmp_path / "b", *more, "--algorithm.filters", "[]")
    torch.testing.assert_close(with_it, without, rtol=1e-6, atol=1e-9)
    assert with_it.abs().max() > 0


def test_it_skips_the_rows_whose_gradient_is_zero(tmp_path):
    _, batch = gradient(tmp_path / "a")
    assert 0 < len(batch) < 64
    assert bool((batch.advantages != 0).all())


@pytest.mark.parametrize("flags", [["--algorithm.entropy-coef", "1.0"], ["--algorithm.beta", "0.5"]])
def test_terms_that_need_no_reward_act_on_groups_without_spread(tmp_path, flags):
    task = {"kind": "python", "function": f"{toys_path()}:BestArm", "arguments": {"broken": "constant"}}
    _, batch = gradient(tmp_path / "a", *flags, task=task)
    assert len(batch) == 64
    nothing, empty = gradient(tmp_path / "b", task=task)
    assert len(empty) == 0
    assert nothing.abs().max() == 0


def test_an_entropy_bonus_is_that_of_all_rows(tmp_path):
    """Its gradient by hand: -coef x the mean over all 64 rows of the policy's entropy."""
    task = {"kind": "python", "function": f"{toys_path()}:BestArm", "arguments": {"broken": "constant"}}
    got, batch = gradient(tmp_path / "a", "--algorithm.entropy-coef", "0.7", task=task)
    policy = Bandit(0)
    entropy = policy.evaluate(batch.samples, slice(None), frozenset({"entropy"})).entropy
    (-0.7 * entropy.mean()).backward()
    torch.testing.assert_close(got, torch.cat([p.grad.flatten() for p in policy.parameters()]), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_other_filters_leave_every_denominator(reduction):
    rewards = torch.tensor([[1.0] * 4] * 3 + [[0.0, 1, 0, 1]])
    rollout = Rollout.of({}, torch.zeros(4, 4, 10), torch.ones(4, 4, 10, dtype=torch.bool), rewards=rewards)
    kept = weighed(rollout, reduction=reduction, filters=({"kind": "minimum_spread", "spread": 0.5},))
    assert float(kept.weights[-1].max()) == pytest.approx(1 / 40)
    assert float(kept.weights[:12].max()) == 0


# --- groups of one


@pytest.mark.parametrize("advantage", ["overall", "running", "history"])
def test_a_group_of_one_learns_where_the_baseline_is_not_the_groups(tmp_path, advantage):
    got, batch = gradient(tmp_path / "a", "--algorithm.group-size", "1", "--algorithm.advantage", advantage)
    assert len(batch) == 8
    assert got.abs().max() > 0


@pytest.mark.parametrize("advantage", ["zscore", "centred", "batch", "whitened", "gdpo", "rank"])
def test_a_group_of_one_is_refused_where_it_is(tmp_path, advantage):
    with pytest.raises(ConfigError, match=f'group_size = 1 has no baseline with advantage = "{advantage}"'):
        run_of(tmp_path, "--algorithm.group-size", "1", "--algorithm.advantage", advantage)


# --- limits


def ragged(limit, longest=20):
    lengths = torch.tensor([[5, 10, 15, longest], [8, 9, 10, 11]])
    mask = torch.arange(longest) < lengths[..., None]
    rewards = torch.tensor([[0.0, 1, 0, 1], [0, 1, 0, 1]])
    return Rollout.of({}, torch.zeros(2, 4, longest), mask, rewards=rewards, limit=limit)


def test_a_constant_reduction_divides_by_the_policys_limit():
    for longest in (20, 200):
        batch = weighed(ragged(256, longest), reduction="constant")
        assert float(batch.weights.max()) == pytest.approx(1 / (8 * 256))
    assert float(weighed(ragged(256), reduction="constant", horizon=10).weights.max()) == pytest.approx(1 / 80)
    fixed = replace(ragged(None), mask=torch.ones(2, 4, 20, dtype=torch.bool))  # every sample has all T: T is the limit
    assert float(weighed(fixed, reduction="constant").weights.max()) == pytest.approx(1 / 160)


def test_without_a_limit_the_longest_sample_does_not_stand_for_it():
    with pytest.raises(ConfigError, match="the limit of the policy's rollouts"):
        weighed(ragged(None), reduction="constant")
    with pytest.raises(ConfigError, match="does not say how long a sample may become"):
        weighed(ragged(None), overlong_buffer=4)


def test_an_overlong_buffer_is_measured_from_the_limit():
    """Limit 24, buffer 8: of the lengths 5, 10, 15, 20 the last alone is penalised, by (20 - 16) / 8."""
    stage = stage_of(overlong_buffer=8)
    assert penalised(ragged(24), stage).rewards.tolist() == [[0, 1, 0, 0.5], [0, 1, 0, 1]]
    assert penalised(ragged(256), stage).rewards.tolist() == [[0, 1, 0, 1], [0, 1, 0, 1]]


@pytest.mark.parametrize("flag", ["advantage components", "advantage gdpo", "advantage maxrl", "credit parts"])
def test_an_overlong_buffer_that_cannot_act_is_refused(tmp_path, flag):
    key, value = flag.split()
    with pytest.raises(ConfigError, match=f'{key} = "{value}" .* the penalty cannot act'):
        run_of(tmp_path, "--algorithm.overlong-buffer", "2", f"--algorithm.{key}", value)


def test_rollouts_keep_their_limit():
    one, two = ragged(24), ragged(30)
    assert one.groups(torch.tensor([True, False])).limit == 24
    assert one.joined(two).limit == 30
    assert one.joined(ragged(None)).limit is None
    assert one.on_host().limit == 24


# --- controllers and schedules


def test_a_proportional_controller_works_at_any_step_size(tmp_path):
    flags = ["--algorithm.kl-controller", "proportional", "--algorithm.beta", "0.05", "--training.steps", "6"]
    run = run_of(tmp_path / "a", *flags, "--algorithm.prompts-per-step", "128")  # 1024 samples a step
    train(run)
    run.close()
    betas = [row["beta"] for row in read_rows(run.folder.metrics)[0]]
    assert betas[1] == pytest.approx(0.05 * (1 - 0.2 * 1024 / 10_000))  # Ziegler's horizon counts samples
    assert betas[-1] > 0.04


@pytest.mark.parametrize("controller", ["proportional", "band"])
def test_a_controller_begins_above_zero(tmp_path, controller):
    run = run_of(tmp_path, "--algorithm.kl-controller", controller, "--algorithm.beta", "0.0")
    assert run.enter(0)[1].beta == 1e-6
    train(run)
    run.close()
    assert all("kl/reference" in row for row in read_rows(run.folder.metrics)[0] if row["step"] >= 0)


def test_a_rate_that_falls_to_zero_wastes_no_step(tmp_path):
    flags = ["--optimizer.learning-rate", "{kind = 'linear', start = 0.1}", "--algorithm.filters", "[]"]
    run = run_of(tmp_path, *flags, "--training.steps", "5", "--algorithm.entropy-coef", "0.1")
    train(run)
    run.close()
    rows = [row for row in read_rows(run.folder.metrics)[0] if row["step"] >= 0]
    assert [row["lr"] for row in rows] == pytest.approx([0.1, 0.08, 0.06, 0.04, 0.02])
    assert all(row["update/relative_norm"] > 0 for row in rows if "update/relative_norm" in row)


# --- settings that are now reachable


def test_the_taus_act(tmp_path):
    """On policy the gate's gradient is that of r A; off it the taus decide. Two updates, by rate 0.5 between them."""
    flags = ["--algorithm.objective", "sapo", "--algorithm.epochs", "2", "--training.steps", "1"]
    flags += ["--optimizer.learning-rate", "0.5"]
    ends = {}
    for tau in ("1.0", "5.0"):
        run = run_of(tmp_path / tau, *flags, "--algorithm.tau-negative", tau)
        train(run)
        run.close()
        ends[tau] = run.policy.net.weight.detach().clone()
    assert (ends["1.0"] - ends["5.0"]).abs().max() > 1e-3


def test_a_dual_clip_is_counted(tmp_path):
    flags = ["--algorithm.epochs", "8", "--optimizer.learning-rate", "0.5", "--training.steps", "3"]
    run = run_of(tmp_path / "a", *flags, "--algorithm.dual-clip", "1.01", "--algorithm.clip-low", "0.9")
    train(run)
    run.close()
    shares = [row["clip/dual"] for row in read_rows(run.folder.metrics)[0] if row["step"] >= 0]
    assert max(shares) > 0
    assert max(shares) <= 1


def test_the_ratio_guard_is_reachable(tmp_path):
    flags = ["--algorithm.epochs", "4", "--optimizer.learning-rate", "0.5", "--training.steps", "2"]
    run = run_of(tmp_path / "a", *flags, "--algorithm.ratio-guard", "0.01")
    train(run)
    run.close()
    assert read_rows(run.folder.metrics)[0][-1]["guarded"] > 0


# --- seeds


def test_evaluation_never_shares_a_seed_with_training(tmp_path):
    run = run_of(tmp_path, "--training.steps", "3", "--evaluation.every", "1", "--evaluation.pass-k", "4")
    seen: dict[str, list[int]] = {"train": [], "held out": []}
    sample = run.policy.sample

    def noted(prompts, group_size, seed):
        seen["held out" if group_size == 4 else "train"].append(seed)
        return sample(prompts, group_size, seed)

    run.policy.sample = noted
    run.evaluate_start()
    train(run)
    run.close()
    held_out = seen["held out"][len(seen["held out"]) // 4 :]  # row -1 and step 0 ask with the same seeds
    assert len(set(held_out)) == len(held_out) == 3 * 4
    assert min(seen["held out"]) >= 2**31 > max(seen["train"])  # seeds of training are below, whatever the step


def test_seeds_of_held_out_chunks_differ_between_steps_and_chunks():
    seeds = {held_out_seed(7 + 101 * step, chunk) for step in range(50) for chunk in range(200)}
    assert len(seeds) == 50 * 200
    assert all(2**31 <= seed < 2**32 for seed in seeds)


def test_sample_chunks_have_seeds_of_their_own(tmp_path):
    run = run_of(tmp_path, "--training.sample-chunk", "2", "--training.steps", "4")
    seeds = []
    sample = run.policy.sample
    run.policy.sample = lambda prompts, size, seed: seeds.append(seed) or sample(prompts, size, seed)
    train(run)
    run.close()
    assert len(seeds) == len(set(seeds)) == 4 * 4


def test_every_pass_is_shuffled_anew_and_steps_differ(tmp_path):
    run = run_of(tmp_path / "a", "--algorithm.minibatches", "4", "--algorithm.epochs", "3")
    planned, numbers = run.enter(0)
    prepared = prepare(begin(run, planned, 0, run.clock)(), planned.stage, numbers, None)

    def order(step):
        parts = minibatches(prepared, planned.stage, run.seed(step, 1))
        return [tuple(part.advantages.flatten().tolist()) for part in parts]

    first = order(0)
    passes = [first[i : i + 4] for i in (0, 4, 8)]
    assert all(a != b for a, b in itertools.combinations(passes, 2))
    assert order(1) != first == order(0)
    run.close()


def toys_path():
    import toys

    return toys.__file__
