"""Where a step's rollout comes from, piece by piece: which prompts, which seed, which weights, what is joined."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from runs import run_of
from toys import BestArm

from anygrpo.core.rollout import Rollout
from anygrpo.train import collect
from anygrpo.train.collect import Collector, begin, begin_once, joined_info, whole_of


@pytest.fixture
def made(tmp_path):
    runs = []

    def make(*flags, **extra):
        run = run_of(tmp_path / f"run{len(runs)}", *flags, **extra)
        runs.append(run)
        run.drawn, run.asked, run.phases = [], [], []
        sample, prompts = run.policy.sample, run.stages[0].task.prompts
        run.policy.sample = lambda some, n, seed: run.drawn.append((len(some), n, seed)) or sample(some, n, seed)
        for planned in run.stages:
            planned.task.prompts = lambda index, count: run.asked.append((index, count)) or prompts(index, count)
        return run

    yield make
    for run in runs:
        run.close()


def sampled(run, step=0):
    run.enter(step)
    return begin(run, run.stages[run.stage_index(step)], step, run.clock)()


# --- one draw


def test_a_steps_prompts_and_seed(made):
    run = made(algorithm={"prompts_per_step": 3, "group_size": 4})
    run.version = 9
    rollout = sampled(run, 2)
    assert run.asked == [(2, 3)]
    assert run.drawn == [(3, 4, run.seed(2, salt=10))]
    assert rollout.version.unique().tolist() == [9]
    assert rollout.shape == (3, 4, 1)
    assert rollout.prompt_id.tolist() == [0, 0, 0]
    assert set(run._seconds) == {"sample", "score"}


def test_prompts_count_from_the_stages_first_step(made):
    run = made(stages=[{"name": "a", "steps": 2}, {"name": "b", "steps": 3}])
    sampled(run, 3)
    assert run.asked == [(1, 8)]


def test_a_rank_without_prompts_draws_one_and_keeps_no_group(made, monkeypatch):
    run = made(algorithm={"prompts_per_step": 3, "group_size": 4})
    monkeypatch.setattr(collect, "share", lambda every: every[:0])
    rollout = sampled(run)
    assert run.drawn == [(1, 4, run.seed(0, salt=10))]
    assert rollout.shape == (0, 4, 1)
    assert rollout.rewards.shape == (0, 4)


def test_chunks_of_prompts_in_turn(made):
    run = made(algorithm={"prompts_per_step": 5, "group_size": 2}, training={"sample_chunk": 2})
    shown = []
    run.show = lambda *given: shown.append(given)
    rollout = sampled(run)
    seed, step = run.seed(0, salt=10), 32_452_843
    assert run.drawn == [(n, 2, (seed + i * step) % (2**31 - 1)) for i, n in enumerate((2, 2, 1))]
    ((number, _, rows),) = shown
    assert number == 0
    outputs = run.policy.decode(rollout.samples)
    assert [row["outputs"] for row in rows(9)] == [[str(o) for o in row] for row in outputs]
    assert [row["rewards"] for row in rows(2)] == rollout.rewards[:2].tolist()
    big = 2**31 - 10
    prompts = BestArm.prompts(run.stages[0].task, 0, 5)
    chunks = list(collect._sampled(run, run.stages[0], prompts, big, run.clock))
    assert run.drawn[-2:] == [(2, 2, (big + step) % (2**31 - 1)), (1, 2, (big + 2 * step) % (2**31 - 1))]
    assert [c.by for c in chunks] == ["BestArm"] * 3


def test_samples_have_no_gradient(made):
    run = made()
    run.policy.sample = lambda some, n, seed: (
        pytest.fail("gradients are on") if torch.is_grad_enabled() else plain(some, n, seed)
    )
    plain = type(run.policy).sample.__get__(run.policy)
    sampled(run)


def test_scores_that_come_later_are_asked_for_where_the_recipe_lets_them(made):
    class Later(SimpleNamespace):
        def result(self):
            return self.scores

    for overlap, expected in ((True, 1), (False, 0)):
        run, calls = made(training={"overlap_rewards": overlap}), []
        task = run.stages[0].task

        def later(prompts, outputs, task=task, calls=calls):
            calls.append(len(prompts))
            return Later(scores=BestArm.score(task, prompts, outputs))

        task.score_async = later
        rollout = sampled(run)
        assert len(calls) == expected
        assert rollout.components["hit"].any()


def test_stored_actions_are_replayed(made):
    run = made(stages=[{"name": "s", "method": "supervised", "steps": 2}])
    seeds, grads = [], []
    replay = run.policy.replay
    run.policy.replay = lambda p, s, seed: (
        seeds.append(seed) or grads.append(torch.is_grad_enabled()) or replay(p, s, seed)
    )
    run.show = lambda *given: pytest.fail("nothing was sampled")
    rollout = sampled(run, 1)
    assert seeds == [run.seed(1, salt=10)]
    assert grads == [False]
    assert rollout.rewards[0].tolist() == [1.0, 0.0]
    assert run.drawn == []
    assert rollout.version.unique().tolist() == [0]


def test_prompts_are_numbered_where_account_is_kept(made):
    from anygrpo.train.spread import number_of

    auto = {
        "prompts_per_step": 3,
        "group_size": "auto",
        "samples_per_step": 24,
        "smallest_group": 2,
        "largest_group": 16,
    }
    run = made(algorithm=auto)
    rollout = sampled(run)
    prompts = BestArm.prompts(run.stages[0].task, 0, 3)
    assert rollout.prompt_id.tolist() == [number_of(p) for p in prompts]
    assert run.drawn == [(12, 2, run.seed(0, salt=10))]
    chunked = made(algorithm=auto, training={"sample_chunk": 2})
    assert sampled(chunked).shape == (3, 8, 1)
    assert [n for n, _, _ in chunked.drawn] == [8, 4]


# --- refilling


KEEPS = {"prompts_per_step": 4, "group_size": 2, "filters": [{"kind": "drop_constant"}]}


def refilled(made, pattern, refill=3, step=0, **extra):
    """Groups with spread (1) and without (0), draw after draw; the number of the draw is every sample's version."""
    run = made(algorithm=KEEPS | {"refill": refill}, **extra)
    draws = iter(pattern)
    seen = []

    def once(run, planned, index, seed, clock, shown=None):
        seen.append((index, seed, shown))
        rewards = torch.tensor([[0.0, 1.0] if live else [1.0, 1.0] for live in next(draws)])
        mask = torch.ones(*rewards.shape, 1, dtype=torch.bool)
        made = Rollout.of({"n": torch.full(rewards.shape, len(seen))}, torch.zeros(mask.shape), mask, rewards=rewards)
        return lambda: made

    run.enter(step)
    original, collect.begin_once = collect.begin_once, once
    try:
        rollout = begin(run, run.stages[0], step, run.clock)()
    finally:
        collect.begin_once = original
    return run, rollout, seen


def test_refills_go_on_until_the_step_is_full(made):
    run, rollout, seen = refilled(made, [(1, 0, 0, 1), (0, 1, 0, 0), (1, 1, 1, 0)])
    assert seen == [(0, run.seed(0, salt=10), 0), (1, run.seed(0, salt=11), None), (2, run.seed(0, salt=12), None)]
    assert rollout.samples["n"][:, 0].tolist() == [1, 1, 2, 3]
    assert rollout.discarded is not None
    assert rollout.discarded.rewards.tolist() == [[1.0, 1.0]] * 2 + [[1.0, 1.0]] * 3 + [[0.0, 1.0]] * 2 + [[1.0, 1.0]]
    assert run.draws == 3
    assert run.first_draws == {0: 0}


def test_a_full_draw_needs_no_further_one(made):
    run, rollout, seen = refilled(made, [(1, 1, 1, 1)])
    assert len(seen) == run.draws == 1
    assert rollout.shape[0] == 4
    assert rollout.discarded.shape[0] == 0


def test_draws_end_and_a_step_goes_on_with_fewer(made):
    _, rollout, seen = refilled(made, [(1, 0, 0, 0), (0, 0, 0, 0)], refill=1)
    assert len(seen) == 2
    assert rollout.shape[0] == 1
    assert rollout.discarded.shape[0] == 7


def test_where_nothing_is_kept_the_last_draw_is_the_step_and_all_draws_are_counted(made):
    _, rollout, seen = refilled(made, [(0, 0, 0, 0), (0, 0, 0, 0), (0, 0, 0, 0)], refill=2)
    assert len(seen) == 3
    assert rollout.samples["n"][:, 0].tolist() == [3] * 4
    assert rollout.discarded.shape[0] == 8


def test_a_filters_schedule_counts_from_the_stages_first_step(made):
    """The second stage keeps groups of spread 1 at its first step, and of 4 at its last."""
    rise = {"kind": "step", "start": 1.0, "milestones": [2], "factor": 4.0}
    stages = [{"name": "a", "steps": 2}, {"name": "b", "steps": 4}]
    asked = {"filters": [{"kind": "minimum_spread", "spread": rise}], "refill": 1}
    run = made(algorithm={"prompts_per_step": 2, "group_size": 2} | asked, stages=stages)
    seen = []
    keeps, collect.kept_groups = (
        collect.kept_groups,
        lambda r, stage, numbers: seen.append(numbers) or keeps(r, stage, numbers),
    )
    try:
        for step in (2, 4):
            run.enter(step)
            begin(run, run.stages[1], step, run.clock)()
    finally:
        collect.kept_groups = keeps
    assert {n.filters[0][1]["spread"] for n in seen} == {1.0, 4.0}


def test_draws_follow_one_another_through_the_steps(made):
    run = made(algorithm=KEEPS | {"refill": 1}, training={"steps": 5})
    for step in range(3):
        run.enter(step)
        begin(run, run.stages[0], step, run.clock)()
    indices = [index for index, _ in run.asked]
    assert indices == list(range(len(indices)))
    assert run.draws == len(indices)
    assert set(run.first_draws) == {1, 2}  # of the present step and the one before
    assert run.first_draws[1] >= 1


# --- ahead


def test_without_working_ahead_each_step_samples_its_own(made):
    run = made()
    collector = Collector(run)
    run.enter(0)
    rollout = collector.take(run.stages[0], 0)
    collector.start(run.stages[0], 0)
    collector.finish()
    collector.close()
    assert run.ahead is None
    assert "staleness" not in rollout.info
    assert len(run.drawn) == 1


AHEAD = {"training": {"off_policy_steps": 1, "steps": 3}}


def test_the_step_to_come_is_drawn_by_the_weights_as_they_are(made):
    run = made(**AHEAD)
    collector = Collector(run)
    planned = run.stages[0]
    run.enter(0)
    run.version = 4
    first = collector.take(planned, 0)
    assert first.info["staleness"] == 0.0
    collector.start(planned, 0)
    run.version = 6
    collector.finish()
    assert run.drawn[-1][2] == run.seed(1, salt=10)
    assert run.ahead is not None
    assert run.ahead.version.unique().tolist() == [4]
    assert "wait" in run._seconds
    drawn = run.ahead
    second = collector.take(planned, 1)
    assert run.ahead is None
    assert second.info["staleness"] == 2.0
    assert torch.equal(second.samples["arms"], drawn.samples["arms"])
    collector.start(planned, 1)
    collector.finish()
    run.ahead = None
    collector.start(planned, 2)  # the last step: nothing is to come
    collector.finish()
    assert run.ahead is None
    assert len(run.drawn) == 3


def test_a_moving_temperature_is_that_of_the_step_to_come(made):
    line = {"kind": "linear", "start": 2.0, "end": 1.0}
    run = made(algorithm={"temperature": line}, **AHEAD)
    run.enter(0)
    seen = []
    sample = run.policy.sample
    run.policy.sample = lambda *given: seen.append(run.policy.temperature) or sample(*given)
    collector = Collector(run)
    collector.start(run.stages[0], 0)
    then = run.settings_at(1)["temperature"]
    assert seen == [then]
    assert run.policy.temperature == 2.0
    assert run.adaptive.ahead == then != 2.0


@pytest.mark.parametrize(
    ("holds", "line", "threads"),
    [(True, 1.0, True), (False, 1.0, False), (True, {"kind": "linear", "start": 2.0, "end": 1.0}, False)],
)
def test_a_sampler_that_is_held_works_beside(made, holds, line, threads):
    import threading

    run = made(algorithm={"temperature": line}, **AHEAD)
    run.enter(0)
    held, where = [], []
    run.policy.hold_sampler = lambda: held.append("hold") or holds
    run.policy.release_sampler = lambda: held.append("release")
    sample = run.policy.sample
    run.policy.sample = lambda *given: where.append(threading.current_thread().name) or sample(*given)
    collector = Collector(run)
    collector.start(run.stages[0], 0)
    collector.finish()
    assert where[0].startswith("ahead") == threads
    assert run.drawn[-1][2] == run.seed(1, salt=10)  # of the step to come
    assert "release" in held
    assert run.ahead is not None
    if threads:
        assert "sample" not in run._seconds  # seconds beside the updates are not the step's
        collector.close()
        with pytest.raises(RuntimeError):
            collector.start(run.stages[0], 0)


@pytest.mark.parametrize(("ranks", "refill", "threads"), [(1, 0, True), (1, 2, True), (2, 0, True), (2, 2, False)])
def test_refilling_asks_other_ranks_which_a_thread_must_not(made, monkeypatch, ranks, refill, threads):
    run = made(algorithm={"refill": refill}, **AHEAD)
    run.enter(0)
    monkeypatch.setattr(collect, "world_size", lambda: ranks)
    run.policy.hold_sampler = lambda: True
    collector = Collector(run)
    collector.start(run.stages[0], 0)
    collector.finish()
    collector.close()
    assert (collector._threads is not None) == threads


def test_a_step_without_groups_has_no_age(made):
    run = made(**AHEAD)
    run.enter(0)
    run.ahead = Rollout.of({}, torch.zeros(0, 2, 1), torch.zeros(0, 2, 1, dtype=torch.bool))
    assert "staleness" not in Collector(run).take(run.stages[0], 0).info


def test_shards_keep_a_sample_of_the_first_chunk_to_fill_up_with(made):
    run = made(training={"steps": 3, "sample_chunk": 4})
    run.enter(0)
    kept, run.updater.sharded = [], True
    run.updater.keep_spare = kept.append
    rollout = begin_once(run, run.stages[0], 0, 5, run.clock)()
    assert [k.shape[0] for k in kept] == [4]
    assert torch.equal(kept[0].samples["arms"], rollout.samples["arms"][:4])


# --- joining


def test_the_groups_of_all_ranks_in_their_order(monkeypatch):
    mine, other, none = rollout_of(2), rollout_of(3), rollout_of(0)
    other = replace(other, rewards=torch.full((3, 2), 7.0))
    for rank, first in ((0, 0), (1, 3), (2, 3)):
        monkeypatch.setattr(collect, "world_size", lambda: 3)
        monkeypatch.setattr(collect, "rank", lambda rank=rank: rank)
        monkeypatch.setattr(collect, "gather", lambda light: [other, none, mine])
        whole, begins = whole_of(mine)
        assert whole.rewards[:, 0].tolist() == [7.0] * 3 + [0.0] * 2
        assert begins == first
    assert whole.samples == {}


def rollout_of(rows, **info):
    return Rollout.of({}, torch.zeros(rows, 2, 1), torch.ones(rows, 2, 1, dtype=torch.bool), info=info)


def test_numbers_of_several_parts_are_joined_by_what_they_are():
    parts = [
        rollout_of(1, **{"time/a": 1.0, "length/max": 5.0, "length/min": 2.0, "length/mean": 3.0, "only": 4.0}),
        rollout_of(3, **{"time/a": 2.0, "length/max": 4.0, "length/min": 3.0, "length/mean": 7.0}),
        rollout_of(0, **{"time/a": 99.0, "length/max": 99.0, "length/mean": 99.0}),
    ]
    expected = {"time/a": 2.0, "length/max": 5.0, "length/min": 2.0, "length/mean": 6.0, "only": 4.0}
    assert joined_info(parts) == expected
    assert joined_info(parts, seconds=sum) == expected | {"time/a": 3.0}
    assert joined_info([]) == {}


def test_chunks_are_joined_in_their_order():
    @contextmanager
    def clock(phase):
        yield

    chunk = lambda n, **info: collect.Chunk([], rollout_of(n, **info), None)  # noqa: E731
    joined = collect._joined([chunk(1, **{"time/a": 1.0}), chunk(2, **{"time/a": 2.0})], clock)
    assert joined.shape[0] == 3
    assert joined.info == {"time/a": 3.0}
    alone = collect._joined([chunk(2, **{"time/a": 2.0})], clock)
    assert alone.info == {"time/a": 2.0}
    whole, first = whole_of(alone)
    assert whole is alone
    assert first == 0


def test_what_is_not_shown_is_written_nowhere(made):
    run = made()
    run.enter(0)
    shown = []
    run.show = lambda step, *rest: shown.append(step)
    begin_once(run, run.stages[0], 5, 77, run.clock)()
    begin_once(run, run.stages[0], 5, 77, run.clock, shown=5)()
    begin_once(run, run.stages[0], 5, 77, run.clock, shown=0)()
    assert shown == [5, 0]
    assert run.asked[-1] == (5, 8)
    assert run.drawn[-1][2] == 77
