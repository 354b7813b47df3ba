"""A run none of whose first samples can be used, and that learns from nothing else."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from anygrpo.core.rollout import Rollout
from anygrpo.errors import TrainingError
from anygrpo.spoken import Text

STEPS = 5
"""Steps in which every sample was invalid, and none before them was valid, after which a run ends."""


@dataclass
class Unusable:
    """Counts steps of samples that the policy drew, where nothing else teaches. One bad sample, or a bad hour of an
    endpoint later on, is data; a run that is resumed inside a stage is not judged."""

    steps: int = 0
    over: bool = False
    why: Counter[str] = field(default_factory=Counter)

    def begin(self, fresh: bool) -> None:
        """A stage begins, or (not `fresh`) is gone on with by a resume, which knows nothing of what was before."""
        self.over = self.over or not fresh

    def see(self, rollout: Rollout, elsewhere: bool = False) -> None:
        """What a step drew; `elsewhere`: it learnt from given actions or demonstrations.

        Raises:
            TrainingError: nothing could be learnt from any of the first `STEPS` steps.
        """
        if elsewhere:
            return
        self.over = self.over or bool((rollout.valid & rollout.present).any())
        if self.over or not bool(rollout.present.any()):
            return
        self.steps += 1
        self.why.update(str(reason) for reason in rollout.reasons.values())
        if self.steps < STEPS:
            return
        (reason, count), *_ = self.why.most_common(1) or [("", 0)]
        raise TrainingError(
            Text(
                f"no sample of the first {STEPS} steps could be used"
                + (f": {reason[:200]}, {count} times" if reason else ""),
                f"前 {STEPS} 步没有任何样本可用" + (f"：{reason[:200]}，{count} 次" if reason else ""),
            ),
            Text(
                "mend what judges or answers them; `anygrpo check` tries it before training",
                "请修正评分或环境；`anygrpo check` 可在训练前检查",
            ),
        )
