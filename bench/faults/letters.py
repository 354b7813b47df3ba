"""A small real language task and policy, with faults that can be switched on: what the fault bench trains.

A prompt is a letter, the right answer is that letter and then the end. The policy is a GRU over characters that
samples, scores and learns like any causal language model; a healthy run goes from chance to near 1 in about 60 steps.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from anygrpo.core.policy import Policy
from anygrpo.core.rollout import Evaluation, Rollout
from anygrpo.core.task import Scores, Stored, Task, epoch_indices
from anygrpo.core.tree import Tree

LETTERS = "abcdefgh"
END = 0


class Network(nn.Module):
    """Logits [n, T, V] of the next character."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        size = len(LETTERS) + 1
        self.embed, self.dropout = nn.Embedding(size, width), nn.Dropout(dropout)
        self.rnn, self.head = nn.GRU(width, width, batch_first=True), nn.Linear(width, size)
        with torch.no_grad():
            self.head.bias[END] += 1.5  # a first answer is about three letters long

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.dropout(self.rnn(self.dropout(self.embed(ids)))[0]))


class CharLM(Policy):
    """samples: ids [P, G, 1 + T], the prompt's letter and then the answer, of one letter at least.

    Options (all healthy by default): width, length, temperature; scoring_temperature, dropout (on while scoring only),
    frozen (no gradient reaches the log-probs), wrong_reference (noise added to the reference), one_seed (every sample
    of a prompt is the same), stale (sampling weights are refreshed every so many samples), round_to (weights rounded
    to this many bits of mantissa after each update), no_end (the end is never sampled), nan_after (log-probs are NaN
    from the so-manieth rollout on).
    """

    provides: ClassVar[frozenset[str]] = frozenset({"entropy", "kl"})

    def __init__(self, options: dict[str, Any], seed: int) -> None:
        torch.manual_seed(seed)
        self.length = options.get("length", 8)
        self.temperature = options.get("temperature", 1.0)
        self.options = options
        self.network = Network(options.get("width", 32), options.get("dropout", 0.0))
        self.network.eval()
        self.fix_reference()
        if noise := options.get("wrong_reference", 0.0):
            other = {n: p.detach() + noise * torch.randn_like(p) for n, p in self.network.named_parameters()}
            self.fix_reference(other)
        self._sampler: dict[str, Tensor] | None = None
        self._calls = 0

    def sample(self, prompts: list[str], group_size: int, seed: int) -> Rollout:
        generator = torch.Generator().manual_seed(0 if self.options.get("one_seed") else seed)
        self._calls += 1
        with self._sampling_weights():
            ids, old = self._draw(prompts, 1 if self.options.get("one_seed") else group_size, generator)
        if self.options.get("one_seed"):
            ids, old = ids.repeat_interleave(group_size, 0), old.repeat_interleave(group_size, 0)
        return self._rollout(ids, old, len(prompts), group_size)

    def greedy(self, prompts: list[str]) -> Rollout:
        ids, old = self._draw(prompts, 1, None)
        return self._rollout(ids, old, len(prompts), 1)

    def replay(self, prompts: list[str], stored: Stored, seed: int) -> Rollout:
        width = max(map(len, stored.actions))
        ids = torch.zeros(len(prompts), width, 1 + self.length, dtype=torch.long)
        valid = torch.zeros(len(prompts), width, dtype=torch.bool)
        for p, (prompt, answers) in enumerate(zip(prompts, stored.actions)):
            for g, answer in enumerate(answers):
                row = codes(prompt + answer[: self.length])
                ids[p, g, : len(row)], valid[p, g] = torch.tensor(row), True
        flat = ids.flatten(0, 1)
        with torch.no_grad():
            old = self.evaluate({"ids": flat}, slice(0, self.length)).log_probs
        rollout = self._rollout(flat, old, len(prompts), width)
        return Rollout(**{**rollout.__dict__, "valid": valid})

    def evaluate(self, samples: Tree, times: slice, want: frozenset[str] = frozenset()) -> Evaluation:
        self.check_wanted(want)
        ids = samples["ids"]
        self.network.train(self.options.get("dropout", 0.0) > 0)
        logits = self._logits(ids[:, :-1], self.options.get("scoring_temperature", self.temperature))
        self.network.eval()
        if self.options.get("frozen"):
            logits = logits.detach() + 0 * sum(p.sum() for p in self.network.parameters())
        if self._calls > self.options.get("nan_after", math.inf):
            logits = logits * math.nan
        log_probs = logits.log_softmax(-1)[:, times]
        entropy = -(log_probs.exp() * log_probs).sum(-1) if "entropy" in want else None
        kl = self._exact_kl(ids, log_probs, times) if "kl" in want else None
        return Evaluation(log_probs.gather(-1, ids[:, 1:][:, times, None])[..., 0], entropy, kl)

    def decode(self, samples: Tree) -> list[list[str]]:
        return [[text(row[1:]) for row in group] for group in samples["ids"].tolist()]

    def trainable(self) -> nn.Module:
        return self.network

    def _exact_kl(self, ids: Tensor, log_probs: Tensor, times: slice) -> Tensor:
        with torch.no_grad(), self.reference():
            other = self._logits(ids[:, :-1], self.temperature).log_softmax(-1)[:, times]
        return (log_probs.exp() * (log_probs - other)).sum(-1)

    def _logits(self, ids: Tensor, temperature: float) -> Tensor:
        logits = self.network(ids) / temperature
        logits = torch.cat([logits[:, :1].index_fill(-1, torch.tensor([END]), -1e4), logits[:, 1:]], 1)
        if self.options.get("no_end"):
            logits = logits.index_fill(-1, torch.tensor([END]), -1e4)
        return logits

    @torch.no_grad()
    def _draw(self, prompts: list[str], group: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Answers drawn (the likeliest where there is no generator) and their log-probs [n, T]."""
        ids = torch.tensor([codes(p) for p in prompts]).repeat_interleave(group, 0)
        chosen = []
        for _ in range(self.length):
            step = self._logits(ids, self.temperature)[:, -1].log_softmax(-1)
            ended = (ids[:, 1:] == END).any(1)
            pick = step.argmax(-1) if generator is None else _categorical(step, generator)
            pick = torch.where(ended, END, pick)
            chosen.append(step.gather(1, pick[:, None])[:, 0])
            ids = torch.cat([ids, pick[:, None]], 1)
        return ids, torch.stack(chosen, 1)

    def _rollout(self, ids: Tensor, old: Tensor, p: int, g: int) -> Rollout:
        answer = ids[:, 1:]
        mask = (answer == END).cumsum(1) - (answer == END).long() == 0
        grid = lambda x: x.view(p, g, *x.shape[1:])  # noqa: E731
        return Rollout.of({"ids": grid(ids)}, grid(old), grid(mask), ended=grid((answer == END).any(1)))

    @contextmanager
    def _sampling_weights(self) -> Iterator[None]:
        """The present weights, after rounding; with `stale`, a copy that is refreshed only now and then."""
        if bits := self.options.get("round_to"):
            with torch.no_grad():
                for p in self.network.parameters():
                    mantissa, exponent = torch.frexp(p)
                    p.copy_(torch.ldexp((mantissa * 2**bits).round() / 2**bits, exponent))
        stale = self.options.get("stale", 0)
        if not stale:
            yield
            return
        if self._sampler is None or self._calls % stale == 0:
            self._sampler = {n: p.detach().clone() for n, p in self.network.named_parameters()}
        live = {n: p.data for n, p in self.network.named_parameters()}
        for n, p in self.network.named_parameters():
            p.data = self._sampler[n]
        yield
        for n, p in self.network.named_parameters():
            p.data = live[n]


class Letters(Task):
    """A letter in, the same letter out, then the end. Reward in [0, 1]: half for the letter, half for the length.

    Arguments: letters: how many of them are trained on (all are held out). reward:
        "share": the truth. "exact": 1 where all is right. "sign": minus the truth. "tiny": the truth / 10,000.
        "format": the truth, with a component that is never earned. "noise": a coin. "constant": .5.
        "impossible": for a character that does not exist. "easy": for any answer that is not empty.
        "hack": counts the letter `a`, whatever was asked. "long": the longer, the better.
    """

    def __init__(self, seed: int, reward: str = "share", letters: int = len(LETTERS)) -> None:
        self.seed, self.reward = seed, reward
        self._held_out = list(LETTERS)
        self.train = self._held_out[:letters]
        self.size = len(self.train)

    def prompts(self, step: int, count: int) -> list[str]:
        return [self.train[i] for i in epoch_indices(self.size, step, count, self.seed)]

    def held_out(self) -> list[str]:
        return self._held_out

    def score(self, prompts: list[str], outputs: list[list[str]]) -> Scores:
        truth = torch.tensor([[share(p, o) for o in row] for p, row in zip(prompts, outputs)])
        components = {"share": truth}
        if self.reward == "format":
            components["format"] = torch.zeros_like(truth)
        return Scores(self._reward(prompts, outputs, truth), components)

    def _reward(self, prompts: list[str], outputs: list[list[str]], truth: Tensor) -> Tensor:
        grid = lambda f: torch.tensor([[float(f(p, o)) for o in row] for p, row in zip(prompts, outputs)])  # noqa: E731
        kinds = {
            "share": lambda: truth,
            "format": lambda: truth,
            "exact": lambda: (truth > 0.99).float(),
            "constant": lambda: torch.full_like(truth, 0.5),
            "hack": lambda: grid(lambda p, o: o.count("a") / 8),
            "sign": lambda: -truth,
            "impossible": lambda: grid(lambda p, o: "z" in o),
            "noise": lambda: torch.rand(truth.shape, generator=torch.Generator().manual_seed(_code(outputs))),
            "tiny": lambda: truth / 10_000,
            "long": lambda: grid(lambda p, o: len(o) / 8),
            "easy": lambda: grid(lambda p, o: len(o) > 0),
        }
        return kinds[self.reward]()

    def stored(self, prompts: list[str]) -> Stored:
        return Stored(actions=[[p] for p in prompts])

    def measure(self, prompts: list[str], outputs: list[list[str]]) -> dict[str, float]:
        """eval/accuracy: the hidden truth, whatever the reward pays for."""
        return {"eval/accuracy": sum(share(p, row[0]) > 0.99 for p, row in zip(prompts, outputs)) / len(prompts)}


def _code(outputs: list[list[str]]) -> int:
    return zlib.crc32(repr(outputs).encode())


def share(prompt: str, output: str) -> float:
    """Half for the right first letter, half for the end right after it."""
    return ((output[:1] == prompt) + (len(output) == 1)) / 2


def codes(word: str) -> list[int]:
    return [LETTERS.index(c) + 1 for c in word]


def text(ids: list[int]) -> str:
    """Letters up to the end."""
    end = ids.index(END) if END in ids else len(ids)
    return "".join(LETTERS[i - 1] for i in ids[:end])


def _categorical(log_probs: Tensor, generator: torch.Generator) -> Tensor:
    noise = torch.rand(log_probs.shape, generator=generator).clamp_min(1e-20)
    return (log_probs - torch.log(-torch.log(noise))).argmax(-1)


def build(seed: int, **options: Any) -> CharLM:
    return CharLM(options, seed)
