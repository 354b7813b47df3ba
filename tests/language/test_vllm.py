"""vLLM as the engine. What needs the real package is marked slow and skipped where vLLM is not installed."""

from __future__ import annotations

import gc
import importlib.util

import pytest
import torch

from anygrpo.errors import ConfigError, TrainingError
from anygrpo.language.engine import vllm as engine
from anygrpo.language.engine import vllm_limits
from anygrpo.language.settings import CausalLMConfig

REAL = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")


def config(**given) -> CausalLMConfig:
    return CausalLMConfig(kind="causal_lm", **({"model": "memory", "engine": "vllm"} | given))


@pytest.mark.parametrize(
    ("version", "good"), [("0.31.9", False), ("0.32.0", True), ("0.32.1+cpu", True), ("1.0", True)]
)
def test_versions(version, good):
    if good:
        vllm_limits.check_version(version)
    else:
        with pytest.raises(ConfigError, match=r"older than 0\.32"):
            vllm_limits.check_version(version)


def test_cuts_in_another_order_are_refused():
    vllm_limits.check_settings(config(min_p=0.1))
    with pytest.raises(ConfigError, match="min_p first"):
        vllm_limits.check_settings(config(min_p=0.1, top_p=0.9))


def test_adapters_get_the_next_size_and_no_more_than_there_is():
    assert [vllm_limits.lora_size(rank) for rank in (1, 8, 9, 512)] == [8, 8, 16, 512]
    with pytest.raises(ConfigError, match=r"lora\.rank = 513"):
        vllm_limits.check_settings(config(lora={"rank": 513}))


def test_several_ranks_in_one_process_each_are_refused(monkeypatch):
    monkeypatch.setattr(engine, "installed", lambda: "0.32.0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="vllm_server"):
        engine.build_engine(config(), torch.float32, None)


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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny Llama whose heads vLLM's CPU attention takes (it starts at 32)."""
    import tiny

    made = tmp_path_factory.mktemp("model")
    wide = tiny.CONFIGS["llama"].to_dict() | {"hidden_size": 128, "head_dim": 32}
    torch.manual_seed(0)
    tiny.model("llama", scale=2.0, config=type(tiny.CONFIGS["llama"])(**wide)).save_pretrained(made)
    tiny.tokenizer().save_pretrained(made)
    return made


PROMPTS = [{"prompt": "w1 w5 w9 w3"}, {"prompt": "w30"}]


def built(folder, **given):
    from anygrpo.language import build as causal_lm

    settings = {"dtype": "float32", "device": "cpu", "threads": 1, "max_new_tokens": 8, "top_k": 20, "temperature": 0.8}
    return causal_lm.build(config(model=str(folder), lora={"rank": 8}, **(settings | given)), seed=0)


def move(policy, size: float) -> None:
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(size * torch.randn(p.shape, generator=torch.Generator().manual_seed(3)))


def follows(policy) -> None:
    """Sampled by vLLM, scored by us: equal log-probs before and after an update of the weights, tokens by seed."""
    rollout = policy.sample(PROMPTS, 6, seed=1)
    assert policy.parity < 2e-3
    again = policy.sample(PROMPTS, 6, seed=1)
    assert torch.equal(again.samples["completion_ids"], rollout.samples["completion_ids"])
    assert not torch.equal(rollout.samples["completion_ids"][:, 0], rollout.samples["completion_ids"][:, 1])
    assert not policy._probe.done
    move(policy, 0.1)
    policy.trust_sampler = None
    moved = policy.sample(PROMPTS, 6, seed=1)
    assert policy.parity < 2e-3
    assert not torch.equal(moved.samples["completion_ids"], rollout.samples["completion_ids"])
    assert policy.engine.syncs == 3
    assert policy._probe.done


@pytest.fixture
def alone(folder, monkeypatch):
    """Builds policies whose vLLM is gone before the next test: it holds the state of a process."""
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    made = []

    def build(**given):
        made.append(built(folder, **given))
        return made[-1]

    yield build
    for policy in made:
        del policy.engine
    gc.collect()


@REAL
@pytest.mark.slow
@pytest.mark.parametrize("train", ["lora", "all"])
def test_real_vllm_follows_training(alone, train):
    policy = alone(train=train)
    assert policy.engine.adapters == (train == "lora")
    follows(policy)
    policy.engine.seconds = 0.0
    with pytest.raises(TrainingError, match="engine_timeout = 0 s"):
        policy.sample(PROMPTS, 6, seed=2)


@REAL
@pytest.mark.slow
@pytest.mark.parametrize("train", ["lora", "all"])
def test_a_real_engine_that_keeps_old_weights_stops_the_run(alone, monkeypatch, train):
    policy = alone(train=train)
    policy.sample(PROMPTS, 2, seed=1)
    monkeypatch.setattr(policy.engine, "refresh" if train == "all" else "refresh_adapters", lambda given: None)
    move(policy, 0.1)
    with pytest.raises(TrainingError, match="stale weights: training moved"):
        policy.sample(PROMPTS, 2, seed=2)
