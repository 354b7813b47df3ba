"""The memory calculator: counts against a real model, and what each dial changes."""

from __future__ import annotations

import re

import pytest
import tiny_lm  # noqa: F401  makes `tiny` known
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from anygrpo.language.build import from_model
from anygrpo.language.memory import estimate, report, shape_of
from anygrpo.language.settings import CausalLMConfig, LoraConfig
from anygrpo.recipe.load import parse_recipe

SIZES = {"vocab_size": 300, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
CONFIG = LlamaConfig(**SIZES, **HEADS, tie_word_embeddings=False)
WIDE = LlamaConfig(
    vocab_size=64, hidden_size=256, intermediate_size=768, num_hidden_layers=6, num_attention_heads=8,
    num_key_value_heads=2, bos_token_id=0, eos_token_id=1, pad_token_id=2, tie_word_embeddings=True,
)  # fmt: skip
GB = 2**30


def recipe(training=None, **policy):
    return parse_recipe(
        {
            "policy": {"kind": "causal_lm", "model": "memory"} | policy,
            "task": {"kind": "arithmetic"},
            "training": training or {},
        }
    )


def test_the_shape_is_that_of_the_real_model():
    real = LlamaForCausalLM(CONFIG)
    shape = shape_of(CONFIG)
    assert shape.weights == sum(p.numel() for p in real.parameters())
    assert shape.blocks == sum(p.numel() for p in real.model.layers.parameters())
    assert (shape.layers, shape.hidden, shape.keys, shape.mlp) == (3, 64, 32, 96)
    linear = [m for m in real.model.layers.modules() if isinstance(m, torch.nn.Linear)]
    assert shape.inputs + shape.outputs == sum(m.in_features + m.out_features for m in linear) // 3
    assert (shape.adapted, shape.modules) == (sum(m.weight.numel() for m in linear), 7)
    few = shape_of(CONFIG, LoraConfig(targets=("q_proj", "down_proj")))
    assert (few.modules, few.inputs, few.outputs) == (2, 64 + 96, 64 + 64)


def saved_bytes(train, dtype, checkpointing):
    """(bytes that autograd keeps for the backward pass, weights and casts apart, tokens) of a real pass."""
    import tiny
    from transformers import AutoModelForCausalLM

    given = CausalLMConfig(
        kind="causal_lm", model="memory", train=train, dtype=dtype, device="cpu", threads=1, max_new_tokens=32,
        min_new_tokens=32, gradient_checkpointing=checkpointing,
    )  # fmt: skip
    torch.manual_seed(0)
    policy = from_model(AutoModelForCausalLM.from_config(WIDE).eval(), tiny.tokenizer(), given)
    rollout = policy.sample([{"prompt": " ".join(["w3"] * 64)}], 7, 0)
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        policy.evaluate({name: x.flatten(0, 1) for name, x in rollout.samples.items()}, slice(0, 32))
    models = [policy.trainable(), policy.weights.training_model()]
    own = {p.untyped_storage().data_ptr() for m in models for p in m.parameters()}
    own |= {
        p.untyped_storage().data_ptr() for m in models[1].modules() for p in m._parameters.values() if p is not None
    }
    adapters = policy.weights._adapters
    own |= {x.untyped_storage().data_ptr() for x in adapters._casts.copies} if adapters else set()
    return sum(x.untyped_storage().nbytes() for at, x in kept.items() if at not in own), 64 + 7 * 31


@pytest.mark.parametrize(("train", "dtype"), [("all", "float32"), ("lora", "float32"), ("lora", "bfloat16")])
def test_activations_are_what_autograd_keeps(train, dtype):
    kept, tokens = saved_bytes(train, dtype, False)
    plan = recipe({"rows_per_block": 64}, train=train, max_new_tokens=31, token_budget=tokens)
    parts = estimate(plan, shape_of(WIDE), 1, 2 if dtype == "bfloat16" else 4, gpu=False)
    assert parts["activations"] * GB == pytest.approx(kept, rel=0.06, abs=GB / 2000)


def test_recomputed_activations_are_an_input_a_layer():
    kept, tokens = saved_bytes("all", "float32", True)
    assert kept == pytest.approx(4 * tokens * WIDE.hidden_size * (WIDE.num_hidden_layers + 2), rel=0.15)


BIG = shape_of(LlamaConfig(**(SIZES | {"hidden_size": 512, "intermediate_size": 2048}), **HEADS, head_dim=64))


def test_full_weights_hold_sixteen_bytes_each_and_one_copy():
    parts = estimate(recipe(train="all"), BIG, 1, 2)
    w = BIG.weights / GB
    assert parts["weights"] == pytest.approx(4 * w, abs=2e-3)
    assert parts["optimizer"] == pytest.approx(8 * w, abs=2e-3)
    assert parts["gradients"] == pytest.approx(4 * w, abs=2e-3)
    assert parts["casts"] == pytest.approx(2 * w, abs=2e-3)
    assert parts["sampler"] == parts["reference"] == 0
    assert estimate(recipe(train="all"), BIG, 1, 4)["casts"] == 0
    held = recipe(train="all")
    held = held.model_copy(update={"algorithm": held.algorithm.model_copy(update={"beta": 0.1})})
    assert [estimate(held, BIG, 1, c)["reference"] for c in (2, 4)] == pytest.approx([2 * w, 4 * w], abs=2e-3)


def test_shards_divide_blocks_only():
    whole = estimate(recipe({"parallel": "fsdp"}, train="all"), BIG, 1, 2)
    shards = estimate(recipe({"parallel": "fsdp"}, train="all"), BIG, 4, 2)
    kept = (BIG.weights - BIG.blocks) + BIG.blocks / 4
    assert shards["optimizer"] == pytest.approx(8 * kept / GB, abs=2e-3)
    assert shards["peak_training"] < whole["peak_training"]


def test_adapters_cost_their_rank():
    small, large = (estimate(recipe(lora={"rank": r}), BIG, 1, 2)["optimizer"] for r in (64, 128))
    assert large == pytest.approx(2 * small, abs=2e-3)


def test_the_dials_turn_what_they_name():
    base = estimate(recipe(train="all"), BIG, 1, 2)
    assert estimate(recipe(train="all", token_budget=8192), BIG, 1, 2)["activations"] == pytest.approx(
        2 * base["activations"], rel=0.02
    )
    assert estimate(recipe(train="all", gradient_checkpointing=True), BIG, 1, 2)["activations"] < base["activations"]
    rows = 8 * 8 * 256 * 2  # one group's buffers are kept a second time for fewer rows
    keys = 2 * BIG.keys * 2 * BIG.layers
    assert base["cache"] * GB == pytest.approx(keys * (8 * 512 + rows), abs=GB / 1000)
    wider = estimate(recipe(train="all", max_new_tokens=512), BIG, 1, 2)["cache"]
    assert wider * GB == pytest.approx(keys * (8 * 512 + 2 * rows), abs=GB / 1000)


def test_a_block_holds_no_more_tokens_than_a_step():
    few = estimate(recipe(train="all", token_budget=10**6), BIG, 1, 2)["activations"]
    assert few == estimate(recipe(train="all", token_budget=64 * 256 + 8 * 512), BIG, 1, 2)["activations"]
    halved = recipe({"rows_per_block": 32}, train="all", token_budget=10**6)
    assert 2 * estimate(halved, BIG, 1, 2)["activations"] == pytest.approx(few, abs=2e-3)
    assert estimate(recipe(train="all"), BIG, 1, 2)["activations"] < few  # of what a run chooses, the least


def test_a_model_that_is_not_there_is_said(tmp_path):
    assert "not estimated" in report(recipe(model="no/such-model"), 1)["memory"]


def test_a_dry_run_prints_it_from_the_config_alone(tmp_path, capsys, monkeypatch):

    import tomli_w

    from anygrpo.cli.main import main

    CONFIG.save_pretrained(tmp_path / "model")
    table = {"policy": {"kind": "causal_lm", "model": str(tmp_path / "model")}, "task": {"kind": "arithmetic"}}
    (tmp_path / "r.toml").write_text(tomli_w.dumps(table))
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["train", str(tmp_path / "r.toml"), "--dry-run"]) == 0
    printed = capsys.readouterr().out.splitlines()[-1]
    assert f"; trained on 2 ranks; {shape_of(CONFIG).weights:,} weights; " in printed
    parts = dict(re.findall(r"(\w+) ([\d.]+)", printed.partition("(")[2].partition(")")[0]))
    peak = re.search(r"([\d.]+) GB at the peak, while training", printed)
    assert peak
    assert float(peak[1]) >= float(parts["activations"])


def test_a_dry_run_says_when_the_peak_is_and_each_part_once(monkeypatch):
    from anygrpo.cli.train import _memory

    gb = {"weights": 2.0, "casts": 0.0, "cache": 1.5, "activations": 1.0}
    gb |= {"peak_sampling": 3.5, "peak_training": 3.0, "peak_stepping": 2.0, "peak": 3.5}
    found = {"memory_gb_per_rank": gb, "ranks": 2, "weights": 1000, "prompt_tokens_assumed": 512}
    assert _memory(found) == (
        "memory of a rank, worked out: 3.5 GB at the peak, while sampling (weights 2, cache of keys and values 1.5, "
        "activations 1, not all at once); trained on 2 ranks; 1,000 weights; prompts of 512 tokens assumed"
    )
    monkeypatch.setenv("ANYGRPO_LANG", "zh")
    assert not re.search("[a-zA-Z]", _memory(found).replace("GB", ""))
    whole = {"memory_gb_per_rank": {"weights": 1.0, "trajectory": 0.5, "peak": 1.5}, "ranks": 1, "weights": 9}
    monkeypatch.setenv("ANYGRPO_LANG", "en")
    assert _memory(whole) == (
        "memory of a rank, worked out: 1.5 GB at the peak (weights 1, trajectory 0.5); trained on 1 rank; 9 weights"
    )


def test_every_part_that_a_family_tells_has_a_name():
    from anygrpo.cli.train import _PARTS, _PHASES

    parts = estimate(recipe(), shape_of(LlamaConfig(num_hidden_layers=1)), 1, 2)
    assert set(parts) <= {*_PARTS, *_PHASES, "peak"}
