"""What a user's own function of each kind returns, checked at each call and in the loop's form."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from anygrpo.algorithm import kl, objectives
from anygrpo.core.plain_tensors import unusable
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text, said


def _tensor(spec: str, value: Any, wanted: Any, like: str | Text) -> Tensor:
    """`value`, a tensor of the wanted shape.

    Raises:
        ConfigError: it is not.
    """
    tensor = value if isinstance(value, Tensor) else None
    if tensor is None or tensor.shape != torch.Size(wanted) or unusable(tensor):
        name = type(value).__name__ if tensor is None else unusable(tensor)
        found = Text(name, name)
        if tensor is not None and not name:
            found = Text(f"shape {tuple(tensor.shape)}", f"形状 {tuple(tensor.shape)}")
        like = said(like)
        raise ConfigError(
            Text(f"{spec} returned ", f"{spec} 返回了 ") + found,
            Text(f"return a tensor {like} = {list(wanted)}", f"请返回张量 {like} = {list(wanted)}"),
        )
    return tensor


def _advantage(spec: str, run: Callable[..., Any]) -> Callable[..., Any]:
    def called(x: Tensor, valid: Tensor, options: Any) -> Tensor:
        made = _tensor(spec, run(x, valid, options), x.shape, "[P, G]").to(x)
        if not bool(torch.isfinite(made[valid]).all()):
            raise ConfigError(
                Text(f"{spec} returned advantages that are not finite", f"{spec} 返回的优势不是有限数"),
                Text("return a finite number wherever `valid` is True", "请在 `valid` 为 True 处返回有限的数"),
            )
        return made

    return called


def _loss(spec: str, value: Any, new: Tensor, mask: Tensor, like: str | Text) -> Tensor:
    """A loss [n, t] of the user's, with a gradient where the log-probs that it got have one.

    Raises:
        ConfigError: another type or shape, no gradient, or numbers that are not finite though what it got is.
    """
    loss = _tensor(spec, value, mask.shape, like)
    if not loss.is_floating_point() or (new.requires_grad and not loss.requires_grad):
        kind = "" if loss.is_floating_point() else f" ({loss.dtype})"
        raise ConfigError(
            Text(f"{spec} returned a loss without a gradient{kind}", f"{spec} 返回的损失没有梯度{kind}"),
            Text("compute it from `new`, undetached", "请由 `new` 算出，不要 detach"),
        )
    return loss


def _finite_at_first(spec: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """`run`, whose first loss has to be finite: later one may be a matter of the policy, and its update is refused."""
    tried: list[bool] = []

    def called(new: Tensor, other: Tensor, third: Tensor, mask: Tensor, *settings: Any) -> Any:
        made = run(new, other, third, mask, *settings)
        if not tried and bool(torch.isfinite(new[mask]).all()):
            tried.append(True)
            if not bool(torch.isfinite(made.loss[mask]).all()):
                raise ConfigError(
                    Text(f"{spec} returned a loss that is not finite", f"{spec} 返回的损失不是有限数"),
                    Text("return a finite number wherever `mask` is True", "请在 `mask` 为 True 处返回有限的数"),
                )
        return made

    return called


def _objective(spec: str, run: Callable[..., Any]) -> Callable[..., Any]:
    def called(new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, settings: Any) -> objectives.PerDecision:
        made = run(new, old, advantages, mask, settings)
        if isinstance(made, objectives.PerDecision):
            return made
        like = Text("[n, t] (or a PerDecision)", "[n, t]（或 PerDecision）")
        return objectives.plain(_loss(spec, made, new, mask, like), mask)

    return _finite_at_first(spec, called)


def _kl(spec: str, run: Callable[..., Any]) -> Callable[..., Any]:
    def called(new: Tensor, ref: Tensor, old: Tensor, mask: Tensor) -> kl.KL:
        made = run(new, ref, old, mask)
        return made if isinstance(made, kl.KL) else kl.of_loss(_loss(spec, made, new, mask, "[n, t]"), mask)

    return _finite_at_first(spec, called)


def _reduction(spec: str, run: Callable[..., Any]) -> Callable[..., Any]:
    def called(used: Tensor, totals: dict[str, Tensor], horizon: int | None, ids: Tensor | None) -> Tensor:
        like, made = Text("[N, T], [N, 1] or a number", "[N, T]、[N, 1] 或一个数"), run(used, totals, horizon, ids)
        try:
            each = torch.as_tensor(made, dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError):
            each = _tensor(spec, made, used.shape, like)
        try:
            each = _tensor(spec, each, each.shape, like).expand(used.shape)
        except RuntimeError:
            _tensor(spec, each, used.shape, like)
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


CHECKED: dict[str, Callable[[str, Callable[..., Any]], Callable[..., Any]]] = {
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
