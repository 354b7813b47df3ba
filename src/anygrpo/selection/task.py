"""What all selection tasks share: parts to scores, nearest neighbours, accuracy at every number of shots."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from anygrpo.core.task import Scores, Task
from anygrpo.selection.rewards import NEEDS, reward
from anygrpo.selection.settings import RewardConfig

Selection = tuple[int, ...]
Prompt = dict[str, Any]


DECIDES = 30
"""Fewer judged picks than this choose no checkpoint."""


class Judge(Protocol):
    """Anything that says how good selections are for a prompt."""

    def held_out(self) -> list[Prompt]:
        """Evaluation prompts, the same whatever the run's seed."""
        raise NotImplementedError

    def judge(self, prompts: list[Prompt], selections: list[list[Selection]]) -> dict[str, Tensor]:
        """Parts by name, each [P, G]; NaN where a selection could not be scored."""
        ...


class SelectionTask(Task):
    """Scores selections of candidate positions; subclasses say how one is judged.

    Attributes:
        shots: picks that count for the reward.
        reward: the mode and its weights.
        reward_shots: prefixes whose rewards are averaged; empty: the first `shots` picks alone.
    """

    shots: int
    reward_shots: tuple[int, ...] = ()
    reward: RewardConfig

    def judge(self, prompts: list[Prompt], selections: list[list[Selection]]) -> dict[str, Tensor]:
        """Parts ("correct", "gt_prob", ...) by name, each [P, G]; NaN where a selection could not be scored."""
        raise NotImplementedError

    def score(self, prompts: list[Prompt], outputs: list[list[Selection]]) -> Scores:
        """Rewards of the first `shots` picks of each output (or the mean over `reward_shots` prefixes), less `per_shot`
        for each pick; what cannot be judged is invalid, with a reason, and unknown: no fault of the selection's, so
        that evaluation leaves it out and counts it. Likeness to the query is a component only where the reward counts
        it: it is no measure of success that should rise with the reward."""
        lengths = self.reward_shots or (self.shots,)
        every = [self.judge(prompts, [[tuple(o[:k]) for o in row] for row in outputs]) for k in lengths]
        rewards = torch.stack([reward(parts, self.reward) for parts in every]).mean(0)
        rewards = rewards - self.reward.per_shot * torch.stack([_picks(outputs, k) for k in lengths]).mean(0)
        needs = NEEDS[self.reward.mode]
        names = [name for name in every[0] if name != "relevance" or name in needs]
        parts = {name: torch.stack([x[name] for x in every]).mean(0) for name in names}
        valid = torch.isfinite(rewards)
        failed = map(tuple, (~valid).nonzero().tolist())
        reasons = dict.fromkeys(failed, self.why_invalid)
        return Scores(torch.where(valid, rewards, 0.0), parts, valid, reasons, faults=~valid if reasons else None)

    why_invalid: str = "the selection could not be scored"

    def measure(self, prompts: list[Prompt], outputs: list[list[Selection]]) -> dict[str, float]:
        """eval/accuracy at the reward's shots, and eval/accuracy_shots_k for every prefix that outputs hold, over what
        is judged. Where some is not: how many are, and whether these are enough to choose a checkpoint by."""
        longest = max((len(o) for row in outputs for o in row), default=0)
        found = {k: self._judged(prompts, outputs, k) for k in range(1, max(longest, self.shots) + 1)}
        row = {f"eval/accuracy_shots_{k}": float(x.mean()) for k, x in found.items() if x is not None and len(x)}
        if (at_all := found[self.shots]) is not None:
            row |= {"eval/accuracy": float(at_all.mean())} if len(at_all) else {}
            if len(at_all) < (n := sum(map(len, outputs))):
                row |= {"eval/in_support": len(at_all) / n, "eval/judged": float(len(at_all))}
                row["eval/decides"] = float(len(at_all) >= DECIDES)
        row["eval/shots"] = sum(len(o[: self.shots]) for r in outputs for o in r) / max(1, sum(map(len, outputs)))
        return row

    def _judged(self, prompts: list[Prompt], outputs: list[list[Selection]], k: int) -> Tensor | None:
        """Correctness of what is judged; None where the judge has no "correct"."""
        correct = self.judge(prompts, [[tuple(o[:k]) for o in row] for row in outputs]).get("correct")
        return None if correct is None else correct[torch.isfinite(correct)]


def _picks(outputs: list[list[Selection]], k: int) -> Tensor:
    """[P, G]: picks among the first k of each output."""
    return torch.tensor([[float(len(o[:k])) for o in row] for row in outputs])


def nearest(prompt: Prompt, k: int) -> Selection:
    """The k candidates with the largest cosine to the query, nearest first; excluded ones left out."""
    similarity = F.cosine_similarity(prompt["candidates"], prompt["query"][None], dim=-1)
    similarity[list(prompt.get("excluded", ()))] = -torch.inf
    k = min(k, len(similarity) - len(set(prompt.get("excluded", ()))))
    return tuple(similarity.topk(k).indices.tolist())


def random_selection(prompt: Prompt, k: int, seed: int) -> Selection:
    """k choosable candidates in random order."""
    excluded = set(prompt.get("excluded", ()))
    open_ = [i for i in range(len(prompt["candidates"])) if i not in excluded]
    order = torch.randperm(len(open_), generator=torch.Generator().manual_seed(seed))
    return tuple(open_[i] for i in order[:k].tolist())
