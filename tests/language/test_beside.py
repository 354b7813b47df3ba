"""A language model's second sampler: the same samples, weights of its own, a change of weights between two tokens."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest
import tiny_lm
import torch
from runs import run_of

from anygrpo.core.trained import state_of
from anygrpo.core.turnstile import Stopped, Turnstile
from anygrpo.errors import ConfigError
from anygrpo.recipe.load import parse_recipe
from anygrpo.train.build import new_run
from anygrpo.train.folder import read_rows
from anygrpo.train.loop import train

sys.path.insert(0, str(Path(__file__).parent))
PROMPTS = [{"prompt": "w1 w2 w3"}]


def made(**options):
    policy = tiny_lm.policy(0, **options)
    policy.corrects = True
    with torch.no_grad():
        return policy, policy.copied(PROMPTS)


def moved(policy, by=0.05):
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(by * torch.randn(p.shape, generator=generator))


@pytest.mark.parametrize(
    "options", [{"train": "all"}, {"train": "lora"}, {"train": "all", "dtype": "bfloat16"}], ids=str
)
def test_it_samples_the_same_and_keeps_its_weights_until_it_follows(options):
    policy, second = made(**options)
    draw = lambda one: one.sample(PROMPTS, 4, seed=3)  # noqa: E731
    first = draw(policy)
    assert torch.equal(draw(second).samples["completion_ids"], first.samples["completion_ids"])
    moved(policy)
    changed, kept = draw(policy), draw(second)
    assert torch.equal(kept.log_probs, draw(second).log_probs)
    assert torch.equal(kept.samples["completion_ids"], first.samples["completion_ids"])
    assert not torch.equal(changed.log_probs, first.log_probs)
    second.follow(policy)
    now = draw(second)
    assert torch.equal(now.samples["completion_ids"], changed.samples["completion_ids"])
    torch.testing.assert_close(now.log_probs, changed.log_probs, rtol=0, atol=1e-3)


class Changes(Turnstile):
    """New weights after a given token."""

    def __init__(self, policy, second, after):
        super().__init__()
        self.policy, self.second, self.left = policy, second, after

    def give_way(self):
        super().give_way()
        if self.left == 0:
            moved(self.policy)
            self.second.follow(self.policy)
            self.second.version = 7
        self.left -= 1


@pytest.mark.parametrize("train_what", ["all", "lora"])
def test_weights_change_between_two_tokens_and_each_token_says_which_drew_it(train_what):
    policy, second = made(train=train_what, min_new_tokens=6)
    old = {name: p.clone() for name, p in state_of(policy.trainable()).items()}
    second.version, after = 4, 3
    second.turnstile = Changes(policy, second, after)
    with second.turnstile.inside(0), torch.no_grad():
        rollout = second.sample(PROMPTS, 3, seed=3)
    assert rollout.version[0].tolist() == [[4] * after + [7] * (6 - after)] * 3
    rows = {name: x.flatten(0, 1) for name, x in rollout.samples.items()}
    by_new = policy.rescore(rows).view_as(rollout.log_probs)
    new = {name: p.clone() for name, p in state_of(policy.trainable()).items()}
    put(policy, old)
    by_old = policy.rescore(rows).view_as(rollout.log_probs)
    torch.testing.assert_close(rollout.log_probs[..., :after], by_old[..., :after], rtol=0, atol=1e-4)
    assert (rollout.log_probs - by_new)[..., :after].abs().max() > 1e-3
    assert (rollout.log_probs - by_old)[..., after:].abs().max() > 1e-3
    if train_what == "all":
        torch.testing.assert_close(rollout.log_probs[0], by_hand(policy, rows, old, new, after), rtol=0, atol=1e-4)


def put(policy, weights):
    with torch.no_grad():
        for name, p in state_of(policy.trainable()).items():
            p.copy_(weights[name])


def by_hand(policy, rows, old, new, after):
    """[G, T] with the library's own model: keys and values of the old weights, then the new ones."""
    from transformers import DynamicCache

    model = policy.weights.base
    length = int(rows["prompt_lengths"][0])
    ids = torch.cat([rows["prompt_ids"][:, :length], rows["completion_ids"]], 1)
    cut = length + after - 1  # the token that the new weights are fed first
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        put(policy, old)
        first = model(ids[:, :cut], past_key_values=cache, use_cache=True).logits
        put(policy, new)
        second = model(ids[:, cut:-1], past_key_values=cache, use_cache=True).logits
    logits = torch.cat([first, second], 1)[:, length - 1 :] / policy.temperature
    logits[..., list(policy.prompts.ends)] = -torch.inf  # min_new_tokens
    return logits.log_softmax(-1).gather(-1, rows["completion_ids"][..., None])[..., 0]


def test_a_stopped_sampler_ends_between_two_tokens():
    _, second = made(min_new_tokens=6)
    second.turnstile = Turnstile()

    def stopped():
        with second.turnstile.inside(0), torch.no_grad():
            second.turnstile.stop()
            second.sample(PROMPTS, 2, seed=1)

    with pytest.raises(Stopped):
        stopped()


def test_a_sampler_that_needs_correction_is_refused_without_it():
    policy = tiny_lm.policy(0)
    policy.trust_sampler, policy.parity = False, 0.3
    with pytest.raises(ConfigError, match=r"differ by 0\.3 nats"):
        policy.copied(PROMPTS)
    policy.corrects = True
    assert policy.copied(PROMPTS) is not policy


def test_an_engine_elsewhere_is_refused_by_name():
    policy = tiny_lm.policy(0)
    policy.engine = object()
    with pytest.raises(ConfigError, match="built-in engine on a CPU"):
        policy.check_copied()


@pytest.mark.parametrize("train_what", ["all", "lora"])
def test_a_run_samples_beside_its_updates(tmp_path, train_what):
    policy = {"kind": "python", "function": f"{tiny_lm.__file__}:policy", "arguments": {"train": train_what}}
    run = run_of(
        tmp_path / "run",
        policy=policy,
        task={"kind": "python", "function": f"{tiny_lm.__file__}:Even"},
        algorithm={"prompts_per_step": 3, "group_size": 4, "importance": "truncate"},
        training={"steps": 6, "checkpoint_every": 3, "max_staleness": 2},
        optimizer={"learning_rate": 0.02},
        evaluation={"every": 2},
    )
    train(run)
    run.close()
    rows = [row for row in read_rows(run.folder.metrics)[0] if row["step"] >= 0]
    assert rows[0]["kl/rollout"] == pytest.approx(0, abs=1e-5)
    assert all(row["staleness/max"] <= 2 for row in rows)
    assert max(row["staleness/max"] for row in rows) > 0
    assert not [t for t in threading.enumerate() if t.name.startswith("sampler")]


ENVIRONMENT = """
import pathlib, time
def reply(messages, row):
    if row["slow"]:
        end = time.monotonic() + 60
        while not pathlib.Path(row["go"]).exists() and time.monotonic() < end:
            time.sleep(0.01)
    return "go on"
def reward(output, **columns):
    return float(len(output))
"""


def test_a_slow_environment_holds_up_its_own_group_alone(tmp_path):
    """Three steps of six prompts, one of which waits until the second step is over."""
    from talking import model, tokenizer

    (tmp_path / "code.py").write_text(ENVIRONMENT)
    rows = [{"prompt": f"say {i}", "slow": i == 0, "go": str(tmp_path / "go")} for i in range(8)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    model().save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    recipe = {
        "folder": str(tmp_path / "run"),
        "policy": {
            "kind": "causal_lm", "model": str(tmp_path / "model"), "train": "all", "device": "cpu", "threads": 1,
            "dtype": "float32", "max_new_tokens": 24, "max_turns": 2, "environment": f"{tmp_path}/code.py:reply",
            "eos": list(range(20, 60)),
        },
        "task": {
            "kind": "jsonl", "path": str(tmp_path / "data.jsonl"), "held_out_share": 0.25, "workers": 1,
            "rewards": [{"kind": "function", "function": f"{tmp_path}/code.py:reward"}],
        },
        "algorithm": {"prompts_per_step": 2, "group_size": 2, "importance": "truncate"},
        "training": {"steps": 3, "max_staleness": 3, "gradient_norms_every": 0, "samples_every": 1},
        "doctor": {"mode": "off"},
    }  # fmt: skip
    run = new_run(parse_recipe(recipe))
    run.observers.append(lambda row, _: (tmp_path / "go").touch() if row["step"] == 1 else None)
    train(run)
    run.close()
    steps = [row for row in read_rows(run.folder.metrics)[0] if row["step"] >= 0]
    assert all(row["time/step"] < 50 for row in steps)
    shown = [
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in sorted((tmp_path / "run" / "samples").glob("*.jsonl"))
    ]
    asked = [[row["prompt"] for row in step] for step in shown]
    assert "say 0" in asked[2]  # the last to be finished
    assert all("conversations" in row for step in shown for row in step)
