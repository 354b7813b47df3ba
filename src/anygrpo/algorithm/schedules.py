"""A number that changes over a stage. Plain Python: no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from anygrpo.errors import ConfigError, suggestion
from anygrpo.spoken import Text

Shape = Callable[[float, float, float], float]
"""(start, end, progress in (0, 1)) -> value."""


def value_at(
    kind: str | Shape,
    start: float,
    end: float,
    step: int,
    steps: int,
    warmup: int = 0,
    milestones: Sequence[int] = (),
    factor: float = 0.5,
) -> float:
    """The value at `step` (0 is the first) of a stage of `steps` steps.

    Warm-up climbs linearly: (step + 1) / warmup x start: no step is wasted at 0, and step warmup - 1 has `start`.
    From there "linear", "cosine" and "exponential" move to `end`, reached exactly at the last step and kept after it;
    an end of 0 is reached one step later, so that no last step is sampled and thrown away at a rate of 0. "constant"
    stays; "step" multiplies by `factor` at each milestone (a step of the stage). A stage of one step has `start`. A
    function (start, end, progress in (0, 1)) -> value stands for a kind of one's own.

    >>> [round(value_at("linear", 1.0, 0.0, i, 5, warmup=2), 3) for i in range(6)]
    [0.5, 1.0, 0.75, 0.5, 0.25, 0.0]
    >>> [value_at("linear", 1.0, 0.5, i, 3) for i in range(3)]
    [1.0, 0.75, 0.5]

    Raises:
        ConfigError: an unknown kind, steps < 1, an exponential through 0, or a function's value that is not finite.
    """
    if isinstance(kind, str) and kind not in SHAPES and kind not in ("constant", "step"):
        raise ConfigError(
            Text(f"unknown schedule {kind!r}", f"未知的调度 {kind!r}"), suggestion(kind, [*SHAPES, "constant", "step"])
        )
    if steps < 1 or warmup < 0:
        raise ConfigError(
            Text(f"schedule over {steps} steps with {warmup} of warm-up", f"调度共 {steps} 步，预热 {warmup} 步"),
            Text("need steps >= 1, warmup >= 0", "应满足 steps >= 1，warmup >= 0"),
        )
    if step < warmup:
        return start * (step + 1) / warmup
    if kind == "constant":
        return start
    if kind == "step":
        return start * factor ** sum(m <= step for m in milestones)
    first = max(warmup - 1, 0)  # the step that has `start`
    if step <= first:
        return start
    last = steps if end == 0 else steps - 1  # the step that has `end`
    if step >= last:
        return end
    shape = SHAPES[kind] if isinstance(kind, str) else kind
    value = float(shape(start, end, (step - first) / (last - first)))
    if not math.isfinite(value) or (value < 0 <= min(start, end)):
        name = kind if isinstance(kind, str) else kind.__name__
        raise ConfigError(
            Text(
                f"schedule {name!r} from {start} to {end} gives {value} at step {step}",
                f"调度 {name!r}（从 {start} 到 {end}）在第 {step} 步给出 {value}",
            ),
            Text("keep it in range", "请使它保持在范围内"),
        )
    return value


def _linear(start: float, end: float, progress: float) -> float:
    return start + (end - start) * progress


def _cosine(start: float, end: float, progress: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * progress)) / 2


def _exponential(start: float, end: float, progress: float) -> float:
    if start * end <= 0:
        raise ConfigError(
            Text(f"exponential schedule from {start} to {end}", f"指数调度从 {start} 到 {end}"),
            Text("both must be of one sign and not 0", "两者应同号且不为 0"),
        )
    return start * (end / start) ** progress


SHAPES: dict[str, Shape] = {
    "linear": _linear,
    "cosine": _cosine,
    "exponential": _exponential,
}
"""Those that move from start to end."""
