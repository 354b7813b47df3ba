"""Plain data as JSON, exactly typed, for what passes between a sandbox and the rest. Given to Python as text, so it
imports nothing of ours.

What is not plain (an object of the answer's own class, a function) has no form here: an object's own `__eq__`,
`__bool__` or `__contains__` never leaves the process that made it. Instances of classes derived from list, int ... go
as what they are derived from.
"""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction

MOST_ITEMS = 100_000
"""Taken from an iterator, which may have no end."""

EXACT = 1 << 53
ITERATORS = (
    *map(type, (iter(()), iter([]), iter({}), iter(set()), iter(""), iter(range(0)), reversed([]), {}.keys())),
    *map(type, ({}.values(), {}.items(), (None for _ in ()), map(str, ()), filter(None, ()), zip(), enumerate(()))),
    *(itertools.chain, itertools.accumulate, itertools.permutations, itertools.combinations, itertools.product),
    *(itertools.islice, itertools.starmap, itertools.takewhile, itertools.dropwhile, itertools.compress),
)


class NotPlain(Exception):
    """A value that is no data. Its text is the name of its type."""


def encode(x):
    """`x` as JSON can hold it. Raises: NotPlain."""
    if x is None or x is True or x is False:
        return x
    if isinstance(x, int):
        x = int.__add__(x, 0)
        return x if -EXACT < x < EXACT else {"i": hex(x)}
    if isinstance(x, str):
        return str.__getitem__(x, slice(None))
    if isinstance(x, float):
        return {"f": float.hex(float.__pos__(x))}
    for tag, kind in (("s", set), ("z", frozenset), ("t", tuple), ("q", deque)):
        if isinstance(x, kind):
            return {tag: [encode(v) for v in kind.__iter__(x)]}  # type: ignore[arg-type]
    if isinstance(x, list):
        return [encode(v) for v in list.__iter__(x)]
    if isinstance(x, dict):
        tag = next((tag for tag, kind in MAPPINGS.items() if isinstance(x, kind)), "d")
        return {tag: [[encode(k), encode(v)] for k, v in dict.items(x)]}
    return _rarer(x)


def _rarer(x):
    if isinstance(x, complex):
        return {"c": [float.hex(x.real), float.hex(x.imag)]}
    if isinstance(x, (bytes, bytearray)):
        return {"b" if isinstance(x, bytes) else "y": bytes(x).hex()}
    if type(x) is Decimal:
        return {"m": str(x)}
    if type(x) is Fraction:
        return {"r": [hex(x.numerator), hex(x.denominator)]}
    if type(x) is range:
        return {"g": [hex(x.start), hex(x.stop), hex(x.step)]}
    if type(x) in ITERATORS:
        taken = list(itertools.islice(x, MOST_ITEMS + 1))
        if len(taken) > MOST_ITEMS:
            raise NotPlain("iterator without end")
        return {"n": [encode(v) for v in taken]}
    raise NotPlain(type(x).__name__)


def holds_nan(tree):
    """Whether a value as `encode` writes it holds NaN."""
    if isinstance(tree, list):
        return any(map(holds_nan, tree))
    if not isinstance(tree, dict):
        return False
    if tree.keys() == {"f"} and isinstance(tree["f"], str):
        x = float.fromhex(tree["f"])
        return x != x
    return any(map(holds_nan, tree.values()))


MAPPINGS = {"o": OrderedDict, "u": Counter, "e": defaultdict}


def decode(tree):
    """What `encode` was given; iterators come back as iterators.

    Raises:
        ValueError, TypeError, RecursionError: `tree` is not of that form.
    """
    if tree is None or isinstance(tree, (bool, int, str)):
        return tree
    if isinstance(tree, list):
        return [decode(v) for v in tree]
    if not isinstance(tree, dict) or len(tree) != 1:
        raise ValueError("no plain data")
    ((tag, body),) = tree.items()
    if tag not in DECODERS:
        raise ValueError("no plain data")
    return DECODERS[tag](body)


def _pairs(body):
    return [(decode(k), decode(v)) for k, v in body]


def _finite_decimal(text):
    if len(text) > 10_000:
        raise ValueError("too long")
    return Decimal(text)


DECODERS = {
    "i": lambda b: int(b, 16),
    "f": float.fromhex,
    "s": lambda b: set(map(decode, b)),
    "z": lambda b: frozenset(map(decode, b)),
    "t": lambda b: tuple(map(decode, b)),
    "q": lambda b: deque(map(decode, b)),
    "n": lambda b: iter(list(map(decode, b))),
    "d": lambda b: dict(_pairs(b)),
    "o": lambda b: OrderedDict(_pairs(b)),
    "u": lambda b: Counter(dict(_pairs(b))),
    "e": lambda b: defaultdict(None, _pairs(b)),
    "c": lambda b: complex(float.fromhex(b[0]), float.fromhex(b[1])),
    "b": bytes.fromhex,
    "y": bytearray.fromhex,
    "m": _finite_decimal,
    "r": lambda b: Fraction(int(b[0], 16), int(b[1], 16)),
    "g": lambda b: range(*(int(n, 16) for n in b)),
}
