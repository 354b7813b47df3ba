"""What a user's own denoiser, `encode` and `decode` give is held to `Parts`, and named where it is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from torch import nn

from anygrpo.denoising.own_parts import held
from anygrpo.denoising.parts import Parts
from anygrpo.denoising.policy import DiffusionPolicy
from anygrpo.denoising.settings import DiffusionPolicyConfig
from anygrpo.denoising.transitions import transitions_of
from anygrpo.errors import ConfigError


class Own(nn.Module):
    """A denoiser of latents [2, 4, 4]; `said` is what it answers with."""

    def __init__(self, said=lambda x: x) -> None:
        super().__init__()
        self.net, self.said = nn.Conv2d(2, 2, 1), said

    def forward(self, x, timestep, text):
        return self.said(self.net(x))


class Deaf(Own):
    def forward(self, x, timestep):
        return self.net(x)


def sound(denoiser: nn.Module | None = None) -> Parts:
    return Parts(
        denoiser=denoiser or Own(),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=1.0),
        shape=(2, 4, 4),
        encode=lambda prompts: {"text": torch.zeros(len(prompts), 3)},
        decode=lambda latents, condition: list(latents),
    )


def sampled(parts: Parts) -> None:
    config = DiffusionPolicyConfig(model="memory", steps=3, sampler="flow_grpo", guidance=1.0)
    parts = held("own.py:parts", parts)
    transitions = transitions_of(parts.scheduler, config.steps, config.sampler, config.eta, config.noise_level)
    policy = DiffusionPolicy(parts, transitions, config, seed=0)
    policy.decode(policy.sample(["a", "b"], 2, seed=0).samples)


def test_sound_parts_are_taken():
    sampled(sound())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"denoiser": None}, r"own\.py:parts: Parts\.denoiser gave a NoneType.*torch\.nn\.Module"),
        ({"shape": 4}, r"Parts\.shape gave 4"),
        ({"encode": 3}, r"Parts\.encode gave an int"),
        ({"encode": lambda prompts: None}, r"Parts\.encode gave a NoneType.*a row a prompt"),
        (
            {"encode": lambda prompts: {"text": torch.zeros(1, 3)}},
            r"Parts\.encode gave 'text' as \[1, 3\].*\[2, \.\.\.\]",
        ),
        ({"decode": lambda latents, condition: None}, r"Parts\.decode gave a NoneType.*4 outputs"),
        ({"decode": lambda latents, condition: [1]}, r"Parts\.decode gave 1 outputs.*4 outputs"),
    ],
)
def test_a_part_that_is_not_what_parts_says_is_named(change, message):
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        sampled(replace(sound(), **change))


@pytest.mark.parametrize(
    ("denoiser", "message"),
    [
        (Own(lambda x: x[:, :1]), r"Own\.forward gave \[\d+, 1, 4, 4\].*\[\d+, 2, 4, 4\], as x"),
        (Own(lambda x: (x,)), r"Own\.forward gave a tuple"),
        (Own(lambda x: None), r"Own\.forward gave a NoneType"),
        (Deaf(), r"Deaf\.forward cannot be called as \(x, timestep, text\)"),
    ],
)
def test_what_a_denoiser_answers_is_looked_at(denoiser, message):
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        sampled(sound(denoiser))
