"""The two public cases, and each inference by itself."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from anygrpo.cli.main import main
from anygrpo.doctor.autopsy import examine
from anygrpo.doctor.evidence.advantages import bound, group_from_bound
from anygrpo.doctor.printed import float32_step, measured, simplest
from anygrpo.errors import ConfigError

MOTION = {
    "mean_ratio": 485165216, "policy_loss": 171531792, "loss": 171551552, "kl": 197562.53, "beta": 0.1,
    "mean_advantage": 0, "std_reward": ".1766",
}  # fmt: skip


def said(numbers: dict[str, object]) -> dict[str, str]:
    return {f.rule: f.severity for f in examine(numbers).findings}


def test_the_motion_run() -> None:
    autopsy = examine(MOTION)
    assert autopsy.inferred == {"group_size": 2, "clamp": 20, "beta": 0.1, "live_groups": None}
    assert [f.rule for f in autopsy.findings] == [
        "saturated_clamp", "group_size_bound", "markov_bound", "beta_from_loss", "mean_advantage",
    ]  # fmt: skip
    assert {f.certainty for f in autopsy.findings} == {"certain"}
    size = next(f for f in autopsy.findings if f.rule == "group_size_bound")
    assert size.facts["share"] == "0.353553"
    assert size.facts["convention"] == "unbiased"
    assert next(f for f in autopsy.findings if f.rule == "mean_advantage").severity == "info"
    assert {"which_mismatch", "kl_share"} <= set(autopsy.open)


def test_beta_is_found_without_being_stated() -> None:
    assert examine({k: v for k, v in MOTION.items() if k != "beta"}).inferred["beta"] == 0.1


def test_a_beta_that_does_not_fit_is_said() -> None:
    found = examine(MOTION | {"beta": 0.04})
    assert found.inferred["beta"] == 0.1
    assert next(f for f in found.findings if f.rule == "beta_from_loss").severity == "warning"


@pytest.mark.parametrize("top", [".0072", ".0090"])
def test_the_selection_run(top: str) -> None:
    autopsy = examine({"advantage_std": ".0063", "advantage_max": top, "queries": 640, "normaliser": "zscore"})
    assert autopsy.inferred == {"group_size": None, "clamp": None, "beta": None, "live_groups": 4}
    starved = next(f for f in autopsy.findings if f.rule == "starved_groups")
    assert (starved.severity, starved.certainty) == ("serious", "certain")
    assert starved.facts["live"] == pytest.approx(4.032)


@pytest.mark.parametrize(("std", "size"), [(".378", 8), (".27", 15), (".6", None), (".57", 8)])
def test_binary_rewards_alone_give_ranks_a_small_std(std: str, size: int | None) -> None:
    """One right of 8: ranks 1 and 7 x (-1/7), std sqrt((1 + 7/49) / 8) = 1/sqrt(7) = .378, in every group."""
    found = examine({"advantage_std": std, "normaliser": "rank", "group_size": size})
    assert [(f.severity, f.certainty) for f in found.findings if f.rule == "rank_std"] in ([("warning", "ask")], [])
    assert {c.answer for c in found.claims} == {"open"}


def test_below_the_bound_with_ties_groups_are_dead_or_a_scale_acts() -> None:
    """G = 8 and .189 = .378 / 2: half of the groups, averaged, have no spread at least."""
    found = next(
        f
        for f in examine({"advantage_std": ".18898", "normaliser": "rank", "group_size": 8}).findings
        if f.rule == "rank_std"
    )
    assert (found.severity, found.certainty) == ("warning", "certain")
    assert found.facts["dead"] == pytest.approx(0.5, abs=1e-4)


def test_plain_ranks_cannot_have_that_std() -> None:
    assert said({"advantage_std": ".0063", "normaliser": "rank", "group_size": 5})["rank_std"] == "serious"
    assert "rank_std" not in said({"advantage_std": ".7071", "normaliser": "rank", "group_size": 5})


def test_a_floor_gives_the_spread_of_the_rewards() -> None:
    autopsy = examine({"advantage_std": ".006", "normaliser": "zscore", "std_floor": ".1"})
    found = next(f for f in autopsy.findings if f.rule == "zscore_std")
    assert found.facts["reward"] == pytest.approx(0.0006)


def test_pooled_std_with_a_full_sized_maximum() -> None:
    """64 groups of 8, 16 live: pooled variance = 16 x 7 / 511."""
    std = math.sqrt(16 * 7 / 511)
    autopsy = examine({"advantage_std": f"{std:.5f}", "advantage_max": "2.475", "queries": 64})
    assert autopsy.inferred["group_size"] == 8
    assert autopsy.inferred["live_groups"] == 16


def test_what_cannot_be_concluded_stays_open() -> None:
    autopsy = examine({"advantage_std": ".5", "queries": 640})
    assert autopsy.inferred["live_groups"] is None
    assert "two_readings" in autopsy.open
    assert "no_queries" in examine({"advantage_std": ".5"}).open
    assert examine({"mean_ratio": 1.02}).findings == []
    assert examine({"mean_ratio": 485000000}).inferred["clamp"] is None  # near e^20 and not on it


def test_mean_advantage_is_a_symptom_only_if_nothing_varies() -> None:
    assert said({"mean_advantage": 0, "std_reward": 0})["mean_advantage"] == "serious"
    assert said({"mean_advantage": 0, "std_reward": 0.2})["mean_advantage"] == "info"


def test_bounds() -> None:
    assert [round(bound(g), 3) for g in (2, 4, 8, 16)] == [0.707, 1.5, 2.475, 3.75]
    assert group_from_bound(2.4748) == 8
    assert group_from_bound(2.0) is None


def test_numbers_know_their_printing() -> None:
    m = measured(".0063")
    assert (m.low, m.high) == pytest.approx((0.00625, 0.00635))
    assert measured(485165216).half == 16
    assert float32_step(485165216.0) == 32
    assert simplest(0.0999, 0.1001) == 0.1
    assert simplest(0.123456, 0.123457) is None


@pytest.mark.parametrize(
    "numbers", [{}, {"mean_ratios": 1}, {"kl": "many"}, {"kl": math.inf}, {"kl": 1, "normaliser": "magic"}]
)
def test_nonsense_is_refused(numbers: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as error:
        examine(numbers)
    assert error.value.cure


@pytest.mark.parametrize(
    ("top", "size"),
    [("3.5", None), ("3.47", None), ("3.4744", 14), ("0.7071", 2), ("1.5", None), ("1.5000", 4)],
)
def test_a_maximum_is_read_as_a_bound_only_where_chance_hardly_meets_it(top: str, size: int | None) -> None:
    """3.5 is within printing of (14 - 1) / sqrt(14) = 3.4744, and a group of 16 may have it as well."""
    assert examine({"advantage_max": top, "group_size": 16}).inferred["group_size"] == size


def test_a_maximum_that_a_stated_group_allows_does_not_refute_it() -> None:
    found = examine({"advantage_max": "3.5", "group_size": 16, "normaliser": "zscore"})
    assert not [f for f in found.findings if f.rule == "group_size_bound"]


@pytest.mark.parametrize(
    ("loss", "answer"),
    [("0.2", "holds"), ("0.25", "holds"), ("0.3", "open"), ("0.30", "fails"), ("0.4", "fails")],
)
def test_a_loss_that_only_all_roundings_together_allow_is_not_told(
    loss: str, answer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """.1 + .05 x 2.0 = .2, each number half a digit off: .05 + .0025 and half a digit of the loss."""
    (tmp_path / "note.md").write_text(f"KL_BETA=0.05, loss={loss}, policy_loss=0.1, kl_penalty=2.0\n")
    assert main(["autopsy", str(tmp_path / "note.md"), "--json"]) == 0
    claims = {c["said"]: c["answer"] for c in json.loads(capsys.readouterr().out)["claims"]}
    assert next(a for c, a in claims.items() if c.startswith("loss")) == answer
