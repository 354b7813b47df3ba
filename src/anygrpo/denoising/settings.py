"""Recipe sections of denoising policies: what all of them share, and diffusers' pipelines."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from anygrpo.recipe.section import Section, one_source
from anygrpo.spoken import Text


class FaultsConfig(Section):
    """Known faults of published training code, off by default. **For reproduction only**: `anygrpo check` refuses them.

    Each one alone makes the log-ratios of the first step, before any update, differ from 0, or kills the gradient.
    """

    ratio_to: Literal["behaviour", "reference"] = "behaviour"
    "reference: the old log-probs come from the frozen reference, so the ratio is not 1 even without an update."
    dropout_in_replay: bool = False
    "Training mode in sampling and in replay, each with its own dropout: the scorer is another policy than the sampler."
    attach_actions: bool = False
    "Let the gradient flow into the sampled action: action - mean is then constant and the score gradient exactly 0."
    count_padding: bool = False
    "Sum the log-prob over padding frames too."
    score_last_step: bool = False
    "Score the noise-free last step with the neighbouring step's std, as if it had been sampled."
    whole_trajectory: bool = False
    "One decision = the whole trajectory: log-probs summed over all steps, T = 1."

    @property
    def active(self) -> tuple[str, ...]:
        """Names of the faults that are switched on."""
        normal = FaultsConfig.model_construct()
        return tuple(n for n in type(self).model_fields if getattr(self, n) != getattr(normal, n))


class LoraConfig(Section):
    """Low-rank adapters on attention and feed-forward layers; the reference policy is the same model with them off."""

    rank: int = Field(32, ge=1)
    "Inner size of an adapter."
    alpha: float = Field(64.0, gt=0)
    "Adapters are scaled by alpha / rank."
    targets: tuple[str, ...] | Literal["attention_and_feedforward"] = "attention_and_feedforward"
    "Names of linear layers (suffixes), or all linear layers inside attention and feed-forward blocks."


OWN_CLIPS = {
    "sum": "0.2", "centred": "0.025", "mean": "0.025 / sqrt(D)", "guard": "0.025 / sqrt(D)",
    "squared_error": "0.0025 / sqrt(D)",
}  # fmt: skip
"""Event reduction -> its clip range where a recipe gives none, in words."""


class DenoisingConfig(Section):
    """How a denoiser is sampled and scored. Shared by `diffusion` and `motion`."""

    steps: int = Field(50, ge=2)
    "Denoising steps of a sample (stochastic or not)."
    sampler: Literal["ddpm", "ddim", "flow_grpo", "dance_grpo", "cps"] = "ddpm"
    "The transition between two steps. ddim takes `eta`, the three of flow models take `noise_level`."
    eta: float = Field(1.0, gt=0, le=1)
    "ddim: share of the DDPM posterior std."
    noise_level: float = Field(0.7, gt=0)
    "flow_grpo: a in a sqrt(s/(1-s)); dance_grpo: the constant sigma; cps: in quarter turns, at most 1."
    window: int | None = Field(None, ge=1)
    "Stochastic steps of a sample; the rest follow the ODE. none: every step that can have noise."
    window_starts: tuple[int, int] = (0, 0)
    "First and last step where the window may begin."
    window_moves: Literal["drawn", "progressive", "decaying", "linear"] = "drawn"
    "drawn: for each rollout, from its seed. progressive (MixGRPO): a step further every `window_every` updates, and"
    "back to the first at the end. decaying, linear: the same with (exponentially, along a line) ever fewer updates at"
    "later places."
    window_every: int = Field(25, ge=1)
    "Updates after which a progressive window moves on."
    window_stride: int = Field(1, ge=1)
    "progressive, decaying, linear: steps that the window moves by."
    window_decay: float = Field(0.1, ge=0)
    "decaying: k of ceil(window_every exp(-k max(0, start - window_decay_from))) updates at a place."
    window_decay_from: int = Field(13, ge=0)
    "decaying: places up to this one keep `window_every` updates."
    window_least: int | None = Field(None, ge=1)
    "linear: updates at the last step that can have noise; `window_every` at the first. none: a quarter of that."
    shared_start: bool = False
    "A group's samples go one way up to the first stochastic step (DanceGRPO): only scored noise tells them apart."
    guidance: float = Field(1.0, ge=0)
    "Classifier-free guidance scale w: uncond + w (cond - uncond), in sampling and in scoring. 1: none; below 1"
    "is refused for pipelines, which take it for none."
    event_reduction: Literal["sum", "mean", "centred", "squared_error", "guard"] = "centred"
    "How one decision's dimensions become one number. Each has a default clip range of its own, and a recipe's clip is"
    "in its unit: published ones (1e-4) are for `mean`, CPS's (1e-5) for `squared_error`. beta means the same in all."
    kl_unit: Literal["nats", "flow_grpo"] = "nats"
    "Of kl = 'exact'. nats: the step's KL, reduced as the log-prob is. flow_grpo: times the step's dt, as in that code."
    step_weights: Literal["none", "inverse_dt", "noise"] = "none"
    "Weight of each step's policy term. none: 1. inverse_dt: 1 / dt (GRPO-Guard). noise: the step's std"
    "(TempFlow-GRPO). Weights have a mean of 1 over the stochastic steps."
    loss: Literal["steps", "awm", "nft"] = "steps"
    "steps: the ratio of stochastic steps. awm: Advantage Weighted Matching. nft: DiffusionNFT. These two, of flow"
    "models, sample without noise and score a sample at levels of noise (docs/motion.md has their keys)."
    levels: int = Field(6, ge=1)
    "awm, nft: noise levels at which a sample is scored; its decisions."
    level_share: float = Field(0.9, gt=0, le=1)
    "awm, nft: levels are drawn from this noisiest share of the way."
    level_weight: Literal["one", "t", "t2", "huber", "ghuber"] = "one"
    """awm: what a mean square error m at level t counts. one: m; t: t m; t2: t^2 m; huber: t (sqrt(m + 1e-10) - 1e-5);
    ghuber: t ((m + 1e-10)^p - 1e-10^p) / p."""
    huber_power: float = Field(0.25, gt=0, le=1)
    "awm, level_weight = ghuber: its power p."
    nft_beta: float = Field(1.0, gt=0)
    "nft: beta of its implicit policies beta v + (1 - beta) v_old."
    time_chunk: int | None = Field(1, ge=1)
    "Steps whose graphs are alive at once in training (none: all)."
    gradient_checkpointing: bool = False
    "Activations are computed again in the backward pass: less memory, more time."
    average: float | None = Field(None, gt=0, lt=1)
    "Decay of a running average of the trained weights, which held-out samples are made with (published: 0.9)."
    average_every: int = Field(8, ge=1)
    "Updates between two steps of that average."
    evaluation: Literal["seeded", "ode"] = "seeded"
    "Held-out samples: the same stochastic sampler with noise from the prompt's seed, or the noise-free ODE."
    lora: LoraConfig | None = None
    "none: all weights are trained and the reference is a frozen copy of the weights at the start."
    dtype: Literal["float32", "bfloat16"] = "float32"
    "Of the denoiser's weights. Means, stds and log-probs are float32 always."
    model: str | None = None
    "Start weights, in the form that the kind reads."
    device: str = "auto"
    "auto: the first GPU where there is one."
    faults: FaultsConfig = FaultsConfig()
    "`[policy.faults]`: known faults of published code, to reproduce them."

    language_peers = False

    @property
    def own_clip(self) -> str:
        """By the event reduction; D dimensions (`anygrpo.denoising.gaussian.REDUCTIONS`)."""
        return "1" if self.loss != "steps" else OWN_CLIPS[self.event_reduction]

    @model_validator(mode="after")
    def _trained_weights_are_fine_enough(self) -> DenoisingConfig:
        if self.dtype == "bfloat16" and self.lora is None:
            raise ValueError(
                Text(
                    "dtype = bfloat16 rounds small updates away; it needs [policy.lora], whose adapters are float32",
                    "dtype = bfloat16 会把小的更新舍入掉；它需要 [policy.lora]，其适配器为 float32",
                )
            )
        return self

    @model_validator(mode="after")
    def _loss_fits(self) -> DenoisingConfig:
        if self.loss == "steps":
            return self
        if self.sampler not in ("flow_grpo", "dance_grpo", "cps"):
            raise ValueError(
                Text(
                    f"loss = {self.loss!r} is for flow models, and sampler = {self.sampler!r} is not",
                    f"loss = {self.loss!r} 用于流模型，而 sampler = {self.sampler!r} 不是",
                )
            )
        if self.faults.active or self.window is not None or self.shared_start or self.step_weights != "none":
            raise ValueError(
                Text(
                    f"loss = {self.loss!r} has no stochastic steps: no window, shared_start, step_weights, faults",
                    f"loss = {self.loss!r} 没有随机步：不能用 window、shared_start、step_weights、faults",
                )
            )
        if self.loss == "nft" and self.guidance != 1.0:
            raise ValueError(Text("loss = 'nft' is without guidance: guidance = 1", "loss = 'nft' 不用 guidance"))
        return self

    @model_validator(mode="after")
    def _window_fits(self) -> DenoisingConfig:
        low, high = self.window_starts
        if self.window is None:
            if (low, high) != (0, 0):
                given = f"window_starts = {(low, high)}"
                raise ValueError(Text(f"{given} needs window (a number of steps)", f"{given} 需要 window（步数）"))
        elif not 0 <= low <= high or high + self.window > self.steps - 1:
            raise ValueError(
                Text(
                    f"window = {self.window} from step {low}..{high} leaves the {self.steps - 1} steps with noise",
                    f"window = {self.window} 从第 {low}..{high} 步起，超出了可以有噪声的 {self.steps - 1} 步",
                )
            )
        if (least := self.window_least) and (self.window_moves != "linear" or least > self.window_every):
            given = f"window_least = {least}, window_moves = {self.window_moves!r}, window_every = {self.window_every}"
            raise ValueError(Text(f"{given}: it is linear's, at most that", f"{given}：仅用于 linear，且不超过后者"))
        return self


class DiffusionPolicyConfig(DenoisingConfig):
    """Any diffusers denoiser: a pipeline folder, or parts made by your own function."""

    kind: Literal["diffusion"] = "diffusion"
    model: str | None = None
    "Folder or Hub name (owner/name[@revision]) of a saved diffusers pipeline with a UNet or transformer, text encoders"
    "and a VAE; a run, a checkpoint, an export, or a LoRA that names its base."
    base: str | None = None
    "The pipeline under a LoRA, an export or a run that `model` names, in place of the one that they say (a LoRA by"
    "`base_model` in the README.md beside it)."
    function: str | None = None
    "In place of `model`: path.py:function, called as function(seed=seed, **arguments); returns"
    "`anygrpo.denoising.build.Parts`."
    arguments: dict[str, Any] = Field(default_factory=dict)
    "What the function is given besides the seed."
    height: int = Field(64, ge=1)
    "Latent height (pipeline)."
    width: int = Field(64, ge=1)
    "Latent width (pipeline)."
    frames: int = Field(33, ge=1)
    "Frames of a video (a pipeline that makes videos)."
    negative_prompt: str = ""
    "What guidance leads away from."
    text_tokens: int | None = Field(None, ge=1)
    "Tokens of the T5 encoder (SD3, Flux, Wan); none: the pipeline's own default. Sampling and scoring share them."

    @model_validator(mode="after")
    def _one_source(self) -> DiffusionPolicyConfig:
        one_source(self.model, self.function, self.arguments)
        return self
