"""The gradient of demonstrations is measured beside the others', on a policy without a supervised loss of its own."""

from __future__ import annotations

import pytest
from runs import run_of

from anygrpo.probes.learning import gradient_terms
from anygrpo.probes.subject import Subject


def test_demonstrations_are_a_term_of_their_own(tmp_path):
    run = run_of(tmp_path / "run", "--algorithm.lambda-supervised", "0.5", "--algorithm.beta", "0.1")
    subject = Subject(run, 0, 600)  # time for every group: fewer would depend on what else runs here
    half = gradient_terms(subject).numbers
    run.close()
    run = run_of(tmp_path / "whole", "--algorithm.lambda-supervised", "1.0", "--algorithm.beta", "0.1")
    subject = Subject(run, 0, 600)  # time for every group: fewer would depend on what else runs here
    whole = gradient_terms(subject).numbers
    run.close()
    assert whole.keys() >= {"norm/policy", "norm/kl", "norm/supervised"}
    assert whole["norm/supervised"] == pytest.approx(2 * half["norm/supervised"], rel=1e-4)
    assert whole["norm/policy"] == pytest.approx(half["norm/policy"], rel=1e-4)
