"""A log in our own names: the series a rule reads, the settings it can name, and what was not logged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

from anygrpo.doctor import canonical
from anygrpo.doctor.derived import derive, kl_of_log_probs, signed
from anygrpo.doctor.inference import Inferred, infer
from anygrpo.doctor.log import Ending, Log, Row
from anygrpo.doctor.miscounts import SHARES, Broken, broken
from anygrpo.doctor.names import CONCEPTS, NAMES, NOT_COMPARABLE
from anygrpo.doctor.order import steps_in, without_replaced
from anygrpo.doctor.series import Series, median
from anygrpo.doctor.settings import concept_of
from anygrpo.errors import ConfigError, suggestion
from anygrpo.spoken import Text


@dataclass
class Columns:
    """What the rules read.

    Attributes:
        framework: "trl", "verl", ..., or "generic".
        rows: number of training rows; `read`: rows of any kind.
        series: canonical name -> series. Parts of the reward are under `components`, evaluations under `evals`.
        steps: row number -> step counter, where the log has one.
        settings: concept -> value, of what was found in the log or given with --config.
        inferred: columns read from their numbers instead of their names, with the arithmetic.
        unknown: columns of the log that nothing was made of.
        partial: whether the log may hold rows that were not read.
    """

    source: str
    format: str
    framework: str
    rows: int
    series: dict[str, Series]
    steps: dict[int, float] = field(default_factory=dict[int, float])
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    ending: Ending | None = None
    notes: list[str] = field(default_factory=list[str])
    partial: bool = False
    preference: bool = False
    finished: bool = False
    inferred: Inferred = field(default_factory=Inferred)
    unknown: tuple[str, ...] = ()
    read: int = 0
    columns: tuple[str, ...] = ()

    def get(self, name: str) -> Series | None:
        """The series, or None where it was never logged, or is called a share and is none."""
        found = self.series.get(name)
        if found is None or not len(found) or (name in SHARES and any(b.name == name for b in self.broken)):
            return None
        return found

    def comparable(self, name: str) -> Series | None:
        """The series unless its framework means something else by it than the thresholds do."""
        found = self.get(name)
        return None if found and canonical.normalise(found.key) in NOT_COMPARABLE else found

    def family(self, prefix: str) -> dict[str, Series]:
        """name -> series, for "reward/component/", "reward/component_std/", "eval/"."""
        return {k[len(prefix) :]: s for k, s in self.series.items() if k.startswith(prefix) and len(s)}

    @cached_property
    def broken(self) -> list[Broken]:
        """Laws of arithmetic that columns of this log break."""
        return broken({name: s for name, s in self.series.items() if len(s)})

    @cached_property
    def components(self) -> dict[str, Series]:
        return self.family("reward/component/")

    @cached_property
    def evals(self) -> dict[str, Series]:
        return self.family("eval/")

    @cached_property
    def steps_per_row(self) -> float | None:
        """Median distance of the step counter between training rows; None without a counter."""
        values = [self.steps[r] for r in sorted(self.steps)]
        gaps = [b - a for a, b in pairwise(values) if b > a]
        return median(gaps) if gaps else None

    @cached_property
    def updates(self) -> float:
        """Steps that the log covers: the counter where there is one, else its rows."""
        return max([*self.steps.values(), float(self.rows)], default=0.0)

    def steps_of(self, rows: Iterable[int]) -> list[float]:
        """The step counters of some rows; empty where any of them has none."""
        found = [self.steps.get(r) for r in rows]
        return [] if None in found else [x for x in found if x is not None]

    def map(self) -> dict[str, str]:
        """our name -> the column it was read from; what --save-map writes and --map takes."""
        columns = set(self.columns)
        return {name: s.key for name, s in sorted(self.series.items()) if s.key in columns and len(s)}

    @cached_property
    def not_observable(self) -> list[str]:
        """Names of the metric map that this log does not have."""
        seen = {name for name, series in self.series.items() if len(series)}
        families = {name.split("/")[0] for name in seen if name.startswith(("advantage/", "clip/"))}
        missing = [
            word
            for name, word in CONCEPTS.items()
            if name != "eval" and name not in seen and name.split("/")[0] not in families
        ]
        if "zero_variance_groups" in missing and self.get("groups/all_best"):
            missing.remove("zero_variance_groups")
        return missing if self.evals else [*missing, CONCEPTS["eval"]]


def build(log: Log, mapping: dict[str, str] | None = None, settings: dict[str, Any] | None = None) -> Columns:
    """Translate a log.

    Args:
        mapping: canonical or short name -> the log's own name, from --map; wins over recognition where the log has it.
        settings: concept -> value from --config; wins over what the log itself says.
    """
    rows, notes = without_replaced(log.rows)
    keys = {key for _, row in rows for key in row}
    columns = choose(rows, keys, mapping or {})
    written = settings_of(rows, {k: v for k, v in columns.items() if v not in (mapping or {}).values()})
    columns = {name: key for name, key in columns.items() if key not in written}
    training = [(i, row) for i, row in rows if trains(row, columns)]
    inferred = infer(training or rows, columns)
    if inferred.columns:
        columns |= {found.name: found.key for found in inferred.columns}
        training = [(i, row) for i, row in rows if trains(row, columns)]
    series: dict[str, Series] = {}
    for name, key in columns.items():
        source = rows if name.startswith("eval/") else training
        series[name] = collect(name, key, source)
    derive(series)
    framework = "anygrpo" if log.format in ("run-folder", "anygrpo") else canonical.framework_of(keys)
    if framework != "anygrpo":  # whose own log-probs are per dimension
        kl_of_log_probs(series)
    signed(series, framework)
    steps = steps_in(training)
    return Columns(
        source=log.source,
        format=log.format,
        framework=framework,
        rows=len(training),
        series=series,
        steps=steps,
        settings={**of_columns(written), **log.settings, **(settings or {})},
        ending=log.ending,
        notes=log.notes + notes,
        partial=log.partial,
        preference=any(canonical.normalise(k) in ("rewards/chosen", "rewards/margins") for k in keys),
        finished=bool(log.summary),
        inferred=inferred,
        read=len(rows),
        columns=tuple(sorted(keys)),
        unknown=tuple(sorted(k for k in keys if k not in set(columns.values()) and not canonical.counts(k))),
    )


SHORT = {
    "reward": "reward/mean", "kl": "kl/reference", "reward_std": "reward/std_within", "loss": "loss/total",
    "grad_norm": "grad_norm/total", "length": "length/mean", "truncated": "truncated/share", "clip": "clip/fraction",
    "advantage_std": "advantage/std", "policy_loss": "loss/policy",
}  # fmt: skip
"""Short names that --map takes."""


OVERFLOWING = 1e150
"""Numbers from here on are as good as infinite: their squares are."""


def known_name(name: str) -> str:
    """The canonical name behind what --map was given: "reward" -> "reward/mean".

    Raises:
        ConfigError: no such name.
    """
    canon = SHORT.get(name, name)
    if canon not in NAMES and not canon.startswith(("eval/", "reward/component/")):
        raise ConfigError(
            Text(f"--map knows no metric {name!r}", f"--map 不认识指标 {name!r}"), suggestion(name, [*SHORT, *NAMES])
        )
    return canon


def choose(rows: list[tuple[int, Row]], keys: set[str], mapping: dict[str, str]) -> dict[str, str]:
    """canonical name -> the one column used for it: the preferred name among those logged in enough rows."""
    counts = dict.fromkeys(keys, 0)
    for _, row in rows:
        for key in row:
            counts[key] += 1
    candidates: dict[str, list[tuple[int, str]]] = {}
    for key in sorted(keys):
        if found := canonical.concept(key):
            candidates.setdefault(found[0], []).append((found[1], key))
    columns: dict[str, str] = {}
    for name, options in candidates.items():
        most = max(counts[key] for _, key in options)
        columns[name] = min(o for o in options if counts[o[1]] * 2 >= most)[1]
    columns |= {SHORT.get(name, name): key for name, key in mapping.items() if key in keys}
    return columns


def settings_of(rows: list[tuple[int, Row]], columns: dict[str, str]) -> dict[str, float]:
    """column -> its one value, of columns that hold a setting of the clip beside the measurements.

    verl's "clip_ratio_low" is .2 in every row. A measured share is not the same number, other than 0, in each row;
    nor is a CLIP score ("reward_clip").
    """
    out: dict[str, float] = {}
    for name, key in columns.items():
        last = canonical.plain_name(key).rpartition("/")[2]
        of_clip = name.startswith("clip/") and concept_of(last) in ("clip", "clip_high")
        if of_clip or last in ("reward_clip", "clip_reward"):
            values = [row[key] for _, row in rows if key in row]
            if len(values) > 1 and 0 < values[0] < 1 and len(set(values)) == 1:
                out[key] = values[0]
    return out


def of_columns(written: dict[str, float]) -> dict[str, Any]:
    """concept -> value of settings that stood in columns."""
    named = ((concept_of(canonical.plain_name(key).rpartition("/")[2]), x) for key, x in sorted(written.items()))
    return {concept: x for concept, x in named if concept}


def trains(row: Row, columns: dict[str, str]) -> bool:
    """A row with any training metric: evaluation rows and empty ones between training rows are none."""
    return any(
        key in row for name, key in columns.items() if not name.startswith("eval/") and name not in ("lr", "time/step")
    )


def collect(name: str, key: str, rows: list[tuple[int, Row]]) -> Series:
    numbers: list[int] = []
    values: list[float] = []
    bad: list[int] = []
    for i, row in rows:
        if key in row:
            x = canonical.scale(key, row[key])
            if abs(x) < OVERFLOWING:  # False for NaN
                numbers.append(i)
                values.append(x)
            else:
                bad.append(i)
    return Series(name, key, tuple(numbers), tuple(values), tuple(bad))
