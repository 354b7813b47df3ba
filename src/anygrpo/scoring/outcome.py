"""What a reward says of one output, and when the fault is the reward's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anygrpo.errors import ConfigError, TrainingError
from anygrpo.spoken import Text

Outcome = float | str | None
"""A finite number, the reason why there is none, or None: the reward does not apply to that output."""


class Raised(str):
    """A reason: the reward itself raised. `trace` is its traceback."""

    trace: str

    def __new__(cls, reason: str, trace: str) -> Raised:
        made = super().__new__(cls, reason)
        made.trace = trace
        return made


class Elsewhere(str):
    """A reason that is no fault of the output's: the machine, a tool or an endpoint failed. In an evaluation such a
    sample is left out; any other without a verdict has the task's lowest reward."""


class Unfit(str):
    """A reason: what the user's function returned is of no kind that is wanted. `wanted` says what is, where one object
    has several functions."""

    wanted: str

    def __new__(cls, reason: str, wanted: str = "") -> Unfit:
        made = super().__new__(cls, reason)
        made.wanted = wanted
        return made


def outcome_of(verdict: Any) -> Outcome:
    """A worker's verdict as an outcome."""
    if not isinstance(verdict, dict):
        return verdict
    return Unfit(verdict["unfit"]) if "unfit" in verdict else Raised(verdict["raised"], verdict["trace"])


@dataclass
class FirstCall:
    """Whether a function of the user's works at all: no later step mends one that fails on every output of its first
    call. A bad output is data; a single one says nothing of the function.

    Attributes:
        name: whose fault it is: "the reward 'smooth'".
        wanted: what it has to return, where an `Unfit` does not say so itself.
    """

    name: Text
    wanted: Text
    worked: bool = False

    def see(self, outcomes: Sequence[Any]) -> None:
        """What was said of a call's outputs.

        Raises:
            TrainingError: it raised on all of them; with its traceback.
            ConfigError: on all of them it returned what is of another kind.
        """
        failed = [one for one in outcomes if isinstance(one, Raised | Unfit)]
        self.worked = self.worked or any(one == "" or not isinstance(one, str) for one in outcomes)
        if self.worked or len(failed) < max(2, len(outcomes)):  # what failed elsewhere says nothing of the function
            return
        count, raised = len(failed), next((one for one in failed if isinstance(one, Raised)), None)
        if raised is not None:
            what = self.name + Text(
                f" raised on all of the first {count} outputs: {raised}",
                f" 对最初 {count} 个输出全部抛出异常：{raised}",
            )
            trace = "\n" + raised.trace.rstrip()
            raise TrainingError(what + Text(trace, trace), Text("mend it", "请修正该函数"))
        own = getattr(failed[0], "wanted", "")
        what = Text(
            f": of all of the first {count} outputs {failed[0]}", f"：对最初 {count} 个输出全部如此：{failed[0]}"
        )
        cure = Text("it has to return ", "应当返回：") + (Text(own, own) if own else self.wanted)
        raise ConfigError(self.name + what, cure)
