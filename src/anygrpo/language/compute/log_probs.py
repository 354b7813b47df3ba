"""Hidden states that predict the completion tokens of given rows, each prompt computed once where rows share it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from anygrpo.core.tree import Tree
from anygrpo.language.compute.attention import Packed
from anygrpo.language.compute.capability import Ability
from anygrpo.language.compute.head import Head
from anygrpo.language.compute.layout import opening_of, pack
from anygrpo.language.compute.output_layer import HeadForm
from anygrpo.language.compute.passes import forward
from anygrpo.language.compute.paths import Paths

_USUAL = Paths(Ability(False), HeadForm())


@dataclass(frozen=True)
class RowLengths:
    """Prompt and completion lengths of n rows, on the host."""

    prompt: list[int]
    completion: list[int]
    group: list[int]

    @staticmethod
    def of(samples: Tree) -> RowLengths:
        both = torch.stack([samples["prompt_lengths"], samples["completion_lengths"], samples["group"]]).tolist()
        return RowLengths(*both)

    def groups(self) -> list[list[int]]:
        """Rows that share a prompt, in order of first appearance."""
        found: dict[int, list[int]] = {}
        for i, group in enumerate(self.group):
            found.setdefault(group, []).append(i)
        return list(found.values())


@dataclass(frozen=True)
class Targets:
    """The m completion tokens of n rows in a slice of decisions, flat, row after row.

    Attributes:
        row, decision, token: [m] int64 each.
    """

    row: Tensor
    decision: Tensor
    token: Tensor

    @staticmethod
    def of(samples: Tree, times: slice) -> Targets:
        ids = samples["completion_ids"]
        inside = torch.arange(ids.shape[1], device=ids.device) < samples["completion_lengths"][:, None]
        chosen = torch.zeros_like(inside)
        chosen[:, times] = True
        row, decision = (inside & chosen).nonzero(as_tuple=True)
        return Targets(row, decision, ids[row, decision])


def plain_hidden(model: nn.Module, samples: Tree, targets: Targets, paths: Paths | None = None) -> Tensor:
    """[m, H] with every row computed whole, padded on the right: any causal model can do this."""
    prompt, completion = samples["prompt_ids"], samples["completion_ids"]
    p_len, c_len = samples["prompt_lengths"], samples["completion_lengths"]
    # The last completion token predicts nothing that counts.
    width = int((p_len + c_len).max()) - 1
    place = torch.arange(max(width, 1), device=prompt.device)[None]
    in_completion = (place - p_len[:, None]).clamp(0, completion.shape[1] - 1)
    in_prompt = place.clamp(max=prompt.shape[1] - 1).expand(len(prompt), -1)
    ids = torch.where(place < p_len[:, None], prompt.gather(1, in_prompt), completion.gather(1, in_completion))
    seen = place < (p_len + c_len - 1).clamp(min=1)[:, None]
    hidden, _ = (paths or _USUAL).states(
        model,
        input_ids=torch.where(seen, ids, 0),
        attention_mask=seen.long(),
        position_ids=place.expand_as(ids),
        use_cache=False,
    )
    return hidden[targets.row, p_len[targets.row] - 1 + targets.decision]


def even_hidden(model: nn.Module, samples: Tree, targets: Targets, paths: Paths) -> Tensor:
    """[m, H] as `plain_hidden`, but only rows of one length are computed together, and nothing but ids is given."""
    lengths = RowLengths.of(samples)
    fed = [max(p + c - 1, 1) for p, c in zip(lengths.prompt, lengths.completion)]
    found: dict[int, tuple[Tensor, int]] = {}
    for size in sorted(set(fed)):
        members = [i for i, n in enumerate(fed) if n == size]
        ids = [torch.cat([samples["prompt_ids"][i, : lengths.prompt[i]], samples["completion_ids"][i]])[:size]
               for i in members]  # fmt: skip
        hidden, _ = paths.states(model, input_ids=torch.stack(ids), use_cache=False)
        found |= {i: (hidden, k) for k, i in enumerate(members)}
    parts = []
    for i in range(len(fed)):
        own = targets.decision[targets.row == i]
        parts.append(found[i][0][found[i][1], lengths.prompt[i] - 1 + own])
    return torch.cat(parts)


def shared_opening(samples: Tree, lengths: RowLengths, groups: list[list[int]]) -> int:
    """How many tokens the prompts of these groups begin with that `shared_hidden` computes once."""
    firsts = [members[0] for members in groups]
    return opening_of([ids[: lengths.prompt[i]] for ids, i in zip(samples["prompt_ids"][firsts].tolist(), firsts)])


def shared_hidden(model: nn.Module, samples: Tree, targets: Targets) -> Tensor:
    """[m, H] with each group's prompt computed once, an opening that all share too, and nothing padded. Rows may come
    in any order."""
    lengths, device = RowLengths.of(samples), samples["prompt_ids"].device
    groups = lengths.groups()
    fed = [[max(lengths.completion[i] - 1, 0) for i in members] for members in groups]
    firsts = [members[0] for members in groups]
    sizes = [lengths.prompt[i] for i in firsts]
    prompts = samples["prompt_ids"][firsts]
    opening = shared_opening(samples, lengths, groups)
    layout = pack(sizes, fed, device, opening)
    pieces = [prompts[0, :opening], *(ids[opening:n] for ids, n in zip(prompts, sizes))]
    before = [0] * len(lengths.group)  # packed index of the state that predicts a row's first completion token,
    after = [0] * len(lengths.group)  # and of the one that predicts its second; the others follow
    for members, counts, segment in zip(groups, fed, layout.segments):
        at = segment.first
        for i, count in zip(members, counts):
            pieces.append(samples["completion_ids"][i, :count])
            before[i], after[i] = segment.middle - 1, at
            at += count
    hidden = forward(model, torch.cat(pieces), layout.positions, Packed(layout))
    start = torch.tensor([before, after], device=device)[:, targets.row]
    return hidden.index_select(0, torch.where(targets.decision == 0, start[0], start[1] + targets.decision - 1))


@dataclass(frozen=True)
class _Counts:
    """Tokens that rows count in a block: `opening` once, of each group's prompt what follows it, and each row's own.

    Attributes:
        groups: rows that share a prompt. prompts: tokens of it, opening included; 0 where each row has its own.
        own: of each row of each group.
    """

    groups: list[list[int]]
    opening: int
    prompts: list[int]
    own: list[list[int]]


class Scorer:
    """Runs the training pass of one model.

    Args:
        device: where the model is.
        precise: logits in float32 whatever the body's type.
        paths: how this model is computed.
    """

    def __init__(self, device: torch.device, precise: bool, paths: Paths) -> None:
        self.device, self.precise, self.paths = device, precise, paths

    @property
    def ability(self) -> Ability:
        """Whether rows of a group (same `group` value) may share their prompt's computation."""
        return self.paths.ability

    @ability.setter
    def ability(self, value: Ability) -> None:
        self.paths = replace(self.paths, ability=value)

    def head(self, model: nn.Module) -> Head:
        return self.paths.head(model, self.precise)

    def hidden(self, model: nn.Module, samples: Tree, targets: Targets) -> Tensor:
        """[m, H] states that predict `targets`."""
        longest = int((samples["prompt_lengths"] + samples["completion_lengths"]).max())
        if self.paths.form is not None and self.ability.fits(longest):
            return shared_hidden(model, samples, targets)
        return (plain_hidden if self.paths.padded else even_hidden)(model, samples, targets, self.paths)

    def plan(self, samples: Tree, rows: int, budget: int) -> list[Tensor]:
        """Indices of rows to score together: at most `rows` of them and, where one row allows, `budget` tokens.

        Rows of a group stay together where they fit. A shared prompt counts once, and so does in each block the opening
        that all prompts of `samples` share.
        """
        counts = self._counts(samples)
        parts, used = [[]], counts.opening
        for members, prompt, own in zip(counts.groups, counts.prompts, counts.own):
            beside = prompt - counts.opening + sum(own)
            if counts.opening + beside <= budget < used + beside:
                parts, used = [*parts, []], counts.opening
            used += prompt - counts.opening
            for i, cost in zip(members, own):
                if parts[-1] and (used + cost > budget or len(parts[-1]) == rows):
                    parts, used = [*parts, []], prompt
                parts[-1].append(i)
                used += cost
        return [torch.tensor(part) for part in parts if part]

    def tokens(self, samples: Tree) -> int:
        """Of all rows as one block, as `plan` counts them."""
        counts = self._counts(samples)
        return counts.opening + sum(p - counts.opening + sum(own) for p, own in zip(counts.prompts, counts.own))

    def _counts(self, samples: Tree) -> _Counts:
        lengths = RowLengths.of(samples)
        groups, fits = lengths.groups(), self.ability.fits(max(map(sum, zip(lengths.prompt, lengths.completion))))
        if not (fits and self.paths.form is not None):
            own = [[lengths.prompt[i] + lengths.completion[i] for i in members] for members in groups]
            return _Counts(groups, 0, [0] * len(groups), own)
        return _Counts(
            groups, shared_opening(samples, lengths, groups), [lengths.prompt[members[0]] for members in groups],
            [[lengths.completion[i] for i in members] for members in groups],
        )  # fmt: skip
