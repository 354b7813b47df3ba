"""FSDP2 on two ranks: a tiny Llama's gradients, updates, samples and checkpoints are those of one process."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from ranks import dealt, on_ranks
from runs import run_of

from anygrpo.denoising.averaging import Averaged
from anygrpo.errors import ConfigError
from anygrpo.recipe.load import apply_flags, parse_recipe
from anygrpo.train import parallel
from anygrpo.train.build import resumed_run
from anygrpo.train.folder import read_rows
from anygrpo.train.loop import train
from anygrpo.train.sharded import full, full_state, sharded_blocks

pytestmark = pytest.mark.cpu

LM = Path(__file__).parents[1] / "support" / "tiny_lm.py"


def run(folder, *flags, **options):
    return run_of(
        folder,
        *flags,
        policy={"kind": "python", "function": f"{LM}:policy", "arguments": options},
        task={"kind": "python", "function": f"{LM}:Taught"},
        algorithm={"prompts_per_step": 3, "group_size": 4, "beta": 0.1, "minibatches": 2},
        training={"steps": 2, "checkpoint_every": 1, "rows_per_block": 3, "gradient_norms_every": 0}
        | ({"parallel": "fsdp"} if parallel.world_size() > 1 else {}),
        optimizer={"learning_rate": 0.01, "eps": 0.01},
        evaluation={"every": 1},
    )


def one_step(folder, options, flags=()):
    """The same rows on any number of ranks: sampled with one seed by all, then dealt."""
    from anygrpo.train import collect

    made = run(folder / f"ranks{parallel.world_size()}", *flags, **options)
    share, seed = collect.share, collect.rank_seed
    collect.share, collect.rank_seed = list, lambda s: s
    begin, grads, norms = collect.begin, [], []
    collect.begin = lambda *a: lambda: dealt(begin(*a)())
    accumulate, step = made_updater(grads, norms)
    try:
        train(made)
    finally:
        collect.share, collect.rank_seed, collect.begin = share, seed, begin
        restore_updater(accumulate, step)
    blocks = len(sharded_blocks(made.policy.trainable()))
    weights = {n: p.tolist() for n, p in full_state(made.policy.trainable()).items()}
    made.close()
    return grads, norms, weights, blocks


def made_updater(grads, norms):
    from anygrpo.train.update import Updater

    accumulate, step = Updater.accumulate, Updater.step

    def watched(self, *arguments):
        tally = accumulate(self, *arguments)
        grads.append([full(p.grad).tolist() for p in self.parameters])
        return tally

    def stepped(self, *arguments):
        row = step(self, *arguments)
        norms.append(row["grad_norm/total"])
        return row

    Updater.accumulate, Updater.step = watched, stepped
    return accumulate, step


def restore_updater(accumulate, step):
    from anygrpo.train.update import Updater

    Updater.accumulate, Updater.step = accumulate, step


@pytest.mark.parametrize("train", ["all", "lora"])
def test_sharded_training_equals_one_process(tmp_path, train):
    options = {"train": train}
    grads, norms, weights, _ = one_step(tmp_path, options)
    for answer in on_ranks(2, one_step, tmp_path, options, seconds=60):
        assert answer[3] == 2
        assert answer[1] == pytest.approx(norms, rel=1e-4)
        for one, many in zip(grads, answer[0]):
            for a, b in zip(one, many):
                torch.testing.assert_close(torch.tensor(b), torch.tensor(a), rtol=2e-4, atol=2e-6)
        for name, value in weights.items():
            torch.testing.assert_close(torch.tensor(answer[2][name]), torch.tensor(value), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "flags",
    [
        ("--algorithm.lambda-supervised", "0.5"),
        ("--algorithm.overlong-buffer", "4", "--algorithm.reduction", "constant"),
        ("--algorithm.filters", '[{kind = "overlong_mask"}, {kind = "best_and_worst", k = 2}]'),
    ],
    ids=["demonstrations", "limits", "filters"],
)
def test_sharded_training_beside_other_settings_equals_one_process(tmp_path, flags):
    grads, norms, _, _ = one_step(tmp_path, {"train": "all"}, flags)
    for answer in on_ranks(2, one_step, tmp_path, {"train": "all"}, flags, seconds=60):
        assert answer[1] == pytest.approx(norms, rel=1e-4)
        for one, many in zip(grads, answer[0]):
            for a, b in zip(one, many):
                torch.testing.assert_close(torch.tensor(b), torch.tensor(a), rtol=2e-4, atol=2e-6)


def sampled(folder, steps):
    made = run(folder, "--training.steps", str(steps), train="all")
    train(made)
    made.close()
    return full_state(made.policy.trainable())["model.embed_tokens.weight"].tolist()


def went_on(folder, parallel_mode):
    made = resumed_run(folder, ["--training.steps", "3", "--training.parallel", parallel_mode])
    start = made.step
    weights = {n: p.tolist() for n, p in full_state(made.policy.trainable()).items()}
    train(made)
    made.close()
    return start, weights


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 4)])
def test_sharded_checkpoints_load_on_another_number_of_ranks(tmp_path, before, after):
    on_ranks(before, sampled, tmp_path / "run", 2, seconds=60)
    answers = on_ranks(after, went_on, tmp_path / "run", "fsdp" if after > 1 else "replicate", seconds=60)
    from anygrpo.train import checkpoint

    saved = checkpoint.load(tmp_path / "run" / "checkpoints" / "step_00000002")[0]
    for start, weights in answers:
        assert start == 2
        for name, value in saved.items():
            torch.testing.assert_close(torch.tensor(weights[name]), value, rtol=0, atol=1e-7)
    assert [row["step"] for row in read_rows(tmp_path / "run" / "metrics.jsonl")[0]] == [0, 1, 2]


def all_moments(made):
    return [{k: full(v).tolist() for k, v in one.items()} for one in made.updater.state()["moments"]]


def interrupted(folder, kind, steps):
    """Weights and moments after 3 steps, of a run that went on after `steps` of them (0: from a fresh start)."""
    if steps:
        made = run(folder, "--training.steps", str(steps), train=kind)
        train(made)
        made.close()
    made = resumed_run(folder, ["--training.steps", "3"]) if steps else run(folder, "--training.steps", "3", train=kind)
    assert made.step == steps
    train(made)
    made.close()
    return {n: p.tolist() for n, p in full_state(made.policy.trainable()).items()}, all_moments(made)


@pytest.mark.parametrize("kind", ["all", "lora"])
def test_a_sharded_run_resumed_on_as_many_ranks_repeats_exactly(tmp_path, kind):
    whole = on_ranks(2, interrupted, tmp_path / "whole", kind, 0, seconds=60)
    again = on_ranks(2, interrupted, tmp_path / "again", kind, 2, seconds=60)
    assert again == whole


def averaged(folder):
    """What each rank carries of a running average of sharded weights, and how far off it comes back."""
    made = run(folder, "--training.steps", "1", train="all")
    train(made)
    module, weights = made.policy.trainable(), full_state(made.policy.trainable())
    first, second = Averaged(module, 0.5, 1), Averaged(module, 0.5, 1)
    first.follow(0, 1)
    carried = first.carried()
    second.resumed(parallel.from_main(carried))
    cut = any(map(parallel.is_sharded, second.average.values()))
    away = max(float((full(x) - weights[name]).abs().max()) for name, x in second.average.items())
    made.close()
    return len(carried), len(weights), cut, away, all(x.device.type == "cpu" for x in carried.values())


def test_a_running_average_of_shards_is_whole_on_the_rank_that_writes(tmp_path):
    main, other = on_ranks(2, averaged, tmp_path / "run", seconds=60)
    assert main == (main[1], main[1], True, 0.0, True)
    assert other[0] == 0 < main[0]
    assert other[1:4] == main[1:4]


def test_damaged_parts_are_passed_over(tmp_path):
    from anygrpo.train import checkpoint

    on_ranks(2, sampled, tmp_path / "run", 2, seconds=60)
    last = tmp_path / "run" / "checkpoints" / "step_00000002"
    assert checkpoint.newest(last.parent) == last
    files = [f for f in (last / "parts").iterdir() if f.suffix == ".safetensors"]
    assert len(files) == 2  # each rank wrote its own
    files[1].write_bytes(files[1].read_bytes()[:-1])
    assert checkpoint.newest(last.parent).name == "step_00000001"


def with_empty_rank(folder):
    made = run(folder, "--algorithm.prompts-per-step", "1", train="all")
    train(made)
    made.close()
    return made.samples_seen


def test_an_empty_rank_fills_up_and_does_not_hang(tmp_path):
    assert on_ranks(2, with_empty_rank, tmp_path / "run", seconds=60) == [8, 8]


def low_precision(folder, dtype):
    made = run(folder, "--training.fsdp-dtype", dtype, train="all")
    seen = set()
    block = sharded_blocks(made.policy.trainable())[0]
    block.mlp.register_forward_pre_hook(lambda _, inputs: seen.add(str(inputs[0].dtype)))
    train(made)
    assert seen == {f"torch.{dtype}"}
    assert made.updater.scale.wanted == (dtype == "float16")
    made.close()
    return {str(p.dtype) for p in made.policy.parameters()}, made.version


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_blocks_may_compute_in_half_precision(tmp_path, dtype):
    for dtypes, version in on_ranks(2, low_precision, tmp_path / "run", dtype, seconds=60):
        assert dtypes == {"torch.float32"}
        assert version == 4
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")[0]
    assert all(math.isfinite(row["loss/total"]) and row["grad_norm/total"] > 0 for row in rows[:2])


def refused(folder, **options):
    try:
        run(folder, "--algorithm.kl", "exact", **options)
    except ConfigError as error:
        return str(error)
    return ""


def test_an_exact_kl_of_sharded_full_weights_is_refused(tmp_path):
    assert all("swaps the reference" in text for text in on_ranks(2, refused, tmp_path / "run"))


def without_blocks(folder):
    try:
        run_of(folder, "--training.parallel", "fsdp")
    except ConfigError as error:
        return str(error)
    return ""


def test_a_toy_without_blocks_is_refused(tmp_path):
    assert all("no list of blocks" in text for text in on_ranks(2, without_blocks, tmp_path / "run"))


def test_a_dtype_for_shards_needs_shards(tmp_path):
    from runs import table

    recipe = table(tmp_path)
    apply_flags(recipe, ["--training.fsdp-dtype", "bfloat16"])
    with pytest.raises(ConfigError, match="parallel"):
        parse_recipe(recipe)
