"""Opening what was trained: a run, one of its checkpoints, an export, or a base model, as a policy that can be used."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anygrpo.core.build import build_policy
from anygrpo.core.hub import is_name, located
from anygrpo.core.policy import Policy
from anygrpo.core.trained import load_state
from anygrpo.errors import ConfigError, DataError, suggestion
from anygrpo.export import own
from anygrpo.export.own import RECIPE
from anygrpo.families import Family, families, family_of, resolve
from anygrpo.models import weights
from anygrpo.recipe.load import load_recipe
from anygrpo.recipe.recipe import Recipe
from anygrpo.recipe.written import refuse_own_code
from anygrpo.spoken import Text
from anygrpo.train import checkpoint, schema

_WHOSE = Text(
    "name the recipe of their network: evaluate --task RECIPE, apply --like RECIPE, load(path, like=...)",
    "请给出其网络的配方：evaluate --task RECIPE、apply --like RECIPE，或 load(path, like=...)",
)


@dataclass(frozen=True)
class Opened:
    """A policy with its weights in place.

    Attributes:
        source: what was named, and which weights of it.
        family: whose policy it is.
        recipe: of the run, or beside an export; None for a base model.
        step: the checkpoint's; None where there is none.
    """

    policy: Policy
    source: str
    family: Family
    recipe: Recipe | None = None
    step: int | None = None

    def apply(self, inputs: Any, out: str | Path | None = None, **settings: Any) -> list[dict[str, Any]]:
        """The policy's outputs: answers, picks, images, motions, restored pictures; a row an input.

        Args:
            settings: of the family's apply (seed, samples, draws, candidates, ...); None: as if not given.

        Raises:
            ConfigError: this family makes nothing that can be applied, or has no such setting.
        """
        if self.family.apply is None:
            raise ConfigError(
                Text(
                    f"policies of the {self.family.name} family have no apply",
                    f"{self.family.name} 一族的策略没有 apply",
                ),
                Text("use `policy.greedy` in Python", "请在 Python 中用 `policy.greedy`"),
            )
        act = resolve(self.family.apply)
        known = set(inspect.signature(act).parameters) - {"policy", "inputs", "out", "recipe"}
        given = {key: value for key, value in settings.items() if value is not None}
        for key in given.keys() - known:
            name = self.family.name
            said = Text(
                f"policies of the {name} family are not applied with {key!r}", f"{name} 一族的 apply 不接受 {key!r}"
            )
            raise ConfigError(said, suggestion(key, known - {"progress", "task"}))
        if "recipe" in inspect.signature(act).parameters:
            given["recipe"] = self.recipe
        rows: list[dict[str, Any]] = act(self.policy, inputs, out, **given)
        return rows


def load(
    path: str | Path, checkpoint: str | int = "best", *, like: Any = None, trust: bool = False, **settings: Any
) -> Opened:
    """Open a run folder, a checkpoint's folder, an export, or (families that know such) a base model by name;
    also by the name of the Hub's repository that holds it.

    Args:
        checkpoint: of a run: "best" (the newest where none is called best), "last", or a step.
        like: a policy's section whose settings (lengths, templates, ...) an export or a base model is used with; of
            anybody's file of weights it says the network.
        trust: run Python code that lies in an export's folder (a network of its maker's own).
        settings: keys of the policy's section to change, device = "cpu" say.

    Raises:
        DataError: nothing there, or no such checkpoint.
        ConfigError: a run whose policy was an object in memory; a folder whose code would have to be run.
    """
    source, folder = str(path), located(path)
    path = folder if is_name(path) else path
    if (folder / "config.toml").is_file():
        return _of_run(folder, _chosen(folder, checkpoint), settings)
    if (folder / "manifest.json").is_file() and (folder.parent.parent / "config.toml").is_file():
        return _of_run(folder.parent.parent, folder, settings)
    recipe = beside(folder / RECIPE)
    if like is None and recipe is not None:  # an export of ours: used as it was trained
        like = recipe.policy
    if recipe is not None and (owner := family_of(recipe.policy.kind)) and owner.load is None:
        section = type(recipe.policy).model_validate(recipe.policy.model_dump(exclude_unset=True) | settings)
        return Opened(own.read(folder, section, recipe.seed), source, owner, recipe)
    theirs = family_of(like.kind) if like is not None else None
    for family in sorted(families(), key=lambda one: one is not theirs):  # whose settings are given is asked first
        if family.load is None:
            continue
        act = resolve(family.load)
        more = {"trust": True} if trust and "trust" in inspect.signature(act).parameters else {}
        if (policy := act(str(path), like, **settings, **more)) is not None:
            return Opened(policy, source, family, recipe)
    if theirs is not None and folder.exists():
        return Opened(_with_weights(like, folder, settings), source, theirs, recipe)
    raise DataError(
        Text(f"{path} holds nothing that can be opened", f"{path} 中没有可打开的内容"),
        _WHOSE
        if weights.is_file(folder)
        else Text(
            "give a run folder, a checkpoint, an export, or a model's name",
            "请给出运行文件夹、检查点、导出，或模型名称",
        ),
    )


def _with_weights(like: Any, place: Path, settings: dict[str, Any]) -> Policy:
    """The policy of a section with somebody's weights: what training would start from with `model = place`.

    Raises:
        DataError: they do not fit; the report of names and shapes is in the message.
    """
    given, starts = like.model_dump(exclude_unset=True) | {"kind": like.kind}, "model" in type(like).model_fields
    given |= {"model": str(place)} if starts else {}
    policy: Policy = build_policy(type(like).model_validate(given | settings), 0)
    if not starts:
        weights.load(policy.trainable(), place)
    return policy


def beside(file: Path) -> Recipe | None:
    """The recipe beside an export; code that lies there with it is refused."""
    if not file.is_file():
        return None
    recipe = load_recipe(file)
    refuse_own_code(recipe.model_dump(mode="json"), file)
    return recipe


def _chosen(run: Path, which: str | int) -> Path:
    """The checkpoint of a run that is meant."""
    folder = run / "checkpoints"
    if which == "best" and checkpoint.is_complete(folder / "best"):
        return folder / "best"
    if which in ("best", "last"):
        found = checkpoint.newest(folder)
    else:
        found = next((p for p in checkpoint.complete(folder) if checkpoint.step_of(p) == int(which)), None)
    if found is None:
        known = ", ".join(str(checkpoint.step_of(p)) for p in checkpoint.complete(folder)) or "none"
        raise DataError(
            Text(f"{run} has no checkpoint {which!r}", f"{run} 没有检查点 {which!r}"),
            Text(f"its checkpoints are of steps: {known}", f"它的检查点在以下各步：{known}"),
        )
    return found


def _of_run(run: Path, weights: Path, settings: dict[str, Any]) -> Opened:
    recipe = load_recipe(run / "config.toml")
    section = type(recipe.policy).model_validate(recipe.policy.model_dump(exclude_unset=True) | settings)
    policy = build_policy(section, recipe.seed)
    tensors, state = checkpoint.load(weights)
    schema.check(state, weights)
    load_state(policy.trainable(), tensors)
    policy.version = state.get("version", 0)
    with schema.fitting(weights):
        policy.opened(state.get("policy") or {})
    family = family_of(recipe.policy.kind)
    assert family is not None
    return Opened(policy, f"{run} ({weights.name})", family, recipe, state["step"])
