"""What each gate does: dead ones named, headroom by hand, and `anygrpo check` on pictures of several sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.distributions import Bernoulli, Beta

from anygrpo.cli.main import main
from anygrpo.core.task import Scores
from anygrpo.doctor import diagnose
from anygrpo.gates.build import StochasticPolicy, gate
from anygrpo.gates.effects import MEASURED, _differs, effects, told
from anygrpo.gates.page import sites
from tests.gates.restoration.toy import RECIPES


class Window(nn.Module):
    """A published window, whose side h // 128 x rate is 0 below 128 pixels; a brightness; a coin that no one reads."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        chances = Beta(2 + self.a[0].exp().expand(len(x)), torch.full((len(x),), 3.0))
        side = (x.shape[-2] // 128 * gate("rate", chances) * 8).int()
        bright = gate("bright", Bernoulli(logits=self.a[1].expand(len(x))))
        gate("unread", Bernoulli(logits=self.a[2].expand(len(x))))
        return x + 0.1 * bright[:, None, None, None] + 0.05 * side[:, None, None, None]


class Bright:
    """Reward: the output's mean brightness."""

    def score(self, prompts: list, outputs: list) -> Scores:
        return Scores(torch.tensor([[float(x.mean()) for x in row] for row in outputs]))


def rows(side: int, **given: object) -> dict[str, dict]:
    prompts = [{"degraded": torch.full((3, side, side), 0.2), "clean": torch.zeros(3, side, side)} for _ in range(2)]
    policy = StochasticPolicy(Window(), mode="mode", **given)  # type: ignore[arg-type]
    return {r["site"]: r for r in effects(policy, Bright(), prompts, draws=16)}


def test_a_rounded_window_is_dead_on_small_crops_and_alive_on_large_ones() -> None:
    small, large = rows(64), rows(256)
    assert (small["rate"]["dead"], large["rate"]["dead"]) == (True, False)
    assert small["unread"]["dead"]
    assert large["unread"]["dead"]
    assert not small["bright"]["dead"]


def test_numbers_by_hand() -> None:
    found = rows(64)["bright"]
    # the mode of an even coin is 1: draws are 0 or 1, each 0.1 in brightness
    assert found["headroom"] == pytest.approx(0.0, abs=1e-6)
    assert -0.1 < found["mean_gain"] < 0
    assert found["effect"] == pytest.approx(-255 * found["mean_gain"], rel=1e-4)
    assert found["reward_std"] == pytest.approx(0.1 * found["value_std"], rel=1e-3)
    assert rows(64)["all"]["effect"] == pytest.approx(found["effect"], rel=0.5)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_is_told(language: str) -> None:
    said = told(list(rows(64).values()))
    assert said["status"] == "warning"
    assert said["certainty"] == "certain"
    assert "rate, unread" in said["sentence"].said(language).format(**said["numbers"])
    every = told(list(rows(64, sites=("rate", "unread")).values()))
    assert every["status"] == "serious"
    fine = told(list(rows(256, sites=("rate", "bright")).values()))
    assert fine["status"] == "ok"
    assert "bright" in fine["sentence"].said(language).format(**fine["numbers"])


def test_gates_that_a_trained_network_gains_nothing_by_are_named() -> None:
    row = {"site": "rate", "effect": 0.4, "value_std": 0.15, "reward_std": 7e-4, "headroom": 6e-4, "mean_gain": 0.0,
           "dead": False, "settled": False, "between": 0.12}  # fmt: skip
    said = told([row], trained=True)
    assert said["status"] == "warning"
    for language in ("en", "zh"):
        assert "0.0006" in said["sentence"].said(language).format(**said["numbers"])
    assert told([row])["status"] == "ok"  # before a warm-up nothing can be said
    assert told([row | {"headroom": 0.01}], trained=True)["status"] == "ok"


def test_check_names_gates_on_a_folder_of_several_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for i, (h, w) in enumerate([(40, 56), (64, 48), (52, 52), (70, 44), (48, 48)]):
        g = torch.Generator().manual_seed(i)
        pixels = (torch.rand(6, 6, 3, generator=g) * 255).byte().numpy()
        Image.fromarray(pixels).resize((w, h), Image.Resampling.BICUBIC).save(tmp_path / f"{i}.png")
    flags = ["--policy.width", "4", "--policy.device", "cpu", "--task.patch", "24", "--task.crops", "2"]
    flags += [
        "--task.folder",
        f'{{clean = "{tmp_path}"}}',
        "--algorithm.prompts_per_step",
        "4",
        "--algorithm.group_size",
        "4",
    ]
    code = main(["check", str(RECIPES / "gates.toml"), "--stage", "grpo", "--seconds", "4", "--json", *flags])
    said = json.loads(capsys.readouterr().out)
    outcomes = {f["rule"]: f for f in said["findings"]}
    assert code in (0, 5)
    failed = [o["rule"] for o in outcomes.values() if "this probe failed" in o["title"]]
    assert failed == []
    assert [r["site"] for r in outcomes["sites"]["table"]] == ["level2/rate", "level1/rate", "level0/rate", "all"]


class OnPrompts(Bright):
    def prompts(self, step: int, count: int) -> list:
        return [{"degraded": torch.full((3, 64, 64), 0.2)} for _ in range(count)]


def test_an_evaluation_measures_each_gate_and_the_doctor_names_the_dead() -> None:
    row = StochasticPolicy(Window(), mode="mode", sites=("rate", "bright")).examined(OnPrompts())
    assert row.keys() == {f"restoration/gate_{k}/{s}" for k in MEASURED for s in ("rate", "bright")}
    assert row["restoration/gate_effect/rate"] == row["restoration/gate_reward_std/rate"] == 0.0
    assert row["restoration/gate_effect/bright"] > 1
    base = {"reward/mean": 0.5, "reward/std_within": 0.1}
    (found,) = [f for f in diagnose([{"step": i} | base | row for i in range(9)]).findings if f.rule == "dead_gates"]
    assert (found.facts["names"], found.severity, found.certainty) == ("rate", "warning", "certain")


class Settled(nn.Module):
    """A coin that training has settled and the output reads; a coin that nothing reads."""

    def __init__(self, logit: float = 8.0) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor([logit, 0.0]))

    def forward(self, x: Tensor) -> Tensor:
        coin = gate("coin", Bernoulli(logits=self.a[0].expand(len(x))))
        gate("unread", Bernoulli(logits=self.a[1].expand(len(x))))
        return x + 0.1 * (coin > 0.5)[:, None, None, None]


@pytest.mark.parametrize("mode", ["mode", "mean"])
def test_a_gate_that_settled_on_a_value_is_not_called_dead(mode: str) -> None:
    policy = StochasticPolicy(Settled(), mode=mode)
    row = policy.examined(OnPrompts())
    assert row.keys() == {f"restoration/gate_{k}/unread" for k in MEASURED}  # of the coin nothing is known
    found = effects(policy, OnPrompts(), OnPrompts().prompts(0, 4), draws=8)
    assert [(r["site"], r["settled"], r["dead"]) for r in found] == [
        ("coin", True, False), ("unread", False, True), ("all", False, True),
    ]  # fmt: skip
    assert told(found)["numbers"]["dead"] == "unread"
    alone = told([found[0]])
    assert alone["status"] == "warning"
    assert "certainty" not in alone
    for language in ("en", "zh"):
        assert "coin" in alone["sentence"].said(language).format(**alone["numbers"])


def test_an_evaluation_draws_and_scores_each_site_alone() -> None:
    class Counting(OnPrompts):
        scored = 0

        def score(self, prompts: list, outputs: list) -> Scores:
            self.scored += 1
            return super().score(prompts, outputs)

    task = Counting()
    StochasticPolicy(Settled(), mode="mode").examined(task)
    assert task.scored == 3  # the base and two sites


class Sites(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for i in range(17):
            x = x + gate(f"g{i}", Bernoulli(logits=torch.zeros(len(x))))[:, None, None, None]
        return x


def test_a_network_with_many_gates_is_left_to_check() -> None:
    network = Sites()
    network.w = nn.Parameter(torch.zeros(1))
    assert StochasticPolicy(network, mode="mode").examined(OnPrompts()) == {}


def test_the_report_has_a_table_of_gates() -> None:
    before = {"restoration/gate_effect/a&b": 0.5, "restoration/gate_reward_std/a&b": 0.01,
              "restoration/gate_headroom/a&b": 0.02}  # fmt: skip
    after = before | {"restoration/gate_headroom/a&b": 0.005, "restoration/gate_effect/rate": 0.0}
    made = sites([{"loss": 1.0}, before, {"loss": 0.5}, after], "en")
    assert made is not None
    assert "<b>a&amp;b</b></td><td>0.5 → 0.5</td><td>0.01 → 0.01</td><td>0.02 → 0.005</td>" in made[1]
    assert "<b>rate</b></td><td>dead: changes no output</td>" in made[1]
    settled = sites([before, {"restoration/gate_effect/rate": 0.2}], "en")  # the last evaluation drew one value of a&b
    assert settled is not None
    assert "<b>a&amp;b</b></td><td>settled: draws one value alone</td><td>0.01</td>" in settled[1]
    assert sites([{"loss": 1.0}], "en") is None


def test_draws_near_zero_that_differ_are_no_settled_gate():
    near = 1e-4 * torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0))
    assert _differs(near)
    assert not _differs(torch.zeros(3, 4, 2))
    assert not _differs(torch.ones(3, 4, 2) + 1e-6 * near)
