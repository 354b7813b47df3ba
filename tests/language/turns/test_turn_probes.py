"""Rewards that pay for what others wrote, tools that echo, and players who know nothing: before a run and in it."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from talking import policy
from test_driver import CODE

from anygrpo.core.build import build_task
from anygrpo.core.task import Scores
from anygrpo.language.task_settings import ArithmeticTaskConfig
from anygrpo.language.tasks.answer import Answer
from anygrpo.language.turns import probes

EXAMPLES = Path(__file__).parents[3] / "examples" / "turns"


def subject(reward):
    said = [
        {"role": "assistant", "content": "hm", "by": "policy"},
        {"role": "user", "content": "the answer is 42", "by": "environment"},
    ]

    def score(prompts, outputs):
        return Scores(torch.tensor([[reward(o) for o in row] for row in outputs]))

    return SimpleNamespace(
        policy=SimpleNamespace(config=SimpleNamespace(environment="world.py:step", tools=())),
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
    plain = SimpleNamespace(policy=SimpleNamespace(config=SimpleNamespace(environment=None, tools=())))
    assert probes.paid_for_environment(plain).status == "not applicable"


@pytest.fixture
def hackable():
    settings = {"kind": "arithmetic", "digits": 2, "system": "", "held_out": 8, "workers": 1}
    rewards = [{"kind": "function", "function": f"{EXAMPLES}/hackable.py:heard"}]
    task = build_task(ArithmeticTaskConfig(**settings, rewards=rewards), 0)
    yield task
    task.close()


def test_the_hackable_example_is_named_before(hackable):
    made = policy([["5"]], tools=(f"{EXAMPLES}/hackable.py:note",))
    answers = SimpleNamespace(prompts=[], outputs=[])
    outcome = probes.paid_for_environment(SimpleNamespace(policy=made, task=hackable, answers=answers))
    assert outcome.status == "serious"
    assert outcome.numbers["paid"] == outcome.numbers["cases"] == probes.PLAYED
    assert outcome.numbers["echo"].endswith("hackable.py:note")
    assert "gives back what it is given" in outcome.say("en")


def test_and_in_the_run(hackable):
    """The policy notes the answer and says nothing: paid, measured, and named by the doctor's rule."""
    from anygrpo.doctor.rules import environment_paid

    prompts = hackable.held_out()[:4]
    said = lambda text: [  # noqa: E731
        {"role": "assistant", "content": "", "by": "policy"},
        {"role": "tool", "content": text, "by": "environment"},
    ]
    outputs = [[Answer(said(f"noted: {p['answer']}"))] for p in prompts[:2]] + [
        [Answer(said("noted: x"))] for _ in "ab"
    ]
    assert hackable.measure(prompts, outputs)["eval/environment_paid"] == 0.5
    assert environment_paid.WORDS["title"].zh


def test_an_honest_reward_is_not_named():
    sys.path.insert(0, str(EXAMPLES))
    task = build_task(ArithmeticTaskConfig(kind="arithmetic", digits=2, system="", held_out=8, workers=1), 0)
    made = policy([["5"]], tools=(f"{EXAMPLES}/hackable.py:note", f"{EXAMPLES}/calculator.py:calculator"))
    answers = SimpleNamespace(prompts=[], outputs=[])
    outcome = probes.paid_for_environment(SimpleNamespace(policy=made, task=task, answers=answers))
    task.close()
    assert outcome.status == "ok"
    assert not probes.echoes(made, f"{EXAMPLES}/calculator.py:calculator")


PARROT = """
class Parrot:
    def reset(self, row):
        self.word = row["prompt"]
    def step(self, messages, calls):
        return "say more", float(messages[-1]["content"] in (self.word, "say more")), len(messages) > 4
"""


def test_an_environment_that_pays_an_echo_is_named(tmp_path):
    (tmp_path / "code.py").write_text(CODE + PARROT)
    task = SimpleNamespace(prompts=lambda step, count: [{"prompt": f"w{i}", "number": i} for i in range(count)])
    twice = [{"role": "assistant", "content": "x", "by": "policy"}] * 2
    answers = SimpleNamespace(prompts=[], outputs=[[Answer(twice, [1.0, None])]])
    parrot = policy([["x"]], environment=f"{tmp_path}/code.py:Parrot")
    made = probes.trivial_players(SimpleNamespace(policy=parrot, task=task, answers=answers))
    assert made.status == "serious"
    assert made.numbers["who"] == "an echo"
    assert made.numbers["an echo"] > 1.0
    assert made.numbers["silent"] == 0.0
    playing = SimpleNamespace(prompts=[], outputs=[[Answer(twice, [-1.0, 0.25])]])
    costly = policy([["x"]], environment=f"{tmp_path}/code.py:Guess")
    made = probes.trivial_players(SimpleNamespace(policy=costly, task=task, answers=playing))
    assert made.status == "serious"
    assert "not to play pays more" in made.say("en")
    guess = policy([["x"]], environment=f"{tmp_path}/code.py:Guess")
    assert probes.trivial_players(SimpleNamespace(policy=guess, task=task, answers=answers)).status == "ok"
