"""Rules that follow from one cause, and changes that several rules prescribe."""

from __future__ import annotations

from anygrpo.doctor.findings import Change

NOTHING_FLOWS = (
    "starved_groups",
    "mastered_groups",
    "advantage_compressed",
    "zero_gradient",
    "lr_too_small",
    "no_learning",
)


ROLL_BACK = (Change("learning_rate", factor=0.5),)


TREND_RULES = (
    "no_learning",
    "lr_too_small",
    "late_collapse",
    "starved_groups",
    "mastered_groups",
    "kl_blowup",
    "lr_exhausted",
    "reward_fell",
)


COLLAPSES = (
    "no_learning",
    "reward_fell",
    "part_fell",
    "late_collapse",
    "validation_drop",
    "entropy_explosion",
    "entropy_collapse",
)
ALL_FAIL = ("starved_groups", "constant_reward", "advantage_compressed", "zero_gradient", "loss_zero")
"""What all answers failing alike, from some row on, brings with it."""
