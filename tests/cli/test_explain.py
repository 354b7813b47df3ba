"""`anygrpo explain`: from the cards, in both languages; and what --dry-run says of presets."""

from __future__ import annotations

import json
import typing

import pytest
from runs import table, toml_of

from anygrpo.choices.catalogue import CARDS, PRESETS
from anygrpo.choices.settings import SETTINGS
from anygrpo.cli.main import main
from anygrpo.families import families, kind_of, resolve
from anygrpo.metrics.catalogue import describe

WORDS = sorted({*PRESETS, *CARDS, *SETTINGS, *(name for cards in CARDS.values() for name in cards)})
OWN = [card for family in families() for text in family.cards for card in resolve(text)]


def said(capsys, *arguments):
    assert main(["explain", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("word", WORDS)
def test_every_word_is_explained(capsys, word, lang):
    text = said(capsys, word, "--lang", lang)
    assert word in text
    assert all(entry["title"] for entry in json.loads(said(capsys, word, "--lang", lang, "--json")))


@pytest.mark.parametrize("card", OWN, ids=lambda card: card.name)
def test_a_familys_reward_is_explained_in_both_languages(capsys, card):
    assert card.sentence.en in said(capsys, card.name)
    chinese = said(capsys, card.name, "--lang", "zh")
    assert card.sentence.zh in chinese
    assert all(words.zh in chinese for words in card.keys.values())


def test_every_reward_of_the_families_has_a_card():
    """Modes of selection, parts of motions, kinds of pictures' rewards, terms of restoration: none without a card."""
    names = {card.name for card in OWN}
    modes = resolve(kind_of("task", "demonstrations").settings).model_fields["reward"].annotation
    assert set(typing.get_args(modes.model_fields["mode"].annotation)) <= names
    assert set(resolve("anygrpo.denoising.motion.task:PARTS")) <= names
    assert set(resolve("anygrpo.denoising.image.rewards:_BUILDERS")) - {"function"} <= names
    assert {"psnr", "ssim", "perceptual"} <= names


@pytest.mark.parametrize(
    ("word", "name"), [("clip/high", "clip/high"), ("fid", "eval/motion/fid"), ("psnr", "eval/psnr")]
)
def test_a_metric_is_explained_by_its_name_or_its_last_word(capsys, word, name):
    assert describe(name).meaning.en in said(capsys, word)
    assert describe(name).meaning.zh in said(capsys, word, "--lang", "zh")


def test_gspo(capsys):
    text = said(capsys, "gspo")
    for part in ("gspo: objective", "2507.18071", "clip_low = 0.0003", 'reduction = "sequence_mean"', "clip/high"):
        assert part in text
    assert "gspo: preset" in text
    assert "minibatches = 4" in text
    chinese = said(capsys, "gspo", "--lang", "zh")
    assert "长度归一化比值" in chinese
    assert "公式" in chinese


def test_without_a_word_all_names_are_listed(capsys):
    text = said(capsys)
    for cards in CARDS.values():
        assert all(name in text for name in cards)
    assert all(name in text for name in PRESETS)
    assert "path.py:name" in text


def test_a_key_has_its_type_default_and_readers(capsys):
    text = said(capsys, "--json", "algorithm.dual-clip")
    (entry,) = json.loads(text)
    assert (entry["type"], entry["default"], entry["read by"]) == ("number > 1 | none", "none", ["ppo", "gspo"])


def test_an_unknown_word(capsys):
    assert main(["explain", "gsppo"]) == 2
    assert "did you mean 'gspo'" in capsys.readouterr().err


def test_a_dry_run_prints_what_a_preset_sets(tmp_path, capsys):
    algorithm = {**table()["algorithm"], "preset": "dapo", "clip_high": 0.3}
    recipe = toml_of(tmp_path / "run", tmp_path / "recipe.toml", algorithm=algorithm)
    assert main(["train", str(recipe), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert '# grpo: preset "dapo" sets {"objective": "ppo", "clip_low": 0.2,' in out
    assert "clip_high = 0.3" in out
    assert '"clip_high"' not in out


def test_a_stage_may_change_the_preset(tmp_path, capsys):
    stages = [{"name": "a", "steps": 1}, {"name": "b", "steps": 1, "algorithm": {"preset": "gspo"}}]
    algorithm = {**table()["algorithm"], "preset": "dapo"}
    recipe = toml_of(tmp_path / "run", tmp_path / "recipe.toml", algorithm=algorithm, stages=stages)
    assert main(["train", str(recipe), "--dry-run"]) == 0
    assert '# b: preset "gspo" sets {"clip_low": 0.0003' in capsys.readouterr().out.replace('"objective": "gspo", ', "")


@pytest.mark.parametrize(
    ("command", "word", "answer"),
    [
        ("explain", "clip_epsilon", "algorithm.clip_low and algorithm.clip_high"),
        ("explain", "KL_BETA", "algorithm.beta"),
        ("explain", "zscor", "did you mean 'zscore'?"),
        ("explain", "nothing_of_this", "anygrpo explain lists"),
        ("settings", "causal_ml", "did you mean 'causal_lm'?"),
        ("settings", "kl_beta", "algorithm.beta"),
    ],
)
def test_an_unknown_word_is_answered_by_its_meaning(command, word, answer, capsys):
    assert main([command, word]) == 2
    assert answer in capsys.readouterr().err
