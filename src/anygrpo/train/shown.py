"""Samples of a step as a person reads them, for samples/step_*.jsonl."""

from __future__ import annotations

import math
from typing import Any

from anygrpo.core.policy import Policy
from anygrpo.core.rollout import Rollout


def rows_shown(policy: Policy, prompts: list[Any], outputs: list[list[Any]], rollout: Rollout) -> list[dict[str, Any]]:
    """One row for each of the rollout's first prompts: what the policy shows of it, its rewards, what was invalid."""
    rows = policy.show(prompts, outputs)
    known = lambda row: [x if math.isfinite(x) else None for x in row]  # noqa: E731
    for p, row in enumerate(rows):
        here = rollout.present[p]
        row["rewards"] = rollout.rewards[p][here].tolist()
        row["components"] = {name: known(part[p][here].tolist()) for name, part in rollout.components.items()}
        row["invalid"] = {str(g): why for (q, g), why in rollout.reasons.items() if q == p}
    return rows
