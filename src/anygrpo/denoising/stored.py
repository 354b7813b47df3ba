"""Stored outputs as rows: denoising regression, plain (demonstrations) or weighted by rewards.

Leaves after `replay` (T = 1): clean [P, G, *E], noise [P, G, *E], level [P, G] in [0, 1), seed [P, G], condition.
Everything random is drawn in replay and stored, so that scoring a row again gives the same loss; network dropout, where
the denoiser has it, is drawn from the seed of a block's first row.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anygrpo.core.rollout import Evaluation, Rollout
from anygrpo.core.task import Stored
from anygrpo.core.tree import Tree, tree_map
from anygrpo.denoising.gaussian import dimensions, total
from anygrpo.errors import ConfigError, DataError
from anygrpo.spoken import Text


def replay_outputs(policy: Any, prompts: list[Any], stored: Stored, seed: int) -> Rollout:
    """P lists of outputs as a rollout [P, G]; short lists padded with their first output, valid = False there.

    Raises:
        ConfigError: the model cannot turn outputs into latents.
        DataError: a prompt without outputs.
    """
    if policy.parts.to_latent is None:
        raise ConfigError(
            Text("this model has no encoder from outputs to latents", "这个模型没有从输出到潜变量的编码器"),
            Text("give Parts.to_latent", "请给出 Parts.to_latent"),
        )
    sizes = [len(row) for row in stored.actions]
    if min(sizes, default=0) == 0:
        raise DataError(
            Text("a prompt has no stored output", "有一个提示没有存好的输出"),
            Text("leave that prompt out", "请去掉那个提示"),
        )
    p, g = len(prompts), max(sizes)
    padded = [list(row) + [row[0]] * (g - len(row)) for row in stored.actions]
    clean = torch.stack([torch.stack([policy.parts.to_latent(a) for a in row]) for row in padded])
    generator = torch.Generator().manual_seed(seed)
    tree = {
        "clean": clean,
        "noise": torch.randn(clean.shape, generator=generator),
        "level": torch.rand(p, g, generator=generator),
        "seed": torch.randint(2**31, (p, g), generator=generator),
    }
    tree = tree_map(lambda x: x.to(policy.device), tree)
    tree["condition"] = {k: v.unflatten(0, (p, g)) for k, v in policy.condition_rows(prompts, g).items()}
    with torch.no_grad():
        rows = tree_map(lambda x: x.flatten(0, 1), tree)
        log_probs = policy.evaluate(rows, slice(0, 1)).log_probs.view(p, g, 1)
    valid = torch.tensor([[j < size for j in range(g)] for size in sizes], device=policy.device)
    return Rollout.of(
        tree,
        log_probs,
        valid[..., None].clone(),
        valid=valid,
        rewards=_table(stored.rewards or [], p, g).to(policy.device),
        components={name: _table(rows, p, g).to(policy.device) for name, rows in stored.components.items()},
    )


def denoising_loss(policy: Any, samples: Tree, want: frozenset[str]) -> Evaluation:
    """Mean squared error of the prediction over the valid dimensions at the stored level and noise, [n].

    log_probs is minus that loss [n, 1]: the bound on the log-likelihood up to scale, so that a reward-weighted
    cross-entropy stage is reward-weighted regression.
    """
    if "kl" in want:
        raise ConfigError(
            Text(
                "stored outputs have no denoising decisions, so there is no KL of them",
                "存好的输出没有去噪决策，因此没有它们的 KL",
            ),
            "beta = 0",
        )
    clean, noise = samples["clean"], samples["noise"]
    noised, timestep, target = policy.transitions.forward(clean, noise, samples["level"])
    learning = torch.is_grad_enabled()
    cuda = [policy.device] if policy.device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.manual_seed(int(samples["seed"].flatten()[0]))
        policy.denoiser.train(learning)
        out = policy.denoiser(noised, timestep, **samples["condition"]).float()
        policy.denoiser.eval()
    valid = policy.valid_dimensions(samples["condition"], clean)
    loss = (total((out - target).square(), valid) / dimensions(valid, clean)).float()
    return Evaluation(-loss[:, None], losses={"supervised": loss} if "supervised" in want else {})


def _table(rows: list[list[float]], p: int, g: int) -> Tensor:
    """Ragged rows of numbers as [P, G], zeros where there is none."""
    out = torch.zeros(p, g)
    for i, row in enumerate(rows):
        out[i, : len(row)] = torch.tensor(row, dtype=torch.float32)
    return out
