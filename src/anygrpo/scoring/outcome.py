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


class Broken(str):
    """A reason: the user's code gave nothing that can be used: its process ended, it answered too late, its number is
    not finite. `cure` says what to change, where there is more to say than that it is to be mended."""

    cure: str

    def __new__(cls, reason: str, cure: str = "") -> Broken:
        made = super().__new__(cls, reason)
        made.cure = cure
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
            TrainingError: it raised on all of them (with its traceback), or was broken otherwise.
            ConfigError: on all of them it returned what is of another kind.
        """
        failed = [one for one in outcomes if isinstance(one, Raised | Unfit | Broken)]
        self.worked = self.worked or any(one == "" or not isinstance(one, str) for one in outcomes)
        if self.worked or len(failed) < max(2, len(outcomes)):  # what failed elsewhere says nothing of the function
            return
        raised = next((one for one in failed if isinstance(one, Raised)), None)
        if raised is not None:
            raise self._raised(raised, failed)
        broken = next((one for one in failed if isinstance(one, Broken)), None)
        raise self._broken(broken, len(failed)) if broken is not None else self._unfit(failed[0], len(failed))

    def _raised(self, reason: Raised, failed: Sequence[str]) -> TrainingError:
        count, trace = len(failed), "\n" + reason.trace.rstrip()
        if not all(isinstance(one, Raised) for one in failed):
            what = Text(
                f" failed on all of the first {count} outputs, as here: ", f" 对最初 {count} 个输出全部失败，如："
            )
        else:
            what = Text(f" raised on all of the first {count} outputs: ", f" 对最初 {count} 个输出全部抛出异常：")
        return TrainingError(self.name + what + Text(reason + trace, reason + trace), Text("mend it", "请修正该函数"))

    def _broken(self, reason: Broken, count: int) -> TrainingError:
        what = Text(
            f" failed on all of the first {count} outputs: {reason}", f" 对最初 {count} 个输出全部失败：{reason}"
        )
        return TrainingError(self.name + what, reason.cure or Text("mend it", "请修正"))

    def _unfit(self, reason: str, count: int) -> ConfigError:
        own = getattr(reason, "wanted", "")
        what = Text(f": of all of the first {count} outputs {reason}", f"：对最初 {count} 个输出全部如此：{reason}")
        cure = Text("it has to return ", "应当返回：") + (Text(own, own) if own else self.wanted)
        return ConfigError(self.name + what, cure)
