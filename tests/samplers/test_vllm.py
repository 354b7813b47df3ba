"""vLLM as the engine. What needs the real package is marked slow and skipped where vLLM is not installed."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from anygrpo.config.language import CausalLMConfig
from anygrpo.errors import ConfigError, TrainingError
from anygrpo.samplers import vllm as engine

REAL = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")


def config(**given) -> CausalLMConfig:
    return CausalLMConfig(kind="causal_lm", engine="vllm", **({"model": "memory"} | given))


@pytest.mark.parametrize(("version", "good"), [("0.13.9", False), ("0.14.0", True), ("0.32.0", True), ("1.0", True)])
def test_versions(version, good):
    if good:
        engine.check_version(version)
    else:
        with pytest.raises(ConfigError, match=r"older than 0\.14"):
            engine.check_version(version)


def test_cuts_in_another_order_are_refused():
    engine.check_settings(config(min_p=0.1))
    with pytest.raises(ConfigError, match="min_p first"):
        engine.check_settings(config(min_p=0.1, top_p=0.9))


def test_an_environment_is_refused():
    with pytest.raises(ConfigError, match="turns"):
        engine.check_settings(config(max_turns=2, environment="e.py:f"))


class Deaf:
    """A vLLM that ignores the weights it is sent."""

    def __init__(self) -> None:
        self.model = torch.nn.Module()
        self.model.norm = torch.nn.LayerNorm(3, bias=False)

    def collective_rpc(self, method, kwargs) -> None:
        assert method == "reload_weights"
        assert list(kwargs["weights_iterator"])

    def apply_model(self, function):
        return [function(self.model)]

    def reset_prefix_cache(self) -> None:
        pass


def test_stale_weights_stop_the_run():
    deaf = engine.VllmEngine(Deaf())
    deaf.refresh([("norm.weight", torch.ones(3))])
    with pytest.raises(TrainingError, match=r"after sync 2 vLLM holds stale weights: norm\.weight"):
        deaf.refresh([("norm.weight", torch.full((3,), 2.0))])


def test_a_sync_that_cannot_be_checked_stops_the_run():
    with pytest.raises(TrainingError, match="none of the weights"):
        engine.VllmEngine(Deaf()).refresh([("other.weight", torch.ones(3))])


@REAL
@pytest.mark.slow
@pytest.mark.parametrize("train", ["lora", "all"])
def test_real_vllm_follows_training(tmp_path, monkeypatch, train):
    """Sampled by vLLM, scored by us: equal log-probs before and after an update of the weights."""
    import tiny

    from anygrpo.policies import causal_lm

    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    # the attention of vLLM starts at heads of 32
    wide = tiny.CONFIGS["llama"].to_dict() | {"hidden_size": 128, "head_dim": 32}
    monkeypatch.setitem(tiny.CONFIGS, "llama", type(tiny.CONFIGS["llama"])(**wide))
    tiny.model("llama", scale=2.0).save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    given = config(
        model=str(tmp_path), train=train, dtype="float32", device="cpu", threads=1, max_new_tokens=8, top_k=20
    )
    policy = causal_lm.build(given, seed=0)
    prompts = [{"prompt": "w1 w5 w9 w3"}, {"prompt": "w30"}]
    rollout = policy.sample(prompts, 6, seed=1)
    assert policy.parity < 2e-3
    again = policy.sample(prompts, 6, seed=1)
    assert torch.equal(again.samples["completion_ids"], rollout.samples["completion_ids"])
    assert not torch.equal(rollout.samples["completion_ids"][:, 0], rollout.samples["completion_ids"][:, 1])
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(3)))
    policy.trust_sampler = None
    moved = policy.sample(prompts, 6, seed=1)
    assert policy.parity < 2e-3
    assert not torch.equal(moved.samples["completion_ids"], rollout.samples["completion_ids"])
    assert policy.engine.syncs == 3
