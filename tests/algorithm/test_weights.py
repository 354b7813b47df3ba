"""The denominator: by hand, and that no way to split, pad, order or spread the rows changes the gradient."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anygrpo.algorithm import OBJECTIVES, REDUCTIONS, WHOLE_SEQUENCE, ClipSettings, counts, loss_weights, row_weights
from anygrpo.errors import AnygrpoError, ConfigError

T, F = True, False
# Rows of 3, 1, 2 and 0 decisions; the third is invalid. Prompts 5, 5, 9, 9.
MASK = torch.tensor([[T, T, T], [T, F, F], [T, T, F], [F, F, F]])
VALID = torch.tensor([T, T, F, T])
PROMPTS = torch.tensor([5, 5, 9, 9])


def weights(reduction, mask=MASK, valid=VALID, **options):
    options = {"horizon": 10, "prompt_ids": PROMPTS[: len(mask)], **options}
    return loss_weights(mask, valid, reduction, **options)


@pytest.mark.parametrize(
    ("reduction", "first", "second"),
    [
        ("token_mean", 1 / 4, 1 / 4),
        ("sequence_mean", 1 / 6, 1 / 2),  # two rows with decisions, of 3 and 1
        ("prompt_mean", 1 / 4, 1 / 4),  # one prompt with decisions: 4 of them
        ("constant", 1 / 30, 1 / 30),  # three valid rows x 10
    ],
)
def test_by_hand(reduction, first, second):
    expected = torch.tensor([[first] * 3, [second, 0, 0], [0, 0, 0], [0, 0, 0]])
    torch.testing.assert_close(weights(reduction), expected)


def test_prompt_mean_over_two_prompts():
    w = weights("prompt_mean", valid=torch.tensor([T, T, T, T]))
    torch.testing.assert_close(w, torch.tensor([[1 / 8] * 3, [1 / 8, 0, 0], [1 / 4, 1 / 4, 0], [0, 0, 0]]))


def test_counts_by_hand():
    got = {name: n.item() for name, n in counts(MASK, VALID, PROMPTS).items()}
    assert got == {"decisions": 4, "rows": 3, "filled_rows": 2, "prompts": 1}
    assert counts(MASK, VALID)["prompts"].item() == 0
    assert counts(MASK, torch.tensor([T, T, T, T]), PROMPTS)["prompts"].item() == 2
    assert counts(MASK, torch.tensor([F, F, F, F]), PROMPTS)["prompts"].item() == 0
    one_each = torch.tensor([[T, F], [F, T]])
    assert counts(one_each, torch.tensor([T, T]), PROMPTS[1:3])["prompts"].item() == 2
    assert counts(MASK, VALID)["rows"].dtype == torch.float64


def test_row_weights():
    torch.testing.assert_close(row_weights(VALID), torch.tensor([1 / 3, 1 / 3, 0, 1 / 3]))
    assert row_weights(torch.tensor([F, F])).tolist() == [0, 0]
    assert row_weights(torch.tensor([T, F])).tolist() == [1, 0]
    totals = {"rows": torch.tensor(10.0)}
    torch.testing.assert_close(row_weights(torch.tensor([T, F]), totals), torch.tensor([0.1, 0.0]))


@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean", "prompt_mean"])
def test_means_sum_to_one(reduction):
    assert weights(reduction).sum().item() == pytest.approx(1.0)


@pytest.mark.parametrize("reduction", sorted(REDUCTIONS))
def test_nothing_left_gives_zeros(reduction):
    for mask, valid in [(MASK & False, VALID), (MASK, VALID & False)]:
        assert (weights(reduction, mask, valid) == 0).all()


def test_errors():
    with pytest.raises(ConfigError, match="did you mean 'token_mean'"):
        weights("tokenmean")
    with pytest.raises(ConfigError, match="horizon"):
        weights("constant", horizon=None)
    with pytest.raises(ConfigError, match="horizon = 0"):
        weights("constant", horizon=0)
    with pytest.raises(ConfigError, match="prompt ids"):
        weights("prompt_mean", prompt_ids=None)
    with pytest.raises(AnygrpoError, match=r"\[N, T\]"):
        loss_weights(MASK, VALID[:2], "token_mean")
    with pytest.raises(AnygrpoError, match=r"\[N, T\]"):
        loss_weights(MASK[0], VALID, "token_mean")


# --- splits ----------------------------------------------------------------------------------------------------------


@st.composite
def batches(draw):
    n, t = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    cells = st.lists(st.booleans(), min_size=t, max_size=t)
    mask = torch.tensor(draw(st.lists(cells, min_size=n, max_size=n)))
    valid = torch.tensor(draw(st.lists(st.sampled_from([T, T, F]), min_size=n, max_size=n)))
    seed = draw(st.integers(0, 2**16))
    generator = torch.Generator().manual_seed(seed)
    old = torch.randn(n, t, generator=generator).double() - 3
    new = old + 0.3 * torch.randn(n, t, generator=generator)
    return mask, valid, old, new, torch.randn(n, 1, generator=generator).double()


def gradient(name, mask, valid, old, new, a, w, rows, times):
    """Gradient of the sum over blocks of `rows` rows and `times` decisions, accumulated block by block."""
    new = new.clone().requires_grad_()
    for i in range(0, mask.shape[0], rows):
        for t in range(0, mask.shape[1], times):
            b = (slice(i, i + rows), slice(t, t + times))
            loss = OBJECTIVES[name](new[b], old[b], a[b[0]], mask[b], ClipSettings()).loss
            (w[b] * loss).sum().backward()
    return new.grad


@settings(max_examples=40, deadline=None)
@given(batches(), st.integers(1, 6), st.integers(1, 5))
def test_any_split_of_rows_and_time_gives_the_same_gradient(batch, rows, times):
    mask, valid = batch[:2]
    ids = torch.arange(len(valid)) // 2
    for reduction in REDUCTIONS:
        w = loss_weights(mask, valid, reduction, horizon=7, prompt_ids=ids).double()
        for name in sorted(set(OBJECTIVES) - {"rce"}):
            piece = mask.shape[1] if name in WHOLE_SEQUENCE else times
            whole = gradient(name, *batch, w, len(valid), mask.shape[1])
            torch.testing.assert_close(gradient(name, *batch, w, rows, piece), whole, rtol=1e-9, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(batches(), st.integers(0, 6))
def test_any_spread_over_ranks_gives_the_same_weights(batch, first):
    """Counts summed over ranks, then weights made on each: the ranks' rows together equal one rank's."""
    mask, valid = batch[:2]
    first = min(first, len(valid)) // 2 * 2  # prompts have two rows, and stay on one rank
    ids = torch.arange(len(valid)) // 2
    parts = [slice(0, first), slice(first, len(valid))]
    each = [counts(mask[p], valid[p], ids[p]) for p in parts]
    totals = {name: each[0][name] + each[1][name] for name in each[0]}
    for reduction in REDUCTIONS:
        whole = loss_weights(mask, valid, reduction, horizon=7, prompt_ids=ids)
        ranks = [loss_weights(mask[p], valid[p], reduction, horizon=7, prompt_ids=ids[p], totals=totals) for p in parts]
        torch.testing.assert_close(torch.cat(ranks), whole)
    torch.testing.assert_close(torch.cat([row_weights(valid[p], totals) for p in parts]), row_weights(valid))


@settings(max_examples=40, deadline=None)
@given(batches(), st.integers(1, 4), st.randoms())
def test_padding_and_order_do_not_matter(batch, extra, random):
    mask, valid = batch[:2]
    ids = torch.arange(len(valid)) // 2
    order = list(range(len(valid)))
    random.shuffle(order)
    padded = torch.cat([mask, torch.zeros(len(valid), extra, dtype=torch.bool)], 1)
    for reduction in REDUCTIONS:
        whole = loss_weights(mask, valid, reduction, horizon=7, prompt_ids=ids)
        wide = loss_weights(padded, valid, reduction, horizon=7, prompt_ids=ids)
        assert torch.equal(wide[:, : mask.shape[1]], whole)
        assert (wide[:, mask.shape[1] :] == 0).all()
        moved = loss_weights(mask[order], valid[order], reduction, horizon=7, prompt_ids=ids[order])
        assert torch.equal(moved, whole[order])


@settings(max_examples=30, deadline=None)
@given(batches())
def test_an_invalid_row_is_as_if_it_were_not_there(batch):
    mask, valid = batch[:2]
    ids = torch.arange(len(valid)) // 2
    for reduction in REDUCTIONS:
        whole = loss_weights(mask, valid, reduction, horizon=7, prompt_ids=ids)
        alone = loss_weights(mask[valid], valid[valid], reduction, horizon=7, prompt_ids=ids[valid])
        torch.testing.assert_close(whole[valid], alone)
        assert (whole[~valid] == 0).all()
