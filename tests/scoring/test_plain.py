"""Plain data between sandboxes: exactly typed, and nothing but data."""

import json
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anygrpo.scoring._plain import NotPlain, decode, encode
from anygrpo.scoring._tester import same

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
HASHABLE = st.recursive(LEAVES, lambda x: st.tuples(x, x) | st.frozensets(x, max_size=3), max_leaves=4)
DATA = st.recursive(
    LEAVES | HASHABLE,
    lambda x: st.lists(x, max_size=3) | st.tuples(x) | st.dictionaries(HASHABLE, x, max_size=3),
    max_leaves=10,
)


def through(x):
    return decode(json.loads(json.dumps(encode(x))))


def types(x):
    if isinstance(x, dict):
        return type(x), [(types(k), types(v)) for k, v in x.items()]
    return (type(x), sorted(map(str, map(types, x)))) if isinstance(x, list | tuple | frozenset) else type(x)


@given(DATA)
def test_values_come_back_with_their_types(x):
    assert through(x) == x
    assert types(through(x)) == types(x)


@pytest.mark.parametrize(
    "x",
    [
        -(10**400), 1 << 53, complex(1, -2), bytearray(b"a"), range(3, 9, 2), Decimal("1.10"), Fraction(1, 3), {1, 2},
        deque([1, [2]]), Counter("aab"), OrderedDict(a=1), float("inf"), "\ud800",
    ],
)  # fmt: skip
def test_rarer_ones(x):
    assert through(x) == x
    assert type(through(x)) is type(x)


def test_iterators_come_as_iterators():
    assert list(through(i * i for i in range(3))) == [0, 1, 4]
    assert list(through({1: 2}.items())) == [(1, 2)]
    assert list(through(map(str, [1]))) == ["1"]
    assert dict(through(defaultdict(int, a=1))) == {"a": 1}


def test_derived_classes_are_what_they_derive_from():
    class All(int):
        def __eq__(self, other):
            return True

        __hash__ = int.__hash__

    class Liar(list):
        def __iter__(self):
            return iter([5])

    assert encode(All(9)) == 9
    assert encode(Liar([1, 2])) == [1, 2]


def test_what_is_no_data_has_no_form():
    for alien in (object(), lambda: 0, type, (x for x in iter(int, 1))):
        with pytest.raises(NotPlain):
            encode(alien)


FORGED = [{"x": 1}, {"s": [[1]]}, {"i": "zz"}, {"d": [[1]]}, {"f": 3}, 1.5, {"m": "1" * 20_000}, {}]


@pytest.mark.parametrize("tree", FORGED)
def test_forged_trees_are_refused(tree):
    with pytest.raises((ValueError, TypeError)):
        decode(tree)


def test_same():
    assert same([1, (2.0, "a")], [1.0, [2, "a"]])
    assert same(0.1 + 0.2, 0.3)
    assert same({"a": 1}, {"a": 1})
    assert same(iter([1, 2]), [1, 2])
    assert not same(True, 1)
    assert not same(1, True)
    assert not same([1], [1, 2])
    assert not same("1", 1)
    assert not same(float("nan"), 1.0)
    assert not same(None, 0)
