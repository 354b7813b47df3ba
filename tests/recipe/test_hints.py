"""An unknown key is answered with our name for it, and never with a key of another meaning."""

import pytest

from anygrpo.errors import ConfigError
from anygrpo.recipe.load import parse_recipe

POLICIES = {
    "motion": {"kind": "motion"},
    "mdm": {"kind": "mdm", "model": "m.pt", "text": "t.pt"},
    "diffusion": {"kind": "diffusion", "model": "folder"},
    "stochastic": {"kind": "stochastic", "function": "net.py:make", "lora": {}},
    "restorer": {"kind": "restorer"},
    "selector": {"kind": "selector", "features": 4},
    "causal_lm": {"kind": "causal_lm", "model": "smollm2"},
}
TASKS = {
    "motion": {"kind": "motion"},
    "humanml3d": {"kind": "humanml3d", "path": "d", "rewards": [{"kind": "skating"}]},
    "images": {"kind": "images", "path": "p", "rewards": [{"kind": "compressibility"}]},
    "restoration": {"kind": "restoration"},
    "stored_candidates": {"kind": "stored_candidates", "path": "c.json", "features": "f.npz"},
    "arithmetic": {"kind": "arithmetic"},
}
FITS = {
    "motion": "motion",
    "mdm": "humanml3d",
    "diffusion": "images",
    "stochastic": "restoration",
    "restorer": "restoration",
    "selector": "stored_candidates",
    "causal_lm": "arithmetic",
}


def said(policy: str, **more: object) -> str:
    """The error for the policy of that kind with its task, and keys "table.key" more."""
    recipe = {"policy": dict(POLICIES[policy]), "task": dict(TASKS[FITS[policy]])}
    for key, value in more.items():
        table, _, name = key.partition("__")
        recipe[table][name] = value
    with pytest.raises(ConfigError) as caught:
        parse_recipe(recipe)
    return str(caught.value)


@pytest.mark.parametrize(
    ("policy", "old", "new"),
    [
        ("motion", "policy__weights", "model"),
        ("mdm", "policy__network", "function"),
        ("diffusion", "policy__factory", "function"),
        ("diffusion", "policy__pipeline", "model"),
        ("motion", "task__data", "path"),
        ("motion", "task__held_out_captions", "held_out"),
        ("mdm", "task__train_split", "split"),
        ("stochastic", "policy__factory", "function"),
        ("restorer", "policy__weights", "model"),
        ("restorer", "policy__adapter", "lora"),
        ("restorer", "policy__precision", "dtype"),
        ("restorer", "task__held_out_draws", "held_out_repeats"),
        ("selector", "policy__initial", "model"),
        ("selector", "task__file", "path"),
        ("selector", "task__validation", "held_out_share"),
    ],
)
def test_an_old_name_is_answered_with_the_new_one(policy, old, new):
    found = said(policy, **{old: "x"})
    assert f"unknown key '{old.replace('__', '.')}'" in found
    assert f"it is called {new!r} here" in found
