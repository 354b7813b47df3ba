"""Using a trained denoiser: prompts to PNG, captions to motions (npy, BVH, GIF). Resumable: what is there is kept."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from anygrpo.core.applied import OF, made_by
from anygrpo.core.build import build_task
from anygrpo.denoising.image.pictures import is_picture, to_image
from anygrpo.errors import AnygrpoError, ConfigError, DataError
from anygrpo.files import json_value, lines_of
from anygrpo.spoken import Text, say

if TYPE_CHECKING:
    from anygrpo.denoising.policy import DiffusionPolicy

ROWS = "rows.jsonl"
log = logging.getLogger("anygrpo")
_AT_ONCE = 4


def apply(
    policy: DiffusionPolicy,
    inputs: Any,
    out: str | Path | None,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    task: Any = None,
    recipe: Any = None,
) -> list[dict[str, Any]]:
    """Make one output for each input, each a function of (weights, input, seed + its number) alone.

    Args:
        inputs: a text, or the path of a file of them (.txt: one a line; .jsonl: objects); or a list of these, or dicts
            with "prompt" or "caption" ("length" in frames where the policy makes motions; the policy's longest where
            there is none; "seed" wins over the argument).
        out: a folder: 00000.png ..., or 00000.npy (joints [L, J, 3] in metres), .bvh, .gif; and rows.jsonl.
        progress: called with (done, all).
        task: what made the policy's training motions, to turn features into joints; without it a motion's .npy holds
            the policy's own (normalised) features [L, F], and there is no BVH and GIF.
        recipe: whose task that is, where no task is given.

    Returns:
        A row an input: {"index", "prompt", "seed", "files", "of"}. Rows of an earlier, interrupted call whose input,
        seed and weights (`of`) are the same and whose files are there are taken as they are.

    Raises:
        ConfigError: no folder to write to, or an input without a text. DataError: a file that cannot be read.
    """
    if out is None:
        raise ConfigError(
            Text("pictures and motions go into a folder", "图像与动作要写入文件夹"),
            Text("name one: apply(inputs, out)", "请给出文件夹：apply(inputs, out)"),
        )
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    prompts = [_prompt(policy, given, seed + i) for i, given in enumerate(_listed(inputs))]
    if not prompts:
        raise DataError(Text("there is no prompt", "没有提示"), Text("give at least one", "请至少给出一个"))
    if task is None and recipe is not None and len(policy.parts.shape) == 2:
        task = _task_of(recipe)
    of = made_by(policy, steps=policy.config.steps, sampler=policy.config.sampler, task=task is not None)
    rows = {i: row for i, row in _earlier(out, prompts).items() if row.get(OF) == of}
    todo = [i for i in range(len(prompts)) if i not in rows]
    for at in range(0, len(todo), _AT_ONCE):
        part = todo[at : at + _AT_ONCE]
        made = policy.decode(policy.greedy([prompts[i] for i in part]).samples)
        for i, (output, *_) in zip(part, made):
            rows[i] = {"index": i, "prompt": prompts[i], "seed": prompts[i]["seed"], OF: of}
            rows[i]["files"] = _write(output, prompts[i], out / f"{i:05d}", task)
        _save(out, rows)
        if progress is not None:
            progress(len(rows), len(prompts))
    return [rows[i] for i in range(len(prompts))]


def _listed(inputs: Any) -> list[Any]:
    """Texts and records of what a person gives."""
    if isinstance(inputs, (str, Path, dict)):
        inputs = [inputs]
    out: list[Any] = []
    for given in inputs:
        file = isinstance(given, Path) or (isinstance(given, str) and given.endswith((".txt", ".jsonl")))
        out += _of_file(Path(given)) if file else [given]
    return out


def _of_file(file: Path) -> list[Any]:
    try:
        lines = [line for line in lines_of(file.read_text(encoding="utf-8-sig")) if line.strip()]
        return [json_value(line) for line in lines] if file.suffix in (".jsonl", ".json") else lines
    except (OSError, ValueError) as error:
        raise DataError(
            Text(f"{file} cannot be read: {error}", f"{file} 无法读取：{error}"),
            Text("a .txt file of prompts, or .jsonl of objects", "应为提示的 .txt 文件，或对象的 .jsonl 文件"),
        ) from None


def _task_of(recipe: Any) -> Any:
    """The task of the recipe's last stage; None, and said, where it cannot be had (its data are elsewhere)."""
    try:
        return build_task(recipe.resolved_stages()[-1].task, recipe.seed)
    except AnygrpoError as error:
        log.warning(
            say(
                "no BVH and GIF, features in place of joints: the run's task is not to be had: %s",
                "没有 BVH 和 GIF，以特征代替关节：无法得到这次运行的任务：%s",
            ),
            error.what,
        )
        return None


def _prompt(policy: DiffusionPolicy, given: Any, seed: int) -> dict[str, Any]:
    prompt = dict(given) if isinstance(given, dict) else {"prompt": str(given)}
    text = prompt.get("prompt", prompt.get("caption"))
    if text is None and "captions" not in prompt:
        raise ConfigError(
            Text(f"an input has no text: {sorted(prompt)}", f"有一个输入没有文本：{sorted(prompt)}"),
            Text('give it "prompt" or "caption"', '请给出 "prompt" 或 "caption"'),
        )
    if text is not None:
        prompt = {"prompt": text, "caption": text} | prompt
        if len(policy.parts.shape) == 2:
            prompt.setdefault("length", int(policy.parts.shape[0]))
    return {"seed": seed} | prompt


def _earlier(out: Path, prompts: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    file = out / ROWS
    try:
        lines = lines_of(file.read_text(encoding="utf-8")) if file.is_file() else []
        rows = {int(row["index"]): row for row in map(json_value, lines)}
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            Text(f"{file} holds no rows of an apply: {error}", f"{file} 中没有 apply 的行：{error}"),
            Text("name another folder", "请换一个文件夹"),
        ) from None
    plain = [json.loads(json.dumps(p, default=str)) for p in prompts]
    same = lambda i, row: row.get("prompt") == plain[i] and row.get("seed") == plain[i]["seed"]  # noqa: E731
    whole = lambda row: all((out / f).is_file() for f in row.get("files", ()))  # noqa: E731
    return {i: row for i, row in rows.items() if i < len(prompts) and same(i, row) and whole(row)}


def _save(out: Path, rows: dict[int, dict[str, Any]]) -> None:
    """rows.jsonl, whole or not at all."""
    part = out / f".{ROWS}"
    part.write_text("".join(json.dumps(rows[i], ensure_ascii=False, default=str) + "\n" for i in sorted(rows)), "utf-8")
    part.replace(out / ROWS)


def _write(output: Any, prompt: dict[str, Any], stem: Path, task: Any) -> list[str]:
    """The output's files beside `stem`; their names."""
    if is_picture(output):
        if output.dim() == 3:
            to_image(output).save(stem.with_suffix(".png"))
            return [stem.with_suffix(".png").name]
        first, *rest = [to_image(frame) for frame in output]
        first.save(stem.with_suffix(".gif"), save_all=True, append_images=rest, duration=62, loop=0)
        return [stem.with_suffix(".gif").name]
    if isinstance(output, Tensor) and output.dim() == 2:
        return _write_motion(output, prompt, stem, task)
    torch.save(output, stem.with_suffix(".pt"))
    return [stem.with_suffix(".pt").name]


def _write_motion(motion: Tensor, prompt: dict[str, Any], stem: Path, task: Any) -> list[str]:
    import numpy as np

    from anygrpo.denoising.motion import bvh
    from anygrpo.denoising.motion.pictures import draw
    from anygrpo.denoising.motion.skeleton import JOINTS

    names = [stem.with_suffix(".npy").name]
    if task is None or not hasattr(task, "places"):
        np.save(stem.with_suffix(".npy"), motion.cpu().numpy())
        return names
    places: dict[str, Tensor] = task.places(motion.cpu())
    np.save(stem.with_suffix(".npy"), torch.stack(list(places.values()), 1).numpy())
    if set(JOINTS) <= places.keys():
        stem.with_suffix(".bvh").write_text(bvh.write(torch.stack([places[j] for j in JOINTS], 1), task.fps))
        names.append(stem.with_suffix(".bvh").name)
    title = str(prompt.get("caption", ", then ".join(prompt.get("captions", []))))
    strip, gif = draw(title, {"": places}, task.bones, task.fps, stem)
    return [*names, gif.name, strip.name]
