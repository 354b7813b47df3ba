"""The records that every policy shares. Letters: P prompts, G group, T decisions, N = P x G rows.

A policy fills a `Rollout`; the trainer scores it, turns it into `Batch`es (one per optimizer step) and cuts those
into `Block`s, as small as memory asks. Weights are fixed before the cut, so any cut gives the same gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from anygrpo.algorithm.filters import live_groups
from anygrpo.core.tree import Shared as Shared
from anygrpo.core.tree import Tree as Tree
from anygrpo.core.tree import grown
from anygrpo.core.tree import tree_map as tree_map
from anygrpo.core.tree import tree_map2 as tree_map2
from anygrpo.errors import ConfigError

_TENSORS = ("log_probs", "mask", "rewards", "valid", "ended", "version")


@dataclass(frozen=True)
class Scores:
    """What a task says of P x G outputs.

    Attributes:
        rewards: [P, G] float32; anything where `valid` is False.
        components: named parts of the reward before weighting, each [P, G] float32; NaN where a part has no value.
        valid: [P, G] bool. False: scoring failed (None, NaN, inf, exception, time-out).
        reasons: (p, g) -> why that sample is invalid.
        weights: weight of each component in the reward (1 where not named).
        elsewhere: [P, G] bool: invalid by a fault of the machine, a tool or an endpoint, not of the output. None: none.
    """

    rewards: Tensor
    components: dict[str, Tensor] = field(default_factory=dict)
    valid: Tensor | None = None
    reasons: dict[tuple[int, int], str] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    elsewhere: Tensor | None = None


@dataclass(frozen=True)
class Stored:
    """Given actions in place of sampled ones: demonstrations (supervised) or scored candidates (RCE, offline GRPO).

    Attributes:
        actions: P lists of actions in the form `Policy.decode` returns; ragged lists are padded by the policy.
        rewards: P lists of floats, or None for plain demonstrations.
        log_probs: P lists of behaviour log-probs of whole actions (None where there is no propensity), or None.
        components: named reward parts, each P lists of floats.
    """

    actions: list[list[Any]]
    rewards: list[list[float]] | None = None
    log_probs: list[list[float | None]] | None = None
    components: dict[str, list[list[float]]] = field(default_factory=dict)


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
        version: [P, G] int64: optimizer steps taken by the weights that sampled.
        reasons: (p, g) -> why invalid.
        info: plain numbers about the sampling, logged as they are (names of `anygrpo.metrics`).
        weights: weight of each component in the reward (1 where not named).
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
    weights: dict[str, float] = field(default_factory=dict)

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

    def scored(self, scores: Scores) -> Rollout:
        """This rollout with a task's scores; what either side called invalid stays invalid."""
        valid = self.valid if scores.valid is None else self.valid & scores.valid.to(self.valid.device)
        rewards = scores.rewards.to(self.rewards.device, torch.float32)
        finite = torch.isfinite(rewards)
        reasons = self.reasons | scores.reasons
        for p, g in (valid & ~finite).nonzero().tolist():
            reasons.setdefault((p, g), "reward is not finite")
        valid = valid & finite
        return replace(
            self,
            rewards=torch.where(valid, rewards, torch.zeros_like(rewards)),
            components={name: part.to(self.rewards.device) for name, part in scores.components.items()},
            valid=valid,
            reasons=reasons,
            weights=scores.weights,
        )

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
        )

    def groups(self, keep: Tensor) -> Rollout:
        """Only the groups (prompts) where `keep` [P] is True, in order."""
        index = keep.nonzero()[:, 0]
        position = {int(p): i for i, p in enumerate(index.tolist())}
        take = lambda x: x[index.to(x.device)]  # noqa: E731
        return replace(
            self,
            samples=tree_map(take, self.samples),
            log_probs=take(self.log_probs),
            mask=take(self.mask),
            rewards=take(self.rewards),
            valid=take(self.valid),
            ended=take(self.ended),
            version=take(self.version),
            components={name: take(x) for name, x in self.components.items()},
            reasons={(position[p], g): why for (p, g), why in self.reasons.items() if p in position},
        )


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
class Block:
    """Some rows of a batch, and a slice of their decisions."""

    samples: Tree
    times: slice
    old: Tensor  # [n, t]
    ref: Tensor | None  # [n, t]
    mask: Tensor  # [n, t]
    advantages: Tensor  # [n, 1] or [n, t]
    weights: Tensor  # [n, t]
    row_weights: Tensor  # [n]
    importance: Tensor | None = None  # [n, t]


@dataclass(frozen=True)
class Batch:
    """The rows of one optimizer step. Weights already carry every denominator.

    Attributes:
        samples: tree with leaves [N, ...].
        old: [N, T] log-probs that ratios divide by: the behaviour policy's, or with `importance` the old policy's.
        ref: [N, T] log-probs under the frozen reference, or None where no KL needs them.
        mask: [N, T] bool.
        advantages: [N, 1] or [N, T].
        weights: [N, T]: the loss is (weights * per_decision).sum() over any split.
        row_weights: [N]: the same for losses that a row has once; sums to 1 (0 where a row does not count).
        importance: [N, T] factors old / behaviour of losses that samples estimate, or None where both are one.
    """

    samples: Tree
    old: Tensor
    ref: Tensor | None
    mask: Tensor
    advantages: Tensor
    weights: Tensor
    row_weights: Tensor
    importance: Tensor | None = None

    def __len__(self) -> int:
        return self.old.shape[0]

    def to(self, device: torch.device) -> Batch:
        """The same batch on the device where the policy computes."""
        move = lambda x: x.to(device)  # noqa: E731
        moved: dict[str, Any] = {name: None if x is None else move(x) for name, x in self._tensors().items()}
        return Batch(samples=tree_map(move, self.samples), **moved)

    def rows(self, index: Tensor | slice) -> Batch:
        """The rows at `index`, weights unchanged."""
        take = lambda x: x[index]  # noqa: E731
        taken: dict[str, Any] = {name: None if x is None else take(x) for name, x in self._tensors().items()}
        return Batch(samples=tree_map(take, self.samples), **taken)

    def _tensors(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "samples"}

    def blocks(
        self, rows: int | Sequence[Tensor], time: int | None = None, whole_sequences: bool = False
    ) -> Iterator[Block]:
        """Cut into blocks of at most `time` decisions (None: all of them) and of `rows` rows: a number, or a plan
        (index tensors that together name each row once).

        Raises:
            ConfigError: `whole_sequences` (a ratio over the sequence) with a policy scored in slices of time.
        """
        n, total = self.old.shape
        if time is not None and time < total and whole_sequences:
            raise ConfigError(
                f"a sequence-level ratio needs all {total} decisions of a row at once, but this policy is scored "
                f"{time} at a time",
                "use a decision-level objective (ppo), or set the policy's time_chunk to none",
            )
        plan = [slice(a, a + rows) for a in range(0, n, rows)] if isinstance(rows, int) else rows
        for index in plan:
            part = self.rows(index)
            for t in range(0, total, time or max(total, 1)):
                s = slice(t, min(t + (time or total), total))
                yield Block(
                    part.samples,
                    s,
                    part.old[:, s],
                    None if part.ref is None else part.ref[:, s],
                    part.mask[:, s],
                    part.advantages if part.advantages.shape[1] == 1 else part.advantages[:, s],
                    part.weights[:, s],
                    part.row_weights if t == 0 else torch.zeros_like(part.row_weights),
                    None if part.importance is None else part.importance[:, s],
                )
