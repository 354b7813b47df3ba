"""Pictures of held-out prompts before and after."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from toys import Bandit, BestArm

from anygrpo.train import pictures


class Drawn(BestArm):
    def __init__(self):
        super().__init__(0)
        self.drawn = []

    def pictures(self, prompts, before, after, folder):
        self.drawn.append((len(prompts), before, after, folder))
        return []


class Tensors(Bandit):
    """Outputs are tensors, and something else."""

    def decode(self, samples):
        return [[row.float(), "text"] for row in samples["arms"][:, 0]]


def run_of(tmp_path, task, policy=None, step=0):
    said = []
    folder = SimpleNamespace(pictures=tmp_path / "pictures", log=said.append, said=said)
    earlier = SimpleNamespace(task=BestArm())
    return SimpleNamespace(
        stages=[earlier, SimpleNamespace(task=task)], step=step, policy=policy or Tensors(0), folder=folder
    )


def test_the_same_prompts_before_and_after(tmp_path):
    task = Drawn()
    run = run_of(tmp_path, task)
    pictures.remember(run)
    before = run.policy.decode(run.policy.greedy(task.held_out()[:7]).samples)
    with torch.no_grad():
        run.policy.net.weight.neg_()
    run.step = 9
    pictures.remember(run)  # a resumed run keeps what it has
    pictures.draw(run)
    ((count, was, now, folder),) = task.drawn
    assert (count, folder) == (7, run.folder.pictures)
    assert [[row[0].tolist(), row[1]] for row in was] == [[row[0].tolist(), row[1]] for row in before]
    assert [row[0].tolist() for row in now] != [row[0].tolist() for row in was]
    assert not now[0][0].requires_grad


def test_nothing_is_drawn_where_nothing_was_kept(tmp_path):
    task = Drawn()
    late = run_of(tmp_path, task, step=1)
    pictures.remember(late)
    assert not late.folder.pictures.exists()
    pictures.draw(late)
    assert task.drawn == []


def test_a_task_without_pictures_is_left_alone(tmp_path):
    run = run_of(tmp_path, BestArm())
    pictures.remember(run)
    pictures.draw(run)
    assert not run.folder.pictures.exists()
    run.stages = []
    pictures.remember(run)
    pictures.draw(run)
    assert not run.folder.pictures.exists()


def test_outputs_of_a_kind_of_their_own_are_said(tmp_path):
    class Odd(Bandit):
        def decode(self, samples):
            return [[object()] for _ in samples["arms"]]

    run = run_of(tmp_path, Drawn(), Odd(0))
    pictures.remember(run)
    assert run.folder.said
    assert run.folder.said[0].startswith("no pictures: ")
    pictures.draw(run)
    assert run.stages[-1].task.drawn == []
    pictures.remember(run)  # once more, though the folder is there


def test_tensors_of_a_device_come_to_the_host(tmp_path):
    run = run_of(tmp_path, Drawn())
    moved = SimpleNamespace(calls=0)

    class Elsewhere(torch.Tensor):
        def cpu(self):
            moved.calls += 1
            return super().cpu()

    run.policy.decode = lambda samples: [[torch.ones(2).as_subclass(Elsewhere)]]
    assert len(pictures._outputs(run, run.stages[-1].task.held_out()[:1])) == 1
    assert moved.calls == 1
