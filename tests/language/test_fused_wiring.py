"""Which modules are given fused kernels, and that without a GPU, or where a trial fails, nothing changes."""

import logging

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from anygrpo.language.kernels import gated as gate
from anygrpo.language.kernels import rotary, trial

SIZE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


def model_of(kind: str) -> torch.nn.Module:
    config = AutoConfig.for_model(kind, head_dim=16, num_key_value_heads=2, vocab_size=97, pad_token_id=0, **SIZE)
    return AutoModelForCausalLM.from_config(config).eval()


@pytest.mark.parametrize(
    ("kind", "rotaries", "gates"), [("qwen2", 2, 2), ("qwen3", 2, 2), ("llama", 2, 2), ("gemma", 2, 0)]
)
def test_modules_are_found_and_compute_the_same_without_a_gpu(kind: str, rotaries: int, gates: int) -> None:
    model, ids = model_of(kind), torch.arange(9)[None]
    with torch.no_grad():
        before = model(ids).logits
        assert rotary.fuse_rotary(model) == rotaries
        assert gate.fuse_gates(model) == gates
        torch.testing.assert_close(model(ids).logits, before, rtol=0, atol=2e-6)


def test_each_fused_module_calls_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    model, called = model_of("llama"), []
    rotary.fuse_rotary(model)
    gate.fuse_gates(model)
    for module, kernel in ((rotary, "rotate"), (gate, "gated")):
        monkeypatch.setattr(module, "usable", lambda x: True)
        monkeypatch.setattr(module, "_tried", lambda *key: True)
        monkeypatch.setattr(module, kernel, lambda *given, kernel=kernel: called.append(kernel) or given[:2])
    monkeypatch.setattr(gate, "gated", lambda a, b: called.append("gated") or torch.nn.functional.silu(a) * b)
    with torch.no_grad():
        model(torch.arange(9)[None])
    assert called == ["rotate", "gated"] * 2


def feed_forward(dtype=torch.float32):
    model = model_of("llama").to(dtype)
    gate.fuse_gates(model)
    torch.manual_seed(1)
    return model.model.layers[0].mlp, torch.randn(2, 5, 64).to(dtype).requires_grad_()


def plain_feed_forward(mlp, x):
    return mlp.down_proj(torch.nn.functional.silu(mlp.gate_proj(x)) * mlp.up_proj(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_feed_forward_block_has_the_gradients_of_its_layers(dtype: torch.dtype) -> None:
    mlp, x = feed_forward(dtype)
    weight, results = torch.randn(2, 5, 64).to(dtype), []
    for out in (mlp(x), plain_feed_forward(mlp, x)):
        results.append([out, *torch.autograd.grad((out * weight).sum(), [x, *mlp.parameters()])])
    assert type(mlp(x).grad_fn).__name__ == "_FeedForwardBackward"
    near = {torch.float32: 1e-6, torch.float64: 1e-14, torch.bfloat16: 1e-2}[dtype]
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs, rtol=near, atol=near)


def test_a_feed_forward_block_keeps_its_input_and_two_products() -> None:
    mlp, x = feed_forward()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        mlp(x)
    weights = {p.data_ptr() for p in mlp.parameters()}
    assert sum(t.numel() for t in kept if t.data_ptr() not in weights) == 10 * (64 + 2 * 128)


def test_frozen_layers_of_a_block_are_given_no_gradient() -> None:
    mlp, x = feed_forward()
    mlp.up_proj.weight.requires_grad_(False)
    (mlp(x.detach()) ** 2).sum().backward()
    assert mlp.up_proj.weight.grad is None
    assert mlp.gate_proj.weight.grad.abs().sum() > 0
    assert mlp.down_proj.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("change", ["bias", "hook", "kind"])
def test_layers_that_are_more_than_a_product_are_called_as_they_are(change: str) -> None:
    mlp, x = feed_forward()
    called = []
    if change == "bias":
        mlp.down_proj.bias = torch.nn.Parameter(torch.ones(64))
    elif change == "hook":
        mlp.gate_proj.register_forward_hook(lambda *_: called.append(1))
    else:
        mlp.up_proj = torch.nn.Sequential(mlp.up_proj)
    torch.testing.assert_close(mlp(x), plain_feed_forward(mlp, x))
    assert type(mlp(x).grad_fn).__name__ != "_FeedForwardBackward"
    assert len(called) == (3 if change == "hook" else 0)


def test_a_kernel_that_differs_or_fails_is_not_used_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    one = torch.ones(2)

    def fails() -> list[torch.Tensor]:
        raise RuntimeError("no compiler\nsecond line")

    with caplog.at_level(logging.WARNING, "anygrpo"):
        assert trial.agrees("a", lambda: [one], lambda: [one])
        assert not caplog.records
        assert not trial.agrees("b", lambda: [one + 1e-3], lambda: [one])
        assert not trial.agrees("c", lambda: [one * float("nan")], lambda: [one])
        assert not trial.agrees("d", fails, lambda: [one])
    assert "for b is not used: its trial differs by 1.0e-03" in caplog.messages[0]
    assert "RuntimeError: no compiler" in caplog.messages[2]
    assert "second" not in caplog.messages[2]
