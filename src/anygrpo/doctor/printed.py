"""Numbers as somebody wrote them down: values, names, and how far the printing or a float32 may have moved them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anygrpo.errors import ConfigError, suggestion
from anygrpo.spoken import Text

DECIMAL = re.compile(r"^\s*[-+]?(\d*)(?:\.(\d*))?(?:[eE]([-+]?\d+))?\s*$")

NUMBERS = (
    "mean_ratio", "max_ratio", "mean_log_ratio", "policy_loss", "loss", "kl", "beta", "mean_advantage", "advantage_std",
    "advantage_max", "std_reward", "queries", "group_size", "std_floor", "clamp", "grad_norm", "mean_reward",
    "log_prob_current", "log_prob_ref", "log_prob_gap", "dimensions",
)  # fmt: skip
SET = {"beta", "group_size", "queries", "std_floor", "clamp", "dimensions"}
"""Settings: what was set was set so, and no rounding of something else."""
NORMALISERS = {
    "zscore": ("zscore", "std", "groupstd", "group", "grpo", "z"),
    "rank": ("rank", "ranknorm"),
    "centred": ("centred", "centered", "drgrpo", "mean", "none"),
}
"""The three normalisers, and what people call them."""
ALIASES = {
    "ratio_mean": "mean_ratio", "ratio/mean": "mean_ratio", "ratio/max": "max_ratio",
    "log_ratio/mean": "mean_log_ratio",
    "loss/policy": "policy_loss", "pg_loss": "policy_loss", "loss/total": "loss", "total_loss": "loss",
    "kl/reference": "kl",
    "advantage/mean": "mean_advantage", "advantage_mean": "mean_advantage", "advantage/std": "advantage_std",
    "adv_std": "advantage_std",
    "advantage/max": "advantage_max", "advantage/abs_max": "advantage_max", "adv_max": "advantage_max",
    "reward_std": "std_reward",
    "reward/std": "std_reward", "prompts": "queries",
    "groups": "queries",
    "num_generations": "group_size", "g": "group_size", "normalizer": "normaliser",
}  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """value +- half: half a unit of the last printed digit, and never less than half a float32 step."""

    value: float
    half: float

    @property
    def low(self) -> float:
        return self.value - self.half

    @property
    def high(self) -> float:
        return self.value + self.half


def float32_step(x: float) -> float:
    """Distance between neighbouring float32 numbers at x (24 bits of mantissa)."""
    return 2.0 ** (math.floor(math.log2(abs(x))) - 23) if x else 0.0


def measured(text: str | float | int, name: str = "number") -> Measured:
    """From the text of a number, so that .0063 is known to mean .00625 to .00635.

    Raises:
        ConfigError: not a finite number.
    """
    raw = str(text)
    match = DECIMAL.match(raw)
    try:
        value = float(raw)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(
            Text(f"{name} = {raw!r} is not a finite number", f"{name} = {raw!r} 不是有限的数"),
            Text("give it as it was logged, e.g. 0.0063", "请按日志中的写法给出，例如 0.0063"),
        )
    half = 0.0
    if match and (match[2] or match[3]):
        half = 0.5 * 10.0 ** (int(match[3] or 0) - len(match[2] or ""))
    return Measured(value, max(half, 0.5 * float32_step(value)))


def simplest(low: float, high: float) -> float | None:
    """The number with the fewest significant digits in [low, high] (at most three), or None."""
    if low > high or low <= 0:
        return None
    for digits in (1, 2, 3):
        scale = 10.0 ** (digits - 1 - math.floor(math.log10((low + high) / 2)))
        candidate = round((low + high) / 2 * scale) / scale
        if low <= candidate <= high:
            return candidate
    return None


def accept(numbers: Mapping[str, Any]) -> tuple[dict[str, Measured], str | None, tuple[str, ...]]:
    """(name -> number, normaliser, names not known) under our names.

    Raises:
        ConfigError: no known name among them, or a known one that is no number.
    """
    from anygrpo.doctor.notes import name_of

    given: dict[str, Measured] = {}
    unused: list[str] = []
    normaliser: str | None = None
    for raw, value in numbers.items():
        name = str(raw).strip().lower().lstrip("-").replace("-", "_")
        name = ALIASES.get(name, name)
        if value is None:
            continue
        if name == "normaliser":
            normaliser = known_normaliser(str(value))
        elif known := name if name in NUMBERS else name_of(str(raw)):
            number = measured(value, name)
            number = Measured(number.value, 0.0) if known in SET else number
            given[known] = number if known == name else given.get(known, number)
        else:
            unused.append(str(raw))
    if not given:
        if not unused:
            example = "--mean-ratio 485165216"
            raise ConfigError(
                Text("no numbers given", "没有给出数"),
                Text(f"give at least one, e.g. {example}", f"请至少给出一个，例如 {example}"),
            )
        raise ConfigError(
            Text(f"no number called {unused[0]!r} is known", f"没有名为 {unused[0]!r} 的数"),
            suggestion(unused[0], NUMBERS),
        )
    return given, normaliser, tuple(unused)


def known_normaliser(text: str) -> str:
    word = text.strip().lower().replace("-", "").replace("_", "").replace(" ", "")
    for known, names in NORMALISERS.items():
        if word in names:
            return known
    raise ConfigError(
        Text(f"no normaliser called {text!r} is known", f"没有名为 {text!r} 的归一化方式"),
        suggestion(text, NORMALISERS),
    )
