"""The load-balancing loss of routers: by hand, the library's own number, its gradient, and that any split gives it."""

from __future__ import annotations

import architectures
import pytest
import torch
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from anygrpo.errors import ConfigError
from anygrpo.language.build import from_model
from anygrpo.language.metrics import METRICS
from anygrpo.language.routers import Routers
from anygrpo.language.settings import CausalLMConfig

PROMPTS = [{"prompt": " ".join(f"w{7 * i + 3 * n}" for i in range(n))} for n in (7, 5)]


def policy_of(kind, train="lora", **settings):
    model = architectures.tiny_model(kind)
    config = CausalLMConfig(
        kind="causal_lm", model="none", train=train, max_new_tokens=6, dtype="float32", device="cpu", threads=1,
        **{"router_loss": 0.5} | settings,
    )  # fmt: skip
    return from_model(model, architectures.tokenizer(), config, seed=1)


def sampled(policy):
    rollout = policy.sample(PROMPTS, 2, seed=3)
    return {name: x.flatten(0, 1) for name, x in rollout.samples.items()}, slice(0, rollout.shape[2])


def test_by_hand():
    """Two experts, one chosen: at probabilities (3/4, 1/4) twice, 2 (1 x 3/4) = 1.5; once each way 1."""
    routers = object.__new__(Routers)
    routers.count, routers.chosen = 1, 1
    three = torch.tensor([3.0, 1.0]).log()
    said = torch.stack([three, three, three, three.flip(0)])
    assert routers.loss(said, torch.tensor([0, 0, 2, 2]), 3).tolist() == pytest.approx([1.5, 0.0, 1.0])


def test_a_row_of_few_tokens_lies_above_equal_use():
    """The same balanced routers: over both tokens 1, the experts chosen; over one alone 2 (1 x 3/4)."""
    routers = object.__new__(Routers)
    routers.count, routers.chosen = 1, 1
    three = torch.tensor([3.0, 1.0]).log()
    said = torch.stack([three, three.flip(0)])
    assert routers.loss(said, torch.tensor([0, 1]), 2).tolist() == pytest.approx([1.5, 1.5])
    assert routers.loss(said, torch.tensor([0, 0]), 1).tolist() == pytest.approx([1.0])
    (metric,) = (one for one in METRICS if one.name == "loss/router")
    assert "above it for rows of few tokens" in metric.normal.en


@pytest.mark.parametrize("kind", ["mixtral", "qwen3_moe", "gpt_oss"])  # gpt_oss: rows computed whole
@pytest.mark.parametrize("train", ["lora", "all"])
def test_it_is_the_librarys_loss_over_a_rows_own_decisions(kind, train):
    policy = policy_of(kind, train)
    samples, times = sampled(policy)
    made = policy.evaluate(samples, times).losses["router"]
    model, config = policy.weights.training_model(), policy.weights.training_model().config
    experts = next(n for name in ("num_local_experts", "num_experts") if (n := getattr(config, name, None)))
    for i, (a, c) in enumerate(zip(samples["prompt_lengths"].tolist(), samples["completion_lengths"].tolist())):
        ids = torch.cat([samples["prompt_ids"][i][:a], samples["completion_ids"][i][:c]])[None]
        with torch.no_grad():
            said = model(input_ids=ids, output_router_logits=True, use_cache=False).router_logits
        own = [layer[a - 1 : a - 1 + c] for layer in said]
        wanted = [load_balancing_loss_func((x,), experts, config.num_experts_per_tok) for x in own]
        assert float(made[i].detach()) == pytest.approx(0.5 * float(sum(wanted)) / len(wanted), rel=1e-4)


def test_its_gradient_reaches_the_routers_and_any_split_gives_it():
    policy = policy_of("qwen3_moe", "all")
    samples, times = sampled(policy)
    names = [n for n, p in policy.trainable().named_parameters() if p.requires_grad]

    def gradient(parts):
        policy.trainable().zero_grad()
        for rows in parts:
            policy.evaluate({k: x[rows] for k, x in samples.items()}, times).losses["router"].sum().backward()
        made = dict(policy.trainable().named_parameters())
        return {n: made[n].grad.clone() for n in names if made[n].grad is not None}

    whole, split = gradient([[0, 1, 2, 3]]), gradient([[0, 3], [2], [1]])
    gates = [n for n in whole if n.endswith("gate.weight")]
    assert gates
    assert all(float(whole[n].abs().max()) > 1e-4 for n in gates)
    for name, value in whole.items():
        torch.testing.assert_close(split[name], value, rtol=1e-4, atol=1e-6)


def test_log_probs_are_the_same_with_it():
    with_loss, without = policy_of("qwen3_moe"), policy_of("qwen3_moe", router_loss=0.0)
    samples, times = sampled(with_loss)
    a, b = with_loss.evaluate(samples, times), without.evaluate(samples, times)
    torch.testing.assert_close(a.log_probs, b.log_probs)
    assert b.losses == {}


def test_a_model_without_such_a_loss_is_refused():
    for kind in ("llama", "deepseek_v3"):
        with pytest.raises(ConfigError, match="the library has no such loss for"):
            policy_of(kind)


def test_a_run_balances_its_routers_where_rewards_teach_nothing(tmp_path):
    """All rewards are the same: whatever the weights do is the routers' loss."""
    from anygrpo.recipe.load import parse_recipe
    from anygrpo.train.build import new_run
    from anygrpo.train.folder import read_rows
    from anygrpo.train.loop import train

    (tmp_path / "rewards.py").write_text("def same(prompts, outputs): return [1.0] * len(outputs)\n")
    (tmp_path / "data.jsonl").write_text("".join(f'{{"prompt": "w{i} w{2 * i}"}}\n' for i in range(24)))
    model = architectures.saved("qwen3_moe", tmp_path / "model", architectures.tokenizer())
    policy = {"kind": "causal_lm", "model": model, "train": "all", "max_new_tokens": 8, "dtype": "float32"}
    recipe = {
        "folder": str(tmp_path / "run"), "policy": policy | {"router_loss": 1.0, "threads": 1, "device": "cpu"},
        "task": {"kind": "data", "path": str(tmp_path / "data.jsonl"), "answer_column": "none",
                 "rewards": [f"{tmp_path}/rewards.py:same"]},
        "algorithm": {"prompts_per_step": 4, "group_size": 4, "filters": []}, "optimizer": {"learning_rate": 0.03},
        "training": {"steps": 12, "gradient_norms_every": 1}, "doctor": {"mode": "off"},
    }  # fmt: skip
    run = new_run(parse_recipe(recipe))
    train(run)
    run.close()
    rows, _ = read_rows(tmp_path / "run" / "metrics.jsonl")
    losses = [row["loss/router"] for row in rows if "loss/router" in row]
    assert len(losses) == 12
    above = [x - 2.0 for x in losses]  # two experts of four a token: 2 at equal use
    assert sum(above[-3:]) < 0.8 * sum(above[:3])
    assert all(row["grad_norm/router"] > 0 for row in rows if "loss/router" in row)
