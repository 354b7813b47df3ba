"""An unknown key is answered with our name for it, and never with a key of another meaning."""

import pytest

from anygrpo.errors import ConfigError
from anygrpo.recipe.load import parse_recipe

POLICIES = {
    "motion": {"kind": "motion"},
    "mdm": {"kind": "mdm", "model": "m.pt", "text": "t.pt"},
    "diffusion": {"kind": "diffusion", "model": "folder"},
}
TASKS = {
    "motion": {"kind": "motion"},
    "humanml3d": {"kind": "humanml3d", "path": "d", "rewards": [{"kind": "skating"}]},
    "images": {"kind": "images", "path": "p", "rewards": [{"kind": "compressibility"}]},
}
FITS = {"motion": "motion", "mdm": "humanml3d", "diffusion": "images"}


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
    ],
)
def test_an_old_name_is_answered_with_the_new_one(policy, old, new):
    found = said(policy, **{old: "x"})
    assert f"unknown key '{old.replace('__', '.')}'" in found
    assert f"it is called {new!r} here" in found
