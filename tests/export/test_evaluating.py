"""`evaluate --samples`: means, the best and pass@k over prompts, whatever the machine loses."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
from toys import Bandit, BestArm

from anygrpo.cli.evaluate import _gained
from anygrpo.core.task import Scores, Success
from anygrpo.errors import DataError
from anygrpo.export import evaluating
from anygrpo.export.evaluating import _sampled, measured, settings_of, task_of
from anygrpo.recipe.load import parse_recipe
from anygrpo.recipe.training import EvaluationConfig
from anygrpo.spoken import Text


class Lossy(BestArm):
    """Rewards of four samples of two prompts; None: lost by the machine, each time."""

    success = Success("reward", 1.0)

    def __init__(self, rows, greedy=1.0):
        super().__init__(0)
        self.rows, self.greedy = rows, greedy

    def held_out(self):
        return self.prompts(10**6, len(self.rows))

    def score(self, prompts, outputs):
        every = self.held_out()
        index = [next(i for i, q in enumerate(every) if q["x"].equal(p["x"])) for p in prompts]
        rows = [self.rows[i] if len(outputs[0]) > 1 else [self.greedy] for i in index]
        faults = torch.tensor([[r is None for r in row] for row in rows])
        return Scores(
            torch.tensor([[0.0 if r is None else r for r in row] for row in rows]), valid=~faults, faults=faults
        )


def opened():
    return SimpleNamespace(policy=Bandit(0), source="x", recipe=None, step=None)


def test_what_the_machine_lost_is_in_no_mean():
    """First prompt: 1, 0 and two lost: mean .5, best 1, pass@1 1/2, pass@2 1. Second: all right. Third: nothing."""
    task = Lossy([[1.0, None, 0.0, None], [1.0] * 4, [None] * 4])
    found = _sampled(opened(), task, EvaluationConfig(), 4, 2)
    assert found["n"] == 4
    assert found["mean"]["mean"] == pytest.approx(0.75)
    assert found["best"]["mean"] == 1.0
    assert found["pass_at_1"]["mean"] == pytest.approx(0.75)
    assert found["pass_at_2"]["mean"] == 1.0
    assert found["pass_at_4"]["mean"] == 1.0  # of the second alone
    assert found["pass_at_4"]["units"] == 1


def test_a_score_of_one_value_is_a_rate_where_it_says_what_is_right(tmp_path):
    """Always 1 on 20 prompts: a reward of -1 and 1 may be -1 of one in six."""

    class Penal(Lossy):
        def score(self, prompts, outputs):
            made = super().score(prompts, outputs)
            return Scores(made.rewards, {"brevity": torch.zeros_like(made.rewards)}, valid=made.valid)

    share = 1 - 0.025**0.05
    lows = []
    for rule in (Success("reward", 1.0), Success("brevity", 1.0), None):
        task = Penal([[1.0] * 4] * 20)
        task.success = rule
        found = measured(opened(), task, EvaluationConfig(), 1, None, tmp_path / "rows.jsonl")
        lows.append((found["reward"]["low"], found["parts"]["brevity"]["low"]))
    expected = [(1 - share, -share), (1 - 2 * share, 0.0), (1 - 2 * share, -share)]
    assert [x for pair in lows for x in pair] == pytest.approx([x for pair in expected for x in pair])


def test_an_unscorable_sample_is_the_worst_of_all_prompts():
    class Worst(Lossy):
        def score(self, prompts, outputs):
            made = super().score(prompts, outputs)
            broken = made.rewards == 9.0
            return Scores(made.rewards, valid=~broken)

    found = _sampled(opened(), Worst([[9.0, 1.0]] + [[1.0, 1.0]] * 40 + [[-4.0, 1.0]]), EvaluationConfig(), 2, None)
    assert found["mean"]["mean"] == pytest.approx((-1.5 + 40 + -1.5) / 42)  # -4, though it is of another chunk
    assert found["best"]["mean"] == 1.0


def test_nothing_left_is_said(tmp_path):
    with pytest.raises(DataError, match="no sample could be scored, through no fault"):
        _sampled(opened(), Lossy([[None] * 4] * 2), EvaluationConfig(), 4, None)
    with pytest.raises(DataError, match="no answer could be scored, through no fault"):
        measured(opened(), Lossy([[1.0] * 4] * 2, greedy=None), EvaluationConfig(), 1, None, tmp_path / "rows.jsonl")


def test_two_that_no_prompt_judges_have_no_gain(tmp_path):
    """Offline the file may hold the picks of one alone: it ended the command."""
    row = {"prompt": 0, "text": "q", "reward": 1.0, "output": [1], "components": {}}
    for name, fault in (("a", None), ("b", "unknown")):
        (tmp_path / name).write_text(json.dumps(row | {"fault": fault}) + "\n")
    gain = evaluating.paired(tmp_path / "a", tmp_path / "b")
    assert gain == {"prompts": 0, "gain": None, "same_output": None, "parts": {}}
    words = _gained(gain, Text("b - a", ""), Text(" on 0 prompts", ""))
    assert words == "b - a: no prompt was judged on both sides"
    gain = evaluating.paired(tmp_path / "a", tmp_path / "a")
    assert gain["prompts"] == 1
    assert _gained(gain, Text("b - a", ""), Text(" on 1 prompts", "")).startswith("b - a on 1 prompts: reward +0.0000")


def _text_recipe(tmp_path, **task):
    for name, count in (("train", 4), ("own", 9), ("other", 200)):
        lines = [json.dumps({"prompt": f"{name} {i}", "answer": "x"}) for i in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    table = {"kind": "data", "path": str(tmp_path / "train.jsonl"), "held_out_path": str(tmp_path / "own.jsonl")}
    table |= {"held_out": 3, "rewards": [{"kind": "exact", "column": "answer"}]} | task
    return parse_recipe({"name": "n", "policy": {"kind": "causal_lm", "model": "m"}, "task": table})


def test_a_file_given_by_hand_is_measured_whole_or_as_far_as_asked(tmp_path):
    recipe, other = _text_recipe(tmp_path), str(tmp_path / "other.jsonl")
    for held_out, prompts, count in (
        (None, None, 3),
        (None, 8, 8),
        (None, 2, 2),
        (other, None, 200),
        (other, 150, 150),
    ):
        task = task_of(recipe, held_out, prompts)
        config = settings_of(recipe, task, prompts, 1, None, held_out is not None)
        assert len(task.held_out()[: config.prompts]) == count
        task.close()
    bounded = recipe.model_copy(update={"evaluation": EvaluationConfig(prompts=5)})
    task = task_of(bounded, other)
    assert settings_of(bounded, task, None, 1, None, whole=True).prompts is None
    assert settings_of(bounded, task, None, 1, None).prompts == 5
    task.close()


def test_parts_of_the_score_have_intervals_and_paired_gains(tmp_path):
    """Of values 1, 2, 3 and gains .5, .5, 2: means and Student's interval by hand; None is left out."""
    for name, values in (("a", (1.0, 2.0, 3.0, None)), ("b", (1.5, 2.5, 5.0, 1.0))):
        rows = [{"prompt": i, "output": "x", "reward": 0.0, "components": {"psnr": x}} for i, x in enumerate(values)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert evaluating.parts_of(rows) == {"psnr": [1.0, 2.0, 3.0]}
    assert evaluating.parts_of([rows[0] | {"fault": True}]) == {}
    gain = evaluating.paired(tmp_path / "a.jsonl", tmp_path / "b.jsonl")["parts"]["psnr"]
    assert (gain["mean"], gain["units"]) == (1.0, 3)
    half = 4.302653 * 0.5  # t of 2 degrees of freedom, standard error .866 / sqrt(3)
    assert gain["low"] <= 1.0 - half + 1e-5
    assert gain["high"] >= 1.0 + half - 1e-5
