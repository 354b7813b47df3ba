"""Mathematical equality by math-verify. Runs in a worker process: its own alarm fails silently off the main thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from math_verify import parse, verify


def math_verify(prompts: Sequence[Any], outputs: Sequence[str], answer: Sequence[Any]) -> list[float | None]:
    """1 where math-verify finds the output's last expression equal to the answer; None where the answer is no formula.

    Both of math-verify's own time-outs are off: the worker that runs this is killed instead.
    """

    def read(text: str) -> Any:
        return parse(text, parsing_timeout=None)  # type: ignore[arg-type]

    def one(output: str, gold: Any) -> float | None:
        text = str(gold).strip()
        wanted = read(text if "$" in text or "\\boxed" in text else f"${text}$") or read(text)
        if gold is None or not wanted:
            return None
        return float(verify(wanted, read(output), timeout_seconds=None))

    return [one(output, gold) for output, gold in zip(outputs, answer, strict=True)]
