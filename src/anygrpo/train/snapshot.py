"""A run's state as a checkpoint holds it, and back. Rank 0 writes, every rank its shards; every rank reads."""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygrpo.core import saved
from anygrpo.core.policy import load_state, state_of
from anygrpo.core.rollout import Rollout, tree_map
from anygrpo.train import checkpoint
from anygrpo.train.folder import cut_after
from anygrpo.train.parallel import from_main, gather, is_main, is_sharded, share
from anygrpo.train.run import Run
from anygrpo.train.sharded import laid_out
from anygrpo.train.stages import Controls


def save(run: Run, *, best: bool = False, step: int | None = None) -> None:
    """A checkpoint of the state before `step` (default: the next step to take)."""
    step = run.step if step is None else step
    state = {
        "step": step,
        "samples_seen": run.samples_seen,
        "version": run.version,
        "running": run.running,
        "draws": (run.draws, run.first_draws),
        "beta": run.kl_state.beta if run.entered >= 0 else None,
        "controls": asdict(run.controls),
        "best": (run.best, run.best_step, run.evaluations_since_best),
        "updater": run.updater.state() if run.entered >= 0 else None,
        "anchor": run.anchor,
        "ahead": _whole_ahead(run.ahead),
    }
    weights, keep = state_of(run.policy.trainable()), run.recipe.training.keep_checkpoints
    if any(map(is_sharded, weights.values())):
        _save_parts(run, step, weights, state, keep, best)
    elif is_main():
        checkpoint.save(run.folder.checkpoints, step, weights, state, keep, best)


def _save_parts(run: Run, step: int, weights: dict[str, Tensor], state: dict[str, Any], keep: int, best: bool) -> None:
    """Each rank writes its shards of weights and moments; rank 0 the rest, and makes it a checkpoint."""
    moments: list[dict[str, Tensor]] = []
    if state["updater"] is not None:
        moments = state["updater"].pop("moments")
        state["updater"]["parameters"] = len(moments)
    temporary = from_main(checkpoint.begin(run.folder.checkpoints, step) if is_main() else None)
    assert temporary is not None
    try:
        saved.write(temporary, weights, moments)
        if is_main():
            checkpoint.finish(temporary, step, state, keep, best)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def restore(run: Run, path: Path) -> None:
    """Continue from a checkpoint; rows logged after it are dropped, since those steps will be taken again."""
    weights, state = checkpoint.load(path)
    module = run.policy.trainable()
    own = state_of(module)
    load_state(module, {name: laid_out(w, own[name]) if name in own else w for name, w in weights.items()})
    run.step, run.samples_seen, run.version = state["step"], state["samples_seen"], state["version"]
    run.policy.version = run.version
    run.best, run.best_step, run.evaluations_since_best = state["best"]
    run.controls = Controls(**state["controls"])
    if state["anchor"] is not None:
        run.anchor = run.policy.fix_reference(state["anchor"])
    run.ahead = _own_ahead(state.get("ahead") if run.recipe.training.off_policy_steps else None)
    run.entered = -1
    if state["updater"] is not None and run.step < run.total_steps:
        index = run.stage_index(run.step)
        if run.step > run.stages[index].begin:  # at a stage's first step everything begins anew
            run.begin_stage(index, fresh=False)
            run.updater.load(state["updater"])
            run.kl_state, run.running = replace(run.kl_state, beta=state["beta"]), state["running"]
            run.draws, run.first_draws = state["draws"]
    dropped = cut_after(run.folder.metrics, run.step - 1) if is_main() else 0
    run.folder.log(f"resumed at step {run.step} from {path.name}; {dropped} later rows dropped")


def roll_back(run: Run, path: Path) -> None:
    """Go on from a checkpoint of this run, under the controls now in force."""
    controls = run.controls
    restore(run, path)
    run.controls = controls
    if is_main():
        checkpoint.drop_after(run.folder.checkpoints, run.step)


def newest(folder: Path) -> Path | None:
    """The newest checkpoint that verifies, the same for every rank."""
    return from_main(checkpoint.newest(folder) if is_main() else None)


def _whole_ahead(mine: Rollout | None) -> Rollout | None:
    """The rollout sampled ahead of all ranks, on the CPU. Every rank calls this."""
    if mine is not None:
        mine = replace(mine.on_host(), samples=tree_map(lambda x: x.cpu(), mine.samples))
    parts = [part for part in gather(mine) if part is not None]
    whole = parts[0] if parts else None
    for part in parts[1:]:
        assert whole is not None
        whole = whole.joined(part)
    return whole


def _own_ahead(whole: Rollout | None) -> Rollout | None:
    """This rank's share of what `_whole_ahead` gave, on any number of ranks."""
    if whole is None or len(share(range(whole.shape[0]))) == whole.shape[0]:
        return whole
    keep = torch.zeros(whole.shape[0], dtype=torch.bool)
    keep[torch.tensor(share(range(whole.shape[0])), dtype=torch.int64)] = True
    return whole.groups(keep)
