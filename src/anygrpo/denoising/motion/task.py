"""The motion task: prompts, demonstrations, rewards, held-out measures, pictures."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygrpo.core.task import Scores, Stored, Task
from anygrpo.denoising.motion import rewards
from anygrpo.denoising.motion.bank import JUDGE_SPEEDS, REWARD_SPEEDS, Bank, build_bank, mean_motion, split_clips
from anygrpo.denoising.motion.captions import WORDINGS
from anygrpo.denoising.motion.clips import default_folder, load_clips
from anygrpo.denoising.motion.features import LAYOUTS, decode
from anygrpo.denoising.motion.matcher import Matcher, cached_matcher
from anygrpo.denoising.motion.measures import diversity, frechet
from anygrpo.denoising.motion.settings import MotionTaskConfig

ALONE = ("matching", "skating", "floor", "floating", "contact", "jerk", "limits", "duration")
"""Parts that a motion has by itself."""
PARTS = (*ALONE, "diversity")
Prompt = dict[str, Any]
FIRST_SEED = {"test": 1000, "validation": 500_000}
"""Of the noise seeds of a split's captions."""


def build(config: MotionTaskConfig, seed: int) -> MotionTask:
    """The task of a `[task] kind = "motion"` section.

    Raises:
        DataError: the clips are not fetched (scripts/fetch_motion.py), or CMU's are asked for and not installed.
    """
    folder = Path(config.path) if config.path else default_folder()
    return MotionTask(config, seed, *_material(folder, config.layout, config.frames, config.fps, config.cmu,
                                               config.matcher_steps, config.judge))  # fmt: skip


@lru_cache(maxsize=2)
def _material(
    folder: Path, layout: str, frames: int, fps: float, cmu: bool, steps: int, judge: str
) -> tuple[Bank, Bank, Matcher, Matcher]:
    """Windows of both splits and the two encoders. They don't depend on the run's seed, and take a while."""
    shown = judged = load_clips(folder, fps, cmu)
    if judge == "clips":
        shown, judged = split_clips(shown)
    bank = build_bank(shown, REWARD_SPEEDS, frames, fps, LAYOUTS[layout])
    kept = build_bank(judged, JUDGE_SPEEDS, frames, fps, LAYOUTS[layout], bank.scaler)
    texts = WORDINGS[judge]
    return bank, kept, cached_matcher(bank, steps, 0, texts.training), cached_matcher(kept, steps, 1, texts.judged)


class MotionTask(Task):
    """Endless training prompts; held-out captions with fixed seeds.

    A prompt is {"caption", "action", "length", "window"} or, with several captions in a row, {"captions", "actions",
    "lengths", "windows"}; held-out ones have "seed". Outputs are tensors [length, F] of standardised features.

    Args:
        bank: windows that the policy is shown and the reward's `matcher` learned from.
        kept: windows of other re-timings (`judge = "clips"`: and of other clips), which the `judge` of held-out samples
            learned from and is compared with.
    """

    def __init__(
        self, config: MotionTaskConfig, seed: int, bank: Bank, kept: Bank, matcher: Matcher, judge: Matcher
    ) -> None:
        self.config, self.seed, self.bank, self.kept = config, seed, bank, kept
        self.matcher, self.judge, self.layout = matcher, judge, LAYOUTS[config.layout]
        self.fps, self.bones = config.fps, self.layout.bones
        self.weights = {name: float(getattr(config, name)) for name in PARTS}
        self.texts = WORDINGS[config.judge]
        self.means = {action: mean_motion(windows) for action, windows in bank.windows.items()}

    # -- prompts ---------------------------------------------------------------------------------------------------

    def prompts(self, step: int, count: int) -> list[Prompt]:
        """A random action, one of its training captions, and a window whose length is the prompt's."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        return [self._prompt(generator, self.texts.training) for _ in range(count)]

    def held_out(self) -> list[Prompt]:
        """For each action, captions of the split, each with several seeds (in a row: followed by random actions')."""
        captions, start = getattr(self.texts, self.config.held_out_split), FIRST_SEED[self.config.held_out_split]
        generator, repeats = torch.Generator().manual_seed(12345), self.config.held_out_repeats
        out = []
        for action in self.kept.actions:
            for number in range(self.config.held_out):
                prompt = self._prompt(generator, captions, action, number)
                first = start + number // len(captions(action)) * repeats  # a caption that comes again has other seeds
                out += [prompt | {"seed": first + r} for r in range(repeats)]
        return out

    def _prompt(self, generator: torch.Generator, captions: Any, first: str | None = None, number: int = 0) -> Prompt:
        draw = lambda n: int(torch.randint(n, (1,), generator=generator))  # noqa: E731
        room = self.config.frames // self.config.captions
        rows: list[tuple[str, str, int, int]] = []
        actions = self.bank.actions if first is None else self.kept.actions  # the judge's windows
        for i in range(self.config.captions):
            action = first if first is not None and i == 0 else actions[draw(len(actions))]
            texts, windows = captions(action), self.bank.windows[action]
            text = texts[number % len(texts)] if first is not None else texts[draw(len(texts))]
            window = draw(len(windows))
            rows.append((text, action, min(room, len(windows[window].features)), window))
        names = ("caption", "action", "length", "window")
        columns = dict(zip(names, zip(*rows)))
        if self.config.captions == 1:
            return {name: column[0] for name, column in columns.items()}
        return {name + "s": list(column) for name, column in columns.items()}

    def identity(self, prompt: Prompt) -> Any:
        """The captions: lengths are drawn anew each time."""
        return prompt.get("captions", prompt.get("caption"))

    def stored(self, prompts: list[Prompt]) -> Stored:
        """The windows that the prompts were made from, as demonstrations."""
        return Stored([[torch.cat([self._window(*row[1:]) for row in rows_of(p)])] for p in prompts])

    def _window(self, action: str, length: int, window: int) -> Tensor:
        return self.bank.windows[action][window].features[:length]

    # -- reward ----------------------------------------------------------------------------------------------------

    def score(self, prompts: list[Prompt], outputs: list[list[Any]]) -> Scores:
        """Weighted mean of the parts, each in [0, 1]; a motion that is no finite [>= 4, F] tensor is invalid."""
        shape = (len(prompts), max(map(len, outputs)))
        valid = torch.zeros(shape, dtype=torch.bool)
        reasons, good = {}, []
        for p, row in enumerate(outputs):
            for g, motion in enumerate(row):
                why = self._unreadable(motion)
                if why:
                    reasons[(p, g)] = why
                else:
                    valid[p, g] = True
                    good.append((p, g, motion.cpu()))
        components = {name: torch.zeros(shape) for name in PARTS}
        for (p, g, _), parts in zip(good, self.parts([(prompts[p], m) for p, _, m in good])):
            for name, value in parts.items():
                components[name][p, g] = value
        if self.weights["diversity"]:
            for p, g, motion in good:
                components["diversity"][p, g] = self.spread(prompts[p], motion)
        total = sum(self.weights.values())
        reward = sum((components[n] * (w / total) for n, w in self.weights.items()), torch.zeros(shape))
        return Scores(reward, {n: components[n] for n in PARTS if self.weights[n]}, valid, reasons)

    def spread(self, prompt: Prompt, motion: Tensor) -> float:
        """The diversity part: mean over a motion's segments."""
        scores = [rewards.diversity(piece, *self.means[action]) for _, action, piece in pieces_of(prompt, motion)]
        return sum(scores) / len(scores)

    def _unreadable(self, motion: Any) -> str | None:
        if not isinstance(motion, Tensor) or motion.dim() != 2 or motion.shape[1] != self.layout.size:
            return f"not a motion: not a tensor of {self.layout.size} numbers a frame"
        if len(motion) < 4:
            return "too short: fewer than 4 frames"
        return None if bool(torch.isfinite(motion).all()) else "not finite"

    def parts(self, pairs: list[tuple[Prompt, Tensor]]) -> list[dict[str, float]]:
        """All parts that a motion has by itself, of (prompt, motion) pairs, whatever their weight."""
        matching = self.agreement(self.matcher, pairs)
        return [self._physical(prompt, motion) | {"matching": m} for (prompt, motion), m in zip(pairs, matching)]

    def agreement(self, matcher: Matcher, pairs: list[tuple[Prompt, Tensor]]) -> list[float]:
        """Mean over a motion's segments of the agreement of each with its own caption."""
        texts, pieces, owner = [], [], []
        for i, (prompt, motion) in enumerate(pairs):
            for text, _, piece in pieces_of(prompt, motion):
                texts.append(text)
                pieces.append(piece)
                owner.append(i)
        if not pieces:
            return []
        score, index = matcher.score(texts, pieces), torch.tensor(owner)
        sums = torch.zeros(len(pairs)).index_add(0, index, score)
        return (sums / torch.bincount(index)).tolist()

    def _physical(self, prompt: Prompt, motion: Tensor) -> dict[str, float]:
        places = self.places(motion)
        return {
            "skating": rewards.skating(places, self.config.fps),
            "floor": rewards.floor(places),
            "floating": rewards.floating(places, self.config.fps),
            "contact": rewards.contact(places, self.config.fps),
            "jerk": rewards.jerk(places, self.config.fps),
            "limits": rewards.limits(places),
            "duration": rewards.duration(len(motion), sum(row[2] for row in rows_of(prompt))),
        }

    def places(self, motion: Tensor) -> dict[str, Tensor]:
        """World positions {joint: [length, 3]} of a motion of standardised features."""
        return decode(self.bank.scaler.undo(motion.cpu()), self.layout)

    # -- held-out measures and pictures ------------------------------------------------------------------------------

    def measure(self, prompts: list[Prompt], outputs: list[list[Any]]) -> dict[str, float]:
        """The judge's agreement, its Frechet distance to captured motion, diversity within captions, and every physical
        part: none of them but the parts with a weight is what the reward optimises."""
        pairs = [(p, row[0].cpu()) for p, row in zip(prompts, outputs) if self._unreadable(row[0]) is None]
        if not pairs:
            return {}
        judged = self.agreement(self.judge, pairs)
        physical = [self._physical(p, m) for p, m in pairs]
        out = {f"eval/motion/{n}": sum(x[n] for x in physical) / len(pairs) for n in ALONE if n != "matching"}
        out["eval/motion/judge"] = sum(judged) / len(pairs)
        out["eval/motion/diversity"] = diversity([(str(rows_of(p)), m) for p, m in pairs])
        real = [self.captured_like(p, i) for i, (p, _) in enumerate(pairs)]
        with torch.no_grad():
            ours, theirs = (self.judge.embed_motions(x) for x in ([m for _, m in pairs], real))
        out["eval/motion/frechet"] = frechet(ours, theirs)
        return out

    def captured_like(self, prompt: Prompt, number: int) -> Tensor:
        """A captured motion for the same captions, from the judge's windows."""
        pieces = []
        for _, action, length, _ in rows_of(prompt):
            windows = self.kept.windows[action]
            pieces.append(windows[number * 7 % len(windows)].features[:length])
        return torch.cat(pieces)

    def pictures(
        self, prompts: list[Prompt], before: list[list[Any]], after: list[list[Any]], folder: Path
    ) -> list[Path]:
        """For each prompt a strip of poses (PNG) and an animation (GIF), before above or beside after; their paths."""
        from anygrpo.core.lettering import label
        from anygrpo.denoising.motion.pictures import draw

        made = []
        for i, prompt in enumerate(prompts):
            title = ", then ".join(row[0] for row in rows_of(prompt))
            labels = label("before", "训练前"), label("after", "训练后")
            pair = {name: self.places(motions[i][0]) for name, motions in zip(labels, (before, after))}
            made += draw(title, pair, self.layout.bones, self.config.fps, folder / f"motion_{i:02d}")
        return made


def pieces_of(prompt: Prompt, motion: Tensor) -> list[tuple[str, str, Tensor]]:
    """(caption, action, its frames) of each of a prompt's captions; of those after a motion's end, its last frame."""
    out, start = [], 0
    for text, action, length, _ in rows_of(prompt):
        piece = motion[start : start + length]
        out.append((text, action, piece if len(piece) else motion[-1:]))
        start += length
    return out


def rows_of(prompt: Prompt) -> list[tuple[str, str, int, int]]:
    """(caption, action, length, window) of each of a prompt's captions."""
    if "caption" in prompt:
        return [(prompt["caption"], prompt["action"], prompt["length"], prompt["window"])]
    return list(zip(prompt["captions"], prompt["actions"], prompt["lengths"], prompt["windows"]))
