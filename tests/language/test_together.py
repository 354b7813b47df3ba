"""Products of layers that read one input: the same numbers, in one call where their weights lie side by side."""

import pytest
import tiny
import torch
from torch import nn

from anygrpo.language.compute.mirror import mirror, refresh
from anygrpo.language.compute.narrow import Narrow
from anygrpo.language.kernels import together


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """The forward that a GPU takes, and how many products it made."""
    calls = []

    def forward(self, x):
        return self._together.product(self, x)

    linear = together.F.linear
    monkeypatch.setattr(together, "_forward", forward)
    monkeypatch.setattr(together.F, "linear", lambda *given: calls.append(given[1].shape[0]) or linear(*given))
    return calls


def test_weights_side_by_side_are_one_weight():
    whole = torch.randn(7, 3)
    a, b = whole.split([4, 3])
    made = together.joined([a, b])
    assert torch.equal(made, whole)
    assert made.data_ptr() == whole.data_ptr()
    assert together.joined([b, a]) is None
    assert together.joined([a, b.clone()]) is None
    bias = torch.randn(7)
    assert torch.equal(together.joined(list(bias.split([4, 3]))), bias)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_casts_lie_side_by_side_and_serve_as_one_product(kind, as_on_a_gpu):
    core = tiny.model(kind).requires_grad_()
    twin = Narrow(core, torch.bfloat16)
    twin.refresh()
    sampler, ids = mirror(twin.model), torch.arange(9)[None]
    with torch.no_grad():
        before = sampler(ids).logits
        assert together.fuse_together(sampler) == 10  # two layers of three and two
        as_on_a_gpu.clear()
        made = sampler(ids).logits
    torch.testing.assert_close(made, before, rtol=2e-2, atol=2e-2)
    attention = core.model.layers[0].self_attn
    wide = sum(getattr(attention, f"{n}_proj").out_features for n in "qkv")
    assert as_on_a_gpu[:4] == [wide, 32, 2 * 48, 32]  # queries, keys, values; output; gate and up; down
    assert len(as_on_a_gpu) == 2 * 4 + 1  # and the head


def test_copies_of_merged_adapters_lie_side_by_side_too(as_on_a_gpu):
    core = tiny.model("llama")
    twin = mirror(core)
    together.fuse_together(twin)
    refresh(twin, [(n, p + 0) for n, p in core.named_parameters()], torch.float32)
    attention = twin.model.layers[0].self_attn
    assert together.joined([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight]) is not None
    address = attention.q_proj.weight.data_ptr()
    refresh(twin, [(n, 2 * p) for n, p in core.named_parameters()], torch.float32)
    assert attention.q_proj.weight.data_ptr() == address  # captured graphs hold it
    assert torch.equal(attention.k_proj.weight, 2 * core.model.layers[0].self_attn.k_proj.weight)


def test_a_layer_asked_twice_or_alone_answers_from_its_own_input():
    layers = [nn.Linear(3, n, bias=False) for n in (4, 2)]
    whole = torch.randn(6, 3)
    for layer, part in zip(layers, whole.split([4, 2])):
        layer.weight = nn.Parameter(part, requires_grad=False)
    both = together.Together(layers)
    x, y = torch.randn(2, 5, 3)
    with torch.no_grad():
        for layer, given in ((0, x), (0, y), (1, x), (1, x), (0, x), (1, y)):
            torch.testing.assert_close(both.product(layers[layer], given), given @ layers[layer].weight.t())
