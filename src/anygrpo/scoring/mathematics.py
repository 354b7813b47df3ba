"""Mathematical equality by math-verify. Runs in a worker process: its own alarm fails silently off the main thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from math_verify import parse, verify


def math_verify(prompts: Sequence[Any], outputs: Sequence[str], answer: Sequence[Any]) -> list[float | None]:
    """1 where math-verify finds the output's last expression equal to the answer; None where the answer is no formula.

    Both of math-verify's own time-outs are off: the worker that runs this is killed instead.
    """

    def one(output: str, gold: Any) -> float | None:
        text = str(gold).strip()
        wanted = parse(text if "$" in text or "\\boxed" in text else f"${text}$", parsing_timeout=None) or parse(
            text, parsing_timeout=None
        )
        if gold is None or not wanted:
            return None
        return float(verify(wanted, parse(output, parsing_timeout=None), timeout_seconds=None))

    return [one(output, gold) for output, gold in zip(outputs, answer, strict=True)]
