"""Bookkeeping of the rows of one generation: what was drawn, who is finished, what an environment inserts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from anygrpo.language.generation import Generation, Sampling, Turn


def uniforms(rows: int, sampling: Sampling, seed: int, device: torch.device) -> Tensor | None:
    """[rows, max_new_tokens] uniform numbers, drawn on the CPU so that every device samples from the same; None for
    greedy. A row's numbers do not depend on when other rows finish."""
    if sampling.greedy:
        return None
    generator = torch.Generator().manual_seed(seed)
    # 24 bits: the largest is below 1 in float32.
    return torch.rand(rows, sampling.max_new_tokens, generator=generator).to(device)


class Rows:
    """The completions of N rows as they grow.

    Args:
        count: N.
        turn: asked when a row gives an end token; see `Turn`.
        patience: seconds that a row's reply is waited for before the others go on (None: as long as it takes).
        text: ids -> text, needed where `sampling.stop` is set.
    """

    def __init__(
        self,
        count: int,
        sampling: Sampling,
        turn: Turn | None = None,
        text: Callable[[list[int]], str] | None = None,
        patience: float | None = None,
    ) -> None:
        self.sampling, self.turn, self.text, self.patience = sampling, turn, text, patience
        self.waiting: set[int] = set()
        self._late: set[int] = set()
        self.ends = frozenset(sampling.support.eos_ids)
        self.ids: list[list[int]] = [[] for _ in range(count)]
        self.chosen: list[list[bool]] = [[] for _ in range(count)]
        self.log_probs: list[list[float]] = [[] for _ in range(count)]
        self.done = [False] * count
        self.ended = [False] * count
        self.forced: list[list[int]] = [[] for _ in range(count)]
        self.versions: list[list[int]] = [[] for _ in range(count)]
        self._version = 0
        self._let_others()

    def _let_others(self) -> None:
        if self.sampling.between is not None:
            self._version = self.sampling.between()

    def take(self, active: list[int], token: Tensor, log_prob: Tensor) -> Tensor:
        """Record one token for each active row and return what each feeds next: its token, or the inserted one.

        Rows already done may be among them, and are left as they are; one that waits for its reply feeds its last token
        again."""
        tokens, scores = token.tolist(), log_prob.tolist()
        for i, row in enumerate(active):
            if self.done[row]:
                continue
            if row in self.waiting:
                tokens[i] = self.ids[row][-1]
                continue
            if self.forced[row]:
                tokens[i] = self.forced[row].pop(0)
                self._add(row, tokens[i], 0.0, False)
            else:
                self._add(row, tokens[i], scores[i], True)
                self._maybe_end(row, tokens[i])
            if not self.done[row] and len(self.ids[row]) >= self.sampling.max_new_tokens:
                self.done[row] = True
        if self.waiting:
            self._settle(active)
        self._let_others()
        return torch.tensor(tokens, device=token.device)

    def _settle(self, active: list[int]) -> None:
        """Take over the replies that are there. Where every row waits, the first one is waited for."""
        assert self.turn is not None
        fresh, old = [r for r in self.waiting if r not in self._late], sorted(self._late)
        replies = self.turn.settle(sorted(fresh), self.patience)
        replies |= self.turn.settle(old, 0.0) if old else {}
        while True:
            for row, reply in replies.items():
                self.waiting.discard(row)
                self.forced[row] = list(reply.tokens)
                if not self.done[row] and not reply.tokens:
                    self.done[row], self.ended[row] = True, reply.ended
            self._late = set(self.waiting)
            if not self.waiting or any(not self.done[r] and r not in self.waiting for r in active):
                return
            replies = self.turn.settle(sorted(self.waiting), None, one=True)

    def places(self, active: list[int]) -> list[int]:
        """The place of each row's last token."""
        return [len(self.ids[row]) - 1 for row in active]

    def _add(self, row: int, token: int, log_prob: float, chosen: bool) -> None:
        self.ids[row].append(token)
        self.log_probs[row].append(log_prob)
        self.chosen[row].append(chosen)
        self.versions[row].append(self._version)

    def _maybe_end(self, row: int, token: int) -> None:
        if token not in self.ends:
            self.done[row] = self.ended[row] = self._stopped(row)
            return
        if self.turn is None:
            self.done[row] = self.ended[row] = True
        elif len(self.ids[row]) < self.sampling.max_new_tokens:
            self.turn.start(row, list(self.ids[row]))
            self.waiting.add(row)
        else:
            self.ended[row] = True
            self.turn.start(row, list(self.ids[row]))
            self.turn.settle([row], None)

    def _stopped(self, row: int) -> bool:
        """Does the text of the row's last tokens hold a stop text? A token is at least one byte, so this many reach."""
        if not self.sampling.stop or self.text is None:
            return False
        reach = max(len(s.encode()) for s in self.sampling.stop) + 1
        tail = self.text(self.ids[row][-reach:])
        return any(stop in tail for stop in self.sampling.stop)

    def alive(self, rows: list[int]) -> list[bool]:
        return [not self.done[row] for row in rows]

    def finish(self, seconds: dict[str, float]) -> Generation:
        lengths = torch.tensor([len(ids) for ids in self.ids])
        width = max(int(lengths.max()), 1)
        pad = lambda lists, fill: torch.tensor([x + [fill] * (width - len(x)) for x in lists])  # noqa: E731
        return Generation(
            pad(self.ids, 0),
            lengths,
            pad(self.chosen, False),
            pad(self.log_probs, 0.0),
            torch.tensor(self.ended),
            seconds,
            None if self.sampling.between is None else pad(self.versions, self._version),
        )
