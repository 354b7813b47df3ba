"""From a framework's names to ours: which column of a log means what."""

from __future__ import annotations

import re
from functools import lru_cache

from anygrpo.doctor.names import CORES, MARKS, NAMES, SCALE

EXACT = {name: (concept, i) for concept, known in NAMES.items() for i, name in enumerate(known)}
WRAPPERS = re.compile(r"^(?:(?:metrics|train|logs?|data)/)+")
AGENT = re.compile(r"^(agg/(?:all|effective)/|env/)[^/]+/")  # prime-rl and tinker: one column an agent or tag
HELD_OUT = re.compile(r"^(?:eval(?:uation)?|valid(?:ation)?|val|test|val-core|val-aux|held_?out)[/_\-](.+)$")
COMPONENT = re.compile(r"^(?:reward/component|reward_component|rewards?)/(.+?)(?:/(mean|std|avg))?$")
BARE_COMPONENT = re.compile(
    r"^(\w+)_rewards?(?:/(mean|std)|_(mean|std))?$|^rewards?_(\w+?)(?:/(mean|std)|_(mean|std))?$"
)
PREFERENCE = {"chosen", "rejected", "margins", "accuracies", "margin", "accuracy"}
NOT_PARTS = {
    "mean", "std", "max", "min", "all", "group_std", "std_within", "std_between", "median", "p10", "p90", "sum",
    "count", "total", "avg", "overall", "raw", "last", "best", "rolling", "scale", "weight", "baseline", "running",
    "threshold", "ema",
}  # fmt: skip
MEANS = {"mean", "avg", "average", "train", "training", "batch"}
STEPS = (
    "step",
    "global_step",
    "training/global_step",
    "_step",
    "progress/step",
    "progress/batch",
    "iteration",
    "iter",
    "train/global_step",
    "update",
)
TIMES = ("time", "runtime", "samples_per_second", "steps_per_second", "num_tokens", "epoch", "loss")


@lru_cache(maxsize=8192)
def normalise(key: str) -> str:
    """Lower case, wrappers such as "train/" dropped, blanks and dashes as underscores."""
    return WRAPPERS.sub("", key.strip().lower().replace(" ", "_").replace("-", "_"))


@lru_cache(maxsize=8192)
def concept(key: str) -> tuple[str, int] | None:
    """(canonical name, priority; lower is better) of a raw name, or None.

    Canonical names are those of anygrpo's own metrics.jsonl; parts of the reward come out as
    "reward/component/NAME" and "reward/component_std/NAME", evaluations as "eval/NAME".
    """
    name = AGENT.sub(r"\g<1>all/", normalise(key))
    if name in EXACT:
        return EXACT[name]
    if name.startswith("groups/live_after/"):
        return name, 0
    if match := HELD_OUT.match(key.strip().lower().replace(" ", "_")):
        return held_out(match[1])
    if name in CORES:
        return CORES[name], 50
    if match := COMPONENT.match(name):
        return part(match[1], match[2] == "std")
    tokens = [t for t in re.split(r"[_/.]+", name) if t]
    core = "_".join(t for t in tokens if t not in MEANS)
    if core in CORES:
        return CORES[core], 60 + len(tokens)
    if core in EXACT and not name.startswith(("rewards/", "reward/")):
        return EXACT[core][0], 80 + len(tokens)
    if match := BARE_COMPONENT.match(name):
        groups = match.groups()
        return part(groups[0] or groups[3], "std" in groups)
    return None


def held_out(rest: str) -> tuple[str, int] | None:
    """Evaluations keep their own name; speeds, times and per-group detail are left out."""
    if any(word in rest for word in TIMES):
        return None
    inner = normalise(rest)
    found = EXACT.get(inner, (CORES.get(inner, inner), 0))[0]
    if found.startswith("reward/mean"):
        return "eval/reward", 0
    return f"eval/{found}", 0


def part(name: str, spread: bool) -> tuple[str, int] | None:
    pieces = set(re.split(r"[/_]", name))
    if name in PREFERENCE or name in NOT_PARTS or pieces <= NOT_PARTS or "group_std" in name:
        return None
    return f"reward/{'component_std' if spread else 'component'}/{name}", 0


def label(key: str) -> str:
    """The raw name as it may stand beside scaled numbers: a complement says so ("1 - groups/live")."""
    return f"1 - {key}" if SCALE.get(normalise(key), "").startswith("complement") else key


def scale(key: str, x: float) -> float:
    """Percents and complements as plain shares."""
    match SCALE.get(normalise(key)):
        case "percent":
            return x / 100
        case "complement":
            return 1 - x
        case "complement of percent":
            return 1 - x / 100
        case _:
            return x


def names_outcome(key: str) -> bool:
    """Whether a row with this name can be a row of training metrics."""
    found = concept(key)
    if found is None:
        return False
    return found[0].startswith(
        ("reward/", "loss/", "kl/", "advantage/", "entropy", "grad_norm", "eval/", "ratio/", "log_ratio")
    )


def step_of(row: dict[str, float]) -> float | None:
    for name in STEPS:
        if name in row:
            return row[name]
    return None


def framework_of(keys: set[str]) -> str:
    """The framework whose own words the log speaks, or "generic"."""
    for framework, marks in MARKS.items():
        if any(mark in keys for mark in marks):
            return framework
    return "generic"
