"""Short forms shared by the tests of advantages."""

import torch

from anygrpo.algorithm import ADVANTAGES, AdvantageOptions, Advantages, compute

IN_GROUP = sorted(set(ADVANTAGES) - {"running", "history", "overall"})
"""Normalisers that compare inside the group."""


def adv(name: str, rewards, valid=None, **options) -> Advantages:
    r = torch.as_tensor(rewards)
    v = torch.ones_like(r, dtype=torch.bool) if valid is None else torch.as_tensor(valid)
    if name in ("components", "gdpo"):
        options.setdefault("components", {"only": r})
    if name == "history":
        options.setdefault("prompts", torch.arange(len(r)))
    if name == "pass_at_k":
        options.setdefault("k", 1)
    return compute(name, r, v, AdvantageOptions(**options))


def close(values, expected, atol=2e-6):
    torch.testing.assert_close(values, torch.as_tensor(expected, dtype=torch.float32), rtol=0, atol=atol)
