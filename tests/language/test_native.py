"""Compiled kernels for a CPU beside the same computation in float64, and what happens without a compiler."""

import logging

import pytest
import torch
import torch.nn.functional as F

from anygrpo.language.compute.cache import GroupCache, Step
from anygrpo.language.compute.support import draw
from anygrpo.language.kernels import linear, logits, norms, rotary
from anygrpo.language.kernels.native import calls, library

needs_compiler = pytest.mark.skipif(library.library() is None, reason="no C++ compiler")
both = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
NEAR = {torch.float32: 2e-6, torch.bfloat16: 8e-3}  # of the largest entry: half a unit of bfloat16's last place


def made(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_near(got, exact, near=None):
    bound = NEAR[got.dtype] if near is None else near
    assert ((got.double() - exact).abs().max() / exact.abs().max()).item() < bound


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """An empty cache folder, and nothing remembered before or after."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library.library.cache_clear()
    yield tmp_path / "anygrpo" / "native"
    library.library.cache_clear()


@needs_compiler
def test_the_library_is_compiled_once_and_kept(fresh, monkeypatch):
    assert library.library() is not None
    (kept,) = fresh.iterdir()
    library.library.cache_clear()
    monkeypatch.setattr(library.subprocess, "run", lambda *a, **k: pytest.fail("compiled again"))
    assert library.library() is not None
    assert [kept] == list(fresh.iterdir())


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (lambda m: m.setattr(library.shutil, "which", lambda name: None), "no C++ compiler"),
        (lambda m: m.setattr(library, "FLAGS", ("-no-such-flag",)), "no-such-flag"),
    ],
)
def test_without_a_working_compiler_torch_computes_and_the_log_says_why_once(fresh, monkeypatch, caplog, fault, said):
    fault(monkeypatch)
    with caplog.at_level(logging.WARNING, "anygrpo"):
        assert library.library() is None
        assert not library.usable(torch.zeros(1))
    assert len(caplog.messages) == 1
    assert "not used" in caplog.messages[0]
    assert said in caplog.messages[0] or "fatal" in caplog.messages[0]


def test_the_switch_leaves_the_kernels_out_without_a_word(fresh, monkeypatch, caplog):
    monkeypatch.setenv(library.SWITCH, "0")
    assert library.library() is None
    assert not caplog.messages
    assert not fresh.exists()


def test_other_types_are_left_to_torch():
    assert not library.usable(torch.zeros(1, dtype=torch.float64))
    assert not library.usable(torch.zeros(1, dtype=torch.float16))


@needs_compiler
@pytest.mark.parametrize("rows", [1, 31, 32, 33, 64])
@pytest.mark.parametrize(("inner", "outer"), [(50, 45), (576, 8), (7, 1), (64, 192)])
def test_products_of_few_rows(rows, inner, outer):
    x, weight = made(rows, inner), made(outer, inner, seed=1)
    assert_near(calls.thin(x, weight), x.double() @ weight.double().t())


@needs_compiler
def test_a_linear_layer_takes_the_kernel_for_few_rows_without_gradients_alone(monkeypatch):
    taken = []
    assert linear._tried()
    monkeypatch.setattr(linear.calls, "thin", lambda x, w: taken.append(len(x)) or F.linear(x, w))
    layer = torch.nn.Sequential(torch.nn.Linear(6, 5))
    assert linear.fuse_linears(layer) == 1
    with torch.no_grad():
        for x in (made(linear.ROWS[torch.float32], 6), made(linear.ROWS[torch.float32] + 1, 6), made(0, 6)):
            torch.testing.assert_close(layer(x), F.linear(x, layer[0].weight, layer[0].bias))
    layer(made(3, 6))
    with torch.no_grad():  # in bfloat16 the product is turned, and contiguous all the same
        x = made(2, 3, 6, dtype=torch.bfloat16)
        out = layer.bfloat16()(x)
        assert out.is_contiguous()
        torch.testing.assert_close(out, F.linear(x, layer[0].weight, layer[0].bias), rtol=0, atol=8e-3)
    assert taken == [linear.ROWS[torch.float32]]


@needs_compiler
@both
def test_norms_and_their_gradients(dtype):
    x, w, g = made(2, 37, 48, dtype=dtype), made(48, seed=1, dtype=dtype), made(2, 37, 48, seed=2, dtype=dtype)
    exact_x, exact_w = x.double().requires_grad_(), w.double().requires_grad_()
    exact = exact_x * (exact_x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * exact_w
    dx, dw = torch.autograd.grad(exact, (exact_x, exact_w), g.double())
    out, scale = calls.norm(x, w, 1e-5)
    assert_near(out, exact.detach(), 2 * NEAR[dtype])  # in bfloat16 rounded twice, as by the library
    got_x, got_w = calls.norm_grad(g, x, w, scale)
    assert_near(got_x, dx)
    assert_near(got_w, dw, NEAR[dtype])


@needs_compiler
@both
def test_the_gate_and_its_gradients(dtype):
    a, b, g = (made(7, 301, seed=s, dtype=dtype) for s in range(3))
    exact_a, exact_b = a.double().requires_grad_(), b.double().requires_grad_()
    exact = F.silu(exact_a) * exact_b
    da, db = torch.autograd.grad(exact, (exact_a, exact_b), g.double())
    assert_near(calls.gate(a, b), exact.detach())
    for got, wanted in zip(calls.gate_grad(g.clone(), a, b), (exact.detach(), da, db)):
        assert_near(got, wanted)


@needs_compiler
def test_the_gate_at_the_ends_of_the_range():
    a = torch.tensor([-1e4, -90.0, -20.0, 0.0, 20.0, 90.0, 1e4, float("nan")])
    out = calls.gate(a, torch.ones(8))
    torch.testing.assert_close(out, F.silu(a), equal_nan=True, rtol=1e-6, atol=1e-30)


@needs_compiler
@both
def test_rotary_embedding_and_back(dtype):
    x, cos, sin = (
        made(1, 5, 3, 16, dtype=dtype),
        made(1, 5, 16, seed=1, dtype=dtype),
        made(1, 5, 16, seed=2, dtype=dtype),
    )
    x = x.transpose(1, 2)
    turn = lambda v: torch.cat([-v[..., 8:], v[..., :8]], -1)  # noqa: E731
    exact_x = x.double().requires_grad_()
    exact = exact_x * cos.double()[:, None] + turn(exact_x) * sin.double()[:, None]
    assert_near(calls.rotate(x, cos, sin, back=False), exact.detach())
    g = made(1, 3, 5, 16, seed=3, dtype=dtype)
    assert_near(calls.rotate(g, cos, sin, back=True), torch.autograd.grad(exact, exact_x, g.double())[0])


@needs_compiler
def test_modules_fall_back_where_types_differ():
    x, table = made(1, 2, 5, 8, dtype=torch.bfloat16), made(1, 5, 8)
    assert not rotary._fits(x, x, table, table)  # a float32 table: the library's result is float32
    assert not norms._compiled(made(3, 8, dtype=torch.bfloat16), made(8))
    assert not norms._compiled(made(8, 3).t(), made(8))


@needs_compiler
def test_sums_over_spans():
    z = made(3, 512) * 20
    z[0, :256], z[1, 5] = float("-inf"), float("nan")
    peak, mass = calls.spans(z, 256)
    top = z.view(3, 2, 256).amax(2)
    assert peak[0].tolist() == [float("-inf"), top[0, 1].item()]
    assert mass[0, 0] == 0
    assert mass[1, 0].isnan()
    assert_near(mass[2], (z[2].double().view(2, 256) - top[2, :, None]).exp().sum(1))


@needs_compiler
def test_draws_are_those_of_torchs_sums(monkeypatch):
    z, uniform = made(64, 1024) * 3, torch.rand(64, generator=torch.Generator().manual_seed(1))
    ours = draw(z, uniform)
    monkeypatch.setattr(logits, "sums_spans", lambda z: False)
    theirs = draw(z, uniform)
    assert torch.equal(ours[0], theirs[0])
    torch.testing.assert_close(ours[1], theirs[1], rtol=0, atol=2e-6)


@needs_compiler
@both
@pytest.mark.parametrize(("heads", "key_heads"), [(6, 2), (4, 4), (32, 1), (5, 1)])
@pytest.mark.parametrize("place", [0, 4])
def test_a_decode_step_is_attention_also_after_rows_left(dtype, heads, key_heads, place):
    lengths, rows, size, width = [9, 4, 21], [3, 12, 1], 24, 6
    kept = [(made(key_heads, 34, size, dtype=dtype), made(key_heads, 34, size, seed=1, dtype=dtype))]
    results = []
    for way in ("fused", "plain"):
        cache = GroupCache.of(kept, lengths, rows, width)
        cache.own_k[0][:], cache.own_v[0][:] = made(2, 16, key_heads, width, size, seed=2, dtype=dtype)
        cache.keep(torch.tensor([0, 2, *range(4, 16)]), place)
        given = [
            made(14, h, size, seed=s, dtype=dtype).transpose(0, 1)[None]
            for s, h in ((3, heads), (4, key_heads), (5, key_heads))
        ]
        out = getattr(Step(cache, place), way)(0, *given, 0.3)
        results.append((out, cache.own_k[0], cache.own_v[0]))
    assert results[0][0].shape == (1, 14, heads, size)
    assert_near(results[0][0], results[1][0].double(), 4 * NEAR[dtype])
    assert all(torch.equal(a, b) for a, b in zip(results[0][1:], results[1][1:]))


def test_more_queries_a_key_than_a_kernel_takes_are_left_to_torch():
    from anygrpo.language.kernels import decoding

    key = torch.zeros(1, 1, 2, 8)
    assert decoding.fits(torch.zeros(1, calls.WIDE, 2, 8), key, 0) == (library.library() is not None)
    assert not decoding.fits(torch.zeros(1, calls.WIDE + 1, 2, 8), key, 0)
    assert not decoding.fits(torch.zeros(1, 1, 2, 8), key, torch.zeros(1))


@needs_compiler
def test_threads_share_the_work(monkeypatch):
    a, b = made(9, 1111), made(9, 1111, seed=1)
    x, w = made(9, 64), made(64)
    one = [calls.gate(a, b), calls.norm(x, w, 1e-5)[0], calls.thin(x, made(65, 64))]
    monkeypatch.setattr(calls.torch, "get_num_threads", lambda: 3)
    three = [calls.gate(a, b), calls.norm(x, w, 1e-5)[0], calls.thin(x, made(65, 64))]
    assert all(torch.equal(p, q) for p, q in zip(one, three))
    scale = calls.norm(x, w, 1e-5)[1]
    dx, dw = calls.norm_grad(made(9, 64, seed=2), x, w, scale)
    monkeypatch.undo()
    torch.testing.assert_close((dx, dw), calls.norm_grad(made(9, 64, seed=2), x, w, scale))


def test_a_norm_is_found_whatever_its_weight_holds_at_the_time():
    """A twin's casts were once memory not yet written: NaN in it left the norms to the library."""
    norm = SimpleRMSNorm()
    norm.weight.data.fill_(float("nan"))
    held = norm.weight
    assert norms.fuse_norms(norm) == 1
    assert norm.weight is held
    norm.weight.data.copy_(made(8))
    torch.testing.assert_close(norm(made(3, 8)), SimpleRMSNorm.forward(norm, made(3, 8)))


class SimpleRMSNorm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.eps = torch.nn.Parameter(torch.ones(8)), 1e-6

    def forward(self, x):
        return self.weight * (x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt())


@needs_compiler
@both
def test_log_probs_of_a_block_and_the_gradient_of_its_logits(dtype):
    z, targets = made(5, 300, dtype=dtype) * 6, torch.tensor([0, 299, 7, 3, 250])
    z[1, :100], z[2, 7], z[4, 5] = float("-inf"), float("-inf"), float("nan")
    log_p = (z.double() * 0.7).log_softmax(1)
    p = z.clone()
    lp, total, entropy = calls.normalise(p, targets, 0.7)
    assert lp[2] == float("-inf")
    assert lp[4].isnan()
    assert entropy[4].isnan()
    for got, exact in (
        (lp, log_p.gather(1, targets[:, None])[:, 0]),
        (entropy, -torch.xlogy(log_p.exp(), log_p.exp()).sum(1)),
    ):
        assert_near(got[[0, 1, 3]], exact[[0, 1, 3]], 2e-6)
    x = z[:4].double() * 0.7
    assert_near(p[:4], (x - x.amax(1, keepdim=True)).exp())
    g = torch.tensor([1.0, -2.0, 0.0, 0.5, 1.0])
    out = calls.grad_logits(p[:4], total[:4], g[:4], 0.7)
    assert_near(out, -0.7 * g[:4, None] * log_p[:4].exp(), 2 * NEAR[dtype])
