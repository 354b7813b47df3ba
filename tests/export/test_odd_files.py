"""An export or a model from anybody: its JSON files may hold anything. Each command ends well, or says why not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from golden_runs import golden, trained

from anygrpo.cli.main import main
from anygrpo.errors import DataError
from anygrpo.models import loading

FINE = (0, 2, 3, 4, 5)
"""Exit codes of success or of an error that says what to change; 1 is "internal error"."""
ODD = (
    "{",
    "null",
    "[]",
    "{}",
    '{"files": [1], "base": 5, "format": [], "policy": 7, "source": 1, "weight_map": [1], "sites": null, "compared": 3,'
    ' "_class_name": 7, "model_type": ["x"], "architectures": 5, "eos_token_id": "x", "random_weights": "x"}',
    "[" * 100_000,
)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["language_lora_gspo_k2", "selection_digits", "gates_of_a_user", "motion_ddpm_full"])
def test_an_export_whose_json_is_anything(case, tmp_path, capsys):
    golden.make_files(tmp_path)
    run, good, odd = trained(tmp_path, case), tmp_path / "good", tmp_path / "odd"
    assert main(["export", str(run), "--checkpoint", "last", "--to", str(good)]) == 0
    for file in [f.relative_to(good) for f in good.rglob("*.json")]:
        for text in ODD:
            shutil.copytree(good, odd)
            (odd / file).write_text(text)
            commands = [
                ["evaluate", str(odd), "--prompts", "2"],
                ["apply", str(odd), "a", "--out", str(tmp_path / "o")],
            ]
            for words in commands:
                assert main(words) in FINE, (file, text[:40], words, capsys.readouterr().err[-600:])
            shutil.rmtree(odd)
            shutil.rmtree(tmp_path / "o", ignore_errors=True)


def test_a_model_whose_json_is_anything(tmp_path):
    """It loads, or is an error by name; nothing else leaves the library beneath."""
    golden.language(tmp_path)
    good = next(tmp_path.rglob("config.json")).parent
    ended: dict[str, int] = {}
    for file in sorted(f.name for f in good.glob("*.json")):
        for text in ODD:
            for name, load in (("tokenizer", loading.load_tokenizer), ("model", loading.load_model)):
                ended[name] = ended.get(name, 0) + _refused(load, good, file, text, tmp_path / "odd")
    assert ended["tokenizer"] >= len(ODD) - 1  # of tokenizer.json alone
    assert ended["model"] >= len(ODD) - 2  # of config.json alone


def _refused(load, good: Path, file: str, text: str, odd: Path) -> bool:
    shutil.copytree(good, odd)
    (odd / file).write_text(text)
    try:
        load(str(odd))
    except DataError as error:
        return str(odd) in error.what
    finally:
        shutil.rmtree(odd)
    return False


def test_end_tokens_of_a_model_that_are_no_numbers(tmp_path):
    golden.language(tmp_path)
    folder = next(tmp_path.rglob("config.json")).parent
    made = loading.load(str(folder))
    made.model.generation_config.eos_token_id = [2, "x"]
    with pytest.raises(DataError, match="eos_token_id = 'x' of the model is no number"):
        loading.end_ids(made.model, made.tokenizer)
