"""The room alone teaches a bandit, and a flipped sign anywhere does not."""

import pytest
import torch

from anygrpo.algorithm import (
    OBJECTIVES,
    AdvantageOptions,
    ClipSettings,
    compute,
    estimate,
    loss_weights,
    reward_weights,
)

GOOD = 2  # the best of 4 arms
REWARDS = torch.tensor([0.1, 0.3, 1.0, 0.0])


def learn(objective="ppo", advantage="zscore", sign=1.0, beta=0.0, kl="k3", steps=30, epochs=2) -> float:
    """Probability of the good arm after GRPO on one prompt with 16 samples a step. It starts at 1/4."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.zeros(4, requires_grad=True)
    optimizer = torch.optim.SGD([logits], lr=0.5)
    ref = logits.detach().log_softmax(-1)
    mask, valid = torch.ones(16, 1, dtype=torch.bool), torch.ones(1, 16, dtype=torch.bool)
    weights = loss_weights(mask, valid[0], "token_mean")
    for _ in range(steps):
        arms = torch.multinomial(logits.detach().softmax(-1), 16, replacement=True, generator=generator)
        old = logits.detach().log_softmax(-1)[arms, None]
        if objective == "rce":
            a = reward_weights(REWARDS[arms][None], valid, 0.2)[0][:, None]
        else:
            a = sign * compute(advantage, REWARDS[arms][None], valid, AdvantageOptions(k=2)).values[0][:, None]
        for _ in range(epochs):
            new = logits.log_softmax(-1)[arms, None]
            loss = OBJECTIVES[objective](new, old, a, mask, ClipSettings()).loss
            loss = loss + beta * estimate(kl, new, ref[arms, None], old, mask).loss
            optimizer.zero_grad()
            (weights * loss).sum().backward()
            optimizer.step()
    return logits.softmax(-1)[GOOD].item()


@pytest.mark.parametrize("objective", ["ppo", "gspo", "cispo", "sapo", "reinforce", "rce"])
def test_every_objective_learns(objective):
    assert learn(objective) > 0.9


@pytest.mark.parametrize("advantage", ["centred", "leave_one_out", "rank", "batch", "running", "maxrl", "pass_at_k"])
def test_every_normaliser_learns(advantage):
    assert learn(advantage=advantage, steps=60) > 0.8


@pytest.mark.parametrize("objective", ["ppo", "gspo", "cispo", "sapo", "reinforce"])
def test_a_flipped_sign_fails_to_learn(objective):
    assert learn(objective, sign=-1.0) < 0.05


@pytest.mark.parametrize("kl", ["k1", "k2", "k3"])
def test_a_kl_term_holds_the_policy_and_a_flipped_one_does_not(kl):
    free, held, flipped = learn(), learn(beta=3.0, kl=kl), learn(beta=-3.0, kl=kl)
    assert 0.25 < held < 0.6 < free
    assert abs(flipped - 0.25) > 0.2
