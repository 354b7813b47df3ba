"""lambda_supervised beside GRPO: the gradient is the policy's plus lambda times that of a supervised stage."""

from __future__ import annotations

import pytest
import tiny_lm
import torch
import toy_tasks
from ranks import on_ranks
from runs import TOYS, run_of

from anygrpo.errors import ConfigError
from anygrpo.train.batches import needed_rows, prepare, weigh
from anygrpo.train.collect import begin
from anygrpo.train.demonstrations import with_demonstrations
from anygrpo.train.folder import read_rows
from anygrpo.train.loop import train

KINDS = {
    "bandit": {"policy": {"kind": "python", "function": f"{TOYS}:policy"}},
    "causal_lm": {
        "policy": {"kind": "python", "function": f"{tiny_lm.__file__}:policy"},
        "task": {"kind": "python", "function": f"{tiny_lm.__file__}:Taught"},
        "algorithm": {"prompts_per_step": 3, "group_size": 4, "advantage": "overall"},
    },
    "selector": {
        "policy": {"kind": "selector", "features": 6, "width": 16, "shots": 2},
        "task": {"kind": "python", "function": f"{toy_tasks.__file__}:Nearest"},
    },
}


def run_with(folder, kind, *flags, **extra):
    return run_of(folder, *flags, **KINDS[kind], **extra)


def gradient(run, *, demonstrations=True):
    planned, numbers = run.enter(0)
    if demonstrations:
        numbers, taught = with_demonstrations(run, planned, numbers)
    else:
        taught = None
    prepared = prepare(begin(run, planned, 0, run.clock)(), planned.stage, numbers, None)
    batch = needed_rows(weigh(prepared, planned.stage), numbers, planned.stage)
    tally = run.updater.accumulate(batch, planned.stage, numbers, 7, True, taught)
    run.close()
    given = [torch.zeros_like(p) if p.grad is None else p.grad for p in run.updater.parameters]
    return torch.cat([g.flatten() for g in given]), {**tally.sums}


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_the_sum_of_both(tmp_path, kind):
    alone, _ = gradient(run_with(tmp_path / "a", kind))
    stages = [{"name": "warm", "method": "supervised", "steps": 3}]
    supervised, _ = gradient(run_with(tmp_path / "b", kind, stages=stages), demonstrations=False)
    assert alone.norm() > 0
    assert supervised.norm() > 0
    both, told = gradient(run_with(tmp_path / "c", kind, "--algorithm.lambda-supervised", "0.3"))
    torch.testing.assert_close(both, alone + 0.3 * supervised, rtol=1e-4, atol=1e-6)
    assert float(told["grad_norm/supervised"]) == pytest.approx(0.3 * float(supervised.norm()), rel=1e-4)
    assert float(told["grad_norm/policy"]) == pytest.approx(float(alone.norm()), rel=1e-4)
    assert float(told["loss/supervised"]) > 0


def test_by_hand(tmp_path):
    """One decision among five arms, all weights 0: softmax - onehot, weighed by the mean over demonstrations."""
    run = run_with(tmp_path / "a", "bandit", "--algorithm.lambda-supervised", "2.0", "--algorithm.lambda-pg", "0.0")
    with torch.no_grad():
        run.policy.net.weight.zero_()
        run.policy.net.bias.zero_()
    planned, _ = run.enter(0)
    best = torch.tensor([int(p["x"].argmax()) for p in planned.task.prompts(0, 8)])
    _, told = gradient(run)
    expected = 2.0 * (0.2 - torch.nn.functional.one_hot(best, 5).float().mean(0))
    torch.testing.assert_close(run.policy.net.bias.grad, expected)
    assert float(told["loss/supervised"]) == pytest.approx(torch.tensor(5.0).log().item())


@pytest.mark.parametrize("kind", KINDS)
def test_a_recipe_follows_its_demonstrations(tmp_path, kind):
    flags = ["--algorithm.lambda-supervised", "{kind = 'linear', start = 1.0, steps = 5}", "--training.steps", "6"]
    more = ["--algorithm.minibatches", "2", "--optimizer.learning-rate", "0.1", "--training.gradient-norms-every", "1"]
    run = run_with(tmp_path / "run", kind, *flags, *more)
    train(run)
    run.close()
    rows = read_rows(run.folder.metrics)[0]
    losses = [row["loss/supervised"] for row in rows if "loss/supervised" in row]
    assert len(losses) == 5  # the schedule is over: the last step's weight is 0
    assert losses[-1] < losses[0]
    assert rows[0]["grad_norm/supervised"] > 0
    assert "reward/mean" in rows[0]


def test_demonstrations_teach_where_no_group_has_spread(tmp_path):
    task = {"kind": "python", "function": f"{TOYS}:BestArm", "arguments": {"broken": "constant"}}
    flags = ["--algorithm.lambda-supervised", "1.0", "--training.steps", "40", "--optimizer.learning-rate", "0.05"]
    run = run_of(tmp_path / "run", *flags, task=task)
    train(run)
    run.close()
    assert run.version == 40
    x = torch.randn(200, 5, generator=torch.Generator().manual_seed(1))
    assert (run.policy.net(x).argmax(-1) == x.argmax(-1)).float().mean() > 0.8


def test_a_task_without_answers_is_refused_in_one_sentence(tmp_path):
    task = {"kind": "python", "function": f"{tiny_lm.__file__}:Even"}
    with pytest.raises(ConfigError, match="no stored answers"):
        run_of(tmp_path / "run", "--algorithm.lambda-supervised", "1.0", **(KINDS["causal_lm"] | {"task": task}))


def offline(folder):
    """Stored candidates and demonstrations: the same rows on any number of ranks."""
    stages = [{"name": "offline", "source": "stored", "steps": 3, "algorithm": {"lambda_supervised": 0.5}}]
    run = run_of(folder, stages=stages, algorithm={"prompts_per_step": 3}, optimizer={"eps": 0.01})
    train(run)
    run.close()
    return run.policy.net.weight.detach().tolist()


@pytest.mark.cpu
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_teach_as_one(tmp_path, ranks):
    (one,) = on_ranks(1, offline, tmp_path / "one")
    for other in on_ranks(ranks, offline, tmp_path / "many"):
        torch.testing.assert_close(torch.tensor(other), torch.tensor(one), rtol=1e-4, atol=1e-6)
