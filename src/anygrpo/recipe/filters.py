"""The tables of [algorithm].filters."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from anygrpo.recipe.section import NotNegative, Number, Section, Share, TwoOrMore, UserFunction, by_functions


class DropConstantConfig(Section):
    """Groups without reward spread are skipped where that is exact, and replaced by `refill`; nothing else changes."""

    kind: Literal["drop_constant"]


class PassRateBandConfig(Section):
    """Groups whose share of samples with reward >= threshold lies in the band stay."""

    kind: Literal["pass_rate_band"]
    low: Share = 0.0
    "Smallest share."
    high: Share = 1.0
    "Largest share."
    threshold: Number = 0.5
    "The reward that counts as passed."


class ComponentAtLeastConfig(Section):
    """Groups where a sample reaches `threshold` in one reward component stay."""

    kind: Literal["component_at_least"]
    component: str
    "Name of the reward part."
    threshold: Number
    "What a sample has to reach in it."


class MinimumSpreadConfig(Section):
    """Groups whose best and worst rewards differ by `spread` stay."""

    kind: Literal["minimum_spread"]
    spread: NotNegative
    "Smallest difference of best and worst."


class TopKByRewardConfig(Section):
    """The k best samples of each group stay (early/late by a schedule)."""

    kind: Literal["top_k_by_reward"]
    k: TwoOrMore
    "Samples kept of each group."


class BestAndWorstConfig(Section):
    """The k best and the k worst samples of each group stay."""

    kind: Literal["best_and_worst"]
    k: Annotated[int, Field(ge=1)]
    "Samples kept of either end."


class OverlongMaskConfig(Section):
    """Samples cut off at the limit leave."""

    kind: Literal["overlong_mask"]


class FunctionFilterConfig(UserFunction):
    """A user's `path.py:function`, called with (groups, **arguments) -> keep [P, G] bool."""

    kind: Literal["function"]


FilterConfig = Annotated[
    DropConstantConfig
    | PassRateBandConfig
    | ComponentAtLeastConfig
    | MinimumSpreadConfig
    | TopKByRewardConfig
    | BestAndWorstConfig
    | OverlongMaskConfig
    | FunctionFilterConfig,
    Field(discriminator="kind"),
]
Filters = Annotated[
    tuple[FilterConfig, ...],
    BeforeValidator(by_functions),
]
"""Tables in order; "path.py:name" stands for a user's own."""
