"""The Triton kernels: compiled where there is a GPU, else by Triton's own interpreter (`pip install triton`)."""

import os

import pytest
import torch
import torch.nn.functional as F

os.environ["TRITON_INTERPRET"] = str(int(not torch.cuda.is_available()))
pytest.importorskip("triton")

from transformers.models.qwen2.modeling_qwen2 import apply_rotary_pos_emb

from anygrpo.language.compute import support
from anygrpo.language.compute.cache import GroupCache, Step, Uneven
from anygrpo.language.kernels import gated as gate
from anygrpo.language.kernels import logits, rotary
from anygrpo.language.kernels.native import library

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
HEADS = [(14, 2, 64), (9, 3, 64), (4, 4, 96), (8, 1, 128)]


def made(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def uniforms(n: int) -> torch.Tensor:
    return torch.rand(n, generator=torch.Generator().manual_seed(1)).to(DEVICE)


def whole(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, device=DEVICE)


@pytest.fixture(autouse=True)
def no_compiled_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "usable", lambda x: False)


@pytest.mark.parametrize(("heads", "key_heads", "size"), HEADS)
def test_rotary_embedding_and_its_gradient_are_the_librarys(heads: int, key_heads: int, size: int) -> None:
    q = made(1, 5, heads, size).transpose(1, 2).requires_grad_()
    k = made(1, 5, key_heads, size, seed=1).transpose(1, 2).requires_grad_()
    cos, sin = made(2, 1, 5, size, seed=2)
    results = []
    for function in (rotary.rotate, apply_rotary_pos_emb):
        out = function(q, k, cos, sin)
        results.append([*out, *torch.autograd.grad([x.square().sum() for x in out], [q, k])])
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("heads", "key_heads", "size"), HEADS)
@pytest.mark.parametrize("place", [0, 3, 70, 130])
def test_a_decode_step_is_softmax_attention_also_after_rows_left(
    heads: int, key_heads: int, size: int, place: int
) -> None:
    lengths, rows = [150, 30, 300], [3, 2, 9]
    kept = [(made(key_heads, 480, size), made(key_heads, 480, size, seed=1))]
    own = made(2, 14, key_heads, 140, size, seed=2)
    new = [made(1, 14, n, size, seed=3 + i).transpose(1, 2) for i, n in enumerate((heads, key_heads, key_heads))]
    results = []
    for way in ("fused", "plain"):
        cache = GroupCache.of(kept, lengths, rows, width=140)
        cache.own_k[0][:], cache.own_v[0][:] = own[0], own[1]
        first = getattr(Step(cache, place), way)(0, *new, size**-0.5)
        cache.keep(whole([0, 2, 5, 6, 7, 12]), place + 1)  # the second prompt has no row left
        second = getattr(Step(cache, place + 1), way)(0, *(x[:, :, :6] for x in new), size**-0.5)
        results.append([first, second, cache.own_k[0], cache.own_v[0]])
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_log_probs_entropies_and_gradients_of_logits() -> None:
    assert logits._tried(DEVICE, torch.float32)


def test_a_logit_of_minus_infinity_has_no_mass_and_no_gradient() -> None:
    z = made(2, 100)
    z[:, 10:20] = float("-inf")
    targets = whole([0, 99])
    log_prob, lse, entropy = logits.normalise(z, targets, 1.0)
    log_p = torch.log_softmax(z, 1)
    torch.testing.assert_close(log_prob, log_p.gather(1, targets[:, None])[:, 0])
    finite = log_p.masked_fill(log_p == float("-inf"), 0.0)
    torch.testing.assert_close(entropy, -(log_p.exp() * finite).sum(1))
    dz = logits.grad_logits(
        z, targets, lse, entropy, torch.ones(2, device=DEVICE), torch.ones(2, device=DEVICE), 1.0, 1.0, torch.float32
    )
    assert dz.isfinite().all()
    assert (dz[:, 10:20] == 0).all()
    torch.testing.assert_close(dz.sum(1), torch.zeros(2, device=DEVICE), atol=1e-6, rtol=0)


def test_the_factor_of_raw_logits_is_chained() -> None:
    z, targets, g = made(3, 50), whole([1, 2, 3]), made(3, seed=1)
    _, lse, _ = logits.normalise(2.0 * z, targets, 0.5)
    ours = logits.grad_logits(2.0 * z, targets, lse, None, g, g, 0.5, 2.0, torch.float32)
    x = z.clone().requires_grad_()
    (g * torch.log_softmax(0.5 * (2.0 * x), 1).gather(1, targets[:, None])[:, 0]).sum().backward()
    torch.testing.assert_close(ours, x.grad)


def test_the_gate_and_its_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "usable", lambda x: True)
    assert gate._tried(DEVICE, torch.float32)
    a, b = made(2, 3, 1000).requires_grad_()
    out = gate.gated(a, b)
    assert type(out.grad_fn).__name__ == "_GateBackward"
    torch.testing.assert_close(out, F.silu(a) * b)
    weight = made(3, 1000, seed=1)
    ours = torch.autograd.grad((out * weight).sum(), [a, b])
    theirs = torch.autograd.grad((F.silu(a) * b * weight).sum(), [a, b])
    for x, y in zip(ours, theirs):
        torch.testing.assert_close(x, y)


def test_a_feed_forward_block_and_its_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "usable", lambda x: True)
    given = [made(*shape, seed=i).requires_grad_() for i, shape in enumerate(((2, 5, 8), (12, 8), (12, 8), (8, 12)))]
    results = []
    for function in (gate._FeedForward.apply, lambda x, g, u, d: F.linear(F.silu(F.linear(x, g)) * F.linear(x, u), d)):
        out = function(*given)
        results.append([out, *torch.autograd.grad((out * made(2, 5, 8, seed=9)).sum(), given)])
    for x, y in zip(*results):
        torch.testing.assert_close(x, y)


def test_draws_from_spans_are_those_of_the_whole_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    z, uniform = made(50, 3 * 64), uniforms(50)
    z[:, 64:128] = float("-inf")  # a span without mass
    plain = support.draw(z, uniform)
    monkeypatch.setattr(logits, "works", lambda x: True)
    for ours, theirs in zip(support.draw(z, uniform), plain):
        torch.testing.assert_close(ours, theirs)


def test_a_draw_in_two_launches_is_that_of_the_sum() -> None:
    z, uniform = made(60, 40 * 32) * 3, uniforms(60)
    z[:, 64:128] = float("-inf")  # spans without mass
    uniform[:3] = torch.tensor([0.0, 1 - 2**-24, 0.5])
    token, log_prob = logits.pick(z, uniform, 32)
    theirs, _ = support.draw(z.double(), uniform.double())
    assert (token == theirs).float().mean() > 0.95  # where a sum rounds across an edge the neighbour is as right
    assert (z.gather(1, token[:, None]) > float("-inf")).all()
    expected = z.log_softmax(1).gather(1, token[:, None])[:, 0]
    torch.testing.assert_close(log_prob, expected, rtol=0, atol=1e-5)
    edges = z.double().softmax(1).cumsum(1)
    reached = edges.gather(1, token[:, None])[:, 0]
    assert (reached >= uniform.double() - 1e-5).all()
    assert (reached - z.double().softmax(1).gather(1, token[:, None])[:, 0] <= uniform.double() + 1e-5).all()
    assert logits._pick_tried(DEVICE)


def test_the_gate_of_two_halves_of_one_product() -> None:
    a, b = made(1, 5, 2 * 1500).split([1500, 1500], -1)
    torch.testing.assert_close(gate._launch_rows(a, b), F.silu(a) * b)


def test_a_decode_step_takes_values_that_lie_apart_from_their_keys() -> None:
    kept, together = [(made(2, 40, 64), made(2, 40, 64, seed=1))], made(1, 3, 6, 64, seed=4)
    key, value = (together[:, :, i : i + 2].transpose(1, 2) for i in (0, 4))
    query = made(1, 3, 4, 64, seed=5).transpose(1, 2)
    outs = []
    for k in (key, key.contiguous()):
        cache = GroupCache.of(kept, [40], [3], width=8)
        outs.append(Step(cache, torch.zeros(1, dtype=torch.long, device=DEVICE), 8).fused(0, query, k, value, 0.1))
    torch.testing.assert_close(*outs, rtol=0, atol=0)


def test_rows_at_places_of_their_own_in_any_order() -> None:
    """As places are refilled: three prompts, five rows, not prompt by prompt."""
    kept = [(made(2, 90, 64), made(2, 90, 64, seed=1))]
    new = [made(1, 5, n, 64, seed=3 + i).transpose(1, 2) for i, n in enumerate((4, 2, 2))]
    row, places = whole([8, 3, 5, 0, 4]), whole([6, 0, 70, 3, 129])
    results = []
    for way in ("fused", "plain"):
        cache = GroupCache.of(kept, [40, 20, 30], [2, 2, 1], width=140)
        cache.slots, cache.refilled = 3, True
        cache.own_k[0][:], cache.own_v[0][:] = made(2, 5, 2, 140, 64, seed=9)
        cache.seat(row, 3)
        out = getattr(Uneven(cache, places, 140), way)(0, *new, 0.125)
        results.append([out, cache.own_k[0], cache.own_v[0]])
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-6)
