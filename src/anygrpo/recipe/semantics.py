"""What a stage's update will be, in words: denominator, which rows carry which term, clip, horizon, what is written and
read by nothing, and the nearest settings elsewhere. Printed by `anygrpo train --dry-run`; nothing is loaded."""

from __future__ import annotations

import json
from typing import Any

from anygrpo.choices.card import KINDS
from anygrpo.choices.catalogue import CARDS, card_of
from anygrpo.recipe.algorithm import AlgorithmConfig
from anygrpo.recipe.peers import TRL, VERL, Nearest, trl, verl
from anygrpo.recipe.recipe import Stage, largest_beta, number
from anygrpo.recipe.section import Schedule, Section

FIELDS = AlgorithmConfig.model_fields
_CHOSEN = {kind: key for kind, (where, *_) in KINDS.items() if (key := where.removeprefix("algorithm.")) in FIELDS}
"""Kind of card -> the key of [algorithm] that names it."""


def semantics(stage: Stage, policy: Section) -> list[tuple[str, str]]:
    """Label and text of each line of a stage's card."""
    a = stage.algorithm
    key = policy.limit_key
    limit = None if key is None else getattr(policy, key)
    lines = [("denominator", _denominator(stage, limit, key)), ("rows", _rows(stage))]
    if stage.method == "grpo":
        lines += [("KL", _kl(a)), ("entropy", _entropy(a)), ("clip", _clip(a, policy.own_clip))]
    if a.refill and stage.source == "policy" and stage.method == "grpo":
        lines.append(("refill", _refill(a)))
    if a.overlong_buffer:
        lines.append(
            ("overlong", f"0 to -1 over the last {a.overlong_buffer} of {limit or 'the policy limit'} decisions")
        )
    if unread := written_and_unread(stage):
        lines.append(("read by nothing", ", ".join(unread)))
    if stage.method == "grpo" and policy.language_peers:
        lines += _nearest(TRL, trl(a, stage.optimizer)) + _nearest(VERL, verl(a))
    return lines


def _denominator(stage: Stage, limit: int | None, key: str | None) -> str:
    a = stage.algorithm
    if stage.method == "rce":
        return "valid rows: a mean over rows of summed cross-entropies"
    card = card_of("reduction", a.reduction)
    if card is None:
        return "your own function's"
    text = f"{a.reduction}: {card.formula}"
    if a.reduction == "constant":
        own = f"{limit} ({key})" if limit else "the policy's limit"
        text += f"; horizon {a.horizon if a.horizon is not None else own}"
    counted = "; groups without spread count" if stage.method == "grpo" else ""
    where = f", each of {a.minibatches} minibatches its own" if a.minibatches > 1 else ""
    return text + counted + where + "; filters other than drop_constant take rows out of it"


def _rows(stage: Stage) -> str:
    if stage.method == "supervised":
        return "each prompt's best stored answers, all alike"
    if stage.method == "rce":
        return "every stored answer, by the weight of its reward"
    card = card_of("objective", stage.algorithm.objective)
    return "policy loss: " + (
        "rows whose advantage is not 0; the others are skipped, and count" if card else "every row: your own objective"
    )


def _moves(value: float | Schedule) -> str:
    return f"{value.start:g} to {value.end:g} ({value.kind})" if isinstance(value, Schedule) else f"{value:g}"


def _kl(a: AlgorithmConfig) -> str:
    if not largest_beta(a):
        return "none: beta is 0"
    moved = (
        "" if a.kl_controller == "fixed" else f", moved by {a.kl_controller} within [{a.beta_min:g}, {a.beta_max:g}]"
    )
    how = "exact" if a.kl == "exact" else f"value {a.kl}, gradient new/old x (log new - log ref)"
    return f"every valid row, those without spread too; weight {_moves(a.beta)}{moved}; {how}"


def _entropy(a: AlgorithmConfig) -> str:
    if not number(a.entropy_coef):
        return "none: entropy_coef is 0"
    return f"every valid row, those without spread too; weight {_moves(a.entropy_coef)}"


def _refill(a: AlgorithmConfig) -> str:
    kinds = [f.kind for f in a.filters]
    card = card_of("advantage", a.advantage)
    others = card is not None and (card.by_part or card.baseline != "group")  # see train.batches
    learn = others or a.credit != "outcome"
    replaced = [kind for kind in kinds if not (learn and kind == "drop_constant")]
    if not replaced:
        by = f'advantage = "{a.advantage}"' if others else f'credit = "{a.credit}"'
        why = f"; with {by} groups without spread learn too" if "drop_constant" in kinds else ""
        return f"nothing to replace: no filter takes groups out{why}"
    gone = "groups without spread leave, and their KL and entropy with them" if "drop_constant" in replaced else ""
    return "; ".join(filter(None, (f"up to {a.refill} further draws for groups that {', '.join(replaced)} name", gone)))


def _clip(a: AlgorithmConfig, own: str) -> str:
    card = card_of("objective", a.objective)
    if card is not None and "clip_low" not in card.settings:
        return f"none: {a.objective} has no clip"
    side = lambda value: f"the policy type's own ({own})" if value is None else _moves(value)  # noqa: E731
    text = f"ratios from 1 - {side(a.clip_low)} to 1 + {side(a.clip_high)}"
    text += "" if a.dual_clip is None else f", dual {a.dual_clip:g}"
    once = a.epochs * a.minibatches == 1
    return text + ("; one update a rollout: it acts where the sampler is another policy, or never" if once else "")


def written_and_unread(stage: Stage) -> list[str]:
    """Keys of [algorithm] that the recipe gives and that no choice of this stage reads."""
    a = stage.algorithm
    readers: dict[str, set[str]] = {}
    for kind, cards in CARDS.items():
        if kind in _CHOSEN:
            for card in cards.values():
                for setting in card.settings:
                    readers.setdefault(setting, set()).add(kind)
    unread = []
    given = {key for key in a.model_fields_set if getattr(a, key) != FIELDS[key].get_default(call_default_factory=True)}
    for key in sorted(given & readers.keys() - {"beta"}):
        chosen = {kind: getattr(a, _CHOSEN[kind]) for kind in readers[key]}
        if stage.method == "rce":
            chosen |= {"objective": "rce"} if "objective" in chosen else {}
        cards = [card_of(kind, choice) for kind, choice in chosen.items()]
        if not any(card is None or key in card.settings for card in cards):
            by = " or ".join(f"{_CHOSEN[kind]} = {json.dumps(choice)}" for kind, choice in chosen.items())
            unread.append(f"{key} (not by {by})")
    return unread


def _nearest(name: str, near: Nearest) -> list[tuple[str, str]]:
    spelt: Any = ", ".join(f"{key} = {json.dumps(value)}" for key, value in near.settings.items())
    return [(name, spelt), *((f"{name.split()[0]} differs", text) for text in near.differs)]
