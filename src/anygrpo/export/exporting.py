"""`anygrpo export`: a trained policy leaves in the form that its own library loads, certified, with a model card."""

from __future__ import annotations

import inspect
import json
import math
import re
from pathlib import Path
from typing import Any

import torch

from anygrpo import __version__
from anygrpo.core.intervals import Interval, interval, of_prompts, t_quantile
from anygrpo.errors import ConfigError
from anygrpo.export import own
from anygrpo.export.evaluating import parts_of
from anygrpo.export.opened import Opened
from anygrpo.export.own import RECIPE
from anygrpo.families import resolve
from anygrpo.files import json_value, one_line, whole_or_none, yaml_word
from anygrpo.recipe.load import dump_recipe
from anygrpo.spoken import Text
from anygrpo.train.folder import read_rows

USED = ("export.json", "certificate.json")
"""Where a family that writes no card says, under "use", how its export is loaded."""


def export(opened: Opened, folder: Path, form: str | None = None) -> list[Path]:
    """Write the policy to `folder`; the files.

    Args:
        form: the family's word for a format; its own choice where not given.

    Raises:
        ConfigError: a family without exports, or a format that it does not have.
        TrainingError: what was written does not give the policy's numbers in the plain library.
    """
    write = own.write if opened.family.export is None else resolve(opened.family.export)
    given: dict[str, Any] = {}
    if form is not None:
        if "format" not in inspect.signature(write).parameters:
            raise ConfigError(
                Text(
                    f"policies of the {opened.family.name} family have one format",
                    f"{opened.family.name} 一族的策略只有一种格式",
                ),
                Text("leave --format out", "请不要给出 --format"),
            )
        given["format"] = form
    if "recipe" in inspect.signature(write).parameters:
        given["recipe"] = opened.recipe
    files: list[Path] = list(write(opened.policy, folder, **given))
    if opened.family.export is not None:
        return _described(opened, folder, files)
    with whole_or_none([*files, folder / "README.md", folder / RECIPE, folder / own.CERTIFICATE]):
        files = _described(opened, folder, files)
        return [*files, _certified(opened, folder)]


def _described(opened: Opened, folder: Path, files: list[Path]) -> list[Path]:
    """The files with the card, and the recipe."""
    card = folder / "README.md"
    written = card.read_text(encoding="utf-8").rstrip() + "\n\n" if card.is_file() else _head(opened, folder)
    card.write_text(written + "\n".join(_measured(opened)), encoding="utf-8")
    if opened.recipe is not None:
        (folder / RECIPE).write_text(dump_recipe(opened.recipe), encoding="utf-8")
        files.append(folder / RECIPE)
    return [*files, card] if card not in files else files


def _certified(opened: Opened, folder: Path) -> Path:
    """The certificate of a policy of the user's own, which is opened with the recipe beside it; the card says where
    nothing was compared."""
    found = own.certify(opened.policy, opened.recipe, folder)
    if not found["compared"]:
        with (folder / "README.md").open("a", encoding="utf-8") as card:
            card.write(f"\n## Not compared\n\nNothing shows that these files say what the run says: {found['why']}\n")
    return folder / own.CERTIFICATE


def _head(opened: Opened, folder: Path) -> str:
    """The card of a family that writes none of its own: base, origin, licence, and how it is loaded."""
    about = _about(folder / own.CERTIFICATE)
    base = about.get("base") or (getattr(opened.recipe.policy, "model", None) if opened.recipe else None)
    front = f"---\nbase_model: {yaml_word(str(base))}\ntags: [anygrpo, grpo]\n---\n" if base else ""
    name = one_line(opened.recipe.name if opened.recipe else Path(opened.source).name)
    source = one_line(str(opened.source))
    lines = [f"{front}# {name}", "", f"Trained by GRPO with anygrpo {__version__}; exported from {source}.", ""]
    if base:
        lines += [f"Base model: `{one_line(str(base))}`. Its licence holds for these weights too.", ""]
    if started := about.get("started_from"):
        files = ", ".join(f"`{one_line(str(file))}`" for file in started)
        lines += [f"Training started from that base with {files} added, which is in these weights.", ""]
    here = json.dumps(one_line(f"./{folder.name}"))
    own_way = f'import anygrpo\nrows = anygrpo.load({here}).apply("prompts.jsonl", "out.jsonl")'
    use = (
        own_way
        if opened.family.export is None
        else next(filter(None, (_about(folder / n).get("use") for n in USED)), "")
    )
    lines += ["## Use", "", "```python", use, "```", ""] if use else []
    return "\n".join(lines) + "\n"


def _about(file: Path) -> dict[str, Any]:
    """What a family's certificate tells: how the export is loaded ("use"), its base, what training started from."""
    return dict(json_value(file.read_text(encoding="utf-8"))) if file.is_file() else {}


def _measured(opened: Opened) -> list[str]:
    """Evaluation with its intervals, recipe and fingerprints: what every card ends with."""
    lines: list[str] = []
    run = Path(opened.source.rpartition(" (")[0])
    if (rows := _evaluations(run)) and opened.step is not None:
        last = next((row for row in reversed(rows) if row["step"] < opened.step), rows[-1])
        rule = None if opened.recipe is None else opened.recipe.evaluation.success
        judge = None if rule is None else rule.component
        lines += ["## Evaluation", "", "| measure | before training | these weights |", "| --- | --- | --- |"]
        for name in sorted(key for key in last if key.startswith("eval/") and not re.search(r"_se(/|$)", key)):
            cells = (_cell(run, row, name, judge) for row in (rows[0], last))
            lines.append(f"| {name[5:]} | {' | '.join(cells)} |")
        lines += ["", "Held-out prompts of the recipe, with 95% intervals over prompts (not over seeds).", ""]
    if opened.recipe is not None:
        lines += [f"How it was trained and is used: {RECIPE}.", ""]
    prints = run / "fingerprints.json"
    if prints.is_file():
        lines += ["## Fingerprints", "", "```json", prints.read_text(encoding="utf-8").strip(), "```", ""]
    return lines


def _cell(run: Path, row: dict[str, Any], name: str, judge: str | None = None) -> str:
    """A number with its 95% interval: that of `anygrpo evaluate` where the run kept every prompt's value of it, else
    Student's; with its standard error alone where nothing says how many prompts are behind it.

    Args:
        judge: the measure that says what is right ("reward", "accuracy").
    """
    if name not in row:
        return "-"
    kept = _rows(run, int(row["step"]) + 1)
    if (found := _of_kind(kept, name.removeprefix("eval/"), row[name])) is not None:
        return f"{row[name]:.4g} [{found.low:.4g}, {found.high:.4g}]"
    values = _kept(kept, name.removeprefix("eval/"))
    error, count = row.get(f"{name}_se"), row.get("eval/prompts", 0) * (1 - row.get("eval/faults", 0.0))
    if values and math.isclose(sum(values) / len(values), row[name], rel_tol=1e-4, abs_tol=1e-6):
        found = of_prompts(torch.tensor(values, dtype=torch.float64), judge == name.removeprefix("eval/"))
        if not math.isfinite(found.high - found.low):  # one prompt says nothing of others
            return f"{row[name]:.4g}"
        return f"{row[name]:.4g} [{found.low:.4g}, {found.high:.4g}]"
    if error and round(count) > 1:
        half = t_quantile(round(count) - 1) * error
        return f"{row[name]:.4g} [{row[name] - half:.4g}, {row[name] + half:.4g}]"
    error = row.get(_error_of_part(name))
    return f"{row[name]:.4g}" + ("" if error is None else f" (standard error {error:.2g})")


def _error_of_part(name: str) -> str:
    """eval/psnr/rain -> eval/psnr_se/rain."""
    whole, _, part = name.rpartition("/")
    return f"{whole}_se/{part}"


def _rows(run: Path, step: int) -> list[dict[str, Any]]:
    """Each held-out prompt of one evaluation; none where they were not kept."""
    file = run / "evaluations" / f"step_{step:08d}.jsonl"
    return read_rows(file)[0] if file.is_file() else []


def _kept(rows: list[dict[str, Any]], name: str) -> list[float]:
    """Each prompt's reward, or its part of that name ("psnr"), but for faults of the machine."""
    if name != "reward":
        return parts_of(rows).get(name, [])
    return [float(row["reward"]) for row in rows if _finite(row.get("reward")) and not row.get("fault")]


def _of_kind(rows: list[dict[str, Any]], name: str, mean: float) -> Interval | None:
    """Of "psnr/rain": that part's interval over the prompts of a kind, where their rows name it (degradation: rain);
    several of one scene count as one. None where the rows do not say so, or have another mean."""
    part, _, kind = name.rpartition("/")
    told = [row for row in rows if part and isinstance(row.get("text"), dict) and kind in row["text"].values()]
    mine = [row for row in told if not row.get("fault") and _finite((row.get("components") or {}).get(part))]
    values = torch.tensor([row["components"][part] for row in mine], dtype=torch.float64)
    if len(mine) < 2 or not math.isclose(float(values.mean()), mean, rel_tol=1e-4, abs_tol=1e-6):
        return None
    scenes = [str(row["text"].get("scene", row["text"].get("picture", i))) for i, row in enumerate(mine)]
    found = interval(values, scenes)
    return found if found.units > 1 and math.isfinite(found.high - found.low) else None


def _evaluations(run: Path) -> list[dict[str, Any]]:
    file = run / "metrics.jsonl"
    if not file.is_file():
        return []
    rows, _ = read_rows(file)
    measured = [{k: v for k, v in row.items() if k.startswith("eval/")} for row in rows]
    return [row for row, found in zip(rows, measured) if found and all(map(_finite, found.values()))]


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
