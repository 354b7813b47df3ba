"""Text to motion on HumanML3D or KIT-ML as published, with rewards of the user's own."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygrpo.core import user_code
from anygrpo.core.task import Scores, Stored, Task, epoch_indices
from anygrpo.denoising.motion import measures, rewards
from anygrpo.denoising.motion.dataset import UNIT, Dataset, Item, load
from anygrpo.denoising.motion.features import LAYOUTS
from anygrpo.denoising.motion.humanml import recover
from anygrpo.denoising.motion.physical import physical
from anygrpo.denoising.motion.settings import HumanML3DTaskConfig
from anygrpo.denoising.motion.skeleton import JOINTS
from anygrpo.denoising.output_rewards import Reward, users
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text

Prompt = dict[str, Any]
COLUMNS = {"motions", "prompts", "features", "fps", "tokens"}
_KIT_CHAINS = ((0, 11, 12, 13, 14, 15), (0, 16, 17, 18, 19, 20), (0, 1, 2, 3, 4), (3, 5, 6, 7), (3, 8, 9, 10))
KIT_BONES = tuple((str(a), str(b)) for chain in _KIT_CHAINS for a, b in pairwise(chain))
"""KIT-ML's 21 joints by number: two legs, the spine, two arms."""
_BUILT_IN = {
    "skating": lambda body, fps: rewards.skating(body, fps),
    "floating": lambda body, fps: rewards.floating(body, fps),
    "contact": lambda body, fps: rewards.contact(body, fps),
    "floor": lambda body, fps: rewards.floor(body),
    "jerk": lambda body, fps: rewards.jerk(body, fps),
}


def build(config: HumanML3DTaskConfig, seed: int) -> PublishedMotionTask:
    """The task of a `[task] kind = "humanml3d"` section.

    Raises:
        DataError: the folder is not as published.
        ConfigError: a reward that could never be called, or a built-in one for another body.
    """
    train, kept = (load(Path(config.path), split) for split in (config.split, config.held_out_split))
    made: list[Reward] = []
    for table in config.rewards:
        name = table.name or (table.function or "").rpartition(":")[2] or table.kind
        if any(name == other.name for other in made):
            raise ConfigError(
                Text(f"two rewards are called {name!r}", f"有两个奖励都叫 {name!r}"),
                Text("give one of them another name", "请给其中一个换名称"),
            )
        if table.function is not None:
            made.append(Reward(name, table.weight, users(table.function, table.arguments, COLUMNS, "motions")))
            continue
        if train.kind.size != 263:
            raise ConfigError(
                Text(
                    f"the {table.kind} reward knows HumanML3D's joints, not {train.kind.name}'s",
                    f"{table.kind} 奖励认识 HumanML3D 的关节，不认识 {train.kind.name} 的",
                ),
                Text("a function", "请给出函数"),
            )
        made.append(Reward(name, table.weight, _physical(table.kind)))
    evaluator = user_code.load(config.evaluator)() if config.evaluator is not None else None
    return PublishedMotionTask(config, seed, train, kept, made, evaluator)


def _physical(kind: str) -> Any:
    part = _BUILT_IN[kind]
    body = lambda joints: dict(zip(JOINTS, joints.unbind(1)))  # noqa: E731
    return lambda rows: [part(body(m), fps) for m, fps in zip(rows["motions"], rows["fps"])]


class PublishedMotionTask(Task):
    """A prompt is {"caption", "tokens", "length", "item"}; held-out ones have "seed". Outputs are normalised [L, F]."""

    def __init__(
        self, config: HumanML3DTaskConfig, seed: int, train: Dataset, kept: Dataset, parts: list[Reward], evaluator: Any
    ) -> None:
        self.config, self.seed, self.train, self.kept = config, seed, train, kept
        self.rewards, self.evaluator, self.size = parts, evaluator, len(train.items)
        self.scaler, self.fps = train.scaler, train.kind.fps
        self.bones = LAYOUTS["humanml"].bones if train.kind.size == 263 else KIT_BONES

    def prompts(self, step: int, count: int) -> list[Prompt]:
        """Items in an order of their own each epoch, each with one of its captions; a third of them one unit of four
        frames shorter, as published."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        draw = lambda n: int(torch.randint(n, (1,), generator=generator))  # noqa: E731
        out = []
        for i in epoch_indices(self.size, step, count, self.seed):
            item = self.train.items[i]
            out.append(self._prompt(item, draw(len(item.captions)), shorter=draw(3) == 0) | {"item": i})
        return out

    def held_out(self) -> list[Prompt]:
        """The first items of the split by name, each with its first caption."""
        chosen = [(i, self.kept.items[i]) for i in self._measured()]
        return [self._prompt(item, 0, False) | {"item": i, "seed": n} for n, (i, item) in enumerate(chosen)]

    def _measured(self) -> list[int]:
        """Places of the measured items: the first by name."""
        return sorted(range(len(self.kept.items)), key=lambda i: self.kept.items[i].name)[: self.config.held_out]

    def drawn(self, generator: torch.Generator) -> list[Prompt]:
        """The measured items in a random order, each with a random one of its captions and the published lengths."""
        draw = lambda n: int(torch.randint(n, (1,), generator=generator))  # noqa: E731
        places, out = self._measured(), []
        for at in torch.randperm(len(places), generator=generator).tolist():
            item = self.kept.items[places[at]]
            out.append(self._prompt(item, draw(len(item.captions)), draw(3) == 0) | {"item": places[at]})
        return out

    def _prompt(self, item: Item, caption: int, shorter: bool) -> Prompt:
        length = min(item.length, self.config.frames // UNIT * UNIT)
        length -= UNIT if shorter and length > UNIT else 0
        said = item.captions[caption]
        return {"caption": said.text, "tokens": list(said.tokens), "length": length, "name": item.name}

    def identity(self, prompt: Prompt) -> Any:
        """The caption: lengths are drawn anew each time."""
        return prompt["caption"]

    def stored(self, prompts: list[Prompt]) -> Stored:
        """The items' own motions, normalised, from their first frame."""
        return Stored([[self.scaler.apply(self.train.items[p["item"]].features()[: p["length"]])] for p in prompts])

    def score(self, prompts: list[Prompt], outputs: list[list[Any]]) -> Scores:
        """Weighted sum of the rewards; a motion that one of them gives no number for is invalid, with its reason."""
        shape = (len(prompts), max(map(len, outputs)))
        reasons: dict[tuple[int, int], str] = {}
        places: list[tuple[int, int]] = []
        for p, row in enumerate(outputs):
            for g, motion in enumerate(row):
                why = self._unreadable(motion)
                if why:
                    reasons[(p, g)] = why
                else:
                    places.append((p, g))
        components = {r.name: torch.zeros(shape) for r in self.rewards}
        columns = self._columns([(prompts[p], outputs[p][g]) for p, g in places])
        for reward in self.rewards if places else ():
            for place, outcome in zip(places, reward.outcomes(columns, len(places))):
                if isinstance(outcome, str):
                    reasons.setdefault(place, f"{reward.name}: {outcome}")
                else:
                    components[reward.name][place] = outcome
        valid = torch.zeros(shape, dtype=torch.bool)
        for place in places:
            valid[place] = place not in reasons
        total = sum((r.weight * components[r.name] for r in self.rewards), torch.zeros(shape))
        return Scores(total, components, valid, reasons)

    def _columns(self, pairs: list[tuple[Prompt, Tensor]]) -> dict[str, list[Any]]:
        raw = [self.scaler.undo(motion.float().cpu()) for _, motion in pairs]
        return {
            "motions": [recover(x) for x in raw],
            "features": raw,
            "prompts": [prompt["caption"] for prompt, _ in pairs],
            "tokens": [prompt.get("tokens") for prompt, _ in pairs],
            "fps": [self.fps] * len(pairs),
        }

    def places(self, motion: Tensor) -> dict[str, Tensor]:
        """World positions {joint: [L, 3]} of a normalised motion (KIT's joints by number)."""
        joints = recover(self.scaler.undo(motion))
        names = JOINTS if joints.shape[1] == len(JOINTS) else tuple(map(str, range(joints.shape[1])))
        return dict(zip(names, joints.unbind(1)))

    def _unreadable(self, motion: Any) -> str | None:
        size = self.train.kind.size
        if not isinstance(motion, Tensor) or motion.dim() != 2 or motion.shape[1] != size:
            return f"not a motion: not a tensor of {size} numbers a frame"
        if len(motion) < UNIT:
            return f"too short: fewer than {UNIT} frames"
        return None if bool(torch.isfinite(motion).all()) else "not finite"

    def measure(self, prompts: list[Prompt], outputs: list[list[Any]]) -> dict[str, float]:
        """Physical measures of the outputs (HumanML3D's joints) beside the same items', and with an evaluator the
        published ones."""
        good = [(p, row[0]) for p, row in zip(prompts, outputs) if self._unreadable(row[0]) is None]
        if not good:
            return {}
        real = [self.kept.items[p["item"]].features()[: p["length"]] for p, _ in good]
        ours = self._columns(good)
        out: dict[str, float] = {}
        if self.train.kind.size == 263:
            for kind, motions in (("", ours["motions"]), ("_of_data", [recover(x) for x in real])):
                rows = [physical(m, self.fps) for m in motions]
                out |= {f"eval/motion/{k}{kind}": sum(r[k] for r in rows) / len(rows) for k in rows[0]}
        if self.evaluator is not None:
            out |= self._published([p for p, _ in good], ours["features"], real)
        return out

    @torch.no_grad()
    def _published(self, prompts: list[Prompt], ours: list[Tensor], real: list[Tensor]) -> dict[str, float]:
        words = self.evaluator.embed_texts(prompts)
        made, data = self.evaluator.embed_motions(ours), self.evaluator.embed_motions(real)
        out = {"eval/motion/fid": measures.frechet(made, data)}
        for kind, motions in (("", made), ("_of_data", data)):
            top = measures.r_precision(words, motions)
            out |= {f"eval/motion/r{k}{kind}": value for k, value in enumerate(top, 1) if value == value}
            out[f"eval/motion/matching_distance{kind}"] = measures.matching_distance(words, motions)
            generator = torch.Generator().manual_seed(0)
            out[f"eval/motion/spread{kind}"] = measures.spread(motions, measures.PAIRS, generator)
        return out
