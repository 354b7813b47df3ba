"""Rewards of one's own, named in a recipe as `function = "examples/rewards.py:NAME"`.

A reward is called as function(prompts, outputs, **columns): lists with one entry an output, and one list for each
column of the data that it names. It returns a number for each output, or None where it can give no verdict. It
may be async.
"""

from __future__ import annotations

import re


def close(prompts: list, outputs: list[str], first: list[int], second: list[int]) -> list[float]:
    """1 for the right sum, and less the further the last number is from it: a slope where exact match gives a step."""
    rewards = []
    for output, a, b in zip(outputs, first, second):
        numbers = re.findall(r"\d+", output)
        error = abs(int(numbers[-1][:9]) - (a + b)) if numbers else a + b
        rewards.append(max(0.0, 1.0 - error / (a + b)))
    return rewards


async def brief(prompts: list, outputs: list[str], most: int) -> list[float]:
    """1 up to `most` words (a setting of the recipe), then falling. Async, as one that asks a server would be."""
    return [min(1.0, most / max(1, len(output.split()))) for output in outputs]
