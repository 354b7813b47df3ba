"""Asynchronous rollouts: the bound holds, each decision's version is the weights that drew it, slow groups hold up
nobody, what is finished survives a stop."""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path

import pytest
import torch
import toy_tasks
import toys
from runs import cut_after, run_of

from anygrpo.core.rollout import Rollout
from anygrpo.core.trained import load_state, state_of
from anygrpo.errors import ConfigError
from anygrpo.train import checkpoint, loop, parallel
from anygrpo.train.build import check_stages, resumed_run
from anygrpo.train.folder import read_rows
from anygrpo.train.loop import train

SPEED = ["--optimizer.learning-rate", "0.05"]
ASYNC = ["--training.max-staleness"]


def rows_of(run):
    return [row for row in read_rows(run.folder.metrics)[0] if row["step"] >= 0]


def finished(folder, bound, *flags, **extra):
    run = run_of(folder, *ASYNC, str(bound), *SPEED, *flags, **extra)
    train(run)
    run.close()
    return run


class Slow(toys.Bandit):
    """Two picks, and between them a prompt of many waits, outside, until the file `go` is there."""

    def __init__(self, seed, go):
        super().__init__(seed, picks=2)
        self.go = Path(go)

    def sample(self, prompts, group_size, seed):
        generator = torch.Generator().manual_seed(seed)
        x = torch.stack([p["x"] for p in prompts])[:, None].expand(-1, group_size, -1)
        arms, logs, versions = [], [], []
        for pick in range(2):
            if pick and self.turnstile is not None:
                self.wait(slow=bool((x[..., 0] > 1.5).any()))
            with torch.no_grad():
                log = self._log_probs(x)
            arm = torch.multinomial(log.exp().flatten(0, 1), 1, generator=generator).view(*log.shape[:2], 1)
            arms, logs = [*arms, arm], [*logs, log.gather(-1, arm)]
            versions.append(torch.full_like(arm, self.version))
        arms, logs, version = (torch.cat(some, -1) for some in (arms, logs, versions))
        return Rollout.of({"x": x, "arms": arms}, logs, torch.ones_like(arms, dtype=torch.bool), version=version)

    def wait(self, slow):
        end = time.monotonic() + LONGEST
        while slow and not self.go.exists() and time.monotonic() < end:
            with self.turnstile.outside():
                time.sleep(0.002)


LONGEST = 20.0


def slow(seed, **options):
    return Slow(seed, **options)


def slow_run(folder, bound, *flags, **extra):
    policy = {"kind": "python", "function": f"{__file__}:slow", "arguments": {"go": str(folder.parent / "go")}}
    return run_of(folder, *ASYNC, str(bound), *SPEED, *flags, policy=policy, **extra)


class Trained:
    """Every rollout that a run's loop prepares, and the weights after each update."""

    def __init__(self, run, monkeypatch):
        self.rollouts, self.corrected, self.at = [], [], {0: weights(run)}
        prepare, corrected, apply = loop.prepare, loop.corrected, run.apply

        def noted(rollout, *rest):
            self.rollouts.append((run.version, rollout))
            return prepare(rollout, *rest)

        def corrects(*given):
            made = corrected(*given)
            self.corrected.append(made[0])
            return made

        def applied(update):
            apply(update)
            self.at[run.version] = weights(run)

        monkeypatch.setattr(loop, "prepare", noted)
        monkeypatch.setattr(loop, "corrected", corrects)
        run.apply = applied

    def log_probs(self, rollout, versions):
        """[P, G, T] of the rollout's picks, by the weights of `versions` [P, G, T]: softmax(W x), by hand."""
        out = torch.zeros(rollout.shape)
        for version in versions.unique().tolist():
            w, b = self.at[version]["weight"], self.at[version]["bias"]
            logs = (rollout.samples["x"] @ w.T + b).log_softmax(-1).gather(-1, rollout.samples["arms"])
            out = torch.where(versions == version, logs, out)
        return out


def weights(run):
    return {name: p.detach().clone() for name, p in state_of(run.policy.trainable()).items()}


def let_go_at(run, step):
    run.observers.append(lambda row, _: (run.folder.path.parent / "go").touch() if row["step"] == step else None)


@pytest.mark.parametrize(("bound", "minibatches"), [(1, 1), (2, 1), (4, 2)])
def test_no_group_is_older_than_the_bound(tmp_path, bound, minibatches):
    run = finished(tmp_path / "run", bound, "--algorithm.minibatches", str(minibatches))
    rows = rows_of(run)
    assert len(rows) == 10
    assert rows[0]["staleness/max"] == 0
    assert all(row["staleness"] <= row["staleness/max"] <= bound for row in rows)
    assert max(row["staleness/max"] for row in rows) >= minibatches  # the threads were ahead
    assert sum(row["queue/dropped"] for row in rows) == 0  # no more is begun than the bound lets count


def test_each_decision_bears_the_version_that_drew_it_across_a_change(tmp_path, monkeypatch):
    run = slow_run(tmp_path / "run", 6, "--training.steps", "8")
    let_go_at(run, 3)
    seen = Trained(run, monkeypatch)
    train(run)
    run.close()
    assert len(seen.rollouts) == 8
    for _, rollout in seen.rollouts:
        torch.testing.assert_close(rollout.log_probs, seen.log_probs(rollout, rollout.version))
    changed = [r for _, r in seen.rollouts if bool((r.version[..., 0] < r.version[..., 1]).any())]
    assert changed  # some were under way when the weights changed
    rows = rows_of(run)
    assert max(row["staleness/mixed"] for row in rows) > 0
    ages = [float((version - r.version).double().mean()) for version, r in seen.rollouts]
    assert [row["staleness"] for row in rows] == pytest.approx(ages)


@pytest.mark.parametrize("level", ["decision", "sequence"])
def test_the_correction_is_the_one_by_hand(tmp_path, monkeypatch, level):
    flags = ["--algorithm.importance", "truncate", "--algorithm.importance-level", level]
    flags += ["--algorithm.importance-cap", "1.02"]
    run = slow_run(tmp_path / "run", 6, "--training.steps", "8", *flags)
    let_go_at(run, 3)
    seen = Trained(run, monkeypatch)
    train(run)
    run.close()
    above = 0
    for (version, rollout), own in zip(seen.rollouts, seen.corrected, strict=True):
        old = seen.log_probs(rollout, torch.full_like(rollout.version, version))
        gap = old - seen.log_probs(rollout, rollout.version)
        used = gap.sum(-1, keepdim=True).expand_as(gap) if level == "sequence" else gap
        by_hand = used.exp().clamp(max=1.02)
        kept = own.mask
        torch.testing.assert_close(own.importance.view(rollout.shape)[kept], by_hand[kept])
        above += int((used > math.log(1.02))[kept].sum())
    assert above > 0  # the cap was met


def test_what_is_too_old_is_dropped_and_counted(tmp_path, monkeypatch):
    run = slow_run(tmp_path / "run", 1, "--training.steps", "12")
    let_go_at(run, 5)
    seen = Trained(run, monkeypatch)
    train(run)
    run.close()
    rows = rows_of(run)
    slow_ones = [bool((r.samples["x"][:, 0, 0] > 1.5).any()) for _, r in seen.rollouts[:6]]
    assert not any(slow_ones)  # they waited
    assert sum(row["queue/dropped"] for row in rows) > 0
    assert all(row["staleness/max"] <= 1 for row in rows)
    assert all(version - int(r.version.min()) <= 1 for version, r in seen.rollouts)


def test_a_slow_group_holds_up_nobody_else(tmp_path):
    """Seven steps pass while some wait; if anybody waited for them, a step would take as long as they do at most."""
    run = slow_run(tmp_path / "run", 20, "--training.steps", "8")
    let_go_at(run, 6)
    train(run)
    run.close()
    assert all(row["time/step"] < LONGEST / 2 for row in rows_of(run))
    assert (tmp_path / "go").exists()


def test_a_stop_loses_no_finished_group(tmp_path):
    run = slow_run(tmp_path / "run", 4, "--training.steps", "12", training={"checkpoint_every": 1})
    run.observers.append(lambda row, run: run.stop("half-way") if row["step"] == 3 else None)
    train(run)
    run.close()
    state = checkpoint.load(checkpoint.newest(run.folder.checkpoints))[1]["queue"]
    assert state["stage"] == 0
    assert state["finished"]
    places = {one["place"] for one in state["finished"]}
    assert places.isdisjoint(state["begun"])
    trained = 4 * 8
    assert len(places) + len(state["begun"]) + trained + dropped(run) + state["dropped"] == state["next"]
    again = resumed_run(tmp_path / "run")
    taken, prepare = [], loop.prepare
    try:
        loop.prepare = lambda rollout, *rest: (taken.append(rollout), prepare(rollout, *rest))[1]
        (tmp_path / "go").touch()
        train(again)
    finally:
        loop.prepare = prepare
    again.close()
    kept = [one["rollout"] for one in state["finished"]][:8]
    for i, group in enumerate(kept):
        assert torch.equal(taken[0].samples["x"][i], group.samples["x"][0])
        assert torch.equal(taken[0].samples["arms"][i], group.samples["arms"][0])
        assert torch.equal(taken[0].rewards[i], group.rewards[0])
        assert torch.equal(taken[0].version[i], group.version[0])
    assert len(rows_of(again)) == 12
    shown = (tmp_path / "run" / "samples").glob("*.jsonl")
    assert all(path.read_text().strip() for path in shown)


def dropped(run):
    return int(sum(row["queue/dropped"] for row in rows_of(run)))


def test_a_power_cut_goes_on_from_the_last_checkpoint(tmp_path):
    run = run_of(tmp_path / "run", *ASYNC, "2", *SPEED, training={"steps": 8, "checkpoint_every": 2})
    cut_after(run, 5)
    again = resumed_run(tmp_path / "run")
    assert again.step == 4
    assert again.queued is not None
    train(again)
    again.close()
    assert [row["step"] for row in rows_of(again)] == list(range(8))
    assert all(row["staleness/max"] <= 2 for row in rows_of(again))


def test_a_roll_back_forgets_what_later_weights_drew(tmp_path, monkeypatch):
    run = run_of(tmp_path / "run", *ASYNC, "2", *SPEED, training={"steps": 8, "checkpoint_every": 2})
    seen, gone = Trained(run, monkeypatch), []

    def back(row, run):
        if row["step"] == 5 and not gone:
            gone.append(row["step"])
            run.roll_back_to(checkpoint.complete(run.folder.checkpoints)[0])

    run.observers.append(back)
    train(run)
    run.close()
    assert gone
    assert len(seen.rollouts) > 8
    assert all(int(r.version.max()) <= version for version, r in seen.rollouts)
    assert [row["step"] for row in rows_of(run)] == list(range(8))


def test_it_learns_and_says_that_it_does_not_repeat_itself(tmp_path, capsys):
    run = finished(tmp_path / "run", 2, "--training.steps", "60", "--algorithm.importance", "truncate")
    assert read_rows(run.folder.metrics)[0][-1]["eval/reward"] > 0.7
    assert "does not repeat itself" in capsys.readouterr().err
    assert "does not repeat itself" in (tmp_path / "run" / "log.txt").read_text()


def test_stages_do_not_reach_into_one_another(tmp_path):
    stages = [
        {"name": "warm", "method": "supervised", "steps": 2},
        {"name": "one", "method": "grpo", "steps": 3},
        {"name": "two", "method": "grpo", "steps": 3, "algorithm": {"refill": 2}},
    ]
    rows = rows_of(finished(tmp_path / "run", 2, stages=stages))
    assert ["staleness" in row for row in rows] == [False] * 2 + [True] * 6
    assert [row["staleness/max"] for row in (rows[2], rows[5])] == [0, 0]
    assert rows[4]["queue/under_way"] == rows[7]["queue/under_way"] == 0  # nothing is begun that no step would take


class Lost(toys.Bandit):
    def sample(self, prompts, group_size, seed):
        if threading.current_thread().name.startswith("sampler"):
            raise RuntimeError("engine lost")
        return super().sample(prompts, group_size, seed)


def lost(seed):
    return Lost(seed)


def test_an_exception_in_a_thread_ends_the_run(tmp_path):
    run = run_of(tmp_path / "run", *ASYNC, "1", policy={"kind": "python", "function": f"{__file__}:lost"})
    with pytest.raises(RuntimeError, match="engine lost"):
        train(run)
    run.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("sampler")]


KINDS = {
    "selector": ({"features": 6, "width": 16}, "Nearest"),
    "motion": ({"features": 7, "frames": 16, "width": 16, "layers": 1, "heads": 2, "steps": 4}, "Still"),
    "restorer": ({"width": 4, "device": "cpu"}, "Mend"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_policy_samples_beside_its_updates_and_resumes(tmp_path, kind):
    options, task = KINDS[kind]
    run = run_of(
        tmp_path / "run",
        *ASYNC,
        "2",
        policy={"kind": kind, **options},
        task={"kind": "python", "function": f"{toy_tasks.__file__}:{task}"},
        algorithm={"prompts_per_step": 3, "group_size": 4, "importance": "truncate"},
        training={"steps": 4, "checkpoint_every": 2},
        evaluation={"at_start": False},
        optimizer={"learning_rate": 1e-3},
    )
    run.observers.append(lambda row, run: run.stop("half-way") if row["step"] == 1 else None)
    train(run)
    run.close()
    run = resumed_run(tmp_path / "run")
    assert run.queued["finished"] or run.queued["begun"]
    train(run)
    run.close()
    rows = rows_of(run)
    assert len(rows) == 4
    assert rows[0]["kl/rollout"] == pytest.approx(0, abs=1e-5)
    assert all(row["staleness/max"] <= 2 for row in rows)


class Hooked(toys.Bandit):
    """What samples is held by a function of the original's."""

    def __init__(self, seed=0):
        super().__init__(seed)
        self._log_probs = lambda x, net=self.net: net(x).log_softmax(-1)  # type: ignore[method-assign]


def hooked(seed):
    return Hooked(seed)


def test_a_copy_that_samples_with_the_originals_weights_is_refused(tmp_path):
    run = run_of(tmp_path / "run", *ASYNC, "1", policy={"kind": "python", "function": f"{__file__}:hooked"})
    with pytest.raises(ConfigError, match="samples with the original's weights"):
        train(run)
    run.close()


def test_a_copy_follows(tmp_path):
    policy = toys.policy(0)
    prompts = toys.BestArm().prompts(0, 1)
    made = policy.copied(prompts)
    load_state(policy.net, {name: p + 1.0 * torch.randn_like(p) for name, p in state_of(policy.net).items()})
    assert not torch.equal(made.sample(prompts, 4, 1).log_probs, policy.sample(prompts, 4, 1).log_probs)
    made.follow(policy)
    assert torch.equal(made.sample(prompts, 4, 1).log_probs, policy.sample(prompts, 4, 1).log_probs)


REFUSED = {
    "fewer than a step's updates": (["--algorithm.minibatches", "2"], "a step makes 2 updates"),
    "one step ahead": (["--training.off-policy-steps", "1"], "off_policy_steps"),
    "chunks": (["--training.sample-chunk", "2"], "sample_chunk"),
    "exact repeats": (["--training.deterministic", "true"], "deterministic"),
    "no ratio": (["--algorithm.objective", "reinforce"], "reinforce"),
    "sizes that follow": (["--algorithm.group-size", "auto"], 'group_size = "auto"'),
    "moving": (["--algorithm.temperature", "{kind = 'linear', start = 2.0, end = 0.5}"], "changes from step to step"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_it_does_not_do_is_refused_by_name(tmp_path, what):
    flags, said = REFUSED[what]
    with pytest.raises(ConfigError, match=said):
        run_of(tmp_path / "run", *ASYNC, "1", *flags)


def test_several_ranks_are_refused(tmp_path, monkeypatch):
    run = run_of(tmp_path / "run", *ASYNC, "1")
    monkeypatch.setattr(parallel, "world_size", lambda: 2)
    monkeypatch.setattr("anygrpo.train.build.world_size", lambda: 2)
    with pytest.raises(ConfigError, match="2 ranks"):
        check_stages(run.policy, run.stages, run.recipe)
    run.close()


def test_a_moving_temperature_needs_the_correction_and_is_taken_over(tmp_path):
    flags = ["--algorithm.temperature", "{kind = 'linear', start = 2.0, end = 0.5}", "--optimizer.learning-rate", "0.0"]
    run = run_of(tmp_path / "run", *ASYNC, "1", *flags, "--algorithm.importance", "truncate")
    train(run)
    run.close()
    rows = rows_of(run)
    assert rows[0]["kl/rollout"] == pytest.approx(0, abs=1e-9)
    assert max(row["kl/rollout"] for row in rows[1:]) > 1e-4  # samples of a warmer step, weighed as the present one's
