"""FSDP2: the weights, gradients and optimizer state of a policy's blocks, each held in parts by all ranks.

The blocks of the longest list of layers are sharded; what stands around them (embeddings, norms, heads), which policies
also read outside any forward pass, stays whole on every rank and has its gradients summed as in plain data-parallel
training. Reductions are sums: the loss's denominators are in its weights already.

Collectives happen inside forward and backward passes of blocks, so ranks must make equally many: `Updater` fills up
with rows of weight zero. Passes whose number differs between ranks (sampling, evaluation, the reference's log-probs)
run under `whole_weights`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.core.policy import Policy
from anygrpo.core.trained import state_of
from anygrpo.errors import ConfigError
from anygrpo.recipe.recipe import Recipe, largest_beta
from anygrpo.spoken import Text
from anygrpo.train.parallel import is_sharded, world_size


def shard(policy: Policy, recipe: Recipe) -> None:
    """Shard the policy's blocks over all ranks; nothing to do for one rank.

    Raises:
        ConfigError: a policy without a list of blocks, or settings that sharded weights cannot serve.
    """
    if world_size() == 1:
        return
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    module: nn.Module = policy.trainable()
    blocks = _blocks(module)
    dtype = recipe.training.fsdp_dtype
    _check(policy, recipe, blocks)
    policy.before_sharding(getattr(torch, dtype) if dtype else None)
    policy.scales_loss = policy.scales_loss or dtype == "float16"
    precision = MixedPrecisionPolicy(param_dtype=getattr(torch, dtype), reduce_dtype=torch.float32) if dtype else None
    mesh = init_device_mesh(policy.parameters()[0].device.type, (world_size(),))
    for block in blocks:
        fully_shard(block, mesh=mesh, **({"mp_policy": precision} if precision else {}))  # type: ignore[arg-type]
        block.set_gradient_divide_factor(1.0)  # type: ignore[operator]
        block.set_force_sum_reduction_for_comms(True)  # type: ignore[operator]


def _blocks(module: nn.Module) -> list[nn.Module]:
    lists = [m for m in module.modules() if isinstance(m, nn.ModuleList) and len(m)]
    if not lists:
        raise ConfigError(
            Text(
                'training.parallel = "fsdp": the policy has no list of blocks to shard',
                'training.parallel = "fsdp"：策略没有可分片的块列表',
            ),
            Text('use parallel = "replicate"', '请用 parallel = "replicate"'),
        )
    return list(max(lists, key=lambda m: sum(p.numel() for p in m.parameters())))


def _check(policy: Policy, recipe: Recipe, blocks: list[nn.Module]) -> None:
    trained = any(p.requires_grad and ".lora_" not in n for n, p in policy.trainable().named_parameters())
    for stage in recipe.resolved_stages():
        if trained and stage.algorithm.kl == "exact" and largest_beta(stage.algorithm) > 0:
            raise ConfigError(
                Text(
                    f'stage {stage.name!r}: kl = "exact" swaps the reference in during the training '
                    "pass, which sharded "
                    "weights do not allow",
                    f'阶段 {stage.name!r}：kl = "exact" 在训练时换入参考策略，分片的权重不允许这样',
                ),
                Text('use kl = "k3", or train adapters', '请用 kl = "k3"，或训练适配器'),
            )
    kinds = {p.dtype for block in blocks for p in block.parameters() if p.requires_grad}
    if trained and kinds != {torch.float32}:
        raise ConfigError(
            Text(f"trained blocks hold {kinds}", f"训练的块中有 {kinds}"),
            Text("keep trained weights in float32", "训练的权重请保持 float32"),
        )


def sharded_blocks(module: nn.Module) -> list[Any]:
    """The blocks of a module that FSDP holds."""
    if world_size() == 1:
        return []
    from torch.distributed.fsdp import FSDPModule

    return [m for m in module.modules() if isinstance(m, FSDPModule)]


@contextmanager
def whole_weights(policy: Policy) -> Iterator[None]:
    """Inside, every rank has all weights, and passes without gradient need no other rank."""
    blocks = sharded_blocks(policy.trainable())
    for block in blocks:
        block.set_reshard_after_forward(False)
        block.unshard()
    try:
        yield
    finally:
        for block in blocks:
            block.reshard()
            block.set_reshard_after_forward(True)


def full(tensor: Tensor) -> Tensor:
    """A sharded tensor as a whole one, on every rank; a plain one itself."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor  # type: ignore[operator]


def whole_of(tensors: Mapping[str, Tensor], mine: Sequence[str]) -> dict[str, Tensor]:
    """Those of `mine`, whole and on the host, in their order. Every rank calls it with all tensors: a sharded one is
    gathered by all, one after the other, and kept where it is wanted."""
    kept = set(mine)
    out: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        gathered = full(tensor)
        if name in kept:
            out[name] = gathered.cpu()
    return {name: out[name] for name in mine}


def full_state(module: nn.Module) -> dict[str, Tensor]:
    """`state_of` with whole tensors."""
    return {name: full(p) for name, p in state_of(module).items()}


def laid_out(tensor: Tensor, like: Tensor) -> Tensor:
    """A whole tensor, cut as `like` is."""
    if not is_sharded(like) or tensor.shape != like.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements)  # type: ignore[attr-defined]
