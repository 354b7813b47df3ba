"""The run page: one file, nothing from outside, in two languages, with whatever the folder holds."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest

from anygrpo.cli.main import main
from anygrpo.errors import DataError
from anygrpo.report import run_page, write_report

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def folder(tmp_path) -> Path:
    """A run folder as a training run leaves it."""
    run = tmp_path / "letters-1"
    for name in ("evaluations", "samples", "pictures"):
        (run / name).mkdir(parents=True)
    rows = [{"step": i, "reward/mean": 0.2 + 0.01 * i, "kl/reference": 1e-3 * i, "groups/live": 0.9} for i in range(30)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (run / "config.toml").write_text('seed = 0\nname = "a < b"\n')
    (run / "command.txt").write_text("anygrpo train recipe.toml\n")
    (run / "environment.json").write_text('{"python": "3.11"}')
    (run / "pictures" / "before_after.png").write_bytes(PIXEL)
    for step, answer in ((0, "<script>alert(1)</script>"), (30, "42")):
        line = {"prompt": 0, "text": "6 x 7?", "output": answer, "reward": step / 30, "components": {}, "valid": True}
        (run / "evaluations" / f"step_{step:08d}.jsonl").write_text(json.dumps(line) + "\n")
    action = {
        "step": 12, "kind": "roll_back", "rule": "kl_blowup", "reason": "the KL has blown up",
        "checkpoint": "step_00000010",
        "before": {"learning_rate": 1.0, "beta": 1.0}, "after": {"learning_rate": 0.5, "beta": 5.0},
    }  # fmt: skip
    (run / "doctor.json").write_text(json.dumps({"actions": [action]}))
    return run


def test_everything_of_the_folder_is_on_the_page(folder):
    page = run_page(folder)
    for part in ("letters-1", "<svg", "reward/mean", "6 x 7?", "42", "before after", "a &lt; b",
                 "anygrpo train recipe.toml",
                 "rolled back", "kl_blowup", "step_00000010", "learning_rate 1 -&gt; 0.5"):  # fmt: skip
        assert part in page, part
    assert base64.b64encode(PIXEL).decode() in page


def test_two_pictures_in_a_folder_of_their_own_are_a_slider_without_a_script(folder):
    (folder / "pictures" / "rain").mkdir()
    for name in ("1_input", "2_after"):
        (folder / "pictures" / "rain" / f"{name}.png").write_bytes(PIXEL)
    page = run_page(folder, "zh")
    assert page.count('<div class="slider"') == 1
    assert "退化图 | 之后" in page
    assert "<script" not in page


def test_a_prompts_pictures_stand_over_its_words_and_nothing_else_is_embedded(folder):
    seen = "data:image/png;base64," + base64.b64encode(PIXEL).decode()
    for file in (folder / "evaluations").glob("*.jsonl"):
        row = json.loads(file.read_text()) | {"pictures": [seen, 'x" onerror="alert(1)', None]}
        file.write_text(json.dumps(row) + "\n")
    page = run_page(folder)
    assert f'<td><img alt="" src="{seen}"><br>6 x 7?</td>' in page
    assert "onerror" not in page


def test_nothing_is_loaded_from_outside_and_nothing_of_a_sample_is_run(folder):
    page = run_page(folder)
    assert not re.search(r"""(?:src|href)=["'](?!data:)""", page)
    assert "http" not in re.sub(r"http://www\.w3\.org/\S+", "", page)
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_what_the_run_came_to_stands_at_the_head(folder):
    rows = [{"step": s, "eval/accuracy": a, "eval/psnr": 20 + a} for s, a in ((-1, 0.25), (9, 0.5), (29, 0.75))]
    with (folder / "metrics.jsonl").open("a") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))
    said = "accuracy 0.250 → 0.750, PSNR 20.250 → 20.750"
    page = run_page(folder)
    assert said in page
    assert page.index(said) < page.index("<h2>")
    assert "正确率 0.250 → 0.750" in run_page(folder, "zh")
    assert "(best" not in page  # the last is


def test_the_best_between_is_told_where_the_last_is_below_it(folder):
    rows = [{"step": s, "eval/accuracy": a} for s, a in ((-1, 0.25), (9, 0.8125), (29, 0.5))]
    with (folder / "metrics.jsonl").open("a") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))
    assert "accuracy 0.250 → 0.500 (best 0.812)" in run_page(folder)
    assert "正确率 0.250 → 0.500（最高 0.812）" in run_page(folder, "zh")


def logged(folder, *rows):
    with (folder / "metrics.jsonl").open("a") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))


def test_the_head_tells_errors_and_the_paired_change(folder):
    """Accuracies of 64 prompts: sqrt(.25 x .75 / 64) = .0541, sqrt(.75 x .25 / 64) = .0541. Changes 1, 0, 1: mean 2/3,
    standard error sqrt(1/3) / sqrt(3) = 1/3. A reward equal to the accuracy is not told twice."""
    logged(folder, *({"step": s, "eval/accuracy": a, "eval/reward": a, "eval/prompts": 64}
                     for s, a in ((-1, 0.25), (29, 0.75))))  # fmt: skip
    for step, rewards in ((0, (0, 1, 0)), (30, (1, 1, 1))):
        rewrite(
            folder, step, [{"prompt": i, "text": f"q{i}", "output": "", "reward": r} for i, r in enumerate(rewards)]
        )
    page = run_page(folder)
    assert (
        "accuracy 0.250 ± 0.054 → 0.750 ± 0.054; a prompt&#x27;s reward changed by +0.667 ± 0.333 (64 prompts" in page
    )
    assert "正确率 0.250 ± 0.054 → 0.750 ± 0.054；逐提示的奖励变化 +0.667 ± 0.333（64 个提示" in run_page(folder, "zh")


def test_the_change_counts_an_answer_that_cannot_be_scored_as_the_run_does(folder):
    """Rewards 0, 0, 1, 1 become 0.5, 0.5, and two that cannot be scored, at the worst (0): .5 falls to .25. Of the two
    that could be scored both times the reward rose."""
    logged(
        folder,
        {"step": -1, "eval/reward": 0.5, "eval/prompts": 4},
        {"step": 29, "eval/reward": 0.25, "eval/prompts": 4},
    )
    for step, rewards, valid in ((0, (0, 0, 1, 1), 4), (30, (0.5, 0.5, 0, 0), 2)):
        rewrite(folder, step, [{"prompt": i, "text": f"q{i}", "output": "", "reward": r, "valid": i < valid}
                               for i, r in enumerate(rewards)])  # fmt: skip
    assert "reward 0.500 → 0.250; a prompt&#x27;s reward changed by -0.250 ± 0.433 (4 prompts" in run_page(folder)


def test_other_prompts_have_no_change_and_faults_are_not_among_the_prompts(folder):
    rows = [{"step": s, "eval/reward": 0.5, "eval/prompts": 4, "eval/faults": 0.25} for s in (-1, 29)]
    logged(folder, *rows)
    lines = [{"prompt": i, "text": f"q{i}", "output": "", "reward": float(i)} for i in range(4)]
    lines[3] |= {"fault": True, "valid": False}
    rewrite(folder, 0, lines)
    rewrite(folder, 30, [line | {"reward": line["reward"] + i} for i, line in enumerate(lines)])
    assert "changed by +1.000 ± 0.577 (3 prompts" in run_page(folder)  # by 0, 1, 2
    rewrite(folder, 30, [line | {"text": "another"} for line in lines])
    assert "changed by" not in run_page(folder)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        # 1 - .025^(1/64) = .056: Clopper-Pearson where all are alike
        ({"eval/accuracy": 0.0, "eval/prompts": 64}, "0.000 (95%: 0.000 to 0.056)"),
        ({"eval/accuracy": 1.0, "eval/reward": 1.0, "eval/reward_se": 0.0, "eval/prompts": 64},
         "1.000 (95%: 0.944 to 1.000)"),
        ({"eval/accuracy": 0.5, "eval/prompts": 400, "eval/judged": 25}, "0.500 ± 0.100"),
        ({"eval/accuracy": 0.5, "eval/reward": 0.5, "eval/reward_se": 0.07, "eval/prompts": 400}, "0.500 ± 0.070"),
        ({"eval/accuracy": 0.5, "eval/reward": 0.6, "eval/reward_se": 0.07, "eval/prompts": 400}, "0.500 ± 0.025"),
        ({"eval/reward": 3.0, "eval/reward_se": 0.0, "eval/prompts": 64}, "3.000<"),
        ({"eval/reward": 3.0, "eval/reward_se": 0.0002, "eval/prompts": 64}, "3.000 ± 0.0002"),
    ],
)  # fmt: skip
def test_an_error_is_that_of_what_was_judged(folder, row, said):
    for file in (folder / "evaluations").iterdir():
        file.unlink()
    logged(folder, {"step": -1} | {k: 0.25 if k in ("eval/accuracy", "eval/reward") else v for k, v in row.items()})
    logged(folder, {"step": 29} | row)
    head = re.search(r"<p><b>Held out</b>.*?</p>", run_page(folder))
    assert head is not None
    assert f"→ {said}" in head[0]


def test_held_out_curves_come_first_and_errors_are_no_curve(folder):
    rows = [{"step": s, "eval/reward": s / 30, "eval/reward_se": 0.1 + s} for s in (-1, 9, 19, 29)]
    with (folder / "metrics.jsonl").open("a") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))
    named = re.findall(r"<figcaption>([^<]+)", run_page(folder))
    assert named[:2] == ["eval/reward", "reward/mean"]
    assert "eval/reward_se" not in named


def test_a_level_line_is_a_word(folder):
    page = run_page(folder)
    assert "Did not change: 1 - groups/live 0.1" in page
    assert page.count("<svg") == 2  # reward, KL


def test_a_prompt_that_is_a_table_is_read_as_one(folder):
    for file in sorted((folder / "evaluations").glob("*.jsonl")):
        row = json.loads(file.read_text()) | {"text": "{'caption': 'a man walks', 'length': 40}"}
        file.write_text(json.dumps(row) + "\n")
    assert "a man walks\nlength: 40" in run_page(folder)


def test_chinese(folder):
    page = run_page(folder, "zh")
    for part in ('lang="zh-CN"', "留出提示的贪心回答及其奖励", "诊断器采取的措施", "回退", "解析后的配方"):
        assert part in page


def test_samples_stand_in_where_there_was_no_evaluation(folder):
    for file in (folder / "evaluations").iterdir():
        file.unlink()
    row = {"prompt": "p", "outputs": ["first answer"], "rewards": [0.5]}
    (folder / "samples" / "step_00000000.jsonl").write_text(json.dumps(row) + "\n")
    page = run_page(folder)
    assert "first answer" in page
    assert "Samples, with their reward" in page


def test_the_answers_of_one_evaluation_stand_alone(folder):
    first, last = sorted((folder / "evaluations").iterdir())
    asked = json.loads(last.read_text().splitlines()[0])
    first.unlink()
    for file in (folder / "samples").iterdir():
        file.unlink()
    page = run_page(folder)
    assert "<th>prompt</th><th>answer</th><th>step</th>" in page
    assert str(asked["output"]) in page


def test_the_command_writes_into_the_folder_or_where_it_is_told(folder, tmp_path, capsys):
    assert main(["report", str(folder)]) == 0
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert main(["report", str(folder), "--lang", "zh", "--output", str(tmp_path / "zh.html")]) == 0
    assert "训练运行" in (tmp_path / "zh.html").read_text(encoding="utf-8")
    assert str(tmp_path / "zh.html") in capsys.readouterr().out


def test_no_run_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match="holds no run"):
        write_report(tmp_path, tmp_path / "r.html")


def test_a_strip_of_poses_takes_a_whole_row(folder):
    from PIL import Image

    Image.new("RGB", (300, 100)).save(folder / "pictures" / "strip.png")
    page = run_page(folder)
    assert page.count('<figure class="wide"') == 1
    assert '<figure class="wide"><figcaption>strip' in page


def rewrite(folder, step, lines):
    text = "".join(json.dumps({"components": {}, "valid": True} | line) + "\n" for line in lines)
    (folder / "evaluations" / f"step_{step:08d}.jsonl").write_text(text)


def test_answers_of_different_prompts_are_never_set_side_by_side(folder):
    """A resume with other data numbers other prompts the same; what was asked decides."""
    rewrite(folder, 0, [{"prompt": 0, "text": "old?", "output": "an old one", "reward": 0.0},
                        {"prompt": 1, "text": "both?", "output": "first of both", "reward": 0.0}])  # fmt: skip
    rewrite(folder, 30, [{"prompt": 0, "text": "both?", "output": "last of both", "reward": 1.0},
                         {"prompt": 1, "text": "new?", "output": "a new one", "reward": 1.0}])  # fmt: skip
    page = run_page(folder)
    assert "first of both" in page
    assert "last of both" in page
    assert "an old one" not in page
    assert "a new one" not in page


def test_where_no_prompt_is_common_it_is_said(folder):
    rewrite(folder, 0, [{"prompt": 0, "text": "old?", "output": "an old one", "reward": 0.0}])
    rewrite(folder, 30, [{"prompt": 0, "text": "new?", "output": "a new one", "reward": 1.0}])
    page = run_page(folder)
    assert "asked other prompts" in page
    assert "a new one" not in page


def test_curves_are_cut_where_a_resume_changed_something(folder):
    whole = run_page(folder).count("<polyline")
    line = {"step": 12, "said": ["seed: 0 -> 1"], "changed": {"seed": [0, 1]}}
    quiet = {"step": 20, "said": [], "changed": {}}
    (folder / "resumes.jsonl").write_text(json.dumps(line) + "\n" + json.dumps(quiet) + "\n")
    page = run_page(folder)
    assert page.count("<polyline") == 2 * whole
    assert page.count('class="cut"') == whole
