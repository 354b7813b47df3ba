"""A user's own function in place of each choice: checked at the border, and it acts on the update."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from runs import cut_after, run_of
from toys import Bandit

from anygrpo.algorithm import kl
from anygrpo.choices.card import KINDS
from anygrpo.core.choices import CALLED, chosen, forget
from anygrpo.errors import ConfigError, DataError
from anygrpo.recipe.section import UserFunction
from anygrpo.train import snapshot
from anygrpo.train.batches import needed_rows, prepare, weigh
from anygrpo.train.build import resumed_run
from anygrpo.train.collect import begin
from anygrpo.train.folder import read_rows
from anygrpo.train.log_probs import with_reference
from anygrpo.train.loop import needs_reference, train

OWN = """
import torch

def flipped(rewards, valid, options, size=1.0):
    return -size * (rewards - rewards.mean(1, keepdim=True))

def doubled(new, old, advantages, mask, settings):
    return -2 * advantages * new

def unclipped(new, old, advantages, mask, settings):
    return -(new - old).exp() * advantages
unclipped.whole_sequence = False

def pull(new, ref, old, mask):
    return new

def halved(used, totals, horizon, prompt_ids):
    return 2 * totals["decisions"]

def best_group(groups, keep=1):
    best = groups.rewards.mean(1).topk(keep).indices
    return torch.isin(torch.arange(len(groups.rewards)), best)[:, None].expand(groups.valid.shape)

def late(start, end, progress):
    return end if progress > 0.5 else start

def doubling(beta, kl, samples, by=2.0):
    return by * beta

def squared(log_ratio, mask, cap):
    return (2 * log_ratio).exp()

def narrow(rewards, valid, options):
    return rewards[:, :1]

def scalar(new, old, advantages, mask, settings):
    return 0.0

def zero(used, totals, horizon, prompt_ids):
    return 0.0

def numbers(groups):
    return groups.rewards

def nothing(start, end, progress):
    return None

lost = 3
"""


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN)
    forget()
    return lambda name: f"{path}:{name}"


def gradient(folder, *flags, **extra):
    """(gradient of the first step's update, its batch)."""
    run = run_of(folder, *flags, **extra)
    planned, numbers = run.enter(0)
    prepared = prepare(begin(run, planned, 0, run.clock)(), planned.stage, numbers, None)
    batch = needed_rows(weigh(prepared, planned.stage), numbers, planned.stage)
    if needs_reference(planned.stage, numbers):
        batch = with_reference(run.policy, batch, 16)
    run.updater.accumulate(batch, planned.stage, numbers, 16, measure=False)
    run.close()
    return torch.cat([p.grad.flatten() for p in run.updater.parameters]), batch


def test_every_kind_can_be_a_users():
    assert CALLED.keys() == KINDS.keys() - {"reward"}  # loaded in workers: anygrpo.scoring


def test_an_advantage(tmp_path, own):
    there, _ = gradient(tmp_path / "a", "--algorithm.advantage", "centred")
    back, _ = gradient(tmp_path / "b", "--algorithm.advantage", own("flipped"))
    torch.testing.assert_close(back, -there, rtol=1e-5, atol=1e-8)
    table = f"{{ function = '{own('flipped')}', arguments = {{ size = 3.0 }} }}"
    more, _ = gradient(tmp_path / "c", "--algorithm.advantage", table)
    torch.testing.assert_close(more, -3 * there, rtol=1e-5, atol=1e-8)


def test_an_objective(tmp_path, own):
    one, live = gradient(tmp_path / "a", "--algorithm.objective", "reinforce")
    two, every = gradient(tmp_path / "b", "--algorithm.objective", own("doubled"))
    torch.testing.assert_close(two, 2 * one, rtol=1e-5, atol=1e-8)
    assert len(live) < len(every) == 64  # nobody knows its gradient where the advantage is 0


def test_an_objective_sees_whole_sequences_unless_it_says_otherwise(own):
    assert chosen("objective", own("doubled")).whole_sequence
    assert not chosen("objective", own("unclipped")).whole_sequence
    assert chosen("objective", "gspo").whole_sequence
    assert not chosen("objective", "ppo").whole_sequence


def test_a_kl(tmp_path, own):
    """The term's own gradient is that of beta x mean log p."""
    flags = ["--algorithm.lambda-pg", "0.0", "--algorithm.beta", "0.5"]
    got, batch = gradient(tmp_path / "a", *flags, "--algorithm.kl", own("pull"))
    policy = Bandit(0)
    (0.5 * (batch.weights * policy.evaluate(batch.samples, slice(None)).log_probs).sum()).backward()
    torch.testing.assert_close(got, torch.cat([p.grad.flatten() for p in policy.parameters()]), rtol=1e-4, atol=1e-7)
    none, _ = gradient(tmp_path / "b", *flags)
    assert none.abs().max() < 1e-6 < got.abs().max()  # the reference is the policy itself


def test_a_reduction(tmp_path, own):
    whole, _ = gradient(tmp_path / "a", "--algorithm.reduction", "token_mean")
    half, _ = gradient(tmp_path / "b", "--algorithm.reduction", own("halved"))
    torch.testing.assert_close(half, whole / 2, rtol=1e-5, atol=1e-8)


def test_a_filter(tmp_path, own):
    filters = f"[{{ kind = 'function', function = '{own('best_group')}', arguments = {{ keep = 2 }} }}]"
    _, batch = gradient(tmp_path / "a", "--algorithm.filters", filters, "--algorithm.entropy-coef", "1.0")
    assert len(batch) == 2 * 8
    assert float(batch.weights.sum()) == pytest.approx(1.0)
    run = run_of(tmp_path / "b", "--algorithm.filters", filters, "--training.steps", "1")
    train(run)
    run.close()
    assert "groups/live_after/best_group" in read_rows(run.folder.metrics)[0][0]


@pytest.mark.parametrize("form", ["'{f}'", "{{ function = '{f}' }}", "{{ kind = '{f}' }}"])
def test_a_filter_can_be_written_shortly(tmp_path, own, form):
    spelt = "[" + form.format(f=own("best_group")) + "]"
    (f,) = run_of(tmp_path, "--algorithm.filters", spelt).recipe.algorithm.filters
    assert (f.kind, f.function, f.arguments) == ("function", own("best_group"), {})


@pytest.mark.parametrize("form", ["function = '{f}'", "kind = '{f}'"])
def test_a_schedule_can_be_written_shortly(tmp_path, own, form):
    spelt = "{" + form.format(f=own("late")) + ", start = 0.1, end = 0.02}"
    assert run_of(tmp_path, "--optimizer.learning-rate", spelt).recipe.optimizer.learning_rate.kind == "function"


def test_a_schedule(tmp_path, own):
    rate = f"{{ kind = 'function', function = '{own('late')}', start = 0.1, end = 0.02 }}"
    run = run_of(tmp_path / "a", "--optimizer.learning-rate", rate, "--training.steps", "6")
    train(run)
    run.close()
    assert [row["lr"] for row in read_rows(run.folder.metrics)[0]] == [0.1] * 3 + [0.02] * 3


def test_a_controller(tmp_path, own):
    flags = ["--algorithm.beta", "0.01", "--training.steps", "4", "--algorithm.kl-controller"]
    run = run_of(tmp_path / "a", *flags, own("doubling"))
    train(run)
    run.close()
    assert [r["beta"] for r in read_rows(run.folder.metrics)[0]] == pytest.approx([0.01, 0.02, 0.04, 0.08])
    table = f"{{ function = '{own('doubling')}', arguments = {{ by = 3.0 }} }}"
    assert run_of(tmp_path / "b", *flags, table).enter(0)[1].beta == 0.01


def test_a_correction(own):
    logs = torch.tensor([[0.1, -0.2]])
    rule = chosen("correction", own("squared")).function
    torch.testing.assert_close(rule(logs, logs != 0, 2.0), (2 * logs).exp())


def test_a_correction_acts_on_the_update(tmp_path, own):
    from anygrpo.train.importance import corrected

    got = {}
    for name in ("truncate", own("squared")):
        run = run_of(tmp_path / str(len(got)), "--algorithm.importance", name)
        planned, numbers = run.enter(0)
        rollout = begin(run, planned, 0, run.clock)()
        rollout = replace(rollout, log_probs=rollout.log_probs - 0.1)  # as if it had been reported wrongly
        made, _ = corrected(run.policy, prepare(rollout, planned.stage, numbers, None), planned.stage, 16)
        run.updater.accumulate(weigh(made, planned.stage), planned.stage, numbers, 16, measure=False)
        got[name] = torch.cat([p.grad.flatten() for p in run.updater.parameters])
        run.close()
    torch.testing.assert_close(got[own("squared")], got["truncate"] * torch.tensor(0.1).exp(), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("advantage", "doubled", ["cannot be called as advantage", "doubled(rewards, valid, options)"]),
        ("objective", "flipped", ["cannot be called as objective"]),
        ("objective", "flipt", ["has no 'flipt'", "did you mean 'flipped'"]),
        ("filter", "lost", ["is int, no function"]),
        ("controller", "late", ["cannot be called as controller", "it takes (start, end, progress)"]),
    ],
)
def test_what_cannot_be_called_is_said_before_the_run(tmp_path, own, kind, name, words):
    with pytest.raises(ConfigError) as error:
        chosen(kind, UserFunction(function=own(name), arguments={"by": 1.0} if name == "late" else {}))
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize("key", ["algorithm.entropy-coef", "optimizer.learning-rate"])
def test_a_missing_schedule_is_said_before_the_run(tmp_path, key):
    with pytest.raises(DataError, match=r"no file .*absent\.py"):
        run_of(tmp_path, f"--{key}", f"{{ function = '{tmp_path}/absent.py:f', start = 1.0 }}")


def test_a_missing_file_is_said_before_the_run(tmp_path):
    with pytest.raises(DataError, match=r"no file .*absent\.py"):
        run_of(tmp_path, "--algorithm.objective", f"{tmp_path}/absent.py:loss")
    with pytest.raises(DataError, match=r"no file .*absent\.py"):
        run_of(
            tmp_path, "--algorithm.beta", f"{{ kind = 'function', function = '{tmp_path}/absent.py:f', start = 1.0 }}"
        )


@pytest.mark.parametrize(
    ("flag", "name", "words"),
    [
        ("advantage", "narrow", ["returned shape (8, 1)", "[P, G] = [8, 8]"]),
        ("objective", "scalar", ["returned float", "[n, t]"]),
        ("reduction", "zero", ["divisor of 0", "above 0"]),
    ],
)
def test_a_wrong_shape_names_the_function_and_what_is_wanted(tmp_path, own, flag, name, words):
    with pytest.raises(ConfigError) as error:
        gradient(tmp_path / "a", f"--algorithm.{flag}", own(name))
    assert all(word in str(error.value) for word in [own(name), *words])


def test_a_filter_and_a_schedule_return_what_they_should(tmp_path, own):
    with pytest.raises(ConfigError, match=r"returned torch\.float32"):
        gradient(tmp_path / "a", "--algorithm.filters", f"[{{ kind = 'function', function = '{own('numbers')}' }}]")
    rate = f"{{ kind = 'function', function = '{own('nothing')}', start = 0.1 }}"
    with pytest.raises(ConfigError, match="returned NoneType"):
        run_of(tmp_path / "b", "--optimizer.learning-rate", rate).enter(1)


def test_a_run_with_functions_of_ones_own_goes_on_after_a_cut(tmp_path, own):
    flags = ["--algorithm.objective", own("doubled"), "--algorithm.kl-controller", own("doubling")]
    flags += ["--algorithm.beta", "0.001", "--training.steps", "8", "--training.checkpoint-every", "4"]
    whole = run_of(tmp_path / "whole", *flags)
    train(whole)
    whole.close()
    cut_after(run_of(tmp_path / "cut", *flags), 5)
    again = resumed_run(tmp_path / "cut", [])
    assert again.step == 4
    assert isinstance(again.kl_state, kl.RuleKL)
    train(again)
    again.close()
    expected, found = (read_rows(tmp_path / f / "metrics.jsonl")[0] for f in ("whole", "cut"))
    assert [r["beta"] for r in found] == [r["beta"] for r in expected]
    assert [r.get("loss/policy") for r in found] == [r.get("loss/policy") for r in expected]
    assert snapshot.newest(again.folder.checkpoints) is not None


def test_a_file_is_read_again_for_the_next_run(tmp_path, own):
    first, _ = gradient(tmp_path / "a", "--algorithm.objective", own("doubled"))
    (tmp_path / "own.py").write_text(OWN.replace("-2 * advantages", "-4 * advantages"))
    second, _ = gradient(tmp_path / "b", "--algorithm.objective", own("doubled"))
    torch.testing.assert_close(second, 2 * first, rtol=1e-5, atol=1e-8)
