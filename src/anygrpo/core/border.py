"""The border to a user's own code: what a policy returns is tried once, before the first step (a task: `task_border`).

An error names *their* class and method, the shape found and the shape wanted. Behind the border nobody checks again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.core.contract import a_kind, called, dense, of_type, wrong
from anygrpo.core.policy import ClipDefaults, Policy
from anygrpo.core.rollout import Evaluation, Rollout
from anygrpo.core.tree import Shared, Tree, tree_map
from anygrpo.errors import ConfigError
from anygrpo.spoken import NOTHING, Text

_P, _G = 2, 3
"""Prompts and group of the trial: different sizes, so that swapped axes are seen."""
_SEED = 2**31 - 2
_SLICE = 0.05
"""Nats that a decision's log-prob may differ by between slices; half precision makes a tenth of it."""

_NOT_FINITE = Text("log_probs that are not finite where mask is True", "log_probs，其中 mask 为 True 处不是有限数")
_WHOLE = Text("a whole number above 0", "大于 0 的整数")
_LOG_PROB = Text("a log-probability of each decision", "每个决策的对数概率")


def check_policy(policy: Policy, prompts: list[Any], greedy: bool) -> None:
    """Sample, decode and score again a few of the task's prompts; nothing is kept, random state neither.

    Args:
        greedy: held-out answers will be asked for, so `greedy` is tried too.

    Raises:
        ConfigError: a method that is missing, raises, or returns another shape or type.
    """
    check_attributes(policy)
    of_type(policy, "saved_names", called(policy, "saved_names"), dict)
    some = (prompts * _P)[:_P]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        rollout = called(policy, "sample", some, _G, _SEED)
        check_rollout(policy, "sample", rollout, (_P, _G))
        check_outputs(policy, called(policy, "decode", rollout.samples), (_P, _G))
        rows = tree_map(lambda x: x.flatten(0, 1), rollout.samples)
        total = rollout.shape[2]
        if not total:
            wrong(
                policy,
                "sample",
                Text("no decision (T = 0)", "没有决策（T = 0）"),
                Text("[P, G, T] with T of at least 1", "[P, G, T]，T 至少为 1"),
            )
        mask = rollout.mask.flatten(0, 1)
        whole = called(policy, "evaluate", rows, slice(0, total), frozenset())
        check_evaluation(policy, whole, (_P * _G, total))
        if not bool(torch.isfinite(whole.log_probs[mask.to(whole.log_probs.device)]).all()):
            wrong(policy, "evaluate", _NOT_FINITE, _LOG_PROB)
        # Values are compared where the loop will ask for slices and scoring repeats itself: noise in it is another
        # fault, which `check` and the doctor name.
        sliced = policy.time_chunk is not None and policy.time_chunk < total
        sliced = sliced and torch.equal(
            whole.log_probs, called(policy, "evaluate", rows, slice(0, total), frozenset()).log_probs
        )
        for first in dict.fromkeys((0, total // 2)) if total > 1 else ():
            part = called(policy, "evaluate", rows, slice(first, first + 1), frozenset())
            check_evaluation(policy, part, (_P * _G, 1))
            if sliced:
                check_slice(policy, whole, part, first, mask)
        check_gradient(policy, rows, slice(0, total), _P * _G)
        check_reference(policy)
        if greedy:
            check_rollout(policy, "greedy", called(policy, "greedy", some), (_P, 1))


def check_attributes(policy: Policy) -> None:
    """Raises: ConfigError where an attribute that the loop reads is of another type than `Policy` says."""
    wanted = (
        (
            "clip",
            lambda x: isinstance(x, ClipDefaults),
            Text("an anygrpo ClipDefaults(low, high)", "anygrpo 的 ClipDefaults(low, high)"),
        ),
        ("time_chunk", lambda x: x is None or (_count(x)), Text("None or ", "None 或") + _WHOLE),
        ("block_rows", lambda x: _count(x), _WHOLE),
        ("speed", lambda x: isinstance(x, Mapping), Text("a dict", "字典")),
        ("provides", lambda x: isinstance(x, (set, frozenset)), Text("a frozenset of names", "名称的 frozenset")),
    )
    for name, right, what in wanted:
        if not right(found := getattr(policy, name)):
            place = f"{type(policy).__name__}.{name}"
            raise ConfigError(
                Text(f"{place} is {found!r}", f"{place} 是 {found!r}"),
                Text("it has to be ", "应当是 ") + what,
            )


def _count(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and x > 0


def check_reference(policy: Policy) -> None:
    """Raises: ConfigError where a policy's own `reference` gives nothing that `with` can enter."""
    if type(policy).reference is Policy.reference:
        return
    made = called(policy, "reference")
    if not hasattr(made, "__enter__"):
        wrong(
            policy,
            "reference",
            a_kind(made),
            Text("a context manager: inside, the weights are the reference's", "上下文管理器：其中为参考权重"),
        )
    called(made, "__enter__")
    called(made, "__exit__", None, None, None)


def check_rollout(policy: Policy, method: str, rollout: Any, shape: tuple[int, int]) -> None:
    """Raises: ConfigError where it is no Rollout of `shape` [P, G]."""
    of_type(policy, method, rollout, Rollout)
    p, g = shape
    for name in ("log_probs", "mask", "rewards", "valid", "ended", "version"):
        of_type(policy, method, getattr(rollout, name), Tensor, name)
        dense(policy, method, getattr(rollout, name), name)
    for name in ("components", "reasons", "weights"):
        of_type(policy, method, getattr(rollout, name), dict, name)
    found = tuple(rollout.log_probs.shape)
    if len(found) != 3 or found[:2] != shape:
        what = Text(f"log_probs {list(found)}", f"log_probs {list(found)}")
        swapped = Text("; prompts and group are swapped", "；提示与组互换了") if found[:2] == (g, p) else NOTHING
        wrong(policy, method, what + swapped, f"[P, G, T] = [{p}, {g}, T]")
    if tuple(rollout.mask.shape) != found:
        like = Text(f"{list(found)}, as log_probs", f"{list(found)}，与 log_probs 相同")
        wrong(policy, method, f"mask {list(rollout.mask.shape)}", like)
    if not rollout.log_probs.is_floating_point() or rollout.mask.dtype != torch.bool:
        dtypes = (rollout.log_probs.dtype, rollout.mask.dtype)
        found = Text("log_probs of {} and mask of {}".format(*dtypes), "{} 的 log_probs 与 {} 的 mask".format(*dtypes))
        wrong(
            policy,
            method,
            found,
            Text("log_probs of float32 and a mask of bool", "float32 的 log_probs 与 bool 的 mask"),
        )
    if not bool(torch.isfinite(rollout.log_probs[rollout.mask]).all()):
        wrong(policy, method, _NOT_FINITE, _LOG_PROB)
    for name in ("rewards", "valid", "ended", "version"):
        size = tuple(getattr(rollout, name).shape)
        if size != shape and (name != "version" or size != found):  # a version may be each decision's
            wrong(policy, method, f"{name} {list(size)}", f"[P, G] = [{p}, {g}]")
    for name in ("valid", "ended"):
        if (dtype := getattr(rollout, name).dtype) != torch.bool:
            wrong(policy, method, Text(f"{name} of {dtype}", f"{dtype} 的 {name}"), f"bool, [P, G] = [{p}, {g}]")
    if rollout.version.is_floating_point():
        wrong(
            policy, method, Text(f"version of {rollout.version.dtype}", f"{rollout.version.dtype} 的 version"), "int64"
        )
    for name, leaf in _leaves(rollout.samples):
        dense(policy, method, leaf, f"samples{name}")
        if tuple(leaf.shape[:2]) != shape:
            wrong(policy, method, f"samples{name} {list(leaf.shape)}", f"[P, G, ...] = [{p}, {g}, ...]")


def check_outputs(policy: Policy, outputs: Any, shape: tuple[int, int]) -> None:
    """Raises: ConfigError where they are no P lists of G outputs."""
    p, g = shape
    of_lists = isinstance(outputs, list | tuple)
    sizes = [len(row) if isinstance(row, list | tuple) else None for row in outputs] if of_lists else None
    if sizes != [g] * p:
        rows = Text(f"{len(sizes or ())} rows of {sizes}", f"{len(sizes or ())} 行，每行 {sizes} 个")
        found = a_kind(outputs) if sizes is None else rows
        wrong(policy, "decode", found, Text(f"{p} lists of {g} outputs", f"{p} 个列表，每个 {g} 个输出"))


def check_evaluation(policy: Policy, made: Any, shape: tuple[int, int]) -> None:
    """Raises: ConfigError where it is no Evaluation of `shape` [n, t]."""
    of_type(policy, "evaluate", made, Evaluation)
    n, t = shape
    of_type(policy, "evaluate", made.log_probs, Tensor, "log_probs")
    dense(policy, "evaluate", made.log_probs, "log_probs")
    of_type(policy, "evaluate", made.losses, dict, "losses")
    for name in ("log_probs", "entropy", "kl"):
        value = getattr(made, name)
        if value is not None:
            of_type(policy, "evaluate", value, Tensor, name)
        if value is not None and tuple(value.shape) != shape:
            shape_found = f"{name} {list(value.shape)}"
            found = Text(f"{shape_found} for {n} rows and a slice of {t}", f"{shape_found}（{n} 行，{t} 个决策的切片）")
            wrong(policy, "evaluate", found, f"[n, t] = [{n}, {t}]")
    for name, value in made.losses.items():
        of_type(policy, "evaluate", value, Tensor, f"losses[{name!r}]")
        if tuple(value.shape) != (n,):
            wrong(policy, "evaluate", f"losses[{name!r}] {list(value.shape)}", f"[n] = [{n}]")


def check_slice(policy: Policy, whole: Evaluation, part: Evaluation, first: int, mask: Tensor) -> None:
    """Raises: ConfigError where decision `first` alone is scored otherwise than among all, by far more than
    rounding."""
    a, b = whole.log_probs[:, first].float(), part.log_probs[:, 0].float()
    gap = float(torch.where(mask[:, first].to(a.device), (a - b).abs(), 0.0).max())
    if not gap <= _SLICE:
        what = Text(
            f"decision {first} alone scored {gap:.3g} nats apart from decision {first} among all",
            f"决策 {first}：单独评分与在全体中评分相差 {gap:.3g} nat",
        )
        by = Text(
            "a function of rows and decision: `times` says which decisions are asked for",
            "只取决于行与决策：`times` 指明要哪些决策",
        )
        wrong(policy, "evaluate", what, by)


def check_gradient(policy: Policy, rows: Tree, times: slice, count: int) -> None:
    """Raises: ConfigError where `evaluate` gives log-probs without a gradient, while something is trainable."""
    learning = [p for p in policy.trainable().parameters() if p.requires_grad]
    if not learning:
        return
    with torch.enable_grad():
        made = called(policy, "evaluate", rows, times, frozenset())
    if count and times.stop and not _reaches(policy, made.log_probs, learning):
        wrong(
            policy,
            "evaluate",
            Text(
                "log_probs whose gradient reaches no weight of trainable()",
                "梯度到不了 trainable() 任何权重的 log_probs",
            )
            if made.log_probs.requires_grad
            else Text("log_probs without a gradient", "没有梯度的 log_probs"),
            Text(
                "computed from trainable() outside no_grad, undetached",
                "由 trainable() 算出，不用 no_grad 与 detach",
            ),
        )


def _reaches(policy: Policy, log_probs: Tensor, weights: list[nn.Parameter]) -> bool:
    """Whether a gradient of `log_probs` comes to any of `weights`; no gradient is left behind."""
    if not log_probs.requires_grad:
        return False
    with torch.enable_grad():
        try:
            found = torch.autograd.grad(log_probs.sum(), weights, retain_graph=True, allow_unused=True)
        except RuntimeError:  # a reentrant checkpoint knows nothing but `backward`
            found = ()
    return any(x is not None for x in found) or _reaches_backward(policy, log_probs, weights)


def _reaches_backward(policy: Policy, log_probs: Tensor, weights: list[nn.Parameter]) -> bool:
    """The same by `backward`, which alone sees the weights inside a reentrant checkpoint."""
    modules = [policy.trainable(), *(x for x in vars(policy).values() if isinstance(x, nn.Module))]
    every = list({id(p): p for m in modules for p in m.parameters() if p.requires_grad}.values())
    if any(getattr(p, "_post_accumulate_grad_hooks", None) for p in every):
        return True  # an optimizer of the user's own may step there: no trial
    before = [p.grad for p in every]
    try:
        for p in every:
            p.grad = None
        with torch.enable_grad():
            log_probs.sum().backward()
        return any(p.grad is not None for p in weights)
    finally:
        for p, gradient in zip(every, before):
            p.grad = gradient


def _leaves(tree: Tree, at: str = "") -> list[tuple[str, Tensor]]:
    if isinstance(tree, dict):
        return [leaf for key, value in tree.items() for leaf in _leaves(value, f"{at}[{key!r}]")]
    tree = tree.index if isinstance(tree, Shared) else tree
    return [(at, tree)] if isinstance(tree, Tensor) else []
