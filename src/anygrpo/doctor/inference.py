"""Columns that no table of names knows, told from their numbers: sums, differences, and what is left over.

An inference is never silent: it is printed, it can be saved as a map, and where two readings fit none is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from anygrpo.doctor import canonical
from anygrpo.doctor.algebra import Sum, shared, solve_sum
from anygrpo.doctor.log import Row

REWARD_WORDS = {
    "reward",
    "rewards",
    "rew",
    "score",
    "scores",
    "return",
    "returns",
    "total",
    "utility",
    "fitness",
    "r",
    "j",
}
SUCCESS_WORDS = {"accuracy", "acc", "success", "solved", "correct", "pass", "win"}
NEVER = {
    "step", "steps", "epoch", "iter", "iteration", "time", "elapsed", "seconds", "fps", "tokens", "samples", "memory",
    "lr", "rate", "timestamp", "runtime", "count", "num", "n", "gpu", "percentage", "remaining", "version", "seed",
    "ambig", "disambig", "loss", "timesteps", "updates", "id", "index", "std", "max", "min",
}  # fmt: skip
NEVER_TOTALS = {
    "clip", "clipfrac", "clipped", "ratio", "frac", "fraction", "share", "kl", "approxkl", "policykl", "entropy",
    "norm", "grad", "length", "len", "advantage", "adv", "prob", "probs", "logp", "logps", "logprob", "logprobs",
    "mask", "weight", "cost", "calls", "latency", "failure", "failed", "error", "errors",
}  # fmt: skip
"""Words of sums that are no rewards: a clip share is that of both sides together."""
TOLD = re.compile(r"eval/(?:(?:\w+_)?reward|(?:gold|oracle|ground_truth|true|human)_score)(?:_mean|_avg)?$")
"""What may be the reward where the log has no other: "gold_reward"."""
PROOF = ("advantage/", "ratio/", "log_ratio/", "kl/", "clip/", "groups/", "loss/policy")
"""Metrics that only a policy's training logs."""
ENOUGH = 8


@dataclass(frozen=True)
class Inference:
    """One column read from its numbers.

    Attributes:
        name: our name for it.
        key: the log's.
        why: the arithmetic that shows it.
    """

    name: str
    key: str
    why: str


@dataclass(frozen=True)
class Inferred:
    """What was read from numbers.

    Attributes:
        columns: taken.
        sums: relations that hold in every row.
        open: readings of which more than one fits; none was taken.
    """

    columns: tuple[Inference, ...] = ()
    sums: tuple[Sum, ...] = ()
    open: tuple[str, ...] = ()


def infer(rows: list[tuple[int, Row]], known: dict[str, str]) -> Inferred:
    """Read the columns that are not in `known` (our name -> key)."""
    taken = set(known.values())
    table = numbers(rows, taken)
    unknown = [k for k in table if k not in taken and not never(k)]
    found: list[Inference] = []
    sums: list[Sum] = []
    open_: list[str] = []
    reward = known.get("reward/mean")
    if reward is None:
        reward = find_reward(unknown, table, known, found, sums, open_)
    elif reward in table:
        parts_of(reward, unknown, table, known, found, sums)
    if "loss/policy" not in known and (loss := known.get("loss/total")) and (kl := known.get("kl/reference")):
        policy_loss(loss, kl, unknown, table, found)
    return Inferred(tuple(found), tuple(sums), tuple(open_))


def never(key: str) -> bool:
    """Whether a name counts, times or spreads; a rate of successes does not."""
    words = set(canonical.words_of(key))
    return bool((words - {"rate"} if words & SUCCESS_WORDS else words) & NEVER)


def numbers(rows: list[tuple[int, Row]], taken: Iterable[str]) -> dict[str, list[float]]:
    """key -> values over the rows that hold everything: the commonest set of names, finite numbers only."""
    counts: dict[str, int] = {}
    for _, row in rows:
        for key in row:
            counts[key] = counts.get(key, 0) + 1
    most = max(counts.values(), default=0)
    keys = [k for k, c in counts.items() if c * 10 >= most * 9 and most >= ENOUGH]
    full = [row for _, row in rows if all(k in row and abs(row[k]) < 1e100 for k in keys)]
    return {k: [row[k] for row in full] for k in keys} if len(full) >= ENOUGH else {}


def find_reward(
    unknown: list[str],
    table: dict[str, list[float]],
    known: dict[str, str],
    found: list[Inference],
    sums: list[Sum],
    open_: list[str],
) -> str | None:
    """A column that is the weighted sum of others and is named like a total; else the only one that can be a reward."""
    if (pair := mean_and_spread(known)) is not None:
        found += pair
        return pair[0].key
    solved = {k: s for k in unknown if (s := solve_sum(k, {u: table[u] for u in unknown}))}
    named = [k for k in solved if set(canonical.words_of(k)) & REWARD_WORDS]
    positive = [k for k in solved if sum(w > 0 for w in solved[k].weights.values()) >= 2]
    positive = [k for k in positive if not set(canonical.words_of(k)) & NEVER_TOTALS]
    for choice in (named, positive):
        if len(choice) == 1:
            reward = choice[0]
            found.append(Inference("reward/mean", reward, solved[reward].text()))
            add_parts(solved[reward], unknown, table, found, sums)
            return reward
        if choice:
            open_.append("two readings fit as the reward: " + "; ".join(solved[k].text() for k in sorted(choice)[:4]))
            return None
    if not any(name.startswith(PROOF) for name in known):
        return None
    return only_reward(unknown, table, known, found, open_)


def only_reward(
    unknown: list[str],
    table: dict[str, list[float]],
    known: dict[str, str],
    found: list[Inference],
    open_: list[str],
) -> str | None:
    """The one column that can be the reward of a log that surely has one."""
    parts = [key for name, key in known.items() if name.startswith("reward/component/") and key in table]
    moving = parts if len(parts) == 1 and max(table[parts[0]]) > min(table[parts[0]]) else []
    told = [known["eval/reward"]] if "eval/reward" in known else [k for n, k in known.items() if TOLD.match(n)]
    like = [k for k in unknown if set(canonical.words_of(k)) & (SUCCESS_WORDS | REWARD_WORDS)]
    for columns, why in (
        (moving, "the only reward of this log, though named like a part"),
        (told if told[0:1] and told[0] in table else [], "the only reward of this log, measured in nearly every row"),
        (like, "the only column that is named like a success"),
    ):
        if len(columns) == 1:
            found.append(Inference("reward/mean", columns[0], why))
            return columns[0]
    if like:
        open_.append("several columns could be the reward: " + ", ".join(sorted(like)[:8]))
    return None


def mean_and_spread(known: dict[str, str]) -> list[Inference] | None:
    """The only mean under the reward's heading with a spread beside it ("reward/selected_mean" and "_std")."""
    parts = "reward/component/", "reward/component_std/"
    pairs = [
        (key, known[spread])
        for name, key in known.items()
        if name.startswith(parts[0])
        and name.endswith("_mean")
        and (spread := parts[1] + name.removeprefix(parts[0]).removesuffix("_mean")) in known
    ]
    if len(pairs) != 1:
        return None
    why = "the only mean under the reward's heading that has a standard deviation beside it"
    return [Inference("reward/mean", pairs[0][0], why), Inference("reward/std", pairs[0][1], why)]


def parts_of(
    reward: str,
    unknown: list[str],
    table: dict[str, list[float]],
    known: dict[str, str],
    found: list[Inference],
    sums: list[Sum],
) -> None:
    """The parts of a reward whose name is known."""
    parts = [key for name, key in known.items() if name.startswith("reward/component/") and key in table]
    columns = {k: table[k] for k in (*unknown, *parts, reward)}
    solved = solve_sum(reward, columns)
    if solved is None or set(solved.weights) <= set(parts):
        sums += [solved] if solved else []
        return
    if len(solved.weights) == 1 and abs(next(iter(solved.weights.values())) - 1) < 1e-3:
        return  # the same column twice
    add_parts(solved, unknown, table, found, sums)


def add_parts(
    solved: Sum, unknown: list[str], table: dict[str, list[float]], found: list[Inference], sums: list[Sum]
) -> None:
    """The parts as components, and with them constant columns whose names say that they belong to the same family."""
    sums.append(solved)
    family = [solved.total, *solved.weights]
    still = [
        k
        for k in unknown
        if k not in family and max(table[k]) - min(table[k]) <= 1e-9 and sibling(k, family)
    ]  # fmt: skip
    for key in (*solved.weights, *still):
        if key in unknown:
            why = solved.text() if key in solved.weights else f"constant, and named like {solved.total}"
            found.append(Inference(f"reward/component/{canonical.normalise(key)}", key, why))


def sibling(key: str, family: list[str]) -> bool:
    """Whether all words but one are those of a member: avg_r_consistency beside avg_r_fairness."""
    words = len(key.replace("/", "_").split("_"))
    return words > 1 and any(shared(key, other) >= max(1, words - 1) for other in family)


def policy_loss(loss: str, kl: str, unknown: list[str], table: dict[str, list[float]], found: list[Inference]) -> None:
    """loss - x = beta x KL in every row: x is the policy's part of the loss."""
    if loss not in table or kl not in table:
        return
    fits = [
        (key, solved)
        for key in unknown
        if (solved := solve_sum(loss, {k: table[k] for k in (loss, kl, key)}))
        and abs(solved.weights.get(key, 0.0) - 1) < 1e-3
    ]
    if len(fits) == 1:
        found.append(Inference("loss/policy", fits[0][0], fits[0][1].text()))
