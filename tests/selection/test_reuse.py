"""Earlier judged selections beside fresh ones: their log-probabilities, what they estimate, resuming."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from runs import cut_after

from anygrpo.algorithm.correction import importance_correction
from anygrpo.core.task import Scores, Stored
from anygrpo.core.tree import tree_map
from anygrpo.errors import ConfigError
from anygrpo.recipe.load import load_recipe
from anygrpo.selection.build import build
from anygrpo.selection.settings import SelectorConfig
from anygrpo.train import checkpoint
from anygrpo.train.build import new_run, resumed_run
from anygrpo.train.loop import train

ALL = slice(None)


def policy_of(**changes):
    return build(SelectorConfig(**({"kind": "selector", "features": 6, "width": 16, "shots": 2} | changes)), 0)


def prompt(seed, size=4):
    g = torch.Generator().manual_seed(seed)
    return {"id": f"q{seed}", "query": torch.randn(6, generator=g), "candidates": torch.randn(size, 6, generator=g)}


def judged(policy, prompts, rollout, valid=None):
    p, g, _ = rollout.shape
    generator = torch.Generator().manual_seed(p * 100 + g)
    rewards = torch.rand(p, g, generator=generator)
    scores = Scores(rewards, {"correct": 1 - rewards}, valid=valid)
    return policy.judged(prompts, rollout.scored(scores).of_version(policy.version))


def moved(policy, by=0.3):
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(by * torch.randn(p.shape, generator=generator).to(p))


def test_earlier_draws_come_back_with_the_log_probabilities_they_were_drawn_with():
    policy, prompts = policy_of(reuse=3), [prompt(1), prompt(2, 5)]
    first = policy.sample(prompts, 4, seed=0)
    assert first.shape == (2, 4, 2)
    first = judged(policy, prompts, first)
    assert first.info == {"reuse/share": 0.0}
    moved(policy)
    policy.version = 7
    some = [prompts[1], prompt(9), prompts[0]]
    second = judged(policy, some, policy.sample(some, 4, seed=1))
    assert second.shape == (3, 7, 2)
    assert second.present.tolist() == [[True] * 7, [True] * 4 + [False] * 3, [True] * 7]
    assert torch.equal(second.valid, second.present)
    for now, before in ((0, 1), (2, 0)):
        assert torch.equal(second.samples["chosen"][now, 4:], first.samples["chosen"][before, 1:])
        assert torch.equal(second.log_probs[now, 4:], first.log_probs[before, 1:])
        assert torch.equal(second.rewards[now, 4:], first.rewards[before, 1:])
        assert torch.equal(second.components["correct"][now, 4:], 1 - first.rewards[before, 1:])
    assert second.version[..., 0].tolist() == [[7] * 4 + [0] * 3] * 3
    rows = tree_map(lambda x: x.flatten(0, 1), second.samples)
    new = policy.evaluate(rows, ALL).log_probs.view(second.shape)
    torch.testing.assert_close(new[:, :4], second.log_probs[:, :4])  # drawn now: a ratio of 1
    assert (new[0, 4:] - second.log_probs[0, 4:]).abs().max() > 0.05
    assert second.info == {"reuse/share": 6 / 18, "reuse/age": 7.0}


def test_what_could_not_be_judged_teaches_nothing_later():
    policy, prompts = policy_of(reuse=8), [prompt(1)]
    first = policy.sample(prompts, 4, seed=0)
    judged(policy, prompts, first, torch.tensor([[True, False, False, True]]))
    second = judged(policy, prompts, policy.sample(prompts, 4, seed=1))
    assert torch.equal(second.samples["chosen"][0, 4:], first.samples["chosen"][0, [0, 3]])
    third = judged(policy, prompts, policy.sample(prompts, 4, seed=2))  # what came back is not kept twice
    assert torch.equal(third.samples["chosen"][0, 6:], second.samples["chosen"][0, :4])
    assert third.shape[1] == 4 + 2 + 4


def test_corrected_old_draws_estimate_the_present_policys_reward():
    policy, prompts = policy_of(reuse=4000), [prompt(3)]
    every = list(itertools.permutations(range(4), 2))
    reward = {pair: float(i % 5) for i, pair in enumerate(every)}
    mean = lambda: sum(  # noqa: E731
        torch.tensor(policy.log_probs_of(prompts, [every])[0]).exp() * torch.tensor([reward[a] for a in every])
    ).item()
    before = mean()
    judged(policy, prompts, policy.sample(prompts, 4000, seed=0))
    moved(policy, 0.1)
    now = mean()
    rollout = judged(policy, prompts, policy.sample(prompts, 1, seed=1))
    old = slice(1, None)
    rows = tree_map(lambda x: x[0, old], rollout.samples)
    behaviour, mask = rollout.log_probs[0, old], rollout.mask[0, old]
    present = policy.evaluate(rows, ALL).log_probs.detach()
    made = importance_correction(present, behaviour, mask, cap=1e6, level="sequence")
    rewards = torch.tensor([reward[tuple(a)] for a in rows["chosen"].tolist()]).to(present)
    terms = made.weights[:, 0] * rewards
    error = terms.std().item() / len(terms) ** 0.5
    assert terms.mean().item() == pytest.approx(now, abs=4 * error)
    raw = rewards.std().item() / len(rewards) ** 0.5
    assert rewards.mean().item() == pytest.approx(before, abs=4 * raw)  # uncorrected they say what was
    assert abs(rewards.mean().item() - now) > 4 * raw


RECIPE = """
seed = 3
[policy]
kind = "selector"
features = 6
width = 16
reuse = 4
[task]
kind = "python"
function = "own.py:Own"
[algorithm]
prompts_per_step = 3
group_size = 4
importance = "truncate"
importance_level = "sequence"
[training]
steps = 8
checkpoint_every = 1
"""
OWN = """
import torch
from anygrpo.core.task import Scores, Task

class Own(Task):
    size = 5
    def __init__(self, seed):
        self.seed = seed
    def prompts(self, step, count):
        made = []
        for i in range(count):
            g = torch.Generator().manual_seed((step * count + i) % self.size)
            query, candidates = torch.randn(6, generator=g), torch.randn(5, 6, generator=g)
            made.append({"id": str(i), "query": query, "candidates": candidates})
        return made
    def held_out(self):
        return []
    def score(self, prompts, outputs):
        return Scores(torch.tensor([[float(a[0] == 1) + .5 * (a[1] == 2) for a in row] for row in outputs]))
"""


def recipe_of(folder, *flags):
    (folder / "own.py").write_text(OWN)
    (folder / "r.toml").write_text(RECIPE.replace("own.py", str(folder / "own.py")))
    return load_recipe(folder / "r.toml", ["--folder", str(folder / "run"), *flags])


def weights(run):
    return [p.detach().clone() for p in run.policy.parameters()]


def test_a_run_that_reuses_resumes_exactly(tmp_path):
    run = new_run(recipe_of(tmp_path))
    train(run)
    whole = weights(run)
    run.close()
    state = checkpoint.load(checkpoint.newest(tmp_path / "run" / "checkpoints"))[1]
    assert len(state["policy"]["earlier"]) == 5
    assert all(len(draws) == 4 for _, draws in state["policy"]["earlier"])

    (tmp_path / "b").mkdir()
    cut_after(new_run(recipe_of(tmp_path / "b")), 4)
    again = resumed_run(tmp_path / "b" / "run")
    assert 0 < again.step < 8
    train(again)
    for a, b in zip(whole, weights(again), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    again.close()


def test_only_fresh_draws_are_scored(tmp_path):
    run = new_run(recipe_of(tmp_path))
    task = run.stages[0].task
    scored, score = [], task.score
    task.score = lambda prompts, outputs: scored.append([len(row) for row in outputs]) or score(prompts, outputs)
    train(run)
    run.close()
    assert scored == [[4, 4, 4]] * 8
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().split("\n")[:-1]
    shares = [json.loads(line)["reuse/share"] for line in lines]
    assert shares[0] == 0.0
    assert min(shares[2:]) > 0.4


def test_another_stage_begins_without_what_was_rewarded_otherwise():
    policy, prompts = policy_of(reuse=3), [prompt(1)]
    judged(policy, prompts, policy.sample(prompts, 4, seed=0))
    policy.new_stage()
    assert judged(policy, prompts, policy.sample(prompts, 4, seed=1)).shape == (1, 4, 2)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--algorithm.group_size", "auto", "--algorithm.samples_per_step", "12"], "auto"),
        (["--algorithm.advantage", "history", "--algorithm.history_size", "16"], "history"),
    ],
)
def test_where_groups_are_counted_it_is_refused_before_the_first_step(tmp_path, flags, why):
    with pytest.raises(ConfigError, match=f"reuse = 4.*{why}"):
        new_run(recipe_of(tmp_path, *flags))


def test_where_prompts_never_come_back_or_samples_are_copied_it_is_refused(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="reuse"):
        policy_of(reuse=2).check_copied()
    recipe = recipe_of(tmp_path)
    (tmp_path / "own.py").write_text(OWN.replace("size = 5", "size = 0").replace("% self.size", "% 5"))
    with pytest.raises(ConfigError, match="never come back"):
        new_run(recipe)
    (tmp_path / "b").mkdir()
    monkeypatch.setattr("anygrpo.train.build.world_size", lambda: 2)
    with pytest.raises(ConfigError, match="on 2 ranks"):
        new_run(recipe_of(tmp_path / "b"))


def test_none_is_what_it_was():
    plain, prompts = policy_of(), [prompt(1)]
    assert plain.carried() == {}
    judged(plain, prompts, plain.sample(prompts, 4, seed=0))
    assert judged(plain, prompts, plain.sample(prompts, 4, seed=1)).shape == (1, 4, 2)
    assert plain.replay(prompts, Stored([[(0, 1)]]), 0).shape == (1, 1, 2)
