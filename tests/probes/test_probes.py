"""Each probe sees its own fault on a real policy, and none of them objects to the healthy one."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from anygrpo.probes import PROBES, Outcome, check
from anygrpo.probes.check import temporary_run
from anygrpo.probes.parity import ratio_one
from anygrpo.probes.rate import Moved, floor, rate_for
from anygrpo.probes.subject import Subject
from anygrpo.recipe.recipe import Recipe


def outcomes(recipe: Recipe) -> dict[str, Outcome]:
    return {o.probe: o for o in check(recipe, seconds=2).outcomes}


def test_a_healthy_recipe_has_no_objection(letters_recipe):
    found = outcomes(letters_recipe(algorithm={"beta": 0.01, "entropy_coef": 0.01, "filters": []}))
    assert list(found) == list(PROBES)
    assert {n: o.say("en") for n, o in found.items() if o.status == "serious"} == {}
    assert found["ratio_one"].numbers["abs_max"] < 1e-5
    assert found["steering"].numbers["gained"] > 0.01
    assert found["live_groups"].numbers["live"] > 0.7
    assert found["gold_and_wrong"].numbers["gold"] == 1.0


FAULTS = [
    ({"policy": {"scoring_temperature": 0.5}}, "ratio_one", "other than what sampled it"),
    ({"policy": {"dropout": 0.3}}, "replay_parity", "random"),
    ({"policy": {"wrong_reference": 0.3}, "algorithm": {"beta": 0.1}}, "reference_kl", "not the policy"),
    ({"policy": {"one_seed": True}}, "sampling", "very same"),
    ({"policy": {"frozen": True}}, "trainable", "none of the"),
    ({"policy": {"no_end": True}}, "truncation", "cut off"),
    ({"task": {"reward": "constant"}}, "live_groups", "0% of"),
    ({"task": {"reward": "sign"}}, "gold_and_wrong", "not rewarded above"),
    ({"algorithm": {"lambda_pg": -1.0}}, "steering", "not followed"),
    ({"optimizer": {"learning_rate": 1e-8}}, "learning_rate", "cannot change"),
    ({"optimizer": {"learning_rate": 0.5}}, "learning_rate", "too far"),
]


@pytest.mark.parametrize(("change", "probe", "words"), FAULTS, ids=[f"{p}-{i}" for i, (_, p, _) in enumerate(FAULTS)])
def test_a_fault_is_serious_in_its_own_probe(letters_recipe, change, probe, words):
    outcome = outcomes(letters_recipe(**change))[probe]
    assert outcome.status == "serious", outcome
    assert words in outcome.say("en")
    assert outcome.say("zh") != outcome.say("en")


def test_random_scoring_explains_what_follows_from_it(letters_recipe):
    found = outcomes(letters_recipe({"dropout": 0.3}, algorithm={"beta": 0.1}))
    assert [found[n].status for n in ("reference_kl", "learning_rate", "steering")] == ["not applicable"] * 3


def test_sampler_and_scorer_far_apart_break_the_markov_bound(letters_recipe):
    found = outcomes(letters_recipe({"scoring_temperature": 0.01}))
    assert found["markov_bound"].status == "serious"
    assert found["markov_bound"].certainty == "certain"
    assert found["markov_bound"].numbers["bound"] < 1e-6


def test_a_component_that_is_never_earned_is_named(letters_recipe):
    found = outcomes(letters_recipe(task={"reward": "format"}))
    assert found["components"].status == "warning"
    assert "format = 0" in found["components"].say("en")


def test_a_dominating_kl_is_a_warning(letters_recipe):
    found = outcomes(letters_recipe(algorithm={"beta": 300.0}))
    assert found["gradient_terms"].status == "warning"
    assert found["gradient_terms"].numbers["norm/kl"] > found["gradient_terms"].numbers["norm/policy"]


def test_normalisers_that_cannot_differ_are_named(letters_recipe):
    rows = outcomes(letters_recipe(algorithm={"group_size": 2}))["equivalent_settings"].rows
    relation = {r["setting"]: r["relation"] for r in rows}
    # two samples a group: leave-one-out is twice the centred reward, so neither differs in direction from the other
    assert relation["advantage = components"] == "equal"
    rows = outcomes(letters_recipe(algorithm={"group_size": 2, "advantage": "centred"}))["equivalent_settings"].rows
    assert {r["setting"]: r["relation"] for r in rows}["advantage = leave_one_out"] == "proportional"


def test_check_restores_every_weight_bit_for_bit(letters_recipe):
    recipe = letters_recipe(algorithm={"beta": 0.05})
    with temporary_run(recipe) as run:
        subject = Subject(run, 0, 2)
        before = {n: p.detach().clone() for n, p in subject.module.named_parameters()}
        for probe in PROBES.values():
            probe(subject)
        assert all(torch.equal(before[n], p) for n, p in subject.module.named_parameters())
        assert all(p.grad is None for p in subject.module.parameters())


def test_check_leaves_no_folder_and_the_random_state_alone(letters_recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    check(letters_recipe(), seconds=1)
    assert torch.equal(torch.rand(3), expected)
    assert list(tmp_path.iterdir()) == []


def test_the_recommended_rate_moves_the_stated_kl(letters_recipe):
    """Recommend, then measure at that rate: within a factor of 2 of the target."""
    from anygrpo.probes.rate import _held_out, find_rate, measure

    with temporary_run(letters_recipe()) as run:
        subject = Subject(run, 0, 2)
        rate = find_rate(subject, target=2e-4).numbers["recommended"]
        moved = measure(subject, subject.batch, _held_out(subject), [rate])[0]
    assert 1e-4 < moved.kl < 4e-4


def test_rates_are_read_off_a_power_law():
    table = [Moved(r, 3.0 * r**2, 0.0, 0.0) for r in (1e-5, 1e-4, 1e-3)]
    for target in (3e-12 * 4, 3e-8, 3e-4):  # below, inside and above what was measured
        assert rate_for(table, target) == pytest.approx(math.sqrt(target / 3.0), rel=1e-6)
    assert rate_for([Moved(1e-3, 0.0, 0.0, 0.0)], 1e-4) is None


def test_what_rounding_moves_is_not_taken_for_movement() -> None:
    """A small language model in bfloat16, as measured: the first four rates show rounding and nothing else."""
    measured = [
        (1e-6, 1.9e-3),
        (5.18e-6, 1.98e-3),
        (2.68e-5, 1.41e-3),
        (1.39e-4, 1.7e-3),
        (4e-4, 9.38e-3),
        (7.2e-4, 3.7e-2),
    ]
    table = [Moved(rate, kl, 0.0, 0.0) for rate, kl in measured]
    assert floor(table) == 1.98e-3
    assert rate_for(table, 1e-3) == pytest.approx(4e-4 * math.sqrt(1e-3 / 7.4e-3), rel=1e-6)  # without: 7e-7
    assert floor([Moved(r, 3.0 * r * r, 0.0, 0.0) for r in (1e-6, 1e-5, 1e-4)]) == 0.0
    assert rate_for(table[:4], 1e-3) is None


def test_a_probe_that_raises_is_a_serious_outcome(letters_recipe, monkeypatch):
    def broken(subject: Subject) -> Outcome:
        raise RuntimeError("no such thing")

    monkeypatch.setitem(PROBES, "components", broken)
    outcome = outcomes(letters_recipe())["components"]
    assert outcome.status == "serious"
    assert "no such thing" in outcome.say("en")


@pytest.mark.parametrize("method", ["supervised", "rce"])
def test_a_stage_on_stored_answers_is_probed_without_asking_it_to_sample(letters_recipe, method):
    recipe = letters_recipe(stages=[{"name": "warm", "method": method, "steps": 20}, {"name": "rl", "steps": 20}])
    found = {o.probe: o for o in check(recipe, stage="warm", seconds=1).outcomes}
    for probe in ("ratio_one", "sampling", "truncation", "repeatable_reward", "live_groups"):
        assert found[probe].status == "not applicable", found[probe]
    assert found["trainable"].status == "ok"
    assert found["learning_rate"].status == "ok"
    assert found["learning_rate"].numbers["kl"] > 0
    assert not [o.say("en") for o in found.values() if o.status == "serious"]


def test_a_stage_after_another_is_probed_against_its_own_start(letters_recipe):
    stages = [{"name": "one", "steps": 5}, {"name": "two", "steps": 20, "algorithm": {"beta": 0.1}}]
    report = check(letters_recipe(stages=stages), stage="two", seconds=1)
    found = {o.probe: o for o in report.outcomes}
    assert (report.stage, found["reference_kl"].status) == ("two", "ok")
    assert found["learning_rate"].numbers["updates"] == 20


def test_written_terms_that_can_do_nothing_are_named(letters_recipe):
    written = {"clip_low": 0.2, "clip_high": 0.2, "beta": 0.0, "advantage": "running"}
    idle = outcomes(letters_recipe(algorithm=written, optimizer={"learning_rate": 0.01, "grad_clip": 1e9}))["no_effect"]
    assert idle.status == "warning"
    for words in ("ratio clip", "beta = 0", "grad_clip = 1e+09"):
        assert words in idle.say("en")
    acting = written | {"minibatches": 2, "beta": 0.1, "advantage": "zscore"}
    assert outcomes(letters_recipe(algorithm=acting))["no_effect"].status == "ok"


@pytest.mark.parametrize(("blocks", "dtype", "status"), [
    (0.15, torch.bfloat16, "ok"),  # what other blocks change explains it
    (0.0, torch.bfloat16, "serious"),
    (0.15, torch.float32, "serious"),
])  # fmt: skip
def test_in_half_precision_a_ratio_is_judged_by_what_rounding_does(blocks, dtype, status):
    old, mask = torch.full((4, 3), -1.0), torch.ones(4, 3, dtype=torch.bool)
    batch = SimpleNamespace(old=old, mask=mask)
    subject = SimpleNamespace(
        samples_itself=True,
        exact=dtype is torch.float32,
        block_rows=4,
        everything=lambda: batch,
        score=lambda batch, rows=None: (old + 0.2 + (0.0 if rows is None else blocks)).double(),
    )
    assert ratio_one(subject).status == status


def test_an_advantage_of_the_users_own_is_compared_too(letters_recipe, tmp_path):
    own = tmp_path / "mine.py"
    code = "def twice_centred(rewards, valid, options):\n    return 2 * (rewards - rewards.mean(1, keepdim=True))\n"
    own.write_text(code)
    advantage = f"{own}:twice_centred"
    found = outcomes(letters_recipe(algorithm={"group_size": 4, "advantage": advantage}))["equivalent_settings"]
    assert found.numbers["advantage"] == advantage
    assert {r["setting"]: r["relation"] for r in found.rows}["advantage = centred"] == "proportional"
