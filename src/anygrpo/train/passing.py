"""pass@k: how often at least one of k samples succeeds."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from anygrpo.core.task import Scores, Success, Task
from anygrpo.errors import ConfigError, suggestion
from anygrpo.recipe.training import EvaluationConfig
from anygrpo.spoken import Text


def pass_at_k(right: Tensor, k: int, judged: Tensor | None = None) -> Tensor:
    """The unbiased estimate of pass@k for each prompt, [P], from n >= k samples [P, n] bool, of which c are right:
    1 - C(n - c, k) / C(n, k) (Chen et al., arXiv 2107.03374, eq. 1).

    Args:
        judged: [P, n] bool: samples that could be judged, of which n is made; all, if not given. A prompt with fewer
            than k has NaN.
    """
    judged = torch.ones_like(right) if judged is None else judged
    counts = zip(judged.sum(1).tolist(), (judged & ~right).sum(1).tolist())
    found = [1.0 - math.comb(wrong, k) / math.comb(n, k) if n >= k else math.nan for n, wrong in counts]
    return torch.tensor(found, dtype=torch.float64)


def success_of(task: Task, config: EvaluationConfig) -> Success | None:
    """What counts as a success: the recipe's word, else the task's; None where nothing says so."""
    if config.success is not None:
        return Success(config.success.component, config.success.at_least)
    return task.success


def unanswerable(task: Task, config: EvaluationConfig) -> str | None:
    """Why pass@k, which the recipe asks for, is left out; None where it is not."""
    if not config.pass_k or success_of(task, config) is not None:
        return None
    return (
        f"evaluation.pass_k = {config.pass_k} is left out: nothing says when an answer of {type(task).__name__} is "
        'right; set evaluation.success = {component = "reward", at_least = 1.0}, with the component that judges'
    )


def right(scores: Scores, success: Success) -> Tensor:
    """[P, G] bool: valid and at least `success.at_least` in the component that judges.

    Raises:
        ConfigError: there is no such component.
    """
    if success.component != "reward" and success.component not in scores.components:
        raise ConfigError(
            Text(
                f"evaluation.success.component = {success.component!r} is not among the scores",
                f"evaluation.success.component = {success.component!r} 不在各分数之中",
            ),
            suggestion(success.component, ["reward", *scores.components]),
        )
    value = scores.rewards if success.component == "reward" else scores.components[success.component]
    passed = value >= success.at_least
    return passed if scores.valid is None else passed & scores.valid
