"""Text to motion on labelled clips: captions in, standardised features [length, F] out, a composite reward."""

from __future__ import annotations

from anygrpo.tasks.motion.task import MotionTask, build

__all__ = ["MotionTask", "build"]
