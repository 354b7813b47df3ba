"""Recipe sections for stochastic modules and restorers; those of the restoration task are beside it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from anygrpo.gates.restoration.settings import (
    DegradationConfig,
    FolderConfig,
    PerceptualConfig,
    RestorationConfig,
    WorstConfig,
)
from anygrpo.recipe.section import Section
from anygrpo.spoken import Text

__all__ = [
    "DegradationConfig",
    "FolderConfig",
    "GateConfig",
    "GatedConfig",
    "LoraConfig",
    "PerceptualConfig",
    "RestorationConfig",
    "RestorerConfig",
    "StochasticConfig",
    "WorstConfig",
]

Deterministic = Literal["mean", "mode"]
Loss = Literal["l1", "mse", "charbonnier", "ssim"]


class LoraConfig(Section):
    """LoRA on the network's convolutions and linear layers; the reference policy is then the network without it."""

    rank: int = Field(8, ge=1)
    "Inner size of an adapter."
    alpha: float = Field(16.0, gt=0)
    "Adapters are scaled by alpha / rank."
    targets: str | list[str] = "all"
    """Module names, their endings or shell patterns ("*.attn.*"); all: every convolution and
    linear layer that takes one; all-linear, all-conv: those of a kind."""


class GateConfig(Section):
    """A gate in a network as it stands: what is there becomes a distribution's mean (`anygrpo.gates.wrapping`)."""

    at: str
    """Dotted name in the network of a submodule ("fre1.rate_conv": its output), a parameter ("fre1.para1") or a
    method; or "module:function"."""
    distribution: Literal["normal", "beta", "bernoulli", "categorical"] = "normal"
    """normal: any number. beta: a number between low and high. bernoulli: a chance becomes 0 or 1. categorical: chances
    along `dim` become one choice."""
    spread: float | None = Field(None, gt=0)
    "normal: standard deviation; none: .1. beta: concentration a + b; none: 10."
    low: float = 0.0
    "Lower end of a beta's range."
    high: float = 1.0
    "Upper end of a beta's range."
    per: Literal["site", "element"] = "site"
    "site: all numbers of a row are one decision. element: each is its own."
    dim: int = -1
    "categorical: where the choices lie."
    output: str | int | None = None
    "Key or place, where the submodule or function returns several things."
    features: Literal["detached", "shared"] = "detached"
    """Of a submodule: whether a policy gradient goes on into what it reads. detached: it trains the submodule alone,
    and the body follows the supervised loss."""
    name: str | None = None
    "Of the site; `at` where not given."

    @model_validator(mode="after")
    def _has_a_range(self) -> GateConfig:
        if self.low >= self.high:
            raise ValueError(
                Text(f"low {self.low} must be below high {self.high}", f"low {self.low} 应小于 high {self.high}")
            )
        return self


class GatedConfig(Section):
    """What every policy with random gates has."""

    deterministic: Deterministic = "mean"
    "Gate values of `greedy`, and so of evaluation and of use after training."
    sites: list[str] = Field(default_factory=lambda: ["*"], min_length=1)
    """Shell patterns of the sites that are sampled. The others are at their mean with its gradient, for GRPO too. That
    is right for gates which a supervised loss trains well."""
    supervised: dict[Loss, float] = Field(default_factory=lambda: {"l1": 1.0}, min_length=1)
    "Weights of the per-row losses between output and target."
    supervised_gates: Literal["mean", "sampled", "best"] = "mean"
    """Gate values of a supervised stage. mean: at the mean, with its gradient, so gates that the output depends on
    smoothly are trained too. sampled: drawn once per row, without gradient, so the network meets all gate values. best:
    drawn `best_of` times, and the draw with the smallest loss is learnt from."""
    best_of: int = Field(4, ge=2)
    "Draws of each row where supervised_gates is best."
    train: list[str] | None = None
    "Shell patterns of parameter names that are trained. none: all, or nothing but the adapters where there are some."
    freeze: list[str] = Field(default_factory=list)
    "Shell patterns that are not, after `train`."
    lora: LoraConfig | None = None
    "`[policy.lora]`: adapters; without it the weights themselves are trained."
    gates: list[GateConfig] = Field(default_factory=list[GateConfig])
    "Gates put into the network as it stands, beside those that it has itself."
    model: str | None = None
    """Where to start from: .safetensors or a torch file (nothing in it is run), the folder of a checkpoint or a run, or
    a name of the Hub (owner/name[@revision]). Prefixes of wrappers are taken off key by key."""
    table: str | None = None
    'Which table of a file with several ("params_ema"); none: the one that fits best.'
    strict: bool = True
    "false: load what fits by name and shape, and report the rest."
    multiple: int = Field(1, ge=1)
    "Heights and widths are padded (reflected) to a multiple of it, and the output is cut again."
    output: str | int | None = None
    "Key or place of the restored picture, where the network returns a dict, list or tuple."
    dtype: Literal["float32", "bfloat16"] = "float32"
    "Of products inside the network (autocast). Weights, densities of gates and losses are float32 always."
    device: str = "auto"
    "auto: the GPU if there is one."
    rows_at_once: int = Field(64, ge=1)
    "Rows in one forward pass while sampling."
    graphs: bool = False
    """Passes over rows of one shape are recorded once and replayed (CUDA graphs): for networks of very many small
    kernels, whose Python does the same in every pass. A pass that cannot be recorded runs as it is, with a warning; so
    do all on a CPU."""


class StochasticConfig(GatedConfig):
    """[policy] of a module of the user's own with `gate(...)` in its forward."""

    kind: Literal["stochastic"] = "stochastic"
    function: str
    "path.py:function, called as function(**arguments), that returns the nn.Module."
    arguments: dict[str, Any] = Field(default_factory=dict)
    "Keyword arguments of the function."
    inputs: list[str] = Field(default_factory=lambda: ["degraded"], min_length=1)
    "Keys of a prompt handed to forward, in order, stacked to [n, ...]."
    target: str | None = "clean"
    "Key of a prompt that supervised losses compare with; none where there is no target."
    probe: list[list[int]] | None = None
    "Shapes of one row of each input: the network is then checked for sites at once, not at the first step."


class RestorerConfig(GatedConfig):
    """[policy] of the built-in restorers."""

    kind: Literal["restorer"] = "restorer"
    network: Literal["frequency", "toolbox", "experts"] = "frequency"
    """frequency: encoder-decoder with Beta gates on frequency windows and fusion strengths in three modules.
    toolbox: a categorical choice of a fixed filter for every patch, several times.
    experts: a choice of one of several encoder-decoders for the whole picture."""
    width: int = Field(16, ge=4)
    "Channels at full resolution."
    blocks: int = Field(1, ge=1, le=1024)
    "Residual blocks per level (frequency, experts)."
    window: Literal["hard", "soft"] = "hard"
    """hard: the window's side is rounded to whole frequencies, as in AdaIR: no derivative reaches its rate.
    soft: a smooth edge, so supervision trains the rate too."""
    skip: Literal["features", "bands", "none"] = "features"
    """network = frequency: what reaches full resolution. features: the encoder's features too. bands: only the low and
    the high band of the last window, whose rate then decides which detail counts as signal. none: as bands, at half
    resolution too; the gates of a wide network then decide more."""
    fusion: Literal["scalar", "channel"] = "scalar"
    "Fusion strengths: one per band, or one per band and channel."
    concentration: float = Field(10.0, gt=0)
    "a + b - 2 of every Beta gate at the start: larger is narrower."
    gate_features: Literal["detached", "shared"] = "detached"
    """frequency: whether gradients of the gates reach the body. detached: a policy gradient trains the gate heads and
    nothing else, and the body follows the supervised loss. shared: both train everything."""
    experts: int = Field(4, ge=1)
    "experts: how many there are."
    patch: int = Field(16, ge=1)
    "toolbox: side of a patch in pixels."
    steps: int = Field(3, ge=1)
    "toolbox: filters applied one after another."
    stop: bool = False
    "toolbox: a patch for which keep is chosen stops there: later rounds decide nothing of it."
    sharpness: float = Field(1.0, gt=0)
    """toolbox, experts: factor on the logits. Supervision trains a mixture; drawn from as it is, three filters in a row
    mostly spoil the picture. Above 1, what GRPO draws lies near the most probable choices (which stay the same)."""
