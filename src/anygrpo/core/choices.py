"""From what a recipe names to the function that computes it: a card's, or the user's own from `path.py:name`.

Resolved once a run and kept; `forget` is called where a run is built, so that a user's file is read as it then is. A
user's function is checked here, at the border: that it can be called as its kind is, and the shape of what it returns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from anygrpo.choices.card import Card
from anygrpo.choices.catalogue import card_of, names
from anygrpo.core import user_code
from anygrpo.core.returned import CHECKED
from anygrpo.errors import ConfigError, suggestion
from anygrpo.families import resolve
from anygrpo.recipe.algorithm import AlgorithmConfig
from anygrpo.recipe.section import Schedule, Section, UserFunction, is_user_code
from anygrpo.spoken import Text


@dataclass(frozen=True)
class Chosen:
    """A resolved choice.

    Attributes:
        function: called as the cards of its kind are.
        card: None for a user's own function.
        whole_sequence: an objective needs all decisions of a row at once. A user's does unless its function says
            otherwise (`mine.whole_sequence = False`), since a slice would be wrong without a word.
        idle_at_zero: an objective's gradient is exactly 0 where the advantage is. Not known of a user's.
    """

    name: str
    function: Callable[..., Any]
    card: Card | None
    whole_sequence: bool = False
    idle_at_zero: bool = True


CALLED: dict[str, tuple[str, ...]] = {
    "advantage": ("rewards", "valid", "options"),
    "objective": ("new", "old", "advantages", "mask", "settings"),
    "kl": ("new", "ref", "old", "mask"),
    "reduction": ("used", "totals", "horizon", "prompt_ids"),
    "filter": ("groups",),
    "schedule": ("start", "end", "progress"),
    "controller": ("beta", "kl", "samples"),
    "correction": ("log_ratio", "mask", "cap"),
    "credit": ("rewards", "exists", "compare", "discount"),
}
"""Kind -> the arguments, in order, that a user's function of it is called with."""


@cache
def chosen(kind: str, choice: str | UserFunction) -> Chosen:
    """The function that `choice` stands for.

    Raises:
        ConfigError: an unknown name; a user's file without that function, or one that cannot be called as this kind is.
        DataError: no such file.
    """
    if isinstance(choice, UserFunction) or is_user_code(choice):
        return _own(kind, UserFunction(function=choice) if isinstance(choice, str) else choice)
    card = card_of(kind, choice)
    if card is None:
        raise ConfigError(
            Text(f"unknown {kind} {choice!r}", f"未知的 {kind} {choice!r}"), suggestion(choice, names(kind))
        )
    return Chosen(card.name, resolve(card.function), card, card.whole_sequence)


forget = chosen.cache_clear
"""Read users' files again from now on."""


def resolve_all(a: AlgorithmConfig, *others: Section) -> None:
    """Resolve every choice of [algorithm], and the schedules of other tables, so that what cannot work is said before
    the first sample.

    Raises: as `chosen`.
    """
    for kind, choice in (
        ("advantage", a.advantage),
        ("objective", a.objective),
        ("kl", a.kl),
        ("reduction", a.reduction),
        ("controller", a.kl_controller),
        ("correction", a.importance),
        ("credit", a.credit),
    ):
        chosen(kind, choice)
    for f in a.filters:
        if isinstance(f, UserFunction):
            chosen("filter", UserFunction(function=f.function, arguments=f.arguments))
    for table in (a, *others):
        for value in (getattr(table, name) for name in type(table).model_fields):
            if isinstance(value, Schedule) and value.function is not None:
                chosen("schedule", UserFunction(function=value.function, arguments=value.arguments))


def _own(kind: str, choice: UserFunction) -> Chosen:
    function, wanted = user_code.load(choice.function), CALLED[kind]
    call = f"{choice.function.rpartition(':')[2]}({', '.join((*wanted, *(f'{k}=...' for k in choice.arguments)))})"
    if not callable(function):
        raise ConfigError(
            Text(
                f"{choice.function} is {type(function).__name__}, no function",
                f"{choice.function} 是 {type(function).__name__}，不是函数",
            ),
            Text(f"define {call}", f"请定义 {call}"),
        )
    signature: inspect.Signature | str = "unknown"
    try:
        signature = inspect.signature(function)
        signature.bind(*wanted, **choice.arguments)
    except (TypeError, ValueError) as error:  # ValueError: a built-in, whose signature cannot be read
        raise ConfigError(
            Text(
                f"{choice.function} cannot be called as {kind}: {error} (it takes {signature})",
                f"{choice.function} 不能作为 {kind} 调用：{error}（它接受 {signature}）",
            ),
            Text(f"your {kind} is called {call}", f"{kind} 按 {call} 调用"),
        ) from None
    name = choice.function.rpartition(":")[2]
    made = CHECKED[kind](choice.function, partial(function, **choice.arguments))
    made.__name__ = name
    whole = kind == "objective" and getattr(function, "whole_sequence", True)
    return Chosen(name, made, None, whole, idle_at_zero=False)
