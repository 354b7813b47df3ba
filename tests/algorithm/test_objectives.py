"""Each loss by hand, its gradient, and what must hold for all of them."""

import math

import pytest
import torch

from anygrpo.algorithm import (
    OBJECTIVES,
    WHOLE_SEQUENCE,
    ClipSettings,
    log_ratio,
    loss_weights,
    ratio_stats,
    sequence_log_ratio,
)
from anygrpo.errors import AnygrpoError, ConfigError

INF, NAN = math.inf, math.nan
CLIP = ClipSettings(low=0.2, high=0.3)
MASK = torch.ones(1, 1, dtype=torch.bool)
POLICY_GRADIENT = ["ppo", "gspo", "cispo", "sapo", "reinforce"]


def run(name, ratios, advantages, mask=None, settings=CLIP):
    """Loss and gradient by the new log-probs, for rows of given ratios new / old with old = -1."""
    old = torch.full_like(torch.tensor(ratios), -1.0)
    new = (old + torch.tensor(ratios).log()).requires_grad_()
    a = torch.tensor(advantages)
    m = torch.ones_like(old, dtype=torch.bool) if mask is None else torch.tensor(mask)
    out = OBJECTIVES[name](new, old, a, m, settings)
    out.loss.sum().backward()
    return out, new.grad


def close(x, expected, atol=1e-5):
    torch.testing.assert_close(x, torch.as_tensor(expected, dtype=x.dtype), rtol=1e-5, atol=atol)


RATIOS = [[0.5, 0.9, 1.0, 1.2, 2.0]]


def test_ppo_by_hand_for_a_good_action():
    out, grad = run("ppo", RATIOS, [[2.0]])
    close(out.loss, [[-1.0, -1.8, -2.0, -2.4, -2.6]])
    close(grad, [[-1.0, -1.8, -2.0, -2.4, 0.0]])
    assert out.clipped_high.tolist() == [[False, False, False, False, True]]
    assert not out.clipped_low.any()


def test_ppo_by_hand_for_a_bad_action():
    out, grad = run("ppo", RATIOS, [[-2.0]])
    close(out.loss, [[1.6, 1.8, 2.0, 2.4, 4.0]])
    close(grad, [[0.0, 1.8, 2.0, 2.4, 4.0]])
    assert out.clipped_low.tolist() == [[True, False, False, False, False]]
    assert not out.clipped_high.any()
    assert not out.clipped_dual.any()


def test_dual_clip_by_hand():
    settings = ClipSettings(dual=1.5)
    out, grad = run("ppo", RATIOS, [[-2.0]], settings=settings)
    close(out.loss, [[1.6, 1.8, 2.0, 2.4, 3.0]])
    close(grad, [[0.0, 1.8, 2.0, 2.4, 0.0]])
    assert out.clipped_dual.tolist() == [[False, False, False, False, True]]
    assert not run("ppo", RATIOS, [[2.0]], settings=settings)[0].clipped_dual.any()


@pytest.mark.parametrize("name", ["ppo", "gspo", "cispo"])
def test_at_a_bound_itself_nothing_is_clipped(name):
    for a in (1.0, -1.0):
        out, _ = run(name, [[1.0]], [[a]], settings=ClipSettings(low=0.0, high=0.0))
        assert not (out.clipped_low | out.clipped_high).any()


def test_at_the_dual_bound_itself_nothing_is_clipped():
    assert not run("ppo", [[2.0]], [[-1.0]], settings=ClipSettings(dual=2.0))[0].clipped_dual.any()


@pytest.mark.parametrize("a", [0.5, 0.0])
def test_clips_act_against_the_advantage_alone(a):
    out, _ = run("ppo", [[0.1, 10.0]], [[a]], settings=ClipSettings(dual=3.0))
    assert out.clipped_high.tolist() == [[False, a > 0]]
    assert not (out.clipped_low | out.clipped_dual).any()


def test_advantages_per_decision():
    out, _ = run("ppo", [[1.0, 1.0], [1.0, 1.0]], [[1.0, -2.0], [0.0, 3.0]])
    close(out.loss, [[-1.0, 2.0], [0.0, -3.0]])


def test_gspo_by_hand():
    # ratios 2 and 1/2 cancel; 1.21 and 1 have the sequence ratio 1.1; 4 and 1 have 2, clipped
    out, grad = run("gspo", [[2.0, 0.5], [1.21, 1.0], [4.0, 1.0]], [[1.0], [-3.0], [1.0]])
    close(out.loss, [[-1.0, -1.0], [3.3, 3.3], [-1.3, -1.3]])
    close(grad, [[-1.0, -1.0], [3.3, 3.3], [0.0, 0.0]])
    assert out.clipped_high.tolist() == [[False, False], [False, False], [True, True]]


def test_gspo_has_the_gradient_of_the_sequence_form():
    torch.manual_seed(0)
    mask = torch.tensor([[True, True, True], [True, False, True]])
    old = torch.randn(2, 3).double()
    new = (old + 0.1 * torch.randn(2, 3)).requires_grad_()
    a = torch.tensor([[1.5], [-0.5]]).double()
    weights = loss_weights(mask, torch.ones(2, dtype=torch.bool), "sequence_mean")
    (weights * OBJECTIVES["gspo"](new, old, a, mask, ClipSettings(1, 9)).loss).sum().backward()
    ours, new.grad = new.grad, None
    length = mask.sum(1)
    ratio = torch.exp(((new - old) * mask).sum(1) / length)
    (-(ratio * a[:, 0]).mean()).backward()
    torch.testing.assert_close(ours, new.grad, rtol=1e-6, atol=1e-8)


def test_cispo_by_hand():
    out, grad = run("cispo", RATIOS, [[2.0]])
    close(grad, [[-1.6, -1.8, -2.0, -2.4, -2.6]])  # -2 x clipped ratio: no decision loses its gradient
    logs = [math.log(r) - 1 for r in RATIOS[0]]
    close(out.loss, [[-2 * w * x for w, x in zip([0.8, 0.9, 1, 1.2, 1.3], logs)]])
    assert out.clipped_low.tolist() == [[True, False, False, False, False]]
    assert out.clipped_high.tolist() == [[False, False, False, False, True]]


@pytest.mark.parametrize(("a", "tau"), [(2.0, 1.0), (0.5, 1.0), (-2.0, 1.05)])
def test_sapo_by_hand(a, tau):
    out, grad = run("sapo", [[1.0, 3.0]], [[a]])
    s = 1 / (1 + math.exp(-2 * tau))
    close(out.loss, [[-2 * a / tau, -4 * a / tau * s]])
    close(grad, [[-a, -4 * a * s * (1 - s) * 3.0]])
    assert not (out.clipped_low | out.clipped_high | out.clipped_dual).any()


def test_reinforce_supervised_and_rce_by_hand():
    logs = [math.log(0.5) - 1, -1.0]
    for name, a, factor in [("reinforce", -2.0, -2.0), ("supervised", -2.0, 1.0), ("rce", 2.0, 2.0)]:
        out, grad = run(name, [[0.5, 1.0]], [[a]])
        close(out.loss, [[-factor * x for x in logs]])
        close(grad, [[-factor, -factor]])


def test_rce_refuses_negative_weights():
    with pytest.raises(ConfigError, match="-2"):
        run("rce", [[1.0]], [[-2.0]])
    assert run("rce", [[0.5]], [[0.0]])[1].item() == 0  # top-one gives most candidates no weight


# --- what holds for all ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", POLICY_GRADIENT)
def test_before_the_first_update_every_gradient_is_the_policy_gradient(name):
    """Ratio 1: nothing clipped, nothing guarded, and the gradient is -A, though the loss may well be 0 in sum."""
    out, grad = run(name, [[1.0, 1.0], [1.0, 1.0]], [[3.0], [-3.0]])
    close(grad, [[-3.0, -3.0], [3.0, 3.0]])
    assert not (out.clipped_low | out.clipped_high | out.clipped_dual | out.guarded).any()
    if name == "ppo":
        assert out.loss.sum().item() == 0.0


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
@pytest.mark.parametrize("bad", [INF, -INF, NAN, 1e30])
def test_what_stands_at_masked_places_never_enters(name, bad):
    mask = torch.tensor([[True, False], [True, False]])
    clean_new, clean_old = torch.tensor([[-1.0, -1], [-2, -1]]), torch.tensor([[-1.1, -1], [-2.1, -1]])
    a = torch.tensor([[1.0], [0.5]])
    grads = []
    for new, old in [(clean_new, clean_old), (clean_new.clone(), clean_old.clone())]:
        if grads:
            new[:, 1], old[:, 1] = bad, -bad
        new = new.requires_grad_()
        out = OBJECTIVES[name](new, old, a, mask, CLIP)
        assert (out.loss[:, 1] == 0).all()
        assert not out.guarded.any()
        out.loss.sum().backward()
        grads.append((new.grad, out.loss.detach()))
    for x, y in zip(*grads):
        assert torch.equal(x, y)


@pytest.mark.parametrize("name", ["ppo", "gspo", "sapo"])
@pytest.mark.parametrize("far", [21.0, 100.0, 1e4, INF])
@pytest.mark.parametrize("a", [1.0, -1.0, 0.0])
def test_the_guard_counts_what_it_touches_and_nothing_else_loses_its_gradient(name, far, a):
    old = torch.zeros(2, 1)
    new = torch.tensor([[0.0], [far]]).requires_grad_()
    out = OBJECTIVES[name](new, old, torch.full((2, 1), a), torch.ones(2, 1, dtype=torch.bool), CLIP)
    out.loss.sum().backward()
    assert out.guarded.tolist() == [[False], [True]]
    assert out.loss[1].item() == 0
    close(new.grad[:1], [[-a]])
    assert new.grad[1].item() == 0


def test_below_the_guard_nothing_is_touched():
    _, grad = run("ppo", [[math.exp(15)]], [[-1.0]])
    close(grad / math.exp(15), [[1.0]])
    at_the_guard = OBJECTIVES["ppo"](torch.zeros(1, 1), torch.full((1, 1), -20.0), -torch.ones(1, 1), MASK, CLIP)
    assert not at_the_guard.guarded.any()
    out, grad = run("ppo", [[math.exp(3)]], [[-1.0]], settings=ClipSettings(guard=2.0))
    assert out.guarded.item()
    assert grad.item() == 0


def test_an_impossible_action_has_ratio_zero_and_a_finite_loss():
    new = torch.tensor([[-INF, -1.0]]).requires_grad_()
    out = OBJECTIVES["ppo"](new, torch.tensor([[-1.0, -1.0]]), torch.tensor([[-1.0]]), torch.ones(1, 2).bool(), CLIP)
    close(out.loss, [[0.8, 1.0]])


@pytest.mark.parametrize("name", ["ppo", "gspo", "sapo", "cispo", "reinforce"])
def test_nan_is_let_through_for_the_step_to_refuse(name):
    new = torch.tensor([[NAN]]).requires_grad_()
    out = OBJECTIVES[name](new, torch.zeros(1, 1), torch.ones(1, 1), torch.ones(1, 1).bool(), CLIP)
    assert out.loss.isnan().all()
    assert not out.guarded.any()


def test_settings_are_checked():
    for bad in ({"low": -0.1}, {"high": -0.1}, {"dual": 1.0}, {"tau_positive": 0.0}, {"tau_negative": -1.0}):
        with pytest.raises(ConfigError):
            ClipSettings(**bad)
    with pytest.raises(ConfigError):
        ClipSettings(tau_negative=0.0)
    assert ClipSettings(low=0, high=0, dual=1.1).dual == 1.1
    assert ClipSettings() == ClipSettings(0.2, 0.2, None, 1.0, 1.05, 20.0)
    assert ClipSettings(tau_positive=0.5, tau_negative=0.5).tau_negative == 0.5


def test_only_sequence_ratios_need_whole_rows():
    """Scored decision by decision, every other objective gives the same losses."""
    torch.manual_seed(1)
    old, new = -torch.rand(3, 4), -torch.rand(3, 4)
    a, mask = torch.rand(3, 1), torch.rand(3, 4) > 0.2
    for name, objective in OBJECTIVES.items():
        whole = objective(new, old, a, mask, CLIP).loss
        pieces = [objective(new[:, t : t + 1], old[:, t : t + 1], a, mask[:, t : t + 1], CLIP).loss for t in range(4)]
        assert torch.equal(whole, torch.cat(pieces, 1)) == (name not in WHOLE_SEQUENCE)


# --- ratios ----------------------------------------------------------------------------------------------------------


def test_log_ratio_shapes_and_mask():
    new, old = torch.tensor([[-1.0, NAN]]), torch.tensor([[-1.5, INF]])
    close(log_ratio(new, old, torch.tensor([[True, False]])), [[0.5, 0.0]])
    with pytest.raises(AnygrpoError, match=r"\(1, 2\), old \(1, 3\)"):
        log_ratio(new, torch.zeros(1, 3), torch.ones(1, 2).bool())


def test_sequence_log_ratio_is_a_mean_over_the_mask():
    new = torch.tensor([[1.0, 2.0, 9.0], [4.0, 4.0, 4.0]])
    mask = torch.tensor([[True, True, False], [False, False, False]])
    close(sequence_log_ratio(new, torch.zeros(2, 3), mask), [[1.5, 1.5, 0.0], [0, 0, 0]])


def test_the_sequence_ratio_is_the_same_number_at_each_decision():
    """Adding a decision's own log-ratio and taking it away again would round: .125 here, not .12499924."""
    new = torch.tensor([[100.0, 0.1, -99.9, 0.3]]).requires_grad_()
    value = sequence_log_ratio(new, torch.zeros(1, 4), torch.ones(1, 4, dtype=torch.bool))
    assert (value == value[0, 0]).all()
    assert value[0, 0].item() == pytest.approx(0.125, abs=2e-6)


def test_ratio_stats_by_hand():
    logs = torch.tensor([[math.log(2), math.log(0.5), 50.0]])
    stats = ratio_stats(logs, torch.tensor([[True, True, False]]))
    expected = {
        "log_ratio/mean": 0.0,
        "log_ratio/abs_max": math.log(2),
        "ratio/mean": 1.25,
        "ratio/max": 2.0,
        "ratio/ess": 2.5**2 / (2 * 4.25),
    }
    assert {k: pytest.approx(v, abs=1e-6) for k, v in expected.items()} == {k: v.item() for k, v in stats.items()}


def test_ratio_stats_hide_nothing():
    stats = ratio_stats(torch.tensor([[0.0, 400.0]]), torch.ones(1, 2).bool())
    assert stats["ratio/max"].item() == pytest.approx(math.exp(400), rel=1e-6)
    assert stats["ratio/ess"].item() == pytest.approx(0.5)
    assert ratio_stats(torch.tensor([[-3.0]]), torch.ones(1, 1).bool())["log_ratio/abs_max"].item() == 3.0
    empty = ratio_stats(torch.tensor([[5.0]]), torch.zeros(1, 1).bool())
    assert [v.item() for v in empty.values()] == [0, 0, 1, 1, 1]


# --- shapes of advantages


@pytest.mark.parametrize("name", sorted(set(OBJECTIVES) - {"supervised"}))
@pytest.mark.parametrize("shape", [(4,), (1, 4), (4, 4, 1), (3, 1), (4, 2), ()])
def test_advantages_of_another_shape_are_refused(name, shape):
    """[4] beside [4, 4] broadcasts, along the axis of decisions."""
    zero, mask = torch.zeros(4, 4), torch.ones(4, 4, dtype=torch.bool)
    with pytest.raises(AnygrpoError, match=r"4 rows of 4 decisions\n.*\[n, 1\] = \[4, 1\]"):
        OBJECTIVES[name](zero, zero, torch.ones(shape), mask, ClipSettings())


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_advantages_may_be_one_a_row_or_one_a_decision(name):
    new, mask = torch.full((3, 2), -0.5), torch.ones(3, 2, dtype=torch.bool)
    rows = torch.tensor([[1.0], [2.0], [0.5]])
    one = OBJECTIVES[name](new, new, rows, mask, ClipSettings()).loss
    each = OBJECTIVES[name](new, new, rows.expand(3, 2), mask, ClipSettings()).loss
    torch.testing.assert_close(one, each)
