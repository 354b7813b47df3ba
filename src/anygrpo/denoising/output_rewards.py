"""Rewards that see what a policy made: one number, or a reason, for each output. Shared by pictures and motions."""

from __future__ import annotations

import inspect
import math
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from anygrpo.core import user_code
from anygrpo.errors import AnygrpoError, ConfigError, suggestion
from anygrpo.scoring.outcome import FirstCall, Raised, Unfit
from anygrpo.spoken import Text

Outcome = float | str
"""A finite number, or the reason why there is none."""


@dataclass(frozen=True)
class Reward:
    """Attributes:
    function: (columns of n values by name) -> one number (or None) each.
    """

    name: str
    weight: float
    function: Callable[[dict[str, list[Any]]], Any]
    first: FirstCall = field(init=False, compare=False)

    def __post_init__(self) -> None:
        name = Text(f"the reward {self.name!r}", f"奖励 {self.name!r}")
        wanted = Text("one number (or None) an output", "每个输出一个数（或 None）")
        object.__setattr__(self, "first", FirstCall(name, wanted))

    def outcomes(self, columns: dict[str, list[Any]], count: int) -> list[Outcome]:
        """One for each output. A call that fails is tried again for each alone, so that a bad one costs only itself.

        Raises:
            ConfigError: another number of rewards than of outputs, or no numbers at all.
            TrainingError: it raised on every output of its first call.
        """
        found = self._outcomes(columns, count)
        if self.weight:  # one that is only watched stops nothing
            self.first.see(found)
        return found

    def _outcomes(self, columns: dict[str, list[Any]], count: int) -> list[Outcome]:
        try:
            found = self._checked(self.function(columns), count)
            if count == 1 or not all(isinstance(one, Unfit) for one in found):
                return found
        except AnygrpoError:
            raise
        except Exception as error:
            if count == 1:
                trace = "".join(traceback.format_exception(error))
                return [Raised(user_code.describe(error), trace)]
        alone = lambda i: {name: [values[i]] for name, values in columns.items()}  # noqa: E731
        return [self._outcomes(alone(i), 1)[0] for i in range(count)]

    def _checked(self, values: Any, count: int) -> list[Outcome]:
        if isinstance(values, Tensor):
            values = values.detach().flatten().tolist()
        elif isinstance(values, str | bytes | dict) or not hasattr(values, "__iter__"):
            return [Unfit(f"it returned {repr(values)[:60]}")] * count
        values = list(values)
        if len(values) != count:
            raise ConfigError(
                Text(
                    f"the reward {self.name!r} returned {len(values)} numbers for {count} outputs",
                    f"奖励 {self.name!r} 对 {count} 个输出返回了 {len(values)} 个数",
                ),
                Text("one number an output", "每个输出应有一个数"),
            )
        return [_number(v) for v in values]


def _number(value: Any) -> Outcome:
    if value is None:
        return "no score"
    try:
        number = float(value)
    except (TypeError, ValueError):
        return Unfit(f"it returned {repr(value)[:60]}")
    return number if math.isfinite(number) and abs(number) < 3e38 else f"the reward is {number}"


def users(spec: str, arguments: dict[str, Any], columns: set[str], seen: str) -> Callable[[dict[str, list[Any]]], Any]:
    """A user's `path.py:function` as a reward's function: it is called with what it takes of the columns, by name.

    Args:
        seen: the column it must take ("images", "motions").

    Raises:
        ConfigError: it wants what there is not, or does not look at what was made.
    """
    function = user_code.load(spec)
    try:
        takes = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise ConfigError(
            Text(f"{spec} cannot be called", f"{spec} 不能调用"),
            Text(f"define function({seen}, prompts, **columns)", f"请定义 function({seen}, prompts, **columns)"),
        ) from None
    anything = any(p.kind is p.VAR_KEYWORD for p in takes)
    named = {p.name for p in takes if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    needed = {p.name for p in takes if p.default is p.empty and p.name in named}
    if lacking := sorted(needed - columns - set(arguments)):
        raise ConfigError(
            Text(
                f"{spec} wants {lacking[0]!r}, which is neither a column "
                f"({', '.join(sorted(columns))}) nor one of its arguments; {suggestion(lacking[0], columns)}",
                f"{spec} 需要 {lacking[0]!r}，它既不是数据的列（{', '.join(sorted(columns))}），也不是它的参数；"
                f"{suggestion(lacking[0], columns)}",
            ),
            Text(
                f"a reward is called as function({seen}, prompts, **columns)",
                f"奖励按 function({seen}, prompts, **columns) 调用",
            ),
        )
    if not anything and seen not in named:
        raise ConfigError(
            Text(f"{spec} does not take {seen!r}", f"{spec} 不接受 {seen!r}"),
            Text(f"define function({seen}, prompts, **columns)", f"请定义 function({seen}, prompts, **columns)"),
        )
    if both := sorted(columns & set(arguments)):
        raise ConfigError(
            Text(f"{spec}: argument {both[0]!r} is also a column", f"{spec}：参数 {both[0]!r} 也是数据的一列"),
            Text("rename the argument", "请给参数换名称"),
        )
    return lambda rows: function(**{k: v for k, v in rows.items() if anything or k in named}, **arguments)
