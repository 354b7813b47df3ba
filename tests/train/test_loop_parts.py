"""The loop's rhythm: saves, stops, rolls back; the reference and the early stop."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from runs import run_of
from stages import numbers_of, stage_of
from toys import Bandit, BestArm

from anygrpo.core.task import Stored
from anygrpo.errors import Interrupted
from anygrpo.train import importance, loop, snapshot
from anygrpo.train.batches import prepare
from anygrpo.train.demonstrations import check_demonstrations, with_demonstrations
from anygrpo.train.interrupt import INTERRUPTED
from anygrpo.train.loop import moved_too_far, needs_reference, remaining_steps, train
from anygrpo.train.stages import PlannedStage
from anygrpo.train.terms import Tally


@pytest.fixture
def run(tmp_path):
    made = run_of(tmp_path / "run", training={"steps": 7, "checkpoint_every": 3, "keep_checkpoints": 9})
    yield made
    made.close()


@pytest.fixture
def saved(monkeypatch):
    seen = []
    real = snapshot.save

    def save(run, *, best=False, step=None, prune=True):
        seen.append((run.step if step is None else step, best))
        real(run, best=best, step=step, prune=prune)

    monkeypatch.setattr(snapshot, "save", save)
    return seen


# --- steps


def test_saves_on_the_recipes_rhythm_and_at_the_end(run, saved):
    for step in remaining_steps(run):
        run.enter(step)
    assert saved == [(3, False), (6, False), (7, False)]
    assert list(remaining_steps(run)) == []
    assert saved[-1] == (7, False)


def test_a_new_best_is_saved_after_its_row(run, saved):
    for step in remaining_steps(run):
        run.enter(step)
        if step in (1, 4):
            run.best_step = step
    assert saved == [(2, True), (3, False), (5, True), (6, False), (7, False)]


def test_nothing_to_take_saves_what_is_there_once(run, saved):
    run.step = run.total_steps
    assert list(remaining_steps(run)) == []
    assert saved == [(7, False)]
    assert list(remaining_steps(run)) == []  # that checkpoint has more
    assert saved == [(7, False)]


def test_a_stop_ends_after_its_step(run, saved):
    taken = []
    for step in remaining_steps(run):
        run.enter(step)
        taken.append(step)
        if step == 1:
            run.stop("enough")
    assert taken == [0, 1]
    assert saved == [(2, False)]
    assert run.step == 2


def test_an_interrupt_is_told_with_the_step_it_came_to(run, saved):
    def take():
        for step in remaining_steps(run):
            run.enter(step)
            run.stop(INTERRUPTED)

    with pytest.raises(Interrupted, match="after step 1") as caught:
        take()
    assert str(run.folder.path) in caught.value.cure
    assert saved == [(1, False)]


def test_what_was_asked_before_takes_no_step(run, saved):
    run.stop("enough")
    assert list(remaining_steps(run)) == []
    assert saved == [(0, False)]


def test_going_back_gives_the_steps_again(run, saved):
    taken, back = [], []
    for step in remaining_steps(run):
        run.enter(step)
        taken.append(step)
        if step == 4 and not back:
            back.append(True)
            run.roll_back_to(run.folder.checkpoints / "step_00000003")
    assert taken == [0, 1, 2, 3, 4, 3, 4, 5, 6]
    assert run.back_to is None
    assert saved == [(3, False), (3, False), (6, False), (7, False)]  # going back is saved at once


# --- one step


def test_a_step_counts_its_updates_and_keeps_its_memory(tmp_path):
    run = run_of(
        tmp_path / "run", training={"steps": 1}, algorithm={"epochs": 2, "minibatches": 2, "advantage": "running"}
    )
    rows = []
    run.observers.append(lambda row, _: rows.append(row))
    train(run)
    assert run.version == 4
    assert run.memory is not None
    assert rows[0]["loss/policy"] != 0
    assert rows[0]["grad_norm/policy"] > 0
    assert rows[0]["update/relative_norm"] > 0
    run.close()


@pytest.mark.parametrize("weight", [0.0, 0.3])
def test_what_a_step_asks_for(tmp_path, monkeypatch, weight):
    """Its batch is settled, minibatches have a seed of their own, and demonstrations come where they are learnt."""
    run = run_of(tmp_path / "run", training={"steps": 2}, algorithm={"minibatches": 2, "lambda_supervised": weight})
    seen = {"seeds": [], "settled": [], "taught": 0}
    cut, teach, settle = loop.minibatches, loop.with_demonstrations, run.settle

    def taught(*given):
        seen["taught"] += 1
        return teach(*given)

    monkeypatch.setattr(
        loop, "minibatches", lambda own, stage, seed: seen["seeds"].append(seed) or cut(own, stage, seed)
    )
    monkeypatch.setattr(loop, "with_demonstrations", taught)
    run.settle = lambda batch: seen["settled"].append(len(batch)) or settle(batch)
    train(run)
    run.close()
    assert seen["seeds"] == [run.seed(step, salt=1) for step in (0, 1)]
    assert len(seen["settled"]) == run.version == 4
    assert seen["taught"] == (2 if weight else 0)


def test_term_norms_only_on_their_rhythm(tmp_path):
    run = run_of(tmp_path / "run", training={"steps": 3, "gradient_norms_every": 2})
    rows = []
    run.observers.append(lambda row, _: rows.append(row))
    train(run)
    assert ["grad_norm/policy" in row for row in rows] == [True, False, True]
    run.close()


@pytest.mark.parametrize(("target", "updates"), [(None, 8), (1e-9, 1), (1e9, 8)])
def test_an_early_stop_leaves_the_weights_of_the_last_update(tmp_path, target, updates):
    more = {} if target is None else {"target_kl": target}
    run = run_of(tmp_path / "run", training={"steps": 1}, algorithm={"epochs": 8, **more})
    train(run)
    assert run.version == updates
    assert all(p.grad is None for p in run.policy.parameters())
    run.close()


def test_the_memory_that_advantages_begin_from_is_the_last_steps(tmp_path):
    run = run_of(tmp_path / "run", training={"steps": 2}, algorithm={"advantage": "running"})
    seen = []
    run.observers.append(lambda row, who: seen.append((who.memory_before, who.memory)))
    train(run)
    assert seen[0][0] is None
    assert seen[1][0] is seen[0][1]
    run.close()


@pytest.mark.parametrize(
    ("settings", "needs"),
    [
        ({}, False),
        ({"beta": 0.1}, True),
        ({"beta": 0.1, "kl": "exact"}, False),
        ({"beta": 0.1, "method": "rce"}, False),
    ],
)
def test_when_the_reference_is_scored(settings, needs):
    stage = stage_of(**settings)
    assert needs_reference(stage, numbers_of(stage)) is needs


def tally(total, count):
    made = Tally()
    made.add("kl/behaviour/sum", torch.tensor(total))
    made.add("count", torch.tensor(count))
    return made


def test_further_than_the_target_is_too_far():
    assert moved_too_far(tally(4.0, 8.0), 0.4)
    assert not moved_too_far(tally(4.0, 8.0), 0.5)  # as far as allowed
    assert not moved_too_far(tally(4.0, 8.0), None)
    assert not moved_too_far(Tally(), 0.1)
    assert moved_too_far(tally(0.5, 0.0), 0.4)  # nothing counted: no division by 0
    assert not moved_too_far(tally(0.5, 0.0), 0.6)


# --- importance correction


def test_old_log_probs_are_those_of_the_present_weights():
    policy = Bandit(0, picks=2)
    prompts = [{"x": torch.eye(5)[i]} for i in range(3)]
    rollout = policy.sample(prompts, 2, 0)
    valid = torch.tensor([[True, True], [True, False], [False, False]])
    rewards = torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 1.0]])
    shifted = replace(rollout, rewards=rewards, valid=valid, log_probs=rollout.log_probs - 0.5)
    stage = stage_of(importance="truncate", importance_cap=1.25)
    own = prepare(shifted, stage, numbers_of(stage), None)
    made, said = importance.corrected(policy, own, stage, 2)
    live = own.mask
    torch.testing.assert_close(made.old[live], rollout.log_probs[live])
    assert torch.equal(made.old[~live], shifted.log_probs[~live])
    torch.testing.assert_close(made.importance[live], torch.full_like(made.importance[live], 1.25))
    assert said["mismatch/ratio_mean"] == pytest.approx(2.718281828**0.5, rel=1e-5)
    assert said["mismatch/truncated"] == 1.0
    free = stage_of(importance="truncate", importance_cap=9.0, importance_level="sequence")
    made, _ = importance.corrected(policy, own, free, 2)
    torch.testing.assert_close(made.importance[live], torch.full_like(made.importance[live], 2.718281828))


# --- demonstrations


def test_demonstrations_of_the_steps_prompts(run):
    stage = stage_of(lambda_supervised=0.25, prompts_per_step=3)
    planned = PlannedStage(stage, run.stages[0].task, 2, 7)
    run.enter(4)
    run.step, asked, seeds = 4, [], []
    prompts, replay = planned.task.prompts, run.policy.replay
    planned.task.prompts = lambda index, count: asked.append((index, count)) or prompts(index, count)
    run.policy.replay = lambda p, s, seed: seeds.append((len(p), seed, torch.is_grad_enabled())) or replay(p, s, seed)
    numbers, made = with_demonstrations(run, planned, numbers_of(stage))
    assert asked == [(2, 3)]
    assert seeds == [(3, run.seed(4, salt=2), False)]
    assert numbers.lambda_supervised == 0.0
    assert made is not None
    assert made.weight == 0.25
    assert len(made.batch) == 3  # the best of two answers each
    assert made.batch.advantages[:, 0].tolist() == [1.0] * 3
    best = [int(p["x"].argmax()) for p in prompts(2, 3)]
    assert made.batch.samples["arms"][:, 0].tolist() == best
    assert float(made.batch.weights.sum()) == pytest.approx(1.0)
    none = stage_of(lambda_supervised=0.0)
    assert with_demonstrations(run, planned, numbers_of(none)) == (numbers_of(none), None)


def test_demonstrations_of_a_step_that_refills_are_of_its_first_draw(run):
    stage = stage_of(lambda_supervised=0.25, prompts_per_step=3, refill=2)
    planned = PlannedStage(stage, run.stages[0].task, 0, 7)
    run.enter(1)
    run.step, run.first_draws, asked = 1, {0: 0, 1: 5}, []
    prompts = planned.task.prompts
    planned.task.prompts = lambda index, count: asked.append(index) or prompts(index, count)
    with_demonstrations(run, planned, numbers_of(stage))
    assert asked == [5]


def test_tasks_are_asked_for_answers_where_a_later_stage_needs_them():
    class Asked(BestArm):
        def __init__(self):
            super().__init__(0)
            self.asked = []

        def stored(self, prompts):
            self.asked.append(len(prompts))
            return Stored([[]])

    def asked(steps=3, targets=False, **settings):
        task, policy = Asked(), SimpleNamespace(targets_in_samples=targets)
        check_demonstrations(policy, [PlannedStage(stage_of(**{"prompts_per_step": 4} | settings), task, 0, steps)])
        return task.asked

    assert asked(lambda_supervised=0.1) == [4]
    assert asked(lambda_supervised={"kind": "linear", "start": 0.0, "end": 0.1}) == [4]
    assert asked() == []
    assert asked(lambda_supervised=0.1, steps=0) == []
    assert asked(lambda_supervised=0.1, targets=True) == []
    assert asked(lambda_supervised=0.1, method="supervised") == []
