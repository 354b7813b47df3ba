"""All cards, by kind and name; what a recipe's names stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anygrpo.choices.advantages import ADVANTAGES
from anygrpo.choices.card import KINDS, Card
from anygrpo.choices.objectives import METHODS, OBJECTIVES
from anygrpo.choices.others import CONTROLLERS, CORRECTIONS, CREDITS, ESTIMATORS, FILTERS, REDUCTIONS, SCHEDULES
from anygrpo.choices.presets import PRESETS
from anygrpo.choices.rewards import REWARDS

_IN_ORDER = (
    ADVANTAGES, OBJECTIVES, ESTIMATORS, REDUCTIONS, FILTERS, SCHEDULES, CONTROLLERS, CREDITS, CORRECTIONS, REWARDS,
)  # fmt: skip
CARDS: dict[str, dict[str, Card]] = {
    kind: {card.name: card for card in cards} for kind, cards in zip(KINDS, _IN_ORDER, strict=True)
}
"""Kind -> name -> card, in the order of the documents."""


def names(kind: str) -> tuple[str, ...]:
    """What a recipe may write for this kind (besides a user's `path.py:name`)."""
    return tuple(name for name in CARDS[kind] if name not in METHODS)


def card_of(kind: str, choice: Any) -> Card | None:
    """The card of a name; None for a function of a user's own."""
    return CARDS[kind].get(choice) if isinstance(choice, str) else None


def filled(given: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of [algorithm] that its preset and its objective set where `given` does not: explicit keys win over the
    preset, the preset over the defaults of the objective."""
    preset, values = given.get("preset"), dict[str, Any]()
    if isinstance(preset, str) and preset in PRESETS:
        values |= PRESETS[preset].values
    objective = card_of("objective", given.get("objective", values.get("objective")))
    if objective is not None:
        values = {**objective.defaults, **values}
    return {key: value for key, value in values.items() if key not in given}
