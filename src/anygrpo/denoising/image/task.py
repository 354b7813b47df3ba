"""Text to picture: prompts from a file, rewards that look at pictures."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygrpo.core.task import Scores, Task, epoch_indices
from anygrpo.denoising.image.rewards import build_rewards
from anygrpo.denoising.image.settings import ImageTaskConfig
from anygrpo.denoising.output_rewards import Reward
from anygrpo.errors import DataError, suggestion
from anygrpo.files import json_value, lines_of
from anygrpo.spoken import Text

Prompt = dict[str, Any]


def build(config: ImageTaskConfig, seed: int) -> ImageTask:
    """The task of a `[task] kind = "images"` section.

    Raises:
        DataError: no prompts, a broken line, nothing left for training or for evaluation.
        ConfigError: a reward that could never be called.
    """
    rows = read_prompts(config.path, config.prompt_column)
    if config.held_out_path is not None:
        held_out = read_prompts(config.held_out_path, config.prompt_column)
        kept = {row["prompt"] for row in held_out}
        train = [row for row in rows if row["prompt"] not in kept]
    else:
        train = [row for row in rows if _share(row["prompt"]) >= config.held_out_share]
        held_out = [row for row in rows if _share(row["prompt"]) < config.held_out_share]
    for name, part in (("training", train), ("evaluation", held_out)):
        if not part:
            raise DataError(
                Text(
                    f"of {len(rows)} prompts in {config.path} none is left for {name}",
                    f"{config.path} 的 {len(rows)} 个提示中，没有一个留给 {name}",
                ),
                _other_share([_share(row["prompt"]) for row in rows])
                + Text("give more prompts, or task.held_out_path", "请增加提示，或给出 task.held_out_path"),
            )
    return ImageTask(config, seed, train, held_out, build_rewards(config.rewards, train, held_out))


def _other_share(shares: list[float]) -> Text:
    """The least share that holds a prompt out, to two digits; nothing where it leaves none to train on."""
    least = math.floor(min(shares, default=1.0) * 100 + 1) / 100
    count = sum(share < least for share in shares)
    if count == len(shares):
        return Text("", "")
    return Text(
        f"task.held_out_share = {least:g} holds {'one' if count == 1 else count} out; or ",
        f"task.held_out_share = {least:g} 可留出 {count} 个；或",
    )


def read_prompts(path: str, column: str) -> list[Prompt]:
    """{"prompt": text, other columns} of each line; the first of lines with one prompt.

    Raises:
        DataError: no file, a line that is no object or has no text in `column`; with its number.
    """
    file = Path(path)
    if not file.is_file():
        raise DataError(
            Text(f"no prompt file {path}, looked in {Path.cwd()}", f"没有提示文件 {path}，查找位置 {Path.cwd()}"),
            Text("correct task.path", "请改正 task.path"),
        )
    rows: dict[str, Prompt] = {}
    for number, line in enumerate(lines_of(file.read_text(encoding="utf-8-sig")), 1):
        if line.strip():
            row = _row(line, f"{path}, line {number}", column, file.suffix in (".jsonl", ".json"))
            rows.setdefault(row["prompt"], row)
    return list(rows.values())


def _row(line: str, where: str, column: str, objects: bool) -> Prompt:
    if not objects:
        return {"prompt": line.strip()}
    try:
        value = json_value(line)
    except ValueError as error:
        raise DataError(
            Text(f"{where}: broken JSON: {error}", f"{where}：JSON 已损坏：{error}"),
            Text("write one JSON object a line", "请每行写一个 JSON 对象"),
        ) from None
    if not isinstance(value, dict):
        raise DataError(
            Text(f"{where}: a {type(value).__name__}, not an object", f"{where}：是 {type(value).__name__}，不是对象"),
            Text("write one JSON object a line", "请每行写一个 JSON 对象"),
        )
    text = value.pop(column, None)
    if not isinstance(text, str) or not text.strip():
        raise DataError(
            Text(
                f"{where}: no text in column {column!r}; {suggestion(column, value)}",
                f"{where}：{column!r} 列没有文本；{suggestion(column, value)}",
            ),
            Text("set task.prompt_column", "请设置 task.prompt_column"),
        )
    return value | {"prompt": text}


def _share(prompt: str) -> float:
    """A number in [0, 1) that only the prompt decides."""
    return int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:7], "big") / 2**56


class ImageTask(Task):
    """Outputs are pictures [3, H, W] (or videos [F, 3, H, W]) in [0, 1]."""

    def __init__(
        self, config: ImageTaskConfig, seed: int, train: list[Prompt], held_out: list[Prompt], rewards: list[Reward]
    ) -> None:
        self.config, self.seed, self.rewards = config, seed, rewards
        self.train, self.kept, self.size = train, held_out, len(train)

    def prompts(self, step: int, count: int) -> list[Prompt]:
        """Training prompts in an order of their own each epoch."""
        return [self.train[i] for i in epoch_indices(self.size, step, count, self.seed)]

    def held_out(self) -> list[Prompt]:
        """Each evaluation prompt with several seeds, the first seed of all prompts first."""
        return [row | {"seed": s} for s in range(self.config.held_out_repeats) for row in self.kept]

    def score(self, prompts: list[Prompt], outputs: list[list[Any]]) -> Scores:
        """Weighted sum of the rewards; a picture that one of them gives no number for is invalid, with its reason."""
        shape = (len(prompts), max(map(len, outputs)))
        reasons: dict[tuple[int, int], str] = {}
        places, images = [], []
        for p, row in enumerate(outputs):
            for g, image in enumerate(row):
                why = _unreadable(image)
                if why:
                    reasons[(p, g)] = why
                else:
                    places.append((p, g))
                    images.append(image.detach().float().cpu())
        components = {r.name: torch.zeros(shape) for r in self.rewards}
        reward, valid = torch.zeros(shape), torch.zeros(shape, dtype=torch.bool)
        if places:
            self._fill(prompts, places, images, components, reasons)
        for p, g in places:
            valid[p, g] = (p, g) not in reasons
        for r in self.rewards:
            reward += r.weight * components[r.name]
        return Scores(reward, components, valid, reasons)

    def _fill(
        self,
        prompts: list[Prompt],
        places: list[tuple[int, int]],
        images: list[Tensor],
        components: dict[str, Tensor],
        reasons: dict[tuple[int, int], str],
    ) -> None:
        rows = [prompts[p] for p, _ in places]
        names = {key for row in (*self.train, *self.kept) for key in row} - {"prompt"}
        columns: dict[str, list[Any]] = {name: [row.get(name) for row in rows] for name in sorted(names)}
        columns |= {"images": images, "prompts": [row["prompt"] for row in rows]}
        for reward in self.rewards:
            outcomes = reward.outcomes(columns, len(images))
            for place, outcome in zip(places, outcomes):
                if isinstance(outcome, str):
                    reasons.setdefault(place, f"{reward.name}: {outcome}")
                else:
                    components[reward.name][place] = outcome

    def pictures(
        self, prompts: list[Prompt], before: list[list[Any]], after: list[list[Any]], folder: Path
    ) -> list[Path]:
        """One grid (PNG): a column a prompt with its seed, before above after."""
        from anygrpo.core.lettering import label
        from anygrpo.denoising.image.pictures import grid

        file = folder / "before_above_after.png"
        folder.mkdir(parents=True, exist_ok=True)
        seed = label("seed", "种子")
        labels = [p["prompt"] + (f"\n{seed} {p['seed']}" if "seed" in p else "") for p in prompts]
        heads = label("before", "训练前"), label("after", "训练后")
        grid([[row[0] for row in before], [row[0] for row in after]], labels, heads).save(file)
        return [file]


def _unreadable(image: Any) -> str | None:
    if not isinstance(image, Tensor) or image.dim() not in (3, 4) or image.shape[-3] not in (1, 3):
        return "not a picture: no tensor [3, H, W] or [F, 3, H, W]"
    return None if bool(torch.isfinite(image).all()) else "not finite"
