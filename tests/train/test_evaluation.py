"""Held-out numbers cannot be raised by what is not scored, and pass@k means what a judge calls right."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import Bandit, BestArm

from anygrpo.core.task import Scores, Success
from anygrpo.errors import ConfigError
from anygrpo.recipe.training import EvaluationConfig
from anygrpo.train import evaluation
from anygrpo.train.evaluation import _on_cpu, check_metric, evaluate, held_out_seed, step_seed
from anygrpo.train.passing import pass_at_k


class Fixed(BestArm):
    """Given rewards of twenty held-out prompts; None: could not be scored."""

    success = None

    def __init__(self, values, faults=(), again=()):
        super().__init__(0)
        self.values, self.faults, self.again, self.calls = values, set(faults), list(again), 0

    def held_out(self):
        return self.prompts(10**6, len(self.values))

    def score(self, prompts, outputs):
        self.calls += 1
        values = self.values if self.calls == 1 else self.again
        faults = torch.tensor([[i in self.faults and self.calls == 1] for i in range(len(values))])
        rewards = torch.tensor([[math.nan if v is None else v] for v in values])
        return Scores(rewards, valid=~rewards.isnan(), faults=faults)


def row(task, **settings):
    return evaluate(Bandit(0), task, EvaluationConfig(**settings), 0)


def test_what_cannot_be_scored_raises_nothing():
    honest = row(Fixed([1.0] * 10 + [0.0] * 10))
    flattered = row(Fixed([1.0] * 6 + [0.0] + [None] * 13))
    assert honest["eval/reward"] == 0.5
    assert flattered["eval/reward"] == pytest.approx(0.3)
    assert flattered["eval/reward_valid"] == pytest.approx(6 / 7)
    assert flattered["eval/invalid"] == pytest.approx(0.65)
    assert "eval/reward_valid" not in honest


def test_an_unscorable_answer_is_no_better_than_the_worst_scored_one():
    assert row(Fixed([-5.0, 1.0, None, None]))["eval/reward"] == pytest.approx((-5 + 1 - 5 - 5) / 4)
    task = Fixed([2.0, 1.0, None, None])
    task.lowest_reward = -1.0
    assert row(task)["eval/reward"] == pytest.approx((2 + 1 - 1 - 1) / 4)


def test_a_fault_of_the_machine_is_tried_again_then_left_out_and_counted(tmp_path):
    mended = row(Fixed([1.0, None, 0.0, 0.0], faults=[1], again=[1.0]))
    assert mended["eval/reward"] == 0.5
    assert "eval/faults" not in mended

    class Broken(Fixed):
        def score(self, prompts, outputs):
            scores = super().score(prompts, outputs)
            return scores if self.calls == 1 else Scores(scores.rewards, valid=scores.valid, faults=~scores.valid)

    file = tmp_path / "rows.jsonl"
    task = Broken([1.0, None, 0.0, 0.0], faults=[1], again=[None])
    left = evaluate(Bandit(0), task, EvaluationConfig(), 0, file)
    assert left["eval/reward"] == pytest.approx(1 / 3)
    assert left["eval/faults"] == 0.25
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [r.get("fault", False) for r in rows] == [False, True, False, False]


def test_pass_at_k_by_hand():
    right = torch.tensor([[True, False, False, False], [False] * 4, [True] * 4, [True, True, False, False]])
    assert pass_at_k(right, 1).tolist() == [0.25, 0.0, 1.0, 0.5]
    assert pass_at_k(right, 2).tolist() == pytest.approx([0.5, 0.0, 1.0, 1 - 1 / 6])
    assert pass_at_k(right, 4).tolist() == [1.0, 0.0, 1.0, 1.0]


@given(st.lists(st.booleans(), min_size=3, max_size=7), st.integers(1, 3))
def test_pass_at_k_is_the_mean_over_subsets(samples, k):
    from itertools import combinations

    subsets = [any(c) for c in combinations(samples, k)]
    assert float(pass_at_k(torch.tensor([samples]), k)) == pytest.approx(sum(subsets) / len(subsets))


class Form(BestArm):
    """Nothing is ever right, and form earns .1."""

    success = None

    def score(self, prompts, outputs):
        return Scores(torch.full((len(outputs), len(outputs[0])), 0.1))


def test_without_a_rule_there_is_no_pass_at_k():
    assert not any(name.startswith("eval/pass") for name in row(Form(0), pass_k=4))


def test_a_rule_decides_what_passes():
    judged = Form(0)
    judged.success = Success("reward", 1.0)
    assert row(judged, pass_k=4)["eval/pass_at_4"] == 0.0
    by_recipe = row(Form(0), pass_k=4, success={"component": "reward", "at_least": 0.05})
    assert by_recipe["eval/pass_at_4"] == 1.0
    few = row(BestArm(0), pass_k=2, pass_samples=6)["eval/pass_at_2"]
    assert 0.0 < few < 1.0


# --- every number of the row


class Scripted(BestArm):
    """Rewards by the number of the prompt; parts beside, invalid and faulty ones as said. `log`: what was asked."""

    success = None

    def __init__(self, rewards, parts=None, valid=None, measured=None, count=None):
        super().__init__(0)
        self.rewards, self.parts, self.valid, self.measured, self.log = rewards, parts or {}, valid, measured or {}, []
        self.count = count or len(rewards)

    def held_out(self):
        return self.prompts(10**6, self.count)

    def score(self, prompts, outputs):
        self.log.append((len(prompts), len(outputs)))
        column = lambda values: torch.tensor(values)[:, None]  # noqa: E731
        valid = None if self.valid is None else column(self.valid)
        return Scores(column(self.rewards), {k: column(v) for k, v in self.parts.items()}, valid)

    def measure(self, prompts, outputs):
        self.log.append(("measure", len(prompts), len(outputs)))
        return self.measured


def test_all_numbers_of_a_row():
    task = Scripted([1.0, 3.0, 5.0], measured={"eval/own": 7.0})
    assert row(task) == {
        "eval/prompts": 3.0,
        "eval/invalid": 0.0,
        "eval/reward": 3.0,
        "eval/reward_se": pytest.approx(2 / math.sqrt(3)),
        "eval/own": 7.0,
    }
    assert task.log == [(3, 3), ("measure", 3, 3)]


def test_one_prompt_has_no_error_and_none_has_no_row():
    assert row(Scripted([2.0])) == {"eval/prompts": 1.0, "eval/invalid": 0.0, "eval/reward": 2.0, "eval/reward_se": 0.0}
    assert row(Scripted([0.0, 2.0]))["eval/reward_se"] == 1.0
    empty = Scripted([])
    empty.held_out = list
    assert row(empty) == {}
    assert empty.log == []


def test_at_most_so_many_prompts():
    task = Scripted([1.0, 2.0], count=5)
    assert row(task, prompts=2)["eval/prompts"] == 2.0


def test_nothing_that_can_be_scored_is_the_lowest_reward():
    """A policy whose every answer is unscorable is not without a number: it is the worst."""
    gone = row(Scripted([1.0, 2.0], valid=[False, False]))
    assert gone == {"eval/prompts": 2.0, "eval/invalid": 1.0, "eval/reward": 0.0, "eval/reward_se": 0.0}
    half = row(Scripted([8.0, 2.0, -3.0], valid=[True, True, False]))
    assert half["eval/reward"] == pytest.approx(10 / 3)  # 8, 2 and the lowest reward of a task, 0
    assert half["eval/reward_valid"] == 5.0
    assert half["eval/invalid"] == pytest.approx(1 / 3)


def test_prompts_are_answered_sixty_four_at_a_time_in_their_order(monkeypatch):
    policy, asked = Bandit(0), []
    greedy = policy.greedy
    policy.greedy = lambda prompts: asked.append(len(prompts)) or greedy(prompts)
    task = BestArm(0)
    found = evaluate(policy, task, EvaluationConfig(prompts=130), 0)
    assert asked == [64, 64, 2]
    prompts = task.held_out()[:130]
    outputs = policy.decode(greedy(prompts).samples)
    assert found["eval/reward"] == pytest.approx(float(task.score(prompts, outputs).rewards.mean()))


def test_what_is_written_of_each_prompt(tmp_path):
    task = Scripted([1.0, 2.0, 5.0], {"hit": [0.5, math.nan, math.inf]}, [True, False, True])
    file = tmp_path / "deep" / "er" / "rows.jsonl"
    evaluate(Bandit(0), task, EvaluationConfig(), 0, file)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [r["prompt"] for r in rows] == [0, 1, 2]
    assert [r["reward"] for r in rows] == [1.0, 0.0, 5.0]
    assert [r["components"] for r in rows] == [{"hit": 0.5}, {"hit": None}, {"hit": None}]
    assert [r["valid"] for r in rows] == [True, False, True]
    assert not [r for r in rows if "fault" in r or "conversation" in r]
    shown = Bandit(0).show(task.held_out(), Bandit(0).decode(Bandit(0).greedy(task.held_out()).samples))
    assert [(r["text"], r["output"]) for r in rows] == [(s["prompt"], s["outputs"][0]) for s in shown]
    evaluate(Bandit(0), task, EvaluationConfig(), 0, file)  # written anew, not added to
    assert len(file.read_text().splitlines()) == 3


def test_a_conversation_is_written_too(tmp_path):
    policy = Bandit(0)
    policy.show = lambda prompts, outputs: [
        {"prompt": "ä", "outputs": ["o"], "conversations": [["hello"]]}, {"prompt": "b", "outputs": ["p"]},
    ]  # fmt: skip
    file = tmp_path / "rows.jsonl"
    evaluate(policy, Scripted([1.0, 2.0]), EvaluationConfig(), 0, file)
    assert "ä" in file.read_text(encoding="utf-8")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [r.get("conversation") for r in rows] == [["hello"], None]


class Mended(Scripted):
    """The second and fourth fail the first time, and the fourth again."""

    def score(self, prompts, outputs):
        first = not self.log
        self.log.append([output[0] for output in outputs])
        rewards = torch.tensor([[1.0], [9.0], [2.0], [9.0]]) if first else torch.tensor([[5.0], [9.0]])
        faults = torch.tensor([[False], [True], [False], [True]]) if first else torch.tensor([[False], [True]])
        return Scores(rewards, {"hit": rewards * 2}, ~faults, faults=faults)

    def measure(self, prompts, outputs):
        return {}


def test_what_failed_by_the_machine_is_scored_once_more(tmp_path):
    task, file = Mended([0.0] * 4), tmp_path / "rows.jsonl"
    found = evaluate(Bandit(0), task, EvaluationConfig(), 0, file)
    assert task.log[1] == [task.log[0][1], task.log[0][3]]
    assert found["eval/reward"] == pytest.approx(8 / 3)
    assert (found["eval/faults"], found["eval/invalid"]) == (0.25, 0.25)
    assert "eval/reward_valid" not in found
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [r["components"]["hit"] for r in rows] == [2.0, 10.0, 4.0, 18.0]
    assert [r["valid"] for r in rows] == [True, True, True, False]


def test_samples_of_pass_at_k_come_in_chunks_with_seeds_of_their_own():
    policy, drawn = Bandit(0), []
    sample = policy.sample
    policy.sample = lambda prompts, n, seed: drawn.append((len(prompts), n, seed)) or sample(prompts, n, seed)
    evaluate(policy, BestArm(0), EvaluationConfig(prompts=70, pass_k=2, pass_samples=3), 11)
    assert drawn == [(64, 3, held_out_seed(11, 0)), (6, 3, held_out_seed(11, 1))]
    drawn.clear()
    evaluate(policy, BestArm(0), EvaluationConfig(prompts=3, pass_k=2), 11)
    assert [n for _, n, _ in drawn] == [2]


def test_an_invalid_sample_passes_nothing():
    policy = Bandit(0)
    sample = policy.sample
    policy.sample = lambda *given: replace(sample(*given), valid=torch.zeros(2, 3, dtype=torch.bool))
    task = Form(0)
    task.success = Success("reward", 0.0)
    assert evaluate(policy, task, EvaluationConfig(prompts=2, pass_k=3), 0)["eval/pass_at_3"] == 0.0
    assert evaluate(Bandit(0), task, EvaluationConfig(prompts=2, pass_k=3), 0)["eval/pass_at_3"] == 1.0


def test_seeds_of_held_out_chunks_are_fixed():
    words = int.from_bytes(hashlib.blake2b(b"11 1", digest_size=4).digest(), "big")
    assert held_out_seed(11, 1) == 2**31 + words % 2**31
    assert 2**31 <= held_out_seed(5, 7) < 2**32


def test_the_metric_that_decides_has_to_be_measured():
    by = lambda metric, **more: EvaluationConfig(metric=metric, **more)  # noqa: E731
    check_metric({"eval/reward": 1.0, "eval/own": 2.0, "eval/invalid": 0.0}, by("eval/own"))
    check_metric({"eval/own": 2.0}, by("eval/other"))  # nothing was scored: nothing is said
    check_metric({"eval/reward": 0.0, "eval/invalid": 1.0}, by("eval/other"))
    with pytest.raises(ConfigError, match="'eval/oth' is not measured"):
        check_metric({"eval/reward": 1.0, "eval/other": 1.0, "eval/invalid": 0.9}, by("eval/oth"))


def test_a_pass_at_k_lost_by_the_machine_is_no_metric_that_the_task_lacks():
    row = {"eval/reward": 1.0, "eval/invalid": 0.0}
    check_metric(row, EvaluationConfig(metric="eval/pass_at_4", pass_k=4))
    with pytest.raises(ConfigError, match="pass_at_4"):
        check_metric(row, EvaluationConfig(metric="eval/pass_at_4", pass_k=8))


def test_outputs_come_to_the_host_whatever_they_are():
    class Pair(tuple):
        __slots__ = ()

    odd = object()
    value = {"a": [torch.ones(2), (torch.zeros(1), "text")], "b": odd, "c": Pair((1, 2))}
    found = _on_cpu(value)
    assert type(found["a"]) is list
    assert type(found["a"][1]) is tuple
    assert torch.equal(found["a"][0], torch.ones(2))
    assert found["a"][1][1] == "text"
    assert found["b"] is odd
    assert type(found["c"]) is Pair


def test_a_reward_that_float32_cannot_hold_raises_no_mean():
    """As in training, where it is invalid."""

    class Huge(Scripted):
        def score(self, prompts, outputs):
            return Scores(torch.tensor([[1e39], [1.0], [3.0]], dtype=torch.float64))

    found = row(Huge([0.0] * 3))
    assert found["eval/reward"] == pytest.approx(4 / 3)
    assert found["eval/invalid"] == pytest.approx(1 / 3)


def test_every_answer_lost_by_the_machine_has_no_reward():
    class Lost(Scripted):
        def score(self, prompts, outputs):
            none = torch.zeros(len(prompts), 1, dtype=torch.bool)
            return Scores(torch.zeros(len(prompts), 1), valid=none, faults=~none)

    assert row(Lost([0.0, 0.0])) == {"eval/prompts": 2.0, "eval/invalid": 1.0, "eval/faults": 1.0}


class Tool(BestArm):
    """Everything is right; the tool fails for some samples, the first time or always."""

    success = Success("reward", 1.0)

    def __init__(self, lost, always):
        super().__init__(0)
        self.lost, self.always, self.calls = torch.tensor(lost, dtype=torch.bool), always, 0

    def held_out(self):
        return self.prompts(10**6, 2)

    def score(self, prompts, outputs):
        shape = len(prompts), len(outputs[0])
        self.calls += shape[1] > 1
        faults = torch.zeros(shape, dtype=torch.bool)
        if shape[1] > 1 and (self.calls == 1 or self.always):
            faults = self.lost[: shape[0]]
        return Scores((~faults).float(), valid=~faults, faults=faults)


@pytest.mark.parametrize(("always", "expected"), [(False, 1.0), (True, 1.0)])
def test_a_tools_failure_lowers_no_pass_at_k(always, expected):
    """Three samples each: of the first prompt one is lost, of the second two, which leaves it out of pass@2."""
    task = Tool([[1, 0, 0], [1, 1, 0]], always)
    assert row(task, pass_k=2, pass_samples=3)["eval/pass_at_2"] == expected
    assert task.calls == 2
    assert "eval/pass_at_2" not in row(Tool([[1, 1, 0], [1, 1, 1]], True), pass_k=2, pass_samples=3)


def test_what_a_policy_says_of_itself_stands_in_the_row():
    class Told(Bandit):
        def examined(self, task):
            return {"eval/own": 3.0}

    assert evaluate(Told(0), Fixed([1.0]), EvaluationConfig(), 0)["eval/own"] == 3.0


def test_outputs_that_json_has_no_word_for_are_written_as_text(tmp_path):
    scores = Scores(torch.ones(1, 1), {"hit": torch.tensor([[math.nan]])})
    evaluation._write(tmp_path / "a" / "r.jsonl", [{"prompt": Path("x"), "outputs": [1j]}], scores, BestArm())
    row = json.loads((tmp_path / "a" / "r.jsonl").read_text())
    assert (row["text"], row["output"], row["components"]) == ("x", "1j", {"hit": None})


def test_seeds_by_hand():
    assert step_seed(5, 2, 3) == 5 * 1_000_003 + 2 * 101 + 3
    assert step_seed(5, 2) == step_seed(5, 2, 0)
    assert step_seed(2**31 - 1, 0, 7) == 7  # modulo 2^31 - 1
