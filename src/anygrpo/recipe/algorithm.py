"""The algorithm, optimizer and evaluation tables of a recipe."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from anygrpo.recipe.section import NotNegative, Number, Positive, Rate, Section, Share, TwoOrMore


class DropConstant(Section):
    """Groups without reward spread leave (exact where no other term needs them)."""

    kind: Literal["drop_constant"]
    tolerance: float = Field(1e-9, ge=0)


class PassRateBand(Section):
    """Groups whose share of samples with reward >= threshold lies in the band stay."""

    kind: Literal["pass_rate_band"]
    low: Share = 0.0
    high: Share = 1.0
    threshold: Number = 0.5


class ComponentAtLeast(Section):
    """Groups where a sample reaches `threshold` in one reward component stay."""

    kind: Literal["component_at_least"]
    component: str
    threshold: Number


class MinimumSpread(Section):
    """Groups whose best and worst rewards differ by `spread` stay."""

    kind: Literal["minimum_spread"]
    spread: NotNegative


class TopKByReward(Section):
    """The k best samples of each group stay (early/late by a schedule)."""

    kind: Literal["top_k_by_reward"]
    k: TwoOrMore


class OverlongMask(Section):
    """Samples cut off at the limit leave."""

    kind: Literal["overlong_mask"]


FilterConfig = Annotated[
    DropConstant | PassRateBand | ComponentAtLeast | MinimumSpread | TopKByReward | OverlongMask,
    Field(discriminator="kind"),
]


class AlgorithmConfig(Section):
    """How rewards become a gradient. Every number of kind `Number` may follow a schedule."""

    prompts_per_step: int = Field(8, ge=1)
    "P: prompts sampled in a step."
    group_size: int = Field(8, ge=1)
    "G: samples drawn for each prompt; rewards are compared among them."
    temperature: Positive | None = None
    "Sampling temperature, where it follows a schedule; the policy's own setting otherwise."

    advantage: Literal[
        "zscore",
        "centred",
        "leave_one_out",
        "leave_one_out_std",
        "rank",
        "batch",
        "whitened",
        "overall",
        "running",
        "components",
        "gdpo",
        "maxrl",
        "gpg",
        "pass_at_k",
        "best_gap",
    ] = "zscore"
    std_floor: float = Field(0.0, ge=0)
    "Smallest standard deviation that advantages are divided by."
    advantage_clip: float | None = Field(None, gt=0)
    component_weights: dict[str, float] = Field(default_factory=dict)
    "advantage = components: weight of each reward component (1 where not named)."
    pass_k: int = Field(2, ge=1)
    "advantage = pass_at_k: k."
    running_decay: float = Field(0.99, ge=0, lt=1)
    "advantage = running: decay of the mean and variance over steps."
    ddof: Literal[0, 1] = 1
    "Divisor of the group's variance: n - ddof."
    epsilon: float = Field(0.0, ge=0)
    "Added to the standard deviation; 0 is safe, since constant groups are recognised before any division."

    objective: Literal["ppo", "gspo", "cispo", "sapo", "reinforce"] = "ppo"
    clip_low: NotNegative | None = None
    "Ratio clip below 1; the policy type's default where not given."
    clip_high: NotNegative | None = None
    dual_clip: float | None = Field(None, gt=1)
    importance: Literal["none", "truncate", "mask"] = "none"
    "Factor old / behaviour on losses where samples are not the old policy's own (another engine or precision, \
off_policy_steps): limited to the cap, or 0 above it. none: ratios are to the behaviour policy itself."
    importance_cap: float = Field(2.0, ge=1)
    importance_level: Literal["decision", "sequence"] = "decision"
    "One factor a decision, or one a sample: the product over its decisions."
    reduction: Literal["token_mean", "sequence_mean", "prompt_mean", "constant"] = "token_mean"
    horizon: int | None = Field(None, ge=1)
    "reduction = constant: the fixed number of decisions that sums are divided by (default: T)."

    epochs: int = Field(1, ge=1)
    "Passes over each rollout."
    minibatches: int = Field(1, ge=1)
    "Optimizer steps in a pass; groups are never split."
    target_kl: float | None = Field(None, gt=0)
    "Stop the inner updates once the mean KL to the behaviour policy exceeds this."

    lambda_pg: Number = 1.0
    lambda_supervised: Number = 0.0
    lambda_consistency: Number = 0.0
    entropy_coef: Number = 0.0
    beta: NotNegative = 0.0
    "Weight of the KL to the reference policy."
    kl: Literal["k1", "k2", "k3", "exact"] = "k3"
    kl_controller: Literal["fixed", "proportional", "band"] = "fixed"
    "proportional: towards kl_target (Ziegler 2019). band: x or / 1.5 outside [kl_low, kl_high]."
    kl_target: float = Field(0.05, gt=0)
    kl_horizon: int = Field(100, ge=1)
    kl_low: float = Field(0.01, gt=0)
    kl_high: float = Field(0.1, gt=0)

    rce_temperature: Positive = 1.0
    rce_variant: Literal["softmax", "rank", "top1"] = "softmax"

    filters: tuple[FilterConfig, ...] = (DropConstant(kind="drop_constant"),)
    "Run in order, before advantages are computed; each one's effect on live groups is logged."
    overlong_buffer: int = Field(0, ge=0)
    "Soft overlong penalty: the last so many decisions before the limit lower the reward linearly to -1 (0: off)."
    refill: int = Field(0, ge=0)
    "Dynamic sampling: up to this many further draws replace groups that filters removed; then goes on with fewer."

    @model_validator(mode="after")
    def _band_has_width(self) -> AlgorithmConfig:
        if self.kl_low >= self.kl_high:
            raise ValueError(f"kl_low = {self.kl_low} is not below kl_high = {self.kl_high}")
        return self


Decay = Annotated[float, Field(ge=0, lt=1)]


class OptimizerConfig(Section):
    """AdamW."""

    learning_rate: Rate = 1e-5
    weight_decay: float = Field(0.0, ge=0)
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    eps: float = Field(1e-8, gt=0)
    grad_clip: float | None = Field(1.0, gt=0)
    "Largest gradient norm; None: no clipping."


class EvaluationConfig(Section):
    """Held-out evaluation: greedy, and pass@k by sampling."""

    every: int | None = Field(None, ge=1)
    "Steps between evaluations; None: at the start and the end only."
    every_epochs: float | None = Field(None, gt=0)
    "Passes over a stage's training prompts between evaluations, in place of `every`."
    prompts: int | None = Field(None, ge=1)
    "At most this many held-out prompts."
    pass_k: int | None = Field(None, ge=2)
    "Also sample this many answers a prompt and report how often at least one succeeds."
    metric: str = "eval/reward"
    "What decides the best checkpoint: the largest value."
    smaller_is_better: bool = False
    "The smallest value of `metric` is the best: for distances and losses."
    patience: int | None = Field(None, ge=1)
    "Stop after this many evaluations without a new best."
    at_start: bool = True

    @model_validator(mode="after")
    def _one_rhythm(self) -> EvaluationConfig:
        if self.every is not None and self.every_epochs is not None:
            raise ValueError(f"every = {self.every} and every_epochs = {self.every_epochs}: give one of them")
        return self


class StageConfig(Section):
    """A stretch of training with its own method, data, weights and schedules."""

    name: str
    method: Literal["grpo", "supervised", "rce"] = "grpo"
    source: Literal["policy", "stored"] | None = None
    "Where actions come from; default: the policy for grpo, stored ones otherwise."
    steps: int | None = Field(None, ge=0)
    epochs: float | None = Field(None, gt=0)
    "Length in passes over the task's training prompts, where the task has an end."
    algorithm: dict[str, object] = Field(default_factory=dict)
    optimizer: dict[str, object] = Field(default_factory=dict)
    task: dict[str, object] = Field(default_factory=dict)
    "Keys of these tables override the recipe's for this stage."


class TrainingConfig(Section):
    """The machine side of a run."""

    steps: int = Field(100, ge=0)
    "Length of the run when no [[stages]] are given."
    rows_per_block: int = Field(32, ge=1)
    "Rows in one forward and backward pass; any value gives the same gradient."
    sample_chunk: int | None = Field(None, ge=1)
    "Prompts sampled at once on each rank (None: all). With less, a chunk's rewards are made while the next is sampled."
    overlap_rewards: bool = True
    "Rewards that run in workers are made beside sampling and updates; false: each is waited for at once."
    off_policy_steps: Literal[0, 1] = 0
    "1: each step's batch is sampled by the weights before the last step's updates, beside them where the engine can."
    checkpoint_every: int = Field(50, ge=1)
    keep_checkpoints: int = Field(2, ge=1)
    gradient_norms_every: int = Field(10, ge=0)
    "Steps between measurements of each term's gradient norm (0: never, nor the size of each update)."
    samples_every: int = Field(10, ge=0)
    "Steps between written samples (0: never)."
    samples_kept: int = Field(4, ge=1)
    "Prompts written each time."
    sinks: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    "Besides metrics.jsonl, which is always written."
    project: str = "anygrpo"
    "Project name for wandb and trackio."
    threads: int | None = Field(None, ge=1)
    "CPU threads; None: torch's choice."
    deterministic: bool = False
    "Refuse nondeterministic kernels."
    parallel: Literal["replicate", "fsdp"] = "replicate"
    "Under torchrun: whole weights on every rank, or the blocks' weights and optimizer state in shards (FSDP2)."
    fsdp_dtype: Literal["bfloat16", "float16"] | None = None
    "parallel = fsdp: type that blocks compute in (None: that of their weights); gradients are summed in float32."

    @model_validator(mode="after")
    def _dtype_needs_fsdp(self) -> TrainingConfig:
        if self.fsdp_dtype and self.parallel != "fsdp":
            raise ValueError(f'fsdp_dtype = "{self.fsdp_dtype}" needs parallel = "fsdp", found "{self.parallel}"')
        return self


class DoctorConfig(Section):
    """The doctor beside the run."""

    mode: Literal["off", "watch", "shadow", "act"] = "watch"
    "shadow writes down what act would do, and does nothing."
    every: int = Field(5, ge=1)
    "Steps between diagnoses."
    max_actions: int = Field(5, ge=0)
    language: Literal["en", "zh"] = "en"
