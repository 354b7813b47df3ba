"""Which modules are given fused kernels, and that without a GPU, or where a trial fails, nothing changes."""

import logging

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from anygrpo.samplers.fused import gate, rotary, trial

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
        assert torch.equal(model(ids).logits, before)


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
