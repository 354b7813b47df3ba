"""What is chosen for speed: sizes of blocks by trials (here made up), rows by their bytes; and that a run keeps it."""

import json

import pytest
import tiny
import torch

from anygrpo.language import dials
from anygrpo.language.compute.capability import Ability
from anygrpo.language.dials import Block, choose


def trials(seconds, fixed=1000, each=10, per_group=256):
    """A trial whose passes take `seconds[groups]` and `fixed` + `each` a token bytes; and what it was asked for."""
    asked = []

    def trial(count):
        asked.append(count)
        return Block(count * per_group, seconds[count], fixed + each * count * per_group)

    return trial, asked


def test_a_block_grows_while_that_pays():
    """A token's time: .08, .05, .04, .0395 (1.25% less: not worth twice the memory)."""
    trial, asked = trials({1: 0.08, 2: 0.10, 4: 0.16, 8: 0.316})
    made = choose(8, trial, room=10**9, most=4096)
    assert asked == [1, 2, 4, 8]
    assert made.tokens == 1024
    assert len(made.trials) == 4


def test_a_whole_step_in_one_block_leaves_room_for_longer_answers():
    trial, asked = trials({1: 0.08, 2: 0.10, 3: 0.12})
    made = choose(3, trial, room=10**9, most=5000)
    assert asked == [1, 2, 3]
    assert made.tokens == 5120  # what a step can have, in multiples of 256
    bound = choose(3, trials({1: 0.08, 2: 0.10, 3: 0.12})[0], room=1000 + 10 * 1500, most=5000)
    assert bound.tokens == 1536  # what the memory holds: 1,500 tokens, rounded up


def test_a_size_that_does_not_fit_is_not_tried():
    trial, asked = trials({1: 0.08, 2: 0.08, 4: 0.08, 8: 0.08})
    made = choose(8, trial, room=1000 + 10 * 700, most=4096)
    assert asked == [1, 2]  # four groups would take 1000 + 10 * 1024
    assert made.tokens == 512
    trial, asked = trials({1: 0.08})
    assert choose(8, trial, room=3600, most=4096).tokens == 256
    assert asked == [1]


def test_one_group_takes_what_a_step_can_have():
    assert choose(1, trials({1: 1.0})[0], room=10**9, most=700).tokens == 768


def test_rows_that_fit_by_hand():
    """A token: 2 x 2 layers x 2 heads x 8 x 4 bytes = 256; a row: 256 (2 x 10 + 4 x 8 / 4) + 16 x 64 = 8,192."""
    config = tiny.CONFIGS["llama"]
    assert dials.rows_that_fit(config, torch.float32, 8, 10, 4, 8192 * 9) == 8  # whole groups
    assert dials.rows_that_fit(config, torch.float32, 8, 10, 4, 100) == 4  # one at least
    assert dials.rows_that_fit(object(), torch.float32, 8, 10, 4, 10**6) is None


class OnGpu:
    """As much of a GPU as the choice asks for."""

    def __init__(self, monkeypatch, policy):
        self.policy, self.passes = policy, []
        monkeypatch.setattr(dials, "_tries", lambda policy: True)
        monkeypatch.setattr(dials, "free_bytes", lambda: 10**9)
        monkeypatch.setattr(dials, "_passed", self.passed)

    def passed(self, policy, rows):
        count = len(rows["completion_ids"])
        self.passes.append(count)
        return 1.0 + count / 100, 1000 * count


def test_a_run_keeps_what_its_policy_chose_and_a_resumed_one_takes_it(tmp_path, monkeypatch, capsys):
    from anygrpo.core.task import Scores, Task
    from anygrpo.language.build import from_model
    from anygrpo.language.settings import CausalLMConfig
    from anygrpo.recipe.load import parse_recipe
    from anygrpo.train.build import new_run, resumed_run
    from anygrpo.train.loop import train

    class Even(Task):
        def prompts(self, step, count):
            return [{"prompt": f"w{i} w7"} for i in range(count)]

        def held_out(self):
            return []

        def score(self, prompts, outputs):
            return Scores(torch.tensor([[float(len(text) % 5) for text in row] for row in outputs]))

    table = {"kind": "causal_lm", "model": "memory", "train": "all", "max_new_tokens": 6, "chat_template": False}
    recipe = {
        "policy": table,
        "task": {"kind": "object", "name": "even"},
        "algorithm": {"prompts_per_step": 4, "group_size": 3},
        "training": {"steps": 2, "checkpoint_every": 1},
        "folder": str(tmp_path / "run"),
    }
    make = lambda: from_model(tiny.model(), tiny.tokenizer(), CausalLMConfig.model_validate(table))  # noqa: E731
    policy = make()
    gpu = OnGpu(monkeypatch, policy)
    run = new_run(parse_recipe(recipe), policy, Even())
    train(run)
    run.close()
    held = json.loads((tmp_path / "run" / "speed.json").read_text())
    assert held["token_budget"] == policy.speed["token_budget"] == 256
    assert len(gpu.passes) >= 2
    assert "speed: blocks of 256 tokens" in capsys.readouterr().err
    assert "speed: blocks of 256 tokens" in (tmp_path / "run" / "log.txt").read_text()
    (tmp_path / "run" / "speed.json").write_text(json.dumps(held | {"token_budget": 11}))
    again = make()
    resumed = resumed_run(tmp_path / "run", ["--training.steps", "3"], again, Even())
    gpu.passes.clear()
    train(resumed)
    resumed.close()
    assert again.speed["token_budget"] == 11
    assert gpu.passes == []  # nothing is tried again


@pytest.mark.parametrize(("budget", "blocks"), [("auto", 1), (12, 3)])
def test_the_budget_decides_the_blocks(budget, blocks):
    from anygrpo.language.build import from_model
    from anygrpo.language.settings import CausalLMConfig

    table = {"kind": "causal_lm", "model": "memory", "train": "all", "max_new_tokens": 4, "token_budget": budget}
    policy = from_model(tiny.model(), tiny.tokenizer(), CausalLMConfig.model_validate(table | {"chat_template": False}))
    policy.prompts.ends = ()
    rollout = policy.sample([{"prompt": f"w{i} w5"} for i in range(3)], 2, seed=0)
    rows = {name: x.flatten(0, 1) for name, x in rollout.samples.items()}
    assert len(policy.plan(rows, 32)) == blocks
    policy.speed = {"token_budget": 10}
    assert len(policy.plan(rows, 32)) == (3 if budget == "auto" else blocks)
    for odd in ("x", -1, 0, 1.5, None, [2], True):  # a file of the run's folder may hold anything
        policy.speed = {"token_budget": odd}
        assert len(policy.plan(rows, 32)) == blocks


@pytest.mark.parametrize("shared", [True, False])
def test_a_chosen_budget_holds_as_answers_grow_behind_an_opening(shared, monkeypatch):
    """A byte for each token computed, and each row's last, whose log-prob is; 700 fit. Answers grow from 4 to 40."""
    from test_causal_lm import opened, policy

    p = policy(max_new_tokens=40)
    if not shared:
        p.scorer.ability = Ability(False)
    passes = []
    p.weights.training_model().get_input_embeddings().register_forward_hook(
        lambda module, given, out: passes.append(given[0].numel())
    )

    def passed(policy, rows):
        passes.clear()
        with torch.no_grad():
            policy.evaluate(rows, slice(None))
        computed = passes[0] + len(rows["group"])
        return 1 + computed * 1e-3, computed

    monkeypatch.setattr(dials, "_passed", passed)
    monkeypatch.setattr(dials, "SPARE", 1.0)
    monkeypatch.setattr(dials, "STEP", 1)
    monkeypatch.setattr(dials, "free_bytes", lambda: 700)
    choice, _ = dials.settle_blocks(p, opened(16, 2, opening=60, own=3, completion=4), 0)
    # 60 + n (3 + 2 x 4) of n groups; where each row is computed alone, 2 n (60 + 3 + 4).
    assert [b.tokens for b in choice.trials] == ([71, 82, 104, 148, 236] if shared else [134, 268, 536])
    assert all(b.tokens == b.peak for b in choice.trials)
    for length in (4, 12, 40):
        rows = opened(16, 2, 60, 3, length)
        for part in p.scorer.plan(rows, 99, choice.tokens):
            assert passed(p, {name: x[part] for name, x in rows.items()})[1] <= 700


def test_on_a_cpu_nothing_is_tried():
    from anygrpo.language.build import from_model
    from anygrpo.language.settings import CausalLMConfig

    table = {"kind": "causal_lm", "model": "memory", "train": "all", "chat_template": False}
    policy = from_model(tiny.model(), tiny.tokenizer(), CausalLMConfig.model_validate(table))
    assert policy.settle({}, 0) == ""
    assert policy.speed == {}
    assert policy.block_rows == 32
