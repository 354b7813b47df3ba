"""Every choice by name, and whole recipes drawn at random, against the float64 replay of the same samples."""

from __future__ import annotations

import random
from typing import Any

import pytest
from replayed import OFF, learnt

from anygrpo.choices.catalogue import names

CHOICES = [
    *({"algorithm": {"advantage": name}} for name in names("advantage")),
    *({"algorithm": {"advantage": name, "minibatches": 2, "entropy_coef": 0.01}} for name in ("batch", "gdpo")),
    *(
        {"sampler": OFF, "algorithm": {"objective": name, "clip_low": 0.1, "clip_high": 0.3, "reduction": "token_mean"}}
        for name in names("objective")
    ),
    *({"sampler": OFF, "algorithm": {"beta": 0.4, "kl": name, "epochs": 2}} for name in names("kl")),
    *({"algorithm": {"reduction": name, "beta": 0.2, "entropy_coef": 0.1}} for name in names("reduction")),
    *(
        {"sampler": OFF, "algorithm": {"importance": name, "importance_level": level, "importance_cap": 1.3}}
        for name in names("correction")
        for level in ("decision", "sequence")
    ),
    *({"algorithm": {"kl_controller": name, "beta": 0.3, "kl_horizon": 30}} for name in names("controller")),
    *({"method": "rce", "algorithm": {"rce_variant": name}} for name in ("softmax", "rank", "top1")),
    *({"method": "supervised", "algorithm": {"reduction": name}} for name in names("reduction")),
    {"algorithm": {"filters": [{"kind": "overlong_mask"}]}},
]  # fmt: skip


@pytest.mark.parametrize("given", CHOICES, ids=lambda g: "-".join(map(str, g["algorithm"].values())))
def test_a_choice_moves_the_weights_as_it_says(tmp_path, given):
    learnt(tmp_path, given)


def drawn(seed: int) -> dict[str, Any]:
    """A whole recipe at random: what no test of one key at a time would put together."""
    r = random.Random(seed)
    some = lambda chance, **keys: {k: v for k, v in keys.items() if r.random() < chance}  # noqa: E731
    a: dict[str, Any] = {
        "advantage": r.choice(names("advantage")), "objective": r.choice(names("objective")),
        "reduction": r.choice(names("reduction")), "kl": r.choice(names("kl")),
        "importance": r.choice(names("correction")), "kl_controller": r.choice(names("controller")),
        "importance_level": r.choice(["decision", "sequence"]),
        "clip_low": r.choice([0.05, 0.2, 1.0]), "clip_high": r.choice([0.05, 0.2, 4.0]),
        "beta": r.choice([0.0, 0.2]), "entropy_coef": r.choice([0.02, 0.2]),
        "epochs": r.choice([1, 2]), "minibatches": r.choice([1, 2, 4]),
    }  # fmt: skip
    a |= {"tau_negative": 1.05}
    a |= some(
        0.25, std_floor=0.3, advantage_clip=0.8, ddof=0, epsilon=0.2, dual_clip=1.5, ratio_guard=0.4, horizon=3,
        lambda_supervised=0.3, lambda_consistency=0.1, target_kl=0.02, kl_horizon=40, kl_low=0.05, kl_factor=2.0,
        temperature={"kind": "linear", "start": 1.5, "end": 0.8}, lambda_pg={"kind": "cosine", "start": 1, "end": 0.2},
        refill=2,
    )  # fmt: skip
    if a["advantage"] not in ("maxrl", "components", "gdpo"):
        a |= some(0.25, overlong_buffer=3)
    extra = [{"kind": "overlong_mask"}, {"kind": "top_k_by_reward", "k": 4}, {"kind": "minimum_spread", "spread": 0.3}]
    a["filters"] = [{"kind": "drop_constant"}] * r.choice([0, 1]) + r.sample(extra, r.choice([0, 0, 1, 2]))
    sampler = r.choice([{}, OFF])
    policy = {"policy": r.choice(["policy", "taught"])}
    optimizer = some(0.3, grad_clip=0.3, weight_decay=0.1, betas=[0.7, 0.9])
    return policy | {"sampler": sampler, "algorithm": a, "optimizer": optimizer}


@pytest.mark.parametrize("seed", range(12))
def test_whole_recipes_move_the_weights_as_they_say(tmp_path, seed):
    learnt(tmp_path, drawn(seed))


@pytest.mark.slow
@pytest.mark.parametrize("tens", range(12, 42))
def test_many_more_recipes(tmp_path, tens):
    for seed in range(10 * tens, 10 * tens + 10):
        learnt(tmp_path / str(seed), drawn(seed), idle=True)
