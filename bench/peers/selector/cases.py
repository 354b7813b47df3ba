"""The cases of `bench/compare.py selector`, and the instances and weights that both sides are given."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from anygrpo.errors import ConfigError, suggestion
from anygrpo.selection.network import SelectorNetwork
from anygrpo.selection.settings import SelectorConfig


@dataclass(frozen=True)
class Case:
    """One piece of work: an optimizer step on P x G selections of K out of M.

    Attributes:
        name: as on the command line.
        prompts, group: P and G. pool, shots: M and K.
        features: size of query and candidate embeddings. width, heads: of the networks.
        network: what the peer trains. same: the very network that we train, with the same weights; am: its own
            Attention Model of one encoder layer at the same width and heads.
    """

    name: str
    prompts: int = 64
    group: int = 16
    pool: int = 32
    shots: int = 4
    features: int = 448
    width: int = 128
    heads: int = 8
    network: Literal["same", "am"] = "same"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def decisions(self) -> int:
        """Picks of a step."""
        return self.prompts * self.group * self.shots


CASES = {
    case.name: case
    for case in (
        Case("recipe"),  # the sizes of recipes/selection/digits_vqa.toml
        Case("large", pool=100, shots=10, features=128),
        Case("recipe-am", network="am"),
        Case("large-am", pool=100, shots=10, features=128, network="am"),
        Case("tiny", prompts=3, group=4, pool=6, shots=2, features=8, width=16, heads=2),
        Case("tiny-am", prompts=3, group=4, pool=6, shots=2, features=8, width=16, heads=2, network="am"),
    )
}


def case_named(name: str, **changes: Any) -> Case:
    """A case, with the fields that are given (not None) in place of its own."""
    if name not in CASES:
        raise ConfigError(f"no benchmark case {name!r}", suggestion(name, CASES))
    return replace(CASES[name], **{key: value for key, value in changes.items() if value is not None})


def instances(case: Case, step: int) -> dict[str, Tensor]:
    """query [P, d], candidates [P, M, d], and values [P, M]: the reward is the mean value of what was picked."""
    generator = torch.Generator().manual_seed(step)
    draw = lambda *shape: torch.randn(case.prompts, *shape, generator=generator)  # noqa: E731
    return {
        "query": draw(case.features),
        "candidates": draw(case.pool, case.features),
        "values": draw(case.pool),
    }


def config_of(case: Case) -> SelectorConfig:
    """The pointer network's section: a gated state, cosine logits, no STOP."""
    return SelectorConfig(
        kind="selector", features=case.features, width=case.width, heads=case.heads, shots=case.shots, decoder="gated"
    )


def network_of(case: Case) -> SelectorNetwork:
    """The pointer network that both sides train, with the same weights in every process."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return SelectorNetwork(config_of(case))
