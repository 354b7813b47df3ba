"""Whose fault it is when training breaks: a user's own policy, task or function is named."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from anygrpo.core import border, task_border
from anygrpo.core.user_code import describe, described, users_place
from anygrpo.errors import AnygrpoError, ConfigError, TrainingError
from anygrpo.spoken import Text
from anygrpo.train.folder import no_memory
from anygrpo.train.parallel import is_sharded
from anygrpo.train.run import Run

_OF_A_VALUE = (
    TypeError, AttributeError, ValueError, LookupError, ArithmeticError, AssertionError, NotImplementedError,
)  # fmt: skip
"""What our own lines raise at a value of another type or shape; torch's are plain RuntimeErrors."""
_OF_A_DEVICE = ("CUDA error", "CUBLAS_STATUS", "CUDNN_STATUS", "NCCL")
_NOT_THEIRS = ("train.trackers", "train.folder", "train.snapshot", "train.checkpoint", "doctor", "report", "files")
"""Rooms and files that no value of a user's policy or task breaks: they write, and look at what was written."""


@contextmanager
def named(run: Run) -> Iterator[None]:
    """Faults of the user's own code inside end as errors that name it: a ConfigError before this process has taken a
    step, a TrainingError after.

    What no border checks at each call is found afterwards: where the error can come of their values, policy and task
    are tried once more, as before the first step, and what is wrong with them by now is told beside it.
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
        found = _fault(run) if _may_be_theirs(error) else None
        if found is None:
            raise
        kind = ConfigError if run.step == begun else TrainingError
        raise kind(_at(run) + _both(found, error), found.cure) from error


def _at(run: Run) -> Text:
    return Text(f"step {run.step}: ", f"第 {run.step} 步：")


def _both(found: ConfigError, error: Exception) -> Text:
    """What is wrong with the user's own, and the error that ended the run, unless they are one."""
    first, last = Text(found.what, found.what), describe(error)
    if described(error)[:300].replace("\n", " ") in found.what:
        return first
    return first + Text(f"; the run ended by {last}", f"；训练因此结束：{last}")


def _may_be_theirs(error: Exception) -> bool:
    """Whether it came out of the user's own file, or out of our lines as at a value that nobody can work with. A full
    disk, a tracker, memory and a broken device say nothing about anybody's policy."""
    text = described(error)
    device = isinstance(error, getattr(torch, "AcceleratorError", ())) or any(x in text for x in _OF_A_DEVICE)
    if device or no_memory(error):
        return False
    if users_place(error) is not None:
        return True
    return (isinstance(error, _OF_A_VALUE) or type(error) is RuntimeError) and all(map(_handles, _modules(error)))


def _modules(error: Exception) -> list[str]:
    names, trace = [], error.__traceback__
    while trace is not None:
        names.append(str(trace.tb_frame.f_globals.get("__name__", "")))
        trace = trace.tb_next
    return names


def _handles(module: str) -> bool:
    """Whether this module may have got a value of the user's own in hand."""
    root, _, rest = module.partition(".")
    return root in ("torch", *sys.stdlib_module_names) or (root == "anygrpo" and not rest.startswith(_NOT_THEIRS))


def _fault(run: Run) -> ConfigError | None:
    """What the user's own policy or task does wrong now, if anything."""
    planned = run.stages[run.stage_index(min(run.step, run.total_steps - 1))]
    theirs = lambda x: not type(x).__module__.startswith("anygrpo.")  # noqa: E731
    try:
        if any(is_sharded(p) for p in run.policy.parameters()):  # the other ranks would not join in its collectives
            return None
        prompts = list(planned.task.prompts(0, planned.stage.algorithm.prompts_per_step))
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
