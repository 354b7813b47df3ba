"""The records that every policy shares. Letters: P prompts, G group, T decisions, N = P x G rows.

A policy fills a `Rollout`; the trainer scores it and turns it into a `Batch` of rows for each optimizer step. What
memory holds at once is a batch too, of some rows and a slice of their decisions: weights are fixed before the cut, so
any cut gives the same gradient. Samples are trees of tensors; a leaf that many rows share is held once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from anygrpo.algorithm.filters import live_groups
from anygrpo.core.task import Scores, expect
from anygrpo.core.tree import Tree, grown, tree_map, tree_map2
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text

_TENSORS = ("log_probs", "mask", "rewards", "valid", "ended", "version", "present", "prompt_id", "turn", "turn_rewards")


_MADE: Any = None
"""In place of a tensor that is made of the others where none is given."""


@dataclass(frozen=True)
class Rollout:
    """P x G samples of a policy. Never holds anything with a gradient.

    Attributes:
        samples: tree with leaves [P, G, ...]: all that `Policy.evaluate` needs to score these same actions again.
        log_probs: [P, G, T] float32 under the behaviour policy (weights *and* settings that really sampled).
        mask: [P, G, T] bool: decisions chosen by the policy: no padding, no tool output, nothing forced.
        rewards: [P, G] float32, zeros until scored.
        components: named reward parts, each [P, G] float32.
        valid: [P, G] bool: False where sampling or scoring failed; such samples leave mean, std and loss.
        ended: [P, G] bool: finished by itself, not cut off.
        version: [P, G, T] int64: optimizer steps taken by the weights that drew each decision; [P, G] may be given.
        reasons: (p, g) -> why invalid.
        discarded: groups that were drawn for this step too and replaced (`refill`), without their samples.
        info: plain numbers about the sampling, logged as they are (names of `anygrpo.metrics`).
        limit: the most decisions a sample could have had (max_new_tokens, say): what a length is measured against.
            None: not said; then T is, where every sample has all T decisions.
        weights: weight of each component in the reward (1 where not named).
        present: [P, G] bool: False where this group has fewer samples than another: nothing was drawn there.
        turn: [P, G, T] int16: the turn (or part of the output) that a decision belongs to, from 0; all 0 where there is
            one.
        turn_rewards: [P, G, K]: what an environment paid for each turn, or a task for each part; NaN where nothing.
        prompt_id: [P] int64: the same number for the same prompt, where the loop keeps account of prompts; else 0.
    """

    samples: Tree
    log_probs: Tensor
    mask: Tensor
    rewards: Tensor
    valid: Tensor
    ended: Tensor
    version: Tensor
    components: dict[str, Tensor] = field(default_factory=dict)
    reasons: dict[tuple[int, int], str] = field(default_factory=dict)
    info: dict[str, float] = field(default_factory=dict)
    discarded: Rollout | None = None
    limit: int | None = None
    weights: dict[str, float] = field(default_factory=dict)
    present: Tensor = field(default=_MADE)
    prompt_id: Tensor = field(default=_MADE)
    turn: Tensor = field(default=_MADE)
    turn_rewards: Tensor = field(default=_MADE)

    def __post_init__(self) -> None:
        if self.mask.dim() == 3 and self.version.shape == self.mask.shape[:2]:
            object.__setattr__(self, "version", self.version[..., None].expand(self.mask.shape))
        if self.present is None:
            object.__setattr__(self, "present", torch.ones_like(self.valid, dtype=torch.bool))
        if self.turn is None:
            one = torch.zeros((), dtype=torch.int16, device=self.mask.device)
            object.__setattr__(self, "turn", one.expand(self.mask.shape))
        if self.turn_rewards is None:
            nothing = torch.full((), torch.nan, device=self.mask.device)
            object.__setattr__(self, "turn_rewards", nothing.expand(*self.mask.shape[:2], 1))
        if self.prompt_id is None:
            object.__setattr__(
                self, "prompt_id", torch.zeros(len(self.valid), dtype=torch.int64, device=self.valid.device)
            )

    @staticmethod
    def of(samples: Tree, log_probs: Tensor, mask: Tensor, **given: Any) -> Rollout:
        """A rollout not yet scored: rewards 0, everything valid, ended, version 0, unless given."""
        shape = log_probs.shape[:2]
        device = log_probs.device
        defaults: dict[str, Any] = {
            "rewards": torch.zeros(shape, dtype=torch.float32, device=device),
            "valid": torch.ones(shape, dtype=torch.bool, device=device),
            "ended": torch.ones(shape, dtype=torch.bool, device=device),
            "version": torch.zeros(shape, dtype=torch.int64, device=device),
        }
        return Rollout(samples=samples, log_probs=log_probs.float(), mask=mask.bool(), **(defaults | given))

    @property
    def shape(self) -> tuple[int, int, int]:
        p, g, t = self.log_probs.shape
        return p, g, t

    def scored(self, scores: Scores, by: str = "the task") -> Rollout:
        """This rollout with the scores of the task called `by`; what either side called invalid stays invalid.

        Raises:
            ConfigError: scores of another type, or another shape than [P, G].
        """
        expect(scores, self.shape[:2], by)
        valid = self.valid if scores.valid is None else self.valid & scores.valid.to(self.valid.device)
        rewards = scores.rewards.to(self.rewards.device, torch.float32)
        finite = torch.isfinite(rewards)
        reasons = self.reasons | {(int(p), int(g)): str(why) for (p, g), why in scores.reasons.items()}
        for p, g in (valid & ~finite).nonzero().tolist():
            reasons.setdefault((p, g), "reward is not finite")
        valid = valid & finite
        return replace(
            self,
            rewards=torch.where(valid, rewards, torch.zeros_like(rewards)),
            components={name: part.to(rewards) for name, part in scores.components.items()},
            valid=valid,
            reasons=reasons,
            weights={name: float(weight) for name, weight in scores.weights.items()},
            turn_rewards=self.turn_rewards if scores.parts is None else scores.parts.to(rewards),
        )

    def of_version(self, version: int) -> Rollout:
        """This rollout, all of it drawn by the weights after so many optimizer steps."""
        one = torch.tensor(version, dtype=torch.int64, device=self.version.device)
        return replace(self, version=one.expand(self.mask.shape))

    def live_groups(self) -> Tensor:
        """[P] bool: groups whose valid rewards differ."""
        return live_groups(self.rewards, self.valid)

    def on_host(self) -> Rollout:
        """All but the samples on the CPU, where the loop reads them: transferred once, not number by number."""
        move = lambda x: x.to("cpu", non_blocking=True)  # noqa: E731
        moved: dict[str, Any] = {name: move(getattr(self, name)) for name in _TENSORS}
        moved["components"] = {name: move(x) for name, x in self.components.items()}
        if self.log_probs.is_cuda:
            torch.cuda.synchronize(self.log_probs.device)  # once for all of them
        return replace(self, **moved)

    def light(self) -> Rollout:
        """On the CPU, without samples; of the log-probs only their shape is kept."""
        moved: dict[str, Any] = {name: getattr(self, name).cpu() for name in _TENSORS[1:]}
        moved["components"] = {name: x.cpu() for name, x in self.components.items()}
        return replace(self, samples={}, log_probs=torch.zeros(()).expand(self.shape), **moved)

    def joined(self, other: Rollout) -> Rollout:
        """Both rollouts' groups; tensors of different sizes are padded at the end with zeros (False)."""
        first = self.shape[0]
        cat = lambda a, b: torch.cat([grown(a, b), grown(b, a)])  # noqa: E731
        return replace(
            self,
            samples=tree_map2(cat, self.samples, other.samples),
            **{name: cat(getattr(self, name), getattr(other, name)) for name in _TENSORS},
            components={name: cat(x, other.components[name]) for name, x in self.components.items()},
            reasons=self.reasons | {(p + first, g): why for (p, g), why in other.reasons.items()},
            discarded=_both(self.discarded, other.discarded),
            limit=None if self.limit is None or other.limit is None else max(self.limit, other.limit),
        )

    def groups(self, keep: Tensor) -> Rollout:
        """Only the groups (prompts) where `keep` [P] is True, in order."""
        index = keep.nonzero()[:, 0]
        position = {int(p): i for i, p in enumerate(index.tolist())}
        take = lambda x: x[index.to(x.device)]  # noqa: E731
        return replace(
            self,
            samples=tree_map(take, self.samples),
            **{name: take(getattr(self, name)) for name in _TENSORS},
            components={name: take(x) for name, x in self.components.items()},
            reasons={(position[p], g): why for (p, g), why in self.reasons.items() if p in position},
        )


def _both(a: Rollout | None, b: Rollout | None) -> Rollout | None:
    return a if b is None else b if a is None else a.joined(b)


@dataclass(frozen=True)
class Evaluation:
    """What a policy says, with gradients, of n given rows at t of their decisions.

    Attributes:
        log_probs: [n, t] float32.
        entropy: [n, t] if asked for and exact, else None.
        kl: [n, t] exact KL(policy || reference) of each decision's distribution if asked for, else None.
        losses: further per-row losses the policy can compute, each [n] ("supervised", "consistency").
    """

    log_probs: Tensor
    entropy: Tensor | None = None
    kl: Tensor | None = None
    losses: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Batch:
    """Rows on their way to an update: those of an optimizer step, or some of them. Weights carry every denominator.

    Attributes:
        samples: tree with leaves [N, ...].
        old: [N, T] log-probs that ratios divide by: the behaviour policy's, or with `importance` the old policy's.
        ref: [N, T] log-probs under the frozen reference, or None where no KL needs them.
        mask: [N, T] bool.
        advantages: [N, 1] or [N, T].
        weights: [N, T]: the loss is (weights * per_decision).sum() over any split.
        row_weights: [N]: the same for losses that a row has once; sums to 1 (0 where a row does not count).
        importance: [N, T] factors old / behaviour of losses that samples estimate, or None where both are one.
        times: which of the samples' decisions the T columns are.
    """

    samples: Tree
    old: Tensor
    ref: Tensor | None
    mask: Tensor
    advantages: Tensor
    weights: Tensor
    row_weights: Tensor
    importance: Tensor | None = None
    times: slice = field(default_factory=lambda: slice(None))

    def __len__(self) -> int:
        return self.old.shape[0]

    def to(self, device: torch.device) -> Batch:
        """The same batch on the device where the policy computes."""
        return self._map(lambda x: x.to(device), samples=True)

    def rows(self, index: Tensor | slice) -> Batch:
        """The rows at `index`, weights unchanged."""
        return self._map(lambda x: x[index], samples=True)

    def _map(self, fn: Callable[[Tensor], Tensor], samples: bool) -> Batch:
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("samples", "times")}
        mapped: dict[str, Any] = {name: None if x is None else fn(x) for name, x in tensors.items()}
        return replace(self, samples=tree_map(fn, self.samples) if samples else self.samples, **mapped)

    def blocks(
        self, rows: int | Sequence[Tensor], time: int | None = None, whole_sequences: bool = False
    ) -> Iterator[Batch]:
        """Cut into batches of at most `time` decisions (None: all of them) and of `rows` rows: a number, or a plan
        (index tensors that together name each row once). Losses that a row has once go with its first decisions.

        Raises:
            ConfigError: `whole_sequences` (a ratio over the sequence) with a policy scored in slices of time.
        """
        n, total = self.old.shape
        if time is not None and time < total and whole_sequences:
            raise ConfigError(
                Text(
                    f"a sequence-level ratio needs all {total} decisions of a row at once, but this policy is scored "
                    f"{time} at a time",
                    f"序列级比率需要一行的全部 {total} 次决策，而这个策略每次只评 {time} 次",
                ),
                Text(
                    "use a decision-level objective (ppo), or set the policy's time_chunk to none",
                    "请用决策级目标（ppo），或把策略的 time_chunk 设为 none",
                ),
            )
        for index in [slice(a, a + rows) for a in range(0, n, rows)] if isinstance(rows, int) else rows:
            part = self.rows(index)
            for t in range(0, total, time or max(total, 1)):
                s = slice(t, min(t + (time or total), total))
                cut = part._map(lambda x, s=s: x[:, s] if x.dim() > 1 and x.shape[1] == total else x, samples=False)
                once = part.row_weights if t == 0 else torch.zeros_like(part.row_weights)
                yield replace(cut, times=s, row_weights=once)
