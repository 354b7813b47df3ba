"""CUDA graphs: passes of one shape are recorded once and replayed, so that a thousand small kernels cost one launch.

What is replayed is the same kernels on the same weights: numbers differ from those of an ordinary pass by no more than
two ordinary passes do. What Python decides inside the pass is decided once, while it is recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from anygrpo.spoken import say

log = logging.getLogger("anygrpo")
Named = dict[str, Tensor]
Pass = Callable[[Named], Named]
"""Tensors by name -> tensors by name: a pure function of them, of the weights and of torch's random state."""
ORDINARY = 2
"""Passes of a kind before it is recorded: what comes rarely (pictures of an evaluation) is not worth it."""
KINDS = 8
"""Recorded at most: each keeps the memory of its pass."""


class Graphs:
    """Replays passes of a network where it can, and runs them as they are where it cannot.

    Args:
        network: whose weights the passes read.
    """

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        if not any(p.is_cuda for p in network.parameters()):
            log.warning(
                say("graphs: there are none on a CPU; passes run as they are", "graphs：CPU 上没有；照常逐步计算")
            )
        self._seen: dict[Any, int] = {}
        self._recorded: dict[Any, Recorded] = {}
        self._refused: set[str] = set()

    def __call__(self, name: str, function: Pass, given: Named) -> Named:
        """`function(given)`, replayed from its third time on for these shapes and weights.

        `name` stands for all that `function` depends on besides `given`.
        """
        if name in self._refused or not self.possible(given):
            return function(given)
        key = self._key(name, given)
        if key in self._recorded:
            return self._recorded[key](given)
        self._seen[key] = self._seen.get(key, 0) + 1
        if self._seen[key] <= ORDINARY or len(self._recorded) == KINDS:
            return function(given)
        try:
            self._recorded[key] = record(function, given, self._learning(), self.network)
        except RuntimeError as error:
            self._refused.add(name)
            self._recorded.clear()  # they may follow a generator that is no longer the device's
            words = say(
                "graphs: pass %r cannot be recorded and runs as it is: %s", "graphs：计算 %r 无法录制，照常执行：%s"
            )
            log.warning(words, name, str(error).splitlines()[0])
            return function(given)
        return self._recorded[key](given)

    @staticmethod
    def possible(given: Named) -> bool:
        return all(x.is_cuda for x in given.values())

    def _key(self, name: str, given: Named) -> Any:
        """Weights by place: a reference swaps others in."""
        shapes = tuple((k, tuple(x.shape), x.dtype) for k, x in given.items())
        weights = tuple((p.data_ptr(), p.requires_grad) for p in self.network.parameters())
        return name, shapes, weights, torch.is_grad_enabled()

    def _learning(self) -> list[Tensor]:
        return [p for p in self.network.parameters() if p.requires_grad] if torch.is_grad_enabled() else []


class Recorded:
    """A recorded pass, and its backward pass where an output has a gradient.

    Attributes:
        given, outputs: the tensors that the recording reads and writes, by name.
        learning: weights that get gradients.
        forward, backward: replayable (`replay()`); between outputs and gradients lies what both share.
        received, gradients: gradients of the differentiable outputs (read) and of `learning` (written).
        turn: number of replays. A backward pass belongs to the last one: it reads what that left in memory.
    """

    def __init__(self, given: Named, learning: list[Tensor]) -> None:
        self.given = {name: x.detach().clone() for name, x in given.items()}
        self.learning = learning
        self.outputs: Named = {}
        self.forward: Any = None
        self.backward: Any = None
        self.received: list[Tensor] = []
        self.gradients: list[Tensor | None] = []
        self.turn = 0

    def __call__(self, given: Named) -> Named:
        for name, x in given.items():
            self.given[name].copy_(x)
        made = _Replayed.apply(self, *self.learning)
        return dict(zip(self.outputs, made))

    def differentiable(self) -> list[str]:
        return [name for name, x in self.outputs.items() if x.requires_grad]


class _Replayed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, recorded: Recorded, *learning: Tensor) -> tuple[Tensor, ...]:
        recorded.forward.replay()
        recorded.turn += 1
        ctx.recorded, ctx.turn = recorded, recorded.turn
        made = {name: x.detach().clone() for name, x in recorded.outputs.items()}  # the next replay writes there
        fixed = made.keys() - set(recorded.differentiable())
        ctx.mark_non_differentiable(*(made[name] for name in fixed))
        ctx.set_materialize_grads(False)
        return tuple(made.values())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        recorded: Recorded = ctx.recorded
        if ctx.turn != recorded.turn:
            raise RuntimeError("this pass was replayed before the backward pass of its last replay")
        by_name = dict(zip(recorded.outputs, gradients))
        for place, name in zip(recorded.received, recorded.differentiable()):
            gradient = by_name[name]
            place.zero_() if gradient is None else place.copy_(gradient)
        recorded.backward.replay()
        there = [g for g in recorded.gradients if g is not None]
        own = iter(torch._foreach_mul(there, 1.0) if there else [])  # type: ignore  # copies: `.grad` keeps its own
        return (None, *(None if g is None else next(own) for g in recorded.gradients))


def record(function: Pass, given: Named, learning: list[Tensor], network: nn.Module) -> Recorded:
    """Record `function` on tensors shaped as `given`, with gradients of its outputs for `learning`, of `network`.

    Raises:
        RuntimeError: it waits for the device, or does something else that cannot be recorded.
    """
    device = next(iter(given.values())).device
    recorded = Recorded(given, learning)
    state = torch.cuda.get_rng_state(device)
    validated = Distribution._validate_args
    Distribution.set_default_validate_args(False)  # it reads the device; ordinary passes have validated
    here = torch.cuda.current_stream(device)
    try:
        with (
            torch.cuda.device(device),
            torch.cuda.stream(here),  # a recording that fails leaves its own stream current
            leaves_of_their_own(network, learning) as leaves,
        ):
            _warm_up(function, recorded, leaves)
            _record(function, recorded, leaves)
    finally:
        Distribution.set_default_validate_args(validated)
        _usable(device)
        torch.cuda.set_rng_state(state, device)
    return recorded


@contextmanager
def leaves_of_their_own(network: nn.Module, learning: list[Tensor]) -> Iterator[list[Tensor]]:
    """The weights that learn, as other leaves in the same memory, put into `network`.

    While the graph of an earlier pass is alive, it holds each weight's place in the backward pass on its own stream; a
    recording that met it there would wait for a stream that is not recorded, and break off.
    """
    own = {id(p): nn.Parameter(p.detach()) for p in learning}
    places = [(m._parameters, k, p) for m in network.modules() for k, p in m._parameters.items() if id(p) in own]
    for table, name, p in places:
        table[name] = own[id(p)]
    try:
        yield [own[id(p)] for p in learning]
    finally:
        for table, name, p in places:
            table[name] = p


def _warm_up(function: Pass, recorded: Recorded, leaves: list[Tensor]) -> None:
    """Kernels are chosen and libraries loaded before anything is recorded, on a stream of their own."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            outputs = [x for x in function(recorded.given).values() if x.requires_grad]
            if outputs:
                ones = [torch.ones_like(x) for x in outputs]
                torch.autograd.grad(outputs, leaves, ones, allow_unused=True)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()


def _record(function: Pass, recorded: Recorded, leaves: list[Tensor]) -> None:
    recorded.forward, recorded.backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded.forward):
        recorded.outputs = function(recorded.given)
    outputs = [x for x in recorded.outputs.values() if x.requires_grad]
    recorded.received = [torch.zeros_like(x) for x in outputs]
    if outputs:
        with torch.cuda.graph(recorded.backward, pool=recorded.forward.pool()):
            gradients = torch.autograd.grad(outputs, leaves, recorded.received, allow_unused=True)
        recorded.gradients = list(gradients)
    recorded.outputs = {name: x.detach().requires_grad_(x.requires_grad) for name, x in recorded.outputs.items()}


def _usable(device: torch.device) -> None:
    """A recording that broke off can leave the generator waiting for its end; give the device a fresh state then."""
    try:
        torch.rand((), device=device)
    except RuntimeError:
        fresh = torch.Generator(device=device)
        torch.cuda.default_generators[device.index or 0].graphsafe_set_state(fresh.graphsafe_get_state())
