"""The sampled distribution, its draws, and the blockwise log-probs with their gradients."""

import math

import pytest
import torch

from anygrpo.language.compute import head as head_module
from anygrpo.language.compute.head import Head, score
from anygrpo.language.compute.support import draw, restrict
from anygrpo.language.generation import Support

LOG = torch.tensor([0.5, 0.25, 0.15, 0.1]).log()
ZERO = torch.zeros(1, dtype=torch.long)


def kept(support: Support, logits: torch.Tensor = LOG, decision: int = 0) -> list[int]:
    z = restrict(logits[None], support, torch.tensor([decision]))
    return (z[0] > -math.inf).nonzero()[:, 0].tolist()


@pytest.mark.parametrize(
    ("support", "expected"),
    [
        (Support(), [0, 1, 2, 3]),
        (Support(top_k=2), [0, 1]),
        (Support(top_p=0.5), [0]),
        (Support(top_p=0.51), [0, 1]),
        (Support(top_p=0.76), [0, 1, 2]),
        (Support(top_p=1e-9), [0]),
        (Support(min_p=0.25), [0, 1, 2]),
        (Support(min_p=0.6), [0]),
        # .5 / .75 = .667 of what top_k left already reaches .6
        (Support(top_k=2, top_p=0.6), [0]),
        # p^2: .25, .0625, ... over .345: .725, .181
        (Support(temperature=0.5, top_p=0.73), [0, 1]),
        (Support(min_new_tokens=1, eos_ids=(0, 2)), [1, 3]),
    ],
)
def test_cuts_by_hand(support, expected):
    assert kept(support) == expected


def test_end_tokens_are_possible_again_after_min_new_tokens():
    assert kept(Support(min_new_tokens=3, eos_ids=(1,)), decision=2) == [0, 2, 3]
    assert kept(Support(min_new_tokens=3, eos_ids=(1,)), decision=3) == [0, 1, 2, 3]


def test_the_input_is_not_changed():
    logits = LOG[None].clone()
    restrict(logits, Support(min_new_tokens=1, eos_ids=(0,)), ZERO)
    assert torch.equal(logits[0], LOG)


def test_draws_by_hand():
    # Cumulative: .5, .75, .9, 1.
    z = LOG.expand(5, -1)
    token, log_prob = draw(z, torch.tensor([0.0, 0.49, 0.51, 0.8, 1 - 2**-24]))
    assert token.tolist() == [0, 0, 1, 2, 3]
    torch.testing.assert_close(log_prob, LOG[token])


def test_a_token_without_mass_is_never_drawn():
    z = restrict(
        torch.zeros(4096, 50), Support(min_new_tokens=1, eos_ids=(0, 17, 49)), torch.zeros(4096, dtype=torch.long)
    )
    token, _ = draw(z, torch.linspace(0, 1 - 2**-24, 4096))
    assert not set(token.tolist()) & {0, 17, 49}
    assert set(token.tolist()) == set(range(50)) - {0, 17, 49}


def test_draws_follow_the_distribution():
    uniform = torch.rand(20_000, generator=torch.Generator().manual_seed(1))
    token, _ = draw(LOG.expand(20_000, -1), uniform)
    shares = torch.bincount(token, minlength=4) / 20_000
    torch.testing.assert_close(shares, LOG.exp(), atol=0.012, rtol=0)


def reference_scores(h, w, bias, targets, support, decision, cap, ref):
    """The same by autograd over whole logits."""

    def log_p(x, weight, b, cut=None):
        z = x @ weight.t() + (0 if b is None else b)
        z = z if cap is None else cap * torch.tanh(z / cap)
        if cut is None:
            return torch.log_softmax(restrict(z, support, decision, targets), 1)
        return torch.log_softmax((z / support.temperature).masked_fill(~cut, -math.inf), 1)

    own = log_p(h, w, bias)
    inside = own > -math.inf
    safe = own.masked_fill(~inside, 0.0)
    p = own.exp()
    entropy = -(p * safe).sum(1)
    q = log_p(*ref, cut=inside).masked_fill(~inside, 0.0)
    return own.gather(1, targets[:, None])[:, 0], entropy, (p * (safe - q)).sum(1)


@pytest.mark.parametrize("cap", [None, 2.0])
@pytest.mark.parametrize(
    "support",
    [Support(), Support(temperature=0.7), Support(top_k=5), Support(temperature=1.3, top_p=0.8, min_p=0.05)],
)
def test_values_and_gradients_equal_autograds_over_whole_logits(support, cap, monkeypatch):
    monkeypatch.setattr(head_module, "BLOCK", 4)
    torch.manual_seed(0)
    n, width, vocabulary = 10, 6, 23
    make = lambda *shape: torch.randn(*shape, dtype=torch.float64)  # noqa: E731
    h, w, bias = (x.requires_grad_() for x in (make(n, width), make(vocabulary, width), make(vocabulary)))
    ref = (make(n, width), make(vocabulary, width), make(vocabulary))
    targets, decision = torch.randint(0, vocabulary, (n,)), torch.arange(n)
    ours = score(h, Head(w, bias, cap), targets, support, decision, True, (ref[0], Head(ref[1], ref[2], cap)))
    theirs = reference_scores(h, w, bias, targets, support, decision, cap, ref)
    coefficients = [make(n) for _ in range(3)]
    gradients = []
    for values in ((ours.log_probs, ours.entropy, ours.kl), theirs):
        loss = sum((c * v).sum() for c, v in zip(coefficients, values))
        gradients.append(torch.autograd.grad(loss, (h, w, bias)))
    for a, b in zip((ours.log_probs, ours.entropy, ours.kl), theirs):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-12)
    for a, b in zip(*gradients):
        torch.testing.assert_close(a, b, atol=1e-11, rtol=1e-11)


def test_entropy_and_kl_by_hand():
    # One hidden unit of 1: the weights are the logits.
    p, q = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.25, 0.5, 0.25])
    one = torch.ones(1, 1)
    made = score(one, Head(p.log()[:, None]), ZERO, Support(), ZERO, True, (one, Head(q.log()[:, None])))
    assert made.entropy.item() == pytest.approx(1.5 * math.log(2), abs=1e-6)
    assert made.kl.item() == pytest.approx(0.25 * math.log(2), abs=1e-6)
    assert made.log_probs.item() == pytest.approx(-math.log(2), abs=1e-6)


def test_a_taken_token_outside_a_moved_support_keeps_a_finite_log_prob():
    one = torch.ones(1, 1)
    made = score(one, Head(LOG[:, None]), torch.tensor([3]), Support(top_k=1), ZERO)
    assert made.log_probs.item() == pytest.approx(math.log(0.1 / 0.6), abs=1e-6)


def test_whole_logits_never_exist(monkeypatch):
    """The largest tensor made on the way has BLOCK rows, not n."""
    from torch.utils._python_dispatch import TorchDispatchMode

    monkeypatch.setattr(head_module, "BLOCK", 8)
    largest = [0]

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            for x in out if isinstance(out, (tuple, list)) else (out,):
                if isinstance(x, torch.Tensor):
                    largest[0] = max(largest[0], x.numel())
            return out

    h, w = torch.randn(64, 4, requires_grad=True), torch.randn(100, 4, requires_grad=True)
    targets, decision = torch.zeros(64, dtype=torch.long), torch.zeros(64, dtype=torch.long)
    with Watch():
        score(h, Head(w, cap=30.0), targets, Support(), decision, entropy=True).log_probs.sum().backward()
    assert largest[0] == 8 * 100


def test_bfloat16_body_with_a_precise_head_is_nearer_the_truth():
    torch.manual_seed(0)
    h, w = torch.randn(32, 64), torch.randn(200, 64)
    targets, decision = torch.randint(0, 200, (32,)), torch.zeros(32, dtype=torch.long)
    hb, wb = h.bfloat16(), w.bfloat16()
    exact = score(hb.double(), Head(wb.double()), targets, Support(), decision).log_probs

    def error(precise: bool) -> float:
        made = score(hb, Head(wb, precise=precise), targets, Support(), decision).log_probs
        return (made - exact).abs().max().item()

    assert error(True) < 2e-5
    assert error(False) > 1e-2


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_kept_probabilities_give_the_same_also_twice(temperature, monkeypatch):
    monkeypatch.setattr(head_module, "BLOCK", 4)
    torch.manual_seed(0)
    make = lambda *shape: torch.randn(*shape, dtype=torch.float64).requires_grad_()  # noqa: E731
    inputs, targets = (make(10, 6), make(23, 6), make(23)), torch.randint(0, 23, (10,))
    weight, results = torch.randn(10, dtype=torch.float64), []
    for limit in (10 * 23 * 8, 10 * 23 * 8 - 1):
        monkeypatch.setattr(head_module, "KEPT", limit)
        h, w, bias = inputs
        given = (h, Head(w, bias, scale=1.5), targets, Support(temperature=temperature), torch.arange(10))
        made, both = score(*given).log_probs, score(*given, entropy=True)
        loss = (weight * made).sum() + (weight.square() * both.entropy).sum() + both.log_probs.sum()
        first = torch.autograd.grad(loss, inputs, retain_graph=True)
        second = torch.autograd.grad(loss, inputs)
        assert all(torch.equal(a, b) for a, b in zip(first, second))
        logged = torch.autograd.grad(score(*given, entropy=True).log_probs.sum(), inputs)
        results.append([made, both.log_probs, both.entropy, *first, *logged])
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-12)


def test_a_sure_target_keeps_its_gradient_in_bfloat16():
    """1 - p = .0009 is less than half a step of bfloat16 below 1."""
    hidden = torch.ones(1, 1, dtype=torch.bfloat16)
    weight = torch.tensor([[7.0], [0.0], [-40.0]]).bfloat16().requires_grad_()
    score(hidden, Head(weight), ZERO, Support(), ZERO).log_probs.sum().backward()
    sure = 1 / (1 + math.exp(-7.0))
    expected = torch.tensor([1 - sure, sure - 1, 0.0])
    torch.testing.assert_close(weight.grad[:, 0].float(), expected, rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("precise", [False, True])
@pytest.mark.parametrize("rows", [3, 40])
def test_kept_bfloat16_exponentials_give_the_gradients_of_a_head_that_keeps_none(monkeypatch, rows, precise):
    monkeypatch.setattr(head_module, "BLOCK", 16)
    torch.manual_seed(0)
    h = torch.randn(rows, 16).bfloat16().requires_grad_()
    w = torch.randn(90, 16).bfloat16().requires_grad_()
    targets, results = torch.randint(0, 90, (rows,)), []
    for limit in (2**28, 0):
        monkeypatch.setattr(head_module, "KEPT", limit)
        made = score(h, Head(w, precise=precise), targets, Support(temperature=0.8), targets, entropy=True)
        loss = made.log_probs.sum() + 0.3 * made.entropy.sum()
        results.append([made.log_probs, made.entropy, *torch.autograd.grad(loss, (h, w))])
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=1e-2 * float(theirs.detach().abs().max()))


def test_no_more_probabilities_are_kept_than_allowed(monkeypatch):
    h, w = torch.randn(8, 4, requires_grad=True), torch.randn(100, 4)
    targets = torch.zeros(8, dtype=torch.long)
    kept = []
    for limit in (8 * 100 * 4, 8 * 100 * 4 - 1):
        monkeypatch.setattr(head_module, "KEPT", limit)
        with torch.autograd.graph.saved_tensors_hooks(lambda x: kept[-1].append(x.numel()) or x, lambda x: x):
            kept.append([])
            score(h, Head(w), targets, Support(), targets)
    assert kept[0].count(800) == 1
    assert 800 not in kept[1]


def test_a_logit_of_minus_infinity_leaves_entropy_a_number():
    weight = torch.tensor([0.5, 0.5, 0.0]).log()[:, None]
    made = score(torch.ones(1, 1), Head(weight), ZERO, Support(), ZERO, entropy=True)
    assert made.entropy.item() == pytest.approx(math.log(2), abs=1e-6)
