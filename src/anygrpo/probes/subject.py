"""The thing that is probed: a run just before the first update of one stage, built from the loop's own parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.core.device import rounded
from anygrpo.core.policy import Policy
from anygrpo.core.probe_outcome import Outcome
from anygrpo.core.rollout import Batch, Evaluation, Rollout
from anygrpo.recipe.recipe import number
from anygrpo.train.batches import Prepared, needed_rows, prepare, weigh
from anygrpo.train.collect import begin_once
from anygrpo.train.demonstrations import with_demonstrations
from anygrpo.train.log_probs import with_reference
from anygrpo.train.loop import needs_reference
from anygrpo.train.run import Run
from anygrpo.train.stages import Numbers, PlannedStage, numbers_at
from anygrpo.train.terms import Tally
from anygrpo.train.update import Updater

_PASSES = 80
"""Forward and backward passes over a batch that all probes together take, roughly: sets how many rows they use."""


@dataclass(frozen=True)
class Answers:
    """Prompts with the policy's decoded outputs of one rollout."""

    prompts: list[Any]
    outputs: list[list[Any]]


class Subject:
    """A run at the start of one stage, with a scored rollout and what probes derive from it.

    Args:
        run: fresh; its folder is a temporary one. Its weights are changed only inside `untouched`.
        stage: index of the stage to look at.
        seconds: how long the probes may take, roughly; sets how many rows the gradient probes use.

    Attributes:
        planned, stage, task, policy: of that stage.
        numbers: its scheduled numbers at mid-stage, when warm-ups are over: those of the sampled rows.
        taught: demonstrations that train beside them, or None.
        rate: the largest learning rate it plans.
        rollout: one step's samples, scored.
        answers: the same, decoded.
        outcomes: of the probes that have run, by name.
        small: as many whole groups of it as time allows, groups with reward spread first.
    """

    def __init__(self, run: Run, stage: int, seconds: float) -> None:
        self.run, self.seconds = run, seconds
        self.outcomes: dict[str, Outcome] = {}
        self.planned: PlannedStage = run.stages[stage]
        self.stage, self.task = self.planned.stage, self.planned.task
        self.policy: Policy = run.policy
        self.module: nn.Module = run.policy.trainable()
        run.step = self.planned.begin
        run.enter(self.planned.begin)
        numbers = numbers_at(self.stage, self.planned.steps // 2, self.planned.steps)
        self.numbers, self.taught = with_demonstrations(run, self.planned, numbers) if run.teaches else (numbers, None)
        self.rate = number(self.stage.optimizer.learning_rate)
        self.block_rows = run.block_rows
        began = time.perf_counter()
        self.rollout = self.draw(0)
        self.sampling_seconds = time.perf_counter() - began
        prompts = self.task.prompts(0, self.stage.algorithm.prompts_per_step)
        self.answers = Answers(prompts, self.policy.decode(self.rollout.samples))
        self.small = self._affordable_groups()

    @property
    def samples_itself(self) -> bool:
        """Whether this stage's actions are drawn by the policy (not replayed from storage)."""
        return self.stage.source == "policy"

    @property
    def device(self) -> torch.device:
        """Where the policy computes."""
        return self.policy.parameters()[0].device

    @property
    def exact(self) -> bool:
        """Whether weights and buffers are all float32 or finer, and so computed with, so that sums in another order
        agree to 1e-4."""
        tensors = (*self.module.parameters(), *self.module.buffers())
        return not rounded(self.module) and not any(t.dtype in (torch.bfloat16, torch.float16) for t in tensors)

    def draw(self, index: int) -> Rollout:
        """The stage's rollout number `index`, as the loop would gather it."""
        seed = self.run.seed(self.planned.begin + index, salt=10)
        return begin_once(self.run, self.planned, index, seed, self.run.clock)()

    def _affordable_groups(self) -> Rollout:
        """Whole groups whose `_PASSES` passes fit into the time given; at least two groups."""
        p = self.rollout.shape[0]
        trial = self.rollout.groups(torch.arange(p) < 1)
        began = time.perf_counter()
        self.score(self.everything(trial))
        per_group = 3 * (time.perf_counter() - began)
        count = min(p, max(2, int(self.seconds / (_PASSES * max(per_group, 1e-9)))))
        order = torch.argsort(self.rollout.live_groups().int(), descending=True, stable=True)
        keep = torch.zeros(p, dtype=torch.bool)
        keep[order[:count].cpu()] = True
        return self.rollout.groups(keep)

    # ------------------------------------------------------------------ batches

    def everything(self, rollout: Rollout | None = None) -> Batch:
        """All valid rows, dead groups too, with advantage 0: for scoring only."""
        rollout = self.small if rollout is None else rollout
        mask = rollout.mask & rollout.valid[..., None]
        return weigh(Prepared(rollout, torch.zeros_like(rollout.rewards), mask, {}), self.stage)

    def prepared(self, rollout: Rollout | None = None, **changes: Any) -> Prepared:
        """Filters and advantages of this stage, with some of its algorithm's settings changed."""
        stage = replace(self.stage, algorithm=self.stage.algorithm.model_copy(update=changes))
        return prepare(self.small if rollout is None else rollout, stage, self.numbers, None)

    @cached_property
    def batch(self) -> Batch:
        """The rows that the loop would train on, of the affordable groups."""
        return self.ready(
            needed_rows(weigh(self.prepared(), self.stage), self.numbers, self.stage, bool(self.policy.own_losses))
        )

    @cached_property
    def preference(self) -> Batch:
        """Made-up advantages, +1 and -1 in turn (as weights: 2 and 0), on the same rows: a preference that any policy
        can follow."""
        rollout = self.small
        p, g, _ = rollout.shape
        turn = torch.arange(g).repeat(p, 1) if g > 1 else torch.arange(p)[:, None]
        values = (1.0 - 2.0 * (turn % 2)).to(rollout.rewards) + (self.stage.method == "rce")
        mask = rollout.mask & rollout.valid[..., None]
        return self.ready(weigh(Prepared(rollout, values, mask, {}), self.stage))

    def ready(self, batch: Batch) -> Batch:
        """With reference log-probs where the stage's KL needs them."""
        if len(batch) and needs_reference(self.stage, self.numbers):
            return with_reference(self.policy, batch, self.block_rows)
        return batch

    # ------------------------------------------------------------------ scoring and updating

    def score(self, batch: Batch, rows: int | None = None) -> Tensor:
        """[N, T] log-probs as the loss computes them (gradient on, the policy's own blocks), detached, float64."""
        return self._each_block(batch, rows or self.block_rows, lambda e: e.log_probs, frozenset())

    def exact_kl(self, batch: Batch) -> Tensor:
        """[N, T] exact KL to the reference, of policies that provide it."""
        return self._each_block(batch, self.block_rows, lambda e: e.kl, frozenset({"kl"}))

    def _each_block(
        self, batch: Batch, rows: int, pick: Callable[[Evaluation], Tensor | None], want: frozenset[str]
    ) -> Tensor:
        out = torch.zeros(batch.old.shape, dtype=torch.float64, device=batch.old.device)
        plan = self.policy.plan(batch.samples, rows)
        if isinstance(plan, int):
            plan = [torch.arange(a, min(a + plan, len(batch))) for a in range(0, len(batch), plan)]
        with torch.enable_grad():
            for index in plan:
                index = index.to(out.device)
                for block in batch.blocks([index], self.policy.time_chunk):
                    value = pick(self.policy.evaluate(block.samples, block.times, want))
                    assert value is not None
                    out[index, block.times] = value.detach().double().to(out.device)
        return out

    def reference_scores(self, batch: Batch) -> Tensor:
        """[N, T] log-probs under the frozen reference."""
        ref = with_reference(self.policy, batch, self.block_rows).ref
        assert ref is not None
        return ref.double()

    def updater(self) -> Updater:
        """A fresh optimizer over the policy, as the stage would begin with."""
        return Updater(self.policy, self.stage.optimizer)

    def accumulate(self, updater: Updater, batch: Batch, numbers: Numbers | None = None, taught: bool = False) -> Tally:
        """The batch's gradients in `.grad`; with `taught`, those of the demonstrations too."""
        beside = self.taught if taught else None
        return updater.accumulate(batch, self.stage, numbers or self.numbers, self.block_rows, False, beside)

    @contextmanager
    def untouched(self) -> Iterator[Callable[[], None]]:
        """Everything that training changes in the policy comes back bit for bit at the end, and whenever the yielded
        function is called."""
        tensors = [*self.module.parameters(), *self.module.buffers()]
        saved = [t.detach().clone() for t in tensors]
        gradients = [p.grad for p in self.module.parameters()]
        modes = [(m, m.training) for m in self.module.modules()]

        def back() -> None:
            with torch.no_grad():
                for tensor, value in zip(tensors, saved):
                    tensor.copy_(value)

        try:
            yield back
        finally:
            back()
            for parameter, gradient in zip(self.module.parameters(), gradients):
                parameter.grad = gradient
            for module, training in modes:
                module.training = training
