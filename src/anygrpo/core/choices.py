"""From what a recipe names to the function that computes it: a card's, or the user's own from `path.py:name`.

Resolved once a run and kept; `forget` is called where a run is built, so that a user's file is read as it then is. A
user's function is checked here, at the border: that it can be called as its kind is, and the shape of what it returns.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from anygrpo.algorithm import kl, objectives
from anygrpo.choices.card import Card
from anygrpo.choices.catalogue import card_of, names
from anygrpo.core import user_code
from anygrpo.errors import ConfigError, suggestion
from anygrpo.families import resolve
from anygrpo.recipe.algorithm import AlgorithmConfig
from anygrpo.recipe.section import Schedule, Section, UserFunction, is_user_code
from anygrpo.spoken import Text, said


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
    except TypeError as error:
        raise ConfigError(
            Text(
                f"{choice.function} cannot be called as {kind}: {error} (it takes {signature})",
                f"{choice.function} 不能作为 {kind} 调用：{error}（它接受 {signature}）",
            ),
            Text(f"your {kind} is called {call}", f"{kind} 按 {call} 调用"),
        ) from None
    name = choice.function.rpartition(":")[2]
    made = _CHECKED[kind](choice.function, partial(function, **choice.arguments))
    made.__name__ = name
    whole = kind == "objective" and getattr(function, "whole_sequence", True)
    return Chosen(name, made, None, whole, idle_at_zero=False)


def _tensor(spec: str, value: Any, wanted: Any, like: str | Text) -> Tensor:
    """`value`, a tensor of the wanted shape.

    Raises:
        ConfigError: it is not.
    """
    if not isinstance(value, Tensor) or value.shape != torch.Size(wanted):
        name = type(value).__name__
        found = (
            Text(f"shape {tuple(value.shape)}", f"形状 {tuple(value.shape)}")
            if isinstance(value, Tensor)
            else Text(name, name)
        )
        like = said(like)
        raise ConfigError(
            Text(f"{spec} returned ", f"{spec} 返回了 ") + found,
            Text(f"return a tensor {like} = {list(wanted)}", f"请返回张量 {like} = {list(wanted)}"),
        )
    return value


def _advantage(spec: str, run: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, valid, o: _tensor(spec, run(x, valid, o), x.shape, "[P, G]").to(x)


def _objective(spec: str, run: Callable[..., Any]) -> Callable[..., Any]:
    def called(new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, settings: Any) -> objectives.PerDecision:
        made = run(new, old, advantages, mask, settings)
        if isinstance(made, objectives.PerDecision):
            return made
        return objectives.plain(
            _tensor(spec, made, mask.shape, Text("[n, t] (or a PerDecision)", "[n, t]（或 PerDecision）")), mask
        )

    return called


def _kl(spec: str, run: Callable[..., Any]) -> Callable[..., Any]:
    def called(new: Tensor, ref: Tensor, old: Tensor, mask: Tensor) -> kl.KL:
        made = run(new, ref, old, mask)
        return made if isinstance(made, kl.KL) else kl.of_loss(_tensor(spec, made, mask.shape, "[n, t]"), mask)

    return called


def _reduction(spec: str, run: Callable[..., Any]) -> Callable[..., Any]:
    def called(used: Tensor, totals: dict[str, Tensor], horizon: int | None, ids: Tensor | None) -> Tensor:
        each = torch.as_tensor(run(used, totals, horizon, ids), dtype=torch.float64)
        try:
            each = each.expand(used.shape)
        except RuntimeError:
            _tensor(spec, each, used.shape, Text("[N, T], [N, 1] or a number", "[N, T]、[N, 1] 或一个数"))
        if bool((each[used] <= 0).any()) or not bool(torch.isfinite(each[used]).all()):
            raise ConfigError(
                Text(
                    f"{spec} returned a divisor of {float(each[used].min()):.4g}",
                    f"{spec} 返回的除数为 {float(each[used].min()):.4g}",
                ),
                Text("it must be above 0", "应大于 0"),
            )
        return each

    return called


def _filter(spec: str, run: Callable[..., Any]) -> Callable[..., Any]:
    def called(groups: Any) -> Tensor:
        keep = _tensor(spec, run(groups), groups.valid.shape, Text("[P, G] of bool", "布尔 [P, G]"))
        if keep.dtype != torch.bool:
            raise ConfigError(
                Text(f"{spec} returned {keep.dtype}", f"{spec} 返回了 {keep.dtype}"),
                Text("return a tensor [P, G] of bool: what to keep", "请返回布尔张量 [P, G]：要保留哪些"),
            )
        return keep & groups.valid

    return called


def _schedule(spec: str, run: Callable[..., Any]) -> Callable[..., Any]:
    return lambda start, end, progress: _number(spec, run(start, end, progress))


def _controller(spec: str, run: Callable[..., Any]) -> Callable[..., Any]:
    rule: Callable[[float, float, int], float] = lambda beta, measured, samples: _number(  # noqa: E731
        spec, run(beta, measured, samples)
    )
    return lambda beta, **limits: kl.RuleKL(beta, rule, **limits)


def _credit(spec: str, run: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, exists, compare, discount: _tensor(
        spec, run(x, exists, compare, discount), x.shape, "[P, G, K]"
    ).to(x)


def _correction(spec: str, run: Callable[..., Any]) -> Callable[..., Any]:
    return lambda logs, mask, cap: _tensor(spec, run(logs, mask, cap), logs.shape, "[n, t]").to(logs)


def _number(spec: str, value: Any) -> float:
    try:
        made = float(value)
    except (TypeError, ValueError):
        raise ConfigError(
            Text(f"{spec} returned {type(value).__name__}", f"{spec} 返回了 {type(value).__name__}"),
            Text("return a number", "请返回一个数"),
        ) from None
    if not math.isfinite(made):
        raise ConfigError(
            Text(f"{spec} returned {made}", f"{spec} 返回了 {made}"), Text("return a finite number", "请返回有限的数")
        )
    return made


_CHECKED: dict[str, Callable[[str, Callable[..., Any]], Callable[..., Any]]] = {
    "advantage": _advantage,
    "objective": _objective,
    "kl": _kl,
    "reduction": _reduction,
    "filter": _filter,
    "schedule": _schedule,
    "controller": _controller,
    "correction": _correction,
    "credit": _credit,
}
