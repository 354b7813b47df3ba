"""Where everything lies in a packed sequence: each group's prompt once, then the completions of all rows.

    opening | prompt 0 | prompt 1 | ... | row 0 | row 1 | ... | row 4 | row 5 | ...

The opening is what all prompts begin with (a system prompt, worked examples), where that is long: it too is there
once.

No padding: the linear layers of the model see exactly the tokens that are needed. A row's last completion token is left
out, since it predicts nothing. All prompts lie together, and all rows, so that attention takes either without a copy.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anygrpo.language.compute.seen import FIRST


@dataclass(frozen=True)
class Segment:
    """One group in the packed sequence: [start, middle) is its prompt after the opening, [first, end) its rows'
    completions."""

    start: int
    middle: int
    first: int
    end: int


@dataclass(frozen=True)
class Spans:
    """Pairs of sequences laid end to end, as variable-length attention takes them.

    Attributes:
        q, k: [n + 1] int32: where each sequence of queries and of keys begins, and the last ends.
        longest_q, longest_k: the longest of each.
    """

    q: Tensor
    k: Tensor
    longest_q: int
    longest_k: int

    @staticmethod
    def of(q: list[int], k: list[int], device: torch.device | str) -> Spans:
        """From the lengths of the sequences."""
        ends = torch.tensor([[0, *q], [0, *k]]).cumsum(1).to(torch.int32).to(device)
        return Spans(ends[0], ends[1], max(q, default=0), max(k, default=0))


@dataclass(frozen=True)
class Layout:
    """A packed sequence of N tokens holding R rows in some groups.

    Attributes:
        segments: the groups.
        positions: [N] position of each token in its own sequence.
        places: [R, W] packed index of each row's w-th completion token; 0 where the row is shorter.
        inside: [R, W] bool: which of `places` are real.
        real: [M] flat indices of the real ones, or None where every row is W long and nothing is padding.
        own: the opening, every prompt and every row with itself.
        cross: the rows of each group with its prompt, among `row_tokens` and `prompt_tokens`.
        row_tokens, prompt_tokens: packed places of all completion tokens, and of all prompts' after the opening.
        opening: the first so many tokens, which all prompts begin with; 0: none is shared.
        whole: all that follows the opening, with it.
    """

    segments: tuple[Segment, ...]
    positions: Tensor
    places: Tensor
    inside: Tensor
    real: Tensor | None
    own: Spans
    cross: Spans
    row_tokens: slice
    prompt_tokens: slice
    opening: int
    whole: Spans

    @property
    def tokens(self) -> int:
        return len(self.positions)

    @property
    def rows(self) -> int:
        return self.places.shape[0]

    @property
    def width(self) -> int:
        return self.places.shape[1]


def pack(prompts: list[int], rows: list[list[int]], device: torch.device | str = "cpu", opening: int = 0) -> Layout:
    """The layout of groups with `prompts[g]` prompt tokens and rows of `rows[g][i]` fed completion tokens.

    A fed completion token is one that predicts another: one less than the completion's length.

    Args:
        opening: how many tokens all prompts have in common at their beginning and are computed once; less than the
            shortest prompt has.
    """
    segments, places = [], []
    positions = [torch.arange(opening), *(torch.arange(opening, length) for length in prompts)]
    start, at = opening, opening + sum(length - opening for length in prompts)
    width = max((n for group in rows for n in group), default=0)
    for length, group in zip(prompts, rows):
        first = at
        for fed in group:
            positions.append(torch.arange(length, length + fed))
            places.append(torch.arange(at, at + width).where(torch.arange(width) < fed, 0))
            at += fed
        segments.append(Segment(start, start + length - opening, first, at))
        start += length - opening
    place = torch.stack(places) if places else torch.zeros(0, width, dtype=torch.long)
    fed = torch.tensor([n for group in rows for n in group], dtype=torch.long)
    inside = torch.arange(width)[None] < fed[:, None]
    real = None if bool(inside.all()) else inside.reshape(-1).nonzero()[:, 0].to(device)
    own = [length - opening for length in prompts]
    lengths = [*([opening] if opening else []), *own, *(n for group in rows for n in group)]
    return Layout(
        tuple(segments), torch.cat(positions).to(device), place.to(device), inside.to(device), real,
        Spans.of(lengths, lengths, device), Spans.of([sum(group) for group in rows], own, device),
        slice(start, at), slice(opening, start), opening, Spans.of([at - opening], [opening], device),
    )  # fmt: skip


LEAST_OPENING = 16
"""Tokens: a shorter beginning that all prompts share is computed with each of them."""


def opening_of(prompts: list[list[int]]) -> int:
    """How many tokens all prompts begin with, where computing them once is worth it; 0 where it is not. At least one
    token of each prompt stays its own: the one that predicts. A prompt's pictures stay together."""
    if len(prompts) < 2:
        return 0
    first, last = min(prompts), max(prompts)  # in the order of words, so what these two share all do
    most = min(map(len, prompts)) - 1
    same = next((i for i, (a, b) in enumerate(zip(first, last)) if a != b), most)
    found = _before_pictures(first, min(same, most))
    return found if found >= LEAST_OPENING else 0


def _before_pictures(prompt: list[int], cut: int) -> int:
    """`cut`, or where it would part places of one prompt's pictures, which the model is given at once: before them."""
    parted = {number for number in prompt[cut:] if number >= FIRST}.intersection(prompt[:cut])
    return min((prompt.index(number) for number in parted), default=cut)
