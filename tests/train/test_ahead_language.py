"""One-step-off rollouts of a language model: sampled beside the updates, by weights that are held; exact resume."""

from __future__ import annotations

import threading

import pytest
import tiny_lm
import torch
from runs import cut_after, run_of

from anygrpo.language.engine.builtin import BuiltinEngine
from anygrpo.train.build import resumed_run
from anygrpo.train.folder import read_rows
from anygrpo.train.loop import train

VOLATILE = ("time/", "throughput/", "memory/", "parity/")  # the sampler is checked anew by each process


def rows_of(folder):
    rows = read_rows(folder / "metrics.jsonl")[0]
    return [{k: v for k, v in row.items() if not k.startswith(VOLATILE)} for row in rows]


def same_weights(a, b):
    mine, theirs = (dict(run.policy.trainable().named_parameters()) for run in (a, b))
    for name, value in mine.items():
        torch.testing.assert_close(theirs[name], value, rtol=0, atol=0)


def lm_run(folder, monkeypatch=None, beside=False, **options):
    if monkeypatch is not None:
        monkeypatch.setattr(BuiltinEngine, "apart", beside)
    factory = f"{tiny_lm.__file__}:policy"
    policy = {"kind": "python", "function": factory, "arguments": {"train": "lora", **options}}
    algorithm = {"prompts_per_step": 3, "group_size": 4, "advantage": "overall"}
    return run_of(
        folder,
        "--training.off-policy-steps",
        "1",
        policy=policy,
        task={"kind": "python", "function": f"{tiny_lm.__file__}:Even"},
        algorithm=algorithm,
        training={"steps": 4, "checkpoint_every": 2},
        optimizer={"learning_rate": 0.02},
    )


def test_a_language_model_really_samples_beside_its_updates_with_the_same_result(tmp_path, monkeypatch):
    kept = {}
    for beside in (False, True):
        run = lm_run(tmp_path / str(beside), monkeypatch, beside)
        names, engine = [], run.policy.engine
        generate = engine.generate
        engine.generate = lambda *a, g=generate, n=names: (n.append(threading.current_thread().name), g(*a))[1]
        train(run)
        run.close()
        kept[beside] = run
        others = [name for name in names if name.startswith("ahead")]
        assert len(others) == (3 if beside else 0)  # not the first rollout, and no evaluation
    same_weights(kept[False], kept[True])
    assert rows_of(tmp_path / "False") == rows_of(tmp_path / "True")


@pytest.mark.parametrize("stop_at", [1, 2])
@pytest.mark.parametrize(("train_what", "beside"), [("all", False), ("lora", False), ("lora", True)])
def test_a_language_model_stopped_a_step_off_resumes_exactly(tmp_path, monkeypatch, train_what, beside, stop_at):
    whole = lm_run(tmp_path / "whole", monkeypatch, beside, train=train_what)
    train(whole)
    whole.close()
    rows = rows_of(tmp_path / "whole")
    assert [row["staleness"] for row in rows] == [0, 1, 1, 1]
    assert all(row["ratio/max"] > 1.0001 for row in rows[1:])  # the weights that sampled are not those that train
    cut_after(lm_run(tmp_path / "cut", monkeypatch, beside, train=train_what), stop_at)
    again = resumed_run(tmp_path / "cut")
    assert (again.step, again.ahead is None) == ((0, True) if stop_at == 1 else (2, False))
    train(again)
    again.close()
    same_weights(whole, again)
    assert rows_of(tmp_path / "cut") == rows


def test_a_resumed_sampler_is_proved_before_it_runs_beside_updates(tmp_path, monkeypatch):
    """The proof on the first rollout's longest row scores with the training weights, which an update would move."""
    cut_after(lm_run(tmp_path / "run", monkeypatch, True), 2)
    again = resumed_run(tmp_path / "run")
    assert again.policy.trust_sampler  # known, from the checkpoint
    assert not again.policy.hold_sampler()
    train(again)
    assert again.policy.hold_sampler()
    again.close()


def test_updates_do_not_reach_a_sampler_that_is_held(tmp_path, monkeypatch):
    run = lm_run(tmp_path / "run", monkeypatch, True)
    planned, _ = run.enter(0)
    prompts = planned.task.prompts(0, 3)
    first = run.policy.sample(prompts, 4, 1)
    assert run.policy.hold_sampler()
    with torch.no_grad():
        for p in run.policy.parameters():
            p.add_(torch.randn_like(p))
    held = run.policy.sample(prompts, 4, 1)
    assert torch.equal(held.samples["completion_ids"], first.samples["completion_ids"])
    assert torch.equal(held.log_probs, first.log_probs)
    run.policy.release_sampler()
    assert not torch.equal(run.policy.sample(prompts, 4, 1).log_probs, first.log_probs)
    run.close()


def test_weights_that_the_sampler_shares_cannot_be_held(tmp_path):
    run = lm_run(tmp_path / "run", train="all")
    run.enter(0)
    run.policy.sample([{"prompt": "w1 w2"}], 2, 1)
    assert not run.policy.hold_sampler()
    run.close()


def test_an_exception_beside_the_updates_ends_the_run(tmp_path, monkeypatch):
    run = lm_run(tmp_path / "run", monkeypatch, True)
    engine = run.policy.engine
    generate = engine.generate

    def broken(*arguments):
        if threading.current_thread().name.startswith("ahead"):
            raise RuntimeError("engine lost")
        return generate(*arguments)

    engine.generate = broken
    with pytest.raises(RuntimeError, match="engine lost"):
        train(run)
    run.close()
