"""A policy's copy for a second sampler: what is sound is taken, whatever its log-probs say; what is not is named."""

import pytest
import torch
from torch import nn
from torch.distributions import Normal

from anygrpo.core.copies import own_copy
from anygrpo.core.policy import Policy
from anygrpo.core.rollout import Evaluation, Rollout
from anygrpo.errors import ConfigError

PROMPTS = [torch.ones(3)]


class Gaussian(Policy):
    """a = mu(x) + noise: the log-prob of what was drawn is the noise's own, whatever the weights."""

    def __init__(self, seeded=True):
        self.net, self.seeded = nn.Linear(3, 2), seeded

    def trainable(self):
        return self.net

    def sample(self, prompts, group_size, seed):
        x = torch.stack(prompts)[:, None].repeat(1, group_size, 1)
        generator = torch.Generator().manual_seed(seed) if self.seeded else None
        noise = torch.randn(*x.shape[:2], 2, generator=generator)
        logs = Normal(0.0, 1.0).log_prob(noise).sum(-1, keepdim=True)
        with torch.no_grad():
            made = {"x": x, "a": self.mean(x) + noise}
        return Rollout.of(made, logs, torch.ones_like(logs, dtype=torch.bool))

    def mean(self, x):
        return self.net(x)

    def decode(self, samples):
        return [list(row) for row in samples["a"]]

    def evaluate(self, samples, times, want=frozenset()):
        return Evaluation(Normal(self.net(samples["x"]), 1.0).log_prob(samples["a"]).sum(-1, keepdim=True))


def test_log_probs_that_do_not_follow_the_weights_are_no_reason_to_refuse():
    policy = Gaussian()
    before = policy.net.weight.detach().clone()
    made = own_copy(policy, PROMPTS)
    assert torch.equal(policy.net.weight, before)
    assert torch.equal(made.net.weight, before)
    assert made.net.weight.data_ptr() != policy.net.weight.data_ptr()


def test_a_copy_that_draws_by_the_originals_weights_is_refused():
    policy = Gaussian()
    policy.mean = lambda x, net=policy.net: net(x)
    with pytest.raises(ConfigError, match="samples with the original's weights"):
        own_copy(policy, PROMPTS)


def test_what_does_not_repeat_itself_is_told_so():
    with pytest.raises(ConfigError, match="does not repeat itself from a seed"):
        own_copy(Gaussian(seeded=False), PROMPTS)
