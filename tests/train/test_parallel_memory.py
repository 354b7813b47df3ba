"""The memory calculator: counts against a real model, and what each dial changes."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from anygrpo.config.load import parse_recipe
from anygrpo.train.distributed_memory import estimate, report, shape_of

SIZES = {"vocab_size": 300, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
CONFIG = LlamaConfig(**SIZES, **HEADS, tie_word_embeddings=False)
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
    assert shape.linear == sum(m.in_features + m.out_features for m in linear)


BIG = shape_of(LlamaConfig(**(SIZES | {"hidden_size": 512, "intermediate_size": 2048}), **HEADS, head_dim=64))


def test_full_weights_hold_sixteen_bytes_each_and_two_copies():
    parts = estimate(recipe(train="all"), BIG, 1, 2)
    w = BIG.weights / GB
    assert parts["weights"] == pytest.approx(4 * w, abs=2e-3)
    assert parts["optimizer"] == pytest.approx(8 * w, abs=2e-3)
    assert parts["gradients"] == pytest.approx(4 * w, abs=2e-3)
    assert parts["casts"] == parts["sampler"] == pytest.approx(2 * w, abs=2e-3)
    assert estimate(recipe(train="all"), BIG, 1, 4)["casts"] == 0


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
    assert estimate(recipe(train="all", max_new_tokens=512), BIG, 1, 2)["cache"] == pytest.approx(
        2 * base["cache"], rel=0.05
    )


def test_a_model_that_is_not_there_is_said(tmp_path):
    assert "not estimated" in report(recipe(model="no/such-model"), 1)["memory"]


def test_a_dry_run_prints_it_from_the_config_alone(tmp_path, capsys, monkeypatch):
    import json

    import tomli_w

    from anygrpo.cli.main import main

    CONFIG.save_pretrained(tmp_path / "model")
    table = {"policy": {"kind": "causal_lm", "model": str(tmp_path / "model")}, "task": {"kind": "arithmetic"}}
    (tmp_path / "r.toml").write_text(tomli_w.dumps(table))
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["train", str(tmp_path / "r.toml"), "--dry-run"]) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1].removeprefix("# "))
    assert printed["ranks"] == 2
    assert printed["weights"] == shape_of(CONFIG).weights
    assert printed["memory_gb_per_rank"]["peak_training"] >= printed["memory_gb_per_rank"]["activations"]
