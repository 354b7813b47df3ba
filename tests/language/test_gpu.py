"""What only a GPU runs: captured decoding with places that are refilled, drawing, fused products, sizes by trial."""

import pytest
import seeing
import tiny
import torch
from PIL import Image

from anygrpo.language.build import from_model
from anygrpo.language.compute import support as drawing
from anygrpo.language.compute.attention import install
from anygrpo.language.compute.mirror import mirror
from anygrpo.language.compute.narrow import Narrow
from anygrpo.language.compute.output_layer import head_of
from anygrpo.language.engine import captured, shapes
from anygrpo.language.engine.group import generate_groups
from anygrpo.language.generation import Sampling, Support
from anygrpo.language.kernels import logits, together
from anygrpo.language.settings import CausalLMConfig
from anygrpo.language.tasks.pictures import reference

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.mark.parametrize("rows", [None, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_captured_steps_are_group_decoding_also_with_refilled_places(rows, dtype, monkeypatch):
    monkeypatch.setattr(captured, "LOOK", 3)
    monkeypatch.setattr(captured, "NARROW", 16)
    model = tiny.model("qwen2").to("cuda", dtype)
    install(model)
    head = head_of(model, True)
    support = Support(eos_ids=(1, 5), never=(7, 9), min_new_tokens=2, temperature=0.9)
    sampling = Sampling(support, 60, rows=rows)
    keeper = shapes.Captured(model)
    with torch.no_grad():
        for seed in (0, 1):
            ours = keeper.generate(head, tiny.PROMPTS, 4, sampling, seed)
            theirs = generate_groups(model, head, tiny.PROMPTS, 4, Sampling(support, 60), seed)
            decoder = next(iter(keeper.decoders.values()))
            assert decoder.capture
            assert not bool(((ours.ids == 7) | (ours.ids == 9)).any())
            assert all(level.graph is not None for level in decoder.levels.values() if level.bytes)
            width = min(ours.ids.shape[1], theirs.ids.shape[1])
            same = (ours.ids[:, :width] == theirs.ids[:, :width]).cumprod(1).bool() & ours.chosen[:, :width]
            if dtype == torch.float32:
                assert torch.equal(ours.ids, theirs.ids)
                assert torch.equal(ours.lengths, theirs.lengths)
            assert same.float().sum() > 0.5 * ours.chosen.float().sum()
            gap = (ours.log_probs[:, :width] - theirs.log_probs[:, :width]).abs()[same].max()
            assert gap < (1e-4 if dtype == torch.float32 else 0.1)


def test_draws_are_those_of_the_whole_sum(monkeypatch):
    z = 2 * torch.randn(512, 151936, device="cuda")
    uniform = torch.rand(512, device="cuda")
    assert logits.picks(z, 128)
    token, log_prob = drawing.draw(z, uniform)
    edges = z.double().softmax(1).cumsum(1)
    reached = edges.gather(1, token[:, None])[:, 0]
    mass = z.double().softmax(1).gather(1, token[:, None])[:, 0]
    assert (reached > uniform - 1e-5).all()
    assert (reached - mass <= uniform + 1e-5).all()
    torch.testing.assert_close(log_prob, z.log_softmax(1).gather(1, token[:, None])[:, 0], rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_products_together_are_those_apart(kind):
    twin = Narrow(tiny.model(kind).cuda().requires_grad_(), torch.bfloat16)
    twin.refresh()
    sampler, ids = mirror(twin.model), torch.arange(9, device="cuda")[None]
    with torch.no_grad():
        before = sampler(ids).logits
        assert together.fuse_together(sampler) == 10
        torch.testing.assert_close(sampler(ids).logits, before, rtol=5e-2, atol=5e-2)


def test_blocks_and_rows_are_chosen_from_what_the_gpu_does():
    table = {"kind": "causal_lm", "model": "memory", "train": "all", "max_new_tokens": 6, "chat_template": False}
    policy = from_model(tiny.model().cuda(), tiny.tokenizer(), CausalLMConfig.model_validate(table))
    rollout = policy.sample([{"prompt": f"w{i} w5"} for i in range(4)], 3, seed=0)
    said = policy.settle({name: x.flatten(0, 1) for name, x in rollout.samples.items()}, 0)
    assert policy.speed["token_budget"] >= 256
    assert policy.speed["decode_rows"] >= 12
    assert said.startswith("speed: blocks of ")
    assert all(p.grad is None for p in policy.parameters())
    assert policy.settle({}, 0) == ""


def test_a_policy_that_sees_samples_by_captured_steps():
    model, processor = seeing.llava()
    table = {
        "kind": "causal_lm",
        "model": "memory",
        "dtype": "float32",
        "max_new_tokens": 5,
        "vision": {"train": "both"},
    }
    policy = from_model(model.cuda(), processor, CausalLMConfig.model_validate(table))
    pictures = [reference(Image.new("RGB", (20, 14), color), "here") for color in ("red", "blue")]
    prompts = [[{"type": "image", "image": one}, {"type": "text", "text": "What is this?"}] for one in pictures]
    rollout = policy.sample([{"prompt": [{"role": "user", "content": parts}]} for parts in prompts], 3, seed=0)
    assert policy.parity < 1e-4
    decoders = list(policy.engine._captured.decoders.values())
    assert decoders
    assert all(decoder.capture for decoder in decoders)
    assert not bool((rollout.samples["completion_ids"] == policy.prompts.pictures.token).any())
