"""What a key that a recipe does not know was meant to be: our name for what other libraries call it. Torch-free."""

from __future__ import annotations

from collections.abc import Collection

from anygrpo.errors import suggestion

HERE: dict[str, tuple[str, ...]] = {
    "adapter": ("lora",),
    "batch": ("batch_size",),
    "data": ("path",),
    "evaluation_queries": ("held_out",),
    "factory": ("function",),
    "file": ("path",),
    "held_out_captions": ("held_out",),
    "held_out_draws": ("held_out_repeats",),
    "initial": ("model",),
    "kwargs": ("arguments",),
    "lora_alpha": ("alpha",),
    "network": ("function",),
    "options": ("arguments",),
    "pipeline": ("model",),
    "precision": ("dtype",),
    "r": ("rank",),
    "settings": ("arguments",),
    "split": ("held_out_split",),
    "target_modules": ("targets",),
    "test_queries": ("held_out_test",),
    "train_split": ("split",),
    "validation": ("held_out_share",),
    "validation_queries": ("held_out_validation",),
    "weights": ("model",),
}
"""Another word -> our keys with the same meaning, the first that the table has. Never a key of another meaning."""


def meant(key: str, known: Collection[str]) -> str:
    """What to say of an unknown `key` of a table whose keys are `known`."""
    ours = next((name for name in HERE.get(key, ()) if name in known), None)
    if ours is not None:
        return f"it is called {ours!r} here"
    return suggestion(key, known) if known else "remove it"
