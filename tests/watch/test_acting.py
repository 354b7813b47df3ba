"""What is done about which finding, in what order, how often, and how it is taken back."""

from __future__ import annotations

import math

import pytest

from anygrpo.doctor import Finding
from anygrpo.watch.acting import Actor
from anygrpo.watch.levers import Setting


class Recorder:
    """Levers that only remember."""

    def __init__(self, checkpoint: str | None = "step_00000010") -> None:
        self.checkpoint, self.turned, self.stopped, self.back = checkpoint, [], [], []

    def turn(self, setting: Setting) -> None:
        self.turned.append(setting)

    def roll_back(self, step: int) -> str | None:
        self.back.append(step)
        return self.checkpoint

    def stop(self, reason: str) -> None:
        self.stopped.append(reason)


def at_once(levers: Recorder, max_actions: int, **settings) -> Actor:
    """An actor that believes every row, so that each remedy is seen by itself."""
    return Actor(levers, max_actions, belief=None, **settings)


def row(step: int, log_ratio: float = 0.0, **more: float) -> dict[str, float]:
    return {"step": step, "log_ratio/abs_max": log_ratio, "grad_norm/total": 1.0, **more}


def finding(rule: str, severity: str = "serious", certainty: str = "likely") -> Finding:
    return Finding(rule, certainty, severity, (3,))


@pytest.mark.parametrize(
    ("log_ratio", "expected", "back"),
    [
        (4.9, None, False),
        (7.0, Setting(0.1, 1.0, 0.5, 1.0), False),
        (15.0, Setting(0.05, 1.0, 1.0, 0.5), False),
        (25.0, Setting(0.01, 1.0, 2.0, 0.5), True),
        (math.nan, Setting(0.01, 1.0, 2.0, 0.5), True),
    ],
)
def test_tiers_of_the_log_ratio(log_ratio, expected, back):
    levers = Recorder()
    action = at_once(levers, 5).consider(row(20, log_ratio), [])
    assert levers.turned == ([expected] if expected else [])
    assert bool(levers.back) is back
    assert (action is None) == (expected is None)


def test_tiers_are_in_units_of_the_policys_own_clip_range():
    levers = Recorder()
    action = at_once(levers, 5, unit=0.025 / 0.2).consider(row(20, 3.0), [])
    assert (action.kind, levers.back) == ("roll_back", [0])
    assert "is 24 x 0.125, above 20" in action.reason
    assert at_once(Recorder(), 5).consider(row(20, 3.0), []) is None


def test_roll_back_aims_before_the_first_sign():
    levers = Recorder()
    actor = at_once(levers, 5)
    for step in range(30):
        actor.consider(row(step), [])
    actor.consider(row(30, 6.0), [])  # lighter tier: turned, not rolled back
    actor.consider(row(31, 30.0), [])  # graver: at once, although the last action was a row ago
    assert levers.back == [29]
    actor = at_once(levers, 5)
    for step in range(30):
        actor.consider(row(step), [])
    actor.consider(row(30), [finding("kl_blowup")], since=12)
    assert levers.back[-1] == 11


def test_impossible_ratios_stop_the_run_and_turn_nothing():
    levers = Recorder()
    action = at_once(levers, 5).consider(
        row(3, 60.0), [finding("kl_blowup"), finding("markov_bound", certainty="certain")]
    )
    assert action.kind == "stop"
    assert levers.turned == []
    assert "markov_bound" in levers.stopped[0]


def test_impossible_ratios_after_sound_rows_are_a_step_too_far_and_go_back():
    """A scorer that is not the sampler is so from the first row; here the first rows' ratios were near 1."""
    levers = Recorder()
    actor = at_once(levers, 5, wait=0)
    for step in range(6):
        actor.consider(row(step), [])
    action = actor.consider(row(6, 444.0), [finding("markov_bound", certainty="certain")])
    assert (action.kind, action.rule) == ("roll_back", "log_ratio_explosion")
    assert levers.back == [5]
    actor.consider(row(6, 444.0), [finding("markov_bound", certainty="certain")])
    action = actor.consider(row(6, 444.0), [finding("markov_bound", certainty="certain")])
    assert action.kind == "stop"  # it came back after two roll-backs


def test_what_is_only_suspected_stops_nothing():
    """A log-ratio whose sign was not logged may be drift: the tier of its size applies."""
    levers = Recorder()
    action = at_once(levers, 5).consider(row(3, 60.0), [finding("markov_bound", certainty="ask")])
    assert (action.kind, action.rule) == ("roll_back", "log_ratio_explosion")
    assert levers.stopped == []


def test_three_broken_steps_in_a_row_go_back_two_do_not():
    levers = Recorder()
    actor = at_once(levers, 5)
    broken = {"grad_norm/total": math.nan}
    for step in (0, 1):
        assert actor.consider(row(step, **broken), []) is None
    actor.consider(row(2), [])
    for step in (3, 4):
        assert actor.consider(row(step, **broken), []) is None
    action = actor.consider(row(5, **broken), [])
    assert (action.kind, action.rule) == ("roll_back", "nonfinite")
    assert levers.back == [2]


def test_actions_are_bounded_and_spaced():
    levers = Recorder()
    actor = at_once(levers, max_actions=2, wait=10)
    for step in range(60):
        actor.consider(row(step, 7.0), [])
    assert [a.step for a in actor.actions] == [0, 11]


def test_what_comes_back_after_two_roll_backs_stops_the_run():
    levers = Recorder()
    actor = at_once(levers, 9, wait=0)
    for step in range(3):
        actor.consider(row(step), [finding("validation_drop", "warning")])
    assert [a.kind for a in actor.actions] == ["roll_back", "roll_back", "stop"]


def test_without_a_checkpoint_it_turns_only():
    action = at_once(Recorder(checkpoint=None), 5).consider(row(4), [finding("kl_blowup")])
    assert (action.kind, action.checkpoint) == ("turn", None)
    assert action.after == Setting(1 / 3, 5.0, 0.05, 1.0)


def test_a_calm_run_gets_its_own_settings_back():
    levers = Recorder()
    actor = at_once(levers, 5, calm=20)
    actor.consider(row(0, 25.0), [])
    for step in range(1, 100):
        actor.consider(row(step), [])
    kinds = [a.kind for a in actor.actions]
    assert kinds == ["roll_back", "relax", "relax", "relax"]
    rates = [a.after.learning_rate for a in actor.actions]
    assert rates == pytest.approx([0.01, 0.1, 0.1**0.5, 1.0])
    assert levers.turned[-1] == Setting()
    assert actor.taken == 1


def test_notes_and_unknown_rules_do_nothing():
    levers = Recorder()
    assert at_once(levers, 5).consider(row(0), [finding("kl_blowup", "info"), finding("starved_groups")]) is None


def test_an_action_tells_its_reason_and_its_numbers():
    text = at_once(Recorder(), 5).consider(row(20, 25.0), []).text()
    for part in ("log_ratio_explosion", "25", "above 20", "step_00000010", "learning_rate 1 -> 0.01", "clip 1 -> 0.5"):
        assert part in text
