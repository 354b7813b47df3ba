"""A gain too small for a run's rows, seen on the same held-out prompts."""

import json
import random
from pathlib import Path

import pytest

from anygrpo.doctor.diagnose import diagnose_log
from anygrpo.doctor.readers.detect import folder
from anygrpo.doctor.readers.held_out_pairs import ERROR, GAIN, add_gains


def run_folder(path: Path, gain: float, prompts: int = 60) -> Path:
    """80 rows of a level reward, and three evaluations whose prompts differ far more than they change."""
    random.seed(0)
    still = {"reward/std_within": 0.01, "groups/live": 1.0, "grad_norm/total": 0.01, "lr": 1e-4, "length/mean": 8.0}
    reward = lambda: 0.78 + random.gauss(0, 0.004)  # noqa: E731
    rows = [{"step": i, "reward/mean": reward(), "kl/reference": 1e-4 * i} | still for i in range(80)]
    hard = [random.random() for _ in range(prompts)]
    (path / "evaluations").mkdir(parents=True)
    (path / "config.toml").write_text("")
    for step in (0, 40, 80):
        rewards = [h + gain * step / 80 + random.gauss(0, 0.01) for h in hard]
        lines = [{"prompt": i, "text": f"p{i}", "output": "", "reward": x} for i, x in enumerate(rewards)]
        (path / f"evaluations/step_{step:08d}.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
        held_out = {"eval/reward": sum(rewards) / prompts, "eval/reward_se": 0.037}
        if step:
            rows[step - 1] |= held_out
    (path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


@pytest.mark.parametrize(("gain", "flat"), [(0.0, True), (0.02, False)])
def test_a_run_is_not_called_flat_where_the_same_prompts_earn_more(tmp_path, gain, flat):
    found = diagnose_log(folder(run_folder(tmp_path, gain), "run"))
    assert ("no_learning" in {f.rule for f in found.findings}) == flat
    shown = found.run.evals["reward_gain"]
    assert shown.values[-1] == pytest.approx(gain, abs=0.005)
    assert found.run.evals["reward_gain_se"].values[-1] == pytest.approx(0.0018, abs=0.0005)


def test_a_gain_by_hand(tmp_path):
    (tmp_path / "evaluations").mkdir()
    for step, rewards in {0: (0.1, 0.5, 0.9), 10: (0.2, 0.6, 1.3)}.items():
        lines = [json.dumps({"prompt": i, "text": "x", "reward": r}) for i, r in enumerate(rewards)]
        (tmp_path / f"evaluations/step_{step:08d}.jsonl").write_text("\n".join(lines))
    rows = [{"step": 9.0, "eval/reward": 0.7}, {"step": 8.0}]
    add_gains(tmp_path, rows)
    assert rows[0][GAIN] == pytest.approx(0.2)
    assert rows[0][ERROR] == pytest.approx(0.1)  # std .1732 over the root of 3
    assert GAIN not in rows[1]


OTHER = '{"prompt": 0, "text": "other", "reward": 1}'


@pytest.mark.parametrize("text", ["", "not json", '{"prompt": 0}', "[1]\n", OTHER])
def test_a_file_that_is_no_pair_adds_nothing(tmp_path, text):
    run_folder(tmp_path, 0.02)
    (tmp_path / "evaluations/step_00000080.jsonl").write_text(text)
    log = folder(tmp_path, "run")
    assert GAIN not in log.rows[-1]
    assert GAIN in log.rows[39]


def test_a_prompt_that_failed_by_the_machine_is_left_out_and_the_others_are_paired(tmp_path):
    run_folder(tmp_path, 0.02)
    file = tmp_path / "evaluations/step_00000080.jsonl"
    lines = [json.loads(x) for x in file.read_text().splitlines()]
    for failed, paired in ((6, True), (7, False)):  # of 60: a tenth
        marked = [x | {"fault": "timeout"} if i < failed else x for i, x in enumerate(lines)]
        file.write_text("\n".join(map(json.dumps, marked)))
        log = folder(tmp_path, "run")
        assert (GAIN in log.rows[-1]) == paired
        if paired:
            assert log.rows[-1][GAIN] == pytest.approx(0.02, abs=0.005)


def test_a_gain_before_the_last_evaluation_is_not_told_of_the_end(tmp_path):
    run_folder(tmp_path, 0.04)
    assert "no_learning" not in {f.rule for f in diagnose_log(folder(tmp_path, "run")).findings}
    (tmp_path / "evaluations/step_00000080.jsonl").write_text(OTHER)
    assert "no_learning" in {f.rule for f in diagnose_log(folder(tmp_path, "run")).findings}
