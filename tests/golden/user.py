"""What a user would write for the golden runs: a policy, a task, gates, an environment, a reward, over public names."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Beta, Categorical, Independent, Normal, OneHotCategorical

import anygrpo

ARMS = 5


class Bandit(anygrpo.Policy):
    """Two independent draws of one arm of five from softmax(W x)."""

    provides = frozenset({"entropy", "kl"})

    def __init__(self, seed: int, temperature: float = 1.0) -> None:
        torch.manual_seed(seed)
        self.net, self.temperature = nn.Linear(ARMS, ARMS), temperature
        self.fix_reference()

    def trainable(self) -> nn.Module:
        return self.net

    def _logs(self, x: Tensor) -> Tensor:
        return (self.net(x) / self.temperature).log_softmax(-1)

    def _rollout(self, prompts: list[Any], arms: Tensor, **given: Any) -> anygrpo.Rollout:
        x = torch.stack([p["x"] for p in prompts])[:, None].expand(-1, arms.shape[1], -1)
        with torch.no_grad():
            logs = self._logs(x).gather(-1, arms)
        return anygrpo.Rollout.of({"x": x, "arms": arms}, logs, torch.ones_like(arms, dtype=torch.bool), **given)

    def sample(self, prompts: list[Any], group_size: int, seed: int) -> anygrpo.Rollout:
        with torch.no_grad():
            p = self._logs(torch.stack([p["x"] for p in prompts])).exp()
        generator = torch.Generator().manual_seed(seed)
        arms = torch.multinomial(p, 2 * group_size, replacement=True, generator=generator)
        return self._rollout(prompts, arms.unflatten(1, (group_size, 2)))

    def greedy(self, prompts: list[Any]) -> anygrpo.Rollout:
        best = self.net(torch.stack([p["x"] for p in prompts])).argmax(-1)
        return self._rollout(prompts, best[:, None, None].expand(-1, 1, 2))

    def replay(self, prompts: list[Any], stored: anygrpo.Stored, seed: int) -> anygrpo.Rollout:
        arms = torch.tensor(stored.actions)
        return self._rollout(prompts, arms, rewards=torch.tensor(stored.rewards))

    def decode(self, samples: Any) -> list[list[Any]]:
        return samples["arms"].tolist()

    def evaluate(self, samples: Any, times: slice, want: frozenset[str] = frozenset()) -> anygrpo.Evaluation:
        self.check_wanted(want)
        logs = self._logs(samples["x"])
        p = logs.exp()
        spread = lambda x: x.sum(-1, keepdim=True).expand(-1, 2)[:, times]  # noqa: E731
        kl = None
        if "kl" in want:
            with torch.no_grad(), self.reference():
                reference = self._logs(samples["x"])
            kl = spread(p * (logs - reference))
        entropy = spread(-p * logs) if "entropy" in want else None
        return anygrpo.Evaluation(logs.gather(-1, samples["arms"])[:, times], entropy, kl)


def bandit(seed: int, **options: Any) -> Bandit:
    return Bandit(seed, **options)


class Drawn(anygrpo.Task):
    """Prompts from (seed, step) alone."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def prompts(self, step: int, count: int) -> list[Any]:
        generator = torch.Generator().manual_seed(self.seed * 7919 + step)
        return [self.one(generator) for _ in range(count)]

    def held_out(self) -> list[Any]:
        return self.prompts(10**6, 4)

    def score(self, prompts: list[Any], outputs: list[list[Any]]) -> anygrpo.Scores:
        rewards = torch.tensor([[self.reward(p, o) for o in row] for p, row in zip(prompts, outputs)])
        return anygrpo.Scores(rewards, {"whole": rewards, "half": 0.5 * (rewards > 0.5).float()})


class BestArm(Drawn):
    """The share of picks that are the largest input's arm."""

    def one(self, generator: torch.Generator) -> dict[str, Any]:
        return {"x": torch.randn(ARMS, generator=generator)}

    def reward(self, prompt: dict[str, Any], output: Any) -> float:
        return output.count(int(prompt["x"].argmax())) / 2

    def stored(self, prompts: list[Any]) -> anygrpo.Stored:
        best = [int(p["x"].argmax()) for p in prompts]
        return anygrpo.Stored(
            [[[b, b], [b, (b + 1) % ARMS], [(b + 1) % ARMS] * 2] for b in best], [[1.0, 0.5, 0.0]] * len(best)
        )


class Bright(Drawn):
    """Images with much of their first colour, one gold image each."""

    def one(self, generator: torch.Generator) -> dict[str, Any]:
        words = ["a red cat", "a dog", "the sea at noon", "one tree"]
        return {"prompt": words[int(torch.randint(0, 4, (1,), generator=generator))]}

    def reward(self, prompt: dict[str, Any], output: Any) -> float:
        return float(output[0].mean() - output[1:].mean()) * len(prompt["prompt"])

    def stored(self, prompts: list[Any]) -> anygrpo.Stored:
        ramp = torch.linspace(0, 1, 16).expand(3, 16, 16)
        return anygrpo.Stored([[ramp * len(p["prompt"]) / 16] for p in prompts])


class Mend(Drawn):
    """Pictures near a clean one."""

    def one(self, generator: torch.Generator) -> dict[str, Any]:
        degraded, clean = torch.rand(2, 3, 8, 8, generator=generator)
        return {"degraded": degraded, "clean": clean}

    def reward(self, prompt: dict[str, Any], output: Any) -> float:
        return -float((output - prompt["clean"]).abs().mean())

    def stored(self, prompts: list[Any]) -> anygrpo.Stored:
        return anygrpo.Stored([[p["clean"]] for p in prompts])


class Gates(nn.Module):
    """A gate of every family: Beta, Normal, Categorical (a map), OneHotCategorical, Bernoulli."""

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.head = nn.Linear(channels, 12)
        self.body = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        h, wide = self.head(x.mean((2, 3))), (slice(None), None, None, None)
        strength = anygrpo.gate("strength", Beta(1 + h[:, 0].exp(), 1 + h[:, 1].exp()))
        shift = anygrpo.gate("shift", Independent(Normal(h[:, 2:5], 0.2), 1))
        tool = anygrpo.gate("tool", Categorical(logits=h[:, None, None, 5:8].expand(-1, 2, 2, 3)), per="element")
        kind = anygrpo.gate("kind", OneHotCategorical(logits=h[:, 8:11]))
        coin = anygrpo.gate("coin", Bernoulli(logits=h[:, 11]))
        mixed = (kind * torch.tensor([0.0, 0.1, 0.2])).sum(-1) + 0.1 * coin + 0.1 * tool.float().mean((1, 2))
        return x + strength[wide] * self.body(x) + 0.1 * shift[:, :, None, None] + mixed[wide]


def asks_again(messages: list[dict[str, str]], columns: dict[str, Any]) -> str | None:
    """An environment: one more question, unless the answer held the right word."""
    return None if columns["answer"] in messages[-1]["content"] else f"w3 w4 {columns['answer']}"


def early(prompts: list[Any], outputs: list[str], **columns: Any) -> list[float | None]:
    """A reward: words with small numbers; one that cannot be scored now and then."""
    words = [[int(w[1:]) for w in text.split() if w[0] == "w"] for text in outputs]
    return [None if 13 in ws and len(ws) > 3 else 1 - sum(ws) / (60 * len(ws)) if ws else 0.0 for ws in words]


def smooth(restored: Tensor, clean: Tensor) -> Tensor:
    """A perceptual term."""
    return 1 - (restored - clean).diff(dim=-1).abs().mean((1, 2, 3)) * math.e
