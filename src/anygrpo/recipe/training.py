"""The tables of a recipe around the algorithm: optimizer, stages, evaluation, the machine side, the doctor."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from pydantic import Field, model_validator

from anygrpo.recipe.section import Rate, Section
from anygrpo.spoken import Text, current

Decay = Annotated[float, Field(ge=0, lt=1)]


class OptimizerConfig(Section):
    """AdamW."""

    learning_rate: Rate = 1e-5
    "A number, or a schedule over the stage."
    weight_decay: float = Field(default=0.0, ge=0)
    "AdamW's, decoupled from the gradient."
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    "Decays of AdamW's two moments."
    eps: float = Field(default=1e-8, gt=0)
    "Added to the root of AdamW's second moment."
    grad_clip: float | None = Field(default=1.0, gt=0)
    "Largest gradient norm; none: no clipping."
    moments: Literal["float32", "8bit"] = "float32"
    "AdamW's two moments; 8bit: a byte each (bitsandbytes), those of weights below 4,096 numbers stay float32."

    @property
    def moment_bytes(self) -> int:
        """Bytes that the two moments of one weight take."""
        return 8 if self.moments == "float32" else 2


class SuccessConfig(Section):
    """When a held-out answer is right."""

    component: str = "reward"
    "A component of the reward, or the reward itself."
    at_least: float = 1.0
    "The smallest value that is a success."


class EvaluationConfig(Section):
    """Held-out evaluation: greedy, and pass@k by sampling."""

    every: int | None = Field(default=None, ge=1)
    "Steps between evaluations; none: at the start and the end only."
    every_epochs: float | None = Field(default=None, gt=0)
    "Passes over a stage's training prompts between evaluations, in place of `every`."
    prompts: int | None = Field(default=None, ge=1)
    "At most this many held-out prompts."
    pass_k: int | None = Field(default=None, ge=1)
    "Also report how often at least one of this many samples succeeds (pass@k)."
    pass_samples: int | None = Field(default=None, ge=1)
    "Samples a prompt that pass@k is estimated from; pass_k of them where not given."
    success: SuccessConfig | None = None
    "When an answer is right, for pass@k; the task's own rule where it has one."
    metric: str = "eval/reward"
    "What decides the best checkpoint: the largest value."
    smaller_is_better: bool = False
    "The smallest value of `metric` is the best: for distances and losses."
    patience: int | None = Field(default=None, ge=1)
    "Stop after this many evaluations without a new best."
    at_start: bool = True
    "Also before the first step."

    @model_validator(mode="after")
    def _enough_samples(self) -> EvaluationConfig:
        if self.pass_samples is not None and self.pass_samples < (self.pass_k or 1):
            raise ValueError(
                Text(
                    f"pass_samples = {self.pass_samples} is less than pass_k = {self.pass_k}",
                    f"pass_samples = {self.pass_samples} 小于 pass_k = {self.pass_k}",
                )
            )
        return self

    @model_validator(mode="after")
    def _one_rhythm(self) -> EvaluationConfig:
        if self.every is not None and self.every_epochs is not None:
            raise ValueError(
                Text(
                    f"every = {self.every} and every_epochs = {self.every_epochs}: give one of them",
                    f"every = {self.every} 与 every_epochs = {self.every_epochs}：请只给一个",
                )
            )
        return self


class StageConfig(Section):
    """A stretch of training with its own method, data, weights and schedules."""

    name: str
    "Of the stage, in logs and metrics."
    method: Literal["grpo", "supervised", "rce"] = "grpo"
    "grpo: rewards and advantages. supervised: stored actions. rce: stored actions weighted by reward."
    source: Literal["policy", "stored"] | None = None
    "Where actions come from; default: the policy for grpo, stored ones otherwise."
    steps: int | None = Field(default=None, ge=0)
    "Length in steps; or give epochs."
    epochs: float | None = Field(default=None, gt=0)
    "Length in passes over the task's training prompts, where the task has an end."
    algorithm: dict[str, object] = Field(default_factory=dict)
    "Keys of [algorithm] that override the recipe's for this stage."
    optimizer: dict[str, object] = Field(default_factory=dict)
    "The same of [optimizer]."
    task: dict[str, object] = Field(default_factory=dict)
    "The same of [task]."


class TrainingConfig(Section):
    """The machine side of a run."""

    steps: int = Field(default=100, ge=0)
    "Length of the run when no [[stages]] are given."
    rows_per_block: int | None = Field(default=None, ge=1)
    "Rows in one forward and backward pass; any value gives the same gradient. none: 32, of a language model on a GPU"
    "as many as its token budget allows."
    sample_chunk: int | None = Field(default=None, ge=1)
    "Prompts sampled at once on each rank (none: all). With less, a chunk's rewards are made while the next is sampled."
    overlap_rewards: bool = True
    "Rewards that run in workers are made beside sampling and updates; false: each is waited for at once."
    off_policy_steps: Literal[0, 1] = 0
    "1: each step's batch is sampled by the weights before the last step's updates, beside them where the engine can."
    max_staleness: int = Field(default=0, ge=0)
    "Above 0: groups are sampled beside the updates, each at its own pace. A step takes those whose weights are at most"
    "this many updates old; older ones are dropped and counted. Such a run does not repeat itself exactly."
    checkpoint_every: int = Field(default=50, ge=1)
    "Steps between checkpoints; the last step writes one too."
    keep_checkpoints: int = Field(default=2, ge=1)
    "Newest checkpoints kept, beside the best."
    gradient_norms_every: int = Field(default=10, ge=0)
    "Steps between measurements of each term's gradient norm (0: never, nor the size of each update)."
    samples_every: int = Field(default=10, ge=0)
    "Steps between written samples (0: never)."
    samples_kept: int = Field(default=4, ge=1)
    "Prompts written each time."
    sinks: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    "Besides metrics.jsonl, which is always written."
    project: str = "anygrpo"
    "Project name for wandb and trackio."
    threads: int | None = Field(default=None, ge=1)
    "CPU threads; none: torch's choice."
    deterministic: bool = False
    "Refuse nondeterministic kernels."
    parallel: Literal["replicate", "fsdp"] = "replicate"
    "Under torchrun: whole weights on every rank, or the blocks' weights and optimizer state in shards (FSDP2)."
    fsdp_dtype: Literal["bfloat16", "float16"] | None = None
    "parallel = fsdp: type that blocks compute in (none: that of their weights); gradients are summed in float32."

    @property
    def samples_ahead(self) -> bool:
        """Whether samples are drawn by older weights than those that a step finds."""
        return bool(self.off_policy_steps or self.max_staleness)

    @model_validator(mode="after")
    def _one_at_a_time(self) -> TrainingConfig:
        """A queue of groups that threads sample is one process's own, and no two runs of it are the same."""
        others = {
            "off_policy_steps": 0, "sample_chunk": None, "parallel": "replicate", "deterministic": False,
        }  # fmt: skip
        for name, free in others.items():
            if self.max_staleness and getattr(self, name) != free:
                raise ValueError(
                    Text(
                        f"max_staleness = {self.max_staleness} does not go with {name} = {getattr(self, name)!r}",
                        f"max_staleness = {self.max_staleness} 不能与 {name} = {getattr(self, name)!r} 同用",
                    )
                )
        return self

    @model_validator(mode="after")
    def _dtype_needs_fsdp(self) -> TrainingConfig:
        if self.fsdp_dtype and self.parallel != "fsdp":
            raise ValueError(
                Text(
                    f'fsdp_dtype = "{self.fsdp_dtype}" needs parallel = "fsdp", found "{self.parallel}"',
                    f'fsdp_dtype = "{self.fsdp_dtype}" 需要 parallel = "fsdp"，现为 "{self.parallel}"',
                )
            )
        return self


class DoctorConfig(Section):
    """The doctor beside the run."""

    mode: Literal["off", "watch", "shadow", "act"] = "watch"
    "shadow writes down what act would do, and does nothing."
    every: int = Field(default=5, ge=1)
    "Steps between diagnoses."
    max_actions: int = Field(default=5, ge=0)
    "Most changes that mode = act makes in a run."
    language: Literal["en", "zh"] = Field(default_factory=lambda: cast("Any", current()))
    "Of what the doctor and report.html write; where not given that of the command: --lang, ANYGRPO_LANG, the locale."
