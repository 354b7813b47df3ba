"""The smallest real policy and task: a contextual bandit whose best arm is the largest input. Fast, and it learns."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.core.policy import Policy
from anygrpo.core.rollout import Evaluation, Rollout
from anygrpo.core.task import Scores, Stored, Success, Task
from anygrpo.core.trained import frozen_weights, state_of

ARMS = 5


class Bandit(Policy):
    """T = `picks` independent draws of one arm from softmax(W x)."""

    provides = frozenset({"entropy", "kl"})

    def __init__(self, seed: int = 0, picks: int = 1, temperature: float = 1.0, bias: bool = True) -> None:
        torch.manual_seed(seed)
        self.net = nn.Linear(ARMS, ARMS, bias=bias)
        self.picks, self.temperature = picks, temperature
        self._start = {k: v.clone() for k, v in state_of(self.net).items()}

    def trainable(self) -> nn.Module:
        return self.net

    def reference(self):  # type: ignore[no-untyped-def]
        return frozen_weights(self.net, self._start)

    def _log_probs(self, x: Tensor) -> Tensor:
        return (self.net(x) / self.temperature).log_softmax(-1)

    def sample(self, prompts: list[Any], group_size: int, seed: int) -> Rollout:
        generator = torch.Generator().manual_seed(seed)
        x = torch.stack([p["x"] for p in prompts])[:, None].expand(-1, group_size, -1)
        with torch.no_grad():
            logs = self._log_probs(x)
        flat = logs.exp().flatten(0, 1)
        arms = torch.multinomial(flat, self.picks, replacement=True, generator=generator).unflatten(0, logs.shape[:2])
        return Rollout.of({"x": x, "arms": arms}, logs.gather(-1, arms), torch.ones_like(arms, dtype=torch.bool))

    def greedy(self, prompts: list[Any]) -> Rollout:
        x = torch.stack([p["x"] for p in prompts])[:, None]
        arms = self.net(x).argmax(-1, keepdim=True).expand(-1, -1, self.picks)
        return Rollout.of({"x": x, "arms": arms}, torch.zeros(arms.shape), torch.ones_like(arms, dtype=torch.bool))

    def replay(self, prompts: list[Any], stored: Stored, seed: int) -> Rollout:
        arms = torch.tensor(stored.actions)
        x = torch.stack([p["x"] for p in prompts])[:, None].expand(-1, arms.shape[1], -1)
        with torch.no_grad():
            logs = self._log_probs(x).gather(-1, arms)
        rewards = torch.tensor(stored.rewards) if stored.rewards else torch.zeros(arms.shape[:2])
        return Rollout.of({"x": x, "arms": arms}, logs, torch.ones_like(arms, dtype=torch.bool), rewards=rewards)

    def decode(self, samples: Any) -> list[list[Any]]:
        return samples["arms"].tolist()

    def evaluate(self, samples: Any, times: slice, want: frozenset[str] = frozenset()) -> Evaluation:
        self.check_wanted(want)
        logs = self._log_probs(samples["x"])
        p = logs.exp()
        entropy = -(p * logs).sum(-1, keepdim=True).expand(-1, self.picks)[:, times] if "entropy" in want else None
        kl = None
        if "kl" in want:
            with torch.no_grad(), self.reference():
                ref = self._log_probs(samples["x"])
            kl = (p * (logs - ref)).sum(-1, keepdim=True).expand(-1, self.picks)[:, times]
        return Evaluation(logs.gather(-1, samples["arms"])[:, times], entropy, kl)


class BestArm(Task):
    """Reward: the share of picks that are the largest input's arm. `sign = -1` rewards everything else.

    `again`: prompts come back after so many steps."""

    success = Success("hit", 1.0)

    def __init__(self, seed: int = 0, sign: int = 1, size: int = 0, broken: str = "", again: int = 0) -> None:
        self.seed, self.sign, self.size, self.broken, self.again = seed, sign, size, broken, again

    def prompts(self, step: int, count: int) -> list[Any]:
        step = step % self.again if self.again and step < 10**6 else step
        generator = torch.Generator().manual_seed(self.seed * 7919 + step)
        return [{"x": torch.randn(ARMS, generator=generator)} for _ in range(count)]

    def held_out(self) -> list[Any]:
        return self.prompts(10**6, 200)

    def score(self, prompts: list[Any], outputs: list[list[Any]]) -> Scores:
        best = [int(p["x"].argmax()) for p in prompts]
        rewards = torch.tensor([[sum(a == b for a in o) / len(o) for o in row] for row, b in zip(outputs, best)])
        if self.broken == "nan":
            rewards[0, 0] = float("nan")
        if self.broken == "every":
            rewards = torch.full_like(rewards, float("nan"))
        if self.broken == "constant":
            rewards = torch.ones_like(rewards)
        return Scores(self.sign * rewards, {"hit": rewards})

    def stored(self, prompts: list[Any]) -> Stored:
        best = [int(p["x"].argmax()) for p in prompts]
        return Stored([[[b], [(b + 1) % ARMS]] for b in best], [[1.0, 0.0] for _ in best])


def frozen_policy(seed: int, **options: Any) -> Bandit:
    made = Bandit(seed, **options)
    made.net.requires_grad_(False)
    return made


class NothingHeldOut(BestArm):
    def held_out(self) -> list[Any]:
        return []


class Renamed(Bandit):
    """Its library calls the weight otherwise."""

    def saved_names(self) -> dict[str, str]:
        return {"weight": "unet.to_q.weight"}


def renamed(seed: int, **options: Any) -> Bandit:
    return Renamed(seed, **options)


def policy(seed: int, **options: Any) -> Bandit:
    return Bandit(seed, **options)
