"""A sweep's recipe, and a study as `results` reads it."""

from __future__ import annotations

import json
from types import SimpleNamespace

from anygrpo.sweep.results import trial_folder

RECIPE = {
    "policy": {"kind": "selector", "features": 448, "width": 8, "shots": 1},
    "task": {"kind": "digits_vqa", "embedding": "ngrams", "pool": 4, "shots": 1, "held_out": 10},
    "algorithm": {"prompts_per_step": 2, "group_size": 2},
    "training": {"steps": 2, "threads": 1},
    "evaluation": {"metric": "eval/accuracy"},
}


GRID = """sampler = "grid"
[settings]
"optimizer.learning_rate" = [1e-5, 1e-3]
"algorithm.advantage" = ["zscore", "rank"]
"""


class Study:
    """What `results` reads of an optuna study: trials with a value, and where it was reached."""

    direction = SimpleNamespace(name="MAXIMIZE")

    def __init__(self, **values):
        attrs = {"se": 0.05, "n": 100, "step": 9}
        self.trials = [
            SimpleNamespace(
                number=i, params={"beta": i}, value=v, state=SimpleNamespace(name="COMPLETE"), user_attrs=attrs
            )
            for i, v in enumerate(values.values())
        ]


def answers(folder, number, right, n=100, task="q", faults=()):
    file = trial_folder(folder, number) / "evaluations" / "step_00000010.jsonl"
    file.parent.mkdir(parents=True)
    lines = [
        {"prompt": i, "text": f"{task}{i}", "reward": 7.0, "components": {"correct": float(i in right)}, "valid": True}
        | ({"fault": "endpoint"} if i in faults else {})
        for i in range(n)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
