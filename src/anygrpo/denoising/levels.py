"""Losses of flow models on the way back to noise: a sample is made without noise, then noised again at fresh levels,
and each level is one decision. No step of the sampler needs a density.

Leaves of `samples` (L levels): final [P, G, *E], condition, levels [P, G, L] in [0, 1), noise [P, G, L, *E], and for
nft before [P, G, L, *E], what the behaviour policy predicted there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from anygrpo.core.rollout import Evaluation, Rollout
from anygrpo.core.tree import Tree, tree_map
from anygrpo.denoising.gaussian import dimensions, total
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text

if TYPE_CHECKING:
    from anygrpo.denoising.policy import DiffusionPolicy

NFT_STRENGTH = 5.0
"""Published factor of NFT's loss; its advantages are divided by twice as much (r = A / 10 + 1/2, A within 5)."""
_SMALLEST_ERROR = 1e-5
_HUBER_EPSILON = 1e-10


def sample_levels(policy: DiffusionPolicy, prompts: list[Any], group_size: int, seed: int) -> Rollout:
    """P x G samples by the ODE, and the levels and noise at which they will be scored."""
    shape, count = (len(prompts), group_size), policy.config.levels
    generator = torch.Generator(policy.device).manual_seed(seed)
    size = (len(prompts) * group_size, *policy.parts.shape)
    draw = lambda: torch.randn(size, generator=generator, device=policy.device)  # noqa: E731
    condition = policy.condition_rows(prompts, group_size)
    made = policy.rollout(condition, draw, range(0), shape)
    tree = dict(made.samples)
    share = torch.rand(*shape, count, generator=generator, device=policy.device)
    tree["levels"] = 1 - policy.config.level_share * share
    tree["levels"] = tree["levels"].clamp(max=1 - 1e-6)
    tree["noise"] = torch.stack([draw() for _ in range(count)], 1).unflatten(0, shape)
    rows = tree_map(lambda x: x.flatten(0, 1), tree)
    with torch.no_grad(), policy.mode():
        parts = [_predicted(policy, rows, slice(t, t + 1)) for t in range(count)]
        if policy.config.loss == "nft":
            tree["before"] = torch.cat([v for v, *_ in parts], 1).unflatten(0, shape)
            log_probs = torch.zeros(*shape, count, device=policy.device)  # both implicit policies are the behaviour's
        else:
            log_probs = torch.cat([_matching(policy, *p) for p in parts], 1).unflatten(0, shape)
    info = made.info | {"diffusion/decisions": float(count)}
    mask = torch.ones_like(log_probs, dtype=torch.bool)
    return Rollout.of(tree, log_probs, mask, valid=made.valid, reasons=made.reasons, info=info)


def score_levels(policy: DiffusionPolicy, rows: Tree, times: slice, want: frozenset[str]) -> Evaluation:
    """log_probs [n, t] and, where wanted, kl [n, t] (mean squared difference of the predictions to the reference's) and
    losses["supervised"] [n] (nft: the part of its loss that no advantage enters).

    awm: log_prob = -w(t) mean |v - (noise - clean)|^2 (arXiv 2509.25050).
    nft: with r = A / 10 + 1/2 the loss r L+ + (1 - r) L- (arXiv 2509.16117, times 5 / beta) is -A log_prob + rest,
    log_prob = (L- - L+) / 10 and rest = (L+ + L-) / 2: REINFORCE with advantages within 5, and lambda_supervised = 1.
    """
    predicted, noised, level, target, valid = _predicted(policy, rows, times)
    if policy.config.loss == "awm":
        if "supervised" in want:
            raise ConfigError(
                Text("loss = 'awm' has no other loss of sampled rows", "loss = 'awm' 对采样得到的行没有别的损失"),
                "lambda_supervised = 0",
            )
        log_probs, losses = _matching(policy, predicted, noised, level, target, valid), {}
    else:
        log_probs, rest = _contrast(policy, rows, times, predicted, noised, level, valid)
        losses = {"supervised": rest.mean(1)} if "supervised" in want else {}
    kl = None
    if "kl" in want:
        with torch.no_grad(), policy.reference():
            other, *_ = _predicted(policy, rows, times)
        kl = _mean_square(predicted - other, valid).float()
    return Evaluation(log_probs, kl=kl, losses=losses)


def _predicted(policy: DiffusionPolicy, rows: Tree, times: slice) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(velocity, noised latent, level s, target, valid): the first, second and fourth [n, t, *E], the third [n, t]."""
    share, noise = rows["levels"][:, times], rows["noise"][:, times]
    n, t = share.shape
    flat = lambda x: x.reshape(n * t, *x.shape[2:])  # noqa: E731
    clean = rows["final"].repeat_interleave(t, 0)
    condition = {k: v.repeat_interleave(t, 0) for k, v in rows["condition"].items()}
    noised, timestep, target = policy.transitions.forward(clean, flat(noise), flat(share))
    out = policy.predict_at(noised, timestep, condition)
    valid = policy.valid_dimensions(condition, clean)
    grid = lambda x: x.unflatten(0, (n, t))  # noqa: E731
    return grid(out), grid(noised), grid(timestep / policy.transitions.train_steps), grid(target), grid(valid)


def _mean_square(error: Tensor, valid: Tensor) -> Tensor:
    """[n, t] float64 of [n, t, *E]: mean square over the valid dimensions."""
    flat, real = error.flatten(0, 1), valid.flatten(0, 1)
    return (total(flat.square(), real) / dimensions(real, flat)).view(error.shape[:2])


def _matching(
    policy: DiffusionPolicy, predicted: Tensor, noised: Tensor, level: Tensor, target: Tensor, valid: Tensor
) -> Tensor:
    error = _mean_square(predicted - target, valid)
    return (-weighted(error, level, policy.config.level_weight, policy.config.huber_power)).float()


def weighted(error: Tensor, level: Tensor, kind: str, power: float) -> Tensor:
    """What mean square errors [n, t] at levels [n, t] count (AWM's published code): as they are, times the level or its
    square; or a root of them times the level, which bounds how much a far miss pulls: huber is the square root, ghuber
    a power p over p, each less its value at an error of 0."""
    if kind in ("one", "t", "t2"):
        return error * level ** ("one", "t", "t2").index(kind)
    power, scale = (0.5, 1.0) if kind == "huber" else (power, 1 / power)
    return ((error + _HUBER_EPSILON) ** power - _HUBER_EPSILON**power) * level * scale


def _contrast(
    policy: DiffusionPolicy, rows: Tree, times: slice, predicted: Tensor, noised: Tensor, level: Tensor, valid: Tensor
) -> tuple[Tensor, Tensor]:
    """NFT's (log_prob, rest), [n, t] each. x0 = x_t - t v; errors are divided by their mean absolute value."""
    beta, old = policy.config.nft_beta, rows["before"][:, times]
    clean = rows["final"][:, None]
    at = level.view(*level.shape, *[1] * (noised.dim() - 2))
    losses = []
    for v in (beta * predicted + (1 - beta) * old, (1 + beta) * old - beta * predicted):
        error = noised - at * v - clean
        flat, real = error.detach().flatten(0, 1), valid.flatten(0, 1)
        size = (total(flat.abs(), real) / dimensions(real, flat)).view(level.shape).clamp(min=_SMALLEST_ERROR)
        losses.append(_mean_square(error, valid) / size * NFT_STRENGTH / beta)
    good, bad = losses
    return ((bad - good) / (2 * NFT_STRENGTH)).float(), ((good + bad) / 2).float()
