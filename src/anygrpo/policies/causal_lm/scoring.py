"""Hidden states that predict the completion tokens of given rows, each prompt computed once where rows share it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anygrpo.rollout import Tree
from anygrpo.samplers.head import Head, head_of


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


class Scorer:
    """Runs the training pass of one model.

    Args:
        device: where the model is.
        precise: logits in float32 whatever the body's type.
    """

    def __init__(self, device: torch.device, precise: bool) -> None:
        self.device, self.precise = device, precise

    def head(self, model: nn.Module) -> Head:
        return head_of(model, self.precise)

    def hidden(self, model: nn.Module, samples: Tree, targets: Targets) -> Tensor:
        """[m, H] states that predict `targets`."""
        return plain_hidden(model, samples, targets)

    def block_rows(self, samples: Tree, budget: int) -> int:
        lengths = RowLengths.of(samples)
        longest = max(p + c for p, c in zip(lengths.prompt, lengths.completion))
        return max(1, budget // max(longest, 1))
