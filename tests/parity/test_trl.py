"""TRL as a product beside ours: the same weights, the same completions, five rollouts; both end with the same weights.

Needs TRL (`pip install trl`), which is no dependency of ours. The table is docs/parity.md.
"""

from __future__ import annotations

import pytest
from parity import apart, ours, theirs

pytest.importorskip("trl", reason="TRL is not installed: pip install trl")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

SAME = 2e-3
"""Float32 rounding of two implementations over up to 15 updates, as a share of the largest change of a weight."""
PLAIN = {"epsilon": 1e-4}
"""TRL adds 1e-4 to standard deviations."""
OWN_REDUCTION = {"cispo": ["token_mean"], "sapo": ["sequence_mean"]}
RANGES = {"ppo": (0.1, 0.2), "gspo": (0.01, 0.02), "cispo": (1.0, 0.1), "sapo": (0.2, 0.2)}
GRID = [
    {"objective": objective, "reduction": reduction, "advantage": advantage, "epochs": epochs,
     "clip_low": low, "clip_high": high}
    for objective, (low, high) in RANGES.items()
    for reduction in OWN_REDUCTION.get(objective, ["token_mean", "sequence_mean", "constant"])
    for advantage in ("zscore", "centred", "batch", "gdpo")
    for epochs in (1, 3)
]  # fmt: skip


def names(given):
    return "-".join(str(given[key]) for key in ("objective", "reduction", "advantage", "epochs"))


def same(folder, algorithm, optimizer=None, **more):
    made = ours(folder / "ours", algorithm, optimizer or {})
    found = apart(made, theirs(folder / "trl", made, {}, **more))
    print(f"parity {folder.name}: {found:.1e}")
    assert found < SAME


@pytest.mark.parametrize("given", GRID, ids=names)
def test_objective_reduction_normaliser_and_epochs(tmp_path, given):
    same(tmp_path, PLAIN | given)


@pytest.mark.parametrize(
    ("more", "optimizer"),
    [
        ({"beta": 0.1}, {}),
        ({"beta": 0.1, "epochs": 3, "kl": "k1"}, {}),
        ({"beta": 0.1, "objective": "sapo", "reduction": "sequence_mean", "epochs": 2}, {}),
        ({"entropy_coef": 0.05}, {}),
        ({"dual_clip": 1.5, "epochs": 3}, {}),
        ({"reduction": "constant", "horizon": 1}, {}),
        ({}, {"grad_clip": 0.05, "betas": [0.8, 0.95]}),
    ],
    ids=["k3", "k1", "sapo-k3", "entropy", "dual", "luspo", "optimizer"],
)
def test_terms_and_optimizer(tmp_path, more, optimizer):
    same(tmp_path, PLAIN | more, optimizer)


@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean", "constant"])
def test_accumulation_changes_nothing_on_either_side(tmp_path, reduction):
    same(tmp_path, PLAIN | {"reduction": reduction, "epochs": 2}, rows=4)


@pytest.mark.parametrize(
    ("given", "optimizer", "changed"),
    [
        ({"reduction": "token_mean"}, {}, {"loss_type": "grpo"}),
        ({"reduction": "token_mean"}, {}, {"loss_type": "bnpo", "rows": 4}),
        ({"beta": 0.3, "epochs": 3}, {}, {"use_bias_correction_kl": False}),
        ({"beta": 0.3, "epochs": 3, "objective": "gspo", "clip_low": 0.3, "clip_high": 0.3}, {}, {}),
        ({"entropy_coef": 0.3, "reduction": "sequence_mean"}, {}, {}),
        ({}, {"weight_decay": 0.1}, {}),
        ({"epochs": 3, "clip_low": 0.1, "clip_high": 0.1}, {}, {"epsilon": 0.9, "epsilon_high": 0.9}),
    ],
    ids=["loss_type", "bnpo", "kl-without-ratio", "gspo-kl", "entropy-mean", "weight_decay", "clip"],
)
def test_what_is_said_to_differ_does(tmp_path, given, optimizer, changed):
    changed = dict(changed)
    rows = {"rows": changed.pop("rows")} if "rows" in changed else {}
    made = ours(tmp_path / "ours", PLAIN | given, optimizer)
    found = apart(made, theirs(tmp_path / "trl", made, changed, **rows))
    print(f"parity {tmp_path.name}: {found:.1e}")
    assert found > SAME


def test_without_its_epsilon_the_weights_are_nearly_the_same(tmp_path):
    made = ours(tmp_path / "ours", {}, {})
    assert 1e-5 < apart(made, theirs(tmp_path / "trl", made, {})) < 0.05
