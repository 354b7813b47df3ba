"""One optimizer step: gradients accumulated over blocks, measured, clipped, refused if not finite."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from anygrpo.core.choices import chosen
from anygrpo.core.policy import Policy
from anygrpo.core.rollout import Batch as Batch
from anygrpo.core.rollout import Evaluation, Rollout
from anygrpo.core.tree import Tree, tree_map
from anygrpo.errors import ConfigError, TrainingError
from anygrpo.recipe.recipe import Stage
from anygrpo.recipe.training import OptimizerConfig
from anygrpo.spoken import Text
from anygrpo.train.adamw import adamw, moments_of, put_back
from anygrpo.train.folder import no_memory
from anygrpo.train.loss_scale import LossScale
from anygrpo.train.parallel import gather, is_sharded, local, max_over_ranks, sum_gradients, total_norm
from anygrpo.train.sharded import laid_out
from anygrpo.train.stages import Numbers
from anygrpo.train.terms import Tally, supervised_term, terms_of, wanted

T = TypeVar("T")


@dataclass(frozen=True)
class Demonstrations:
    """Rows whose weighted cross-entropy (or the policy's own supervised loss) is added to each update of a step.

    Attributes:
        batch: of the whole step, as a supervised stage would train on it.
        weight: lambda_supervised at this step.
    """

    batch: Batch
    weight: float


class Updater:
    """AdamW over a policy's trainable parameters.

    Args:
        policy: must have at least one trainable parameter, all float32.
        config: betas, weight decay and the gradient norm's limit; the rate is set at each step.

    Raises:
        ConfigError: nothing to train, weights too coarse to be trained, or 8-bit moments where there are none.
    """

    def __init__(self, policy: Policy, config: OptimizerConfig) -> None:
        self.policy, self.config = policy, config
        self.parameters = policy.parameters()
        if not self.parameters:
            raise ConfigError(
                Text(f"{type(policy).__name__} has no trainable weights", f"{type(policy).__name__} 没有可训练的权重"),
                Text("unfreeze some, or attach an adapter", "请解冻一部分，或加上适配器"),
            )
        coarse = {str(p.dtype) for p in self.parameters if p.dtype != torch.float32}
        if coarse:
            raise ConfigError(
                Text(
                    f"trainable weights are {', '.join(sorted(coarse))}: a small update rounds to nothing there",
                    f"可训练的权重为 {', '.join(sorted(coarse))}：小的更新在那里会被舍入掉",
                ),
                Text(
                    "keep trainable weights in float32; the frozen body and the forward pass may be bfloat16",
                    "可训练的权重请保持 float32；冻结部分和前向计算可以用 bfloat16",
                ),
            )
        # Shards and whole tensors do not mix in one fused or foreach step.
        kinds = [[p for p in self.parameters if is_sharded(p) == kind] for kind in (True, False)]
        self.sharded = bool(kinds[0])
        self.device = self.parameters[0].device
        self.optimizer = adamw(kinds, config, self.sharded)
        self._spare: tuple[Tree, int] | None = None
        self.refused, self.scale = 0, LossScale(policy.scales_loss)

    def to_come(self, measures: bool) -> int:
        """Bytes that steps will take beside a pass and have not taken yet: moments; with `measures` a term's own
        gradient beside the sum of them."""
        size = sum(local(p).numel() for p in self.parameters)
        return (0 if self.optimizer.state else self.config.moment_bytes * size) + (8 * size if measures else 0)

    def accumulate(
        self,
        batch: Batch,
        stage: Stage,
        numbers: Numbers,
        rows: int,
        measure: bool,
        demonstrations: Demonstrations | None = None,
    ) -> Tally:
        """Gradients of the batch's loss, and of the weighted supervised loss of `demonstrations`, into `.grad`, in
        blocks of at most `rows` rows (halved when memory ends).

        With `measure`, each term's own gradient norm is tallied too: "grad_norm/<term>". With several ranks each gives
        its own rows (none, maybe); gradients and tally are sums over all of them.
        """
        batch = batch.to(self.device)
        if demonstrations is not None:
            demonstrations = replace(demonstrations, batch=demonstrations.batch.to(self.device))
        most = max(len(batch), len(demonstrations.batch) if demonstrations else 0)
        gradients = lambda rows: self._accumulate(batch, stage, numbers, rows, measure, demonstrations)  # noqa: E731
        while True:
            (tally, parts), rows = self._fitting(gradients, rows, most)
            tally = self._over_ranks(tally, parts, measure and not self.sharded)
            if not self.scale.wanted:
                return tally
            norm, loss = total_norm([p.grad for p in self.parameters]), tally.sums.get("loss/total", torch.zeros(()))
            if not self.scale.too_large(bool(loss.isfinite().all()), bool(norm.isfinite())):
                return tally

    def _fitting(self, gradients: Callable[[int], T], rows: int, most: int) -> tuple[T, int]:
        """`gradients` of this rank's share in blocks of as many rows (of `most`) as memory holds, and that number."""
        while True:
            try:
                return gradients(rows), rows
            except (RuntimeError, MemoryError) as error:
                if not no_memory(error):
                    raise
                if rows == 1 or self.sharded:
                    raise TrainingError(
                        Text(
                            f"out of memory with {rows} row(s) a block: {error}", f"每块 {rows} 行时内存不足：{error}"
                        ),
                        Text(
                            "shorter samples, gradient checkpointing, a smaller policy, or (sharded) "
                            "fewer rows_per_block",
                            "请缩短样本，用梯度检查点，用较小的策略，或（分片时）减少 rows_per_block",
                        ),
                    ) from None
                rows = max(1, min(rows, most) // 2)
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()

    def _over_ranks(self, tally: Tally, parts: dict[str, list[Tensor | None]], measure: bool) -> Tally:
        summed = sum_gradients([p.grad for p in self.parameters], self.parameters)
        for p, gradient in zip(self.parameters, summed):
            p.grad = gradient
        tally = tally.over_ranks()
        nothing: list[Tensor | None] = [None] * len(self.parameters)
        measured = sorted({name for names in gather(list(parts)) for name in names})
        for name in measured:
            tally.add(f"grad_norm/{name}", total_norm(sum_gradients(parts.get(name, nothing), self.parameters)))
        alone = [name for name in ("policy", "supervised") if f"loss/{name}" in tally.sums]
        if measure and not measured and len(alone) == 1:  # the only term: the whole gradient is its own
            tally.add(f"grad_norm/{alone[0]}", total_norm(summed))
        tally.add("updates", torch.ones((), device=self.device))
        return tally

    def _accumulate(
        self,
        batch: Batch,
        stage: Stage,
        numbers: Numbers,
        rows: int,
        measure: bool,
        demonstrations: Demonstrations | None,
    ) -> tuple[Tally, dict[str, list[Tensor | None]]]:
        self.optimizer.zero_grad()
        tally = Tally()
        parts: dict[str, list[Tensor | None]] = {}
        measure = measure and not self.sharded
        whole = stage.method == "grpo" and chosen("objective", stage.algorithm.objective).whole_sequence
        for block, evaluation in self._scored(batch, rows, wanted(stage, numbers, self.policy), whole):
            if self.policy.old_from_training:
                block = replace(block, old=torch.where(block.mask, evaluation.log_probs.detach(), block.old))
            terms = terms_of(self.policy, evaluation, block, stage, numbers, tally)
            self._backward(terms, tally, parts if measure and (len(terms) > 1 or demonstrations) else None)
        if demonstrations is not None:
            want = frozenset({"supervised"}) & self.policy.provides
            for block, evaluation in self._scored(demonstrations.batch, rows, want, whole=False):
                terms = supervised_term(evaluation, block, demonstrations.weight, tally)
                self._backward(terms, tally, parts if measure else None)
        for gradients in ([p.grad for p in self.parameters], *parts.values()):
            self.scale.taken_off(gradients)
        return tally, parts

    def _scored(self, batch: Batch, rows: int, want: frozenset[str], whole: bool) -> Iterator[tuple[Batch, Evaluation]]:
        """Batchs of a batch with what the policy says of them. Graphs must not outlive a turn of the caller's loop."""
        plan = self.policy.plan(batch.samples, rows) if len(batch) else []
        blocks = batch.blocks(plan, self.policy.time_chunk, whole)
        for block in self._filled_up(list(blocks), want) if self.sharded else blocks:
            yield block, self.policy.evaluate(block.samples, block.times, want)

    def _backward(self, terms: dict[str, Tensor], tally: Tally, parts: dict[str, list[Tensor | None]] | None) -> None:
        """Add the terms' gradients to `.grad`, and where `parts` is given each term's own to it."""
        if parts is not None:
            for name, term in terms.items():
                grads: tuple[Tensor | None, ...] = (None,) * len(self.parameters)  # of a term that reaches no weight
                if term.requires_grad:
                    scaled = self.scale.put_on(term)
                    grads = torch.autograd.grad(scaled, self.parameters, retain_graph=True, allow_unused=True)
                _add(parts, name, grads)
        total = sum(terms.values(), torch.zeros((), device=self.device))
        tally.add("loss/total", total)
        if total.requires_grad:
            self.scale.put_on(total).backward()

    def keep_spare(self, rollout: Rollout) -> None:
        """Remember one sample, to fill up with where other ranks have more blocks."""
        if self.sharded:
            self._spare = tree_map(lambda x: x[:1, 0].clone().to(self.device), rollout.samples), rollout.shape[2]

    def _filled_up(self, blocks: list[Batch], want: frozenset[str]) -> Iterator[Batch]:
        """As many blocks as the rank with most has; after its own come passes whose gradient is zero."""
        most = int(max_over_ranks(torch.tensor(len(blocks))))
        yield from blocks
        assert self._spare is not None
        samples, width = self._spare
        times = slice(0, min(self.policy.time_chunk or width, width))
        for _ in range(most - len(blocks)):
            made = self.policy.evaluate(samples, times, want)
            given = [made.log_probs, made.entropy, made.kl, *made.losses.values()]
            (0.0 * sum(x.sum() for x in given if x is not None)).backward()  # type: ignore[union-attr]

    def step(self, learning_rate: float, measure: bool) -> dict[str, float]:
        """Clip, step, zero. A gradient that is not finite is refused: weights stay as they are, the refusal counts."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        norm = total_norm([p.grad for p in self.parameters])
        value = float(norm)
        row: dict[str, float] = {"grad_norm/total": value}
        if not math.isfinite(value):
            self.refused += 1
        else:
            if self.config.grad_clip is not None:
                scale = (self.config.grad_clip / (norm + 1e-6)).clamp(max=1.0)  # as torch clips
                torch._foreach_mul_([local(p.grad) for p in self.parameters if p.grad is not None], scale)
            before = [p.detach().clone() for p in self.parameters] if measure else []
            self.optimizer.step()
            # A fused step does not count as a change of the weights; what keeps casts of them goes by that count.
            torch.autograd.graph.increment_version(self.parameters)
            if measure:
                size = total_norm(before).clamp(min=1e-30)
                for b, p in zip(before, self.parameters):
                    b.sub_(p.detach())  # in place: another copy of all weights would be the peak of memory
                row["update/relative_norm"] = float(total_norm(before) / size)
        self.optimizer.zero_grad()
        return row

    def state(self) -> dict[str, Any]:
        """Moments of each parameter in the policy's order (sharded as it is), and refusals."""
        moments = [moments_of(self.optimizer, p) for p in self.parameters]
        return {"moments": moments, "refused": self.refused} | self.scale.state()

    def load(self, state: dict[str, Any]) -> None:
        for p, moments in zip(self.parameters, state["moments"]):
            if moments:
                place = {k: v if k == "step" else laid_out(v.to(self.device), p) for k, v in moments.items()}
                put_back(self.optimizer, p, place)
        self.refused = state["refused"]
        self.scale.load({k: state[k] for k in ("scale", "sound") if k in state})


def _add(parts: dict[str, list[Tensor | None]], name: str, grads: tuple[Tensor | None, ...]) -> None:
    old = parts.get(name, [None] * len(grads))
    parts[name] = [g if o is None else o if g is None else o + g for o, g in zip(old, grads)]


def given_up(refused: int) -> TrainingError:
    """What ends a run after so many refused updates in a row."""
    return TrainingError(
        Text(
            f"{refused} updates in a row had a gradient that is not finite; weights are as before",
            f"连续 {refused} 次更新的梯度不是有限的数；权重保持不变",
        ),
        Text(
            "see the last samples and `anygrpo doctor` on this folder",
            "请看最后的样本，并对这个文件夹用 `anygrpo doctor`",
        ),
    )
