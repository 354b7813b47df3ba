"""What a task is: prompts as a pure function of (seed, step), and scores."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from anygrpo.core.plain_tensors import unusable
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text


@dataclass(frozen=True)
class Scores:
    """What a task says of P x G outputs.

    Attributes:
        rewards: [P, G] float32; anything where `valid` is False.
        components: named parts of the reward before weighting, each [P, G] float32; NaN where a part has no value.
        valid: [P, G] bool. False: scoring failed (None, NaN, inf, exception, time-out).
        reasons: (p, g) -> why that sample is invalid.
        weights: weight of each component in the reward (1 where not named).
        faults: [P, G] bool: invalid through no fault of the answer (a machine, a tool, an endpoint failed); None: none.
        parts: [P, G, K]: what each part of an output earned (a patch of a picture), NaN where there is none; `credit =
            "parts"` pays decisions by it. None: there are no parts.
    """

    rewards: Tensor
    components: dict[str, Tensor] = field(default_factory=dict)
    valid: Tensor | None = None
    reasons: dict[tuple[int, int], str] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    faults: Tensor | None = None
    parts: Tensor | None = None


def expect(scores: Any, shape: tuple[int, int], by: str = "the task") -> None:
    """Raises: ConfigError where what the task called `by` returned as scores is of another type, or not [P, G]."""
    wanted = f"[P, G] = {list(shape)}"
    if not isinstance(scores, Scores):
        raise ConfigError(
            Text(f"{by}.score returned a {type(scores).__name__}", f"{by}.score 返回了 {type(scores).__name__}"),
            Text("it has to be an anygrpo.Scores", "应当是 anygrpo.Scores"),
        )
    if not isinstance(scores.components, dict):
        found = type(scores.components).__name__
        raise ConfigError(
            Text(f"{by}.score returned components as a {found}", f"{by}.score 返回的 components 是 {found}"),
            Text(f"a dict of name -> float tensor {wanted}", f"应为从名称到浮点张量 {wanted} 的字典"),
        )
    given = {f"components[{name!r}]": x for name, x in scores.components.items()} | {"rewards": scores.rewards}
    given |= {n: x for n, x in (("valid", scores.valid), ("faults", scores.faults)) if x is not None}
    for name, x in given.items():
        truth = name in ("valid", "faults")
        kind = Text("bool", "布尔") if truth else Text("float", "浮点")
        if not isinstance(x, Tensor):
            raise ConfigError(
                Text(
                    f"{by}.score returned {name} as a {type(x).__name__}",
                    f"{by}.score 返回的 {name} 是 {type(x).__name__}",
                ),
                Text(f"a {kind.en} tensor {wanted}", f"应为{kind.zh}张量 {wanted}"),
            )
        if (why := unusable(x)) or (truth and x.dtype != torch.bool):
            why = why or str(x.dtype)
            raise ConfigError(
                Text(f"{by}.score returned {name} of {why}", f"{by}.score 返回的 {name} 是 {why}"),
                Text(f"it has to be {kind.en}, {wanted}", f"应为{kind.zh}张量，{wanted}"),
            )
        if tuple(x.shape) != shape:
            raise ConfigError(
                Text(f"{by}.score returned {name} {list(x.shape)}", f"{by}.score 返回的 {name} 是 {list(x.shape)}"),
                Text(f"it has to be {wanted}", f"应为 {wanted}"),
            )
    _expect_beside(scores, shape, by)


def _expect_beside(scores: Scores, shape: tuple[int, int], by: str) -> None:
    """Raises: ConfigError where `parts`, `weights` or `reasons` are of another type or shape."""
    parts, (p, g) = scores.parts, shape
    if parts is not None:
        fits = (
            isinstance(parts, Tensor) and not unusable(parts) and parts.dim() == 3 and tuple(parts.shape[:2]) == shape
        )
        found = str(list(parts.shape)) if isinstance(parts, Tensor) else type(parts).__name__
        _refuse(
            fits, by, "parts", found, Text(f"a tensor [P, G, K] = [{p}, {g}, K]", f"张量 [P, G, K] = [{p}, {g}, K]")
        )
    finite = lambda x: is_number(x) and math.isfinite(x)  # noqa: E731
    fits = isinstance(scores.weights, Mapping) and all(map(finite, scores.weights.values()))
    _refuse(
        fits, by, "weights", repr(scores.weights)[:60], Text("a dict of name -> finite number", "名称到有限数的字典")
    )
    inside = lambda k: isinstance(k, tuple) and len(k) == 2 and k[0] in range(p) and k[1] in range(g)  # noqa: E731
    fits = isinstance(scores.reasons, Mapping) and all(map(inside, scores.reasons))
    where = Text(f"a dict of (p, g) -> why, p below {p}, g below {g}", f"(p, g) 到原因的字典，p 小于 {p}，g 小于 {g}")
    _refuse(fits, by, "reasons", repr(scores.reasons)[:60], where)


def is_number(x: Any) -> bool:
    """Whether it is one number: Python's, numpy's, or a tensor of one."""
    if isinstance(x, int | float):
        return True
    return isinstance(x, Real) or (isinstance(x, Tensor) and x.numel() == 1 and not (x.is_complex() or x.is_meta))


def _refuse(fits: bool, by: str, name: str, found: str, wanted: Text) -> None:
    if not fits:
        raise ConfigError(
            Text(f"{by}.score returned {name} {found}", f"{by}.score 返回的 {name} 是 {found}"),
            Text("it has to be ", "应为") + wanted,
        )


@dataclass(frozen=True)
class Stored:
    """Given actions in place of sampled ones: demonstrations (supervised) or scored candidates (RCE, offline GRPO).

    Attributes:
        actions: P lists of actions in the form `Policy.decode` returns; ragged lists are padded by the policy.
        rewards: P lists of floats, or None for plain demonstrations.
        log_probs: P lists of behaviour log-probs of whole actions (None where there is no propensity), or None.
        components: named reward parts, each P lists of floats.
    """

    actions: list[list[Any]]
    rewards: list[list[float]] | None = None
    log_probs: list[list[float | None]] | None = None
    components: dict[str, list[list[float]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Success:
    """An answer is right where a component of its score (or "reward" itself) is at least so much."""

    component: str
    at_least: float


@runtime_checkable
class Pending(Protocol):
    """Scores that are being made."""

    def result(self) -> Scores:
        """Wait for them."""
        ...


class Task(ABC):
    """Three methods to define; by default a task is endless and has no stored actions. Prompts are any objects that the
    policy of the same recipe understands.

    Attributes:
        size: number of training prompts in an epoch (0: endless).
        lowest_reward: what an answer that cannot be scored is worth wherever results are compared (or less, where a
            scored answer got less).
        success: when an answer is right, where the task can say.
        score_async: begins `score` and returns before it is done: for tasks whose rewards run in processes of their
            own. None: a reward of this process may share random state or a device with the sampler.
    """

    size: int = 0
    lowest_reward: float = 0.0
    success: Success | None = None
    score_async: Callable[[list[Any], list[list[Any]]], Pending] | None = None

    @abstractmethod
    def prompts(self, step: int, count: int) -> list[Any]:
        """`count` training prompts of this step (fewer where the data end, but one): a pure function of (seed, step,
        count), so resume is exact."""

    @abstractmethod
    def held_out(self) -> list[Any]:
        """Evaluation prompts, disjoint from training, always the same."""

    @abstractmethod
    def score(self, prompts: list[Any], outputs: list[list[Any]]) -> Scores:
        """Rewards [P, G] of decoded outputs. Never raises for a bad sample: it is invalid, with a reason."""

    def identity(self, prompt: Any) -> Any:
        """What makes two prompts the same wherever account is kept of prompts: by default all of the prompt."""
        return prompt

    def stored(self, prompts: list[Any]) -> Stored:
        """Demonstrations or scored candidates of these prompts, for supervised and RCE stages."""
        from anygrpo.errors import ConfigError

        raise ConfigError(
            Text(
                f"{type(self).__name__} has no stored answers, so it cannot feed a supervised or RCE stage",
                f"{type(self).__name__} 没有存好的回答，无法用于监督或 RCE 阶段",
            ),
            Text(
                "use a method that samples (grpo), or a task with demonstrations",
                "请用会采样的方法（grpo），或带示例的任务",
            ),
        )

    def measure(self, prompts: list[Any], outputs: list[list[Any]]) -> dict[str, float]:
        """Extra held-out measures by metric name ("eval/..."), beyond the mean reward. Outputs have G = 1."""
        return {}

    def prepare(self, outputs_of: Callable[[list[Any]], list[list[Any]]], folder: Path) -> None:
        """Called once before the first step with the start policy's greedy outputs at hand (curricula that rank samples
        by them); what it decides goes into the run folder, so that a resumed run finds it."""

    def pictures(self, prompts: list[Any], before: list[list[Any]], after: list[list[Any]], folder: Path) -> list[Path]:
        """Draw outputs [P][1] of the same prompts before and after training into `folder`; the files' paths."""
        return []

    def close(self) -> None:
        """Stop workers, close files."""


def epoch_indices(size: int, step: int, count: int, seed: int) -> list[int]:
    """`count` indices of the `step`-th batch of a shuffled, endless pass over `size` items: each epoch is a new
    permutation, drawn from (seed, epoch) alone; no item repeats inside an epoch."""
    out: list[int] = []
    start = step * count
    while len(out) < count:
        epoch, offset = divmod(start + len(out), size)
        order = torch.randperm(size, generator=torch.Generator().manual_seed(seed * 1_000_003 + epoch))
        out += order[offset : offset + count - len(out)].tolist()
    return out
