"""The judge and the answer, each in its sandbox, joined by two pipes; and what their end means."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from dataclasses import replace
from typing import Any

from anygrpo.scoring import sandbox
from anygrpo.scoring.sandbox import MEGABYTE, Box, Clock, Limits
from anygrpo.scoring.specs import Program, Suite


class NoVerdict(Exception):
    """Nobody knows whether the answer is right. `tests`: the tests are at fault; `idle`: it waited for something that
    is not the CPU; else the sandbox or the machine is."""

    def __init__(self, reason: str, tests: bool = False) -> None:
        super().__init__(reason)
        self.tests, self.idle = tests, "waits for something" in reason


def judge(code: str, suite: Suite, limits: Limits, every: bool) -> int:
    """How many tests of `suite` the code passes; unless `every`, the first failure ends it.

    CPU time and memory used up are the code's fault: what was not passed by then has failed.

    Raises:
        NoVerdict: the sandbox did not start, the machine was at fault, or the tests cannot be judged.
    """
    with contextlib.ExitStack() as stack:
        ask_end, asks, reply_end, replies = *os.pipe(), *os.pipe()
        with contextlib.ExitStack() as pipes:
            for descriptor in (ask_end, asks, reply_end, replies):
                pipes.callback(os.close, descriptor)
            request = {"code": code, "asks": ask_end, "replies": replies}
            answer = stack.enter_context(sandbox.box(sandbox.inside(), request, limits, pipes=(ask_end, replies)))
            request = _request(suite, every, limits) | {"asks": asks, "replies": reply_end}
            wide = judge_limits(limits)
            judging = stack.enter_context(sandbox.box(sandbox.judge(), request, wide, pipes=(asks, reply_end)))
        for each in (judging, answer):
            if not each.started():
                each.kill()
                each.process.wait()
                raise NoVerdict(f"the sandbox did not start: {each.words() or each.finish()}")
        fault = _wait(answer, judging)
        judging.finish()
        return _verdict(judging.output(), fault, every)


def judge_limits(limits: Limits) -> Limits:
    """What the tests themselves may use."""
    return replace(limits, seconds=2 * limits.seconds + 3, memory_mb=max(512, limits.memory_mb), output_mb=4)


def _request(suite: Suite, every: bool, limits: Limits) -> dict[str, Any]:
    steps = [{"kind": s.kind, "source": s.source, "expected": s.expected, "ends": s.ends} for s in suite.steps]
    most = {"most": limits.output_mb * MEGABYTE, "all": every}
    return {"steps": steps, "names": suite.names, "modules": suite.modules, "nan": suite.nan} | most


def _wait(answer: Box, judging: Box) -> str:
    """Until the judge has ended. Why there may be no verdict, or ""."""
    clock = Clock.start(answer.limits)
    for pause in sandbox.pauses():
        if judging.exited(pause):
            murdered = answer.exited() and not answer.killed and answer.finish() == -signal.SIGKILL
            return clock.memory_fault() if murdered else ""
        if not answer.killed and answer.overused():
            answer.kill()  # the judge reads the end of the pipe, and goes on
        elif judging.overused():
            return "the tests used up their CPU time or memory"
        if fault := clock.fault([answer, judging]):
            return fault
    return ""


def _verdict(output: bytes, fault: str, every: bool) -> int:
    lines = [_line(line) for line in output.splitlines()]
    for line in lines:
        if "unjudgeable" in line:
            raise NoVerdict(f"the tests cannot be judged: {line['unjudgeable']}", tests=True)
    passed = [bool(line["passed"]) for line in lines if "test" in line]
    if not every and not all(passed):
        return 0
    loaded, done = (any(word in line for line in lines) for word in ("loaded", "done"))
    if fault.startswith("the tests") and loaded:
        return sum(passed)  # what hung them is a value of the answer's: they end with honest ones
    if fault or not (loaded or done):
        raise NoVerdict(
            fault or "the judge ended before the tests began", tests=not fault or fault.startswith("the tests")
        )
    return sum(passed)


def _line(line: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(line))
    except (ValueError, TypeError):
        return {}


def prints(code: str, program: Program, limits: Limits) -> bool:
    """Whether the program, given its input, ends well and prints what it should, white space aside.

    Raises:
        NoVerdict: as `judge`.
    """
    done = sandbox.run(code, program.given, limits)
    if done.fault:
        raise NoVerdict(done.fault)
    return done.code == 0 and done.output.decode(errors="replace").split() == program.expected.split()
