"""Restoration as a task: a pool of degraded crops to train on, whole held-out pictures to evaluate."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from anygrpo.core.task import Scores, Stored, Task, epoch_indices
from anygrpo.errors import ConfigError
from anygrpo.gates.restoration import worst
from anygrpo.gates.restoration.degradations import enlarged
from anygrpo.gates.restoration.patches import placed, rewards_by_patch
from anygrpo.gates.restoration.photographs import Picture
from anygrpo.gates.restoration.pool import HeldOut, Pool, Prompt, by_group, mixed
from anygrpo.gates.restoration.quality import Quality, as_saved
from anygrpo.gates.restoration.settings import RestorationConfig
from anygrpo.gates.restoration.strips import write_strips
from anygrpo.spoken import Text

log = logging.getLogger("anygrpo")
BEYOND = 0.25
"""Share of numbers far outside of [0, 1] that is told."""
LOOKS = 16
"""Batches that are looked at for it: each look waits for the GPU, and the range is the network's own from the start."""


class RestorationTask(Task):
    """Prompts are crops (training) or whole pictures (held out) with their clean versions.

    The training pool is finite: index -> (picture, degradation, crop, strength) is a pure function of the seed, so a
    curriculum can rank it; files are read and samples made when they are asked for, and the latest are kept.

    Args:
        train, held_out: pictures of either side of the split.
        config: the recipe's section.
        quality: the reward.
        seed: of crops, strengths and degradations.
    """

    def __init__(
        self, train: list[Picture], held_out: list[Picture], config: RestorationConfig, quality: Quality, seed: int
    ) -> None:
        self.train, self.test, self.config, self.quality, self.seed = train, held_out, config, quality, seed
        small = [p.name for p in train if min(p.size) < config.patch]
        if small:
            raise ConfigError(
                Text(
                    f"patch = {config.patch} is larger than {len(small)} pictures ({', '.join(small[:3])})",
                    f"patch = {config.patch} 大于 {len(small)} 张图像（{', '.join(small[:3])}）",
                ),
                Text(
                    "take a smaller task.patch or a larger task.picture_size",
                    "请减小 task.patch，或增大 task.picture_size",
                ),
            )
        self._looks = 0
        self._pool = Pool(train, config, seed)
        self.pool = range(len(self._pool))
        self._held = HeldOut(Pool(held_out, config, seed), config.held_out_repeats)
        self._keep(list(self.pool))
        if config.worst is not None and config.worst.file is not None:
            self._keep(worst.load(Path(config.worst.file), self.key()))

    def _keep(self, kept: list[int]) -> None:
        self.kept = kept
        self._groups = by_group(kept, self._pool.group)
        shares = {group: one.share for group, one in enumerate(self.config.every_set())}
        self._shares = {group: float(share) for group, share in shares.items() if share and group in self._groups}

    @property
    def size(self) -> int:  # type: ignore[override]
        return len(self.kept)

    def prompts(self, step: int, count: int) -> list[Prompt]:
        if self._shares:
            return [self.sample(i) for i in mixed(self._groups, self._shares, step, count, self.seed)]
        return [self.sample(self.kept[i]) for i in epoch_indices(self.size, step, count, self.seed)]

    def sample(self, index: int) -> Prompt:
        """The training sample at `index` of the pool."""
        return self._pool.crop(index)

    def held_out(self) -> HeldOut:  # type: ignore[override]
        """Every held-out picture, whole, in every degradation, so many times as the recipe says (pairs: once)."""
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
        rewards, components, parts = torch.zeros(shape), {}, []
        for places in by_size.values():
            p, g = torch.tensor(places).T
            restored = torch.stack([outputs[i][j] for i, j in places])
            for place in (~torch.isfinite(restored).flatten(1).all(1)).nonzero()[:, 0].tolist():
                reasons[places[place]] = "non-finite pixel"
            once, row = p.unique(return_inverse=True)
            clean = torch.stack([prompts[i]["clean"] for i in once.tolist()]).to(restored.device)[row]
            self._range(restored)
            values = {name: x.cpu() for name, x in self.quality.measures(restored.nan_to_num(), clean).items()}
            rewards[p, g] = self.quality.reward(values) - self._start(prompts, p.tolist())
            for name, x in values.items():
                components.setdefault(name, torch.zeros(shape))[p, g] = x
            if side := self.config.reward_patch:
                saved, c = as_saved(restored.nan_to_num()), self.config
                parts.append((p, g, rewards_by_patch(saved, clean, side, c.psnr_low, c.psnr_high)))
        valid = torch.ones(shape, dtype=torch.bool)
        for place in reasons:
            valid[place] = False
        return Scores(rewards, components, valid, reasons, parts=placed(parts, shape) if parts else None)

    def _range(self, restored: Tensor) -> None:
        """Tells once, of the first outputs, where they are in another range than pictures."""
        if self._looks >= LOOKS:
            return
        self._looks += 1
        wide, below = (float(x.float().mean()) for x in (restored > 1.5, restored < -0.2))
        if max(wide, below) < BEYOND:
            return
        self._looks = LOOKS
        likely = "0 to 255" if wide > below else "-1 to 1"
        share, low, high = max(wide, below), float(restored.min()), float(restored.max())
        told = Text(
            f"{share:.0%} of the restored numbers lie far beyond [0, 1] ({low:.3g} to {high:.3g}) and are clipped; if "
            f"the network's range is {likely}, scale its output",
            f"复原结果中 {share:.0%} 的数远在 [0, 1] 之外（{low:.3g} 到 {high:.3g}），会被截断；"
            f"若网络的范围是 {likely}，请缩放它的输出",
        )
        log.warning("%s", told.said())

    def _start(self, prompts: list[Prompt], places: list[int]) -> Tensor:
        """[n]: the reward of the degraded pictures themselves where rewards are relative, else 0."""
        if not self.config.relative:
            return torch.zeros(len(places))
        rewards = {
            i: self.quality.reward(self.quality.measures(self._plain(prompts[i])[None], prompts[i]["clean"][None]))
            for i in dict.fromkeys(places)
        }
        return torch.cat([rewards[i] for i in places])

    def _plain(self, prompt: Prompt) -> Tensor:
        """The degraded picture at the clean one's size."""
        return enlarged(prompt["degraded"], self.config.scale)

    def stored(self, prompts: list[Prompt]) -> Stored:
        """The clean pictures: what a supervised stage trains towards."""
        return Stored([[p["clean"]] for p in prompts])

    def measure(self, prompts: list[Prompt], outputs: list[list[Tensor]]) -> dict[str, float]:
        """Mean PSNR and SSIM, over all and per degradation with standard errors over pictures (twice that is a 95%
        interval), and the share of pictures outside the PSNR range."""
        rows: dict[str, list[list[float]]] = {}
        further = list(self.quality.plugins)
        for prompt, (x, *_) in zip(prompts, outputs):
            values = self.quality.measures(x[None], prompt["clean"][None].to(x.device), everything=True)
            row = [float(values["psnr"]), float(values["ssim"]), float(self.quality.outside(values))]
            row += [self.quality.reported(name, float(values[name])) for name in further]
            rows.setdefault(prompt["degradation"], []).append(row)
        everything = torch.tensor([r for part in rows.values() for r in part], dtype=torch.float64).mean(0).tolist()
        names = ["eval/psnr", "eval/ssim", "eval/psnr_outside", *(f"eval/measure/{name}" for name in further)]
        out = dict(zip(names, everything))
        for name, part in rows.items():
            values = torch.tensor(part, dtype=torch.float64)
            mean, n = values.mean(0).tolist(), len(part)
            out |= {f"eval/psnr/{name}": mean[0], f"eval/ssim/{name}": mean[1]}
            out |= {f"eval/measure/{one}/{name}": x for one, x in zip(further, mean[3:])}
            if n > 1:
                error = (values.std(0) / n**0.5).tolist()
                out |= {f"eval/psnr_se/{name}": error[0], f"eval/ssim_se/{name}": error[1]}
        return out

    def pictures(
        self, prompts: list[Prompt], before: list[list[Tensor]], after: list[list[Tensor]], folder: str | Path
    ) -> list[Path]:
        """PNG strips degraded | before | after | clean, one file a degradation. Outputs are [P][1]."""
        shown = [{**p, "degraded": self._plain(p)} for p in prompts]
        return write_strips(shown, before, after, folder)

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
        self._keep(worst.load(path, self.key()))

    def key(self) -> str:
        """Names the pool: changes with pictures, degradations, crops and seed."""
        c = self.config
        pictures = ",".join(f"{p.group}:{p.name}:{p.size}:{len(p.degraded)}" for p in self.train)
        kinds = [*c.degradations, *(d for one in c.every_set() for d in one.degradations or ())]
        told = ",".join(f"{k.name}:{k.low}:{k.high}" for k in kinds)
        text = f"{pictures}|{told}|{c.crops}|{c.patch}|{c.margin}|{c.augment}|{c.scale}|{self.seed}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]
