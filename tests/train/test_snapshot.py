"""A run's state in a checkpoint and back, key by key; what is said when a run ends early."""

from __future__ import annotations

import errno
import math
from dataclasses import replace

import pytest
import torch
from runs import run_of

from anygrpo.algorithm.statistics import RunningState
from anygrpo.core.rollout import Rollout
from anygrpo.core.saved import Form
from anygrpo.core.tensor_files import read_tensors
from anygrpo.errors import DataError, Interrupted, TrainingError
from anygrpo.train import checkpoint, snapshot
from anygrpo.train.build import resumed_run
from anygrpo.train.folder import read_rows
from anygrpo.train.interrupt import GraceOver
from anygrpo.train.loop import train


@pytest.fixture
def run(tmp_path):
    made = run_of(
        tmp_path / "run",
        training={"steps": 8, "checkpoint_every": 100},
        algorithm={"beta": 0.1, "kl_controller": "band"},
    )
    yield made
    made.close()


def rollout():
    return Rollout.of(
        {"x": torch.ones(2, 1, 5), "arms": torch.zeros(2, 1, 1, dtype=torch.int64)},
        torch.zeros(2, 1, 1),
        torch.ones(2, 1, 1, dtype=torch.bool),
    )


def moved(run, step=3):
    """A run with all of its state changed."""
    run.enter(2)
    for p in run.updater.parameters:
        p.grad = torch.ones_like(p)
    run.updater.step(0.1, False)
    run.updater.refused = 4
    run.step, run.samples_seen, run.version, run.draws, run.first_draws = step, 77, 5, 6, {4: 5, 3: 2}
    run.memory = RunningState(mean=2.0, variance=3.0, weight=1.0)
    run.best, run.best_step, run.evaluations_since_best = 0.5, 2, 1
    run.controls.learning_rate, run.controls.clip = 0.5, 0.25
    run.kl_state = replace(run.kl_state, beta=0.75)
    run.adaptive.ahead = 1.25
    run.anchor = run.policy.fix_reference({k: torch.full_like(v, 0.5) for k, v in run.policy.net.state_dict().items()})
    run.ahead = rollout()
    return run


def test_everything_comes_back(run, tmp_path):
    moved(run)
    snapshot.save(run)
    weights = {k: v.clone() for k, v in run.policy.net.state_dict().items()}
    folder = tmp_path / "run" / "checkpoints" / "step_00000003"
    other = run_of(
        tmp_path / "other",
        training={"steps": 8, "off_policy_steps": 1},
        algorithm={"beta": 0.1, "kl_controller": "band"},
    )
    for row in range(5):
        other.emit({"step": row})
    snapshot.restore(other, folder)
    assert all(torch.equal(weights[k], v) for k, v in other.policy.net.state_dict().items())
    assert (other.step, other.samples_seen, other.version, other.policy.version) == (3, 77, 5, 5)
    assert (other.best, other.best_step, other.evaluations_since_best) == (0.5, 2, 1)
    assert other.controls == run.controls
    assert (other.draws, other.first_draws, other.entered) == (6, {3: 2, 4: 5}, 0)
    assert other.kl_state.beta == 0.75
    assert other.memory == run.memory
    assert other.adaptive.ahead == 1.25
    assert other.updater.refused == 4
    for a, b in zip(run.updater.parameters, other.updater.parameters):
        assert torch.equal(run.updater.optimizer.state[a]["exp_avg"], other.updater.optimizer.state[b]["exp_avg"])
    with other.policy.reference():
        assert float(other.policy.net.weight[0, 0].detach()) == 0.5
    assert other.ahead is not None
    assert torch.equal(other.ahead.samples["x"], rollout().samples["x"])
    assert [row["step"] for row in read_rows(other.folder.metrics)[0]] == [0, 1, 2]
    assert "resumed at step 3 from step_00000003; 2 later rows dropped" in (other.folder.path / "log.txt").read_text()
    other.close()


def test_without_working_ahead_what_was_drawn_ahead_is_left(run):
    moved(run)
    snapshot.save(run)
    snapshot.restore(run, run.folder.checkpoints / "step_00000003")
    assert run.ahead is None


def test_the_state_of_a_step_that_is_named(run):
    moved(run)
    snapshot.save(run, step=4, best=True)
    assert [p.name for p in sorted(run.folder.checkpoints.iterdir())] == ["best", "step_00000004"]
    assert checkpoint.load(run.folder.checkpoints / "best")[1]["step"] == 4
    snapshot.save(run)
    assert checkpoint.newest(run.folder.checkpoints).name == "step_00000004"
    assert not (run.folder.checkpoints / ".best").exists()


def test_before_the_first_step_there_is_no_optimizer(run):
    snapshot.save(run)
    state = checkpoint.load(run.folder.checkpoints / "step_00000000")[1]
    assert (state["updater"], state["beta"], state["anchor"], state["ahead"]) == (None, None, None, None)
    assert state["best"] == (-math.inf, -1, 0)
    assert set(state) >= snapshot._KEYS | {"adaptive"}
    snapshot.restore(run, run.folder.checkpoints / "step_00000000")
    assert (run.step, run.entered) == (0, -1)


@pytest.mark.parametrize("key", sorted(snapshot._KEYS))
def test_a_state_that_lacks_something_is_named(run, key, monkeypatch):
    snapshot.save(run)
    folder = run.folder.checkpoints / "step_00000000"
    weights, state = checkpoint.load(folder)
    state.pop(key)
    monkeypatch.setattr(checkpoint, "load", lambda path: (weights, state))
    with pytest.raises(DataError, match=rf"lacks \['{key}'\]"):
        snapshot.restore(run, folder)


def test_at_a_stages_first_step_everything_begins_anew(tmp_path):
    stages = [{"name": "a", "steps": 3}, {"name": "b", "steps": 3}]
    run = run_of(tmp_path / "run", stages=stages)
    moved(run)
    snapshot.save(run)
    snapshot.restore(run, run.folder.checkpoints / "step_00000003")
    assert run.entered == -1
    run.enter(3)
    assert (run.memory, run.draws, run.updater.refused) == (None, 0, 0)
    run.step = 6  # and after the last one nothing begins at all
    snapshot.save(run)
    snapshot.restore(run, run.folder.checkpoints / "step_00000006")
    assert (run.step, run.entered) == (6, -1)
    run.close()


def test_going_back_keeps_the_controls_in_force_and_drops_what_came_later(run):
    moved(run)
    snapshot.save(run)
    snapshot.save(run, step=5)
    run.controls.learning_rate = 0.125
    snapshot.roll_back(run, run.folder.checkpoints / "step_00000003")
    assert run.controls.learning_rate == 0.125
    assert [p.name for p in checkpoint.complete(run.folder.checkpoints)] == ["step_00000003"]
    assert snapshot.newest(run.folder.checkpoints).name == "step_00000003"


def test_ranks_share_what_is_asked_and_failed():
    snapshot.together(lambda: None)
    with pytest.raises(OSError, match="rank 0: ") as caught:
        snapshot.together(lambda: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="rank 0: ") as caught:
        snapshot.together(lambda: (_ for _ in ()).throw(OSError("odd")))
    assert caught.value.errno == 5
    with pytest.raises(ValueError, match="other"):
        snapshot.together(lambda: (_ for _ in ()).throw(ValueError("other")))


# --- an end before the end


def ended(run, error):
    def stop(row, _):
        if row["step"] == 4:
            raise error

    run.observers.append(stop)
    observers = len(run.observers)
    with pytest.raises((TrainingError, Interrupted)) as caught:
        train(run)
    assert len(run.observers) == observers
    return caught.value


def full():
    return OSError(errno.ENOSPC, "No space left on device")


def test_nothing_saved_yet(run):
    assert "; no checkpoint was saved" in ended(run, full()).what


@pytest.mark.parametrize(
    ("every", "saved", "lost"), [(3, "step_00000003", "1 step(s)"), (4, "step_00000004", "nothing is lost")]
)
def test_what_was_saved_and_what_is_lost(tmp_path, every, saved, lost):
    run = run_of(tmp_path / "run", training={"steps": 8, "checkpoint_every": every})
    what = ended(run, full()).what
    assert saved in what
    assert lost in what
    run.close()


@pytest.mark.parametrize("updated", [False, True])
def test_a_grace_time_that_is_over_saves_what_no_update_has_touched(run, updated):
    apply = run.apply
    memories = []

    def given_up(row):
        if updated:
            apply(row)
        if run.step == 3:
            run.memory = "of the broken step"
            memories.append(run.memory_before)
            raise GraceOver
        if not updated:
            apply(row)

    run.apply = given_up
    with pytest.raises(Interrupted, match="the grace time is over") as caught:
        train(run)
    assert f"--resume {run.folder.path}" in caught.value.cure
    newest = checkpoint.newest(run.folder.checkpoints)
    assert (newest is None) == updated
    if newest is not None:
        assert newest.name == "step_00000003"
        assert run.memory == memories[0]
        assert "nothing is lost" in caught.value.what


def test_a_resumed_run_may_be_given_up_before_its_first_step(run, tmp_path):
    run.observers.append(lambda row, _: run.stop("enough") if row["step"] == 2 else None)
    train(run)
    run.close()
    again = resumed_run(tmp_path / "run")
    again.policy.sample = lambda *given: (_ for _ in ()).throw(GraceOver)
    with pytest.raises(Interrupted):
        train(again)
    assert checkpoint.newest(again.folder.checkpoints).name == "step_00000003"
    again.close()


# --- weights in files of several ranks, written by one


def test_a_ranks_share_of_the_weights(tmp_path, monkeypatch):
    form = Form(metadata={"a": "b"})
    snapshot._write_share(tmp_path, form, [["x"]], {"x": torch.ones(2)}, 8)
    assert [f.name for f in tmp_path.iterdir()] == ["policy.safetensors"]
    assert read_tensors(tmp_path / "policy.safetensors")["x"].tolist() == [1.0, 1.0]
    snapshot._write_share(tmp_path / "none", form, [["x"]], {}, 8)  # a rank with no share
    assert not (tmp_path / "none").exists()
    (tmp_path / "two").mkdir()
    snapshot._write_share(tmp_path / "two", form, [["x"], ["y"]], {"x": torch.ones(2)}, 16)
    names = {f.name for f in (tmp_path / "two").iterdir()}
    assert names == {"policy-00001-of-00002.safetensors", "policy.safetensors.index.json"}
    monkeypatch.setattr(snapshot, "rank", lambda: 1)
    monkeypatch.setattr(snapshot, "is_main", lambda: False)
    (tmp_path / "other").mkdir()
    snapshot._write_share(tmp_path / "other", form, [["x"], ["y"]], {"y": torch.ones(2)}, 16)
    assert [f.name for f in (tmp_path / "other").iterdir()] == ["policy-00002-of-00002.safetensors"]


def test_weights_in_parts_come_back_whole(run, monkeypatch):
    """As ranks with shards write them, by one rank of whole tensors."""
    moved(run)
    monkeypatch.setattr(snapshot, "is_sharded", lambda tensor: True)
    monkeypatch.setattr(run.policy, "saved_form", lambda: Form(fixed={"buffer": torch.ones(3)}))
    snapshot.save(run, best=True)
    folder = run.folder.checkpoints / "step_00000003"
    assert not checkpoint.problems(folder)
    assert (folder / "parts").is_dir()
    assert set(read_tensors(folder / "policy.safetensors")) == {"weight", "bias", "buffer"}
    weights = {k: v.clone() for k, v in run.policy.net.state_dict().items()}
    before = [run.updater.optimizer.state[p]["exp_avg"].clone() for p in run.updater.parameters]
    with torch.no_grad():
        run.policy.net.weight.zero_()
    monkeypatch.undo()
    snapshot.restore(run, run.folder.checkpoints / "best")
    assert all(torch.equal(weights[k], v) for k, v in run.policy.net.state_dict().items())
    after = [run.updater.optimizer.state[p]["exp_avg"] for p in run.updater.parameters]
    assert all(torch.equal(a, b) for a, b in zip(before, after))


def test_parts_that_cannot_be_written_leave_nothing(run, monkeypatch):
    moved(run)
    monkeypatch.setattr(snapshot, "is_sharded", lambda tensor: True)
    monkeypatch.setattr(
        snapshot.saved_parts, "write", lambda *given: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full"))
    )
    with pytest.raises(OSError, match="full"):
        snapshot.save(run)
    assert list(run.folder.checkpoints.iterdir()) == []


def test_what_a_policy_carries_is_in_the_checkpoint(run):
    found = {"trusts": False, "parity": 0.5, "of": ["engine", None]}
    taken = []
    run.policy.carried, run.policy.resumed = lambda: found, taken.append
    snapshot.save(run)
    snapshot.restore(run, snapshot.newest(run.folder.checkpoints))
    assert taken == [found]


def test_a_rank_goes_on_with_its_share_of_the_groups(monkeypatch):
    """Two groups of four samples over two ranks: one each; a single rank takes all."""
    whole = Rollout.of({}, torch.zeros(2, 4, 1), torch.ones(2, 4, 1, dtype=torch.bool))
    whole.rewards[1] = 5.0
    assert snapshot._own_ahead(None) is None
    assert snapshot._own_ahead(whole) is whole
    monkeypatch.setattr(snapshot, "share", lambda every: every[len(every) // 2 :])
    assert snapshot._own_ahead(whole).rewards.tolist() == [[5.0] * 4]
