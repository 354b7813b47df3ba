"""Restoration as a task: a pool of degraded crops to train on, whole held-out pictures to evaluate."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygrpo.core.task import Scores, Stored, Task, epoch_indices
from anygrpo.errors import ConfigError
from anygrpo.gates.restoration import worst
from anygrpo.gates.restoration.degradations import degrade, uniform
from anygrpo.gates.restoration.photographs import Picture
from anygrpo.gates.restoration.quality import Quality
from anygrpo.gates.restoration.strips import write_strips
from anygrpo.gates.settings import DegradationSection, RestorationSection

Prompt = dict[str, Any]
"""{"degraded": [3, H, W], "clean": [3, H, W], "degradation", "strength", "picture"}."""
HELD_OUT = 2_000_000_011
"""Offset of the seeds of held-out degradations: never one of the training pool's."""
CACHED = 8192


class RestorationTask(Task):
    """Prompts are crops (training) or whole pictures (held out) with their clean versions.

    The training pool is finite: index -> (picture, degradation, crop, strength) is a pure function of the seed, so a
    curriculum can rank it; each sample is made when it is first asked for, and the latest `CACHED` are kept.

    Args:
        train, held_out: pictures of either side of the split.
        config: the recipe's section.
        quality: the reward.
        seed: of crops, strengths and degradations.
    """

    def __init__(
        self, train: list[Picture], held_out: list[Picture], config: RestorationSection, quality: Quality, seed: int
    ) -> None:
        self.train, self.test, self.config, self.quality, self.seed = train, held_out, config, quality, seed
        small = [p.name for p in train if min(p.clean.shape[1:]) < config.patch]
        if small:
            raise ConfigError(
                f"patch = {config.patch} is larger than {len(small)} pictures ({', '.join(small[:3])})",
                "take a smaller task.patch or a larger task.picture_size",
            )
        self.pool = range(len(train) * len(self._kinds(train[0])) * config.crops)
        self.kept = list(self.pool)
        if config.worst is not None and config.worst.file is not None:
            self.kept = worst.load(Path(config.worst.file), self.key())
        self.cache: dict[int, Prompt] = {}
        self._held: list[Prompt] | None = None

    @property
    def size(self) -> int:  # type: ignore[override]
        return len(self.kept)

    def prompts(self, step: int, count: int) -> list[Prompt]:
        return [self.sample(self.kept[i]) for i in epoch_indices(self.size, step, count, self.seed)]

    def sample(self, index: int) -> Prompt:
        """The training sample at `index` of the pool."""
        if index not in self.cache:
            if len(self.cache) >= CACHED:
                self.cache.pop(next(iter(self.cache)))
            self.cache[index] = self._made(index)
        return self.cache[index]

    def _made(self, index: int) -> Prompt:
        kinds = self._kinds(self.train[0])
        place, crop = divmod(index, self.config.crops)
        picture, kind = self.train[place // len(kinds)], kinds[place % len(kinds)]
        g = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
        side = self.config.patch
        y, x = (int(torch.randint(n - side + 1, (), generator=g)) for n in picture.clean.shape[1:])
        cut = lambda image: image[:, y : y + side, x : x + side]  # noqa: E731
        return self._prompt(picture, kind, cut, self.seed * 1_000_003 + index, g) | {"crop": crop}

    def held_out(self) -> list[Prompt]:
        """Every held-out picture, whole, in every degradation, so many times as the recipe says (pairs: once)."""
        if self._held is None:
            self._held = []
            draws = 1 if self.test[0].degraded is not None else self.config.held_out_draws
            for k, (i, picture) in itertools.product(range(draws), enumerate(self.test)):
                for j, kind in enumerate(self._kinds(picture)):
                    seed = HELD_OUT + 1_000_003 * k + 1009 * i + j
                    g = torch.Generator().manual_seed(seed)
                    self._held.append(self._prompt(picture, kind, lambda image: image, seed, g))
        return self._held

    def score(self, prompts: list[Prompt], outputs: list[list[Tensor]]) -> Scores:
        """Reward per output; an output of another shape or with a non-finite number is invalid."""
        shape = len(outputs), len(outputs[0])
        reasons: dict[tuple[int, int], str] = {}
        by_size: dict[torch.Size, list[tuple[int, int]]] = {}
        for p, row in enumerate(outputs):
            for g, x in enumerate(row):
                if x.shape != prompts[p]["clean"].shape:
                    reasons[p, g] = "shape differs from the clean picture"
                else:
                    by_size.setdefault(x.shape, []).append((p, g))
        rewards, components = torch.zeros(shape), {}
        for places in by_size.values():
            p, g = torch.tensor(places).T
            restored = torch.stack([outputs[i][j] for i, j in places])
            for place in (~torch.isfinite(restored).flatten(1).all(1)).nonzero()[:, 0].tolist():
                reasons[places[place]] = "non-finite pixel"
            once, row = p.unique(return_inverse=True)
            clean = torch.stack([prompts[i]["clean"] for i in once.tolist()]).to(restored.device)[row]
            values = {name: x.cpu() for name, x in self.quality.measures(restored.nan_to_num(), clean).items()}
            rewards[p, g] = self.quality.reward(values) - self._start(prompts, p.tolist())
            for name, x in values.items():
                components.setdefault(name, torch.zeros(shape))[p, g] = x
        valid = torch.ones(shape, dtype=torch.bool)
        for place in reasons:
            valid[place] = False
        return Scores(rewards, components, valid, reasons)

    def _start(self, prompts: list[Prompt], places: list[int]) -> Tensor:
        """[n]: the reward of the degraded pictures themselves where rewards are relative, else 0."""
        if not self.config.relative:
            return torch.zeros(len(places))
        rewards = {
            i: self.quality.reward(self.quality.measures(prompts[i]["degraded"][None], prompts[i]["clean"][None]))
            for i in dict.fromkeys(places)
        }
        return torch.cat([rewards[i] for i in places])

    def stored(self, prompts: list[Prompt]) -> Stored:
        """The clean pictures: what a supervised stage trains towards."""
        return Stored([[p["clean"]] for p in prompts])

    def measure(self, prompts: list[Prompt], outputs: list[list[Tensor]]) -> dict[str, float]:
        """Mean PSNR and SSIM, over all and per degradation with standard errors over pictures (twice that is a 95%
        interval), and the share of pictures outside the PSNR range."""
        rows: dict[str, list[tuple[float, float, float]]] = {}
        for prompt, (x, *_) in zip(prompts, outputs):
            values = self.quality.measures(x[None], prompt["clean"][None].to(x.device))
            row = (float(values["psnr"]), float(values["ssim"]), float(self.quality.outside(values)))
            rows.setdefault(prompt["degradation"], []).append(row)
        everything = torch.tensor([r for part in rows.values() for r in part], dtype=torch.float64).mean(0).tolist()
        out = {"eval/psnr": everything[0], "eval/ssim": everything[1], "eval/psnr_outside": everything[2]}
        for name, part in rows.items():
            values = torch.tensor(part, dtype=torch.float64)
            mean, n = values.mean(0).tolist(), len(part)
            out |= {f"eval/psnr/{name}": mean[0], f"eval/ssim/{name}": mean[1]}
            if n > 1:
                error = (values.std(0) / n**0.5).tolist()
                out |= {f"eval/psnr_se/{name}": error[0], f"eval/ssim_se/{name}": error[1]}
        return out

    def pictures(
        self, prompts: list[Prompt], before: list[list[Tensor]], after: list[list[Tensor]], folder: str | Path
    ) -> list[Path]:
        """PNG strips degraded | before | after | clean, one file a degradation. Outputs are [P][1]."""
        return write_strips(prompts, before, after, folder)

    def prepare(self, outputs_of: Callable[[list[Prompt]], list[list[Tensor]]], folder: Path) -> None:
        """Rank the pool by the start model (prompts -> outputs [P][1]) and keep each degradation's worst share.

        Does nothing without `worst` in the recipe, or where a ranking was given. A ranking already in `folder` is read,
        so a resumed run keeps its samples.
        """
        if self.config.worst is None or self.config.worst.file is not None:
            return
        path = folder / "worst_samples.json"
        if not path.exists():
            rewards: list[float] = []
            names: list[str] = []
            for a in range(0, len(self.pool), 32):
                prompts = [self.sample(i) for i in self.pool[a : a + 32]]
                rewards += self.score(prompts, outputs_of(prompts)).rewards[:, 0].tolist()
                names += [p["degradation"] for p in prompts]
            worst.save(path, worst.worst_of(rewards, names, self.config.worst.share), self.key())
        self.kept = worst.load(path, self.key())

    def key(self) -> str:
        """Names the pool: changes with pictures, degradations, crops, patch and seed."""
        pictures = ",".join(f"{p.name}:{tuple(p.clean.shape)}" for p in self.train)
        kinds = ",".join(f"{k.name}:{k.low}:{k.high}" for k in self.config.degradations)
        text = f"{pictures}|{kinds}|{self.config.crops}|{self.config.patch}|{self.seed}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _kinds(self, picture: Picture) -> list[DegradationSection | None]:
        return [None] if picture.degraded is not None else list(self.config.degradations)

    def _prompt(
        self,
        picture: Picture,
        kind: DegradationSection | None,
        cut: Callable[[Tensor], Tensor],
        seed: int,
        g: torch.Generator,
    ) -> Prompt:
        clean = cut(picture.clean)
        if kind is None:
            assert picture.degraded is not None
            assert self.config.folder is not None
            name, strength, degraded = self.config.folder.name, 0.0, cut(picture.degraded)
        else:
            name, strength = kind.name, uniform(kind.low, kind.high, g)
            degraded = degrade(clean, name, strength, seed)
        return {
            "degraded": degraded,
            "clean": clean,
            "degradation": name,
            "strength": round(strength, 4),  # for readers
            "picture": picture.name,
        }
