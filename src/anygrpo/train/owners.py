"""Whose fault it is when training breaks: a user's own policy, task or function is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from anygrpo.core import border, task_border
from anygrpo.errors import AnygrpoError, ConfigError, TrainingError
from anygrpo.spoken import Text
from anygrpo.train.run import Run


@contextmanager
def named(run: Run) -> Iterator[None]:
    """Faults of the user's own code inside end as errors that name it: a ConfigError before this process has taken a
    step, a TrainingError after.

    What no border checks at each call is found afterwards: policy and task are tried once more, as before the first
    step, and what is wrong with them by now is the error.
    """
    begun = run.step
    try:
        yield
    except ConfigError as error:
        if run.step == begun:
            raise
        raise TrainingError(_at(run) + Text(error.what, error.what), error.cure) from error
    except AnygrpoError:
        raise
    except Exception as error:
        found = _fault(run)
        if found is None:
            raise
        kind = ConfigError if run.step == begun else TrainingError
        raise kind(_at(run) + Text(found.what, found.what), found.cure) from error


def _at(run: Run) -> Text:
    return Text(f"step {run.step}: ", f"第 {run.step} 步：")


def _fault(run: Run) -> ConfigError | None:
    """What the user's own policy or task does wrong now, if anything."""
    planned = run.stages[run.stage_index(min(run.step, run.total_steps - 1))]
    theirs = lambda x: not type(x).__module__.startswith("anygrpo.")  # noqa: E731
    try:
        prompts = planned.task.prompts(0, planned.stage.algorithm.prompts_per_step)
        if theirs(planned.task):
            prompts = task_border.check_task(planned.task, planned.stage.algorithm.prompts_per_step)
        if theirs(run.policy) and planned.stage.source == "policy":
            with torch.enable_grad():
                border.check_policy(run.policy, prompts, greedy=bool(planned.task.held_out()))
    except ConfigError as error:
        return error
    except Exception:
        return None
    return None
