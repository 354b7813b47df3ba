"""A toy with every term there is: walks of unequal length, cut off at a limit, some unscorable, from a sampler that may
be another policy than the trained one. It keeps what it drew and what it was trained on, for a float64 replay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.core.policy import Policy
from anygrpo.core.rollout import Evaluation, Rollout
from anygrpo.core.task import Scores, Stored, Task
from anygrpo.core.trained import frozen_weights, state_of

ARMS, LIMIT = 4, 5
WEIGHTS = {"short": 0.5}


class Steps(nn.Module):
    """Logits of each place: W x + place."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.6 * torch.randn(ARMS, ARMS, generator=generator))
        self.place = nn.Parameter(0.3 * torch.randn(LIMIT, ARMS, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.weight.T)[..., None, :] + self.place


class Walker(Policy):
    """T = up to `LIMIT` draws of an arm; arm 0 ends a walk.

    Args:
        sampler: the sampler's log-probs are those at `sampler` x temperature: it is another policy than the trained.

    Attributes:
        drawn: (samples, log-probs [P, G, T]) of every draw, in order.
        replayed: samples of every replay.
        learnt: the prompt numbers that each pass with gradient saw, and whether its rows were replayed.
    """

    provides = frozenset({"entropy", "kl", "consistency"})

    def __init__(self, seed: int = 0, temperature: float = 1.0, sampler: float = 1.0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.net, self.temperature, self.sampler = Steps(generator), temperature, sampler
        self.anchor = {k: v + 0.4 * torch.randn(v.shape, generator=generator) for k, v in state_of(self.net).items()}
        self.drawn: list[tuple[Any, Tensor]] = []
        self.replayed: list[Any] = []
        self.learnt: list[tuple[list[int], bool]] = []

    def trainable(self) -> nn.Module:
        return self.net

    def reference(self):  # type: ignore[no-untyped-def]
        return frozen_weights(self.net, self.anchor)

    def _logs(self, x: Tensor, factor: float = 1.0) -> Tensor:
        return (self.net(x) / (self.temperature * factor)).log_softmax(-1)

    def sample(self, prompts: list[Any], group_size: int, seed: int) -> Rollout:
        generator = torch.Generator().manual_seed(seed)
        x = torch.stack([p["x"] for p in prompts])[:, None].expand(-1, group_size, -1)
        logs = self._logs(x, self.sampler)
        arms = torch.multinomial(logs.exp().flatten(0, 2), 1, generator=generator).view(logs.shape[:-1])
        rollout = self._rollout(prompts, x, arms, logs)
        self.drawn.append((rollout.samples, rollout.log_probs))
        return rollout

    def _rollout(self, prompts: list[Any], x: Tensor, arms: Tensor, logs: Tensor) -> Rollout:
        stopped = arms == 0
        mask = stopped.cumsum(-1) - stopped.long() == 0
        number = torch.tensor([p["number"] for p in prompts])[:, None].expand(arms.shape[:2])
        samples = {"x": x, "arms": torch.where(mask, arms, 0), "mask": mask, "number": number}
        samples["given"] = torch.zeros_like(number, dtype=torch.bool)
        taken = torch.where(mask, logs.gather(-1, arms[..., None])[..., 0], 0.0)
        ended = (stopped & mask).any(-1)
        return replace(Rollout.of(samples, taken, mask, limit=LIMIT), ended=ended)

    def replay(self, prompts: list[Any], stored: Stored, seed: int) -> Rollout:
        arms = torch.tensor([[walk + [0] * (LIMIT - len(walk)) for walk in row] for row in stored.actions])
        x = torch.stack([p["x"] for p in prompts])[:, None].expand(-1, arms.shape[1], -1)
        rollout = replace(self._rollout(prompts, x, arms, self._logs(x)), rewards=torch.tensor(stored.rewards))
        rollout.samples["given"].fill_(True)
        self.replayed.append(rollout.samples)
        return rollout

    def decode(self, samples: Any) -> list[list[Any]]:
        rows = zip(samples["arms"].tolist(), samples["mask"].tolist())
        return [[[a for a, m in zip(*walk) if m] for walk in zip(*row)] for row in rows]

    def evaluate(self, samples: Any, times: slice, want: frozenset[str] = frozenset()) -> Evaluation:
        self.check_wanted(want)
        logs = self._logs(samples["x"])
        if torch.is_grad_enabled():
            self.learnt.append((samples["number"].tolist(), bool(samples["given"].any())))
        p = logs.exp()
        entropy = -(p * logs).sum(-1)[:, times] if "entropy" in want else None
        kl = None
        if "kl" in want:
            with torch.no_grad(), self.reference():
                ref = self._logs(samples["x"])
            kl = (p * (logs - ref)).sum(-1)[:, times]
        losses = {"consistency": self.net(samples["x"]).square().mean((-1, -2))} if "consistency" in want else {}
        if "supervised" in want:
            losses["supervised"] = (self.net(samples["x"]) - 1).square().mean((-1, -2))
        return Evaluation(logs.gather(-1, samples["arms"][..., None])[..., 0][:, times], entropy, kl, losses)


class Taught(Walker):
    """Its samples carry targets of their own."""

    provides = Walker.provides | {"supervised"}
    targets_in_samples = True


def worth(x: list[float], walk: list[int]) -> tuple[float, float]:
    """(share of steps on the largest input's arm, what is saved of the limit)."""
    best = max(range(ARMS), key=lambda i: x[i])
    return sum(arm == best for arm in walk) / len(walk), 1 - len(walk) / LIMIT


def unscorable(walk: list[int]) -> bool:
    return walk[:2] == [3, 3]


class Walk(Task):
    """Reward: hit + short / 2."""

    def __init__(self, seed: int = 0, size: int = 0) -> None:
        self.seed, self.size = seed, size

    def prompts(self, step: int, count: int) -> list[Any]:
        generator = torch.Generator().manual_seed(self.seed * 7919 + step)
        return [{"x": torch.randn(ARMS, generator=generator), "number": 100 * step + i} for i in range(count)]

    def held_out(self) -> list[Any]:
        return []

    def score(self, prompts: list[Any], outputs: list[list[Any]]) -> Scores:
        parts = torch.tensor([[worth(p["x"].tolist(), walk) for walk in row] for p, row in zip(prompts, outputs)])
        valid = torch.tensor([[not unscorable(walk) for walk in row] for row in outputs])
        hit, short = parts.unbind(-1)
        return Scores(hit + 0.5 * short, {"hit": hit, "short": short}, valid, {}, WEIGHTS)

    def stored(self, prompts: list[Any]) -> Stored:
        best = [int(p["x"].argmax()) for p in prompts]
        return Stored([[[b, 0], [b, b, (b + 1) % ARMS, 0], [1, 0]] for b in best], [[1.0, 0.6, 0.1] for _ in best])


def policy(seed: int, **options: Any) -> Walker:
    return Walker(seed, **options)


def taught(seed: int, **options: Any) -> Taught:
    return Taught(seed, **options)
