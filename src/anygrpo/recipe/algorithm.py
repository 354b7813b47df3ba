"""The algorithm table of a recipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, ModelWrapValidatorHandler, model_validator
from pydantic_core import PydanticCustomError

from anygrpo.choices.catalogue import PRESETS, filled
from anygrpo.recipe.adaptive import GroupSize, Temperature, check_sizes
from anygrpo.recipe.filters import DropConstantConfig, Filters
from anygrpo.recipe.section import (
    NotNegative,
    Number,
    Positive,
    Section,
    UserFunction,
    choice_of,
)
from anygrpo.spoken import Text


def _known_preset(name: str) -> str:
    if name not in PRESETS:
        expected = ", ".join(f"'{known}'" for known in PRESETS)
        raise PydanticCustomError("literal_error", "must be one of {expected}", {"expected": expected})
    return name


Preset = Annotated[str, AfterValidator(_known_preset)]
if TYPE_CHECKING:
    Chosen: TypeAlias = str | UserFunction
    Advantage = Objective = Estimator = Reduction = Controller = Correction = Credit = Chosen
else:
    Advantage, Objective, Estimator = choice_of("advantage"), choice_of("objective"), choice_of("kl")
    Reduction, Controller, Correction = choice_of("reduction"), choice_of("controller"), choice_of("correction")
    Credit = choice_of("credit")


class AlgorithmConfig(Section):
    """How rewards become a gradient. Every number of kind `Number` may follow a schedule.

    Keys that are not given have the values of `preset`, then those that the objective's paper has for it, then the
    defaults below. What is named by a word may be a user's "path.py:name" (or a table with `function`, `arguments`).
    """

    preset: Preset | None = None
    "A published method: sets the keys that the recipe does not give (`anygrpo explain dapo`)."
    prompts_per_step: int = Field(default=8, ge=1)
    "P: prompts sampled in a step."
    group_size: GroupSize = 8
    "G: samples drawn for each prompt; rewards are compared among them. auto: samples_per_step are spread over the \
prompts by what each can still teach."
    samples_per_step: int | None = Field(default=None, ge=2)
    "group_size = auto: samples of a step. Where not given it is measured when the run starts: as many as the machine \
makes in little more time than fewer."
    smallest_group: int = Field(default=2, ge=2)
    "group_size = auto: fewest samples of a prompt; all group sizes are multiples of it."
    largest_group: int = Field(default=64, ge=2)
    "group_size = auto: most samples of a prompt."
    temperature: Temperature = None
    "Sampling temperature, where it moves: by a schedule, or held by a controller (kind = adaptive); the policy's own \
setting otherwise."

    advantage: Advantage = "zscore"
    std_floor: float = Field(default=0.0, ge=0)
    "Smallest standard deviation that advantages are divided by."
    advantage_clip: float | None = Field(default=None, gt=0)
    component_weights: dict[str, float] = Field(default_factory=dict)
    "advantage = components, gdpo: weight of each reward component; the reward's own weight where not named."
    pass_k: int = Field(default=2, ge=1)
    "advantage = pass_at_k: k."
    running_decay: float = Field(default=0.99, ge=0, lt=1)
    "advantage = running: decay of the mean and variance over steps."
    history_size: int = Field(default=16, ge=1)
    "advantage = history: rewards that are kept of each prompt."
    history_least: int = Field(default=16, ge=2)
    "advantage = history: rewards a prompt's own mean and deviation need; until then the batch's are taken."
    credit: Credit = "outcome"
    "Which decisions of a sample of several turns its reward is for; of one turn all are the same."
    discount: float = Field(default=1.0, ge=0, le=1)
    "credit = turns, process: what a reward is worth a turn earlier."
    ddof: Literal[0, 1] = 1
    "Divisor of the group's variance: n - ddof."
    epsilon: float = Field(default=0.0, ge=0)
    "Added to the standard deviation; 0 is safe, since constant groups are recognised before any division."

    objective: Objective = "ppo"
    clip_low: NotNegative | None = None
    clip_high: NotNegative | None = None
    dual_clip: float | None = Field(default=None, gt=1)
    "For negative advantages the loss stays below this times their size (clip/dual counts where)."
    tau_positive: Positive = 1.0
    "objective = sapo: steepness of the gate where the advantage is positive."
    tau_negative: Positive = 1.05
    ratio_guard: float = Field(default=20.0, gt=0)
    "Decisions whose log-ratio exceeds this leave the loss and are counted (metric guarded)."
    importance: Correction = "none"
    "Factor old / behaviour on losses, where samples are not the old policy's own (another engine or precision, \
off_policy_steps). truncate: at most importance_cap. mask: 0 above it. none: ratios are to the policy that sampled."
    importance_cap: float = Field(default=2.0, ge=1)
    importance_level: Literal["decision", "sequence"] = "decision"
    "One factor a decision, or one a sample: the product over its decisions."
    reduction: Reduction = "token_mean"
    horizon: int | None = Field(default=None, ge=1)
    "reduction = constant: the fixed number of decisions that sums are divided by (default: the policy's limit)."

    epochs: int = Field(default=1, ge=1)
    "Passes over each rollout."
    minibatches: int = Field(default=1, ge=1)
    "Optimizer steps in a pass; groups are never split."
    target_kl: float | None = Field(default=None, gt=0)
    "Stop the inner updates once the mean KL to the behaviour policy exceeds this."

    lambda_pg: Number = 1.0
    lambda_supervised: Number = 0.0
    lambda_consistency: Number = 0.0
    entropy_coef: Number = 0.0
    beta: NotNegative = 0.0
    "Weight of the KL to the reference policy."
    kl: Estimator = "k3"
    kl_controller: Controller = "fixed"
    "proportional: towards kl_target (Ziegler 2019). band: x or / kl_factor outside [kl_low, kl_high]."
    kl_target: float = Field(default=0.05, gt=0)
    kl_horizon: int = Field(default=10_000, ge=1)
    "kl_controller = proportional: samples over which the weight moves by at most a fifth."
    kl_low: float = Field(default=0.01, gt=0)
    kl_high: float = Field(default=0.1, gt=0)
    kl_factor: float = Field(default=1.5, gt=1)
    beta_min: float = Field(default=1e-6, gt=0)
    beta_max: float = Field(default=10.0, gt=0)

    rce_temperature: Positive = 1.0
    rce_variant: Literal["softmax", "rank", "top1"] = "softmax"

    filters: Filters = (DropConstantConfig(kind="drop_constant"),)
    "Run in order, before advantages are computed; each one's effect on live groups is logged."
    overlong_buffer: int = Field(default=0, ge=0)
    "Soft overlong penalty: the last so many decisions before the policy's limit (max_new_tokens) lower the reward \
linearly to -1 (0: off)."
    refill: int = Field(default=0, ge=0)
    "Dynamic sampling: up to this many further draws replace groups that filters removed; then goes on with fewer."

    @property
    def typical_group(self) -> int:
        """Samples of a prompt: G, or their mean where groups are of unequal size (8 before that is measured)."""
        if isinstance(self.group_size, int):
            return self.group_size
        share = 8 if self.samples_per_step is None else self.samples_per_step // self.prompts_per_step
        return max(share, self.smallest_group)

    @model_validator(mode="after")
    def _sizes_fit(self) -> AlgorithmConfig:
        check_sizes(self)
        return self

    @model_validator(mode="after")
    def _history_can_fill(self) -> AlgorithmConfig:
        if self.history_least > self.history_size:
            raise ValueError(
                Text(
                    f"history_least = {self.history_least} rewards are never kept: history_size is {self.history_size}",
                    f"history_least = {self.history_least} 个奖励永远存不下：history_size 为 {self.history_size}",
                )
            )
        most = self.largest_group if self.group_size == "auto" else self.group_size
        if self.advantage == "history" and self.history_size <= most:
            raise ValueError(
                Text(
                    f"history_size = {self.history_size} holds no past beside groups of {most}: set it to "
                    f"{4 * most}, say",
                    f"history_size = {self.history_size} 在大小为 {most} 的组之外存不下过去：例如设为 {4 * most}",
                )
            )
        return self

    @model_validator(mode="after")
    def _band_has_width(self) -> AlgorithmConfig:
        if self.kl_low >= self.kl_high:
            raise ValueError(
                Text(
                    f"kl_low = {self.kl_low} is not below kl_high = {self.kl_high}",
                    f"kl_low = {self.kl_low} 不小于 kl_high = {self.kl_high}",
                )
            )
        if self.beta_min > self.beta_max:
            raise ValueError(
                Text(
                    f"beta_min = {self.beta_min} is above beta_max = {self.beta_max}",
                    f"beta_min = {self.beta_min} 大于 beta_max = {self.beta_max}",
                )
            )
        if self.kl_controller != "fixed" and not isinstance(self.beta, float):
            raise ValueError(
                Text(
                    f'beta follows a schedule, and kl_controller = "{self.kl_controller}" moves it: give a number',
                    f'beta 由调度决定，而 kl_controller = "{self.kl_controller}" 也要改它：请给一个数',
                )
            )
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _filled(cls, data: Any, handler: ModelWrapValidatorHandler[AlgorithmConfig]) -> AlgorithmConfig:
        """With the keys that preset and objective set; these count as not given, so that a stage can change either."""
        if not isinstance(data, dict):
            return handler(data)
        extra = filled(data)
        made = handler({**data, **extra})
        made.__pydantic_fields_set__.difference_update(extra)
        return made

    def follows(self) -> dict[str, Any]:
        """What preset and objective set here, by key."""
        return filled({key: getattr(self, key) for key in self.model_fields_set})
