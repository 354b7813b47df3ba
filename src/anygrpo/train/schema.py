"""What state.json of a checkpoint may hold: a stranger's, or a broken one, is told before anything is set by it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anygrpo.algorithm.statistics import PromptHistory, RunningState
from anygrpo.core.rollout import Rollout
from anygrpo.errors import AnygrpoError, DataError
from anygrpo.spoken import Text
from anygrpo.train.folder import no_memory
from anygrpo.train.stages import Controls

_MOST = 2**53
Form = Callable[[Any], bool]


def _whole(x: Any, least: int = 0) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and least <= x <= _MOST


def _number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x) and abs(x) <= _MOST


def _factor(x: Any) -> bool:
    return _number(x) and x >= 0


def _rows(x: Any, *forms: Form) -> bool:
    """A list or tuple of exactly these, in order."""
    return isinstance(x, list | tuple) and len(x) == len(forms) and all(form(one) for form, one in zip(forms, x))


def _each(x: Any, form: Form) -> bool:
    return isinstance(x, list | tuple) and all(map(form, x))


def _or_none(form: Form) -> Form:
    return lambda x: x is None or form(x)


def _memory(x: Any) -> bool:
    if isinstance(x, RunningState):
        return all(map(_number, (x.mean, x.variance, x.weight, x.decay))) and x.variance >= 0 <= x.weight
    if not isinstance(x, PromptHistory) or not isinstance(x.rewards, Mapping):
        return False
    pairs = x.rewards.items()
    return _whole(x.size, 1) and all(isinstance(key, int) and _each(past, _number) for key, past in pairs)


def _best(x: Any) -> bool:
    value = lambda v: _number(v) or v == -math.inf  # noqa: E731
    return _rows(x, value, lambda v: _whole(v, -1), _whole)


def _controls(x: Any) -> bool:
    return isinstance(x, dict) and set(x) == {f.name for f in fields(Controls)} and all(map(_factor, x.values()))


def _updater(x: Any) -> bool:
    if not isinstance(x, dict):
        return False
    scale = x.get("scale", 1.0)
    return _whole(x.get("refused")) and _number(scale) and scale >= 1 and _whole(x.get("sound", 0))


def _book(x: Any) -> bool:
    key = lambda k: type(k) is int and abs(k) < 2**63  # noqa: E731  # a prompt's number (`spread.number_of`)
    row = lambda r: _rows(r, key, _number, _number, _number)  # noqa: E731
    return x == [] or _rows(x, _number, _number, lambda rows: _each(rows, row))


def _adaptive(x: Any) -> bool:
    if not isinstance(x, dict):
        return False
    plain = all(_or_none(_number)(x.get(key)) for key in ("temperature", "ahead"))
    return plain and _or_none(lambda r: _each(r, _number))(x.get("rewards")) and _book(x.get("book", []))


def _queue(x: Any) -> bool:
    counts = isinstance(x, dict) and all(_whole(x.get(key, 0)) for key in ("stage", "next", "dropped"))
    if not counts or not {"stage", "next", "begun", "finished"} <= x.keys():
        return False
    group = lambda one: isinstance(one, dict) and _whole(one.get("place")) and _rollout(one.get("rollout"))  # noqa: E731
    return _each(x["begun"], _whole) and _each(x["finished"], group)


def _rollout(x: Any) -> bool:
    """Its tensors fit each other. What lies in `samples` is the policy's own matter."""
    if not isinstance(x, Rollout) or not isinstance(x.log_probs, Tensor) or x.log_probs.dim() != 3:
        return False
    p, g, t = x.log_probs.shape
    kinds = (("mask", "?", (p, g, t)), ("rewards", "f", (p, g)), ("valid", "?", (p, g)), ("ended", "?", (p, g)),
             ("version", "i", (p, g, t)), ("present", "?", (p, g)), ("turn", "i", (p, g, t)), ("prompt_id", "i", (p,)),
             ("log_probs", "f", (p, g, t)))  # fmt: skip
    own = [_tensor(getattr(x, name), kind, shape) for name, kind, shape in kinds]
    own += [isinstance(x.turn_rewards, Tensor) and x.turn_rewards.dim() == 3 and x.turn_rewards.shape[:2] == (p, g)]
    own += [_named(x.components, lambda one: _tensor(one, "f", (p, g)))]
    own += [_named(x.info, lambda v: isinstance(v, int | float)), _named(x.weights, _number)]
    own += [
        isinstance(x.reasons, dict)
        and all(_rows(k, _whole, _whole) and isinstance(v, str) for k, v in x.reasons.items())
    ]
    own += [x.limit is None or _whole(x.limit), x.discarded is None or _rollout(x.discarded)]
    return all(own)


def _tensor(x: Any, kind: str, shape: tuple[int, ...]) -> bool:
    if not isinstance(x, Tensor) or x.shape != shape:
        return False
    return {"?": x.dtype == torch.bool, "f": x.is_floating_point(), "i": not x.is_floating_point()}[kind]


def _named(x: Any, form: Form) -> bool:
    return isinstance(x, dict) and all(isinstance(k, str) and form(v) for k, v in x.items())


def _tensors(x: Any) -> bool:
    return _named(x, lambda v: isinstance(v, Tensor))


FORMS: dict[str, Form] = {
    "step": _whole,
    "samples_seen": _whole,
    "version": _whole,
    "running": _or_none(_memory),
    "draws": lambda x: _rows(x, _whole, lambda rows: _each(rows, lambda row: _rows(row, _whole, _whole))),
    "adaptive": _adaptive,
    "beta": _or_none(_factor),
    "controls": _controls,
    "best": _best,
    "updater": _or_none(_updater),
    "anchor": _or_none(_tensors),
    "ahead": _or_none(_rollout),
    "queue": _or_none(_queue),
    "policy": lambda x: isinstance(x, dict),
    "watched": lambda x: isinstance(x, dict),
}
"""Key of the state -> whether its value is of the right form. Older checkpoints may lack some keys."""


def check(state: Mapping[str, Any], path: Path) -> None:
    """Raises: DataError where a value is not of its form."""
    for key, form in FORMS.items():
        if key in state and not form(state[key]):
            raise _error(path, f"{key} = {str(state[key])[:80]!r}")


@contextmanager
def fitting(path: Path) -> Iterator[None]:
    """Inside, a state that is of the right form but of another policy or run is told as such.

    Raises:
        DataError: whatever setting the run by it raised.
    """
    try:
        yield
    except AnygrpoError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
        if no_memory(error) or isinstance(error, torch.distributed.DistError):  # no fault of the checkpoint's
            raise
        raise _error(path, f"{type(error).__name__}: {str(error)[:200]}") from error


def _error(path: Path, said: str) -> DataError:
    return DataError(
        Text(f"the state of {path} does not fit this run: {said}", f"{path} 的状态与这次运行不符：{said}"),
        Text("resume from another checkpoint of the same run", "请从同一次运行的另一个检查点继续"),
    )
