"""The cards are complete and true: functions, settings, metrics, sentences, presets, defaults."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import typing

import pytest

from anygrpo.algorithm import (
    advantages,
    correction,
    filters,
    kl,
    normalisers,
    objectives,
    schedules,
    statistics,
    weights,
)  # fmt: skip
from anygrpo.algorithm.correction import RULES
from anygrpo.choices.card import KINDS
from anygrpo.choices.catalogue import CARDS, PRESETS, card_of, filled, names
from anygrpo.choices.settings import SETTINGS
from anygrpo.core.choices import chosen
from anygrpo.families import families, resolve
from anygrpo.metrics.catalogue import describe
from anygrpo.recipe.algorithm import AlgorithmConfig
from anygrpo.recipe.filters import FilterConfig
from anygrpo.recipe.section import Schedule
from anygrpo.scoring.settings import RewardConfig

OWN = [card for family in families() for text in family.cards for card in resolve(text)]
EVERY = [*(card for cards in CARDS.values() for card in cards.values()), *OWN]
BY_ID = pytest.mark.parametrize("card", EVERY, ids=lambda c: f"{c.kind}-{c.name}")


def sections(union):
    """Kind -> section of a union of tables."""
    each = typing.get_args(typing.get_args(union)[0])
    return {typing.get_args(section.model_fields["kind"].annotation)[0]: section for section in each}


FILTER_SECTIONS, REWARD_SECTIONS = sections(FilterConfig), sections(RewardConfig)


@BY_ID
def test_a_card_is_complete(card):
    assert card.kind in KINDS
    assert callable(resolve(card.function))
    assert card.formula
    assert card.sentence.en.endswith((".", ").", ";"))
    assert re.search(r"[一-鿿]", card.sentence.zh)
    assert card.sentence.zh.endswith(("。", "）。"))
    assert not [name for name in card.metrics if describe(name) is None]
    assert set(card.takes.values()) <= set(card.settings)


@BY_ID
def test_its_settings_are_keys_of_its_table(card):
    keys = set(AlgorithmConfig.model_fields)
    if card.kind == "filter":
        keys = set(FILTER_SECTIONS[card.name].model_fields) - {"kind"}
        assert set(card.settings) == keys
    if card in OWN:
        assert set(card.keys) == set(card.settings)
        return
    if card.kind == "reward":
        keys = set(REWARD_SECTIONS[card.name].model_fields) - {"kind", "name", "weight"}
        assert set(card.settings) == keys
    if card.kind == "schedule":
        keys = set(Schedule.model_fields)
    assert set(card.settings) <= keys
    assert set(card.defaults) <= set(AlgorithmConfig.model_fields)
    assert all(key in SETTINGS for key in card.settings)


REACHED = {
    "cap": "importance_cap", "threshold": "threshold", "horizon": "kl_horizon", "minimum": "beta_min",
    "maximum": "beta_max", "std_floor": "std_floor", "history_least": "history_least", "k": "pass_k", "ddof": "ddof",
    "epsilon": "epsilon", "tau_positive": "tau_positive", "tau_negative": "tau_negative", "guard": "ratio_guard",
    "factor": "factor", "warmup": "warmup", "decay": "running_decay", "size": "history_size",
}  # fmt: skip
"""Number that the algorithm room takes with a default -> the recipe's key of it."""
BAND = {"low": ("kl_low", "clip_low"), "high": ("kl_high", "clip_high"), "factor": ("kl_factor", "factor")}


def test_every_number_that_the_algorithm_takes_is_in_a_recipes_reach():
    """Tolerances among them: what is not is a constant, with its reason beside it."""
    modules = (advantages, correction, filters, kl, normalisers, objectives, schedules, statistics, weights)
    found = set()
    for module in modules:
        for value in vars(module).values():
            if getattr(value, "__module__", "") != module.__name__ or not callable(value):
                continue
            for one in inspect.signature(value).parameters.values():
                if isinstance(one.default, int | float) and not isinstance(one.default, bool):
                    found.add(one.name)
    state = {"mean", "variance", "weight", "samples"}  # what a running mean has seen, and how many samples there were
    assert found - state == REACHED.keys() | BAND.keys()
    keys = {key for section in FILTER_SECTIONS.values() for key in section.model_fields}
    keys |= set(AlgorithmConfig.model_fields) | set(Schedule.model_fields)
    assert {*REACHED.values(), *(key for both in BAND.values() for key in both)} <= keys


def test_the_cards_are_what_the_algorithm_room_has():
    assert CARDS["advantage"].keys() == normalisers.ADVANTAGES.keys()
    assert CARDS["objective"].keys() == objectives.OBJECTIVES.keys()
    assert CARDS["kl"].keys() == kl.ESTIMATORS.keys() | {"exact"}
    assert CARDS["reduction"].keys() == weights.REDUCTIONS.keys()
    assert CARDS["filter"].keys() == filters.FILTERS.keys() == FILTER_SECTIONS.keys() - {"function"}
    assert CARDS["schedule"].keys() == schedules.SHAPES.keys() | {"constant", "step"}
    assert CARDS["schedule"].keys() == set(typing.get_args(Schedule.model_fields["kind"].annotation)) - {"function"}
    assert CARDS["correction"].keys() == RULES.keys() | {"none"}
    assert CARDS["reward"].keys() == REWARD_SECTIONS.keys() - {"function"}
    for kind, table in (("advantage", normalisers.ADVANTAGES), ("objective", objectives.OBJECTIVES)):
        assert all(resolve(CARDS[kind][name].function) is function for name, function in table.items())
    assert all(resolve(CARDS["reduction"][name].function) is f for name, f in weights.REDUCTIONS.items())
    assert all(resolve(CARDS["filter"][name].function) is f for name, f in filters.FILTERS.items())
    assert all(resolve(CARDS["correction"][name].function) is f for name, f in RULES.items())


def test_what_a_card_says_of_its_function_is_what_the_function_says():
    assert {c.name for c in CARDS["objective"].values() if c.whole_sequence} == objectives.WHOLE_SEQUENCE
    assert {c.name for c in CARDS["advantage"].values() if c.by_part} == normalisers.BY_PART
    assert {c.name for c in CARDS["filter"].values() if c.neutral} == filters.NEUTRAL


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in ("filter", "schedule", "reward")])
def test_every_name_is_one_a_recipe_may_use(kind):
    key = KINDS[kind][0].removeprefix("algorithm.")
    for name in names(kind):
        assert getattr(AlgorithmConfig(**{key: name}), key) == name
        assert chosen(kind, name).card is card_of(kind, name)
    default = AlgorithmConfig.model_fields[key].default
    assert default in names(kind)


def test_every_key_of_the_algorithm_has_its_sentence():
    assert set(AlgorithmConfig.model_fields) <= SETTINGS.keys()
    used = set(AlgorithmConfig.model_fields) | {key for card in EVERY if card not in OWN for key in card.settings}
    assert set(SETTINGS) == used
    assert all(re.search(r"[一-鿿]", text.zh) for text in SETTINGS.values())


# --- presets and defaults


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_what_the_recipe_then_has(name):
    made = AlgorithmConfig(preset=name)
    for key, value in PRESETS[name].values.items():
        got = getattr(made, key)
        assert ([{"kind": f.kind} for f in got] if key == "filters" else got) == (
            list(value) if key == "filters" else value
        )
    assert made.model_fields_set == {"preset"}
    assert PRESETS[name].source.en
    assert re.search(r"[一-鿿]", PRESETS[name].source.zh)
    assert bool(PRESETS[name].beside.en) == bool(PRESETS[name].beside.zh)
    assert re.search(r"[一-鿿]", PRESETS[name].sentence.zh)


def test_an_objective_alone_is_its_papers():
    alone = AlgorithmConfig(objective="gspo")
    assert (alone.clip_low, alone.clip_high, alone.reduction) == (3e-4, 4e-4, "sequence_mean")
    assert AlgorithmConfig(objective="sapo").reduction == "sequence_mean"
    free = AlgorithmConfig()
    assert (free.clip_low, free.reduction, free.model_fields_set) == (None, "token_mean", set())


def test_explicit_keys_win_over_the_preset_and_the_preset_over_the_objective():
    made = AlgorithmConfig(preset="luspo", clip_high=0.1)
    assert (made.clip_low, made.clip_high, made.reduction, made.horizon) == (2e-3, 0.1, "constant", 1)
    assert AlgorithmConfig(objective="gspo", clip_low=None).clip_low is None
    assert AlgorithmConfig(preset="dapo", objective="gspo").clip_low == 0.2  # a preset's clip, another's ratio
    assert filled({"preset": "no such"}) == filled({}) == {}


def test_follows_says_what_was_set_and_by_what():
    assert AlgorithmConfig(objective="gspo", reduction="token_mean").follows() == {"clip_low": 3e-4, "clip_high": 4e-4}
    assert AlgorithmConfig().follows() == {}


def test_the_cards_need_no_torch():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from anygrpo.choices.catalogue import CARDS\nfrom anygrpo.cli.explain import explained\n"
        "explained('gspo'); explained(None); print(len(CARDS))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(len(KINDS)), done.stderr
