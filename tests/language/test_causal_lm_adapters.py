"""Adapters by one function a layer: PEFT's numbers in the type of the body; its own pass where the form is another."""

import pytest
import tiny
import torch
from torch import nn

from anygrpo.core.tree import tree_map
from anygrpo.language import build as causal_lm
from anygrpo.language.adapters import Adapters, adapter_layers
from anygrpo.language.settings import CausalLMConfig, LoraConfig

PROMPTS = [{"prompt": "w1 w5 w9 w3"}, {"prompt": "w7 w2 w2 w40 w11 w12"}]


def policy(kind="llama", **given) -> causal_lm.CausalLM:
    given = {"train": "lora", "max_new_tokens": 8, "dtype": "float32", "device": "cpu", "threads": 1} | given
    config = CausalLMConfig(kind="causal_lm", model="memory", **{"lora": LoraConfig(rank=3, alpha=5)} | given)
    p = causal_lm.from_model(tiny.model(kind, scale=4.0), tiny.tokenizer(), config, seed=3)
    torch.manual_seed(5)
    with torch.no_grad():
        for q in p.parameters():  # B begins at 0
            q.add_(0.1 * torch.randn_like(q))
    return p


def scored(p, rollout, want=frozenset()):
    rows = tree_map(lambda x: x.flatten(0, 1), rollout.samples)
    return p.evaluate(rows, slice(0, rollout.shape[2]), want)


def by_peft(p):
    """The same policy with PEFT's own passes."""
    p.weights._adapters.release()
    p.weights._adapters = None
    return p


def ours(p):
    return [layer for _, layer in adapter_layers(p.weights._core) if "forward" in vars(layer)]


def results(p, rollout, want=frozenset()):
    made = scored(p, rollout, want)
    loss = made.log_probs.sum() + (0.0 if made.kl is None else made.kl.sum())
    return [made.log_probs.detach(), *torch.autograd.grad(loss, p.parameters())]


def far(a, b):
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma"])
def test_float32_numbers_are_pefts(kind):
    p = policy(kind)
    assert len(ours(p)) == 7 * 2
    r = p.sample(PROMPTS, 2, seed=0)
    mine, theirs = results(p, r), results(by_peft(policy(kind)), r)
    assert ours(by_peft(policy(kind))) == []
    for a, b in zip(mine, theirs, strict=True):
        assert far(a, b) < 1e-5


def test_bfloat16_gradients_are_about_as_near_the_truth_as_pefts():
    r = policy().sample(PROMPTS, 4, seed=0)
    exact = results(by_peft(policy()), r)
    mine, theirs = (results(p, r) for p in (policy(dtype="bfloat16"), by_peft(policy(dtype="bfloat16"))))
    join = lambda made: torch.cat([x.flatten() for x in made[1:]])  # noqa: E731
    errors = [far(join(made), join(exact)) for made in (mine, theirs)]
    assert errors[0] < 0.1
    assert errors[0] < 1.5 * errors[1]
    assert all(x.dtype == torch.float32 for x in mine)


def test_nothing_wider_than_the_body_is_kept_of_a_layer():
    p = policy(dtype="bfloat16")
    r = p.sample(PROMPTS, 4, seed=0)
    layer = ours(p)[0]
    p.weights.training_model()
    x = torch.randn(5, layer.in_features).bfloat16().requires_grad_()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        layer(x)
    assert {t.dtype for t in kept} == {torch.bfloat16}
    assert (
        sum(t.numel() for t in kept)
        == x.numel() + layer.weight.numel() + 3 * (layer.in_features + layer.out_features) + 3 * 5
    )
    assert r.log_probs.isfinite().all()


def test_off_adapters_are_the_base_and_on_again_what_they_were():
    p = policy()
    r = p.sample(PROMPTS, 2, seed=0)
    before = scored(p, r).log_probs.detach()
    with p.reference():
        base = scored(p, r).log_probs.detach()
    fresh = causal_lm.from_model(tiny.model("llama", scale=4.0), tiny.tokenizer(), p.config, seed=3)
    torch.testing.assert_close(base, scored(fresh, r).log_probs.detach())
    assert (base - before).abs().max() > 0.05
    assert torch.equal(scored(p, r).log_probs, before)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_computing_again_in_backward_with_the_reference_in_between(dtype):
    want = frozenset({"kl"})
    r = policy().sample(PROMPTS, 2, seed=0)
    mine, again = (results(policy(dtype=dtype, gradient_checkpointing=x), r, want) for x in (False, True))
    for a, b in zip(mine, again, strict=True):
        assert far(b, a) < 1e-2


@pytest.mark.parametrize("change", ["trained", "variant", "two", "kind"])
def test_other_forms_keep_pefts_pass(change):
    p = by_peft(policy())
    layer = dict(adapter_layers(p.weights._core))["model.layers.0.self_attn.q_proj"]
    if change == "trained":
        layer.base_layer.weight.requires_grad_(True)
    elif change == "variant":
        layer.lora_variant["default"] = object()
    elif change == "two":
        layer._active_adapter = ["default", "other"]
    else:
        layer.base_layer = type("Own", (nn.Linear,), {})(layer.in_features, layer.out_features, bias=False)
    Adapters(p.weights._core)
    assert layer not in ours(p)
    assert len(ours(p)) == 7 * 2 - 1


def test_a_model_of_other_layers_trains_by_peft_alone():
    p = policy("gpt2", lora=LoraConfig(rank=3, alpha=5, targets=("c_attn",)))
    assert not ours(p)
    assert any(g.abs().sum() > 0 for g in results(p, p.sample(PROMPTS, 2, seed=0))[1:])
