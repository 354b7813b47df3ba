"""Shards without ranks: which blocks, what is refused, in which order a block is told what. FSDP is a double here; with
real ranks it is tried in test_parallel_sharded.py."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from runs import table
from torch import nn
from toys import Bandit

from anygrpo.errors import ConfigError
from anygrpo.recipe.load import parse_recipe
from anygrpo.train import sharded


class Stack(Bandit):
    """Two lists of layers: three large ones, and four small ones."""

    def __init__(self, dtype=torch.float32):
        super().__init__(0)
        self.net = nn.Module()
        self.net.large = nn.ModuleList(nn.Linear(8, 8, dtype=dtype) for _ in range(3))
        self.net.small = nn.ModuleList(nn.Linear(2, 2) for _ in range(4))
        self.net.none = nn.ModuleList()
        self.told = []

    def before_sharding(self, dtype):
        self.told.append(dtype)


def recipe_of(**extra):
    return parse_recipe(table(**extra))


def fsdp(**more):
    return recipe_of(training={"parallel": "fsdp", **more})


class Block(nn.Module):
    """Notes what FSDP is asked."""

    def __init__(self, log, name):
        super().__init__()
        self.log, self.name = log, name

    def __getattr__(self, name):
        if name in ("set_reshard_after_forward", "unshard", "reshard"):
            return lambda *given: self.log.append((self.name, name, *given))
        return super().__getattr__(name)


# --- which blocks


def test_the_longest_list_by_weights_is_sharded():
    policy = Stack()
    assert sharded._blocks(policy.net) == list(policy.net.large)
    with pytest.raises(ConfigError, match="no list of blocks to shard"):
        sharded._blocks(nn.Linear(2, 2))
    with pytest.raises(ConfigError, match="no list of blocks"):
        sharded._blocks(nn.ModuleList())


def test_one_rank_shards_nothing(monkeypatch):
    policy = Stack()
    monkeypatch.setattr(sharded, "_blocks", lambda module: pytest.fail("one rank"))
    sharded.shard(policy, fsdp())
    assert policy.told == []


def sharding(monkeypatch, policy, recipe):
    calls = []
    monkeypatch.setattr(sharded, "world_size", lambda: 2)

    def fully_shard(block, mesh, **more):
        calls.append((block, mesh, more))
        block.set_gradient_divide_factor = lambda factor: calls.append(factor)
        block.set_force_sum_reduction_for_comms = lambda yes: calls.append(yes)

    monkeypatch.setattr("torch.distributed.fsdp.fully_shard", fully_shard)
    monkeypatch.setattr("torch.distributed.device_mesh.init_device_mesh", lambda kind, shape: (kind, shape))
    sharded.shard(policy, recipe)
    return calls


def test_gradients_of_blocks_are_summed(monkeypatch):
    """By plain sums: the loss's denominators are in its weights."""
    policy = Stack()
    calls = sharding(monkeypatch, policy, fsdp())
    expected = [x for block in policy.net.large for x in ((block, ("cpu", (2,)), {}), 1.0, True)]
    assert calls == expected
    assert policy.told == [None]


def test_one_trained_tensor_is_enough(monkeypatch):
    policy = Stack()
    policy.net = nn.ModuleList([nn.Linear(8, 8, bias=False)])
    assert sharding(monkeypatch, policy, fsdp()) == [(policy.net[0], ("cpu", (2,)), {}), 1.0, True]


def test_blocks_may_compute_in_another_type(monkeypatch):
    policy = Stack()
    calls = sharding(monkeypatch, policy, fsdp(fsdp_dtype="bfloat16"))
    assert policy.told == [torch.bfloat16]
    (_, _, more) = calls[0]
    assert (more["mp_policy"].param_dtype, more["mp_policy"].reduce_dtype) == (torch.bfloat16, torch.float32)


def test_what_cannot_be_sharded_is_refused_before_anything_is(monkeypatch):
    policy = Stack(torch.bfloat16)
    with pytest.raises(ConfigError, match="trained blocks hold"):
        sharding(monkeypatch, policy, fsdp())
    assert policy.told == []


# --- what is refused


@pytest.mark.parametrize(
    ("algorithm", "lora", "refused"),
    [
        ({"kl": "exact", "beta": 0.1}, False, True),
        ({"kl": "exact", "beta": {"kind": "linear", "start": 0.0, "end": 0.1}}, False, True),
        ({"kl": "exact", "beta": 0.0}, False, False),
        ({"kl": "k3", "beta": 0.1}, False, False),
        ({"kl": "exact", "beta": 0.1}, True, False),
    ],
)
def test_an_exact_kl_of_whole_weights_is_refused(algorithm, lora, refused):
    policy = Stack()
    if lora:
        policy.net.large.requires_grad_(False), policy.net.small.requires_grad_(False)
        policy.net.add_module("x", nn.Module())
        policy.net.x.lora_A = nn.Linear(2, 2)
        names = [n for n, p in policy.net.named_parameters() if p.requires_grad]
        assert all(".lora_" in n for n in names)
    recipe = recipe_of(algorithm=algorithm)
    if refused:
        with pytest.raises(ConfigError, match="swaps the reference in during the training pass"):
            sharded._check(policy, recipe, list(policy.net.large))
    else:
        sharded._check(policy, recipe, list(policy.net.large))


def test_trained_blocks_are_float32():
    policy = Stack(torch.bfloat16)
    with pytest.raises(ConfigError, match=r"trained blocks hold \{torch\.bfloat16\}"):
        sharded._check(policy, recipe_of(), list(policy.net.large))
    policy.net.large[0].to(torch.float32)
    with pytest.raises(ConfigError, match="trained blocks hold"):
        sharded._check(policy, recipe_of(), list(policy.net.large))
    frozen = Stack()
    frozen.net.large[1].to(torch.bfloat16).requires_grad_(False)
    sharded._check(frozen, recipe_of(), list(frozen.net.large))  # what is not trained may be coarse


# --- whole weights


def test_inside_every_block_is_whole_and_after_it_is_cut_again(monkeypatch):
    log = []
    blocks = [Block(log, "a"), Block(log, "b")]
    monkeypatch.setattr(sharded, "sharded_blocks", lambda module: blocks)
    policy = SimpleNamespace(trainable=lambda: None)
    for error in (None, ValueError):
        log.clear()
        try:
            with sharded.whole_weights(policy):
                inside = list(log)
                if error:
                    raise error
        except ValueError:
            pass
        assert inside == [(n, *act) for n in "ab" for act in (("set_reshard_after_forward", False), ("unshard",))]
        assert log[4:] == [(n, *act) for n in "ab" for act in (("reshard",), ("set_reshard_after_forward", True))]


def test_blocks_that_are_sharded_are_known_by_their_class(monkeypatch):
    module = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    monkeypatch.setattr("torch.distributed.fsdp.FSDPModule", nn.Linear)
    assert sharded.sharded_blocks(module) == []  # one rank holds no shards
    monkeypatch.setattr(sharded, "world_size", lambda: 2)
    assert sharded.sharded_blocks(module) == [module[0], module[2]]


class Whole(torch.Tensor):
    """A shard whose whole is twice as large."""

    def to_local(self):
        return self.as_subclass(torch.Tensor)

    def full_tensor(self):
        return torch.cat([self.to_local(), self.to_local()])


def test_shards_are_gathered_and_kept_where_they_are_wanted():
    shard, plain = torch.ones(2).as_subclass(Whole), torch.zeros(3)
    assert sharded.full(shard).tolist() == [1.0] * 4
    assert sharded.full(plain) is plain
    found = sharded.whole_of({"a": shard, "b": plain, "c": plain}, ["c", "a"])
    assert list(found) == ["c", "a"]
    assert found["a"].tolist() == [1.0] * 4
    module = nn.Linear(1, 1)
    module.bias.requires_grad_(False)
    assert list(sharded.full_state(module)) == ["weight"]


def test_a_plain_tensor_is_laid_out_as_it_is(monkeypatch):
    x = torch.ones(4)
    assert sharded.laid_out(x, torch.zeros(4)) is x
    like = torch.zeros(4).as_subclass(Whole)
    like.device_mesh, like.placements = "mesh", "placements"
    monkeypatch.setattr("torch.distributed.tensor.distribute_tensor", lambda *given: given)
    laid, mesh, placements = sharded.laid_out(x, like)
    assert (laid is x, mesh, placements) == (True, "mesh", "placements")
    assert sharded.laid_out(torch.ones(()), like).shape == ()  # a counter beside the moments
