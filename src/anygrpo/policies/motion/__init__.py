"""Text to motion: an MDM-style transformer denoiser under GRPO."""

from __future__ import annotations

from anygrpo.config.diffusion import MotionPolicyConfig
from anygrpo.policies.motion.policy import build

__all__ = ["MotionPolicyConfig", "build"]
