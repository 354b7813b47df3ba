"""Weights of a policy of the user's own, written, read back, and certified in a process of their own.

python -m anygrpo.export.own JOB.json      opens the export there and scores the rows of the job
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from anygrpo.core.build import build_policy, build_task
from anygrpo.core.policy import Policy
from anygrpo.core.saved import library_names
from anygrpo.core.tensor_files import read_tensors, write_tensors
from anygrpo.core.trained import load_state, state_of
from anygrpo.core.tree import Shared, Tree, tree_map
from anygrpo.errors import AnygrpoError, ConfigError, TrainingError
from anygrpo.recipe.load import load_recipe
from anygrpo.recipe.recipe import Recipe
from anygrpo.scratch import Scratch
from anygrpo.spoken import Text

FILE, CERTIFICATE = "model.safetensors", "export.json"
RECIPE = "recipe.toml"
"""The run's recipe beside an export: how the policy was used in training."""
PROMPTS, GROUP = 8, 2
TOLERANCE = 1e-4
"""Largest difference of a decision's log-probability, in nats."""
WHOLE, REAL = "greedy/whole", "greedy/real"
"""Tables of greedy outputs: token ids and picks are compared exactly."""


def write(policy: Policy, folder: Path) -> list[Path]:
    """The trained weights by the names of the policy's own module (or of its library, where it says them)."""
    if folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(
            Text(f"{folder} is not empty", f"{folder} 不是空的"),
            Text("--to another folder", "请用 --to 给出另一个文件夹"),
        )
    folder.mkdir(parents=True, exist_ok=True)
    state = state_of(policy.trainable())
    names = library_names(policy.saved_names(), state)
    write_tensors(folder / FILE, {names[name]: tensor for name, tensor in state.items()})
    return [folder / FILE]


def read(folder: Path, section: Any, seed: int) -> Policy:
    """The policy that the recipe's section makes, with the weights of an export.

    Raises:
        ConfigError: the weights are of another policy than the factory makes now; names or shapes are said.
    """
    policy: Policy = build_policy(section.model_copy(update={"model": None}), seed)  # all of it is in the export
    load_state(policy.trainable(), read_tensors(folder / FILE), policy.saved_names())
    return policy


def certify(policy: Policy, recipe: Recipe[Any, Any] | None, folder: Path) -> dict[str, Any]:
    """What the export says when it is opened in a process of its own: differences of log-probabilities of sampled
    decisions, and of greedy outputs, on held-out prompts. Written to export.json.

    Args:
        recipe: beside the export already, as RECIPE.

    Raises:
        TrainingError: it cannot be opened there, or a log-probability or a greedy output differs.
    """
    found = _compared(policy, recipe, folder)
    (folder / CERTIFICATE).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return found


def _compared(policy: Policy, recipe: Recipe[Any, Any] | None, folder: Path) -> dict[str, Any]:
    try:
        rows = drawn(policy, _prompts(recipe))
    except AnygrpoError as error:
        return {"compared": False, "why": str(error).splitlines()[0]}
    with Scratch("export") as place:
        job, made = place / "job.json", place / "made.safetensors"
        save_file(rows.tensors, place / "rows.safetensors")
        said = {
            "folder": str(folder.resolve()), "form": rows.form, "rows": str(place / "rows.safetensors"),
            "made": str(made), "decisions": rows.mask.shape[1], "threads": torch.get_num_threads(),
        }  # fmt: skip
        job.write_text(json.dumps(said), encoding="utf-8")
        words = [sys.executable, "-m", "anygrpo.export.own", str(job)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            _refuse(
                Text(
                    f"the export cannot be opened in a process of its own: {last}",
                    f"导出在单独的进程中无法打开：{last}",
                )
            )
        there = load_file(made)
    away = _largest((there["log_probs"] - rows.log_probs)[rows.mask])
    out = {"compared": True, "prompts": rows.prompts, "decisions": int(rows.mask.sum()), "log_probs": away}
    if rows.greedy is not None:
        out["other_greedy"] = _rows_apart(there, rows.greedy, rows.prompts)
    if not away <= TOLERANCE:
        _refuse(
            Text(
                f"opened in a process of its own, the export's log-probabilities differ by {away:.3g} nats",
                f"在单独的进程中打开后，导出的对数概率相差 {away:.3g} nat",
            )
        )
    if out.get("other_greedy"):
        other, count = out["other_greedy"], rows.prompts
        _refuse(
            Text(
                f"{other} of {count} greedy outputs of the export differ",
                f"导出的 {count} 个贪心输出中有 {other} 个不同",
            )
        )
    return out | {"torch": torch.__version__}


def _refuse(what: Text) -> NoReturn:
    raise TrainingError(
        what
        + Text(
            f" (allowed: {TOLERANCE:g} nats, no greedy output): it was taken away",
            f"（允许：{TOLERANCE:g} nat，贪心输出不得不同）：已删除",
        ),
        Text(
            "a part that decides its outputs is not a trainable weight, or does not follow from the factory's seed",
            "决定其输出的某一部分不是可训练的权重，或不由工厂函数的种子决定",
        ),
    )


def _prompts(recipe: Recipe[Any, Any] | None) -> list[Any]:
    if recipe is None:
        raise ConfigError(
            Text("no recipe: nothing says which prompts to compare on", "没有配方：没有说明用哪些提示比较")
        )
    task = build_task(recipe.resolved_stages()[-1].task, recipe.seed)
    return list(task.held_out()[:PROMPTS]) or list(task.prompts(0, PROMPTS))


# -- what is compared --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drawn:
    """Sampled rows with their scores here, in a form that files hold.

    Attributes:
        form: of the samples' tree, as JSON; its tensors are numbers into `tensors`.
        log_probs, mask: [N, T].
        greedy: all numbers of each prompt's greedy sample, `WHOLE` [P, n] int64 and `REAL` [P, m] float64; None for a
            policy without a greedy mode.
    """

    form: Any
    tensors: dict[str, Tensor]
    log_probs: Tensor
    mask: Tensor
    greedy: dict[str, Tensor] | None
    prompts: int


@torch.no_grad()
def drawn(policy: Policy, prompts: list[Any]) -> Drawn:
    """Rows for `prompts` by the policy's own sampling, scored by its own `evaluate`.

    Raises:
        ConfigError: its samples hold what JSON and tensors do not.
    """
    rollout = policy.sample(prompts, GROUP, 0)
    samples = tree_map(lambda x: x.flatten(0, 1), rollout.samples)
    tensors: dict[str, Tensor] = {}
    form = _packed(samples, tensors)
    log_probs = policy.evaluate(samples, slice(0, rollout.shape[2])).log_probs.float().cpu()
    mask = rollout.mask.flatten(0, 1).cpu()
    return Drawn(form, tensors, log_probs, mask, _greedy(policy, prompts), len(prompts))


def _greedy(policy: Policy, prompts: list[Any]) -> dict[str, Tensor] | None:
    if type(policy).greedy is Policy.greedy:
        return None
    tensors: dict[str, Tensor] = {}
    _packed(policy.greedy(prompts).samples, tensors)
    rows = [x.flatten(1) for x in tensors.values() if x.dim() and len(x) == len(prompts)]
    real = [x.double() for x in rows if x.is_floating_point()]
    whole = [x.long() for x in rows if not x.is_floating_point()]
    return {name: torch.cat(found, 1) for name, found in ((WHOLE, whole), (REAL, real)) if found} or None


def _rows_apart(there: dict[str, Tensor], here: dict[str, Tensor], rows: int) -> int:
    """Rows that differ: whole numbers (tokens, picks) at all, real ones by more than `TOLERANCE`."""
    apart = torch.zeros(rows, dtype=torch.bool)
    for name in (WHOLE, REAL):
        other, own = there.get(name), here.get(name)
        if other is None or own is None or other.shape != own.shape:
            apart |= other is not own
        elif name == WHOLE:
            apart |= (other != own).any(1)
        else:
            apart |= ~torch.isclose(other, own, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True).all(1)
    return int(apart.sum())


def _largest(difference: Tensor) -> float:
    return float(difference.abs().max()) if difference.numel() else 0.0


def _packed(tree: Tree, tensors: dict[str, Tensor]) -> Any:
    """The tree's form; its tensors are put into `tensors`."""
    if isinstance(tree, dict):
        return {"dict": {key: _packed(value, tensors) for key, value in tree.items()}}
    if isinstance(tree, Shared):
        values = {name: _packed(x, tensors) for name, x in tree.values.items()}
        return {"shared": values, "index": _packed(tree.index, tensors)}
    if isinstance(tree, Tensor):
        tensors[str(len(tensors))] = tree.detach().cpu().contiguous().clone()
        return {"tensor": str(len(tensors) - 1)}
    if tree is None or isinstance(tree, bool | int | float | str):
        return {"plain": tree}
    raise ConfigError(
        Text(
            f"its samples hold a {type(tree).__name__}, which is neither tensor, number nor text",
            f"它的样本中有 {type(tree).__name__}，既不是张量、数，也不是文本",
        )
    )


def _unpacked(form: Any, tensors: dict[str, Tensor]) -> Tree:
    if "dict" in form:
        return {key: _unpacked(value, tensors) for key, value in form["dict"].items()}
    if "shared" in form:
        values = {name: _unpacked(x, tensors) for name, x in form["shared"].items()}
        return Shared(values, _unpacked(form["index"], tensors))
    return tensors[form["tensor"]] if "tensor" in form else form["plain"]


# -- the other process -------------------------------------------------------------------------------------------------


@torch.no_grad()
def main(job: dict[str, Any]) -> None:
    """Open the export, score the job's rows, and write what it says."""
    torch.set_num_threads(job["threads"])
    recipe = load_recipe(Path(job["folder"]) / RECIPE)
    policy = read(Path(job["folder"]), recipe.policy, recipe.seed)
    device = next(iter(policy.trainable().parameters())).device
    samples = tree_map(lambda x: x.to(device), _unpacked(job["form"], load_file(job["rows"])))
    made = {"log_probs": policy.evaluate(samples, slice(0, job["decisions"])).log_probs.float().cpu()}
    greedy = _greedy(policy, _prompts(recipe))
    save_file(made | (greedy or {}), job["made"])


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
