"""A denoiser as a policy: one decision is one stochastic denoising step, a Gaussian over the latent.

Leaves of `samples` after `sample` (S stochastic steps, E the latent's shape):
    latents [P, G, S+1, *E], steps [P, G, S] index into the sampler's table, timesteps [P, G, S], final [P, G, *E],
    condition {name: [P, G, ...]}, and noise [P, G, S, *E] where the event reduction needs it.
Those after `replay` are described in `stored`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from anygrpo.core.device import device_of, float32_as_it_is
from anygrpo.core.policy import ClipDefaults, Policy
from anygrpo.core.rollout import Evaluation, Rollout
from anygrpo.core.saved import Form
from anygrpo.core.task import Stored
from anygrpo.core.tree import Tree, on, tree_map
from anygrpo.denoising import files
from anygrpo.denoising.averaging import Averaged
from anygrpo.denoising.decisions import decisions, kl_to_reference, log_prob, log_prob_info
from anygrpo.denoising.denoiser import Condition, Reference, checkpoint_gradients, guided, in_training, model_of
from anygrpo.denoising.faults import old_log_probs
from anygrpo.denoising.files import of_pipeline
from anygrpo.denoising.gaussian import REDUCTIONS, dimensions, total, whitened
from anygrpo.denoising.image.pictures import inline, is_picture
from anygrpo.denoising.levels import sample_levels, score_levels
from anygrpo.denoising.parts import Parts
from anygrpo.denoising.possible import refuse_what_cannot_be
from anygrpo.denoising.settings import DenoisingConfig
from anygrpo.denoising.stored import denoising_loss, replay_outputs
from anygrpo.denoising.trajectory import denoise
from anygrpo.denoising.transitions import Transitions
from anygrpo.denoising.window import window_start
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text


class DiffusionPolicy(Policy):
    """Samples, scores and trains any denoiser.

    Network dropout is off in sampling and scoring (eval mode is set here, whatever the caller did): a scorer with
    other randomness than the sampler is another policy. Means, stds and log-probs are float32.
    """

    provides: ClassVar[frozenset[str]] = frozenset({"kl", "supervised"})

    def __init__(self, parts: Parts, transitions: Transitions, config: DenoisingConfig, seed: int):
        self.parts, self.transitions, self.config = parts, transitions, config
        self.device = device_of(config.device)
        float32_as_it_is(config.dtype)
        self.guidance = 1.0 if parts.embedded_guidance else config.guidance
        self.time_chunk, self.faults = config.time_chunk, config.faults
        self.reduction = REDUCTIONS[config.event_reduction]
        self.clip = self.reduction.clip(int(torch.Size(parts.shape).numel()))
        self.denoiser = parts.denoiser
        if not of_pipeline(config):  # a pipeline was loaded in its dtype
            self.denoiser.to(torch.bfloat16 if config.dtype == "bfloat16" else torch.float32)
        if config.gradient_checkpointing:
            checkpoint_gradients(self.denoiser)
        self._reference = Reference(self.denoiser, config.lora, seed)
        self._reference.to(self.device)
        self.denoiser.eval()
        refuse_what_cannot_be(parts.null is not None, transitions, self.guidance, config)
        self._version = 0
        self._average = None
        if config.average is not None:
            self._average = Averaged(self.trainable(), config.average, config.average_every)
        self.step_weights = self.transitions.step_weights(config.step_weights).to(self.device)
        self.targets_in_samples = config.loss == "nft"  # type: ignore[misc]
        if config.loss != "steps":
            self.clip = ClipDefaults(1.0, 1.0)
            self.time_chunk = None

    # -- the protocol --------------------------------------------------------------------------------------------

    def sample(self, prompts: list[Any], group_size: int, seed: int) -> Rollout:
        """P x G trajectories; T = the stochastic steps."""
        if self.config.loss != "steps":
            return sample_levels(self, prompts, group_size, seed)
        start = window_start(self.config, self.version, seed)
        kept = range(start, start + (self.config.window or self.transitions.stochastic()))
        generator = torch.Generator(self.device).manual_seed(seed)
        size = (len(prompts) * group_size, *self.parts.shape)
        draw = lambda: torch.randn(size, generator=generator, device=self.device)  # noqa: E731
        together, shape = group_size if self.config.shared_start else 1, (len(prompts), group_size)
        rollout = self.rollout(self.condition_rows(prompts, group_size), draw, kept, shape, together)
        rollout.info.update(log_prob_info(self, rollout.samples))
        return rollout

    def greedy(self, prompts: list[Any]) -> Rollout:
        """One sample a prompt, a function of the prompt's "seed" (its position where it has none), by the sampler that
        trains (`evaluation = "seeded"`) or the noise-free ODE; under the averaged weights where `average` is set."""
        seeds = [int(p.get("seed", i)) if isinstance(p, dict) else i for i, p in enumerate(prompts)]
        each = [torch.Generator().manual_seed(s) for s in seeds]
        draw = lambda: torch.stack([torch.randn(self.parts.shape, generator=g) for g in each]).to(self.device)  # noqa: E731
        start, size = self.config.window_starts[0], self.config.window or self.transitions.stochastic()
        noiseless = self.config.evaluation == "ode" or self.config.loss != "steps"
        kept = range(0) if noiseless else range(start, start + size)
        with self.averaged():
            return self.rollout(self.condition_rows(prompts, 1), draw, kept, (len(prompts), 1))

    @property
    def version(self) -> int:
        """Optimizer steps taken; the loop sets it, and the average of the weights follows."""
        return self._version

    @version.setter
    def version(self, value: int) -> None:  # type: ignore[override]
        if self._average is not None and value != self._version:
            self._average.follow(self._version, value)
        self._version = value

    def carried(self) -> dict[str, Any]:
        return {} if self._average is None else {"average": self._average.carried()}

    def resumed(self, state: dict[str, Any]) -> None:
        if self._average is not None:
            self._average.resumed(state.get("average", {}))

    opened = resumed

    def averaged(self) -> AbstractContextManager[None]:
        """Inside, the weights are their running average (where there is one)."""
        return nullcontext() if self._average is None else self._average()

    measured = averaged

    def evaluate(self, samples: Tree, times: slice, want: frozenset[str] = frozenset()) -> Evaluation:
        """log_probs [n, t] by the event reduction; kl [n, t] exact; losses["supervised"] [n] of replayed rows.

        Raises:
            ConfigError: `want` has what these rows cannot give, or a step without noise is to be scored.
        """
        self.check_wanted(want)
        samples = on(samples, self.device)
        if "clean" in samples:
            return denoising_loss(self, samples, want)
        if "levels" in samples:
            with self.mode():
                return score_levels(self, samples, times, want)
        if "supervised" in want:
            raise ConfigError(
                Text(
                    "the denoising loss needs clean demonstrations, and these rows were sampled",
                    "去噪损失需要干净的示例，而这些行是采样得到的",
                ),
                Text(
                    "lambda_supervised = 0, or a stage with source = 'stored'",
                    "请设 lambda_supervised = 0，或用 source = 'stored' 的阶段",
                ),
            )
        where = slice(0, samples["steps"].shape[1]) if self.faults.whole_trajectory else times
        with self.mode():
            scored = decisions(self, samples, where)
        log_probs = log_prob(self, scored)
        kl = kl_to_reference(self, scored) if "kl" in want else None
        if self.faults.whole_trajectory:
            log_probs, kl = log_probs.sum(1, keepdim=True), None if kl is None else kl.sum(1, keepdim=True)
        return Evaluation(log_probs, kl=kl)

    def decode(self, samples: Tree) -> list[list[Any]]:
        samples = on(samples, self.device)
        final = samples["clean"] if "clean" in samples else samples["final"]
        p, g = final.shape[:2]
        rows = {k: v.flatten(0, 1) for k, v in samples["condition"].items()}
        with torch.no_grad():
            flat = self.parts.decode(final.flatten(0, 1), rows)
        return [flat[i * g : (i + 1) * g] for i in range(p)]

    def show(self, prompts: list[Any], outputs: list[list[Any]]) -> list[dict[str, Any]]:
        """As any policy; pictures as thumbnails (data URIs of PNG)."""
        rows = super().show(prompts, outputs)
        for row, made in zip(rows, outputs):
            row["outputs"] = [inline(x) if is_picture(x) else said for x, said in zip(made, row["outputs"])]
        return rows

    def reference(self) -> AbstractContextManager[None]:
        return self._reference()

    def trainable(self) -> nn.Module:
        """The library's own module, where there is one: its tensors then bear the library's names."""
        return model_of(self.denoiser)

    def saved_names(self) -> dict[str, str]:
        return files.names_of(self)

    def saved_form(self) -> Form:
        return files.form_of(self)

    def replay(self, prompts: list[Any], stored: Stored, seed: int) -> Rollout:
        """Clean outputs as rows; noise, noise level and dropout seed are drawn here from `seed` and stored."""
        return replay_outputs(self, prompts, stored, seed)

    def z2(self, samples: Tree) -> tuple[float, int]:
        """Mean of ((action - mean) / std)^2 over the valid dimensions, and their number n, of samples [P, G, ...].

        It is 1 +- 6 sqrt(2 / n) if and only if the scorer is the sampler. Scored as in training, faults and all.
        """
        rows = tree_map(lambda x: x.flatten(0, 1), on(samples, self.device))
        squares, count = 0.0, 0.0
        for t in range(rows["steps"].shape[1]):
            with torch.no_grad(), self.mode():
                d = decisions(self, rows, slice(t, t + 1))
            squares += float(total(whitened(d.action, d.mean, d.std).square(), d.valid).sum())
            count += float(dimensions(d.valid, d.mean).sum())
        return squares / count, int(count)

    # -- sampling ------------------------------------------------------------------------------------------------

    def condition_rows(self, prompts: list[Any], group_size: int) -> Condition:
        """The prompts' condition, each repeated for its group: leaves [P G, ...]."""
        with torch.no_grad():
            condition = self.parts.encode(prompts)
        return {k: v.to(self.device).repeat_interleave(group_size, 0) for k, v in condition.items()}

    def valid_dimensions(self, condition: Condition, like: Tensor) -> Tensor:
        """Bool, broadcastable to `like` [n, *E]: no padding frames (unless the fault counts them)."""
        if self.parts.valid is None or self.faults.count_padding:
            return torch.ones(like.shape[0], *[1] * (like.dim() - 1), dtype=torch.bool, device=like.device)
        return self.parts.valid(condition)

    def predict(self, x: Tensor, step: Tensor, condition: Condition) -> Tensor:
        """The guided prediction before steps [n] of the table."""
        return self.predict_at(x, self.transitions.timesteps.to(self.device)[step], condition)

    def predict_at(self, x: Tensor, timestep: Tensor, condition: Condition) -> Tensor:
        """The guided prediction at timesteps [n] of any value."""
        return guided(self.denoiser, x, timestep, condition, self.parts.null or {}, self.guidance)

    def rollout(
        self,
        condition: Condition,
        draw: Callable[[], Tensor],
        kept: range,
        shape: tuple[int, int],
        together: int = 1,
    ) -> Rollout:
        """Trajectories of the condition's rows; `together` rows in a row go one way up to the first kept step."""
        x = draw()[::together]
        valid = self.valid_dimensions(condition, x.new_empty(len(x) * together, *[1] * (x.dim() - 1)))
        follow = partial(
            denoise,
            self.transitions,
            draw=draw,
            ode_elsewhere=self.config.window is not None or not kept,
            reduction=self.reduction,
            valid=valid,
        )
        with self.mode():
            first = kept.start if together > 1 else 0
            few = {k: v[::together] for k, v in condition.items()}
            x, _ = follow(lambda x, step: self.predict(x, step, few), x, steps=range(first), kept=range(0))
            final, record = follow(
                lambda x, step: self.predict(x, step, condition),
                x.repeat_interleave(together, 0),
                steps=range(first, len(self.transitions)),
                kept=kept,
                keep_last=self.faults.score_last_step and bool(kept),
            )
        tree: dict[str, Any] = {"final": final, "condition": condition}
        log_probs = final.new_zeros(final.shape[0], 0)
        if kept:
            tree |= record.tree(self.transitions.timesteps)
            log_probs = old_log_probs(self, tree, record.log_probs)
        return self._as_rollout(tree, log_probs, shape)

    def _as_rollout(self, tree: Tree, log_probs: Tensor, shape: tuple[int, int]) -> Rollout:
        final = tree["final"]
        valid = (torch.isfinite(final).flatten(1).all(1) & torch.isfinite(log_probs).all(1)).view(shape)
        reasons = {(int(p), int(g)): "the latent is not finite" for p, g in (~valid).nonzero().tolist()}
        grid = tree_map(lambda x: x.unflatten(0, shape), tree)
        log_probs = log_probs.view(*shape, -1) if log_probs.numel() else log_probs.new_zeros(*shape, 0)
        size = dimensions(self.valid_dimensions(tree["condition"], final), final)
        info = {"diffusion/decisions": float(log_probs.shape[-1]), "diffusion/dimensions": float(size.mean())}
        info["clip/own"] = self.clip.high
        if "steps" in tree:
            info["diffusion/window"] = float(tree["steps"][0, 0])
        mask = torch.ones_like(log_probs, dtype=torch.bool)
        return Rollout.of(grid, log_probs, mask, valid=valid, reasons=reasons, info=info)

    # -- scoring -------------------------------------------------------------------------------------------------

    @contextmanager
    def mode(self) -> Iterator[None]:
        """Eval mode, in sampling and in scoring alike; train mode under the fault `dropout_in_replay`."""
        noisy = self.faults.dropout_in_replay
        if noisy or in_training(self.denoiser):  # to look is faster than to set
            self.denoiser.train(noisy)
        try:
            yield
        finally:
            if noisy:
                self.denoiser.eval()
