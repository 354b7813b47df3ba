"""The queue of groups under way, in small: seeds, what is shown, what a new stage gives up."""

from __future__ import annotations

import threading
import time
from concurrent.futures import wait

import pytest
import torch
from runs import run_of

from anygrpo.core.rollout import Rollout
from anygrpo.core.task import Pending
from anygrpo.train import kept_groups as group_module
from anygrpo.train.kept_groups import oldest
from anygrpo.train.queue import Queue
from anygrpo.train.shown import rows_shown

STAGES = [{"name": "a", "steps": 3}, {"name": "b", "steps": 3}]


@pytest.fixture
def made(tmp_path, monkeypatch):
    queues = []

    def make(bound=4, stages=STAGES, samples_every=10, **algorithm):
        sizes = {"prompts_per_step": 4, "group_size": 2}
        run = run_of(
            tmp_path / f"run{len(queues)}",
            "--training.max-staleness",
            str(bound),
            "--training.samples-every",
            str(samples_every),
            stages=stages,
            algorithm=sizes | algorithm,
        )
        run.drawn, kind = [], type(run.policy)
        real = getattr(kind, "real", kind.sample)
        monkeypatch.setattr(kind, "real", real, raising=False)
        noted = lambda self, p, n, seed: run.drawn.append((len(p), n, seed)) or real(self, p, n, seed)  # noqa: E731
        monkeypatch.setattr(kind, "sample", noted)
        queues.append(Queue(run))
        return run, queues[-1]

    yield make
    for queue in queues:
        queue.close()
        queue.run.close()


def taken(run, queue, step):
    run.enter(step)
    return queue.take(run.stages[run.stage_index(step)], step)


def test_each_draw_of_a_stage_has_a_seed_of_its_own(made):
    run, queue = made()
    rollout = taken(run, queue, 0)
    queue.close()
    assert rollout.shape[:2] == (4, 2)
    expected = {run.seed(place, salt=20) for place in range(4 * 3)}
    assert {seed for _, _, seed in run.drawn} <= expected | {1}  # by which the copy is tried first
    assert {run.seed(place, salt=20) for place in range(4)} <= {seed for _, _, seed in run.drawn}
    assert {(p, n) for p, n, seed in run.drawn if seed in expected} == {(1, 2)}
    other, second = made()
    taken(other, second, 3)
    second.close()
    seeds = {seed for _, _, seed in other.drawn}
    assert {other.seed(place, salt=21) for place in range(4)} <= seeds
    assert not seeds & expected


def test_no_more_is_begun_than_the_bound_lets_count(made):
    run, queue = made(bound=1)
    taken(run, queue, 0)
    assert queue._next == 2 * 4
    run, queue = made(bound=9)
    taken(run, queue, 0)
    assert queue._next == 3 * 4  # nor than the stage has steps
    run, queue = made(bound=4, epochs=2, minibatches=2)
    taken(run, queue, 0)
    assert queue._next == 2 * 4  # four updates a step


def test_a_step_is_shown_once(made):
    run, queue = made()
    shown = []
    run.show = lambda step, rollout, rows: shown.append((step, rollout.shape[0], len(rows(3))))
    taken(run, queue, 0)
    taken(run, queue, 1)
    assert shown == [(0, 4, 3), (1, 4, 3)]


def test_draws_that_refill_are_not_shown(made):
    filters = [{"kind": "minimum_spread", "spread": 2.0}]  # no group has it
    run, queue = made(bound=2, filters=filters, refill=2)
    shown = []
    run.show = lambda step, rollout, rows: shown.append(step)
    rollout = taken(run, queue, 0)
    assert shown == [0]
    assert rollout.discarded is not None
    assert rollout.discarded.shape[0] == 8


def test_what_waited_at_the_beginning_is_told(made):
    run, queue = made()
    first = taken(run, queue, 0)
    assert first.info["queue/finished"] == 0.0
    assert first.info["queue/dropped"] == 0.0
    wait(list(queue._under_way))
    second = taken(run, queue, 1)
    assert second.info["queue/finished"] >= 4.0


def test_a_new_stage_gives_up_what_the_last_one_began(made):
    run, queue = made()
    taken(run, queue, 0)
    old = queue._threads
    run.queued = None
    rollout = taken(run, queue, 3)
    assert queue._threads is not old
    with pytest.raises(RuntimeError):
        old.submit(lambda: None)
    assert queue._stage is run.stages[1]
    assert len(rollout.prompt_id) == 4
    queue.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("sampler") and t.is_alive()]


@pytest.mark.parametrize("refill", [0, 2])
def test_a_run_that_had_no_queue_goes_on_with_the_prompts_that_follow(made, refill):
    run, queue = made(refill=refill, filters=[{"kind": "minimum_spread", "spread": 0.0}])
    run.enter(0)
    run.draws, asked = 5, []  # more than steps, where it refills
    task = run.stages[0].task
    real = task.prompts
    task.prompts = lambda step, count: asked.append((step, count)) or real(step, count)
    taken(run, queue, 2)
    assert next(step for step, count in asked if count == 4) == (5 if refill else 2)


@pytest.mark.parametrize("where", ["in its thread", "in the trainer's"])
def test_a_group_that_failed_does_not_cost_a_checkpoint(made, where):
    run, queue = made()
    taken(run, queue, 0)
    wait(list(queue._under_way))
    queue._gather()
    assert len(queue.finished) == 8
    queue.finished.clear()  # as if trained on
    task = run.stages[0].task

    def broken(*_):
        raise RuntimeError("tool broke")

    if where == "in its thread":
        queue.sampler.sample = broken
    else:
        task.score_async, task.score = None, broken
    queue._submit(run.stages[0], 12)
    wait(list(queue._under_way))
    state = queue.state()
    assert state["begun"] == [12]  # a resumed run draws it again
    assert state["finished"] == []
    with pytest.raises(RuntimeError, match="tool broke"):
        taken(run, queue, 1)


def test_a_resumed_queue_goes_on_with_what_was_begun(made):
    """Of a checkpoint: place 5 was begun, 8 is next; what an older version kept says nothing of dropped groups."""
    run, queue = made()
    run.queued = {"stage": 0, "next": 8, "begun": [5], "finished": []}
    assert queue.state() is run.queued
    rollout = taken(run, queue, 0)
    queue.close()
    seeds = {seed for _, _, seed in run.drawn}
    assert run.seed(5, salt=20) in seeds
    assert run.seed(8, salt=20) in seeds
    assert run.seed(4, salt=20) not in seeds
    assert rollout.info["queue/dropped"] == 0.0


def test_prompts_are_asked_for_once_a_batch(made):
    run, queue = made()
    asked, task = [], run.stages[0].task
    prompts = task.prompts
    task.prompts = lambda index, count: asked.append(index) or prompts(index, count)
    taken(run, queue, 0)
    queue.close()
    own = asked[1:]  # the first by which the copy is tried
    assert len(own) == len(set(own)) > 1


class Slow(Pending):
    """Scores that come when they are let go."""

    def __init__(self, scores):
        self.scores, self.free = scores, threading.Event()

    def result(self):
        assert self.free.wait(20)
        return self.scores


def test_a_checkpoint_waits_for_a_group_that_only_its_reward_keeps(made):
    run, queue = made()
    taken(run, queue, 0)
    wait(list(queue._under_way))
    queue._gather()
    queue.finished.clear()
    task, slow = run.stages[0].task, []
    task.score_async = lambda prompts, outputs: slow.append(Slow(task.score(prompts, outputs))) or slow[0]
    queue._submit(run.stages[0], 12)
    (work,) = queue._under_way.values()
    until = time.monotonic() + 10
    while not work.sampled and time.monotonic() < until:
        time.sleep(0.01)
    assert work.sampled
    threading.Timer(0.2, lambda: slow[0].free.set()).start()
    state = queue.state()
    assert state["begun"] == []
    assert [one["place"] for one in state["finished"]] == [12]


class Late(Slow):
    def result(self):
        time.sleep(0.3)
        return self.scores


def test_a_step_sleeps_until_a_group_is_finished(made):
    run, queue = made(bound=1)
    task = run.stages[0].task
    task.score_async = lambda prompts, outputs: Late(task.score(prompts, outputs))
    looked, gather = [], queue._gather
    queue._gather = lambda: looked.append(True) or gather()
    taken(run, queue, 0)
    assert len(looked) <= 12  # once at first, and once for what is finished: eight groups


def test_weights_change_before_anybody_samples_on(made):
    run, queue = made()
    taken(run, queue, 0)
    wait(list(queue._under_way))  # who samples now would ask too
    asked = []
    inside = queue.turnstile.inside
    queue.turnstile.inside = lambda number: asked.append(number) or inside(number)
    run.version = 7
    with torch.no_grad():
        run.policy.net.weight.fill_(0.5)
    queue.finish()
    assert asked == [-1]
    assert asked[0] < 0  # before every place
    assert queue.sampler.version == 7
    assert float(queue.sampler.net.weight[0, 0].detach()) == 0.5
    assert queue.sampler is not run.policy


def test_too_old_groups_are_dropped_and_counted(made):
    run, queue = made(bound=1)
    taken(run, queue, 0)
    wait(list(queue._under_way))
    run.version = 5
    queue.finish()
    rollout = taken(run, queue, 1)
    assert rollout.info["queue/dropped"] == 4.0
    assert rollout.version.unique().tolist() == [5]


def test_what_a_checkpoint_drops_is_counted_in_the_next_row(made):
    run, queue = made(bound=1)
    taken(run, queue, 0)
    wait(list(queue._under_way))
    run.version = 5
    queue.finish()
    state = queue.state()
    assert state["finished"] == []
    rollout = taken(run, queue, 1)
    assert rollout.info["queue/dropped"] == 4.0
    queue.forget()
    run.queued = state | {"next": 4}  # a run that resumes there counts them too
    assert taken(run, queue, 1).info["queue/dropped"] == 4.0


def test_groups_follow_one_another_as_they_were_finished(made):
    run, queue = made(stages=[{"name": "a", "steps": 30}])
    run.enter(0)
    queue._begin(run.stages[0])
    task, last = run.stages[0].task, threading.Event()

    class Late:
        def __init__(self, scores, first):
            self.scores, self.first = scores, first

        def result(self):
            assert not self.first or last.wait(20)
            return self.scores

    first_of_all = task.prompts(0, 4)[0]["x"]
    is_first = lambda prompt: torch.equal(prompt["x"], first_of_all)  # noqa: E731
    task.score_async = lambda prompts, outputs: Late(task.score(prompts, outputs), is_first(prompts[0]))
    first, second = (queue._submit(run.stages[0], place) or list(queue._under_way)[-1] for place in (0, 1))
    second.result()
    last.set()
    wait([first])
    queue._gather()
    assert [group.place for group in queue.finished] == [1, 0]


def test_what_a_checkpoint_held_is_where_new_samples_are(made):
    run, queue = made()
    taken(run, queue, 0)
    wait(list(queue._under_way))
    state = queue.state()
    assert [one["devices"] for one in state["finished"]] == [{"x": "cpu", "arms": "cpu"}] * 8
    for one in state["finished"]:
        one["devices"]["x"] = "cuda"
    run.updater.device, run.queued = torch.device("meta"), state | {"begun": []}
    queue._begin(run.stages[0])
    run.updater.device = torch.device("cpu")
    assert [(g.rollout.samples["x"].device.type, g.rollout.samples["arms"].device.type) for g in queue.finished] == [
        ("meta", "cpu")
    ] * 8


@pytest.mark.parametrize(("every", "shown", "kept"), [(0, 0, []), (2, 4, [4, 5, 6, 7]), (3, 4, [])])
def test_rows_are_made_for_pages_alone(made, monkeypatch, every, shown, kept):
    """By hand: of 12 groups step 0 takes 4, step 1 at the latest the next 4, step 2 the last. Every second step has a
    page: a checkpoint between 0 and 1 needs the last four's rows."""
    calls = []
    monkeypatch.setattr(group_module, "rows_shown", lambda *given: calls.append(given[1]) or rows_shown(*given))
    run, queue = made(samples_every=every)
    taken(run, queue, 0)
    assert len(calls) == shown  # samples_kept
    wait(list(queue._under_way))
    state = queue.state()
    assert [i for i, one in enumerate(state["finished"]) if one["row"] is not None] == kept
    assert len(calls) == shown + len(kept)
    if not every:
        assert all(group.outputs is None for group in queue.finished)
    run.queued = state
    queue.forget()
    taken(run, queue, 1)
    taken(run, queue, 2)
    assert len(calls) == shown + len(kept)  # a checkpoint's rows are not made again
    pages = sorted(path.name for path in (run.folder.path / "samples").glob("*.jsonl"))
    assert pages == [f"step_{step:08d}.jsonl" for step in range(3) if every and step % every == 0]
    assert all(len((run.folder.path / "samples" / name).read_text().splitlines()) == 4 for name in pages)


def test_the_oldest_decision_of_those_that_count():
    mask = torch.tensor([[[True, False], [True, True]]])
    rollout = Rollout.of({}, torch.zeros(1, 2, 2), mask, version=torch.tensor([[[3, 1], [4, 5]]]))
    assert oldest(rollout) == 3
    nothing = Rollout.of({}, torch.zeros(1, 2, 2), mask & False, version=torch.tensor([[[3, 1], [4, 5]]]))
    assert oldest(nothing) == 5
