"""The loop. One screen: every kind of policy, every stage, every objective runs through these lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from anygrpo.errors import Interrupted
from anygrpo.spoken import Text
from anygrpo.train import snapshot
from anygrpo.train.batches import minibatches, needed_rows, own_part, prepare, weigh
from anygrpo.train.collect import Collector, whole_of
from anygrpo.train.demonstrations import with_demonstrations
from anygrpo.train.importance import corrected
from anygrpo.train.interrupt import INTERRUPTED, interruptible
from anygrpo.train.log_probs import referenced
from anygrpo.train.measure import entropy_estimate
from anygrpo.train.parallel import gather, total_over_ranks
from anygrpo.train.queue import Queue
from anygrpo.train.run import Run
from anygrpo.train.stages import Numbers
from anygrpo.train.terms import Tally


def train(run: Run) -> None:
    """Take the run's remaining steps. All that lasts is in `run`; all that is random follows from (seed, step)."""
    rows = run.block_rows
    with snapshot.accounted(run), closing(collector_of(run)) as collector:
        for step in remaining_steps(run):
            planned, numbers = run.enter(step)
            stage, measuring = planned.stage, run.measuring(step)
            with run.whole_weights():
                rollout, demonstrations = collector.take(planned, step), None
                if run.teaches:
                    numbers, demonstrations = with_demonstrations(run, planned, numbers)
                if planned.sampled_ahead:
                    collector.start(planned, step)
            whole, first = whole_of(rollout)
            prepared = prepare(whole, stage, numbers, run.memory)
            run.memory = prepared.memory
            tally, update = Tally(), {}
            with run.clock("update"):
                own, mismatch = own_part(prepared, rollout, first), {}
                if run.policy.corrects:
                    own, mismatch = corrected(run.policy, own, stage, rows)
                if needs_reference(stage, numbers):
                    own = referenced(run.policy, own, rows)
                for part in minibatches(own, stage, run.seed(step, salt=1)):
                    batch = needed_rows(weigh(part, stage), numbers, stage, bool(run.policy.own_losses))
                    if demonstrations is None and total_over_ranks(len(batch)) == 0:
                        continue  # no group has spread: no gradient, no step
                    run.settle(batch)
                    done = run.updater.accumulate(batch, stage, numbers, rows, measuring, demonstrations)
                    tally.merge(done)
                    if moved_too_far(done, stage.algorithm.target_kl):
                        run.updater.optimizer.zero_grad()
                        break
                    update = run.updater.step(numbers.learning_rate, run.measures_updates)
                    run.apply(update)
            if planned.sampled_ahead:
                collector.finish()
            update |= mismatch | entropy_estimate(rollout, stage, run.policy)
            run.record(step, planned, numbers, prepared, whole, tally, update)


def collector_of(run: Run) -> Collector:
    """Where this run's rollouts come from."""
    return Queue(run) if run.recipe.training.max_staleness else Collector(run)


def remaining_steps(run: Run) -> Iterator[int]:
    """Steps not yet taken; ends early when something asked to stop. Saves on the recipe's rhythm, after each new best,
    and at the end. After `roll_back_to` the steps since that checkpoint are given again."""
    with interruptible(run):
        ending = _agree(run)
        while run.step < run.total_steps and ending is None:
            yield run.step
            if run.best_step == run.step:  # after its row: a run killed in between takes the step again
                snapshot.save(run, best=True, step=run.step + 1)
            ending = _agree(run)
            if run.back_to is not None:
                back_to, run.back_to = run.back_to, None
                snapshot.roll_back(run, back_to)
                continue
            run.step += 1
            if run.step % run.recipe.training.checkpoint_every == 0:
                snapshot.save(run)
    if run.entered >= 0 or snapshot.newest(run.folder.checkpoints) is None:  # else that checkpoint has more
        snapshot.save(run)
    if ending == INTERRUPTED:
        raise Interrupted(
            Text(f"stopped by the user after step {run.step}", f"用户在第 {run.step} 步之后停止"),
            Text(f"continue with --resume {run.folder.path}", f"继续请用 --resume {run.folder.path}"),
        )


def _agree(run: Run) -> str | None:
    """Why to end, if at all. What one rank was asked (by a signal, or by the doctor beside rank 0) holds on all."""
    asked = gather((run.stop_reason, run.controls, run.back_to))
    _, run.controls, run.back_to = asked[0]
    return next((reason for reason, _, _ in asked if reason), None)


def needs_reference(stage: Any, numbers: Numbers) -> bool:
    """Whether the batch must carry log-probs under the reference (an exact KL computes its own)."""
    return stage.method == "grpo" and numbers.beta > 0 and stage.algorithm.kl != "exact"


def moved_too_far(tally: Tally, target: float | None) -> bool:
    """target-KL early stop: the policy is already further from the behaviour policy than allowed."""
    total = tally.sums.get("kl/behaviour/sum")
    if target is None or total is None:
        return False
    return bool(total / tally.sums["count"].clamp(min=1) > target)
