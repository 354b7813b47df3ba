"""digits-VQA: prompts are functions of their ids, the learner is judged by hand, statistics say what can be seen."""

from __future__ import annotations

import math

import pytest
import torch

from anygrpo.core.build import build_task as build
from anygrpo.selection.digits import ANSWERS, IMAGE
from anygrpo.selection.paired import mcnemar, paired, unpaired_detectable
from anygrpo.selection.settings import DigitsVQAConfig, RewardConfig
from anygrpo.selection.task import nearest, random_selection


def task(**changes):
    return build(DigitsVQAConfig(**({"kind": "digits_vqa", "embedding": "ngrams", "held_out": 40} | changes)), 0)


@pytest.fixture(scope="module")
def digits():
    return task()


def test_a_prompt_is_a_function_of_its_id(digits):
    one, again = digits.prompts(3, 2)[1], task().prompt("train-0.7")
    assert one["id"] == "train-0.7"
    assert torch.equal(one["candidates"], again["candidates"])
    assert not torch.equal(one["query"], digits.prompt("train-0.8")["query"])
    other = build(digits.config, 1).prompts(3, 2)[1]
    assert not torch.equal(one["query"], other["query"])


def test_held_out_queries_show_unseen_images_to_every_seed(digits):
    held = digits.held_out()
    assert [p["id"] for p in held] == [p["id"] for p in build(digits.config, 9).held_out()]
    seen = {tuple(row) for row in digits.images[digits.train].tolist()}
    assert sum(tuple(p["query"][:IMAGE].tolist()) in seen for p in held) <= 1  # sklearn repeats a few pictures


def test_the_query_itself_is_never_a_candidate(digits):
    for p in digits.prompts(0, 64):
        same = (p["candidates"][:, :IMAGE] == p["query"][:IMAGE]).all(-1).nonzero()[:, 0].tolist()
        assert set(same) <= set(p["excluded"])


def test_the_learner_is_a_kernel_average(digits):
    prompt = digits.prompt("test-0")
    parts = digits.judge([prompt], [[(0, 1), (1, 0), (2,), ()]])
    c, q = prompt["candidates"], prompt["query"]
    scores = 12 * (c[:2] @ q)
    weights = scores.softmax(0)
    expected = weights[prompt["answers"][:2] == prompt["answer"]].sum()
    assert parts["gt_prob"][0, 0].item() == pytest.approx(expected.item(), abs=1e-6)
    assert parts["gt_prob"][0, 0] == parts["gt_prob"][0, 1]  # order does not matter to this learner
    assert parts["correct"][0, 2].item() == float(prompt["answers"][2] == prompt["answer"])
    assert parts["correct"][0, 3].item() == 0.0
    assert parts["gt_prob"][0, 3].item() == pytest.approx(1 / len(ANSWERS))


def test_rewards_average_over_prefixes(digits):
    prompts = digits.prompts(0, 8)
    outputs = [[(0, 1, 2, 3)]] * 8
    two, four = ({"shots": k} for k in (2, 4))
    by_hand = sum(task(**x).score(prompts, outputs).rewards for x in (two, four)) / 2
    both = task(reward_shots=(2, 4), shots=4).score(prompts, outputs).rewards
    torch.testing.assert_close(both, by_hand)


def test_picks_cost_what_they_are_said_to(digits):
    prompts = digits.prompts(0, 2)
    outputs = [[(0, 1, 2, 3), (0,)], [(), (1, 2)]]
    free, costly = (task(shots=3, reward={"per_shot": cost}).score(prompts, outputs).rewards for cost in (0.0, 0.1))
    torch.testing.assert_close(free - costly, torch.tensor([[0.3, 0.1], [0.0, 0.2]]))


def test_accuracy_is_measured_at_every_prefix(digits):
    prompts = digits.held_out()
    row = digits.measure(prompts, [[nearest(p, 4)] for p in prompts])
    for k in (1, 2, 3, 4):
        expected = digits.judge(prompts, [[nearest(p, k)] for p in prompts])["correct"].mean().item()
        assert row[f"eval/accuracy_shots_{k}"] == pytest.approx(expected)
    assert row["eval/accuracy"] == row["eval/accuracy_shots_2"]


def test_ragged_pools_differ_in_size():
    sizes = {len(p["candidates"]) for p in task(ragged=True, pool=8).prompts(0, 40)}
    assert sizes <= {4, 5, 6, 7, 8}
    assert len(sizes) > 2


def test_neighbours_beat_chance_and_stored_demonstrations_are_neighbours(digits):
    prompts = digits.prompts(0, 200)
    near = digits.judge(prompts, [[nearest(p, 2)] for p in prompts])["correct"].mean()
    chance = digits.judge(prompts, [[random_selection(p, 2, i)] for i, p in enumerate(prompts)])["correct"].mean()
    assert near > chance + 0.1
    assert digits.stored(prompts[:1]).actions == [[nearest(prompts[0], 2)]]
    assert digits.score(prompts, [[(0, 1)]] * 200).valid.all()


def test_the_reward_mode_reaches_the_score():
    t = task(reward=RewardConfig(mode="hard01_plus_gtprob", hard=2.0))
    scores = t.score(t.prompts(0, 4), [[(0, 1)]] * 4)
    c = scores.components
    torch.testing.assert_close(scores.rewards, 2 * c["correct"] + c["gt_prob"])


# --- statistics ----------------------------------------------------------------------------------------------


def test_paired_statistics_by_hand():
    a, b = torch.tensor([1.0, 1, 1, 0, 1, 1]), torch.tensor([0.0, 1, 0, 1, 0, 1])
    result = paired(a, b)
    d = a - b
    assert result.difference == pytest.approx(2 / 6)
    assert result.se == pytest.approx(d.std().item() / math.sqrt(6))
    assert (result.wins, result.losses) == (3, 1)
    assert result.p == pytest.approx(2 * 5 / 16)
    assert "indistinguishable on n = 6" in result.sentence


def test_few_differences_do_not_decide_whatever_the_interval_says():
    few = paired(torch.tensor([1.0, 0.9, 1.1, 0.8, 1.2]), torch.zeros(5))
    assert few.low > 0
    assert few.p == pytest.approx(2 / 32)
    assert few.sentence.startswith("not decided on n = 5: +1.0000")
    assert "only 5 queries differ" in few.sentence
    six = paired(torch.ones(6), torch.zeros(6))
    assert six.p == pytest.approx(2 / 64)
    assert six.sentence.startswith("different")
    thirds = paired(torch.tensor([0.3] * 9).double(), torch.tensor([0.1 + 0.2] * 9).double())
    assert (thirds.wins, thirds.losses, thirds.detectable) == (0, 0, pytest.approx(3 / 9))  # rounding wins nothing
    none = paired(torch.ones(20), torch.ones(20))
    assert none.detectable == pytest.approx(3 / 20)  # the rule of three
    assert "a difference below 0.150 cannot show" in none.sentence


def test_mcnemar_is_exact():
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(10, 0) == pytest.approx(2 / 1024)
    assert mcnemar(5, 5) == 1.0


def test_four_points_on_800_questions_are_noise():
    """A claimed +.4 points at 48%: unpaired, 800 questions show no less than 7 points with power .8."""
    assert unpaired_detectable(0.48, 800) == pytest.approx(0.0699, abs=1e-3)
    g = torch.Generator().manual_seed(0)
    a = (torch.rand(800, generator=g) < 0.48).double()
    b = a.clone()
    b[:32] = 1 - b[:32]
    assert paired(b, a).low < 0.004 < paired(b, a).high
