"""Worker process: optimizer steps of a diffusion case by a plain loop after DDPO (arXiv 2305.13301) as it is published.

All T steps of all samples are drawn with DDIM (eta = 1), latents and log-probs stored; then for each micro-batch and
each timestep one forward and backward pass of the clipped ratio, gradients accumulated over all of them, one AdamW step
with the norm clipped at 1. Log-probs are means over dimensions. Prints one JSON object on its last line.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from peers.diffusion.cases import Case, conditions, denoiser_of, reward_of, scheduler_of
from torch import Tensor, nn

from anygrpo.bench.meter import Meter, peak_gb
from anygrpo.bench.rounds import relative_distance
from anygrpo.denoising.denoiser import Condition

CLIP, LARGEST_ADVANTAGE = 1e-4, 5.0


Transition = Callable[[Any, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(scheduler, prediction [n, *E], timestep [n], x [n, *E]) -> mean and std of the next latent."""


def main(transition: Transition | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", type=json.loads, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--check", help="file with trajectories and a gradient to compare with, instead of steps")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    case = Case(**args.case)
    loop = Loop(case, transition or ddim)
    print(json.dumps(loop.compare(args.check) if args.check else loop.measure(args.steps)))


def ddim(scheduler: Any, out: Tensor, timestep: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and std of DDIM's next latent with eta = 1 (equations 12 and 16 of arXiv 2010.02502).

    Args:
        out: [n, *E] prediction. timestep: [n]. x: [n, *E].
    """
    shape = (-1, *[1] * (x.dim() - 1))
    cumulative = scheduler.alphas_cumprod.to(x.device)
    before = (timestep - scheduler.config.num_train_timesteps // scheduler.num_inference_steps).clamp(min=0)
    alpha, alpha_before = cumulative[timestep].view(shape), cumulative[before].view(shape)
    if scheduler.config.prediction_type == "epsilon":
        clean, noise = (x - (1 - alpha).sqrt() * out) / alpha.sqrt(), out
    else:
        clean, noise = out, (x - alpha.sqrt() * out) / (1 - alpha).sqrt()
    std = ((1 - alpha_before) / (1 - alpha) * (1 - alpha / alpha_before)).sqrt()
    return alpha_before.sqrt() * clean + (1 - alpha_before - std**2).sqrt() * noise, std


def log_prob_of(action: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """[n], mean over dimensions."""
    log_prob = -((action.detach() - mean) ** 2) / (2 * std**2) - std.log() - math.log(math.sqrt(2 * math.pi))
    return log_prob.flatten(1).mean(1)


@dataclass(frozen=True)
class Loop:
    """The plain loop of a case with a step's mean and std by `transition`."""

    case: Case
    transition: Transition

    @torch.no_grad()
    def sample(self, denoiser: nn.Module, scheduler: Any, x: Tensor, condition: Condition) -> dict[str, Tensor]:
        """latents [n, T + 1, *E], timesteps [n, T], old [n, T], final [n, *E]; T the steps with noise."""
        denoiser.eval()
        latents, old = [x], []
        timesteps = scheduler.timesteps.to(x.device)
        for i, t in enumerate(timesteps):
            timestep = t.expand(len(x))
            mean, std = self.transition(scheduler, denoiser(x, timestep, **condition), timestep, x)
            if i == self.case.decisions:  # a flow's last step
                x = mean
                break
            x = mean + std * torch.randn_like(mean)
            latents.append(x)
            old.append(log_prob_of(x, mean, std))
        return {
            "latents": torch.stack(latents, 1),
            "timesteps": timesteps[: self.case.decisions].repeat(len(x), 1),
            "old": torch.stack(old, 1),
            "final": x,
        }

    def accumulate(
        self, denoiser: nn.Module, scheduler: Any, made: dict[str, Tensor], advantages: Tensor, condition: Condition
    ) -> None:
        """The gradient of the mean clipped loss over samples and timesteps into `.grad`."""
        denoiser.train()
        rows, trained = self.case.rows, self.case.decisions
        divisor = len(advantages) // rows * trained
        for a in range(0, len(advantages), rows):
            part = slice(a, a + rows)
            given = {name: x[part] for name, x in condition.items()}
            for j in range(trained):
                x, timestep = made["latents"][part, j], made["timesteps"][part, j]
                mean, std = self.transition(scheduler, denoiser(x, timestep, **given), timestep, x)
                ratio = (log_prob_of(made["latents"][part, j + 1], mean, std) - made["old"][part, j]).exp()
                clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
                loss = torch.maximum(-advantages[part] * ratio, -advantages[part] * clipped).mean()
                (loss / divisor).backward()

    def measure(self, steps: int) -> dict[str, Any]:
        """Seconds of each step by phase, peak memory, decisions trained on, trained parameters."""
        case, device = self.case, "cuda" if torch.cuda.is_available() else "cpu"
        denoiser, scheduler = denoiser_of(case).to(device), scheduler_of(case)
        optimizer = torch.optim.AdamW(denoiser.parameters(), lr=1e-5, weight_decay=1e-4)
        meter, done = Meter(device), []
        torch.manual_seed(0)
        base = peak_gb(device)
        for step in range(steps):
            given = conditions(case, step)
            with meter.phase("step"):
                with meter.phase("sample"):
                    condition = {name: x.to(device).repeat_interleave(case.group, 0) for name, x in given.items()}
                    start = torch.randn(case.samples, *case.shape, device=device)
                    made = self.sample(denoiser, scheduler, start, condition)
                    rewards = reward_of(made["final"])
                with meter.phase("train"):
                    advantages = (rewards - rewards.mean()) / (rewards.std(correction=0) + 1e-8)
                    advantages = advantages.clamp(-LARGEST_ADVANTAGE, LARGEST_ADVANTAGE)
                    self.accumulate(denoiser, scheduler, made, advantages, condition)
                with meter.phase("optimizer"):
                    torch.nn.utils.clip_grad_norm_(denoiser.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
            done.append({"phases": meter.take(), "decisions": made["old"].numel()})
        parameters = sum(p.numel() for p in denoiser.parameters())
        return {"steps": done, "peak_gb": peak_gb(device), "base_gb": base, "parameters": parameters}

    def compare(self, path: str) -> dict[str, float]:
        """Relative distance of the given gradient of our first step to this loop's on the same trajectories."""
        given = torch.load(path, map_location="cpu")
        denoiser, scheduler = denoiser_of(self.case), scheduler_of(self.case)
        made = {"old": given["old"]} | {name: given["samples"][name] for name in ("latents", "timesteps")}
        self.accumulate(denoiser, scheduler, made, given["advantages"], given["samples"]["condition"])
        module = getattr(denoiser, "model", denoiser)  # ours names weights as the library does, without the wrapper
        theirs = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
        return relative_distance(given["gradient"], theirs)


if __name__ == "__main__":
    main()
