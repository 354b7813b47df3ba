"""An asynchronous run's log: what is old by design is not called a fault of the sampler."""

from __future__ import annotations

import pytest

from anygrpo.doctor import diagnose
from anygrpo.doctor.synthetic import flat, healthy, with_rows


def findings(data):
    return {f.rule: f for f in diagnose(data, {}, format="jsonl").findings}


def test_age_and_not_the_sampler_is_named_where_fresh_samples_agree():
    fresh = {0: {"staleness": 0.0, "kl/rollout": 0.0, "mismatch/ess": 1.0}}
    data = with_rows(healthy(staleness=flat(6.0), kl__rollout=flat(0.4), mismatch__ess=flat(0.2)), fresh)
    found = findings(data)
    assert found["too_stale"].severity == "warning"
    assert found["too_stale"].facts["age"] == pytest.approx(6, rel=0.05)
    assert found["too_stale"].facts["young"] == 0.0
    assert found["sampler_mismatch"].follows == "too_stale"


def test_a_tenth_of_the_steps_with_dropped_groups_is_a_warning_and_fewer_a_note():
    few = with_rows(healthy(queue__dropped=flat(0.0)), {5: {"queue/dropped": 3.0}})
    assert findings(few)["dropped_groups"].severity == "info"
    assert findings(few)["dropped_groups"].facts["total"] == 3.0
    many = with_rows(healthy(queue__dropped=flat(0.0)), {5 * i: {"queue/dropped": 1.0} for i in range(10)})
    assert findings(many)["dropped_groups"].severity == "warning"


def test_waiting_is_a_note_and_only_where_groups_are_sampled_beside_the_updates():
    waits = {"time__wait": flat(6.0), "time__step": flat(10.0)}
    assert findings(healthy(queue__finished=flat(1.0), **waits))["trainer_waits"].severity == "info"
    assert "trainer_waits" not in findings(healthy(**waits))
