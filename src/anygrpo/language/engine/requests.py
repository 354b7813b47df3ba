"""Conversations of an engine that is asked turn by turn: each turn is a request, whose prompt is all that was
said. The engine's prefix cache holds what turns share; rows go on at their own pace."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch

from anygrpo.language.generation import Generation, Reply, Sampling, Turn

Said = tuple[list[int], list[float], bool]
"""Token ids of a turn, their log-probs, and whether it ended by itself (an end token or a stop text)."""

TURNS = 97
"""More turns than a conversation has: seeds of (row, turn) do not meet."""


class Talks:
    """The rows of one generation.

    Args:
        prompts, group_size, sampling, seed, turn: as of `Engine.generate`.
    """

    def __init__(
        self, prompts: list[list[int]], group_size: int, sampling: Sampling, seed: int, turn: Turn | None
    ) -> None:
        self.prompts = [ids for ids in prompts for _ in range(group_size)]
        self.sampling, self.seed, self.turn = sampling, seed, turn
        count = len(self.prompts)
        self.ids: list[list[int]] = [[] for _ in range(count)]
        self.chosen: list[list[bool]] = [[] for _ in range(count)]
        self.logs: list[list[float]] = [[] for _ in range(count)]
        self.ended, self.asked = [False] * count, [0] * count

    def request(self, row: int) -> tuple[list[int], Sampling, int]:
        """(ids to go on from, settings, seed) of the row's next turn."""
        own, s = self.ids[row], self.sampling
        support = replace(s.support, min_new_tokens=max(0, s.support.min_new_tokens - len(own)))
        settings = replace(s, support=support, max_new_tokens=s.max_new_tokens - len(own))
        self.asked[row] += 1
        return self.prompts[row] + own, settings, self.seed + 1_000_003 * (row * TURNS + self.asked[row])

    def said(self, row: int, said: Said) -> bool:
        """Take over a turn; True where a reply is to be waited for."""
        tokens, logs, stopped = said
        self._add(row, tokens, logs, True)
        ends = bool(tokens) and tokens[-1] in self.sampling.support.eos_ids
        self.ended[row] = stopped
        if self.turn is None or not ends:
            return False
        self.turn.start(row, list(self.ids[row]))
        return True

    def replied(self, row: int, reply: Reply) -> bool:
        """Take over what is said to a row; True where the model speaks again."""
        if not reply.tokens or len(self.ids[row]) + len(reply.tokens) >= self.sampling.max_new_tokens:
            self.ended[row] = reply.ended and not reply.tokens
            return False
        self._add(row, reply.tokens, [0.0] * len(reply.tokens), False)
        return True

    def _add(self, row: int, tokens: list[int], logs: list[float], chosen: bool) -> None:
        self.ids[row] += tokens
        self.logs[row] += logs
        self.chosen[row] += [chosen] * len(tokens)

    def finish(self, seconds: dict[str, float]) -> Generation:
        """All rows; greedy ones carry no log-probs."""
        lengths = torch.tensor([len(row) for row in self.ids])
        width = max(int(lengths.max()), 1)
        pad = lambda rows, fill: torch.tensor([row + [fill] * (width - len(row)) for row in rows])  # noqa: E731
        logs = pad(self.logs, 0.0).float()
        logs = torch.zeros_like(logs) if self.sampling.greedy else logs
        return Generation(pad(self.ids, 0), lengths, pad(self.chosen, False), logs, torch.tensor(self.ended), seconds)


def one_after_another(talks: Talks, row: int, ask: Callable[[list[int], Sampling, int], Said]) -> None:
    """A whole conversation, for engines that are asked in a thread a row."""
    while talks.said(row, ask(*talks.request(row))):
        assert talks.turn is not None
        (reply,) = talks.turn.settle([row], None).values()
        if not talks.replied(row, reply):
            return


def side_by_side(
    talks: Talks, begin: Callable[[int, list[int], Sampling, int], None], poll: Callable[[], Iterable[tuple[int, Said]]]
) -> None:
    """All conversations at once, for an engine of this thread.

    Args:
        begin: starts the turn of a row. poll: turns that are done, after a while; called while any is under way.
    """
    working, waiting = set(range(len(talks.prompts))), set[int]()
    for row in sorted(working):
        begin(row, *talks.request(row))
    while working or waiting:
        for row, said in poll() if working else ():
            working.discard(row)
            if talks.said(row, said):
                waiting.add(row)
        if not waiting:
            continue
        assert talks.turn is not None
        replies = talks.turn.settle(sorted(waiting), 0.0 if working else None, one=True)
        for row, reply in replies.items():
            waiting.discard(row)
            if talks.replied(row, reply):
                begin(row, *talks.request(row))
                working.add(row)
