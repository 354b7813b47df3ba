"""The loop on a real, tiny policy: it learns, and every invariant of the record holds."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from runs import TOYS, run_of

from anygrpo.core.policy import Policy
from anygrpo.errors import ConfigError, TrainingError
from anygrpo.train import measure
from anygrpo.train.batches import minibatches, needed_rows, prepare, weigh
from anygrpo.train.collect import begin
from anygrpo.train.folder import read_rows
from anygrpo.train.loop import train


def rows_of(run):
    return read_rows(run.folder.metrics)[0]


def learn(tmp_path, *flags, **extra):
    run = run_of(tmp_path / "run", *flags, **extra)
    run.evaluate_start()
    train(run)
    run.close()
    return run, rows_of(run)


def test_it_learns(tmp_path):
    _, rows = learn(tmp_path, "--training.steps", "60", "--optimizer.learning-rate", "0.05")
    assert rows[0]["step"] == -1
    assert rows[0]["eval/reward"] < 0.45
    assert rows[-1]["eval/reward"] > 0.75


def test_a_flipped_sign_unlearns(tmp_path):
    task = {"kind": "python", "function": f"{TOYS}:BestArm", "arguments": {"sign": -1}}
    _, rows = learn(tmp_path, "--training.steps", "40", "--optimizer.learning-rate", "0.05", task=task)
    assert rows[-1]["reward/component/hit"] < 0.1


@pytest.mark.parametrize("objective", ["ppo", "gspo", "cispo", "sapo", "reinforce"])
def test_every_objective_learns(tmp_path, objective):
    flags = ["--algorithm.objective", objective, "--training.steps", "40", "--optimizer.learning-rate", "0.05"]
    _, rows = learn(tmp_path, *flags, "--algorithm.minibatches", "2")
    assert rows[-1]["eval/reward"] > rows[0]["eval/reward"] + 0.25


@pytest.mark.parametrize("method", ["supervised", "rce"])
def test_stages_that_train_on_stored_actions_learn(tmp_path, method):
    stages = [{"name": method, "method": method, "steps": 40}]
    flags = ["--optimizer.learning-rate", "0.05", "--algorithm.rce-temperature", "0.2"]
    _, rows = learn(tmp_path, *flags, stages=stages)
    assert rows[-1]["eval/reward"] > 0.8
    assert rows[-1]["stage"] == method


def test_offline_grpo_on_stored_candidates_learns(tmp_path):
    stages = [{"name": "offline", "method": "grpo", "source": "stored", "steps": 40}]
    _, rows = learn(tmp_path, "--optimizer.learning-rate", "0.05", stages=stages)
    assert rows[-1]["eval/reward"] > rows[0]["eval/reward"] + 0.25


@pytest.mark.parametrize("kl", ["k1", "k2", "k3", "exact"])
def test_a_heavy_kl_holds_the_policy_at_its_reference(tmp_path, kl):
    flags = ["--algorithm.kl", kl, "--algorithm.beta", "20", "--algorithm.minibatches", "2", "--training.steps", "30"]
    run, _ = learn(tmp_path, *flags)
    moved = (run.policy.net.weight - run.policy._start["weight"]).norm()
    (tmp_path / "free").mkdir()
    free, _ = learn(tmp_path / "free", "--algorithm.minibatches", "2", "--training.steps", "30")
    assert moved < 0.5 * (free.policy.net.weight - free.policy._start["weight"]).norm()


def test_ratio_is_one_before_the_first_update(tmp_path):
    _, rows = learn(tmp_path, "--training.steps", "1")
    assert rows[1]["ratio/max"] == pytest.approx(1, abs=1e-6)
    assert rows[1]["log_ratio/abs_max"] < 1e-6
    assert rows[1]["clip/low"] == rows[1]["clip/high"] == 0


def test_the_reference_is_scored_once_a_step_whatever_epochs_follow(tmp_path, monkeypatch):
    from anygrpo.train import loop
    from anygrpo.train.log_probs import referenced, with_reference

    seen = []

    def noted(policy, prepared, rows):
        made = referenced(policy, prepared, rows)
        batch = with_reference(policy, weigh(prepared, planned[0]), rows)
        seen.append((made.ref.flatten(0, 1), torch.where(batch.mask.any(-1)[:, None], batch.ref, 0.0)))
        return made

    planned = []
    prepare_whole = loop.prepare
    note = lambda rollout, stage, *given: planned.append(stage) or prepare_whole(rollout, stage, *given)  # noqa: E731
    monkeypatch.setattr(loop, "prepare", note)
    monkeypatch.setattr(loop, "referenced", noted)
    flags = ["--algorithm.beta", "0.1", "--algorithm.epochs", "3", "--algorithm.minibatches", "2"]
    run, _ = learn(tmp_path, *flags, "--training.steps", "2")
    assert run.version == 2 * 3 * 2
    assert len(seen) == 2
    for once, by_batch in seen:
        torch.testing.assert_close(once, by_batch.to(once))
        assert once.abs().sum() > 0


def gradients(run, rows_per_block):
    planned, numbers = run.enter(0)
    rollout = begin(run, planned, 0, run.clock)()
    prepared = prepare(rollout, planned.stage, numbers, None)
    batch = needed_rows(weigh(prepared, planned.stage), numbers, planned.stage)
    run.updater.accumulate(batch, planned.stage, numbers, rows_per_block, measure=False)
    return torch.cat([p.grad.flatten() for p in run.updater.parameters])


@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean", "prompt_mean", "constant"])
def test_any_split_into_blocks_gives_the_same_gradient(tmp_path, reduction):
    flags = [
        "--algorithm.reduction",
        reduction,
        "--algorithm.entropy-coef",
        "0.01",
        "--policy.arguments",
        "{picks = 3}",
    ]
    whole = gradients(run_of(tmp_path / "a", *flags), 64)
    for rows in (1, 7, 33):
        torch.testing.assert_close(gradients(run_of(tmp_path / str(rows), *flags), rows), whole, rtol=1e-5, atol=1e-8)


def test_rows_without_advantage_are_dropped_exactly(tmp_path):
    run = run_of(tmp_path / "a")
    planned, numbers = run.enter(0)
    prepared = prepare(begin(run, planned, 0, run.clock)(), planned.stage, numbers, None)
    batch = weigh(prepared, planned.stage)
    few = needed_rows(batch, numbers, planned.stage)
    assert 0 < len(few) < len(batch)
    got = []
    for b in (batch, few):
        run.updater.accumulate(b, planned.stage, numbers, 64, measure=False)
        got.append(torch.cat([p.grad.flatten() for p in run.updater.parameters]).clone())
    torch.testing.assert_close(got[0], got[1], rtol=1e-6, atol=1e-9)


def test_minibatches_hold_each_group_once_a_pass(tmp_path):
    run = run_of(tmp_path / "a", "--algorithm.minibatches", "3", "--algorithm.epochs", "2")
    planned, numbers = run.enter(0)
    prepared = prepare(begin(run, planned, 0, run.clock)(), planned.stage, numbers, None)
    parts = list(minibatches(prepared, planned.stage, seed=1))
    assert len(parts) == 6
    for one_pass in (parts[:3], parts[3:]):
        seen = torch.cat([p.rollout.samples["x"][:, 0] for p in one_pass])
        assert sorted(seen[:, 0].tolist()) == sorted(prepared.rollout.samples["x"][:, 0, 0].tolist())


def test_target_kl_stops_the_inner_updates(tmp_path):
    flags = ["--algorithm.epochs", "10", "--optimizer.learning-rate", "0.5", "--training.steps", "1"]
    free, _ = learn(tmp_path, *flags)
    (tmp_path / "b").mkdir()
    held, _ = learn(tmp_path / "b", *flags, "--algorithm.target-kl", "0.01")
    assert free.version == 10
    assert 1 <= held.version < 10


def test_constant_rewards_take_no_step(tmp_path):
    from runs import TOYS

    task = {"kind": "python", "function": f"{TOYS}:BestArm", "arguments": {"broken": "constant"}}
    run, rows = learn(tmp_path, "--training.steps", "3", task=task)
    assert run.version == 0
    assert rows[-1]["groups/live"] == 0
    torch.testing.assert_close(run.policy.net.weight, run.policy._start["weight"], rtol=0, atol=0)


def test_an_invalid_reward_leaves_its_group_and_is_counted(tmp_path):
    from runs import TOYS

    task = {"kind": "python", "function": f"{TOYS}:BestArm", "arguments": {"broken": "nan"}}
    run, rows = learn(tmp_path, "--training.steps", "3", task=task)
    assert rows[1]["invalid/share"] == pytest.approx(1 / 64)
    assert rows[1]["invalid/reward is not finite"] == pytest.approx(1 / 64)
    assert math.isfinite(rows[-1]["loss/total"])
    assert run.version == 3


def test_rewards_that_all_fail_leave_the_trainer_running(tmp_path, capfd):
    task = {"kind": "python", "function": f"{TOYS}:BestArm", "arguments": {"broken": "every"}}
    flags = ["--evaluation.every", "1", "--evaluation.pass-k", "2", "--evaluation.patience", "2"]
    run, rows = learn(tmp_path, *flags, "--training.steps", "3", task=task)
    assert rows[-1]["step"] == 2
    assert rows[-1]["invalid/share"] == 1
    assert rows[-1]["eval/invalid"] == 1
    assert rows[-1]["eval/pass_at_2"] == 0
    assert run.version == 0
    assert capfd.readouterr().err.count("reward is not finite") == 1


def test_a_gradient_that_is_not_finite_is_refused(tmp_path):
    run = run_of(tmp_path / "run", "--training.steps", "1")
    before = run.policy.net.weight.detach().clone()
    planned, numbers = run.enter(0)
    prepared = prepare(begin(run, planned, 0, run.clock)(), planned.stage, numbers, None)
    batch = weigh(prepared, planned.stage)
    run.updater.accumulate(batch, planned.stage, numbers, 64, measure=False)
    run.policy.net.weight.grad[0, 0] = float("nan")
    row = run.updater.step(0.1, measure=False)
    run.apply(row)
    assert run.updater.refused == 1
    assert run.version == 0
    torch.testing.assert_close(run.policy.net.weight, before, rtol=0, atol=0)


def test_endless_refusals_end_the_run(tmp_path):
    run = run_of(tmp_path / "run")
    run.enter(0)
    nothing = {"grad_norm/total": float("nan")}
    for _ in range(19):
        run.apply(nothing)
    with pytest.raises(TrainingError, match="not finite"):
        run.apply(nothing)


def test_out_of_memory_halves_the_block_and_keeps_the_gradient(tmp_path):
    plain = gradients(run_of(tmp_path / "a"), 64)
    run = run_of(tmp_path / "b")
    true_evaluate, sizes = run.policy.evaluate, []

    def small_memory(samples, times, want=frozenset()):
        sizes.append(len(samples["arms"]))
        if len(samples["arms"]) > 10:
            raise torch.OutOfMemoryError("too many rows")
        return true_evaluate(samples, times, want)

    run.policy.evaluate = small_memory
    torch.testing.assert_close(gradients(run, 64), plain, rtol=1e-5, atol=1e-8)
    assert max(sizes) > 10 >= sizes[-1]


def test_refill_replaces_groups_without_spread(tmp_path):
    run = run_of(tmp_path / "a", "--algorithm.refill", "6", "--algorithm.group-size", "3")
    planned, _ = run.enter(0)
    rollout = begin(run, planned, 0, run.clock)()
    assert rollout.shape[0] == 8
    assert bool(rollout.live_groups().all())


def test_refill_sees_the_rewards_that_the_step_trains_on(tmp_path):
    """The overlong penalty takes groups below the share that the filter asks for: they are replaced too."""
    walker = TOYS.with_name("walker.py")
    band = "[{kind = 'pass_rate_band', low = 0.5, threshold = 0.2}]"
    run = run_of(
        tmp_path / "a", "--algorithm.refill", "9", "--algorithm.overlong-buffer", "5", "--algorithm.filters", band,
        policy={"kind": "python", "function": f"{walker}:policy"}, task={"kind": "python", "function": f"{walker}:Walk"}
    )  # fmt: skip
    planned, numbers = run.enter(0)
    rollout = begin(run, planned, 0, run.clock)()
    prepared = prepare(rollout, planned.stage, numbers, None)
    assert int(prepared.mask.any(-1).any(1).sum()) == rollout.shape[0]
    run.close()


def test_refill_that_cannot_fill_goes_on_with_fewer(tmp_path):
    from runs import TOYS

    task = {"kind": "python", "function": f"{TOYS}:BestArm", "arguments": {"broken": "constant"}}
    _, rows = learn(tmp_path, "--algorithm.refill", "2", "--training.steps", "2", task=task)
    assert len(rows) == 4 - 1


def test_terms_gradient_norms_are_measured_apart(tmp_path):
    flags = ["--algorithm.beta", "0.1", "--algorithm.entropy-coef", "0.01", "--algorithm.minibatches", "2"]
    _, rows = learn(tmp_path, *flags, "--training.steps", "11")
    measured = rows[11]
    assert {"grad_norm/policy", "grad_norm/kl", "grad_norm/entropy", "update/relative_norm"} <= measured.keys()
    assert "grad_norm/kl" not in rows[5]


def test_a_lone_terms_gradient_norm_is_the_whole_gradients(tmp_path):
    _, rows = learn(tmp_path, "--training.steps", "2", "--training.gradient-norms-every", "2")
    assert rows[1]["grad_norm/policy"] == pytest.approx(rows[1]["grad_norm/total"])
    assert "grad_norm/policy" not in rows[2]
    _, rows = learn(tmp_path / "taught", stages=[{"name": "a", "method": "supervised", "steps": 1}])
    assert rows[1]["grad_norm/policy"] == pytest.approx(rows[1]["grad_norm/total"])


@pytest.mark.parametrize("later", [False, True])
def test_a_term_the_policy_cannot_compute_is_refused_before_the_first_step(tmp_path, later):
    beside = {"lambda_consistency": {"kind": "linear", "start": 0.0, "end": 1.0}}
    stages = [{"name": "a", "steps": 1}] * later + [{"name": "b", "steps": 1, "algorithm": beside}]
    with pytest.raises(ConfigError, match="consistency"):
        run_of(tmp_path / "run", stages=stages)


def test_a_policy_without_trainable_weights_is_refused_before_anything_is_sampled(tmp_path):
    with pytest.raises(ConfigError, match="no trainable weights"):
        run_of(tmp_path / "run", policy={"kind": "python", "function": f"{TOYS}:frozen_policy"})


EVERY_STEP = """loss/policy loss/total grad_norm/total update/relative_norm reward/mean reward/max reward/std
reward/component/hit reward/std_within reward/std_between groups/live groups/live_after/drop_constant advantage/mean
advantage/std advantage/abs_max ratio/mean ratio/max log_ratio/mean log_ratio/abs_max clip/low clip/high kl/behaviour
entropy length/mean length/max truncated/share invalid/share steps_refused time/sample time/score time/update time/step
throughput/decisions_per_s memory/peak_gb lr beta"""


def test_what_a_person_watches_is_in_every_row(tmp_path):
    _, rows = learn(tmp_path, "--training.steps", "3")
    for row in rows[1:]:
        assert set(EVERY_STEP.split()) - row.keys() == set()


def test_the_entropy_that_is_logged_without_an_entropy_term_is_the_exact_one_in_expectation(tmp_path):
    _, rows = learn(tmp_path, "--training.steps", "4", "--algorithm.group-size", "256")
    _, exact = learn(tmp_path / "b", "--training.steps", "4", "--algorithm.group-size", "256",
                     "--algorithm.entropy-coef", "1e-12")  # fmt: skip
    for a, b in zip(rows[1:], exact[1:]):
        assert a["entropy"] == pytest.approx(b["entropy"], abs=0.05)
        assert a["entropy"] != b["entropy"]


def test_a_metric_that_is_never_measured_cannot_decide_what_is_best(tmp_path):
    run = run_of(tmp_path / "run", evaluation={"metric": "eval/rewrd"})
    with pytest.raises(ConfigError, match="did you mean 'eval/reward'"):
        run.evaluate_start()
    run.close()
    with pytest.raises(ConfigError, match="did you mean 'eval/reward'"):
        learn(tmp_path / "late", evaluation={"metric": "eval/rewrd", "at_start": False})


def test_patience_without_held_out_prompts_is_refused(tmp_path):
    task = {"kind": "python", "function": f"{TOYS}:NothingHeldOut"}
    with pytest.raises(ConfigError, match="patience = 2"):
        run_of(tmp_path / "run", task=task, evaluation={"patience": 2})
    run_of(tmp_path / "other", task=task).close()


def test_patience_stops_and_the_best_checkpoint_stays(tmp_path):
    flags = ["--evaluation.every", "1", "--evaluation.patience", "3", "--optimizer.learning-rate", "0.0"]
    run, rows = learn(tmp_path, *flags, "--training.steps", "50")
    assert rows[-1]["step"] == 3
    assert (run.folder.checkpoints / "best" / "policy.safetensors").is_file()


@pytest.mark.parametrize(("smaller", "stopped"), [("false", 2), ("true", 4)])
def test_the_best_is_the_smallest_value_where_that_is_said(tmp_path, smaller, stopped, monkeypatch):
    values = iter([3.0, 2.0, 1.0, 0.5, 0.7, 0.6])  # of the start, then of each step
    monkeypatch.setattr("anygrpo.train.run.evaluate", lambda *given, **named: {"eval/reward": next(values)})
    flags = ["--evaluation.every", "1", "--evaluation.patience", "2", "--evaluation.smaller-is-better", smaller]
    _, rows = learn(tmp_path, *flags, "--training.steps", "50")
    assert rows[-1]["step"] == stopped


def test_the_second_stage_keeps_the_policy_it_found_as_reference(tmp_path):
    stages = [
        {"name": "warm", "method": "supervised", "steps": 10},
        {"name": "rl", "method": "grpo", "steps": 2, "algorithm": {"beta": 0.1}},
    ]
    _, rows = learn(tmp_path, stages=stages)
    first = next(r for r in rows if r["stage"] == "rl")
    assert first["kl/reference"] == pytest.approx(0, abs=1e-6)


def test_a_schedule_can_stand_for_any_number(tmp_path):
    flags = [
        "--optimizer.learning-rate", "{kind = 'cosine', start = 0.1, end = 0.0, warmup = 2}",
        "--algorithm.beta", "{kind = 'linear', start = 0.0, end = 0.9}",
        "--algorithm.temperature", "{kind = 'exponential', start = 2.0, end = 0.5}",
    ]  # fmt: skip
    run, rows = learn(tmp_path, *flags)
    assert [round(r["lr"], 4) for r in rows[1:3]] == [0.05, 0.1]
    assert rows[-1]["lr"] == pytest.approx(0.05 * (1 + math.cos(8 * math.pi / 9)))  # a step above 0
    assert rows[1]["beta"] == 0
    assert rows[-1]["beta"] == pytest.approx(0.9)
    assert run.policy.temperature == pytest.approx(0.5)


def test_parts_that_cancel_in_the_sum_still_teach(tmp_path):
    run = run_of(tmp_path / "run", "--algorithm.advantage", "components")
    planned, numbers = run.enter(0)
    rollout = begin(run, planned, 0, run.clock)()
    hit = rollout.components["hit"]
    rollout = replace(rollout, rewards=torch.ones_like(hit), components={"hit": hit, "miss": 1 - hit})
    weighted = planned.stage.algorithm.model_copy(update={"component_weights": {"hit": 2.0}})
    stage = replace(planned.stage, algorithm=weighted)
    prepared = prepare(rollout, stage, numbers, None)
    assert bool((prepared.advantages != 0).any())
    assert bool(prepared.mask.any())


def test_rewards_of_stored_actions_are_not_logged_as_the_policys(tmp_path):
    stages = [{"name": "rce", "method": "rce", "steps": 2}, {"name": "rl", "method": "grpo", "steps": 1}]
    _, rows = learn(tmp_path, stages=stages)
    assert "reward/mean" not in rows[1]
    assert rows[1]["stored/reward/mean"] == 0.5
    assert "reward/mean" in rows[3]


def test_groups_of_demonstrations_without_rewards_are_neither_live_nor_dead(tmp_path):
    row = {"reward/std": 0.0, "reward/mean": 0.0, "groups/live": 0.0, "groups/all_best": 1.0, "length/mean": 3.0}
    assert measure.of_stored_actions(row) == {"stored/reward/std": 0.0, "stored/reward/mean": 0.0, "length/mean": 3.0}
    ranked = measure.of_stored_actions(row | {"reward/std": 0.5, "groups/live": 1.0})
    assert ranked["groups/live"] == 1.0
    row |= {"reward/std": 0.5, "reward/std_within": 0.0, "reward/std_between": 0.5}
    row["offline/value"] = 0.3  # of one demonstration a prompt: its own reward, whatever the policy
    imitated = measure.of_stored_actions(row, imitated=True)
    assert "reward/mean" not in imitated
    assert not any(name.startswith(("groups/", "reward/std_")) for name in imitated)


def test_only_stages_that_compare_samples_log_advantages(tmp_path):
    stages = [{"name": "sft", "method": "supervised", "steps": 1}, {"name": "rl", "method": "grpo", "steps": 1}]
    run, rows = learn(tmp_path, stages=stages)
    assert not any(name.startswith("advantage/") for name in rows[1])
    assert rows[2]["advantage/abs_max"] > 0
    assert rows[2]["groups/size"] == run.recipe.algorithm.group_size


def test_losses_and_norms_of_terms_are_means_over_the_updates_of_a_step(tmp_path):
    rows = {}
    for epochs in (1, 3):
        flags = ["--algorithm.epochs", str(epochs), "--algorithm.entropy-coef", "0.1", "--training.steps", "1"]
        _, rows[epochs] = learn(tmp_path / str(epochs), *flags, "--optimizer.learning-rate", "0.0")
    for name in ("loss/total", "grad_norm/policy", "grad_norm/entropy"):
        assert rows[3][1][name] == pytest.approx(rows[1][1][name], rel=1e-5)


def test_evaluation_follows_epochs_of_each_stage(tmp_path):
    """20 prompts, 8 a step: an epoch is 2.5 steps, counted from the start of its stage."""
    task = {"kind": "python", "function": f"{TOYS}:BestArm", "arguments": {"size": 20}}
    stages = [{"name": "sft", "method": "supervised", "epochs": 2}, {"name": "rl", "epochs": 2.4}]
    _, rows = learn(tmp_path, "--evaluation.every-epochs", "1", task=task, stages=stages)
    assert [r["step"] for r in rows if "eval/reward" in r] == [-1, 2, 4, 7, 9, 10]
    with pytest.raises(ConfigError, match="task of stage 'grpo' is endless"):
        run_of(tmp_path / "endless", "--evaluation.every-epochs", "1")
    with pytest.raises(ConfigError, match="every = 2 and every_epochs = 1"):
        run_of(tmp_path / "both", "--evaluation.every-epochs", "1", "--evaluation.every", "2")


def test_of_a_conversation_the_question_is_shown():
    turns = [{"role": "assistant", "content": "46"}, {"role": "user", "content": "What is 3 + 4?"}]
    shown = Policy.show(None, [{"prompt": turns, "answer": "7"}, "plain"], [["7"], ["x"]])
    assert [row["prompt"] for row in shown] == ["What is 3 + 4?", "plain"]
