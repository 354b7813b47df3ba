"""A temperature that is held, and groups of unequal size: by what they do to a run, and resumed exactly."""

from __future__ import annotations

import pytest
import torch
from ranks import on_ranks
from runs import TOYS, cut_after, run_of
from toys import ARMS, BestArm

from anygrpo.core.rollout import Rollout
from anygrpo.errors import ConfigError
from anygrpo.recipe.recipe import Stage
from anygrpo.train import checkpoint
from anygrpo.train.batches import minibatches, prepare, weigh
from anygrpo.train.build import resumed_run
from anygrpo.train.folder import read_rows
from anygrpo.train.loop import train
from anygrpo.train.spread import PromptBook, Spread, number_of
from anygrpo.train.stages import numbers_at

VOLATILE = ("time/", "throughput/", "memory/")
HELD = {"kind": "adaptive", "target": 0.6, "rate": 0.1, "low": 0.3, "high": 2.0}
AUTO = {"prompts_per_step": 8, "group_size": "auto", "samples_per_step": 64}


class Pool(BestArm):
    """The same 16 prompts again and again; of the first half every arm is right."""

    def prompts(self, step, count):
        generator = torch.Generator().manual_seed(1)
        every = [{"x": torch.randn(ARMS, generator=generator), "easy": i < 8} for i in range(16)]
        return [every[(step * count // 2 + i // 2 + 8 * (i % 2)) % 16] for i in range(count)]

    def score(self, prompts, outputs):
        scores = super().score(prompts, outputs)
        for i, p in enumerate(prompts):
            if p.get("easy"):
                scores.rewards[i] = 1.0
        return scores


def pool(seed: int, **options) -> Pool:
    return Pool(seed, **options)


POOL = {"kind": "python", "function": f"{__file__}:pool"}


def finished(folder, *flags, **extra):
    run = run_of(folder, *flags, **extra)
    train(run)
    run.close()
    return run


def rows_of(folder):
    rows = read_rows(folder / "metrics.jsonl")[0]
    return [{k: v for k, v in row.items() if not k.startswith(VOLATILE)} for row in rows]


def weights(folder):
    return checkpoint.load(checkpoint.newest(folder / "checkpoints"))[0]


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize(("of", "target"), [("entropy", 0.9), ("live", 0.3)])
def test_each_step_is_scored_at_the_temperature_that_sampled_it(tmp_path, of, target, ahead):
    """At a rate of 0 every ratio is 1, whatever the temperature does, and with rollouts drawn a step before."""
    extra = {
        "algorithm": {"temperature": HELD | {"of": of, "target": target}, "prompts_per_step": 8, "group_size": 4},
        "optimizer": {"learning_rate": 0.0},
        "training": {"steps": 8, "off_policy_steps": ahead},
    }
    finished(tmp_path / "run", **extra)
    rows = [row for row in rows_of(tmp_path / "run") if row["step"] >= 0]
    assert len({row["temperature"] for row in rows}) > 4
    for row in rows:
        assert row["ratio/mean"] == pytest.approx(1.0, abs=1e-6)
        assert row["kl/behaviour"] == pytest.approx(0.0, abs=1e-6)


def test_the_entropy_is_held_while_the_policy_sharpens(tmp_path):
    common = {"training": {"steps": 100}, "optimizer": {"learning_rate": 0.1}}
    held = {"prompts_per_step": 8, "group_size": 8, "temperature": HELD}
    finished(tmp_path / "fixed", **common)
    finished(tmp_path / "held", **common, algorithm=held)
    late = lambda name: sum(r["entropy"] for r in rows_of(tmp_path / name)[-10:]) / 10  # noqa: E731
    assert late("fixed") < 0.4
    assert late("held") == pytest.approx(0.6, abs=0.1)


def test_before_anything_is_known_it_is_a_run_of_equal_groups(tmp_path):
    finished(tmp_path / "equal", "--training.steps", "1")
    finished(tmp_path / "auto", "--training.steps", "1", algorithm=AUTO)
    a, b = rows_of(tmp_path / "equal"), rows_of(tmp_path / "auto")
    assert a == b
    for name, value in weights(tmp_path / "equal").items():
        assert torch.equal(weights(tmp_path / "auto")[name], value)


def test_samples_go_where_they_can_teach(tmp_path):
    run = run_of(tmp_path / "run", "--training.steps", "13", "--training.samples-every", "1", algorithm=AUTO, task=POOL)
    drawn, sample = [], run.policy.sample

    def noted(prompts, group, seed):
        drawn.append([bool(p["easy"]) for p in prompts for _ in range(group)])
        return sample(prompts, group, seed)

    run.policy.sample = noted
    train(run)
    run.close()
    assert [len(step) for step in drawn[:13]] == [64] * 13  # the budget, to the sample
    easy = [sum(step) / 64 for step in drawn[:13]]
    assert easy[0] == 0.5
    assert max(easy[4:]) < 0.4  # each prompt was seen by then: those that all answers pass get less, visit by visit
    assert easy[12] < 0.3
    rows = [row for row in rows_of(tmp_path / "run") if row["step"] >= 0]
    assert [row["samples/seen"] for row in rows] == [64 * i for i in range(1, 14)]
    assert all(row["invalid/share"] == 0 and row["length/min"] == 1 for row in rows)  # who is absent is not invalid
    assert rows[-1]["groups/size_min"] < 8 < rows[-1]["groups/size"]
    assert rows[-1]["groups/size_mean"] == 8


@pytest.mark.parametrize("ahead", ["0", "1"])
@pytest.mark.parametrize("stop_at", [2, 5, 8])
def test_resumed_exactly(tmp_path, ahead, stop_at):
    extra = {
        "task": POOL,
        "algorithm": AUTO | {"temperature": HELD | {"of": "live"}, "refill": 1},
        "training": {"steps": 11, "checkpoint_every": 3, "off_policy_steps": int(ahead)},
    }
    finished(tmp_path / "whole", **extra)
    cut_after(run_of(tmp_path / "cut", **extra), stop_at)
    again = resumed_run(tmp_path / "cut")
    train(again)
    again.close()
    assert rows_of(tmp_path / "cut") == rows_of(tmp_path / "whole")
    for name, value in weights(tmp_path / "whole").items():
        assert torch.equal(weights(tmp_path / "cut")[name], value)


def test_a_stage_after_it_has_its_own_temperature_again(tmp_path):
    stages = [
        {"name": "hot", "steps": 3, "algorithm": {"temperature": HELD}},
        {"name": "own", "steps": 2},
        {"name": "scheduled", "steps": 2, "algorithm": {"temperature": {"kind": "linear", "start": 0.8, "end": 0.5}}},
    ]
    finished(tmp_path / "run", stages=stages)
    shown = [row.get("temperature") for row in rows_of(tmp_path / "run") if row["step"] >= 0]
    assert shown[0] == 1.0
    assert shown[1] != 1.0
    assert shown[3:] == [1.0, 1.0, 0.8, 0.5]


# -- parts ----------------------------------------------------------------------------------------------------------


def unequal(sizes, width, rewards):
    present = torch.arange(width) < torch.tensor(sizes)[:, None]
    shape = (len(sizes), width, 1)
    return Rollout.of(
        {}, torch.zeros(shape), present[..., None], rewards=rewards * present, valid=present, present=present
    )


@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean", "prompt_mean", "constant"])
@pytest.mark.parametrize("parts", [1, 2])
def test_prompts_weigh_the_same_whatever_their_group(tmp_path, reduction, parts):
    run = run_of(tmp_path / "run", algorithm=AUTO | {"reduction": reduction, "horizon": 1, "minibatches": parts})
    run.close()
    stage: Stage = run.stages[0].stage
    rollout = unequal([2, 8, 2, 4], 8, torch.rand(4, 8, generator=torch.Generator().manual_seed(0)))
    prepared = prepare(rollout, stage, numbers_at(stage, 0, 1), None)
    seen = 0
    for part in minibatches(prepared, stage, 0):
        batch = weigh(part, stage)
        each = batch.weights.reshape(-1, 8).sum(1)
        rows = batch.row_weights.reshape(-1, 8).sum(1)
        assert each.tolist() == pytest.approx([float(each[0])] * len(each))
        assert rows.tolist() == pytest.approx([float(rows[0])] * len(rows))
        seen += len(each)
    assert seen == 4


def test_groups_are_put_together_in_order():
    class Counting:
        def sample(self, prompts, group, seed):
            ids = torch.tensor(prompts)[:, None] * 100 + torch.arange(len(prompts) * group).reshape(-1, group)
            return Rollout.of({"id": ids}, ids[..., None].float(), torch.ones(*ids.shape, 1), reasons={(3, 1): "why"})

        def decode(self, samples):
            return samples["id"].tolist()

    rollout, outputs = Spread([2, 6, 4], 2, 8).sample(Counting(), [1, 2, 3], 0)
    assert outputs == [[100, 101], [202, 203, 204, 205, 206, 207], [308, 309, 310, 311]]
    assert rollout.present.sum(1).tolist() == [2, 6, 4]
    for row, own in zip(rollout.samples["id"].tolist(), outputs):
        assert row[: len(own)] == own
        assert set(row[len(own) :]) <= {own[0]}
    assert torch.equal(rollout.mask[..., 0], rollout.present)
    assert torch.equal(rollout.log_probs[..., 0], torch.where(rollout.present, rollout.samples["id"].float(), 0.0))
    assert rollout.reasons == {(1, 5): "why"}


def test_scores_of_groups_of_one_size_are_made_together():
    asked = []

    class Comparing(BestArm):
        def score(self, prompts, outputs):
            asked.append(outputs)
            scores = super().score(prompts, outputs)
            scores.reasons.update({(0, 1): f"of {len(outputs[0])}"})
            return scores

    xs = [{"x": torch.eye(ARMS)[i]} for i in range(3)]
    outputs = [[[0], [1]], [[1], [1], [0], [1]], [[2], [0]]]
    scores = Spread([2, 4, 2], 2, 6).score(xs, outputs, Comparing().score)
    assert asked == [[outputs[0], outputs[2]], [outputs[1]]]
    assert scores.rewards.tolist() == [[1, 0, 0, 0, 0, 0], [1, 1, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0]]
    assert scores.valid.tolist() == [[True] * n + [False] * (6 - n) for n in (2, 4, 2)]
    assert scores.reasons == {(0, 1): "of 2", (1, 1): "of 4"}
    assert scores.components["hit"][0].isnan().tolist() == [False] * 2 + [True] * 4


def test_the_book_knows_a_prompt_again_and_its_state_comes_back():
    prompt = {"x": torch.ones(3), "text": "one"}
    assert number_of(prompt) == number_of({"x": torch.ones(3), "text": "one"}) != number_of(prompt | {"text": "two"})
    rollout = unequal([2, 4], 4, torch.tensor([[1.0, 0, 0, 0], [1, 1, 1, 1]]))
    book = PromptBook()
    book.learn(Rollout(**{**rollout.__dict__, "prompt_id": torch.tensor([7, 9])}))
    assert book.seen[7].count == 2
    assert book.seen[9].total == 4
    assert PromptBook.of(book.state()) == book
    assert PromptBook.of(PromptBook().state()) == PromptBook()


def test_pass_at_k_asks_for_groups_that_have_k_others(tmp_path):
    with pytest.raises(ConfigError, match="smallest_group"):
        run_of(tmp_path / "run", algorithm=AUTO | {"advantage": "pass_at_k", "pass_k": 2})
    assert TOYS.is_file()


@pytest.mark.parametrize("stages", [(), [{"name": "one", "steps": 2, "algorithm": {"group_size": "auto"}}]])
def test_the_budget_is_measured_once_and_kept(tmp_path, monkeypatch, stages):
    """Samples a second that double with each doubling of the group up to 16 samples a prompt, and stay from there."""
    clock = iter(x for g in (4, 4, 8, 16, 32) for x in (0.0, max(g, 16) / 16))
    monkeypatch.setattr("anygrpo.train.budget.time.perf_counter", lambda: next(clock))
    auto = {"prompts_per_step": 8} | ({} if stages else {"group_size": "auto"})
    run = run_of(tmp_path / "run", "--training.steps", "2", "--training.checkpoint-every", "1", algorithm=auto,
                 **({"stages": stages} if stages else {}))  # fmt: skip
    assert run.stages[0].stage.algorithm.samples_per_step == 8 * 16
    monkeypatch.undo()
    cut_after(run, 0)
    again = resumed_run(tmp_path / "run")
    assert again.stages[0].stage.algorithm.samples_per_step == 8 * 16
    train(again)
    again.close()
    assert rows_of(tmp_path / "run")[-1]["samples/seen"] == 2 * 8 * 16
    assert "128 samples a step, as measured" in (tmp_path / "run" / "log.txt").read_text()


@pytest.mark.parametrize("options", [{}, {"max_turns": 2}], ids=["answers", "conversations"])
def test_a_language_models_unequal_groups_are_scored_as_they_were_sampled(tmp_path, options):
    """Ratios of 1 at a rate of 0, with prompts that share their rows' prefix in groups of 2 to 8."""
    world = tmp_path / "world.py"
    world.write_text("def step(messages, columns):\n    return 'w1 w2'\n")
    more = options | ({"environment": f"{world}:step"} if options else {})
    lm = TOYS.with_name("tiny_lm.py")
    finished(
        tmp_path / "run",
        policy={"kind": "python", "function": f"{lm}:policy", "arguments": more},
        task={"kind": "python", "function": f"{lm}:Even"},
        algorithm={"prompts_per_step": 4, "group_size": "auto", "samples_per_step": 16, "largest_group": 8},
        optimizer={"learning_rate": 0.0},
        training={"steps": 3},
    )
    rows = [row for row in rows_of(tmp_path / "run") if row["step"] >= 0]
    assert [row["samples/seen"] for row in rows] == [16, 32, 48]
    assert all(row["ratio/mean"] == pytest.approx(1.0, abs=1e-5) for row in rows)


def _on_ranks(folder):
    auto = AUTO | {"prompts_per_step": 7, "samples_per_step": 56, "temperature": HELD | {"of": "live"}}
    run = run_of(folder, "--training.steps", "7", algorithm=auto, task=POOL)
    train(run)
    run.close()
    adaptive = run.adaptive
    return adaptive.book.state(), adaptive.heat.value, {k: v.tolist() for k, v in run.policy.net.state_dict().items()}


@pytest.mark.cpu
def test_ranks_share_a_book_a_temperature_and_the_budget(tmp_path):
    """Seven prompts on two and on three ranks: groups of sizes that other ranks do not have are joined."""
    for count in (2, 3):
        answers = on_ranks(count, _on_ranks, tmp_path / str(count))
        assert all(answer == answers[0] for answer in answers[1:])
        rows = [row for row in rows_of(tmp_path / str(count)) if row["step"] >= 0]
        assert [row["samples/seen"] for row in rows] == [56 * i for i in range(1, 8)]
        assert rows[-1]["groups/size_min"] < rows[-1]["groups/size"]
        assert all(row["ratio/mean"] == pytest.approx(1.0, abs=1e-5) for row in rows if "ratio/mean" in row)
