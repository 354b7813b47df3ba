"""The KL that bench/motion.py measures beside a run: the same windows in each call, 0 at the start, then above."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import torch

from anygrpo.denoising.motion import policy as motion
from anygrpo.denoising.motion.settings import MotionPolicyConfig
from anygrpo.denoising.settings import LoraConfig

spec = importlib.util.spec_from_file_location("bench_motion", Path(__file__).parents[2] / "bench/motion.py")
bench = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bench)

SMALL = {"features": 7, "frames": 16, "width": 32, "layers": 1, "heads": 2, "steps": 20, "dropout": 0.0}
PROMPTS = [{"caption": "a person walks", "length": 10}, {"caption": "someone jumps", "length": 16}]


def test_the_same_windows_each_time_and_a_kl_that_starts_at_zero():
    lora = LoraConfig(rank=2, alpha=4)
    policy = motion.build(MotionPolicyConfig(**SMALL, window=2, window_starts=(0, 15), sampler="ddim", lora=lora), 0)
    run = SimpleNamespace(policy=policy, stages=[SimpleNamespace(task=SimpleNamespace(held_out=lambda: PROMPTS))])
    start = bench.kl_by_window(run)
    assert start == {0: 0.0, 7: 0.0, 15: 0.0}
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(0.1)
    moved = bench.kl_by_window(run)
    assert all(moved[window] > 0 for window in start)
    assert bench.kl_by_window(run) == moved
