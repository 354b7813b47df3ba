"""Normalisation as data: weights [N, T] such that the loss is (weights x per_decision).sum() over any split.

Computed once for a whole optimizer step. With several ranks, all-reduce (sum) `counts` first and pass them as `totals`:
no micro-batch, accumulation window or rank can then change the loss.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from anygrpo.errors import AnygrpoError, ConfigError, suggestion
from anygrpo.spoken import Text

Totals = dict[str, Tensor]

Reduction = Callable[[Tensor, Totals, "int | None", "Tensor | None"], Tensor]
"""(used [N, T], totals, horizon, prompt ids) -> divisor of a decision's weight: a scalar, [N, 1] or [N, T]."""


def counts(mask: Tensor, valid: Tensor, prompt_ids: Tensor | None = None) -> Totals:
    """What the denominators need, as float64 scalars that may be summed over ranks.

    `decisions`; `rows` (valid ones); `filled_rows` (valid ones with a decision); `prompts` (distinct `prompt_ids` with
    a decision; rows of one prompt must be on one rank; 0 without ids).
    """
    used = _used(mask, valid)
    lengths = used.sum(1)
    number = {
        "decisions": lengths.sum(),
        "rows": valid.sum(),
        "filled_rows": (lengths > 0).sum(),
        "prompts": lengths.new_zeros(()) if prompt_ids is None else _distinct(prompt_ids[lengths > 0]),
    }
    return {name: n.double() for name, n in number.items()}


def loss_weights(
    mask: Tensor,
    valid: Tensor,
    reduction: str | Reduction,
    *,
    horizon: int | None = None,
    prompt_ids: Tensor | None = None,
    totals: Totals | None = None,
) -> Tensor:
    """Weights [N, T] float32, 0 at masked places and invalid rows.

    | reduction | weight of a decision | sums to | source |
    | --- | --- | --- | --- |
    | token_mean | 1 / decisions | 1 | DAPO, arXiv 2503.14476 |
    | sequence_mean | 1 / (filled rows x own length) | 1 | GRPO, arXiv 2402.03300 |
    | prompt_mean | 1 / (prompts x decisions of own prompt) | 1 | ScaleRL, arXiv 2510.13786 |
    | constant | 1 / (valid rows x horizon) | mean length / horizon | Dr. GRPO, arXiv 2503.20783 |

    A reduction of one's own is a function (used [N, T] bool, totals, horizon, prompt_ids) -> what 1 is divided by to
    give a decision's weight: a scalar, [N, 1] or [N, T], above 0 wherever `used`.

    Args:
        mask: [N, T] bool.
        valid: [N] bool.
        horizon: for "constant": the length that counts as 1, the same for every step (a limit of the policy, never
            the longest sample); 1 gives the mean over rows of sums.
        prompt_ids: [N] int, for "prompt_mean".
        totals: `counts` summed over all ranks; by default of these rows alone.

    Raises:
        ConfigError: an unknown reduction, or one whose argument is missing.
        AnygrpoError: shapes that do not agree.
    """
    if isinstance(reduction, str) and reduction not in REDUCTIONS:
        raise ConfigError(
            Text(f"unknown reduction {reduction!r}", f"未知的归约方式 {reduction!r}"), suggestion(reduction, REDUCTIONS)
        )
    used = _used(mask, valid)
    sums = totals if totals is not None else counts(mask, valid, prompt_ids)
    divisor = REDUCTIONS[reduction] if isinstance(reduction, str) else reduction
    each = divisor(used, sums, horizon, prompt_ids)  # [N, 1] or scalar, float64; 0 in unused rows alone
    return torch.where(used, 1.0 / each, 0.0).float()


def row_weights(valid: Tensor, totals: Totals | None = None) -> Tensor:
    """Weights [N] float32 for losses that a row has once: 1 / valid rows (of all ranks with `totals`), 0 if invalid."""
    rows = valid.sum() if totals is None else totals["rows"]
    return torch.where(valid, 1.0 / rows.double(), 0.0).float()


def _distinct(ids: Tensor) -> Tensor:
    ordered = ids.sort().values
    return (ordered[1:] != ordered[:-1]).sum() + min(len(ids), 1)


def _used(mask: Tensor, valid: Tensor) -> Tensor:
    if mask.dim() != 2 or valid.shape != mask.shape[:1]:
        raise AnygrpoError(
            Text(
                f"mask {tuple(mask.shape)} must be [N, T] and valid {tuple(valid.shape)} must be [N]",
                f"掩码 {tuple(mask.shape)} 应为 [N, T]，valid {tuple(valid.shape)} 应为 [N]",
            )
        )
    return mask & valid[:, None]


def token_mean(used: Tensor, sums: Totals, horizon: int | None, ids: Tensor | None) -> Tensor:
    """Decisions of the step."""
    return sums["decisions"]


def sequence_mean(used: Tensor, sums: Totals, horizon: int | None, ids: Tensor | None) -> Tensor:
    """Rows with a decision x own length."""
    return sums["filled_rows"] * used.sum(1, keepdim=True)


def prompt_mean(used: Tensor, sums: Totals, horizon: int | None, ids: Tensor | None) -> Tensor:
    """Prompts x decisions of the own prompt."""
    if ids is None:
        raise ConfigError(
            Text('reduction "prompt_mean" without prompt ids', '归约 "prompt_mean" 没有提示编号'),
            Text("give the prompt of each row", "请给出每行所属的提示"),
        )
    same = ids[:, None] == ids[None, :]  # [N, N]
    return sums["prompts"] * (same * used.sum(1)).sum(1, keepdim=True)


def constant(used: Tensor, sums: Totals, horizon: int | None, ids: Tensor | None) -> Tensor:
    """Valid rows x horizon."""
    if horizon is None or horizon <= 0:
        raise ConfigError(
            Text(f'reduction "constant" with horizon = {horizon}', f'归约 "constant" 的 horizon = {horizon}'),
            Text(
                "give the length that counts as 1, > 0 (algorithm.horizon, or the limit of the policy's rollouts)",
                "请给出按 1 计的长度，大于 0（algorithm.horizon，或策略的采样上限）",
            ),
        )
    return sums["rows"] * horizon


REDUCTIONS: dict[str, Reduction] = {
    "token_mean": token_mean,
    "sequence_mean": sequence_mean,
    "prompt_mean": prompt_mean,
    "constant": constant,
}
"""Every reduction by the name used in recipes."""
