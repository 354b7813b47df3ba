"""What a policy must be able to do. Four methods and a fixed reference train it; the rest have defaults."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from anygrpo.core.copies import own_copy
from anygrpo.core.readable import as_read, question_of, turns_said
from anygrpo.core.rollout import Evaluation, Rollout
from anygrpo.core.saved import Form
from anygrpo.core.task import Stored
from anygrpo.core.trained import frozen_weights, load_state, state_of
from anygrpo.core.tree import Tree
from anygrpo.core.turnstile import Turnstile
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text


@dataclass(frozen=True)
class ClipDefaults:
    """A policy type's own clip range, where the recipe names none."""

    low: float = 0.2
    high: float = 0.2


class Policy(ABC):
    """What the loop is written against: four methods to define, a reference to fix, and defaults for the rest.

    Attributes:
        clip: this policy type's clip range when the recipe sets none.
        time_chunk: decisions scored at once (None: all); set where T graphs don't fit in memory.
        provides: what `evaluate(want=...)` can add.
        own_losses: names of per-row losses that `evaluate` always gives, already weighed; they are added to the loss.
        targets_in_samples: a supervised loss beside another objective is that of the sampled rows, which carry their
            own targets (a clean image, say); otherwise it is that of the task's stored answers, replayed.
        version: optimizer steps taken; set by the loop.
        turnstile: of a copy that samples beside the updates (`copied`): `sample` runs inside, and may let others in
            (`Turnstile.give_way`, `outside`), whereupon weights and `version` may be others; set by the loop.
        one_update: the loop makes a single update of each rollout, with the weights that sampled it; set by the loop.
        corrects: the loop scores samples itself and corrects for what differs, so that `log_probs` of a rollout must be
            the sampler's own, whatever the training pass would say; set by the loop.
        scales_loss: gradients pass through float16, where small ones vanish: the loop multiplies the loss by a power of
            two, and divides them by it in float32.
        block_rows: rows in one forward and backward pass where the recipe names no number.
        speed: what was chosen for speed alone, by name; kept in the run's folder, and given back when it is resumed.
    """

    clip: ClipDefaults = ClipDefaults()
    time_chunk: int | None = None
    provides: ClassVar[frozenset[str]] = frozenset()
    own_losses: frozenset[str] = frozenset()
    targets_in_samples: ClassVar[bool] = False
    version: int = 0
    turnstile: Turnstile | None = None
    one_update: bool = False
    corrects: bool = False
    scales_loss: bool = False
    block_rows: int = 32
    speed: Mapping[str, Any] = MappingProxyType({})

    @abstractmethod
    def sample(self, prompts: list[Any], group_size: int, seed: int) -> Rollout:
        """P x G samples without gradient; a pure function of (weights, settings, prompts, seed)."""

    @abstractmethod
    def evaluate(self, samples: Tree, times: slice, want: frozenset[str] = frozenset()) -> Evaluation:
        """Score rows (leaves [n, ...]) at a slice of their decisions, with gradient.

        `want` holds any of "entropy", "kl" (exact, to the reference), "supervised", "consistency"; a policy refuses
        (ConfigError) what it cannot compute, never leaves it out in silence.
        """

    @abstractmethod
    def decode(self, samples: Tree) -> list[list[Any]]:
        """Samples [P, G, ...] as what a reward reads: texts, indices, motions, images."""

    def reference(self) -> AbstractContextManager[None]:
        """Inside, `evaluate` scores under the frozen reference policy (LoRA off, or frozen weights)."""
        raise ConfigError(
            Text(f"{type(self).__name__} has no reference policy", f"{type(self).__name__} 没有参考策略"),
            Text("call self.fix_reference() where it is built", "请在构造它的地方调用 self.fix_reference()"),
        )

    @abstractmethod
    def trainable(self) -> nn.Module:
        """The module whose parameters with requires_grad are optimised and saved."""

    def measured(self) -> AbstractContextManager[None]:
        """Inside, `sample` draws as held-out samples are made: under other weights, where not the last are measured."""
        return nullcontext()

    @property
    def old_from_training(self) -> bool:
        """True where the first training pass's own log-probs serve as the behaviour policy's: exact with one update a
        rollout, and without a second pass for policies whose sampler computes at another precision."""
        return False

    def hold_sampler(self) -> bool:
        """Until `release_sampler`, `sample` draws from the weights as they are now; False where that cannot be promised
        while the weights are trained. It is called from another thread then, and nothing else of the policy is but
        `decode`, while the first one calls `evaluate`."""
        return False

    def release_sampler(self) -> None:
        """From now on `sample` follows the weights again."""

    def check_copied(self) -> None:
        """Raises: ConfigError where `copied` can never be."""

    def copied(self, prompts: list[Any]) -> Policy:
        """A policy that samples as this one does, with trained weights of its own, for other threads, one at a time,
        while this one is trained. Only `sample`, `decode`, `settings`, `show` and `follow` are asked of it.

        Args:
            prompts: some to try it on.

        Raises:
            ConfigError: there can be none.
        """
        return own_copy(self, prompts)

    def follow(self, other: Policy) -> None:
        """Take over the trained weights of the policy that this is a copy of."""
        load_state(self.trainable(), state_of(other.trainable()))

    def greedy(self, prompts: list[Any]) -> Rollout:
        """One deterministic sample a prompt (G = 1), for evaluation."""
        name = type(self).__name__
        raise ConfigError(
            Text(
                f"{name} does not define greedy(prompts), which an evaluation of held-out prompts asks for",
                f"{name} 没有定义 greedy(prompts)，而评估留出提示需要它",
            ),
            Text(
                "define it (`return self.sample(prompts, 1, 0)` will do), or let held_out() return []",
                "请定义它（`return self.sample(prompts, 1, 0)` 即可），或让 held_out() 返回 []",
            ),
        )

    def replay(self, prompts: list[Any], stored: Stored, seed: int) -> Rollout:
        """Given actions as a rollout [P, G, ...]; short lists padded with valid = False. Rewards are taken over.

        Randomness that `evaluate` needs (noise levels of a denoising loss, say) is drawn here from `seed` and stored.
        """
        raise ConfigError(
            Text(
                f"{type(self).__name__} cannot be trained on stored actions",
                f"{type(self).__name__} 不能用存好的动作训练",
            )
        )

    def fix_reference(self, anchor: dict[str, Tensor] | None = None) -> dict[str, Tensor]:
        """From now on `reference()` is the policy as it is (or as `anchor`, a former return value, says).

        Used where a stage's reference is not the policy the run began with. Returns the anchor, for checkpoints.
        """
        module = self.trainable()
        fixed = {k: v.clone() for k, v in (state_of(module) if anchor is None else anchor).items()}
        self.reference = lambda: frozen_weights(module, fixed)
        return fixed

    def before_sharding(self, dtype: torch.dtype | None) -> None:
        """The blocks of `trainable()` will be held in shards from now on, and compute in `dtype` (None: as now).

        A policy that keeps views of its weights elsewhere (for sampling, say) gives those weights of their own here.
        """

    def saved_names(self) -> dict[str, str]:
        """Trainable weight (its name in `trainable()`) -> the key that its library reads in files (PEFT's, diffusers').
        Checkpoints are written under those; weights left out keep their names. Both are understood when loading."""
        return {}

    def saved_form(self) -> Form:
        """Under which file name unsharded weights are written, and what lies beside, so that the policy's library loads
        a checkpoint's folder as it is."""
        return Form()

    def carried(self) -> dict[str, Any]:
        """What it has found out since the run began and a resumed run must know to go on exactly: plain data and
        tensors. Goes into checkpoints."""
        return {}

    def resumed(self, state: dict[str, Any]) -> None:
        """Take over what `carried` gave, from a checkpoint; {} where that is an older one."""

    def opened(self, state: dict[str, Any]) -> None:
        """The same where a checkpoint is opened to be used, not to be trained on."""

    earlier_samples: int = 0  # of earlier steps, at most, that `judged` adds to a prompt's group

    def judged(self, prompts: list[Any], rollout: Rollout) -> Rollout:
        """From what was sampled and rewarded, once each: what the step learns from, with earlier samples perhaps."""
        return rollout

    def new_stage(self) -> None:
        """A later stage begins: its task and its rewards may be others."""

    def examined(self, task: Any) -> dict[str, float]:
        """Numbers of the policy itself on a few of the task's prompts, for the row of each evaluation."""
        return {}

    def identity(self) -> dict[str, Any]:
        """What else than weights makes this policy what it is, for the record of a run: the chat template of a
        tokenizer that it, or a part of it, holds."""
        parts = (getattr(part, "tokenizer", None) for part in (self, *vars(self).values()))
        templates = (getattr(tokenizer, "chat_template", None) for tokenizer in parts)
        found = [template for template in templates if isinstance(template, str)]
        return {"template": found} if found else {}

    def plan(self, samples: Tree, rows: int) -> Sequence[Tensor] | int:
        """How to cut N rows into blocks: a number of rows, or index tensors (rows sharing a prompt together, say)."""
        return rows

    def settle(self, samples: Tree, beside: int) -> str:
        """Choose into `speed` what is for speed alone and still open, from the free memory and a short trial on rows
        [N, ...]. Returns one line that says what (empty: nothing was open).

        Args:
            beside: bytes that the optimizer will take beside the rows' passes and has not taken yet.
        """
        return ""

    def settings(self, **numbers: float) -> None:
        """Change numbers that the recipe schedules (temperature, ...). Unknown names are refused."""
        for name, value in numbers.items():
            if not hasattr(self, name):
                raise ConfigError(
                    Text(f"{type(self).__name__} has no setting {name!r}", f"{type(self).__name__} 没有设置 {name!r}")
                )
            setattr(self, name, value)

    def show(self, prompts: list[Any], outputs: list[list[Any]]) -> list[dict[str, Any]]:
        """For samples/step_*.jsonl: what JSON can hold; of a prompt's messages the last one, of a tensor its shape.
        Outputs that have `messages` are shown with them, under "conversations"."""
        return [
            {"prompt": question_of(p), "outputs": [as_read(o) for o in row]} | turns_said(row)
            for p, row in zip(prompts, outputs)
        ]

    def parameters(self) -> list[nn.Parameter]:
        return [p for p in self.trainable().parameters() if p.requires_grad]

    def check_prompts(self, prompts: list[Any]) -> None:
        """Raises: DataError for prompts that the policy could not be given; called once, before the first step."""

    def check_stage(self, method: str, task: Any) -> None:
        """Raises: ConfigError for a stage ("grpo", "supervised", ...) on this task that the policy cannot take part in;
        called for each stage before the first step."""

    def check_wanted(self, want: frozenset[str]) -> None:
        if extra := want - self.provides:
            raise ConfigError(
                Text(
                    f"{type(self).__name__} cannot compute {sorted(extra)}, only {sorted(self.provides)}",
                    f"{type(self).__name__} 无法计算 {sorted(extra)}，只能计算 {sorted(self.provides)}",
                ),
                Text("set that term's weight to 0", "请把该项的权重设为 0"),
            )
