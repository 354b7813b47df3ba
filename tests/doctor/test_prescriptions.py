"""What is prescribed exists: every setting against the frameworks' own argument lists, where they are installed."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from anygrpo.doctor import diagnose
from anygrpo.doctor.findings import Change, Finding
from anygrpo.doctor.prescriptions import advice, named, present, written
from anygrpo.doctor.rules import RULES
from anygrpo.doctor.settings import SETTINGS, VALUES
from anygrpo.doctor.synthetic import flat, healthy
from anygrpo.doctor.words.tell import book

SEEN = {
    "trl": "1.16.0", "verl": "0.9.1", "openrlhf": "0.11.2", "swift": "4.6.0",
}  # fmt: skip
"""The versions whose argument lists were read when these names were written."""


def folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} is not installed (names were checked against {SEEN[package]})")
    return Path(spec.origin).parent


def names(framework: str) -> list[str]:
    return [part for known in SETTINGS.values() if framework in known for part in known[framework].split(" and ")]


def test_trl_takes_every_argument_that_is_prescribed() -> None:
    source = (folder("trl") / "trainer" / "grpo_config.py").read_text("utf-8")
    transformers = pytest.importorskip("transformers")
    known = {f.name for f in dataclasses.fields(transformers.TrainingArguments)} | set(
        re.findall(r"^    (\w+):", source, re.M)
    )
    assert [n for n in names("trl") if n not in known] == []
    assert "dapo" in source


def test_trl_builds_with_every_value_that_any_rule_prescribes(tmp_path: Path) -> None:
    """Not only names: the real GRPOConfig takes each value, alone."""
    trl = pytest.importorskip("trl")
    put: set[tuple[str, float | int | str]] = set()
    for rule in RULES:
        case = getattr(importlib.import_module(f"anygrpo.doctor.rules.{rule}"), "fires", None)
        rows, settings = case() if case else ([], {})
        for found in diagnose(rows, settings, "jsonl").findings:
            for change, name in named(found, "trl"):
                text = written(change, "trl")
                if change.value is not None and text:
                    number = isinstance(change.value, int | float)
                    put.add((name, type(change.value)(float(text)) if number else text))
    assert len(put) > 10
    for name, value in sorted(put, key=str):
        given: dict[str, Any] = {"output_dir": str(tmp_path), "report_to": "none", "use_cpu": True, "bf16": False}
        trl.GRPOConfig(**(given | {name: value}))


def test_verl_has_every_path_that_is_prescribed() -> None:
    import yaml

    tree: Any = yaml.safe_load(
        (folder("verl") / "trainer" / "config" / "_generated_ppo_trainer.yaml").read_text("utf-8")
    )

    def holds(path: str) -> bool:
        found = tree
        for key in path.split("."):
            if not isinstance(found, dict) or key not in found:
                return False
            found = found[key]
        return True

    assert [n for n in names("verl") if not holds(n)] == []


def test_openrlhf_has_every_flag_that_is_prescribed() -> None:
    root = folder("openrlhf")
    text = "".join(p.read_text("utf-8") for p in root.rglob("*.py"))
    assert [n for n in names("openrlhf") if n not in text and n.replace("--actor.", "--") not in text] == []


def test_swift_has_every_flag_that_is_prescribed() -> None:
    """Its arguments are dataclasses over TRL's and transformers' own."""
    transformers = pytest.importorskip("transformers")
    files = [*folder("swift").rglob("arg*/**/*.py"), *folder("swift").rglob("rlhf_trainers/*.py")]
    files += (folder("trl") / "trainer").glob("*_config.py")
    known = {n for p in files for n in re.findall(r"^    (\w+)\s*:", p.read_text("utf-8"), re.M)}
    known |= {f.name for f in dataclasses.fields(transformers.TrainingArguments)}
    assert [n for n in names("ms-swift") if n.lstrip("-") not in known] == []


def test_our_own_recipes_take_every_setting_that_is_prescribed() -> None:
    from anygrpo.choices.catalogue import CARDS
    from anygrpo.recipe.algorithm import AlgorithmConfig

    fields = set(AlgorithmConfig.model_fields)
    ours = [n.removeprefix("algorithm.") for n in names("anygrpo") if n.startswith("algorithm.")]
    assert [n for n in ours if n not in fields and n != "group_size"] == []
    assert VALUES["loss_reduction", "token-mean"]["anygrpo"] in CARDS["reduction"]


@pytest.mark.parametrize(
    ("framework", "concept", "value", "text"),
    [
        ("trl", "loss_reduction", "token-mean", "dapo"), ("verl", "loss_reduction", "token-mean", "token-mean"),
        ("trl", "scale_rewards", "none", "none"), ("verl", "scale_rewards", "none", "False"),
        ("openrlhf", "dynamic_sampling", "true", ""), ("anygrpo", "dynamic_sampling", "true", "3"),
        ("trl", "clip", 0.1, "0.1"),
    ],
)  # fmt: skip
def test_values_are_written_as_each_framework_takes_them(framework: str, concept: str, value: Any, text: str) -> None:
    assert written(Change(concept, value), framework) == text


def test_two_settings_are_two_sentences_and_trl_has_no_ref_model() -> None:
    finding = Finding("x", "likely", "serious", changes=(Change("clip", 0.1), Change("reference_model")))
    assert [n for _, n in named(finding, "anygrpo")] == [
        "algorithm.clip_low",
        "algorithm.clip_high",
        "policy.reference",
    ]
    assert [n for _, n in named(finding, "trl")] == ["epsilon"]


def test_nobodys_trainer_gets_numbers_too() -> None:
    """The tiers of the log-ratio, in the words that most notes use."""
    rows = [
        {"step": r["step"], "mean_reward": r["reward"], "log_ratio_abs_max": 12.0}
        for r in healthy(20, reward=flat(0.4))
    ]
    found = diagnose(rows, format="console")
    first = next(f for f in found.findings if f.rule == "log_ratio_explosion")
    text = " ".join(advice(first, found.run, book("en").advice))
    for part in ("`learning_rate` to 5e-07", "`kl_beta` to 1", "`clip_epsilon` to 0.1"):
        assert part in text


def test_a_length_that_was_logged_is_no_setting() -> None:
    cut = {"completions__clipped_ratio": flat(0.7), "completions__mean_length": flat(270.0)}
    rows = [r | {"completions/max_length": 300.0} for r in healthy(40, **cut)]
    found = diagnose(rows, format="jsonl")
    assert "now 300" not in " ".join(advice(found.first, found.run, book("en").advice))  # type: ignore[arg-type]


def test_the_rate_in_force_is_not_that_of_a_supervised_stage_before() -> None:
    """A run folder's rows: imitation at 1e-3 has "loss/policy" too, but no ratios."""
    begun = [{"step": i, "lr": 1e-3, "loss/policy": 2.0} for i in range(10)]
    later = {"lr": 2e-5, "loss/policy": 0.0, "ratio/mean": 1.0, "reward/mean": 0.5}
    goes_on = [later | {"step": 10 + i} for i in range(9)]
    found = diagnose(begun + goes_on, format="jsonl")
    assert present(found.run, "learning_rate") == 2e-5
