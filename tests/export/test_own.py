"""A policy of the user's own leaves with a certificate from a process of its own, and comes back."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
from runs import TOYS, toml_of

import anygrpo
from anygrpo.cli.main import main
from anygrpo.core.build import build_task
from anygrpo.core.policy import Policy
from anygrpo.core.tree import Shared
from anygrpo.errors import ConfigError, DataError
from anygrpo.export import own
from anygrpo.export.exporting import export

HEAD = f"import os, sys\nsys.path.insert(0, {str(TOYS.parent)!r})\nimport torch\nfrom toys import Bandit as Base\n"
UNSEEDED = (
    "class Own(Base):\n"
    "    def __init__(self, seed=0):\n"
    "        super().__init__(seed)\n"
    "        self.tilt = torch.tensor([b / 64 for b in os.urandom(5)])\n"
    "    def _log_probs(self, x):\n"
    "        return (self.net(x) + self.tilt).log_softmax(-1)\n"
)
LISTED = (
    "class Own(Base):\n"
    "    def sample(self, *a):\n"
    "        made = super().sample(*a)\n"
    "        made.samples['said'] = [{1, 2}]\n"
    "        return made\n"
)
OF_LISTS = (
    "class Own(Base):\n"
    "    def sample(self, prompts, *a):\n"
    "        return super().sample([{'x': torch.as_tensor(p['x'])} for p in prompts], *a)\n"
    "    def greedy(self, prompts):\n"
    "        return super().greedy([{'x': torch.as_tensor(p['x'])} for p in prompts])\n"
)


def trained(folder, code):
    (folder / "own.py").write_text(HEAD + code)
    policy = {"kind": "python", "function": f"{folder}/own.py:Own"}
    recipe = toml_of(folder / "run", folder / "r.toml", policy=policy, training={"steps": 2})
    assert main(["train", str(recipe), "--quiet"]) == 0
    return folder / "run"


def test_the_export_is_opened_in_a_process_of_its_own_and_says_the_same(tmp_path, capsys):
    run = trained(tmp_path, "class Own(Base):\n    pass\n")
    capsys.readouterr()
    assert main(["export", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["certificate"]
    assert {k: found[k] for k in ("compared", "prompts", "decisions", "other_greedy")} == {
        "compared": True, "prompts": 8, "decisions": 16, "other_greedy": 0,
    }  # fmt: skip
    assert 0 <= found["log_probs"] <= own.TOLERANCE
    here, back = anygrpo.load(run).policy, anygrpo.load(run / "export").policy
    assert torch.equal(here.net.weight, back.net.weight)
    assert main(["evaluate", str(run), str(run / "export"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gains"][0]["same_output"] == 1.0


def test_what_the_weights_do_not_hold_is_refused_and_taken_away(tmp_path, capsys):
    run = trained(tmp_path, UNSEEDED)
    assert main(["export", str(run)]) == 4
    said = capsys.readouterr().err
    assert "differ" in said
    assert "factory's seed" in said
    assert list((run / "export").iterdir()) == []


def test_samples_that_no_file_holds_are_said_not_to_be_compared(tmp_path, capsys):
    run = trained(tmp_path, LISTED)
    capsys.readouterr()
    assert main(["export", str(run)]) == 0
    found = json.loads((run / "export" / "export.json").read_text())
    assert found["compared"] is False
    assert "list" in found["why"]
    assert capsys.readouterr().out.splitlines()[-1] == f"not compared: {found['why']}"
    assert found["why"] in (run / "export" / "README.md").read_text()


@pytest.mark.parametrize("broken", ["drawn", "certify"])
def test_whatever_fails_leaves_no_export_that_was_not_tried(tmp_path, monkeypatch, broken):
    """An error of the policy's own code, or of the machine: neither is a refusal."""
    run = trained(tmp_path, "class Own(Base):\n    pass\n")

    def fails(*given):
        raise RuntimeError("no room")

    monkeypatch.setattr(own, broken, fails)
    with pytest.raises(RuntimeError, match="no room"):
        export(anygrpo.load(run), run / "export")
    assert list((run / "export").iterdir()) == []


@pytest.mark.parametrize(
    ("here", "there", "apart"),
    [
        ([[50000], [7]], [[50003], [7]], 1),  # within 1e-4 of each other as real numbers
        ([[2**53], [7]], [[2**53 + 1], [8]], 2),
        ([[50000.0], [7.0]], [[50003.0], [7.1]], 1),
        ([[True], [False]], [[True], [True]], 1),
        ([[50000], [7]], [[50000.0], [7.0]], 2),
        ([[1, 2], [3, 4]], [[1], [3]], 2),
        ([[1.0], [float("nan")]], [[1.0], [float("nan")]], 0),
    ],
)
def test_token_ids_are_compared_exactly(here, there, apart):
    assert own._rows_apart(*(own._greedy(Fixed(x), [0, 1]) for x in (there, here)), rows=2) == apart


class Fixed(Policy):
    def __init__(self, samples):
        self.made = torch.tensor(samples)

    def greedy(self, prompts):
        return SimpleNamespace(samples={"ids": self.made})

    decode = evaluate = reference = sample = trainable = None


def test_weights_of_another_shape_are_refused_by_name(tmp_path):
    run = trained(tmp_path, "class Own(Base):\n    pass\n")
    assert main(["export", str(run)]) == 0
    (tmp_path / "own.py").write_text(
        HEAD + "class Own(Base):\n    def __init__(self, seed=0):\n        super().__init__(seed)\n"
        "        self.net = torch.nn.Linear(5, 4)\n        self.fix_reference()\n"
    )
    with pytest.raises(ConfigError, match=r"weight: checkpoint \(5, 5\), model \(4, 5\)"):
        anygrpo.load(run / "export")


def test_a_tree_goes_through_a_file_whole():
    tree = {
        "a": torch.arange(3),
        "b": {"c": Shared({"x": torch.ones(2, 2)}, torch.tensor([1, 0])), "d": None},
        "e": 2.5,
    }
    tensors = {}
    form = json.loads(json.dumps(own._packed(tree, tensors)))
    back = own._unpacked(form, tensors)
    assert torch.equal(back["a"], tree["a"])
    assert back["b"] == tree["b"]
    assert back["e"] == 2.5


def test_a_policy_of_ones_own_is_applied_from_its_run_and_its_export(tmp_path, capsys):
    """Prompts in, its own outputs out; killed midway it goes on; drawn outputs depend on seed and prompt alone."""
    run = trained(tmp_path, OF_LISTS)
    assert main(["export", str(run)]) == 0
    opened = anygrpo.load(run)
    prompts = build_task(opened.recipe.task, 0).held_out()[:20]
    asked = tmp_path / "asked.jsonl"
    asked.write_text("".join(json.dumps({"x": p["x"].tolist()}) + "\n" for p in prompts))
    policy = opened.policy
    wanted = json.loads(json.dumps(policy.decode(policy.greedy(prompts).samples)))
    for place in (run, run / "checkpoints" / "best", run / "export"):
        out = tmp_path / f"{place.name}.jsonl"
        assert main(["apply", str(place), str(asked), "--out", str(out), "--quiet"]) == 0
        assert [json.loads(line)["outputs"] for line in out.read_text().splitlines()] == wanted
    whole = out.read_text()
    out.write_text(whole[: len(whole) // 2])
    anygrpo.load(run / "export").apply(asked, out)
    assert out.read_text() == whole
    drawn = [anygrpo.load(run).apply(p, seed=3, samples=2) for p in (prompts, prompts[:1])]
    assert len(drawn[0][0]["outputs"]) == 2
    assert drawn[0][0] == drawn[1][0]
    with pytest.raises(DataError, match="other weights or settings"):
        anygrpo.load(run).apply(asked, out, seed=3)
    with pytest.raises(DataError, match="no file"):
        anygrpo.load(run).apply(tmp_path / "gone.jsonl")
