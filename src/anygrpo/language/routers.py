"""The load-balancing loss of a mixture of experts: what its routers give in a training pass, and the loss of it.

Of each row by itself, over the tokens that predict its own decisions, so that any split of a step gives the same
gradient. A layer's loss is E sum_e f_e P_e (Switch Transformers, Fedus et al. 2021, as the library scales it): E
experts, f_e the experts chosen at a token that are e, P_e the mean probability of e. It is k, the experts chosen at a
token, where all are used alike over the row. A row of few tokens lies above: it cannot use all alike, however balanced
the routers are. Layers are averaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.core.tree import Tree
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text


@dataclass
class Heard:
    """What routers gave since the last states were made; how many there were then, and how wide their words."""

    logits: list[Tensor] = field(default_factory=list[Tensor])
    count: int = 0
    width: int = 0


_heard: ContextVar[Heard | None] = ContextVar("heard", default=None)


def widened(hidden: Tensor) -> Tensor:
    """[..., H + L E]: the states with what the routers said at the same places, while they are listened to."""
    heard = _heard.get()
    if heard is None:
        return hidden
    said = [x.reshape(*hidden.shape[:-1], -1).to(hidden.dtype) for x in heard.logits]
    heard.logits, heard.count, heard.width = [], len(said), sum(x.shape[-1] for x in said)
    return torch.cat([hidden, *said], -1)


class Routers:
    """The routers of a model that is trained.

    Args:
        model: whose class tells which of its modules they are.
        weight: of the loss.

    Raises:
        ConfigError: there are none, or the library has no such loss for this model.
    """

    def __init__(self, model: nn.Module, weight: float) -> None:
        self.weight = weight
        whole: Any = model.config
        config = whole.get_text_config()
        kinds = {id(kind): (kind, index) for m in model.modules() for kind, index in _recorded(type(m))}
        found = [(m, index) for m in model.modules() for kind, index in kinds.values() if isinstance(m, kind)]
        self.chosen = next((int(k) for name in _CHOSEN if (k := getattr(config, name, None))), 0)
        if not found or not self.chosen or not hasattr(config, "router_aux_loss_coef"):
            name = type(model).__name__
            raise ConfigError(
                Text(
                    f"policy.router_loss is set, and the library has no such loss for {name}",
                    f"设了 policy.router_loss，而库没有 {name} 的这种损失",
                ),
                Text("set policy.router_loss = 0", "请设 policy.router_loss = 0"),
            )
        for module, index in found:
            module.register_forward_hook(_listener(index))
        self.count = len(found)

    @contextmanager
    def listening(self) -> Iterator[Heard]:
        """States made inside are widened.

        Raises:
            ConfigError: not every router was heard.
        """
        heard = Heard()
        token = _heard.set(heard)
        try:
            yield heard
        finally:
            _heard.reset(token)
        if heard.count != self.count:
            raise ConfigError(
                Text(
                    f"{heard.count} of {self.count} routers are heard in a training pass",
                    f"训练时只听到 {self.count} 个路由中的 {heard.count} 个",
                ),
                Text("set policy.router_loss = 0", "请设 policy.router_loss = 0"),
            )

    def loss(self, said: Tensor, row: Tensor, rows: int) -> Tensor:
        """[n]: the loss of each row (0 of one without decisions).

        Args:
            said: [m, L E], of m places. row: [m], whose they are. rows: n.
        """
        p = said.float().unflatten(-1, (self.count, -1)).softmax(-1)
        used = torch.zeros_like(p).scatter(-1, p.topk(self.chosen, -1).indices, 1.0)
        places = torch.zeros(rows, device=p.device).index_add(0, row, torch.ones_like(row, dtype=p.dtype)).clamp(min=1)
        mean = lambda x: x.new_zeros(rows, *x.shape[1:]).index_add(0, row, x) / places[:, None, None]  # noqa: E731
        return p.shape[-1] * (mean(used) * mean(p)).sum(-1).mean(-1)


def states_and_losses(
    scorer: Any, routers: Routers | None, model: nn.Module, samples: Tree, targets: Any
) -> tuple[Tensor, dict[str, Tensor]]:
    """What the head takes [m, H], and the weighed losses of rows [n] that go with it."""
    if routers is None:
        return scorer.hidden(model, samples, targets), {}
    with routers.listening() as heard:
        wide = scorer.hidden(model, samples, targets)
    size = wide.shape[-1] - heard.width
    loss = routers.loss(wide[:, size:], targets.row, len(samples["prompt_lengths"]))
    return wide[:, :size], {"router": routers.weight * loss}


_CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "top_k_experts")


def _recorded(kind: type) -> list[tuple[type, int]]:
    """(class, place in its output) of what a library's class records as router logits."""
    found: Any = (getattr(kind, "_can_record_outputs", None) or {}).get("router_logits")
    every = found if isinstance(found, list | tuple) else [found]
    known = [(getattr(one, "target_class", one), getattr(one, "index", 0)) for one in every if one is not None]
    return [(target, index) for target, index in known if isinstance(target, type)]


def _listener(index: int) -> Any:
    def listen(module: nn.Module, inputs: Any, output: Any) -> None:
        heard = _heard.get()
        if heard is not None:
            heard.logits.append(output[index] if isinstance(output, tuple) else output)

    return listen
