"""What selection tasks add to the probes of `anygrpo check`."""

from __future__ import annotations

from typing import Any

from anygrpo.selection.rewards import equivalent_modes
from anygrpo.selection.task import SelectionTask


def reward_modes(subject: Any) -> list[dict[str, Any]]:
    """Published reward modes that this data cannot tell from the recipe's."""
    if not isinstance(subject.task, SelectionTask) or subject.stage.algorithm.advantage != "zscore":
        return []
    mode = subject.task.reward.mode
    classes = equivalent_modes(subject.rollout.components, subject.rollout.valid)
    same = next((names for names in classes if mode in names), [mode])
    return [{"setting": f"reward mode {n}", "to": mode, "relation": "equal"} for n in same if n != mode]
