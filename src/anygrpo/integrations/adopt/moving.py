"""What is read, and the ledger of a move: what went where, what has no counterpart, which defaults are written out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pydantic import BaseModel

from anygrpo.integrations.adopt.secret_source import hidden_source, mask_source
from anygrpo.integrations.adopt.secrets import hidden
from anygrpo.recipe.algorithm import AlgorithmConfig
from anygrpo.recipe.kinds import section_of
from anygrpo.recipe.training import EvaluationConfig, OptimizerConfig, TrainingConfig
from anygrpo.spoken import Text, said

NO_OPTIMIZER = "the optimizer is AdamW, its moments in float32 or 8 bits"


@cache
def _section(table: str) -> type[BaseModel] | None:
    if table in ("policy", "policy.lora"):
        policy = section_of("policy", {"kind": "causal_lm"})
        return policy if table == "policy" else type(policy.model_fields["lora"].default)
    if table == "task":
        return section_of("task", {"kind": "data"})
    own = {"algorithm": AlgorithmConfig, "optimizer": OptimizerConfig, "training": TrainingConfig}
    return (own | {"evaluation": EvaluationConfig}).get(table)


@dataclass(frozen=True)
class Unknown:
    """A value that only running the script would tell: its expression, which is told, so without a key in it."""

    source: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", hidden_source(self.source))


@dataclass
class Found:
    """What was read.

    Attributes:
        house: "trl", "verl", "swift" or "openrlhf".
        given: their settings by their names, as the user wrote them.
        rewards: reward functions: ("function", name in the reward file), ("trl", shipped name), ("model", name), or
            ("elsewhere", why).
        reward_file: source text of the functions that the script defines, with what they use; empty: none.
        data: path, split and columns of the training data, where they could be read.
        columns: names that the rewards have for columns -> the columns.
        notes: what the reader has to do or know.
        processes: of the launcher, where it says.
    """

    house: str
    given: dict[str, Any] = field(default_factory=dict[str, Any])
    rewards: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    reward_file: str = ""
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    columns: dict[str, str] = field(default_factory=dict[str, str])
    notes: list[str] = field(default_factory=list[str])
    processes: int = 1


@dataclass(frozen=True)
class Line:
    """A setting of the recipe and where it is from.

    Attributes:
        path: "table.key".
        theirs: their names and values; empty: it has no name there.
        default: they are their defaults, which differ from ours.
    """

    path: str
    value: Any
    theirs: str
    default: bool


@dataclass
class Ledger:
    """Filled by a house's `move`.

    Attributes:
        defaults: their settings where the user gave none.
        lines: what the recipe has.
        lost: (their name, value, why there is none here).
        idle: (their name, value, why nothing is lost).
    """

    found: Found
    defaults: dict[str, Any]
    lines: list[Line] = field(default_factory=list[Line])
    lost: list[tuple[str, Any, str]] = field(default_factory=list[tuple[str, Any, str]])
    idle: list[tuple[str, Any, str]] = field(default_factory=list[tuple[str, Any, str]])
    notes: list[str] = field(default_factory=list[str])
    _used: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        """Nothing that a ledger tells should hold what looks like a key, a token or a password of the user's."""
        found = self.found
        known = {part for key in (*found.given, *self.defaults) for part in (key, key.rpartition(".")[2])}
        found.given = {
            key: Unknown(hidden_source(value.source, key)) if isinstance(value, Unknown) else hidden(value, key, known)
            for key, value in found.given.items()
        }
        found.data = {key: hidden(value) for key, value in found.data.items()}
        found.rewards = [(kind, hidden_source(said)) for kind, said in found.rewards]
        found.notes = [hidden_source(note) for note in found.notes]
        found.reward_file, names = mask_source(found.reward_file)
        if names:
            found.notes.append(
                f"what looks like a key in the functions' source was not copied ({', '.join(names)}): read it from "
                'os.environ where "(set)" is'
            )

    def get(self, key: str) -> Any:
        """Their value: given, or the default. One that only running would tell is the default, with a note."""
        self._used.add(key)
        value = self.found.given.get(key, self.defaults.get(key))
        if isinstance(value, Unknown):
            self.notes.append(f"{key} = {value.source} is known only when the script runs; its default was taken")
            self.found.given.pop(key)
            return self.defaults.get(key)
        if key in self.found.given and not _of_its_kind(value, self.defaults.get(key)):
            self.lost.append((key, value, f"not what it takes; its default {shown(self.defaults[key])} was taken"))
            self.found.given.pop(key)
            return self.defaults.get(key)
        return value

    def given(self, *keys: str) -> bool:
        return any(key in self.found.given for key in keys)

    def put(self, path: str, value: Any, *theirs: str) -> None:
        """Write `path = value`, which is what `theirs` mean, if it was given or differs from our own default."""
        given = self.given(*theirs)
        if not given and _same(value, default_of(path)):
            return
        words = ", ".join(f"{key} = {shown(self.found.given.get(key, self.defaults.get(key)))}" for key in theirs)
        if isinstance(value, str) and "$" in value:
            self.notes.append(f"{path} = {value}: a variable in it is known only in the shell")
        self.lines = [line for line in self.lines if line.path != path]
        self.lines.append(Line(path, value, words, bool(theirs) and not given))

    def say(self, path: str, value: Any, theirs: str) -> None:
        """Write `path = value`, which something other than a setting of theirs means."""
        self.lines = [line for line in self.lines if line.path != path]
        self.lines.append(Line(path, value, theirs, False))

    def no_counterpart(self, why: str | Text, *keys: str) -> None:
        """Their settings that nothing here means; of no account where the value is their default."""
        for key in keys:
            self._used.add(key)
            if self.given(key) and not _same(self.found.given[key], self.defaults.get(key)):
                self.lost.append((key, self.found.given[key], said(why)))

    def needless(self, why: str, *prefixes: str) -> None:
        """Their settings that need no counterpart: a key, or all below "prefix."."""
        for key, value in self.found.given.items():
            if key not in self._used and any(key == p or (p.endswith(".") and key.startswith(p)) for p in prefixes):
                self._used.add(key)
                self.idle.append((key, value, why))

    def rest_of(self, table: str, why: str | Text) -> None:
        """What is given of a table of theirs and nobody took has no counterpart."""
        left = [key for key in self.found.given if key not in self._used and (key + ".").startswith(table + ".")]
        self.no_counterpart(why, *left)

    def finish(self) -> None:
        """Whatever was given and nobody took has no counterpart that is known."""
        for key, value in self.found.given.items():
            if key not in self._used:
                self.lost.append((key, value, "not known here"))


def default_of(path: str) -> Any:
    """Our own default of "table.key"; None where there is none."""
    table, _, key = path.rpartition(".")
    section = _section(table)
    if section is None or key not in section.model_fields:
        return None
    return section.model_fields[key].get_default(call_default_factory=True)


def adamw_moments(name: str) -> str | None:
    """How an optimizer that is AdamW keeps its moments, "float32" or "8bit"; None: it is another (galore_adamw,
    schedule_free_adamw), or keeps them in 4 bits or fp8."""
    plain = name.lower().removeprefix("paged_")
    if not plain.startswith("adamw") or "4bit" in plain or "fp8" in plain:
        return None
    return "8bit" if "8bit" in plain else "float32"


def _of_its_kind(value: Any, default: Any) -> bool:
    """A number where the default is one (finite, of a size that is used), true or false where it is that."""
    if isinstance(default, bool):
        return isinstance(value, bool) or (isinstance(value, int) and value in (0, 1))
    if isinstance(default, int | float):
        return isinstance(value, int | float) and not isinstance(value, bool) and -1e12 < value < 1e12
    return not isinstance(default, str) or isinstance(value, str | bool | list)


def _same(a: Any, b: Any) -> bool:
    plain = lambda x: list(x) if isinstance(x, tuple) else x  # noqa: E731
    return plain(a) == plain(b) and isinstance(a, bool) == isinstance(b, bool)


def shown(value: Any) -> str:
    if isinstance(value, Unknown):
        return value.source
    return str(value)


def as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
