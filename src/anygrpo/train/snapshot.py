"""A run's state as a checkpoint holds it, and back. Rank 0 writes, every rank its shards; every rank reads."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygrpo.core import saved, saved_parts
from anygrpo.core.rollout import Rollout
from anygrpo.core.tensor_files import write_tensors
from anygrpo.core.trained import load_state, state_of
from anygrpo.core.tree import tree_map
from anygrpo.errors import DataError, Interrupted
from anygrpo.spoken import Text
from anygrpo.train import checkpoint, schema
from anygrpo.train.folder import cut_after, writing
from anygrpo.train.interrupt import GraceOver
from anygrpo.train.parallel import from_main, gather, is_main, is_sharded, rank, share, world_size
from anygrpo.train.run import Run
from anygrpo.train.sharded import laid_out, whole_of
from anygrpo.train.stages import Controls

_KEYS = frozenset(
    ("step", "samples_seen", "version", "running", "draws", "beta", "controls", "best", "updater", "anchor", "ahead")
)

_ALL = 10**9


def save(run: Run, *, best: bool = False, step: int | None = None, prune: bool = True) -> None:
    """A checkpoint of the state before `step` (default: the next step to take). `prune`: the oldest ones go."""
    step = run.step if step is None else step
    state = {
        "step": step,
        "samples_seen": run.samples_seen,
        "version": run.version,
        "running": run.memory,
        "draws": [run.draws, sorted(run.first_draws.items())],
        "adaptive": run.adaptive.state(),
        "beta": run.kl_state.beta if run.entered >= 0 else None,
        "controls": asdict(run.controls),
        "best": (run.best, run.best_step, run.evaluations_since_best),
        "updater": run.updater.state() if run.entered >= 0 else None,
        "anchor": None if run.anchor is None else dict(run.anchor),
        "ahead": _whole_ahead(run.ahead),
        "queue": run.queued if run.queue is None else run.queue.state(),
        "policy": run.policy.carried(),
        "watched": run.watched,
    }
    weights, keep = state_of(run.policy.trainable()), run.recipe.training.keep_checkpoints if prune else _ALL
    names = saved.library_names(run.policy.saved_names(), weights)
    if state["updater"] is not None:
        state["updater"]["moments"] = dict(zip(_keys(run, names), state["updater"]["moments"]))
    if any(map(is_sharded, weights.values())):
        _save_parts(run, step, {names[n]: w for n, w in weights.items()}, state, keep, best, names)
    elif is_main():
        checkpoint.save(run.folder.checkpoints, step, weights, state, keep, best, names, run.policy.saved_form())


def _keys(run: Run, names: dict[str, str]) -> list[str]:
    """A name for each weight that the optimizer holds, in its order."""
    own = {id(p): name for name, p in run.policy.trainable().named_parameters()}
    return [names.get(own.get(id(p), ""), f"parameter.{i}") for i, p in enumerate(run.updater.parameters)]


def _save_parts(
    run: Run, step: int, weights: dict[str, Tensor], state: dict[str, Any], keep: int, best: bool, names: dict[str, str]
) -> None:
    """Each rank writes its share of the weights, whole, and its pieces of the moments; rank 0 the rest, and makes it a
    checkpoint."""
    moments = {} if state["updater"] is None else state["updater"].pop("moments")
    form = run.policy.saved_form()
    weights = weights | dict(form.fixed)
    sizes = {name: w.numel() * w.element_size() for name, w in weights.items()}
    shares = [one for one in saved_parts.dealt(sizes, world_size(), form.split and not form.numbered) if one]
    mine = whole_of(weights, shares[rank()] if rank() < len(shares) else ())
    temporary = from_main(checkpoint.begin(run.folder.checkpoints, step) if is_main() else None)
    assert temporary is not None
    try:
        together(lambda: _write_share(temporary, form, shares, mine, sum(sizes.values())))
        together(lambda: saved_parts.write(temporary, moments, rank()))
        together(lambda: checkpoint.finish(temporary, step, state, keep, best, names, form) if is_main() else None)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _write_share(folder: Path, form: saved.Form, shares: list[list[str]], mine: dict[str, Tensor], size: int) -> None:
    """This rank's file of weights; rank 0 also says which file holds which, where there are several."""
    if mine:
        file = form.file if len(shares) == 1 else saved_parts.shard_name(form.file, rank(), len(shares))
        write_tensors(folder / file, mine, form.metadata, form.numbered)
    if is_main() and len(shares) > 1:
        saved_parts.write_index(folder, form.file, shares, size)


def together(act: Callable[[], object]) -> None:
    """Act on every rank; where it fails on one, all raise, so that none waits for another.

    Raises:
        OSError: a rank could not write; says which.
    """
    failed: str | None = None
    code = 0
    try:
        act()
    except OSError as error:
        failed, code = f"rank {rank()}: {error}", error.errno or 5
    for why, number in gather((failed, code)):
        if why is not None:
            raise OSError(number, why)


def restore(run: Run, path: Path) -> None:
    """Continue from a checkpoint; rows logged after it are dropped, since those steps will be taken again."""
    _read(run, path)
    _cut_rows(run, path, run.step - 1 if run.step else -2)  # at step 0 the row before it comes again too


def _cut_rows(run: Run, path: Path, last: int) -> None:
    dropped = cut_after(run.folder.metrics, last) if is_main() else 0
    run.folder.log(f"resumed at step {run.step} from {path.name}; {dropped} later rows dropped")


def _read(run: Run, path: Path) -> None:
    weights, state = checkpoint.load(path)
    if lacking := _KEYS - state.keys():
        raise DataError(
            Text(f"{path} lacks {sorted(lacking)}", f"{path} 缺少 {sorted(lacking)}"),
            Text("resume from another checkpoint of the same run", "请从同一次运行的另一个检查点继续"),
        )
    schema.check(state, path)
    with schema.fitting(path):
        _set(run, weights, state)


def _set(run: Run, weights: Mapping[str, Tensor], state: dict[str, Any]) -> None:
    """The run as `save` saw it."""
    module = run.policy.trainable()
    own = state_of(module)
    whole = saved.own_names(weights, saved.library_names(run.policy.saved_names(), own))
    load_state(module, {name: laid_out(w, own[name]) if name in own else w for name, w in whole.items()})
    run.step, run.samples_seen, run.version = state["step"], state["samples_seen"], state["version"]
    run.policy.version = run.version
    run.policy.resumed(state.get("policy") or {})
    run.best, run.best_step, run.evaluations_since_best = state["best"]
    run.controls, run.watched = Controls(**state["controls"]), state.get("watched", {})
    if state["anchor"] is not None:
        run.anchor = run.policy.fix_reference(state["anchor"])
    run.ahead = _own_ahead(state["ahead"] if run.recipe.training.off_policy_steps else None)
    run.queued = state.get("queue") if run.recipe.training.max_staleness else None
    if run.queue is not None:
        run.queue.forget()
    run.entered, run.memory, run.draws, run.first_draws = -1, None, 0, {}
    if state["updater"] is not None and run.step < run.total_steps:
        index = run.stage_index(run.step)
        if run.step > run.stages[index].begin:  # at a stage's first step everything begins anew
            run.begin_stage(index, fresh=False)
            moments = saved.own_names(state["updater"]["moments"], saved.library_names(run.policy.saved_names(), own))
            keys = _keys(run, {name: name for name in own})
            run.updater.load(state["updater"] | {"moments": [dict(moments.get(key, {})) for key in keys]})
            if state["beta"] is None:
                raise ValueError("it is in the middle of a stage and has no beta")
            run.kl_state, run.memory = replace(run.kl_state, beta=state["beta"]), state["running"]
            run.adaptive.load(state.get("adaptive", {}))
            run.draws, run.first_draws = state["draws"][0], {int(step): n for step, n in state["draws"][1]}


def roll_back(run: Run, path: Path) -> None:
    """Go on from a checkpoint of this run, under the controls now in force.

    Killed before the save below, a resumed run takes the abandoned steps again and comes to the same act; after it, it
    goes on under these controls. Later checkpoints go before the rows do: none is ever newer than the rows.
    """
    controls, watched = run.controls, run.watched
    _read(run, path)
    run.controls, run.watched = controls, watched
    save(run, prune=False)  # it may be the oldest
    if is_main():
        checkpoint.drop_after(run.folder.checkpoints, run.step)
    _cut_rows(run, path, run.step - 1)


@contextmanager
def accounted(run: Run) -> Iterator[None]:
    """Around the steps: an end by disk, memory or clock says what was saved and what is lost.

    Raises:
        TrainingError: the disk cannot be written, or memory has ended.
        Interrupted: the scheduler's time was over before the step was.
    """
    began = run.version, run.step

    def note(row: dict[str, Any], _: Run) -> None:
        nonlocal began
        began = run.version, run.step + 1

    run.observers.append(note)
    try:
        with writing(run.folder.path, lambda: _account(run)):
            yield
    except GraceOver:
        ahead = any(planned.sampled_ahead for planned in run.stages)
        if began == (run.version, run.step) and world_size() == 1 and not ahead:
            run.memory = run.memory_before
            save(run)
        raise Interrupted(
            Text(f"the grace time is over; {_account(run)}", f"宽限时间已过；{_account(run)}"),
            Text(f"continue with --resume {run.folder.path}", f"继续请用 --resume {run.folder.path}"),
        ) from None
    finally:
        run.observers.remove(note)


def _account(run: Run) -> str:
    """What there is to go on from, and what will have to be done again."""
    folder = run.folder.checkpoints
    last = checkpoint.newest(folder) if is_main() and folder.is_dir() else None
    if last is None:
        return "no checkpoint was saved"
    lost = run.step - checkpoint.step_of(last)
    again = "nothing is lost" if lost <= 0 else f"{lost} step(s) since then are lost"
    return f"saved: {last}, whole; {again}"


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
