"""Writes the example data of this folder: `python examples/make_data.py`. Nothing is downloaded."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "data"

NAMES = ["Ann", "Ben", "Cora", "Dan", "Eva", "Finn", "Gia", "Hugo", "Ida", "Jon"]
THINGS = ["apples", "pens", "stamps", "shells", "marbles", "books"]


def shopping(count: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """One-step word problems with the two numbers in columns of their own, for the reward in rewards.py."""
    draw, seen = random.Random(seed), set()
    while len(seen) < count:
        name, thing = draw.choice(NAMES), draw.choice(THINGS)
        a, b = draw.randint(2, 40), draw.randint(2, 40)
        if (name, thing, a, b) in seen:
            continue
        seen.add((name, thing, a, b))
        question = f"{name} has {a} {thing} and gets {b} more. How many {thing} does {name} have?"
        yield {"prompt": question, "answer": str(a + b), "first": a, "second": b}


def mixed_sums(each: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Sums of two numbers of one, two and three digits: what a small model can do, can learn, and can hardly."""
    draw, rows = random.Random(seed), {}
    for digits in (1, 2, 3):
        low, high = 10 ** (digits - 1), 10**digits - 1
        every = {(draw.randint(low, high), draw.randint(low, high)) for _ in range(20 * each)}
        for a, b in draw.sample(sorted(every), min(each, len(every))):
            rows[f"What is {a} + {b}?"] = {"answer": str(a + b), "digits": digits}
    for question in draw.sample(sorted(rows), len(rows)):
        yield {"prompt": question, **rows[question]}


FUNCTIONS = [
    ("adds {n} to x", "x + {n}", lambda x, n: x + n),
    ("multiplies x by {n}", "x * {n}", lambda x, n: x * n),
    ("subtracts {n} from x", "x - {n}", lambda x, n: x - n),
    ("gives the remainder of x divided by {n}", "x % {n}", lambda x, n: x % n),
    ("tells whether x is greater than {n}", "x > {n}", lambda x, n: x > n),
    ("gives the larger of x and {n}", "max(x, {n})", lambda x, n: max(x, n)),
    ("squares x and adds {n}", "x * x + {n}", lambda x, n: x * x + n),
    ("repeats the text x {n} times", "x * {n}", lambda x, n: x * n),
    ("gives the first {n} characters of the text x", "x[:{n}]", lambda x, n: x[:n]),
    ("appends {n} to the list x", "x + [{n}]", lambda x, n: [*x, n]),
]


def functions(numbers: Iterable[int] = range(2, 14)) -> Iterator[dict[str, Any]]:
    """Small Python functions with tests: calls and expected values, kept apart so that no answer can read them."""
    for words, body, apply in FUNCTIONS:
        inputs = (
            ["'ab'", "'hello'", "''"]
            if "text" in words
            else ["[]", "[1, 2]"]
            if "list" in words
            else ["-3", "0", "7", "40"]
        )
        for n in numbers:
            tests = [{"call": f"f({x})", "expected": apply(eval(x), n)} for x in inputs]
            yield {
                "prompt": f"Write a Python function f(x) that {words.format(n=n)}.",
                "answer": f"def f(x):\n    return {body.format(n=n)}",
                "tests": tests,
            }


def write(name: str, rows: Iterable[dict[str, Any]]) -> None:
    FOLDER.mkdir(exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write("shopping.jsonl", shopping(400))
    write("functions.jsonl", functions())
    write("mixed_sums.jsonl", mixed_sums(80))
