"""Tables of the restoration bench: pairs by name, means per picture, intervals over pictures and seeds."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "bench"


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location("restoration_table", FOLDER / "restoration_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.pop("restoration_table", None)
    spec.loader.exec_module(module)
    return module


def test_every_rival_is_compared_with_ours_and_with_its_own_oracle(table) -> None:
    pairs = table.compared(["fixed", "mean", "ours"], ["ours"])
    assert ("fixed:greedy", "ours:greedy") in pairs
    assert ("mean:greedy", "ours:greedy") in pairs
    assert ("fixed:greedy", "fixed:oracle") in pairs
    assert ("ours:greedy", "ours:oracle") in pairs


def test_gains_by_hand(table) -> None:
    names, pictures = ["noise", "haze"] * 3, ["a", "a", "b", "b", "c", "c"]
    base = torch.tensor([20.0, 10.0, 22.0, 12.0, 24.0, 14.0])
    gains = (torch.tensor([1.0, 3.0, 1.0, 5.0, 1.0, 4.0]), torch.tensor([1.0, 1.0, 1.0, 3.0, 1.0, 2.0]))

    def arm(x: torch.Tensor) -> dict:
        return {"greedy": {m: x.tolist() for m in table.METRICS}}

    results = [{"seed": s, "arms": {"fixed": arm(base), "ours": arm(base + g)}} for s, g in enumerate(gains)]
    rows = {r["degradation"]: r for r in table.table(results, names, pictures, "fixed:greedy", "ours:greedy")}
    assert rows["noise"]["psnr"] == pytest.approx(
        [22.0, 1.0, 0.025 ** (1 / 3), 2 - 0.025 ** (1 / 3)]
    )  # equal: 3 pictures miss so much
    assert rows["haze"]["psnr"][:2] == pytest.approx([12.0, 3.0])
    both = rows["all, over scenes and seeds"]["psnr"]
    assert both[:2] == pytest.approx([17.0, 2.0])
    # gains of seeds 2.5 and 1.5, of pictures 1.5, 2.5, 2: seeds alone are +-0.5, so the interval is wider than theirs
    assert both[2] < 1.5 < 2.5 < both[3]
