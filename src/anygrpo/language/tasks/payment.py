"""What a reward pays for the environment's words alone, with a policy that says nothing. No torch of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anygrpo.language.tasks.answer import Answer, Message


@dataclass(frozen=True)
class Paid:
    """Of `cases` conversations that could be scored both ways, `paid` earned more by the environment's words, at most
    `most`."""

    cases: int
    paid: int
    most: float

    @property
    def share(self) -> float:
        return self.paid / self.cases if self.cases else 0.0


def inserted_alone(prompts: list[Any], outputs: list[list[Any]]) -> tuple[list[Any], list[list[Message]]]:
    """Prompts of conversations in which somebody else spoke, and what was said."""
    cases = [
        (prompt, output.inserted)
        for prompt, row in zip(prompts, outputs)
        for output in row
        if isinstance(output, Answer) and output.inserted
    ]
    return [prompt for prompt, _ in cases], [said for _, said in cases]


def paid_alone(task: Any, prompts: list[Any], said: list[list[Message]]) -> Paid:
    """Score a silent policy without these words and with them."""
    silent: Message = {"role": "assistant", "content": "", "by": "policy"}
    scores = task.score(prompts, [[Answer([silent]), Answer([silent, *words])] for words in said])
    gain = scores.rewards[:, 1] - scores.rewards[:, 0]
    good = scores.rewards.isfinite().all(1) if scores.valid is None else scores.valid.all(1)
    gain = gain[good]
    return Paid(len(gain), int((gain > 1e-6).sum()), float(gain.max()) if len(gain) else 0.0)
