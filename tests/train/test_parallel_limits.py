"""Limits, filters, refills and denominators of sampled steps: two ranks train and tell as one process does."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from ranks import on_ranks
from runs import run_of

from anygrpo.train.collect import joined
from anygrpo.train.folder import read_rows
from anygrpo.train.loop import train

pytestmark = pytest.mark.cpu

VOLATILE = ("time/", "throughput/", "memory/")
LIMIT = 6
KEYS = {
    "overlong": {"overlong_buffer": 3, "reduction": "constant"},
    "cut": {
        "filters": [{"kind": "overlong_mask"}, {"kind": "drop_constant"}],
        "reduction": "sequence_mean",
        "beta": 0.05,
    },
    "band": {"filters": [{"kind": "pass_rate_band", "low": 0.1, "high": 0.6}], "entropy_coef": 0.02, "minibatches": 2},
    "best": {"filters": [{"kind": "best_and_worst", "k": 2}], "advantage": "whitened", "reduction": "prompt_mean"},
}


def by_prompt(run):
    """Whoever samples a prompt draws the same: samples of unequal lengths, of which those at the limit were cut off."""
    sample = run.policy.sample

    def one(prompt, group_size):
        seed = int(prompt["x"].abs().sum() * 1e5) % 2**31
        made = sample([prompt], group_size, seed)
        length = torch.randint(1, LIMIT + 1, (1, group_size, 1), generator=torch.Generator().manual_seed(seed))
        ended = (length < LIMIT)[..., 0]
        return replace(made, mask=torch.arange(LIMIT) < length, ended=ended, limit=LIMIT)

    run.policy.sample = lambda prompts, group_size, seed: joined([one(p, group_size) for p in prompts])


def stepped(folder, algorithm):
    run = run_of(
        folder,
        policy={"kind": "python", "function": "tests/support/toys.py:policy", "arguments": {"picks": LIMIT}},
        algorithm={"prompts_per_step": 5, "group_size": 4} | algorithm,
        optimizer={"learning_rate": 0.2, "eps": 0.01},  # Adam would blow rounding up to whole steps
        training={"steps": 4},
    )
    by_prompt(run)
    train(run)
    run.close()
    return {name: p.tolist() for name, p in run.policy.net.named_parameters()}, run.samples_seen


@pytest.mark.parametrize("name", KEYS)
def test_sampled_steps_equal_one_process(tmp_path, name):
    one, seen = stepped(tmp_path / "one", KEYS[name])
    for other, also in on_ranks(2, stepped, tmp_path / "two", KEYS[name]):
        assert also == seen
        for key, value in one.items():
            torch.testing.assert_close(torch.tensor(other[key]), torch.tensor(value), rtol=1e-4, atol=1e-6)
    rows, theirs = (read_rows(tmp_path / of / "metrics.jsonl")[0] for of in ("one", "two"))
    assert any(row["truncated/share"] > 0 for row in rows)
    assert any("kept/reward/mean" in row for row in rows) == (name != "overlong")
    for row, other in zip(rows, theirs, strict=True):
        steady = {k: v for k, v in row.items() if not k.startswith(VOLATILE) and k != "stage"}
        assert {k: other.get(k) for k in steady} == pytest.approx(steady, rel=1e-3, abs=1e-5)


def refilled(folder, prompts):
    shown = []
    run = run_of(
        folder,
        algorithm={"prompts_per_step": prompts, "group_size": 2, "refill": 3},
        training={"steps": 3, "checkpoint_every": 10},
        optimizer={"learning_rate": 1e-9},
    )
    met = run.stages[0].task.prompts
    run.stages[0].task.prompts = lambda step, count: (shown.append(step), met(step, count))[1]
    train(run)
    run.close()
    return [step for step in shown if step < 10**6]  # the others are held out


def test_a_refill_over_two_ranks_passes_over_no_prompt_and_tells_of_all_that_was_drawn(tmp_path):
    """Each rank fills its own share; both make as many draws, and the numbers are of both."""
    first, second = on_ranks(2, refilled, tmp_path / "two", 6)
    assert first == second
    assert sorted(set(first)) == list(range(len(set(first))))  # draws follow one another
    rows = read_rows(tmp_path / "two" / "metrics.jsonl")[0]
    for row in rows:
        draws = row.get("groups/drawn", 6) / 6
        assert draws == int(draws)
        assert row.get("groups/kept", 6) <= 6
    refilling = [row for row in rows if row.get("groups/drawn", 6) > 6]
    assert refilling
    for row in refilling:  # of groups of two some are all right or all wrong: before filters fewer are live
        assert row["kept/reward/std_within"] > row["reward/std_within"]
        assert row["kept/reward/mean"] == pytest.approx(0.5)
        assert abs(row["reward/mean"] - 0.2) < 0.2
