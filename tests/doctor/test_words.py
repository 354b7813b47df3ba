"""Every sentence exists in both languages, with the same facts, and can be said of every finding."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_rules import FIRES, SILENT

from anygrpo.doctor import diagnose
from anygrpo.doctor.autopsy import examine
from anygrpo.doctor.configs import parse, read_settings
from anygrpo.doctor.findings import Change, Finding
from anygrpo.doctor.prescriptions import advice
from anygrpo.doctor.rules import RULES
from anygrpo.doctor.settings import SETTINGS, concept_of, concepts_of
from anygrpo.doctor.words import number_text, tell
from anygrpo.doctor.words.tell import book, row_text
from anygrpo.errors import DataError

EN, ZH = book("en"), book("zh")


def braces(text: str) -> set[str]:
    return set(re.findall(r"{(\w+)", text))


def test_both_books_say_the_same_things() -> None:
    assert set(EN.rules) == set(ZH.rules) == set(RULES)
    for rule, entry in EN.rules.items():
        assert set(entry) == set(ZH.rules[rule]), rule
        assert {"title", "evidence", "cause", "prescription", "principle", "unlike"} <= set(entry)
        for key in entry:
            assert braces(entry[key]) == braces(ZH.rules[rule][key]), (rule, key)
    for part in ("verdicts", "advice", "labels", "autopsy", "cannot"):
        assert set(getattr(EN, part)) == set(getattr(ZH, part))


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_finding_can_be_told(lang: str) -> None:
    for case in (*FIRES.values(), *SILENT.values()):
        found = diagnose(*case, format="jsonl")
        for f in found.findings:
            told = tell(f, found.run, lang)
            assert told.title
            assert "{" not in told.evidence + told.prescription
            if f.severity != "info":
                assert told.prescription
    for numbers in ({"mean_ratio": 485165216, "policy_loss": 171531792}, {"advantage_std": ".0063", "queries": 640}):
        for f in examine(numbers).findings:
            assert tell(f, None, lang).evidence


def prescription(framework_rows: list[dict[str, float]], config: dict[str, object], rule: str) -> str:
    found = diagnose(framework_rows, config, format="jsonl")
    return tell(next(f for f in found.findings if f.rule == rule), found.run).prescription


def test_prescriptions_use_the_frameworks_own_words_and_values() -> None:
    data, _ = FIRES["truncation"]
    assert "Set `max_completion_length` to 1024 (now 512)." in prescription(data, {"max_length": 512}, "truncation")
    verl = [
        {"critic/score/mean": row["reward"], "response_length/clip_ratio": 0.6, "step": row["step"]} for row in data
    ]
    assert "`data.max_response_length`" in prescription(verl, {}, "truncation")


def test_a_cure_that_is_in_force_already_is_not_named() -> None:
    finding = Finding(
        "entropy_collapse", "likely", "serious", changes=(Change("clip_high", 0.28), Change("temperature", 1.0))
    )
    run = diagnose(FIRES["truncation"][0], {"temperature": 1, "clip_high": 0.2}, format="jsonl").run
    assert advice(finding, run, EN.advice) == ["Set `epsilon_high` to 0.28 (now 0.2)."]
    other = diagnose(FIRES["truncation"][0], {"temperature": 0.7, "clip_high": 0.28}, format="jsonl").run
    assert advice(finding, other, EN.advice) == ["Set `temperature` to 1 (now 0.7)."]


def test_every_change_names_a_known_concept() -> None:
    for case in FIRES.values():
        for f in diagnose(*case, format="jsonl").findings:
            for change in f.changes:
                assert isinstance(change, Change)
                assert change.concept in SETTINGS


@pytest.mark.parametrize(
    ("text", "suffix", "concept", "value"),
    [
        ("[optimizer]\nlearning_rate = 1e-6\n[algorithm]\ngroup_size = 8", ".toml", "learning_rate", 1e-6),
        (
            "actor_rollout_ref:\n  actor:\n    optim: {lr: 1e-6}\ncritic:\n  optim: {lr: 1e-5}",
            ".yaml",
            "learning_rate",
            1e-6,
        ),
        ('{"num_generations": 16, "beta": 0.04}', ".json", "group_size", 16),
        ("python train.py --num_generations 8 \\\n  --learning_rate 2e-6", ".sh", "learning_rate", 2e-6),
        ("trainer.x=1 actor_rollout_ref.rollout.n=5 data.max_response_length=512", ".sh", "group_size", 5),
    ],
)
def test_settings_of_any_framework(text: str, suffix: str, concept: str, value: float) -> None:
    assert concepts_of(parse(text, suffix))[concept] == value


def test_settings_file_that_says_nothing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("nothing here")
    with pytest.raises(DataError):
        read_settings(path)
    with pytest.raises(DataError):
        read_settings(tmp_path / "none.yaml")


def test_concepts_do_not_cross_models() -> None:
    assert concept_of("critic.optim.lr") is None
    assert concept_of("actor_rollout_ref.actor.optim.lr") == "learning_rate"


def test_small_texts() -> None:
    assert row_text((1, 2, 3, 7)) == "1-3, 7"
    assert row_text(tuple(range(0, 20, 2))) == "0, 2, 4, 6, ..."
    assert [number_text(x) for x in (0.12345, 512.0, 1234.5, 3e-7, "?", 7)] == [
        "0.123",
        "512",
        "1234",
        "3e-07",
        "?",
        "7",
    ]


def test_an_unknown_fact_does_not_hide() -> None:
    with pytest.raises(KeyError):
        tell(Finding("no_learning", "likely", "warning"), diagnose(FIRES["no_learning"][0]).run)


def test_what_a_log_does_not_hold_is_said_in_words():
    from anygrpo.doctor.names import CONCEPTS
    from anygrpo.doctor.words.shared import SEEN_AS
    from anygrpo.doctor.words.tell import unseen

    assert set(SEEN_AS) == set(CONCEPTS.values())
    assert unseen(("kl_to_reference", "lr"), "en") == "KL to the reference policy, learning rate"
    assert unseen(("kl_to_reference", "lr"), "zh") == "与参考策略的 KL、学习率"
