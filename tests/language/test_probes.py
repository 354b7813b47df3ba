"""What check adds for texts: prompts on both sides, and rewards that pay for an environment's words."""

import json
from types import SimpleNamespace

import pytest
import torch

from anygrpo.core.build import build_task
from anygrpo.core.task import Scores
from anygrpo.families import resolve
from anygrpo.language import probes
from anygrpo.language.family import FAMILY
from anygrpo.language.task_settings import JsonlTaskConfig
from anygrpo.language.tasks.answer import Answer


def test_the_family_names_them():
    assert [resolve(text) for text in FAMILY.probes.values()] == [probes.duplicates, probes.paid_for_environment]


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


def subject(reward):
    said = [
        {"role": "assistant", "content": "hm", "by": "policy"},
        {"role": "user", "content": "the answer is 42", "by": "environment"},
    ]

    def score(prompts, outputs):
        return Scores(torch.tensor([[reward(o) for o in row] for row in outputs]))

    return SimpleNamespace(
        policy=SimpleNamespace(config=SimpleNamespace(environment="world.py:step")),
        task=SimpleNamespace(score=score),
        answers=SimpleNamespace(prompts=[{"prompt": "x"}], outputs=[[Answer(said), "no second turn"]]),
    )


@pytest.mark.parametrize(
    ("reward", "status"),
    [
        (lambda o: float("42" in str(o)), "ok"),
        (lambda o: float(any("42" in m["content"] for m in o.messages)), "serious"),
        (lambda o: float(any("42" in m["content"] for m in o.messages if m["by"] == "policy")), "ok"),
    ],
)
def test_a_reward_that_reads_the_environments_words_is_named(reward, status):
    made = probes.paid_for_environment(subject(reward))
    assert made.status == status
    assert made.numbers["cases"] == 1


def test_without_an_environment_it_says_so():
    plain = SimpleNamespace(policy=SimpleNamespace(config=SimpleNamespace(environment=None)))
    assert probes.paid_for_environment(plain).status == "not applicable"
