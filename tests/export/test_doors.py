"""What was trained can be opened, used, measured and taken away, by command and from Python."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from golden_runs import golden, trained
from runs import TOYS, toml_of

import anygrpo
from anygrpo.cli.main import main
from anygrpo.core.build import build_task
from anygrpo.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy")
    recipe = toml_of(folder / "run", folder / "recipe.toml")
    assert main(["train", str(recipe), "--quiet"]) == 0
    return folder / "run"


def test_a_run_is_opened_by_its_best_its_last_or_a_step(toy, monkeypatch):
    last, step = anygrpo.load(toy, "last"), anygrpo.load(toy, 8)
    assert (last.step, step.step) == (10, 8)
    assert not torch.equal(last.policy.net.weight, step.policy.net.weight)
    by_folder = anygrpo.load(toy / "checkpoints" / "step_00000008")
    assert torch.equal(by_folder.policy.net.weight, step.policy.net.weight)
    assert anygrpo.load(toy).step == anygrpo.load(toy / "checkpoints" / "best").step
    with pytest.raises(DataError, match=r"no checkpoint '7'(?s:.*)steps: 8, 10"):
        anygrpo.load(toy, "7")
    with pytest.raises(DataError, match="nothing that can be opened"):
        anygrpo.load(toy / "samples")
    with pytest.raises(DataError, match="nothing that can be opened"):
        anygrpo.load(str(toy / "nothing"))
    monkeypatch.chdir(toy.parent)
    with pytest.raises(DataError, match="nothing that can be opened"):  # not asked of the Hub
        anygrpo.load("run/nothing")
    with pytest.raises(DataError, match=r"'owner/nothing' is no path here, and cannot be had from the Hub"):
        anygrpo.load("owner/nothing")


def test_evaluation_gives_the_numbers_that_training_wrote(toy, capsys):
    assert main(["evaluate", str(toy), "--checkpoint", "last", "--json"]) == 0
    numbers = json.loads(capsys.readouterr().out)["runs"][0]["numbers"]
    rows = [json.loads(line) for line in (toy / "metrics.jsonl").read_text().splitlines()]
    written = {k: v for k, v in rows[-1].items() if k.startswith("eval/")}
    assert written
    assert {k: numbers[k] for k in written} == pytest.approx(written)


def test_a_run_is_compared_with_what_it_started_from(toy, capsys):
    """By the evaluation before its first step: the same rewards, by hand; not with other prompts."""
    assert main(["evaluate", str(toy), "--checkpoint", "last", "--json", "--out", str(toy.parent / "rows")]) == 0
    gain = json.loads(capsys.readouterr().out)["own_start"]
    files = toy / "evaluations" / "step_00000000.jsonl", toy.parent / "rows" / "0.jsonl"
    before, after = ([json.loads(line)["reward"] for line in f.read_text().splitlines()] for f in files)
    assert gain["prompts"] == len(before) == 200
    assert gain["gain"]["mean"] == pytest.approx((sum(after) - sum(before)) / 200)
    assert gain["gain"]["mean"] > 0
    assert main(["evaluate", str(toy), "--checkpoint", "last"]) == 0
    said = capsys.readouterr().out
    assert f"over what it started from, on the same 200 prompts: reward {gain['gain']['mean']:+.4f}" in said
    assert main(["evaluate", str(toy), "--task", str(toy / "config.toml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["own_start"] is None


def test_pass_at_k_and_the_number_of_prompts_are_the_recipes_own(tmp_path, capsys):
    """What training wrote is drawn from a seed of its step, on as many prompts as the recipe says."""
    recipe = toml_of(tmp_path / "run", tmp_path / "r.toml", training={"steps": 2},
                     evaluation={"every": 1, "prompts": 40, "pass_k": 2, "pass_samples": 3})  # fmt: skip
    assert main(["train", str(recipe), "--quiet"]) == 0
    capsys.readouterr()
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    written = {k: v for k, v in rows[-1].items() if k.startswith("eval/")}
    assert written["eval/prompts"] == 40
    assert 0 < written["eval/pass_at_2"] < 1
    assert main(["export", str(tmp_path / "run"), "--checkpoint", "last"]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), "--checkpoint", "last", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["numbers"] == pytest.approx(written)
    assert main(["evaluate", str(tmp_path / "run" / "export"), "--json"]) == 0  # its own recipe says on what
    numbers = json.loads(capsys.readouterr().out)["runs"][0]["numbers"]
    assert numbers["eval/reward"] == pytest.approx(written["eval/reward"])
    assert main(["evaluate", str(tmp_path / "run"), "--prompts", "7", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["numbers"]["eval/prompts"] == 7


def test_pass_at_k_without_a_rule_of_success_is_an_error_with_a_cure(tmp_path, capsys):
    (tmp_path / "task.py").write_text(
        f"import sys\nsys.path.insert(0, {str(TOYS.parent)!r})\nfrom toys import BestArm\n"
        "class Plain(BestArm):\n    success = None\n"
    )
    task = {"kind": "python", "function": f"{tmp_path}/task.py:Plain"}
    recipe = toml_of(tmp_path / "run", tmp_path / "r.toml", training={"steps": 1}, task=task)
    assert main(["train", str(recipe), "--quiet"]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), "--samples", "2", "--k", "2"]) == 2
    said = capsys.readouterr().err
    assert "nothing says when an answer of Plain is right" in said
    assert "evaluation.success" in said


def test_two_are_paired_and_samples_give_pass_at_k(toy, capsys):
    first = str(toy / "checkpoints" / "step_00000008")
    assert main(["evaluate", first, str(toy), "--samples", "4", "--k", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    samples = found["runs"][0]["samples"]
    means = [samples[f"pass_at_{k}"]["mean"] for k in (1, 2, 4)]
    assert means == sorted(means)
    assert samples["best"]["mean"] == pytest.approx(samples["pass_at_4"]["mean"])
    gain = found["gains"][0]["gain"]
    assert found["gains"][0]["prompts"] == 200
    assert gain["low"] < gain["mean"] < gain["high"]
    assert main(["evaluate", str(toy), "--task", str(toy / "config.toml")]) == 0
    assert "reward" in capsys.readouterr().out


def test_a_policy_of_ones_own_leaves_as_safetensors_with_a_card(toy, tmp_path, capsys):
    from safetensors.torch import load_file

    assert main(["export", str(toy), "--to", str(tmp_path / "out"), "--checkpoint", "last"]) == 0
    opened = anygrpo.load(toy, "last")
    weights = load_file(tmp_path / "out" / "model.safetensors")
    assert torch.equal(weights["weight"], opened.policy.net.weight)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| reward |" in card
    assert "not over seeds" in card
    capsys.readouterr()
    assert main(["export", str(toy), "--to", str(tmp_path / "out")]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_a_selector_leaves_picks_and_comes_back(tmp_path, capsys, monkeypatch):
    golden.candidates(tmp_path)
    run = trained(tmp_path, "selection_stored_first", stages=[{"name": "g", "source": "stored", "steps": 2}])
    assert main(["export", str(run)]) == 0
    here, back = anygrpo.load(run).policy, anygrpo.load(run / "export").policy
    for name, value in here.trainable().state_dict().items():
        assert torch.equal(value, back.trainable().state_dict()[name])
    capsys.readouterr()
    assert main(["evaluate", str(run), str(run / "export"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["gains"][0]["same_output"] == 1.0
    assert found["runs"][0]["numbers"] == found["runs"][1]["numbers"]
    width = here.config.features
    for name, count in (("queries", 70), ("candidates", 9)):
        table = np.random.default_rng(count).normal(size=(count, width)).astype(np.float32)
        np.savez(tmp_path / f"{name}.npz", ids=np.arange(count), embeddings=table)
    rows = {}
    for name, source in {"run": run, "export": run / "export"}.items():
        out = tmp_path / f"{name}.jsonl"
        words = ["apply", str(source), str(tmp_path / "queries.npz"), "--candidates", str(tmp_path / "candidates.npz")]
        assert main([*words, "--out", str(out), "--quiet"]) == 0
        rows[name] = [json.loads(line) for line in out.read_text().splitlines()]
    assert rows["run"] == rows["export"]
    monkeypatch.chdir(run)
    for name in ("queries", "candidates"):
        shutil.copyfile(tmp_path / f"{name}.npz", run / f"{name}.npz")
    lines: dict = {}
    exec((run / "export" / "README.md").read_text().partition("```python\n")[2].partition("```")[0], lines)
    assert [row["picks"] for row in lines["rows"]] == [row["picks"] for row in rows["run"]]
    text = (
        "import json, sys\nfrom anygrpo.selection.export import load\nfrom anygrpo.selection.apply import apply\n"
        "q, c = sys.argv[2:]\nprint(json.dumps(apply(load(sys.argv[1]), {'queries': q, 'candidates': c})))\n"
    )  # the three lines of the export's own page, in a process of their own
    words = [str(run / "export"), str(tmp_path / "queries.npz"), str(tmp_path / "candidates.npz")]
    done = subprocess.run([sys.executable, "-c", text, *words], capture_output=True, text=True, check=True)
    for here, there in zip(json.loads(done.stdout), rows["run"], strict=True):
        assert {k: v for k, v in here.items() if "prob" not in k} == {k: v for k, v in there.items() if "prob" not in k}
        assert here["probabilities"] == pytest.approx(there["probabilities"], abs=2e-6)  # other threads, other rounding
    assert len(rows["run"]) == 70
    assert all(0 < p <= 1 for row in rows["run"] for p in row["probabilities"])
    capsys.readouterr()
    assert main(["apply", str(run), str(tmp_path / "queries.npz"), "--out", str(tmp_path / "x"), "--draws", "2"]) == 2
    assert "not applied with 'draws'" in capsys.readouterr().err


def test_a_network_with_gates_leaves_and_restores_the_same(tmp_path):
    run = trained(tmp_path, "gates_of_a_user")
    opened = anygrpo.load(run)
    from anygrpo.gates.export import export

    prompt = build_task(opened.recipe.task, 0).prompts(0, 1)[0]
    example = [prompt[name][None] for name in opened.policy.inputs]
    export(opened.policy, tmp_path / "out", example)
    with pytest.raises(ConfigError, match="holds the code of its network"):
        anygrpo.load(tmp_path / "out")
    assert main(["apply", str(tmp_path / "out"), str(tmp_path), "--out", str(tmp_path / "x")]) == 2
    back = anygrpo.load(tmp_path / "out", trust=True).policy
    for name, value in opened.policy.trainable().state_dict().items():
        assert torch.equal(value.cpu(), back.trainable().state_dict()[name].cpu()), name


def test_a_language_model_leaves_applies_and_comes_back(tmp_path, capsys):
    golden.language(tmp_path)
    run = trained(tmp_path, "language_lora_centred_k3")
    assert main(["export", str(run), "--to", str(tmp_path / "adapter")]) == 0
    assert json.loads((tmp_path / "adapter" / "export.json").read_text())
    card = (tmp_path / "adapter" / "README.md").read_text()
    assert "vllm serve" in card
    assert "## Evaluation" in card
    assert "## Fingerprints" in card
    assert main(["export", str(run), "--to", str(tmp_path / "merged"), "--format", "merged"]) == 0
    capsys.readouterr()
    on = ["--policy.model", str(tmp_path / "adapter"), "--folder", str(tmp_path / "on"), "--training.steps", "1"]
    assert main(["train", str(tmp_path / "recipe.toml"), *on]) == 0
    said = f"starting from {tmp_path / 'adapter'}: its adapter is merged into {tmp_path}"
    assert said in capsys.readouterr().err
    assert f"{said}/model, and that is the reference" in (tmp_path / "on" / "log.txt").read_text()
    (tmp_path / "ask.txt").write_text("w1 w2\nw3 w4\n")
    answers = {}
    for name in ("run", "adapter", "merged"):
        out = tmp_path / f"{name}.jsonl"
        source = str(run if name == "run" else tmp_path / name)
        assert main(["apply", source, str(tmp_path / "ask.txt"), "--out", str(out), "--quiet"]) == 0
        answers[name] = [json.loads(line)["outputs"] for line in out.read_text().splitlines()]
    assert len(answers["run"]) == 2
    assert answers["run"] == answers["merged"] == answers["adapter"]
    file, out = str(tmp_path / "merged" / "model.safetensors"), tmp_path / "file.jsonl"
    like = ["--like", str(run / "config.toml"), "--quiet"]
    assert main(["apply", file, str(tmp_path / "ask.txt"), "--out", str(out), *like]) == 0
    assert [json.loads(line)["outputs"] for line in out.read_text().splitlines()] == answers["run"]
    capsys.readouterr()
    assert main(["evaluate", str(run), str(tmp_path / "merged"), str(tmp_path / "adapter"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [gain["same_output"] for gain in found["gains"]] == [1.0, 1.0]


@pytest.mark.parametrize(
    "recipe",
    [
        '[policy]\nkind = "python"\nfunction = "{here}/evil.py:f"\n[task]\nkind = "arithmetic"\n',
        '[policy]\nkind = "causal_lm"\nmodel = "x"\n[task]\nkind = "jsonl"\npath = "x"\n'
        '[[task.rewards]]\nfunction = "{here}/y/../evil.py:f"\n',
    ],
)
def test_code_beside_a_strangers_export_is_not_run(tmp_path, capsys, recipe):
    mark = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"import os\nos.mkdir({str(mark)!r})\ndef f(*a, **k): ...\n")
    (tmp_path / "recipe.toml").write_text(recipe.replace("{here}", str(tmp_path)))
    (tmp_path / "config.json").write_text('{"model_type": "llama", "auto_map": {"AutoConfig": "evil.C"}}')
    for words in (["apply", str(tmp_path), "hello", "--out", str(tmp_path / "o")], ["evaluate", str(tmp_path)]):
        assert main(words) in (2, 3), capsys.readouterr().err
        assert not mark.exists()
