"""What a generation engine is given, what it returns, and what it must be able to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from anygrpo.errors import TrainingError
from anygrpo.spoken import Text


@dataclass(frozen=True)
class Reply:
    """What follows a turn of the model.

    Attributes:
        tokens: ids up to where the model speaks again; empty where the conversation is over.
        ended: it is over by itself, and not because there is no room.
    """

    tokens: list[int]
    ended: bool


class Turn(Protocol):
    """The other side of conversations. A row is begun when it gives an end token, and settled some time later.

    Attributes:
        patience: seconds that other rows are held up by one that waits, where an engine can go on without it.
    """

    patience: float

    def start(self, row: int, ids: list[int]) -> None:
        """`ids`: the row's whole completion, ended by an end token."""
        ...

    def settle(self, rows: list[int], seconds: float | None, one: bool = False) -> dict[int, Reply]:
        """Replies of those of `rows` that have one: waits for all (or for `one`), at most `seconds` (None: no end)."""
        ...


@dataclass(frozen=True)
class Support:
    """The distribution that is sampled *and* scored: softmax(logits / temperature) cut to a support.

    The cuts apply one after another, in this order, each to what the last one left (renormalised): top_k, top_p, min_p.

    Attributes:
        temperature: above 0.
        top_k: the k most likely tokens; 0: all.
        top_p: the smallest set of most likely tokens with at least this probability; 1: all.
        min_p: tokens at least min_p times as likely as the likeliest; 0: all.
        min_new_tokens: end tokens are impossible at decisions before this one.
        eos_ids: the end tokens.
        never: tokens that no answer has: the place of a picture is not the model's to say.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    min_new_tokens: int = 0
    eos_ids: tuple[int, ...] = ()
    never: tuple[int, ...] = ()

    @property
    def whole(self) -> bool:
        """True where no token is ever cut."""
        cut = self.top_k != 0 or self.top_p < 1.0 or self.min_p > 0.0
        return not (cut or self.min_new_tokens or self.never)


@dataclass(frozen=True)
class Sampling:
    """Settings of one generation.

    Attributes:
        support: the distribution.
        max_new_tokens: completion ids a row at most, tool output included.
        stop: texts that end a row.
        greedy: take the likeliest token of the support.
        rows: rows decoded at once at most (None: all).
        between: called before the first token and after each: others work, and weights change. Gives their version.
    """

    support: Support
    max_new_tokens: int
    stop: tuple[str, ...] = ()
    greedy: bool = False
    rows: int | None = None
    between: Callable[[], int] | None = None


@dataclass(frozen=True)
class Generation:
    """Completions of N = P x G rows, those of one prompt adjacent. Tensors on the CPU.

    Attributes:
        ids: [N, T] int64, 0 after a row's end.
        lengths: [N] int64.
        chosen: [N, T] bool: sampled by the model (False: padding, or text that an environment inserted).
        log_probs: [N, T] float32 under `Support`, 0 where not chosen.
        ended: [N] bool: by an end token, a stop text or the environment, not by the limit.
        seconds: seconds by phase ("prefill", "decode").
        version: [N, T] int64: of the weights that drew each token, where `Sampling.between` tells; else None.
    """

    ids: Tensor
    lengths: Tensor
    chosen: Tensor
    log_probs: Tensor
    ended: Tensor
    seconds: dict[str, float] = field(default_factory=dict)
    version: Tensor | None = None

    def __post_init__(self) -> None:
        """Raises: TrainingError where a token was drawn from probabilities that are no numbers."""
        broken = (self.log_probs.isnan() & self.chosen).any(1)
        if bool(broken.any()):
            raise TrainingError(
                Text(
                    f"the model's probabilities are not numbers in {int(broken.sum())} of {len(broken)} answers",
                    f"{len(broken)} 个回答中有 {int(broken.sum())} 个的模型概率不是数",
                ),
                Text(
                    "weights or activations overflow: go on from the last checkpoint with a lower rate, or in float32",
                    "权重或激活溢出：请从上一个检查点以较低的学习率继续，或用 float32",
                ),
            )


def apart(engine: Engine) -> bool:
    """Whether generation may run beside updates: it reads no memory that they write, and leaves them a processor. An
    engine that can do so has an attribute `apart` that says when."""
    return bool(getattr(engine, "apart", False))


class Engine(Protocol):
    """Generates. The built-in engine reads the policy's weights in place; others are sent them by `refresh`."""

    def refresh(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Take over the weights (Hugging Face names, adapters merged) before the next `generate`."""
        ...

    def generate(
        self, prompts: list[list[int]], group_size: int, sampling: Sampling, seed: int, turn: Turn | None = None
    ) -> Generation:
        """`group_size` completions of each prompt; a pure function of (weights, arguments)."""
        ...
