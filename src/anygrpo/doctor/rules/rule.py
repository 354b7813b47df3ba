"""Rules as data: an id, its causal place, the metrics it needs, what it explains, and one small function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from anygrpo.doctor.columns import Run
from anygrpo.doctor.findings import Certainty, Change, Fact, Finding, Severity

Result = Finding | Iterable[Finding] | None

ORDER: tuple[tuple[str, ...], ...] = (
    ("crash", "nonfinite", "not_rl_log", "too_short"),
    ("wrong_reference", "markov_bound", "saturated_clamp", "z2", "sampler_mismatch", "stale_rollouts", "sign_inverted"),
    (
        "failed_rewards",
        "truncation",
    ),
    ("dead_term", "aux_only_gain"),
    ("group_of_one", "constant_reward", "difficulty_dominates", "starved_groups", "mastered_groups"),
    ("advantage_compressed", "phantom_advantages", "rank_std", "zscore_std"),
    ("zero_gradient", "lr_too_small", "kl_dominates"),
    (
        "log_ratio_explosion",
        "kl_blowup",
        "lr_too_large",
        "pg_loss_growing",
        "grad_spikes",
        "clip_saturated",
        "clip_idle",
    ),
    ("low_entropy_start", "entropy_collapse", "entropy_explosion", "decision_collapse"),
    ("reward_hacking", "length_collapse", "length_explosion", "overfitting", "validation_drop", "late_collapse"),
    ("no_learning", "sup_loss_flat", "consistency_rising", "lr_exhausted", "no_effect", "eval_resolution"),
    ("group_size_bound", "on_policy", "kl_off", "beta_from_loss", "mean_advantage"),
)
"""The causal order: an earlier level comes before, and may explain, a later one."""

LEVEL = {rule: (level, place) for level, rules in enumerate(ORDER) for place, rule in enumerate(rules)}


@dataclass(frozen=True)
class Rule:
    """One line of the doctor's book.

    Attributes:
        certainty: what kind of statement it makes.
        needs: canonical metrics it cannot do without ("reward/mean|reward/std": either).
        trend: needs enough rows (a log too short gets a refusal instead).
        explains: rules that follow from this one and are demoted when it holds.
    """

    id: str
    certainty: Certainty
    needs: tuple[str, ...]
    trend: bool
    explains: tuple[str, ...]
    check: Callable[[Run], Result]

    def observable(self, run: Run) -> bool:
        return all(any(run.get(name) for name in need.split("|")) for need in self.needs)

    def apply(self, run: Run) -> list[Finding]:
        result = self.check(run)
        if result is None:
            return []
        return [result] if isinstance(result, Finding) else list(result)


RULES: dict[str, Rule] = {}


def rule(
    id: str,
    certainty: Certainty,
    *,
    needs: tuple[str, ...] = (),
    trend: bool = False,
    explains: tuple[str, ...] = (),
) -> Callable[[Callable[[Run], Result]], Callable[[Run], Result]]:
    """Register a function as a rule."""

    def register(check: Callable[[Run], Result]) -> Callable[[Run], Result]:
        assert id in LEVEL, f"{id} has no place in the causal order"
        RULES[id] = Rule(id, certainty, needs, trend, explains, check)
        return check

    return register


def finding(
    id: str,
    severity: Severity,
    rows: Iterable[int] = (),
    *,
    variant: str = "",
    certainty: Certainty | None = None,
    changes: tuple[Change, ...] = (),
    metrics: tuple[str, ...] = (),
    **facts: Fact,
) -> Finding:
    """A finding of a registered rule, with its certainty unless another is given. `metrics`: curves that show it."""
    return Finding(
        id, certainty or RULES[id].certainty, severity, tuple(rows), facts, variant, changes, metrics=metrics
    )
