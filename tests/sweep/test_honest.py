"""The winner of a sweep without the luck of having been chosen, and intervals of all pairs at once."""

from __future__ import annotations

import pytest
import tomli_w
import torch
from sweeps import GRID, RECIPE, Study, answers

from anygrpo.cli.main import main
from anygrpo.core.intervals import t_quantile
from anygrpo.sweep.honest import chosen_anew, factor
from anygrpo.sweep.results import results, winner, worth


def test_the_best_of_equal_trials_is_no_better_than_they_are():
    """20 trials that are all right half the time, 50 prompts: the best shows .62, and is worth .5."""
    generator = torch.Generator().manual_seed(0)
    found = [chosen_anew((torch.rand(20, 50, generator=generator) < 0.5).double()) for _ in range(120)]
    assert sum(x.apparent for x in found) / 120 > 0.6
    assert sum(x.value for x in found) / 120 == pytest.approx(0.5, abs=0.02)
    assert sum(x.low <= 0.5 <= x.high for x in found) / 120 >= 0.9


def test_a_trial_that_is_really_better_keeps_its_value():
    generator = torch.Generator().manual_seed(1)
    share = torch.full((8, 1), 0.3)
    share[5] = 0.8
    found = chosen_anew((torch.rand(8, 200, generator=generator) < share).double())
    assert found.value == pytest.approx(found.apparent)
    assert found.low < 0.8 < found.high


def test_smaller_is_better_and_values_of_any_size():
    scores = torch.stack([torch.arange(6.0), torch.arange(6.0) + 10])
    found = chosen_anew(scores, sign=-1)
    assert (found.apparent, found.value, found.looks) == (2.5, pytest.approx(2.5), 2)
    with pytest.raises(ValueError, match="1 prompts"):
        chosen_anew(torch.zeros(3, 1))


def test_the_factor_by_hand():
    assert factor(None, 2) == pytest.approx(1.959964)
    assert factor([torch.rand(10), torch.rand(10)], 2) == pytest.approx(2.262157)  # t of 9 degrees of freedom
    assert factor(None, 5) == pytest.approx(2.807, abs=1e-3)  # Bonferroni: 10 pairs, z at 1 - .0025
    assert factor(None, 5, fewest=10) == pytest.approx(3.689662)  # t of 9 degrees of freedom at 1 - .0025
    same = torch.rand(100, generator=torch.Generator().manual_seed(0))
    assert factor([same, same, same], 3) == pytest.approx(1.984217)  # nothing differs: t of 99


@pytest.mark.parametrize("prompts", [10, 80])
def test_of_trials_that_are_equal_none_is_called_better_more_than_one_time_in_twenty(prompts):
    generator = torch.Generator().manual_seed(2)
    called = alone = 0
    for _ in range(100):
        table = torch.randn(8, prompts, generator=generator, dtype=torch.float64)
        gaps = table[:, None] - table[None]
        z = gaps.mean(-1).abs() / (gaps.std(-1) / prompts**0.5).clamp(min=1e-9)
        called += bool(z.max() > factor(list(table), 8))
        alone += bool(z.max() > 1.96)
    assert called <= 12
    assert alone > 40


def test_the_study_tells_what_its_winner_is_worth(tmp_path):
    for number, right in enumerate([range(58), range(20, 75), range(40, 92)]):
        answers(tmp_path, number, right)
    study = Study(a=0.58, b=0.55, c=0.52)
    rows = results(study, tmp_path)
    assert rows[0].factor > 2.2
    found = winner(study, tmp_path, rows)
    assert (found.apparent, found.looks, found.prompts) == (pytest.approx(0.58), 3, 100)
    assert found.value < 0.58
    assert "the best of 3 evaluations" in worth(found)
    assert winner(Study(a=0.9, b=0.8, c=0.7), tmp_path, results(Study(a=0.9, b=0.8, c=0.7), tmp_path)) is None


def test_trials_that_were_asked_other_prompts_are_not_paired(tmp_path):
    """A setting that changes the data gives other prompts the same numbers."""
    for number, task in enumerate("ppq"):
        answers(tmp_path, number, range(58 - number), task=task)
    study = Study(a=0.58, b=0.57, c=0.56)
    rows = results(study, tmp_path)
    assert [row.paired for row in rows] == [False, True, False]
    assert winner(study, tmp_path, rows) is None
    assert "or the trials were asked other prompts" in worth(None)
    assert "more than 1% of them went unscored" in worth(None)
    assert [row.factor for row in rows] == pytest.approx([t_quantile(99, 1 - 0.025 / 3)] * 3)


def test_a_trial_that_was_asked_other_prompts_takes_no_width_from_the_others():
    """8 equal trials on 10 prompts beside a ninth on others: by normal quantiles 17% of sweeps call one different."""
    generator = torch.Generator().manual_seed(0)
    wide, called = factor(None, 9, fewest=10), 0
    for _ in range(300):
        table = torch.randn(8, 10, generator=generator) + torch.randn(1, 10, generator=generator)
        gaps = table - table[table.mean(1).argmax()]
        called += bool((gaps.mean(1).abs() > wide * gaps.std(1) / 10**0.5).any())
    assert called / 300 <= 0.05


def test_trials_that_answer_alike_are_not_equal_for_certain(tmp_path):
    for number in range(3):
        answers(tmp_path, number, range(58))
    study = Study(a=0.58, b=0.58, c=0.58)
    rows = results(study, tmp_path)
    bound = 1 - 0.025**0.01  # so many of 100 prompts could differ unseen
    assert all(bound <= row.factor * row.gap_se < 1.1 * bound for row in rows[1:])
    assert all(row.indistinguishable for row in rows[1:])
    found = winner(study, tmp_path, rows)
    assert found.value == pytest.approx(0.58)
    assert found.low < 0.55 < 0.61 < found.high


def test_a_prompt_in_a_hundred_may_fail_by_the_machine_and_no_more(tmp_path):
    for number, faults in enumerate([(), (), (99,)]):
        answers(tmp_path, number, range(58), faults=faults)
    study = Study(a=0.58, b=0.58, c=58 / 99)
    rows = results(study, tmp_path)
    assert all(row.paired for row in rows[1:])
    assert winner(study, tmp_path, rows).prompts == 99
    file = tmp_path / "trial-0001" / "evaluations" / "step_00000010.jsonl"
    file.write_text(file.read_text()[:-40])  # a second one was cut off in writing
    assert winner(study, tmp_path, rows).prompts == 99
    file.write_text("".join(file.read_text().splitlines(True)[:97]))
    assert winner(study, tmp_path, rows) is None


def test_the_command_prints_it(tmp_path, capsys):
    (tmp_path / "recipe.toml").write_text(tomli_w.dumps(RECIPE))
    (tmp_path / "space.toml").write_text(GRID)
    command = ["sweep", str(tmp_path / "recipe.toml"), "--space", str(tmp_path / "space.toml")]
    assert main([*command, "--folder", str(tmp_path / "s")]) == 0
    assert "Chosen on nine tenths of the 10 prompts" in capsys.readouterr().out
