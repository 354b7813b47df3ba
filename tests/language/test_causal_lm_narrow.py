"""Bfloat16 casts of float32 weights: shared with the sampler, made again when weights change, gradients exact."""

import pytest
import tiny
import torch

from anygrpo.core.tree import tree_map
from anygrpo.language import build as causal_lm
from anygrpo.language.compute import narrow
from anygrpo.language.engine.builtin import BuiltinEngine
from anygrpo.language.settings import CausalLMConfig
from anygrpo.recipe.training import OptimizerConfig
from anygrpo.train.update import Updater

PROMPTS = [{"prompt": "w1 w5 w9 w3"}, {"prompt": "w7 w2 w2 w40 w11 w12"}]


def policy(**given) -> causal_lm.CausalLM:
    given = {"train": "all", "max_new_tokens": 8, "dtype": "bfloat16", "device": "cpu", "threads": 1} | given
    config = CausalLMConfig(kind="causal_lm", model="memory", **given)
    return causal_lm.from_model(tiny.model("llama", scale=4.0), tiny.tokenizer(), config, seed=3)


def scored(p, rollout, want=frozenset()):
    rows = tree_map(lambda x: x.flatten(0, 1), rollout.samples)
    return p.evaluate(rows, slice(0, rollout.shape[2]), want)


def gradient(p, rollout, want=frozenset()):
    made = scored(p, rollout, want)
    loss = made.log_probs.sum() + (0 if made.kl is None else made.kl.sum())
    return torch.autograd.grad(loss, p.parameters())


def moved(p, size=0.2):
    torch.manual_seed(5)
    with torch.no_grad():
        for q in p.parameters():
            q.add_(size * torch.randn_like(q))


def data_of(model):
    return {name: q.data_ptr() for name, q in model.named_parameters(remove_duplicate=False)}


@pytest.mark.parametrize("train", ["all", "last_n"])
def test_the_sampler_has_no_memory_of_its_own(train):
    p = policy(train=train)
    before = data_of(p.weights.sampler)
    p.sample(PROMPTS, 2, seed=0)
    moved(p)
    p.sample(PROMPTS, 2, seed=0)
    casts = p.weights.training_model()
    assert data_of(p.weights.sampler) == before == {n: x.data_ptr() for n, x in weights_of(casts).items()}
    masters = dict(p.trainable().named_parameters(remove_duplicate=False))
    assert all(torch.equal(x, masters[n].bfloat16()) for n, x in weights_of(p.weights.sampler).items())


def weights_of(model):
    """By name, bound casts included, which are no `nn.Parameter`s."""
    found = {}
    for path, module in model.named_modules():
        found |= {f"{path}.{leaf}".lstrip("."): x for leaf, x in module._parameters.items() if x is not None}
    return found


def test_casts_are_made_again_only_where_weights_have_changed(monkeypatch):
    p, made = policy(), []
    refresh = narrow.Casts.refresh
    monkeypatch.setattr(narrow.Casts, "refresh", lambda self: made.append(1) or refresh(self))
    r = p.sample(PROMPTS, 2, seed=0)
    made.clear()
    for _ in range(3):
        first = scored(p, r).log_probs
    assert not made
    torch.optim.AdamW(p.parameters(), lr=0.1).step()  # no gradients: nothing moves
    assert not made
    first.sum().backward()
    torch.optim.AdamW(p.parameters(), lr=0.1).step()
    second = scored(p, r).log_probs
    assert made == [1]
    assert (first - second).abs().max() > 0.05


@pytest.mark.parametrize("train", ["all", "lora"])
def test_a_change_that_torch_does_not_count_is_seen_by_the_next_sample(train):
    p = policy(train=train)
    moved(p)
    before = p.sample(PROMPTS, 2, seed=0)
    first = scored(p, before).log_probs.detach()
    for q in p.parameters():
        q.data.mul_(1.5)
    after = p.sample(PROMPTS, 2, seed=0)
    assert not torch.equal(before.log_probs, after.log_probs)
    assert (scored(p, before).log_probs - first).abs().max() > 0.05


@pytest.mark.parametrize("chunk", [1, 2**26])
def test_gradients_are_those_of_casts_inside_the_graph(monkeypatch, chunk):
    monkeypatch.setattr(narrow, "CHUNK", chunk)
    p = policy()
    r = p.sample(PROMPTS, 2, seed=0)
    ours = gradient(p, r)
    inside = {n: q.bfloat16() for n, q in p.trainable().named_parameters(remove_duplicate=False)}
    cast = {id(q): q.bfloat16() for q in p.parameters()}
    for name, q in p.trainable().named_parameters(remove_duplicate=False):
        inside[name] = cast[id(q)]
    model = p.weights.training_model()
    for name, value in inside.items():
        narrow.bind(model, name, value)
    p.weights.training_model = lambda: model
    for mine, theirs in zip(ours, gradient(p, r), strict=True):
        assert torch.equal(mine, theirs)


def test_computing_again_in_backward_uses_the_policy_and_not_the_reference():
    """The exact KL runs the reference between a checkpointed forward and its backward."""
    plain, again = policy(), policy(gradient_checkpointing=True)
    r = plain.sample(PROMPTS, 2, seed=0)
    for p in (plain, again):
        moved(p)
    want = frozenset({"kl"})
    assert scored(plain, r, want).kl.max() > 0.05
    for mine, theirs in zip(gradient(again, r, want), gradient(plain, r, want), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-2 * float(theirs.abs().max()))


def test_inside_the_reference_its_weights_sample_and_afterwards_the_policys():
    p = policy()
    first = p.sample(PROMPTS, 2, seed=0)
    moved(p)
    present = p.sample(PROMPTS, 2, seed=0)
    with p.reference():
        torch.testing.assert_close(p.sample(PROMPTS, 2, seed=0).log_probs, first.log_probs, rtol=0, atol=0)
    torch.testing.assert_close(p.sample(PROMPTS, 2, seed=0).log_probs, present.log_probs, rtol=0, atol=0)
    r = p.sample(PROMPTS, 2, seed=1)
    torch.testing.assert_close(scored(p, r).log_probs.view_as(r.log_probs), r.log_probs, rtol=0, atol=2e-2)


def test_a_held_sampler_keeps_casts_of_its_own(monkeypatch):
    monkeypatch.setattr(BuiltinEngine, "apart", True)
    p = policy()
    first = p.sample(PROMPTS, 2, seed=0)
    p.trust_sampler = True
    assert p.hold_sampler()
    rows, before = first.samples, p.sample(PROMPTS, 2, seed=0)
    moved(p)
    scored(p, first)  # brings the training pass's casts up to date
    held = p.sample(PROMPTS, 2, seed=0)
    assert torch.equal(held.log_probs, before.log_probs)
    assert torch.equal(held.samples["completion_ids"], rows["completion_ids"])
    p.release_sampler()
    assert not torch.equal(p.sample(PROMPTS, 2, seed=0).log_probs, before.log_probs)


def test_a_graph_that_has_lost_its_casts_says_so():
    """Casts are overwritten in place: an older graph is refused by torch, never silently wrong."""
    p = policy()
    r = p.sample(PROMPTS, 2, seed=0)
    old = scored(p, r).log_probs.sum()
    moved(p)
    scored(p, r)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        old.backward()


@pytest.mark.parametrize("train", ["all", "lora"])
def test_the_training_pass_follows_the_optimizers_own_step(train):
    """With nothing sampled in between, as in a supervised stage: a fused step is no change that torch counts."""
    p = policy(train=train)
    rollout = p.sample(PROMPTS, 2, seed=0)
    updater = Updater(p, OptimizerConfig())
    before = scored(p, rollout).log_probs.detach()
    assert any(group["fused"] for group in updater.optimizer.param_groups)
    for _ in range(2):
        (-scored(p, rollout).log_probs.sum()).backward()
        updater.step(0.05, False)
    assert (scored(p, rollout).log_probs - before).abs().max() > 0.05
