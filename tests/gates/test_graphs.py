"""Recorded passes: which are recorded, what is done where they cannot be, and that replaying changes no number."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Beta

from anygrpo.core.task import Stored
from anygrpo.core.tree import tree_map
from anygrpo.gates import graphs
from anygrpo.gates.build import StochasticPolicy, gate
from anygrpo.gates.graphs import ORDINARY, Graphs, Recorded, leaves_of_their_own


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head, self.scale, self.unused = nn.Linear(3, 4), nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.head(x.mean((2, 3))).exp().chunk(2, 1)
        strength = gate("strength", Beta(1 + a, 1 + b, validate_args=False))
        return self.scale * x * strength[:, :1, None, None] + strength[:, 1:, None, None]


def prompts(count: int = 4, size: int = 6) -> list[dict]:
    images = torch.rand(count, 2, 3, size, size, generator=torch.Generator().manual_seed(1))
    return [{"degraded": a, "clean": b} for a, b in images]


def policy(device: str, **given: object) -> StochasticPolicy:
    torch.manual_seed(0)
    return StochasticPolicy(Net().to(device), **given)  # type: ignore[arg-type]


def rows_of(p: StochasticPolicy, step: int) -> list[tuple[dict, frozenset[str]]]:
    """Supervised, sampled and mixed rows of a step, and what is wanted of them."""
    stored = Stored([[x["clean"]] for x in prompts()])
    rollouts = [
        (p.replay(prompts(), stored, step), {"supervised"}),
        (p.sample(prompts(), 2, seed=step), set()),
        (p.sample(prompts(), 2, seed=step), {"supervised", "entropy"}),
    ]
    return [(tree_map(lambda x: x.flatten(0, 1), r.samples), frozenset(want)) for r, want in rollouts]


def scored(p: StochasticPolicy, rows: dict, want: frozenset[str]) -> tuple[Tensor, list[Tensor]]:
    """The loss with its graph, and it, the log-probs and the gradients of two blocks together."""
    for _ in range(2):
        made = p.evaluate(rows, slice(None), want)
        loss = (made.log_probs * torch.arange(len(made.log_probs))[:, None].to(made.log_probs)).sum()
        loss = sum((x.sum() for x in made.losses.values()), loss)
        loss.backward()
    told = [loss.detach(), made.log_probs.detach()]
    for weight in p.network.parameters():
        if weight.grad is not None:
            told.append(weight.grad)
        weight.grad = None
    return loss, told


def trained(device: str, steps: int = 6, **given: object) -> list[Tensor]:
    """Samples, losses, log-probs and gradients of a policy, step by step."""
    p, told = policy(device, **given), []
    for step in range(steps):
        for rows, want in rows_of(p, step):
            _, numbers = scored(p, rows, want)
            told += [*rows.values(), *numbers]
            learn(p, step)
    return [x.cpu() for x in told]


def learn(p: StochasticPolicy, step: int) -> None:
    """Another weight after each pass, the same for every policy: what one did last does not add up in the next."""
    generator = torch.Generator().manual_seed(step)
    for weight in p.network.parameters():
        weight.data.add_(0.1 * torch.randn(weight.shape, generator=generator).to(weight))


def record_in_python(function, given, learning, network=None) -> Recorded:
    """As `graphs.record`, with recomputation in place of CUDA graphs."""
    recorded = Recorded(given, learning)
    with torch.random.fork_rng(devices=[]):
        first = function(recorded.given)
    recorded.outputs = {k: x.detach().clone().requires_grad_(x.requires_grad) for k, x in first.items()}
    names = recorded.differentiable()
    recorded.received = [torch.zeros_like(recorded.outputs[k]) for k in names]
    pattern = (
        torch.autograd.grad([first[k] for k in names], learning, recorded.received, allow_unused=True) if names else []
    )
    recorded.gradients = list(pattern)
    latest: dict[str, Tensor] = {}

    def forward() -> None:
        with torch.set_grad_enabled(bool(learning)):
            latest.update(function(recorded.given))
        for name, x in latest.items():
            recorded.outputs[name].data.copy_(x.detach())

    def backward() -> None:
        made = torch.autograd.grad([latest[k] for k in names], learning, recorded.received, allow_unused=True)
        for place, gradient in zip(recorded.gradients, made):
            if place is not None:
                place.copy_(gradient)

    recorded.forward, recorded.backward = SimpleNamespace(replay=forward), SimpleNamespace(replay=backward)
    return recorded


def test_a_replayed_pass_gives_the_same_numbers_and_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = trained("cpu")
    recorded = []
    monkeypatch.setattr(Graphs, "possible", staticmethod(lambda given: True))
    monkeypatch.setattr(graphs, "record", lambda *given: recorded.append(record_in_python(*given)) or recorded[-1])
    replayed = trained("cpu", graphs=True)
    assert len(recorded) == 4  # drawn; at the mean; log-probs; log-probs, entropy and loss
    assert all(r.turn > 0 for r in recorded)
    assert all(torch.equal(a, b) for a, b in zip(plain, replayed, strict=True))


def test_a_pass_that_cannot_be_recorded_runs_as_it_is_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries = []

    def refuse(*given) -> Recorded:
        tries.append(given)
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(Graphs, "possible", staticmethod(lambda given: True))
    monkeypatch.setattr(graphs, "record", refuse)
    assert all(torch.equal(a, b) for a, b in zip(trained("cpu"), trained("cpu", graphs=True), strict=True))
    told = [r.getMessage() for r in caplog.records if "cannot be recorded" in r.getMessage()]
    assert len(tries) == len(told) == 4
    assert any(
        "'scored imitated supervised'" in line and "not permitted" in line and "more" not in line for line in told
    )


def test_on_a_cpu_nothing_is_recorded_and_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert all(torch.equal(a, b) for a, b in zip(trained("cpu"), trained("cpu", graphs=True), strict=True))
    assert "none on a CPU" in caplog.text


def test_only_what_comes_again_is_recorded_by_shape_and_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    network, made = Net(), []
    monkeypatch.setattr(Graphs, "possible", staticmethod(lambda given: True))
    monkeypatch.setattr(graphs, "record", lambda *given: made.append(given) or (lambda given: {"replayed": given["x"]}))
    run = Graphs(network)
    double = lambda given: {"plain": 2 * given["x"]}  # noqa: E731
    kinds = [next(iter(run("double", double, {"x": torch.ones(2)}))) for _ in range(ORDINARY + 2)]
    assert kinds == ["plain"] * ORDINARY + ["replayed"] * 2
    assert "plain" in run("double", double, {"x": torch.ones(3)})
    network.head.weight.data = network.head.weight.data.clone()  # as a reference swaps weights in
    assert "plain" in run("double", double, {"x": torch.ones(2)})
    assert len(made) == 1


def test_a_backward_pass_after_another_replay_is_refused() -> None:
    weight = nn.Parameter(torch.ones(3))
    recorded = record_in_python(lambda given: {"y": weight * given["x"]}, {"x": torch.ones(3)}, [weight])
    first = recorded({"x": torch.ones(3)})["y"]
    recorded({"x": torch.ones(3)})
    with pytest.raises(RuntimeError, match="replayed before"):
        first.sum().backward()


def test_recording_knows_the_weights_under_leaves_of_their_own() -> None:
    """Same memory, same gradients; another graph may be alive; afterwards the weights are in their places again."""
    network = Net()
    learning = [network.head.weight, network.scale]
    alive = network.head.weight.sum() + network.scale.sum()
    with leaves_of_their_own(network, learning) as leaves:
        assert [a.data_ptr() for a in leaves] == [p.data_ptr() for p in learning]
        assert network.head.weight is leaves[0]
        assert network.scale is leaves[1]
        network.head.weight.sum().backward()
    assert torch.equal(leaves[0].grad, torch.ones(4, 3))  # type: ignore[arg-type]
    assert network.head.weight is learning[0]
    assert learning[0].grad is None
    alive.backward()
    assert torch.equal(learning[0].grad, torch.ones(4, 3))  # type: ignore[arg-type]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_replayed_passes_agree_with_plain_ones(caplog: pytest.LogCaptureFixture) -> None:
    plain, replayed = policy("cuda"), policy("cuda", graphs=True)
    alive = []  # graphs of the last pass: a recording must not meet them
    for step in range(6):
        for (rows, want), (same, _) in zip(rows_of(plain, step), rows_of(replayed, step), strict=True):
            assert rows.keys() == same.keys()
            for name in rows:
                torch.testing.assert_close(rows[name], same[name], rtol=1e-4, atol=1e-6, msg=f"{step} {name}")
            (_, expected), (loss, numbers) = scored(plain, rows, want), scored(replayed, rows, want)
            alive = [loss]
            for i, (a, b) in enumerate(zip(expected, numbers, strict=True)):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, msg=f"{step} {sorted(want)} {i}")
        learn(plain, step)
        learn(replayed, step)
    assert alive
    assert "cannot be recorded" not in caplog.text, caplog.text
