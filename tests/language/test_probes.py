"""What check adds for texts: prompts on both sides, and rewards that pay for an environment's words."""

import json
from types import SimpleNamespace

from anygrpo.core.build import build_task
from anygrpo.families import resolve
from anygrpo.language import probes
from anygrpo.language.family import FAMILY
from anygrpo.language.task_settings import JsonlTaskConfig
from anygrpo.language.turns import probes as turns


def test_the_family_names_them():
    made = [resolve(text) for text in FAMILY.probes.values()]
    assert made == [probes.duplicates, turns.paid_for_environment, turns.trivial_players]


def test_prompts_on_both_sides(tmp_path):
    def write(name, prompts):
        (tmp_path / name).write_text("".join(json.dumps({"prompt": p, "answer": "1"}) + "\n" for p in prompts))
        return str(tmp_path / name)

    held_out = write("held.jsonl", ["What is 1+1 ?", "Other"])
    config = JsonlTaskConfig(
        kind="data",
        path=write("train.jsonl", ["what is 1 + 1", "A", "B"]),
        held_out_path=held_out,
        rewards=[{"kind": "number"}],
    )
    task = build_task(config, 0)
    try:
        made = probes.duplicates(SimpleNamespace(task=task))
    finally:
        task.close()
    assert made.status == "warning"
    assert made.numbers == {"both": 1, "held_out": 2, "train": 3}
    assert made.rows == [{"held_out": "What is 1+1 ?", "train": "what is 1 + 1"}]
    assert "1 of 2 held-out" in made.say("en")
