"""Each collective operation, and what the loop makes of it, on two ranks: this process is the first."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from ranks import beside, dealt
from runs import run_of
from stages import numbers_of, stage_of
from torch import nn
from toys import Bandit, BestArm

from anygrpo.core.rollout import Rollout
from anygrpo.core.task import Scores, Success
from anygrpo.errors import ConfigError, TrainingError
from anygrpo.recipe.training import EvaluationConfig
from anygrpo.train import distributed, parallel, snapshot
from anygrpo.train.batches import own_part, prepare, weigh
from anygrpo.train.collect import begin, whole_of
from anygrpo.train.distributed import Follower, folder_of, process_group, same_weights
from anygrpo.train.evaluation import evaluate
from anygrpo.train.folder import RunFolder
from anygrpo.train.measure import entropy_estimate
from anygrpo.train.terms import Tally

pytestmark = pytest.mark.cpu


def both(function):
    """The function's two answers, the first of which is of this process."""
    return beside(function)


# --- one process


def test_alone_everything_is_itself():
    x = torch.tensor([1.0, 2.0])
    assert (parallel.world_size(), parallel.rank(), parallel.is_main(), parallel.rank_seed(7)) == (1, 0, True, 7)
    assert parallel.rank_seed(2**31 + 5) == 6
    assert parallel.sum_over_ranks(x) is x
    assert parallel.max_over_ranks(x) is x
    assert (parallel.most_over_ranks(3), parallel.total_over_ranks(4)) == (3.0, 4.0)
    assert parallel.gather("a") == ["a"]
    assert parallel.from_main("a") == "a"
    assert parallel.share([1, 2, 3]) == [1, 2, 3]
    assert parallel.sum_gradients([None, x], [x, x]) == [None, x]
    assert not parallel.is_sharded(x)
    assert parallel.local(x) is x
    assert float(parallel.total_norm([None, torch.tensor([3.0]), torch.tensor([4.0])])) == 5.0
    assert float(parallel.total_norm([None])) == 0.0
    assert parallel._BUCKET * 4 == 2**28  # 256 MB in float32


class Shard(torch.Tensor):
    """A shard stands for the half of a tensor."""

    def to_local(self):
        return self.as_subclass(torch.Tensor)


def test_shards_count_once_each():
    shard = torch.tensor([4.0]).as_subclass(Shard)
    assert parallel.is_sharded(shard)
    assert type(parallel.local(shard)) is torch.Tensor
    norm = parallel.total_norm([torch.tensor([3.0]), shard, None])
    assert float(norm) == 5.0
    assert norm.dtype == torch.float32
    assert float(parallel.total_norm([shard])) == 4.0


# --- two


def test_sums_maxima_and_lists():
    def ask():
        r = parallel.rank()
        x = torch.tensor([1.0 + r, 5.0 - r])
        summed, most = parallel.sum_over_ranks(x), parallel.max_over_ranks(x)
        return (
            parallel.world_size(), r, parallel.is_main(), parallel.rank_seed(7), summed.tolist(), str(summed.dtype),
            most.tolist(), x.tolist(), parallel.most_over_ranks(r), parallel.total_over_ranks(r + 1),
            parallel.gather(f"rank {r}"), parallel.from_main(f"rank {r}"), parallel.share(range(5)), parallel.share([]),
            parallel.rank_seed(2**31 - 2),
        )  # fmt: skip

    same = ([3.0, 9.0], "torch.float32", [2.0, 5.0])
    lists = (1.0, 3.0, ["rank 0", "rank 1"], "rank 0")
    assert both(ask) == [
        (2, 0, True, 7, *same, [1.0, 5.0], *lists, [0, 1, 2], [], 2**31 - 2),
        (2, 1, False, 7 + 15_485_863, *same, [2.0, 4.0], *lists, [3, 4], [], 15_485_862),
    ]


@pytest.mark.parametrize("bucket", [1, 3, 100])
def test_gradients_are_summed_where_any_rank_has_one(monkeypatch, bucket):
    monkeypatch.setattr(parallel, "_BUCKET", bucket)

    def ask():
        r = parallel.rank()
        like = [torch.zeros(2, 2), torch.zeros(3), torch.zeros(1), torch.zeros(2)]
        given = [torch.full((2, 2), 1.0 + r), None, None if r else torch.tensor([7.0]), torch.tensor([r, 2.0])]
        return [None if g is None else g.tolist() for g in parallel.sum_gradients(given, like)]

    expected = [[[3.0, 3.0], [3.0, 3.0]], None, [7.0], [1.0, 4.0]]
    assert both(ask) == [expected, expected]


def test_shards_of_gradients_stay_and_their_norm_is_of_all():
    def ask():
        r = parallel.rank()
        shard = torch.tensor([3.0 + r]).as_subclass(Shard)
        like = [torch.zeros(1).as_subclass(Shard), torch.zeros(1)]
        out = parallel.sum_gradients([shard, torch.tensor([6.0])], like)
        return float(parallel.local(out[0])), float(out[1]), float(parallel.total_norm([shard, torch.tensor([12.0])]))

    assert both(ask) == [(3.0, 12.0, 13.0), (4.0, 12.0, 13.0)]


def test_tallies_of_ranks_with_different_names():
    def ask():
        tally, r = Tally(), parallel.rank()
        tally.add("both", torch.tensor(1.0 + r))
        tally.peak("high", torch.tensor(5.0 - r))
        tally.add(f"only {r}", torch.tensor(7.0))
        if r:
            tally.peak("one", torch.tensor(-2.0))
        found = tally.over_ranks()
        return {k: float(v) for k, v in found.sums.items()}, {k: float(v) for k, v in found.maxima.items()}

    expected = ({"both": 3.0, "only 0": 7.0, "only 1": 7.0}, {"high": 5.0, "one": -2.0})
    assert both(ask) == [expected, expected]
    nothing = both(lambda: (Tally().over_ranks().sums, Tally().over_ranks().maxima))
    assert nothing == [({}, {})] * 2


# --- a step


def example():
    """Three groups of two, of 2, 1 and 3 decisions; the second has an invalid sample."""
    mask = torch.arange(3) < torch.tensor([[2, 2], [1, 1], [3, 3]])[..., None]
    return Rollout.of(
        {"n": torch.arange(6).view(3, 2)}, -torch.arange(1.0, 19).view(3, 2, 3), mask,
        rewards=torch.tensor([[0.0, 1.0], [2.0, 3.0], [0.0, 4.0]]),
        valid=torch.tensor([[True, True], [True, False], [True, True]]),
        ended=torch.tensor([[True, False], [True, True], [False, True]]),
        components={"hit": torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])}, reasons={(1, 1): "why"},
        info={"length/mean": 2.0, "time/a": 1.0},
    )  # fmt: skip


def test_a_whole_step_is_gathered_and_a_ranks_part_is_cut_out():
    stage = stage_of(reduction="sequence_mean", filters=())

    def ask():
        mine = dealt(example())
        mine = replace(mine, info={"time/a": 1.0 + parallel.rank()})
        whole, first = whole_of(mine)
        prepared = prepare(whole, stage, numbers_of(stage), None)
        own = own_part(prepared, mine, first)
        batch = weigh(own, stage)
        by_turn = replace(prepared, advantages=prepared.advantages[..., None].expand(3, 2, 3))
        return (
            first, whole.rewards.tolist(), whole.valid.tolist(), whole.ended.tolist(), whole.reasons, whole.info,
            whole.components["hit"].tolist(), whole.samples, own.first, own.groups, own.advantages.tolist(),
            own.mask.tolist(), own.rollout.samples["n"].tolist(), batch.weights.tolist(), batch.row_weights.tolist(),
            own_part(by_turn, mine, first).advantages[..., 0].tolist(),
        )  # fmt: skip

    alone = example()
    prepared = prepare(alone, stage, numbers_of(stage), None)
    batch = weigh(prepared, stage)
    answers = both(ask)
    for (first, *whole, own_first, groups, advantages, mask, n, weights, rows, by_turn), part in zip(
        answers, (slice(0, 2), slice(2, 3))
    ):
        assert first == own_first == part.start
        assert groups == 3
        assert whole == [
            alone.rewards.tolist(), alone.valid.tolist(), alone.ended.tolist(), {(1, 1): "why"}, {"time/a": 2.0},
            alone.components["hit"].tolist(), {},
        ]  # fmt: skip
        assert advantages == prepared.advantages[part].tolist() == by_turn
        assert mask == prepared.mask[part].tolist()
        assert n == alone.samples["n"][part].tolist()
        here = slice(2 * part.start, 2 * part.stop)
        assert weights == batch.weights[here].tolist()
        assert rows == batch.row_weights[here].tolist()


def test_a_narrow_ranks_part_is_cut_to_its_width():
    stage = stage_of(filters=())

    def ask():
        whole = example()
        mine = whole.groups(
            torch.tensor([True, True, False]) if parallel.is_main() else torch.tensor([False, False, True])
        )
        if parallel.is_main():
            mine = replace(mine, log_probs=mine.log_probs[..., :2], mask=mine.mask[..., :2], turn=mine.turn[..., :2])
        every, first = whole_of(mine)
        own = own_part(prepare(every, stage, numbers_of(stage), None), mine, first)
        return tuple(own.mask.shape), tuple(every.mask.shape), own.width

    assert both(ask) == [((2, 2, 2), (3, 2, 3), 3), ((1, 2, 3), (3, 2, 3), 3)]


def test_the_entropy_is_of_all_ranks():
    def ask():
        mine = dealt(example())
        return entropy_estimate(mine, stage_of(), SimpleNamespace(provides={"entropy"}))["entropy"]

    alone = example()
    assert both(ask) == [pytest.approx(-float(alone.log_probs[alone.mask].mean()))] * 2


def test_a_rank_without_prompts_keeps_none_of_anothers(tmp_path):
    def ask():
        run = run_of(tmp_path / "run", algorithm={"prompts_per_step": 1, "group_size": 2})
        run.enter(0)
        rollout = begin(run, run.stages[0], 0, run.clock)()
        whole, first = whole_of(rollout)
        run.close()
        return rollout.shape[0], whole.shape[0], first

    assert both(ask) == [(1, 1, 0), (0, 1, 1)]


# --- evaluation and checkpoints


class Counted(BestArm):
    """Rewards by the number of arms; the last prompt cannot be scored through no fault of it."""

    def held_out(self):
        return self.prompts(10**6, 5)

    def score(self, prompts, outputs):
        made = super().score(prompts, outputs)
        n = len(prompts)
        return Scores(made.rewards, made.components, torch.ones(n, 1, dtype=torch.bool) if n == 2 else None)


def test_held_out_numbers_are_those_of_one_process(tmp_path):
    def ask():
        return evaluate(Bandit(0), Counted(), EvaluationConfig(), 3, tmp_path / f"rows{parallel.world_size()}.jsonl")

    alone = ask()
    assert both(ask) == [alone, alone]
    assert (tmp_path / "rows2.jsonl").read_text() == (tmp_path / "rows1.jsonl").read_text()


def test_passing_is_of_all_ranks_prompts():
    class Sure(Counted):
        def score(self, prompts, outputs):
            return Scores(torch.tensor([[float(p["x"][0] > 0)] * len(o) for p, o in zip(prompts, outputs)]))

    task = Sure()
    task.success = Success("reward", 1.0)
    share = sum(float(p["x"][0] > 0) for p in task.held_out()) / 5

    def ask():
        return evaluate(Bandit(0), task, EvaluationConfig(pass_k=2), 3)["eval/pass_at_2"]

    assert both(ask) == [pytest.approx(share)] * 2


def test_what_is_sampled_ahead_is_gathered_for_a_checkpoint_and_dealt_again():
    def ask():
        whole = snapshot._whole_ahead(dealt(example()))
        assert whole is not None
        mine = snapshot._own_ahead(whole)
        assert snapshot._whole_ahead(None) is None
        assert snapshot._own_ahead(None) is None
        return whole.samples["n"].tolist(), mine.samples["n"].tolist()

    n = example().samples["n"].tolist()
    assert both(ask) == [(n, n[:2]), (n, n[2:])]


def test_one_rank_that_cannot_write_is_said_by_all():
    def ask():
        def act():
            if not parallel.is_main():
                raise OSError(28, "full")

        try:
            snapshot.together(act)
        except OSError as error:
            return error.errno, str(error)
        return None

    assert both(ask) == [(28, "[Errno 28] rank 1: [Errno 28] full")] * 2


# --- joining


def test_rank_0s_weights_are_everyones():
    def ask():
        module = nn.Linear(2, 1)
        with torch.no_grad():
            module.weight.fill_(1.0 + parallel.rank())
            module.bias.fill_(1.0 + parallel.rank())
        module.bias.requires_grad_(False)
        before = module.weight._version
        same_weights(module)
        return module.weight.tolist(), module.bias.tolist(), module.weight._version > before

    assert both(ask) == [([[1.0, 1.0]], [1.0], True), ([[1.0, 1.0]], [2.0], True)]


def test_only_rank_0_owns_the_folder(tmp_path):
    def ask():
        folder = folder_of(tmp_path / "run", resume=False)
        kind = type(folder)
        folder.log("a line")
        folder.describe(None) if isinstance(folder, Follower) else None
        folder.close()
        return kind is (RunFolder if parallel.is_main() else Follower), folder.path.name

    assert both(ask) == [(True, "run")] * 2
    assert (tmp_path / "run" / "log.txt").read_text().count("a line") == 1


def test_a_follower_writes_nothing(tmp_path):
    folder = Follower(tmp_path / "none")
    folder.describe(None)
    folder.keep_fingerprints({})
    folder.write_samples(0, [{}])
    folder.log("x")
    folder.log_invalid(0, {(0, 0): "x"})
    folder.close()
    assert not (tmp_path / "none").exists()
    assert folder.metrics == tmp_path / "none" / "metrics.jsonl"


def joined(monkeypatch, cuda=False, size="2"):
    calls = []
    monkeypatch.setenv("WORLD_SIZE", size)
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setattr(dist, "is_initialized", lambda: False)
    monkeypatch.setattr(dist, "init_process_group", lambda *a, **k: calls.append((a, k["timeout"].total_seconds())))
    monkeypatch.setattr(dist, "destroy_process_group", lambda: calls.append("destroyed"))
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: calls.append(("device", number)))
    return calls


def test_processes_join_and_part(monkeypatch):
    calls = joined(monkeypatch)
    with process_group():
        assert calls == [(("gloo",), 3600.0)]
    assert calls[1:] == ["destroyed"]
    calls = joined(monkeypatch, cuda=True)
    with process_group():
        assert calls == [("device", 3), (("cpu:gloo,cuda:nccl",), 3600.0)]
    monkeypatch.delenv("LOCAL_RANK")
    calls.clear()
    with process_group():
        assert calls[0] == ("device", 0)
    calls = joined(monkeypatch, size="1")
    with process_group():
        pass
    monkeypatch.delenv("WORLD_SIZE")
    with process_group():
        pass
    assert calls == []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    with process_group():
        pass
    assert calls == []


def test_more_ranks_than_gpus_is_said_before_they_join(monkeypatch):
    calls = joined(monkeypatch, cuda=True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    with pytest.raises(ConfigError, match="rank 3 of this machine has no GPU: it has 3"), process_group():
        pass
    assert calls == []


@pytest.mark.parametrize(
    "text", ["[../gloo/transport] x", "NCCL error", "Connection closed by peer [1]", "Socket Timeout"]
)
def test_a_rank_that_is_gone_is_said(monkeypatch, text):
    calls = joined(monkeypatch)
    with pytest.raises(TrainingError, match="rank 1: another rank is gone, or was silent for 1:00:00"), process_group():
        raise RuntimeError(text)
    assert "destroyed" not in calls
    for error in (RuntimeError("shapes differ"), ValueError("gloo")):
        with pytest.raises(type(error)), process_group():
            raise error
    with pytest.raises(TrainingError), process_group():
        raise dist.DistError("odd")
    assert distributed._PATIENCE.total_seconds() == 3600


def test_the_largest_number_of_all_ranks_is_exact_beyond_float32():
    assert parallel.most_over_ranks(2**24 + 1) == 2**24 + 1
