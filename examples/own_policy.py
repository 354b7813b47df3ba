"""A policy and a task of one's own: letters, one after the other, each given the word so far.

    anygrpo check examples/own_policy.py:Speller
    anygrpo train recipe.toml            (docs/policies.md has the recipe)

Prompts are class numbers; the reward is the share of letters that a hidden rule of the class asks for.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.core.policy import Policy
from anygrpo.core.rollout import Evaluation, Rollout
from anygrpo.core.task import Scores, Task

LETTERS, LENGTH, CLASSES = 6, 5, 8


class Speller(Policy):
    """P(letter | class, letter before): a GRU cell over letters, started from the class."""

    provides = frozenset({"entropy"})  # what `evaluate` can add when it is wanted

    def __init__(self, seed: int = 0, width: int = 16) -> None:
        torch.manual_seed(seed)
        start, letter = nn.Embedding(CLASSES, width), nn.Embedding(LETTERS, width)
        parts = {"start": start, "letter": letter, "cell": nn.GRUCell(width, width), "out": nn.Linear(width, LETTERS)}
        self.network = nn.ModuleDict(parts)
        self.fix_reference()  # the KL is to the policy as it is now

    def trainable(self) -> nn.Module:
        return self.network

    @torch.no_grad()
    def sample(self, prompts: list[Any], group_size: int, seed: int) -> Rollout:
        """A pure function of (weights, prompts, seed): resume is exact."""
        noise = torch.Generator().manual_seed(seed)
        of_class = torch.tensor(prompts).repeat_interleave(group_size)
        word = torch.zeros(len(of_class), 0, dtype=torch.long)
        for _ in range(LENGTH):
            p = self._log_probs(of_class, word)[:, -1].exp()
            word = torch.cat([word, torch.multinomial(p, 1, generator=noise)], 1)
        shape = (len(prompts), group_size)
        samples = {"class": of_class.view(shape), "word": word.view(*shape, LENGTH)}
        taken = self._log_probs(of_class, word[:, :-1]).gather(-1, word[..., None])[..., 0].view(*shape, LENGTH)
        return Rollout.of(samples, taken, torch.ones_like(taken, dtype=torch.bool), limit=LENGTH)

    def evaluate(self, samples: Any, times: slice, want: frozenset[str] = frozenset()) -> Evaluation:
        """The same actions scored again, with gradient: rows [n, ...] at some of their decisions."""
        self.check_wanted(want)
        log_probs = self._log_probs(samples["class"], samples["word"][:, :-1])[:, times]
        taken = log_probs.gather(-1, samples["word"][:, times, None])[..., 0]
        return Evaluation(taken, -(log_probs.exp() * log_probs).sum(-1) if "entropy" in want else None)

    def decode(self, samples: Any) -> list[list[str]]:
        """What the task's `score` reads."""
        return [["".join("abcdef"[i] for i in word) for word in row] for row in samples["word"].tolist()]

    def greedy(self, prompts: list[Any]) -> Rollout:
        """One deterministic sample a prompt, for evaluation; `sample` would do where there is none."""
        of_class, word = torch.tensor(prompts), torch.zeros(len(prompts), 0, dtype=torch.long)
        with torch.no_grad():
            for _ in range(LENGTH):
                word = torch.cat([word, self._log_probs(of_class, word)[:, -1:].argmax(-1)], 1)
        zeros = torch.zeros(len(prompts), 1, LENGTH)
        return Rollout.of({"class": of_class[:, None], "word": word[:, None]}, zeros, zeros == 0, limit=LENGTH)

    def _log_probs(self, of_class: Tensor, word: Tensor) -> Tensor:
        """[n, t + 1, LETTERS] after each of t letters."""
        state, net = self.network["start"](of_class), self.network
        states = [state]
        for i in range(word.shape[1]):
            states.append(net["cell"](net["letter"](word[:, i]), states[-1]))
        return net["out"](torch.stack(states, 1)).log_softmax(-1)


class Rule(Task):
    """Class c wants the letters c, c + 1, c + 2, ... (modulo 6)."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def prompts(self, step: int, count: int) -> list[int]:
        draw = torch.Generator().manual_seed(self.seed * 100_003 + step)
        return torch.randint(CLASSES, (count,), generator=draw).tolist()

    def held_out(self) -> list[int]:
        return list(range(CLASSES))

    def score(self, prompts: list[Any], outputs: list[list[str]]) -> Scores:
        wanted = ["".join("abcdef"[(c + i) % LETTERS] for i in range(LENGTH)) for c in prompts]
        share = [[sum(map(str.__eq__, w, o)) / LENGTH for o in row] for w, row in zip(wanted, outputs)]
        return Scores(torch.tensor(share))
