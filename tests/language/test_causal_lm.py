"""The language model as a policy: the record it fills, weights, log-probs, and the faults others have had."""

import json

import pytest
import tiny
import torch
from runs import TOYS, run_of

from anygrpo.core.policy import Policy
from anygrpo.core.task import Stored
from anygrpo.core.tree import tree_map
from anygrpo.errors import ConfigError, DataError
from anygrpo.language import build as causal_lm
from anygrpo.language.compute.capability import Ability
from anygrpo.language.settings import CausalLMConfig, LoraConfig

PROMPTS = [{"prompt": "w1 w5 w9 w3"}, {"prompt": "w7 w2 w2 w40 w11 w12"}, {"prompt": "w30"}]


def config(**given) -> CausalLMConfig:
    given = {"train": "all", "max_new_tokens": 10, "dtype": "float32", "device": "cpu", "threads": 1} | given
    return CausalLMConfig(kind="causal_lm", model="memory", **given)


def policy(kind: str = "llama", template: bool = False, scale: float = 4.0, **given) -> causal_lm.CausalLM:
    return causal_lm.from_model(tiny.model(kind, scale=scale), tiny.tokenizer(template), config(**given), seed=3)


def rows_of(rollout):
    return tree_map(lambda x: x.flatten(0, 1), rollout.samples)


def scored(p, rollout, want=frozenset()):
    return p.evaluate(rows_of(rollout), slice(0, rollout.shape[2]), want)


def test_the_record():
    p = policy()
    r = p.sample(PROMPTS, 4, seed=1)
    assert isinstance(p, Policy)
    assert r.shape[:2] == (3, 4)
    lengths = r.samples["completion_lengths"]
    assert torch.equal(r.mask.sum(-1), lengths)
    assert torch.equal(r.mask, torch.arange(r.shape[2]) < lengths[..., None])
    assert (r.log_probs[~r.mask] == 0).all()
    assert (r.log_probs[r.mask] < 0).all()
    last = r.samples["completion_ids"].gather(2, lengths[..., None] - 1)[..., 0]
    assert torch.equal(r.ended, last == 1)
    assert (lengths[~r.ended] == 10).all()
    assert r.ended.any()
    assert not r.ended.all()
    assert r.info["truncated/share"] == pytest.approx(1 - r.ended.float().mean().item())
    texts = p.decode(r.samples)
    assert [len(row) for row in texts] == [4, 4, 4]
    assert all("</s>" not in text for row in texts for text in row)


def test_sampling_is_a_function_of_the_seed():
    p = policy()
    a, b, c = p.sample(PROMPTS, 3, 1), p.sample(PROMPTS, 3, 1), p.sample(PROMPTS, 3, 2)
    assert torch.equal(a.samples["completion_ids"], b.samples["completion_ids"])
    assert a.samples["completion_ids"].shape != c.samples["completion_ids"].shape or not torch.equal(
        a.samples["completion_ids"], c.samples["completion_ids"]
    )


SETTINGS = [
    {},
    {"temperature": 0.6},
    {"temperature": 1.7, "top_p": 0.8},
    {"top_k": 5},
    {"min_p": 0.1},
    {"min_new_tokens": 4},
    {"train": "lora"},
    {"attention": "plain"},
]


@pytest.mark.parametrize("given", SETTINGS, ids=str)
def test_scoring_uses_the_distribution_that_was_sampled(given):
    """The ratio is 1 before the first update, whatever the settings."""
    p = policy(**given)
    r = p.sample(PROMPTS, 4, seed=5)
    made = scored(p, r).log_probs.view_as(r.log_probs)
    torch.testing.assert_close(made, r.log_probs, atol=2e-5, rtol=0)
    assert p.parity < 2e-5
    assert p.trust_sampler


def test_min_new_tokens_forbids_end_tokens_on_both_sides():
    r = policy(min_new_tokens=6).sample(PROMPTS, 8, seed=0)
    assert (r.samples["completion_lengths"] > 6).all()
    free = policy().sample(PROMPTS, 8, seed=0)
    assert (free.samples["completion_lengths"] <= 6).any()


def test_a_changed_temperature_holds_for_sampling_and_scoring():
    p = policy()
    cold = policy(temperature=0.5)
    p.settings(temperature=0.5)
    a, b = p.sample(PROMPTS, 2, 7), cold.sample(PROMPTS, 2, 7)
    assert torch.equal(a.samples["completion_ids"], b.samples["completion_ids"])
    torch.testing.assert_close(scored(p, a).log_probs, scored(cold, b).log_probs)


def oracle(p, rollout, dtype=torch.float64):
    """Row by row, whole logits, float64: log-probs and the model they came from."""
    model = tiny.model("llama", dtype=dtype)
    rows, out = rows_of(rollout), []
    for i in range(len(rows["group"])):
        prompt = rows["prompt_ids"][i, : rows["prompt_lengths"][i]]
        done = rows["completion_ids"][i, : rows["completion_lengths"][i]]
        log_p = model(torch.cat([prompt, done])[None]).logits[0].log_softmax(-1)
        out.append(log_p[len(prompt) - 1 : -1].gather(1, done[:, None])[:, 0])
    return out, model


@pytest.mark.parametrize("attention", ["shared", "plain"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_log_probs_and_gradients_against_float64(attention, checkpointing):
    p = policy(attention=attention, gradient_checkpointing=checkpointing)
    r = p.sample(PROMPTS, 4, seed=2)
    exact, model = oracle(p, r)
    weights = [
        torch.randn(len(x), dtype=torch.float64, generator=torch.Generator().manual_seed(i))
        for i, x in enumerate(exact)
    ]
    sum((w * x).sum() for w, x in zip(weights, exact)).backward()
    ours = scored(p, r).log_probs
    for row, x in zip(ours, exact):
        torch.testing.assert_close(row[: len(x)].double(), x.detach(), atol=1e-5, rtol=0)
    sum((w.float() * row[: len(w)]).sum() for w, row in zip(weights, ours)).backward()
    truth = dict(model.named_parameters())
    for name, q in p.trainable().named_parameters():
        size = truth[name].grad.abs().max().item()
        torch.testing.assert_close(q.grad.double(), truth[name].grad, atol=1e-5 * max(size, 1.0), rtol=0)


@pytest.mark.parametrize("kind", [*tiny.SHARING, "gpt2", "gemma2", "mistral"])
def test_shared_and_plain_passes_agree_on_any_cut_and_order(kind):
    p = policy(kind)
    r = p.sample(PROMPTS, 4, seed=2)
    rows = rows_of(r)
    whole = p.evaluate(rows, slice(0, r.shape[2])).log_probs
    plain = policy(kind, attention="plain")
    torch.testing.assert_close(plain.evaluate(rows, slice(0, r.shape[2])).log_probs, whole, atol=1e-5, rtol=0)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))[:9]
    some = p.evaluate(tree_map(lambda x: x[order], rows), slice(1, 5)).log_probs
    torch.testing.assert_close(some, whole[order, 1:5], atol=1e-5, rtol=0)


def test_rows_of_joined_rollouts_keep_their_own_prompts():
    p = policy()
    a, b = p.sample(PROMPTS[:1], 2, seed=0), p.sample(PROMPTS[1:], 2, seed=1)
    both = a.joined(b)
    made = scored(p, both).log_probs.view_as(both.log_probs)
    torch.testing.assert_close(torch.where(both.mask, made, 0.0), both.log_probs, atol=2e-5, rtol=0)


def test_a_plan_keeps_groups_together_within_the_budget():
    p = policy(token_budget=30)
    rows = {
        "group": torch.tensor([0, 0, 1, 1, 2]),
        "prompt_lengths": torch.tensor([10, 10, 10, 10, 50]),
        "completion_lengths": torch.tensor([5, 5, 8, 8, 9]),
        "prompt_ids": torch.tensor([3, 3, 4, 4, 5])[:, None].expand(5, 50),
    }
    assert [x.tolist() for x in p.plan(rows, 99)] == [[0, 1], [2, 3], [4]]
    assert [x.tolist() for x in p.plan(rows, 1)] == [[0], [1], [2], [3], [4]]
    assert p.scorer.tokens(rows) == 10 + 5 + 5 + 10 + 8 + 8 + 50 + 9
    p.scorer.ability = Ability(False)
    assert [x.tolist() for x in p.plan(rows, 99)] == [[0, 1], [2], [3], [4]]
    assert p.scorer.tokens(rows) == 2 * 15 + 2 * 18 + 59


def opened(prompts: int, group: int, opening: int, own: int, completion: int) -> dict[str, torch.Tensor]:
    """Rows of prompts that begin with the same `opening` tokens and have `own` more."""
    common, more = torch.arange(opening) % 40 + 5, torch.arange(prompts)[:, None] % 40 + 5
    ids = torch.cat([common.expand(prompts, -1), more, more.expand(-1, own - 1)], 1)
    rows = prompts * group
    return {
        "prompt_ids": ids.repeat_interleave(group, 0), "prompt_lengths": torch.full((rows,), opening + own),
        "completion_ids": torch.full((rows, completion), 7), "completion_lengths": torch.full((rows,), completion),
        "group": torch.arange(prompts).repeat_interleave(group),
    }  # fmt: skip


def test_an_opening_counts_once_in_each_block_of_a_plan():
    """Two groups count 60 + 2 (5 + 2 x 10) = 110 tokens; where each row is computed alone, a row counts 75."""
    p, rows = policy(token_budget=110), opened(6, 2, opening=60, own=5, completion=10)
    assert [x.tolist() for x in p.plan(rows, 99)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert p.scorer.tokens(rows) == 60 + 6 * 25
    assert [len(x) for x in p.scorer.plan(rows, 99, 109)] == [2] * 6
    assert [len(x) for x in p.scorer.plan(rows, 99, 60 + 6 * 25)] == [12]
    assert [len(x) for x in p.scorer.plan(rows, 99, 84)] == [1] * 12  # no group fits: row by row
    p.scorer.ability = Ability(False)
    assert [len(x) for x in p.plan(rows, 99)] == [1] * 12
    assert p.scorer.tokens(rows) == 12 * 75


def test_entropy_and_exact_kl():
    p = policy(train="lora", lora=LoraConfig(rank=2, alpha=4))
    r = p.sample(PROMPTS, 2, seed=0)
    with torch.no_grad():
        for q in p.parameters():
            q.add_(0.3 * torch.randn_like(q))
    made = scored(p, r, frozenset({"entropy", "kl"}))
    mask = r.mask.flatten(0, 1)
    model, rows = p.weights.training_model(), rows_of(r)
    with torch.no_grad():
        for i in range(len(mask)):
            prompt = rows["prompt_ids"][i, : rows["prompt_lengths"][i]]
            ids = torch.cat([prompt, rows["completion_ids"][i, : rows["completion_lengths"][i]]])[None]
            log_p = model(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
            with p.reference():
                log_q = model(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
            torch.testing.assert_close(made.entropy[i][mask[i]], -(log_p.exp() * log_p).sum(-1), atol=1e-4, rtol=0)
            torch.testing.assert_close(made.kl[i][mask[i]], (log_p.exp() * (log_p - log_q)).sum(-1), atol=1e-4, rtol=0)
    assert made.kl[mask].min() > 0
    with pytest.raises(ConfigError, match="consistency"):
        scored(p, r, frozenset({"consistency"}))


@pytest.mark.parametrize("train", ["all", "last_n", "lora"])
def test_the_reference_is_where_training_began(train):
    p = policy(train=train, last_n_layers=1)
    r = p.sample(PROMPTS, 2, seed=0)
    before = scored(p, r).log_probs.detach()
    with torch.no_grad():
        for q in p.parameters():
            q.add_(0.2 * torch.randn_like(q))
    moved = scored(p, r).log_probs.detach()
    assert (moved - before).abs().max() > 0.05
    with p.reference():
        torch.testing.assert_close(scored(p, r).log_probs, before, atol=1e-5, rtol=0)
    torch.testing.assert_close(scored(p, r).log_probs, moved)


@pytest.mark.parametrize("train", ["all", "last_n", "lora"])
def test_trained_weights_are_float32_and_alone_get_gradients(train):
    p = policy(train=train, last_n_layers=1, dtype="bfloat16")
    assert {q.dtype for q in p.parameters()} == {torch.float32}
    r = p.sample(PROMPTS, 2, seed=0)
    scored(p, r).log_probs.sum().backward()
    assert all(q.grad is not None and torch.isfinite(q.grad).all() for q in p.parameters())
    names = [n for n, q in p.trainable().named_parameters() if q.requires_grad]
    if train == "last_n":
        assert all(".layers.1." in n or "norm" in n for n in names)
        assert any("norm.weight" in n and "layers" not in n for n in names)
    if train == "lora":
        assert all(".lora_" in n for n in names)
        assert not any("lm_head" in n for n in names)
        assert {q.dtype for q in p.trainable().parameters() if not q.requires_grad} == {torch.bfloat16}


def test_a_step_too_small_for_bfloat16_still_moves_the_weights():
    p = policy(dtype="bfloat16")
    optimizer = torch.optim.AdamW(p.parameters(), lr=1e-6, weight_decay=0.0)
    before = [q.detach().clone() for q in p.parameters()]
    scored(p, p.sample(PROMPTS, 2, seed=0)).log_probs.sum().backward()
    moves = [q.grad != 0 for q in p.parameters()]
    optimizer.step()
    moved = sum(((q != b) & m).sum().item() for q, b, m in zip(p.parameters(), before, moves))
    assert moved > 0.9 * sum(m.sum().item() for m in moves)


def test_float16_asks_for_a_scaled_loss_and_needs_it():
    """Of a loss as small as one of a hundred thousand tokens each, its gradients are mostly nothing; scaled they are
    float32's."""
    assert not policy(dtype="bfloat16").scales_loss
    p, plain = policy(dtype="float16"), policy()
    assert p.scales_loss
    r = p.sample(PROMPTS, 2, seed=0)

    def gradient(p, factor):
        grads = torch.autograd.grad(scored(p, r).log_probs.sum() * factor, p.parameters())
        return torch.cat([g.flatten() / factor for g in grads])

    right = gradient(plain, 1.0)
    size = float(right.norm())
    assert float((gradient(p, 1e-7) - right).norm()) > 0.3 * size
    assert float((gradient(p, 1e-7 * 2.0**16) - right).norm()) < 0.03 * size


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_adapter_moves_and_nothing_else_does(dtype):
    """Curves may look healthy over adapters that nothing reaches: what is sampled from must move too."""
    p = policy(train="lora", dtype=dtype, lora=LoraConfig(rank=2, alpha=4))
    before = {n: q.detach().clone() for n, q in p.trainable().named_parameters()}
    optimizer = torch.optim.AdamW(p.parameters(), lr=1e-3, weight_decay=0.0)
    for step in range(2):  # B starts at 0, so that A has a gradient from the second update on
        scored(p, p.sample(PROMPTS, 2, seed=step)).log_probs.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    moved = {n: not torch.equal(q, before[n]) for n, q in p.trainable().named_parameters()}
    assert all(moved[n] == q.requires_grad for n, q in p.trainable().named_parameters())
    first, again = (
        p.sample(PROMPTS, 2, seed=9).log_probs,
        policy(train="lora", dtype=dtype).sample(PROMPTS, 2, seed=9),
    )
    assert not torch.equal(first, again.log_probs)


def test_bfloat16_log_probs_of_the_rollout_are_those_of_the_training_pass():
    """The sampler's own differ too much there, so they are not trusted."""
    p = policy(dtype="bfloat16")
    r = p.sample(PROMPTS, 4, seed=0)
    assert p.trust_sampler is False
    assert p.parity > 1e-3
    torch.testing.assert_close(scored(p, r).log_probs.view_as(r.log_probs), r.log_probs, atol=2e-2, rtol=0)
    p.one_update = True
    assert "time/rescore" not in p.sample(PROMPTS, 4, seed=0).info


def test_merging_a_thousand_times_never_moves_the_base():
    p = policy(train="lora", dtype="bfloat16", lora=LoraConfig(rank=2, targets=("q_proj",)))
    base = {n: q.clone() for n, q in p.trainable().named_parameters() if not q.requires_grad}
    adapters = p.parameters()
    sampler = p.weights.sampler.model.layers[0].self_attn.q_proj
    for step in range(1000):
        with torch.no_grad():
            for q in adapters:
                q.add_(0.01 if step % 2 == 0 else -0.01)
        p.engine.refresh(p.weights.merged())
    layer = p.trainable().get_base_model().model.layers[0].self_attn.q_proj
    expected = layer.base_layer.weight.float() + layer.get_delta_weight("default").float()
    assert torch.equal(sampler.weight, expected.bfloat16())
    assert all(torch.equal(q, base[n]) for n, q in p.trainable().named_parameters() if n in base)


def test_the_sampler_follows_the_adapters():
    p = policy(train="lora")
    with torch.no_grad():
        for q in p.parameters():
            q.add_(0.2 * torch.randn_like(q))
    r = p.sample(PROMPTS, 4, seed=1)
    torch.testing.assert_close(scored(p, r).log_probs.view_as(r.log_probs), r.log_probs, atol=2e-5, rtol=0)
    with p.reference():
        assert (scored(p, r).log_probs.view_as(r.log_probs) - r.log_probs).abs().max() > 0.05


def test_dropout_never_lives():
    """A model made for training with dropout scores the same twice, also where blocks are checkpointed."""
    p = policy("gpt2", gradient_checkpointing=True)
    assert any(isinstance(m, torch.nn.Dropout) and m.p > 0 for m in p.trainable().modules())
    r = p.sample(PROMPTS, 2, seed=0)
    assert torch.equal(scored(p, r).log_probs, scored(p, r).log_probs)


@pytest.mark.parametrize("given", [{}, {"train": "lora"}, {"dtype": "bfloat16"}], ids=str)
def test_checkpointed_blocks_are_computed_again_in_backward(given):
    p = policy(gradient_checkpointing=True, **given)
    r = p.sample(PROMPTS, 2, seed=0)
    calls = []
    model = p.weights.training_model()
    # Before the forward, since computing again stops at the last tensor that is needed.
    model.model.layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    loss = scored(p, r).log_probs.sum()
    before = len(calls)
    loss.backward()
    assert (before, len(calls)) == (1, 2)


def test_every_end_token_ends_and_the_pad_token_does_not():
    model = tiny.model()
    model.generation_config.eos_token_id = [1, 30]
    p = causal_lm.from_model(model, tiny.tokenizer(), config(eos=("w40", 41), max_new_tokens=40))
    assert p.prompts.ends == (1, 30, 41, 44)
    r = p.sample(PROMPTS, 16, seed=0)
    ids, lengths = r.samples["completion_ids"], r.samples["completion_lengths"]
    last = ids.gather(2, lengths[..., None] - 1)[..., 0]
    assert set(last[r.ended].tolist()) <= {1, 30, 41, 44}
    assert len(set(last[r.ended].tolist())) > 1
    before = r.mask & (torch.arange(ids.shape[2]) < lengths[..., None] - 1)
    assert not torch.isin(ids[before], torch.tensor(p.prompts.ends)).any()
    assert (ids[before] == 2).any()  # the pad token is a token like others


def test_end_token_equal_to_pad_keeps_its_log_prob():
    tokenizer = tiny.tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    p = causal_lm.from_model(tiny.model(), tokenizer, config())
    r = p.sample(PROMPTS, 8, seed=0)
    at = r.samples["completion_lengths"] - 1
    assert r.ended.any()
    assert r.mask.gather(2, at[..., None])[r.ended].all()
    assert (r.log_probs.gather(2, at[..., None])[r.ended] < 0).all()


def test_the_models_own_sampling_defaults_are_not_ours():
    model = tiny.model()
    model.generation_config.temperature, model.generation_config.top_k = 0.01, 1
    model.generation_config.do_sample = True
    theirs = causal_lm.from_model(model, tiny.tokenizer(), config()).sample(PROMPTS, 4, seed=1)
    assert torch.equal(theirs.samples["completion_ids"], policy().sample(PROMPTS, 4, seed=1).samples["completion_ids"])


def test_unknown_end_token():
    with pytest.raises(DataError, match="no-such"):
        policy(eos=("no-such",))


def test_stop_texts_end_a_row():
    r = policy(stop=("w9 ", "w17"), max_new_tokens=40).sample(PROMPTS, 16, seed=0)
    stopped = [(p, g) for p, g in r.ended.nonzero().tolist() if 1 not in r.samples["completion_ids"][p, g]]
    p = policy()
    texts = p.decode(r.samples)
    assert stopped
    assert all("w17" in texts[i][g] or "w9 " in texts[i][g] + " " for i, g in stopped)


def test_an_empty_completion_is_one_end_token():
    p = policy()
    with torch.no_grad():
        p.trainable().lm_head.weight[1] = 0
    r = p.replay(PROMPTS[:1], Stored([["", "w5"]]), seed=0)
    assert r.samples["completion_ids"].tolist() == [[[1, 0], [9, 1]]]
    assert r.mask.tolist() == [[[True, False], [True, True]]]
    assert p.decode(r.samples) == [["", "w5"]]
    assert torch.isfinite(scored(p, r).log_probs).all()


def test_replay_pads_short_lists_and_keeps_propensities():
    p = policy()
    stored = Stored(
        [["w1 w2", "w3"], ["w4"]],
        rewards=[[1.0, 0.5], [2.0]],
        log_probs=[[-7.5, None], [-3.0]],
        components={"a": [[1.0, 2.0], [3.0]]},
    )
    r = p.replay(PROMPTS[:2], stored, seed=0)
    assert r.valid.tolist() == [[True, True], [True, False]]
    assert r.rewards.tolist() == [[1.0, 0.5], [2.0, 0.0]]
    assert r.components["a"].tolist() == [[1.0, 2.0], [3.0, 0.0]]
    now = scored(p, r).log_probs.detach().view_as(r.log_probs)
    assert r.log_probs[0, 0].sum().item() == pytest.approx(-7.5, abs=1e-4)
    assert r.log_probs[1, 0].sum().item() == pytest.approx(-3.0, abs=1e-4)
    torch.testing.assert_close(r.log_probs[0, 1], now[0, 1], atol=1e-5, rtol=0)
    assert not r.mask[1, 1].any()


def test_greedy_takes_the_likeliest():
    p = policy()
    r = p.greedy(PROMPTS)
    assert r.shape[:2] == (3, 1)
    model = tiny.model()
    for i in range(3):
        prompt = r.samples["prompt_ids"][i, 0, : r.samples["prompt_lengths"][i, 0]]
        done = r.samples["completion_ids"][i, 0, : r.samples["completion_lengths"][i, 0]]
        best = model(torch.cat([prompt, done])[None]).logits[0, len(prompt) - 1 : -1].argmax(-1)
        assert torch.equal(best, done)


def test_a_prompt_longer_than_the_context_names_the_lengths():
    with pytest.raises(DataError, match=r"prompt 'w1 w1.* has 125 tokens.*135.*128"):
        policy().sample([{"prompt": "w1"}, {"prompt": "w1 " * 125}], 2, seed=0)
    with pytest.raises(DataError, match="empty"):
        policy().sample([{"prompt": ""}], 2, seed=0)
    with pytest.raises(DataError, match="text or a list"):
        policy().sample([{"question": "w1"}], 2, seed=0)


def test_prompts_that_do_not_fit_are_found_before_the_first_step(tmp_path):
    file = tmp_path / "data.jsonl"
    rows = [{"prompt": f"w{i % 60} " * (130 if i in (17, 23) else 3) + f"w{i}"} for i in range(30)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    lm = {"kind": "python", "function": f"{TOYS.with_name('tiny_lm.py')}:policy"}
    length = {"kind": "length", "target": 3}
    with pytest.raises(DataError, match=r"has 131 tokens.*context is 128, and 1 more are too long"):
        run_of(tmp_path / "run", policy=lm, task={"kind": "jsonl", "path": str(file), "rewards": [length]})


def test_short_prompts_are_not_tokenised_to_be_checked(monkeypatch):
    p = policy()
    monkeypatch.setattr(p.prompts, "context", 4096)
    monkeypatch.setattr(p.prompts, "_encode_one", lambda prompt: pytest.fail("tokenised"))
    p.check_prompts([{"prompt": "w1 " * 900}, {"prompt": [{"role": "user", "content": "w1"}]}])


def test_chat_template_and_system_message():
    p = policy(template=True, system="w9")
    ids = p.prompts.encode([{"prompt": "w1"}, {"prompt": [{"role": "user", "content": "w2"}]}], 0)
    assert ids == [[3, 13, 1, 3, 5, 1, 3], [3, 13, 1, 3, 6, 1, 3]]
    raw = policy(template=True, chat_template=False)
    assert raw.prompts.encode([{"prompt": "w1"}], 0) == [[5]]
    with pytest.raises(ConfigError, match="system"):
        policy(system="w9")
    with pytest.raises(ConfigError, match="chat_template"):
        policy(chat_template=True)


def test_several_turns_tokens_in_tokens_out(tmp_path):
    """What the environment says is in the sequence and conditions what follows, but is masked out of the loss."""
    code = "def reply(messages, columns):\n    return 'w50 w51' if len(messages) < 4 else None\n"
    (tmp_path / "world.py").write_text(code)
    p = policy(template=True, max_turns=3, environment=f"{tmp_path}/world.py:reply", max_new_tokens=40)
    r = p.sample(PROMPTS, 8, seed=0)
    ids, mask = r.samples["completion_ids"], r.mask
    inside = torch.arange(ids.shape[2]) < r.samples["completion_lengths"][..., None]
    inserted = inside & ~mask
    assert inserted.any()
    row = next((p_, g) for p_, g in inserted.any(-1).nonzero().tolist())
    at = inserted[row].nonzero()[:, 0].tolist()
    # After the model's end token: the template's turn with the reply, and the next answer's opening.
    assert ids[row][at[0] - 1] == 1
    assert ids[row][at[0] : at[0] + 5].tolist() == [3, 54, 55, 1, 3][: len(at)]
    torch.testing.assert_close(
        torch.where(mask, scored(p, r).log_probs.view_as(r.log_probs), 0.0), r.log_probs, atol=2e-5, rtol=0
    )


def test_impossible_recipes():
    with pytest.raises(ValueError, match="environment"):
        config(max_turns=2)
    with pytest.raises(ValueError, match="min_new_tokens"):
        config(min_new_tokens=11)
    with pytest.raises(ConfigError, match="2 layers"):
        policy(train="last_n", last_n_layers=3)
    with pytest.raises(ConfigError, match="linear layers"):
        policy(train="lora", lora=LoraConfig(targets=("nothing",)))
    with pytest.raises(ConfigError, match="does not name an object in a file"):
        policy(max_turns=2, environment="nothing").sample(PROMPTS, 2, seed=0)


def test_an_engine_that_is_not_installed_is_named(monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"anygrpo\[vllm\]"):
        policy(engine="vllm")


def test_checkpoints_hold_adapters_alone_and_load_back():
    from anygrpo.core.trained import load_state, state_of

    p, q = policy(train="lora"), policy(train="lora")
    with torch.no_grad():
        for x in p.parameters():
            x.add_(0.1 * torch.randn_like(x))
    load_state(q.trainable(), state_of(p.trainable()))
    r = p.sample(PROMPTS, 2, seed=0)
    assert torch.equal(q.sample(PROMPTS, 2, seed=0).samples["completion_ids"], r.samples["completion_ids"])
    assert all(".lora_" in name for name in state_of(p.trainable()))


def test_with_one_update_a_sampler_that_failed_the_check_is_replaced_by_the_first_training_pass():
    p = policy()
    for one_update, trusted, expected in ((True, False, True), (True, True, False), (False, False, False)):
        p.one_update, p.trust_sampler = one_update, trusted
        assert p.old_from_training is expected
