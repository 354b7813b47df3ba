"""The one place that knows a step's Gaussian. Sampling draws from it and scoring reads it: they cannot differ.

Every supported sampler's mean is

    mean = w_x0 clip(x0) + w_x x + w_out out,     x0 = x0_x x + x0_out out

with six numbers a step (and the std), computed once in float64 from a diffusers scheduler: K steps, seven columns.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from anygrpo.denoising.gaussian import expand
from anygrpo.denoising.step_rows import cps_row, ddim_row, ddpm_row, flow_row
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text

COLUMNS = ("x0_x", "x0_out", "w_x0", "w_x", "w_out", "std")


@dataclass(frozen=True)
class Table:
    """The coefficients of K steps, each [K] float32."""

    x0_x: Tensor
    x0_out: Tensor
    w_x0: Tensor
    w_x: Tensor
    w_out: Tensor
    std: Tensor

    @staticmethod
    def of(rows: list[dict[str, float]]) -> Table:
        return Table(*(torch.tensor([row.get(c, 0.0) for row in rows], dtype=torch.float64).float() for c in COLUMNS))


@dataclass(frozen=True)
class Transitions:
    """The steps of one sampler.

    Attributes:
        timesteps: [K] what the denoiser is told, in order of denoising.
        noisy: the stochastic transition of each step; std 0 where it has none (the last).
        ode: the noise-free transition of each step.
        clip: x0 is clamped to [-clip, clip], or None.
        forward: (clean, noise, u) -> (noised, timestep, target): the training pair at noise level u in [0, 1).
        train_steps: timestep of pure noise.
        dt: [K] how far each step goes down the noise level (flow models; 1 a step elsewhere).
    """

    timesteps: Tensor
    noisy: Table
    ode: Table
    clip: float | None
    forward: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
    dt: Tensor | None = None
    train_steps: int = 1000

    def __len__(self) -> int:
        return len(self.timesteps)

    def gaussian(self, step: Tensor, x: Tensor, out: Tensor, ode: bool = False) -> tuple[Tensor, Tensor]:
        """Mean [n, *E] and std [n] of the next latent.

        Args:
            step: [n] index of the step of each row.
            x: [n, *E] latent before the step.
            out: [n, *E] the denoiser's prediction (guided) for it.
        """
        table = self.ode if ode else self.noisy
        take = lambda column: expand(column.to(x.device)[step], x)  # noqa: E731
        x, out = x.float(), out.float()
        x0 = take(table.x0_x) * x + take(table.x0_out) * out
        if self.clip is not None:
            x0 = x0.clamp(-self.clip, self.clip)
        mean = take(table.w_x0) * x0 + take(table.w_x) * x + take(table.w_out) * out
        return mean, table.std.to(x.device)[step]

    def lengths(self) -> Tensor:
        """[K] how far each step goes down the noise level s; 1 where levels are no flow's."""
        return torch.ones(len(self)) if self.dt is None else self.dt

    def step_weights(self, kind: str) -> Tensor:
        """[K] weights of the steps' gradients, with mean 1 over the stochastic steps: "none", "inverse_dt", "noise"."""
        raw = {"none": torch.ones(len(self)), "inverse_dt": 1 / self.lengths(), "noise": self.noisy.std}[kind].float()
        noisy = self.noisy.std > 0
        return raw / raw[noisy].mean() if bool(noisy.any()) else raw

    def neighbour_std(self, step: Tensor) -> Tensor:
        """The std [n] of the step before: what the fault `score_last_step` takes for a step that has none."""
        return self.noisy.std.to(step.device)[(step - 1).clamp(min=0)]

    def stochastic(self) -> int:
        """Number of leading steps with noise; they come first, noise-free ones last."""
        return int((self.noisy.std > 0).sum())


def diffusion_transitions(
    scheduler: Any, steps: int, sampler: str, eta: float = 1.0, levels: dict[str, Any] | None = None
) -> Transitions:
    """Steps of a DDPM or DDIM scheduler of diffusers (predicting noise, sample or velocity).

    Raises:
        ConfigError: learned variances, thresholding or an unknown prediction type, whose Gaussian is not known here.
    """
    cfg = scheduler.config
    _refuse_unsupported(scheduler, sampler)
    scheduler.set_timesteps(**(levels or {"num_inference_steps": steps}))
    cumulative = scheduler.alphas_cumprod.double()
    final = getattr(scheduler, "final_alpha_cumprod", torch.tensor(1.0))
    timesteps = [int(t) for t in scheduler.timesteps]
    stride = cfg.num_train_timesteps // steps
    noisy, ode = [], []
    for t in timesteps:
        previous = int(scheduler.previous_timestep(t)) if sampler == "ddpm" else t - stride
        alpha = float(cumulative[t])
        before = float(cumulative[previous]) if previous >= 0 else float(final)
        if alpha < 1e-12 and cfg.prediction_type == "epsilon":
            raise ConfigError(
                Text(
                    f"at timestep {t} nothing of the sample is left (rescale_betas_zero_snr), and a "
                    "model that predicts "
                    "noise says nothing of it there",
                    f"在时间步 {t} 处样本已无剩余（rescale_betas_zero_snr），预测噪声的模型在那里不能说明样本",
                ),
                Text(
                    'timestep_spacing = "leading", or a model with v_prediction',
                    '请设 timestep_spacing = "leading"，或用 v_prediction 的模型',
                ),
            )
        flat = ddim_row(cfg.prediction_type, alpha, before, 0.0)
        if sampler == "ddim":
            row = ddim_row(cfg.prediction_type, alpha, before, eta)
        else:
            row = ddpm_row(cfg.prediction_type, alpha, before, _ddpm_variance(cfg.variance_type, alpha, before, t))
        noisy.append(row)
        ode.append(flat)
    clip = float(cfg.clip_sample_range) if cfg.clip_sample else None
    forward = _diffusion_forward(cumulative, cfg.prediction_type)
    return Transitions(torch.tensor(timesteps), Table.of(noisy), Table.of(ode), clip, forward)


def _ddpm_variance(kind: str, alpha: float, before: float, timestep: int) -> float:
    """What diffusers adds: nothing at timestep 0, the posterior variance or beta elsewhere. A 1e-20 floor is 0 here."""
    if timestep == 0:
        return 0.0
    beta = 1 - alpha / before
    return beta if kind == "fixed_large" else (1 - before) / (1 - alpha) * beta


def _refuse_unsupported(scheduler: Any, sampler: str) -> None:
    cfg = scheduler.config
    wanted = {"ddpm": "DDPMScheduler", "ddim": "DDIMScheduler"}[sampler]
    if type(scheduler).__name__ != wanted:
        raise ConfigError(
            Text(
                f"sampler = {sampler!r} needs a {wanted}, got {type(scheduler).__name__}",
                f"sampler = {sampler!r} 需要 {wanted}，现有 {type(scheduler).__name__}",
            ),
            Text(
                f"{wanted}.from_config(pipeline.scheduler.config), or another sampler",
                f"请用 {wanted}.from_config(pipeline.scheduler.config)，或换一个采样器",
            ),
        )
    if cfg.thresholding:
        raise ConfigError(
            Text("dynamic thresholding makes the mean depend on the whole batch", "动态阈值使均值取决于整个批次"),
            "thresholding = false",
        )
    if cfg.prediction_type not in ("epsilon", "sample", "v_prediction"):
        raise ConfigError(
            Text(f"unknown prediction_type {cfg.prediction_type!r}", f"未知的 prediction_type {cfg.prediction_type!r}"),
            Text("epsilon, sample or v_prediction", "可用：epsilon、sample 或 v_prediction"),
        )
    known = ("fixed_small", "fixed_small_log", "fixed_large")
    if sampler == "ddpm" and cfg.variance_type not in known:
        raise ConfigError(
            Text(
                f"variance_type {cfg.variance_type!r} is not supported", f"不支持 variance_type {cfg.variance_type!r}"
            ),
            Text(f"one of {', '.join(known)}", f"可用：{', '.join(known)}"),
        )


def _diffusion_forward(cumulative: Tensor, prediction: str) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    def forward(clean: Tensor, noise: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        t = (u.double() * len(cumulative)).long().clamp(max=len(cumulative) - 1)
        alpha = expand(cumulative.to(clean.device)[t].float(), clean)
        a, b = alpha.sqrt(), (1 - alpha).sqrt()
        target = {"epsilon": noise, "sample": clean, "v_prediction": a * noise - b * clean}[prediction]
        return a * clean + b * noise, t, target

    return forward


def flow_transitions(
    scheduler: Any, steps: int, sampler: str, noise_level: float, levels: dict[str, Any] | None = None
) -> Transitions:
    """Steps of a flow-matching Euler scheduler of diffusers (velocity = noise - clean, s = 1 is noise), as an SDE.

    The last step, to s = 0, follows the ODE. At s = 1 `flow_grpo` has no finite sigma; as in the published code the
    next level stands in for s under the root.

    Args:
        levels: what `set_timesteps` is given; a scheduler whose shift depends on the image's size needs its `mu`.
    """
    if type(scheduler).__name__ != "FlowMatchEulerDiscreteScheduler":
        raise ConfigError(
            Text(
                f"sampler = {sampler!r} needs a FlowMatchEulerDiscreteScheduler, got {type(scheduler).__name__}",
                f"sampler = {sampler!r} 需要 FlowMatchEulerDiscreteScheduler，现有 {type(scheduler).__name__}",
            ),
            Text("use ddpm or ddim with a noise-predicting model", "请对预测噪声的模型用 ddpm 或 ddim"),
        )
    given = levels or {"num_inference_steps": steps}
    dynamic = getattr(scheduler.config, "use_dynamic_shifting", False)
    if dynamic and "mu" not in given:
        raise ConfigError(
            Text(
                "use_dynamic_shifting makes the levels depend on the image size",
                "use_dynamic_shifting 使噪声级取决于图像大小",
            ),
            Text("set a fixed shift", "请设固定的 shift"),
        )
    if getattr(scheduler.config, "invert_sigmas", False):
        raise ConfigError(
            Text(
                "invert_sigmas counts levels from 0 up, and the way here goes from noise to 0",
                "invert_sigmas 从 0 向上数噪声级，而此处从噪声走到 0",
            ),
            "invert_sigmas = false",
        )
    if sampler == "cps" and noise_level > 1:
        raise ConfigError(
            Text(
                f"noise_level = {noise_level}: cps counts in quarter turns",
                f"noise_level = {noise_level}：cps 以四分之一圈计",
            ),
            Text("at most 1 (published: 0.8)", "至多为 1（论文：0.8）"),
        )
    scheduler.set_timesteps(**given)
    sigmas = [float(s) for s in scheduler.sigmas]
    rows: dict[str, Callable[[float, float], dict[str, float]]] = {
        "flow_grpo": lambda s, to: flow_row(s, to, noise_level * math.sqrt(s / (1 - (sigmas[1] if s >= 1.0 else s)))),
        "dance_grpo": lambda s, to: flow_row(s, to, noise_level),
        "cps": lambda s, to: cps_row(s, to, noise_level),
    }
    pairs = list(itertools.pairwise(sigmas))
    ode = [flow_row(s, after, 0.0) for s, after in pairs]
    noisy = [rows[sampler](s, after) for s, after in pairs[:-1]] + ode[-1:]
    shift = math.exp(given["mu"]) if dynamic else float(scheduler.config.shift)
    forward = _flow_forward(shift, scheduler.config.num_train_timesteps)
    dt = torch.tensor([s - after for s, after in pairs])
    return Transitions(
        scheduler.timesteps.clone(),
        Table.of(noisy),
        Table.of(ode),
        None,
        forward,
        dt,
        scheduler.config.num_train_timesteps,
    )


def _flow_forward(shift: float, train_steps: int) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    def forward(clean: Tensor, noise: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        level = shift * u / (1 + (shift - 1) * u)
        s = expand(level, clean)
        return (1 - s) * clean + s * noise, level * train_steps, noise - clean

    return forward


def transitions_of(
    scheduler: Any, steps: int, sampler: str, eta: float, noise_level: float, levels: dict[str, Any] | None = None
) -> Transitions:
    """The transitions a recipe names."""
    if sampler in ("flow_grpo", "dance_grpo", "cps"):
        return flow_transitions(scheduler, steps, sampler, noise_level, levels)
    return diffusion_transitions(scheduler, steps, sampler, eta, levels)
