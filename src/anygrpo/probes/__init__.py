"""Pre-flight probes: one small measurement each, on the user's own policy, data and rewards, before a run begins.

They are built from the training loop's own functions, so what they measure is what the loop would do.
"""

from __future__ import annotations

from anygrpo.core.probe_outcome import Outcome
from anygrpo.probes.check import PROBES, check, probe_stage
from anygrpo.probes.subject import Subject

__all__ = ["PROBES", "Outcome", "Subject", "check", "probe_stage"]
