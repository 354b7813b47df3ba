"""Hidden states that predict the completion tokens of given rows, each prompt computed once where rows share it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anygrpo.core.rollout import Tree
from anygrpo.language.compute.attention import Packed
from anygrpo.language.compute.capability import Ability
from anygrpo.language.compute.head import Head, head_of
from anygrpo.language.compute.layout import pack
from anygrpo.language.compute.passes import forward


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


def plain_hidden(model: nn.Module, samples: Tree, targets: Targets) -> Tensor:
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
    hidden = model.base_model(  # type: ignore[union-attr, operator]
        input_ids=torch.where(seen, ids, 0),
        attention_mask=seen.long(),
        position_ids=place.expand_as(ids),
        use_cache=False,
    ).last_hidden_state
    return hidden[targets.row, p_len[targets.row] - 1 + targets.decision]


def shared_hidden(model: nn.Module, samples: Tree, targets: Targets) -> Tensor:
    """[m, H] with each group's prompt computed once and nothing padded. Rows may come in any order."""
    lengths, device = RowLengths.of(samples), samples["prompt_ids"].device
    groups = lengths.groups()
    fed = [[max(lengths.completion[i] - 1, 0) for i in members] for members in groups]
    layout = pack([lengths.prompt[members[0]] for members in groups], fed, device)
    pieces = []
    before = [0] * len(lengths.group)  # packed index of the state that predicts a row's first completion token,
    after = [0] * len(lengths.group)  # and of the one that predicts its second; the others follow
    for members, counts, segment in zip(groups, fed, layout.segments):
        pieces.append(samples["prompt_ids"][members[0], : segment.middle - segment.start])
        at = segment.middle
        for i, count in zip(members, counts):
            pieces.append(samples["completion_ids"][i, :count])
            before[i], after[i] = segment.middle - 1, at
            at += count
    hidden = forward(model, torch.cat(pieces), layout.positions, Packed(layout))
    start = torch.tensor([before, after], device=device)[:, targets.row]
    return hidden.index_select(0, torch.where(targets.decision == 0, start[0], start[1] + targets.decision - 1))


class Scorer:
    """Runs the training pass of one model.

    Args:
        device: where the model is.
        precise: logits in float32 whatever the body's type.
        ability: whether rows of a group (same `group` value) may share their prompt's computation.
    """

    def __init__(self, device: torch.device, precise: bool, ability: Ability) -> None:
        self.device, self.precise, self.ability = device, precise, ability

    def head(self, model: nn.Module) -> Head:
        return head_of(model, self.precise)

    def hidden(self, model: nn.Module, samples: Tree, targets: Targets) -> Tensor:
        """[m, H] states that predict `targets`."""
        longest = int((samples["prompt_lengths"] + samples["completion_lengths"]).max())
        return (shared_hidden if self.ability.fits(longest) else plain_hidden)(model, samples, targets)

    def plan(self, samples: Tree, rows: int, budget: int) -> list[Tensor]:
        """Indices of rows to score together: at most `rows` of them and, where one row allows, `budget` tokens.

        Rows of a group stay together where they fit, and a shared prompt counts once.
        """
        lengths = RowLengths.of(samples)
        shared = self.ability.fits(max(map(sum, zip(lengths.prompt, lengths.completion))))
        parts, used = [[]], 0
        for members in lengths.groups():
            own = [lengths.completion[i] + (0 if shared else lengths.prompt[i]) for i in members]
            prompt = lengths.prompt[members[0]] if shared else 0
            whole = prompt + sum(own)
            if whole <= budget < used + whole:
                parts, used = [*parts, []], 0
            used += prompt
            for i, cost in zip(members, own):
                if parts[-1] and (used + cost > budget or len(parts[-1]) == rows):
                    parts, used = [*parts, []], prompt
                parts[-1].append(i)
                used += cost
        return [torch.tensor(part) for part in parts if part]
