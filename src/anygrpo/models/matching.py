"""Names of a checkpoint's tensors for those of a module.

Trainers wrap a network (`module.`, `net.`, `_orig_mod.`) and put other modules beside it (a loss, a copy with averaged
weights). The prefixes that make their names the module's are found by counting names and shapes that agree.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from anygrpo.spoken import say

WRAPPERS = frozenset(
    {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module", "base_layer"}
)
"""Parts of a name that a wrapper adds anywhere in it."""
AVERAGED = frozenset({"ema", "shadow", "avg", "averaged", "teacher", "swa"})
"""Words of tables and prefixes with averaged weights, or another network's: taken where no others fit as well."""
COUNTERS = "num_batches_tracked"
DEPTH = 4
"""Words of a prefix that may be put before names, at most."""


@dataclass(frozen=True)
class LoadReport:
    """What a checkpoint and a module did not share.

    Attributes:
        loaded: parameters and buffers taken.
        missing: in the module only; they keep their values.
        unexpected: in the checkpoint only, beside what was loaded: layers that the module lacks.
        mismatched: "name: checkpoint shape, module shape".
        table: where in the file the weights lay ("" at its top).
        prefixes: what was cut from (or put before) names, "old -> new", with how many names each.
        beside: names in the checkpoint under other prefixes, and other tables: other modules' weights.
    """

    loaded: int
    missing: list[str]
    unexpected: list[str]
    mismatched: list[str]
    table: str = ""
    prefixes: dict[str, int] = field(default_factory=dict[str, int])
    beside: list[str] = field(default_factory=list[str])

    @property
    def fits(self) -> bool:
        """Every tensor of the module was found, and every one of the checkpoint's network has a place."""
        missing = [name for name in self.missing if not name.endswith(COUNTERS)]
        return self.loaded > 0 and not (missing or self.unexpected or self.mismatched)

    def __str__(self) -> str:
        parts = [say(f"{self.loaded} tensors loaded", f"读入 {self.loaded} 个张量")]
        parts += [say(f"from its table {self.table!r}", f"取自其中的表 {self.table!r}")] if self.table else []
        parts += [f"{say('prefix', '前缀')} {change} ({count})" for change, count in self.prefixes.items()]
        for word, names in (
            (say("missing", "缺少"), self.missing),
            (say("unexpected", "多余"), self.unexpected),
            (say("of another shape", "形状不同"), self.mismatched),
            (say("left, of other modules", "属于其他模块，未用"), self.beside),
        ):
            if names:
                parts.append(f"{len(names)} {word} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})")
        return "; ".join(parts)


Change = tuple[str, str]
"""A prefix that is cut off, and one that is put before what is left."""


@dataclass(frozen=True)
class Fit:
    """How the names of `state` go into `own`.

    Attributes:
        taken: the module's name -> the checkpoint's.
        changes: of prefixes -> names that each carries.
    """

    own: Mapping[str, Tensor]
    state: Mapping[str, Tensor]
    taken: dict[str, str]
    changes: dict[Change, int]

    def report(self, place: str, other_tables: list[str]) -> LoadReport:
        missing, used = set(self.own.keys() - self.taken.keys()), set(self.taken.values())
        mismatched: dict[str, str] = {}
        unexpected: list[str] = []
        beside: list[str] = []
        full = _shortened(self.own)
        for name in sorted(self.state.keys() - used):
            new = self._place(name, full)
            if new is None:
                beside.append(name)
            elif new in missing:
                mismatched[new] = f"{new}: {tuple(self.state[name].shape)}, {tuple(self.own[new].shape)}"
            elif new in self.own:
                beside.append(name)  # another copy of what was loaded
            else:
                unexpected.append(new)
        told = {f"{old!r} -> {new!r}": n for (old, new), n in self.changes.items() if old != new}
        parts = len(self.taken), sorted(missing - mismatched.keys()), sorted(unexpected), sorted(mismatched.values())
        return LoadReport(*parts, place, told, beside + [f"table {p!r}" for p in other_tables])

    def _place(self, name: str, full: Mapping[str, str]) -> str | None:
        """Where a name belongs in the module, by the prefixes of the others; None: to another module."""
        short = _bare(name)
        for old, new in self.changes or {("", ""): 0}:
            if short.startswith(old):
                return full.get(new + short.removeprefix(old), new + short.removeprefix(old))
        return None


def fit(own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> Fit:
    """Names of `state` for those of `own`, by the changes of prefix that carry most names of the same shape.

    After the first change, another is taken only for whole parts (first words) of the module of which nothing was found
    yet: a network may be saved in pieces, but a loss's layer is not to fill a gap by chance.
    """
    mine, bare = _shortened(own), _shortened(state)
    added = _own_prefixes(mine)
    places: dict[Change, dict[str, str]] = {}
    for short, name in bare.items():
        for change, new in _renamed(short, added):
            if new in mine and own[mine[new]].shape == state[name].shape:
                places.setdefault(change, {})[new] = name
    rank = lambda c: (-len(places[c]), averaged(c[0]), c[0] != c[1], len(c[0]) + len(c[1]), c)  # noqa: E731
    taken: dict[str, str] = {}
    changes: dict[Change, int] = {}
    for change in sorted(places, key=rank):
        top = lambda new, after=change[1]: new.removeprefix(after).split(".")[0]  # noqa: E731
        partly = {top(new) for new in mine.keys() - places[change].keys()} if taken else set[str]()
        closed = partly | {top(new) for new in taken}
        fresh = {new: name for new, name in places[change].items() if top(new) not in closed}
        if fresh:
            changes[change] = len(fresh)
            taken |= fresh
    return Fit(own, state, {mine[new]: name for new, name in taken.items()}, changes)


def _shortened(names: Iterable[str]) -> dict[str, str]:
    """Names without wrappers' words -> names; the names themselves where two would become one."""
    names = list(names)
    short = {_bare(name): name for name in names}
    return short if len(short) == len(names) else {name: name for name in names}


def _bare(name: str) -> str:
    """Without the words that wrappers put anywhere into a name."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS) or name


def _own_prefixes(own: Mapping[str, Any]) -> list[str]:
    """Nothing, and the leading words that most of the module's names share: it may itself be wrapped."""
    counts: Counter[str] = Counter()
    for name in own:
        parts = name.split(".")
        counts.update(".".join(parts[:i]) + "." for i in range(1, min(len(parts), DEPTH)))
    return ["", *(p for p, n in counts.items() if n >= 0.8 * len(own))]


def _renamed(name: str, added: list[str]) -> Iterator[tuple[tuple[str, str], str]]:
    """((prefix cut off, prefix put before), new name) of each possible change."""
    parts = name.split(".")
    for cut in range(len(parts)):
        rest = ".".join(parts[cut:])
        old = name[: len(name) - len(rest)]
        for new in added:
            yield (old, new), new + rest


def averaged(name: str) -> bool:
    """Whether a table or prefix says that its weights are not the plain ones."""
    return not set(re.split(r"[._]", name.lower())).isdisjoint(AVERAGED)
