"""The selection problem as an RL4CO environment, and the networks as RL4CO policies. Needs RL4CO (PyPI: rl4co)."""

from __future__ import annotations

from typing import Any

import torch
from peers.selector.cases import Case, instances, network_of
from rl4co.envs.common.base import RL4COEnvBase  # pyright: ignore[reportMissingImports]
from rl4co.models.common.constructive.base import (  # pyright: ignore[reportMissingImports]
    ConstructiveDecoder,
    ConstructiveEncoder,
    ConstructivePolicy,
)
from rl4co.models.rl import REINFORCE  # pyright: ignore[reportMissingImports]
from rl4co.models.zoo.am import AttentionModelPolicy  # pyright: ignore[reportMissingImports]
from rl4co.utils.ops import gather_by_index, unbatchify  # pyright: ignore[reportMissingImports]
from tensordict import TensorDict  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn

from anygrpo.selection.network import SelectorNetwork, Stepper


class SelectEnv(RL4COEnvBase):
    """Pick K of a pool of M, without replacement; the reward is the mean value of what was picked.

    Data: query [b, d], candidates [b, M, d], values [b, M]. Features leave the state once they are encoded (see
    `FeaturesLeave`), so that drawing G samples does not copy them.
    """

    name = "select"

    def __init__(self, case: Case) -> None:
        super().__init__(check_solution=False, seed=0)
        self.case = case

    def generator(self, batch_size: Any) -> TensorDict:
        """The first instances of the case, one step's after the other's."""
        count = int(torch.Size([batch_size] if isinstance(batch_size, int) else batch_size)[0])
        given = [instances(self.case, step) for step in range(-(-count // self.case.prompts))]
        data = {name: torch.cat([part[name] for part in given])[:count] for name in given[0]}
        return TensorDict(data, batch_size=count)  # type: ignore[arg-type]

    def _reset(self, td: TensorDict, batch_size: Any = None) -> TensorDict:
        b, device = td["values"].shape[0], td["values"].device
        state = {
            "action_mask": torch.ones(b, self.case.pool, dtype=torch.bool, device=device),
            "current_node": torch.zeros(b, dtype=torch.long, device=device),
            "i": torch.zeros(b, dtype=torch.long, device=device),
            "done": torch.zeros(b, dtype=torch.bool, device=device),
        }
        return TensorDict({key: td[key] for key in ("query", "candidates", "values")} | state, batch_size=b)  # type: ignore[arg-type]

    def _step(self, td: TensorDict) -> TensorDict:
        mask = td["action_mask"].scatter(-1, td["action"].unsqueeze(-1), False)
        i = td["i"] + 1
        td.update({"action_mask": mask, "current_node": td["action"], "i": i, "done": i >= self.case.shots})
        return td

    def _get_reward(self, td: TensorDict, actions: Tensor) -> Tensor:
        return gather_by_index(td["values"], actions, squeeze=False).mean(-1)

    def _make_spec(self, generator: Any) -> None:
        """RL4CO runs environments without specs."""


class FeaturesLeave(ConstructiveEncoder):
    """An encoder after which the state no longer holds the features."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, td: TensorDict) -> tuple[Any, Any]:
        encoded = self.inner(td)
        for key in ("query", "candidates"):
            td.pop(key)
        return encoded if isinstance(encoded, tuple) else (encoded, None)


class OurEncoder(nn.Module):
    def __init__(self, network: SelectorNetwork) -> None:
        super().__init__()
        self.encoder, self.prepare = network.encoder, network.decoder.prepare

    def forward(self, td: TensorDict) -> tuple[Any, Any]:
        return self.prepare(*self.encoder(td["query"], td["candidates"], td["action_mask"])), None


class OurDecoder(ConstructiveDecoder):
    """Our pointer network one pick at a time; the G samples of a prompt share its encoding and are scored in one
    product, as in RL4CO's own decoders."""

    def __init__(self, network: SelectorNetwork) -> None:
        super().__init__()
        self.decoder = network.decoder

    def pre_decoder_hook(self, td: TensorDict, env: Any, hidden: Any = None, num_starts: int = 0) -> Any:
        return td, env, Stepper(self.decoder, hidden)

    def forward(self, td: TensorDict, hidden: Stepper, num_starts: int = 0) -> tuple[Tensor, Tensor]:
        count = max(num_starts, 1)
        if int(td["i"][0]) > 0:
            hidden.take(unbatchify(td["current_node"], count).reshape(-1, count))
        logits = hidden.logits()[..., :-1].expand(-1, count, -1)  # RL4CO has no STOP
        return logits.transpose(0, 1).flatten(0, 1), td["action_mask"]


class SumOfLinear(nn.Module):
    """Initial embeddings of the Attention Model: projected candidates plus the projected query."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.candidate, self.query = nn.Linear(features, width), nn.Linear(features, width)

    def forward(self, td: TensorDict) -> Tensor:
        return self.candidate(td["candidates"]) + self.query(td["query"])[:, None]


class LastPick(nn.Module):
    """Context of the Attention Model: the embedding of the last pick, a learned one before the first (as in its
    travelling-salesman context)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.nothing, self.project = nn.Parameter(torch.zeros(width)), nn.Linear(width, width, bias=False)

    def forward(self, embeddings: Tensor, td: TensorDict) -> Tensor:
        node = td["current_node"]
        if int(td["i"].flatten()[0]) == 0:
            return self.project(self.nothing.expand(*node.shape, -1))
        index = node.reshape(len(embeddings), -1, 1).expand(-1, -1, embeddings.shape[-1])
        return self.project(embeddings.gather(1, index).view(*node.shape, -1))


def policy_of(case: Case) -> nn.Module:
    """RL4CO's policy of the case: our network in its constructive policy, or its own Attention Model."""
    if case.network == "same":
        network = network_of(case)
        encoder = FeaturesLeave(OurEncoder(network))
        return ConstructivePolicy(encoder, OurDecoder(network), env_name="select")
    policy = AttentionModelPolicy(
        env_name="select",
        embed_dim=case.width,
        num_heads=case.heads,
        num_encoder_layers=1,
        init_embedding=SumOfLinear(case.features, case.width),
        context_embedding=LastPick(case.width),
        dynamic_embedding=static_embedding(),
    )
    policy.encoder = FeaturesLeave(policy.encoder)
    return policy


def static_embedding() -> nn.Module:
    from rl4co.models.nn.env_embeddings.dynamic import StaticEmbedding  # pyright: ignore[reportMissingImports]

    return StaticEmbedding()


class GroupREINFORCE(REINFORCE):
    """RL4CO's REINFORCE on G samples an instance with their mean as baseline: the step of its POMO, whose first pick
    is not forced here."""

    def __init__(self, case: Case, **kwargs: Any) -> None:
        super().__init__(SelectEnv(case), policy_of(case), baseline="shared", **kwargs)
        self.case = case

    def shared_step(self, batch: Any, batch_idx: int, phase: str, dataloader_idx: int | None = None) -> Any:
        td = self.env.reset(batch)
        out = self.loss_of(td, batch)
        return {"loss": out["loss"], **self.log_metrics(out, phase, dataloader_idx=dataloader_idx)}

    def loss_of(self, td: TensorDict, batch: Any, actions: Tensor | None = None) -> dict[str, Any]:
        """RL4CO's loss of fresh samples, or of given actions [G b, K]."""
        count = self.case.group
        out = self.policy(td, self.env, phase="train", num_samples=count, actions=actions)
        reward, log_likelihood = unbatchify(out["reward"], count), unbatchify(out["log_likelihood"], count)
        return self.calculate_loss(td, batch, out, reward, log_likelihood)
