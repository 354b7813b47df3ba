"""What the pointers of a file mean: ids or positions, found from what agrees in every row.

Writers of these files gave the same three names different meanings over time. A pair of fields that translate into
each other through the pool (ids beside the positions of just these ids) proves both of its readings; where a third
field contradicts such a pair, the third is stale. Nothing is guessed: rows that no pair settles, and that a bare
`pointer` could mean two things by, are refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from anygrpo.errors import DataError
from anygrpo.selection.tables import key
from anygrpo.spoken import Text

FIELDS = ("pointer", "pointer_pos", "pointer_global")
Signature = tuple[tuple[str, ...], bool]
"""The pointer fields that a row has, and whether its query has a pool."""


@dataclass(frozen=True)
class Row:
    """A candidate with pointers: its query, the query's pool (None: not given) and its fields."""

    qid: str
    pool: list[Any] | None
    place: dict[str, int] | None  # id, as text -> position
    fields: dict[str, list[Any]]

    @property
    def signature(self) -> Signature:
        return tuple(name for name in FIELDS if name in self.fields), self.pool is not None


@dataclass(frozen=True)
class Reading:
    """How a group of rows is read: `name` as "ids" or "positions".

    Attributes:
        at: the field with the positions of the same picks, where there is one (a pool may hold an id twice).
        stale: fields that contradict it, and in how many rows.
    """

    name: str
    kind: str
    at: str | None = None
    stale: dict[str, int] = field(default_factory=dict)

    @property
    def meaning(self) -> str:
        """What `pointer` means under it: global, local."""
        if self.name == "pointer":
            return "global" if self.kind == "ids" else "local"
        return "local" if self.name == "pointer_global" else "global"


def row_of(qid: str, pool: list[Any] | None, candidate: Any) -> Row:
    """Raises: DataError: no object, no pointer at all, or one that is not a list of ids or positions."""
    if not isinstance(candidate, dict):
        raise DataError(
            Text(
                f"query {qid!r}: a candidate is {candidate!r}, and an object with a pointer is wanted",
                f"查询 {qid!r}：有一个候选为 {candidate!r}，应为带指针的对象",
            )
        )
    found = {name: _flat(qid, name, candidate[name]) for name in FIELDS if candidate.get(name) is not None}
    if "pointer" not in found and "pointer_global" not in found:
        raise DataError(Text(f"query {qid!r}: a candidate without pointer", f"查询 {qid!r}：有一个候选没有指针"))
    return Row(qid, pool, None if pool is None else places(pool), found)


def _flat(qid: str, name: str, value: Any) -> list[Any]:
    """A list of ids or positions; a list in a list of its own is that list, and 3.0 is 3."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    if not isinstance(value, list):
        raise DataError(
            Text(f"query {qid!r}: {name} = {value!r} is not a list", f"查询 {qid!r}：{name} = {value!r} 不是列表")
        )
    if odd := [i for i in value if not isinstance(i, str | int | float)]:
        raise DataError(
            Text(
                f"query {qid!r}: {name} holds {odd[0]!r}, and ids or positions are wanted",
                f"查询 {qid!r}：{name} 中有 {odd[0]!r}，应为编号或位置",
            )
        )
    return [int(i) if isinstance(i, float) and i.is_integer() else i for i in value]


def places(pool: list[Any]) -> dict[str, int]:
    """Id, as text -> its first position."""
    return {key(item): i for i, item in reversed(list(enumerate(pool)))}


def as_ids(row: Row, name: str) -> list[str] | None:
    """The field as ids, or None where one of them is not in the row's pool (without a pool every id is)."""
    value = [key(i) for i in row.fields[name]]
    return value if row.place is None or all(i in row.place for i in value) else None


def as_positions(row: Row, name: str) -> list[str] | None:
    """The ids at the positions that the field holds, or None where it cannot be positions."""
    value = row.fields[name]
    if row.pool is None or any(
        not isinstance(i, int) or isinstance(i, bool) or not 0 <= i < len(row.pool) for i in value
    ):
        return None
    return [key(row.pool[i]) for i in value]


_READ: dict[str, Callable[[Row, str], list[str] | None]] = {"ids": as_ids, "positions": as_positions}


def picked(row: Row, reading: Reading) -> list[str]:
    """The ids that a row picks under a reading, checked.

    Raises:
        DataError: a pointer outside its pool.
    """
    ids = _READ[reading.kind](row, reading.name)
    if ids is None:
        raise _outside(row, reading.name, reading.kind)
    return ids


def positions(row: Row, reading: Reading, place: dict[str, int]) -> tuple[int, ...]:
    """The positions that a row picks in its pool.

    Args:
        place: id, as text -> its first position.
    """
    ids = picked(row, reading)
    field = reading.name if reading.kind == "positions" else reading.at
    return tuple(row.fields[field]) if field is not None else tuple(place[i] for i in ids)


def read(path: Any, rows: list[Row], index: str) -> dict[Signature, Reading]:
    """A reading for each set of fields that rows have.

    Args:
        index: what a bare `pointer` means: "global", "local", or "auto".

    Raises:
        DataError: pointers that contradict each other or their pool, or that two readings fit.
    """
    groups: dict[Signature, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.signature].append(row)
    found = {key: _paired(group, key[0]) for key, group in groups.items() if len(key[0]) > 1}
    settled = {r.meaning for r in found.values() if r is not None}
    bare = {key: _bare(path, groups[key], key[0], index, settled) for key in groups if found.get(key) is None}
    return {key: reading for key, reading in found.items() if reading is not None} | bare


def _paired(rows: list[Row], names: tuple[str, ...]) -> Reading | None:
    """By the pair of fields that agrees in every row; None where all fields say the same and none translates."""
    pairs = [(a, b) for a in names for b in names if a != b and a != "pointer_pos" and b != "pointer_global"]
    if rows[0].pool is None:
        return Reading("pointer_global" if "pointer_global" in names else "pointer", "ids")
    good = [
        (a, b) for a, b in pairs if all(as_ids(r, a) is not None and as_ids(r, a) == as_positions(r, b) for r in rows)
    ]
    if good:
        a = good[0][0]
        if any(as_ids(r, a) != as_ids(r, other) for other, _ in good[1:] for r in rows):
            raise DataError(
                Text(
                    f"query {rows[0].qid!r}: {a} and {good[-1][0]} are both ids with positions, of other items",
                    f"查询 {rows[0].qid!r}：{a} 与 {good[-1][0]} 都是有位置对应的编号，但指向不同的项",
                )
            )
        return Reading(a, "ids", good[0][1], _stale(rows, a, {n for pair in good for n in pair}))
    same = (
        [n for n in names[1:] if all([*map(key, r.fields["pointer"])] == [*map(key, r.fields[n])] for r in rows)]
        if "pointer" in names
        else []
    )
    if len(same) == len(names) - 1:
        return None  # copies of one list: as good as a bare pointer
    if same == ["pointer_global"] and all(as_ids(r, "pointer") is not None for r in rows):
        return Reading("pointer", "ids", None, _stale(rows, "pointer", {"pointer", "pointer_global"}))
    raise _contradiction(rows, names)


def _stale(rows: list[Row], name: str, agreeing: set[str]) -> dict[str, int]:
    """Rows in which each other field is not what its name says of the same picks."""
    means = {"pointer_pos": as_positions, "pointer_global": lambda row, n: [key(i) for i in row.fields[n]]}
    wrong: dict[str, int] = {}
    for other in sorted({n for row in rows for n in row.fields} - agreeing):
        fits = [as_ids(r, name) in (means[other](r, other),) if other in means else True for r in rows]
        if not all(fits):
            wrong[other] = fits.count(False)
    return wrong


def _contradiction(rows: list[Row], names: tuple[str, ...]) -> DataError:
    if len(names) == 3:
        first = rows[0]
        return DataError(
            Text(
                f"query {first.qid!r}: pointer equals neither pointer_pos nor pointer_global, nor does a pair of them "
                "agree in every row",
                f"查询 {first.qid!r}：pointer 既不等于 pointer_pos 也不等于 pointer_global，也没有两者在每一行都相符",
            ),
            Text(
                "ids and positions of the same picks are wanted in two of the three",
                "三者中应有两个是同一选择的编号和位置",
            ),
        )
    ids, positions = (names[0], names[1]) if "pointer_pos" in names else ("pointer_global", "pointer")
    for row in rows:
        if as_ids(row, ids) is None:
            return _outside(row, ids, "ids")
        at = as_positions(row, positions)
        if at is None:
            return _outside(row, positions, "positions")
        if at != as_ids(row, ids):
            there = [row.pool[i] for i in row.fields[positions]]  # type: ignore[index]
            return DataError(f"query {row.qid!r}: positions {row.fields[positions]} are {there}, not {row.fields[ids]}")
    raise AssertionError("some row contradicts")


def _bare(path: Any, rows: list[Row], names: tuple[str, ...], index: str, settled: set[str]) -> Reading:
    """A single list, or copies of one: ids or positions by what fits every pool; refused where both do and differ."""
    name = "pointer" if "pointer" in names else names[0]
    if name == "pointer_global":
        return Reading(name, "ids")
    if index != "auto":
        return Reading(name, "ids" if index == "global" else "positions")
    ids, positions = [as_ids(r, name) for r in rows], [as_positions(r, name) for r in rows]
    fits = [all(x is not None for x in ids), all(x is not None for x in positions)]
    if fits == [False, False]:
        raise DataError(
            Text(
                f"{path}: some pointer is neither an id in its query's pool nor a position in it",
                f"{path}：有的指针既不是其查询候选池中的编号，也不是其中的位置",
            )
        )
    if fits == [True, True] and ids != positions:
        if len(settled) == 1:
            return Reading(name, "ids" if settled == {"global"} else "positions")
        raise DataError(
            Text(
                f"{path} is ambiguous: every pointer is both an id in its pool and a position in "
                "it, with other meanings",
                f"{path} 有歧义：每个指针既是候选池中的编号，又是其中的位置，而含义不同",
            ),
            Text(
                'say which: index = "global" or index = "local" (--index for select inspect)',
                '请说明是哪一种：index = "global" 或 index = "local"（select inspect 用 --index）',
            ),
        )
    return Reading(name, "ids" if fits[0] else "positions")


def _outside(row: Row, name: str, kind: str) -> DataError:
    size = len(row.pool or ())
    if row.pool is None:
        return DataError(
            Text(
                f"query {row.qid!r} has positions, but neither candidate_pool_ids nor pointer_global",
                f"查询 {row.qid!r} 有位置，但既没有 candidate_pool_ids 也没有 pointer_global",
            )
        )
    value = row.fields[name]
    if kind == "ids":
        bad = next(i for i in value if key(i) not in row.place)  # type: ignore[operator]
        return DataError(
            Text(
                f"query {row.qid!r}: pointer {bad!r} is outside its pool of {size}",
                f"查询 {row.qid!r}：指针 {bad!r} 不在大小为 {size} 的候选池中",
            )
        )
    bad = next(i for i in value if not isinstance(i, int) or isinstance(i, bool) or not 0 <= i < size)
    return DataError(
        Text(
            f"query {row.qid!r}: position {bad} is outside its pool of {size}",
            f"查询 {row.qid!r}：位置 {bad} 不在大小为 {size} 的候选池中",
        )
    )
