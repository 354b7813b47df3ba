"""The rules, all registered by importing this package."""

from anygrpo.doctor.rules import algebra, answers, drift, groups, learning, objective, sampling, state, steps
from anygrpo.doctor.rules.rule import LEVEL, ORDER, RULES, Rule

__all__ = [
    "LEVEL",
    "ORDER",
    "RULES",
    "Rule",
    "algebra",
    "answers",
    "drift",
    "groups",
    "learning",
    "objective",
    "sampling",
    "state",
    "steps",
]
