"""Names of other trainers under headings of any depth, and what trackers export: a file a metric, a column a run."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from anygrpo.doctor import diagnose, diagnose_log, read
from anygrpo.doctor.canonical import concept, scale
from anygrpo.doctor.columns import Columns, build
from anygrpo.doctor.readers.detect import read_all
from anygrpo.doctor.synthetic import healthy

N = 12


def columns(path: Path) -> Columns:
    return build(read(path))


def values(run: Columns, name: str) -> list[float]:
    found = run.get(name)
    return list(found.values) if found else []


def reward(i: int) -> float:
    return round(0.3 + 0.02 * i, 4)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("charts/episodic_return", "reward/mean"),
        ("env_runners/episode_return_mean", "reward/mean"),
        ("rewards/step", "reward/mean"),
        ("rollout_scores/mean", "reward/mean"),
        ("objective/scores", "reward/mean"),
        ("learners/default_policy/entropy", "entropy"),
        ("info/learner/default_policy/learner_stats/kl", "kl/behaviour"),
        ("losses/approx_kl", "kl/behaviour"),
        ("losses/a_loss", "loss/policy"),
        ("train_reward_std", "reward/std_within"),
        ("验证准确率", "eval/准确率"),
    ],
)
def test_names_under_headings(key: str, name: str) -> None:
    found = concept(key)
    assert found is not None
    assert found[0] == name


@pytest.mark.parametrize("key", ["value/entropy", "vf/loss", "timers/kl", "system/gpu/reward", "advantages/entropy"])
def test_headings_of_something_else_lend_no_meaning(key: str) -> None:
    assert concept(key) is None


def test_a_root_of_kl_is_squared() -> None:
    assert scale("policy/sqrt_kl", 0.3) == pytest.approx(0.09)


def test_tensorboards_csv_of_each_tag_are_one_run(tmp_path: Path) -> None:
    for tag, at in (("train_reward", reward), ("train_kl", lambda i: 0.001 * i)):
        text = "Wall time,Step,Value\n" + "".join(f"{1.7e9 + i},{10 * i},{at(i)}\n" for i in range(N))
        (tmp_path / f"run-a-tag-{tag}.csv").write_text(text)
    run = columns(tmp_path)
    assert values(run, "reward/mean") == [reward(i) for i in range(N)]
    assert values(run, "kl/reference") == pytest.approx([0.001 * i for i in range(N)])
    assert run.steps_per_row == 10
    alone = columns(tmp_path / "run-a-tag-train_reward.csv")
    assert values(alone, "reward/mean") == [reward(i) for i in range(N)]


def test_tensorboards_json_of_one_tag(tmp_path: Path) -> None:
    (tmp_path / "reward.json").write_text(json.dumps([[1.7e9 + i, i, reward(i)] for i in range(N)]))
    assert values(columns(tmp_path / "reward.json"), "reward/mean") == [reward(i) for i in range(N)]


def test_mlflows_files_are_one_run(tmp_path: Path) -> None:
    for name, at in (("train/reward", reward), ("train/grad_norm", lambda i: 0.4)):
        file = tmp_path / "metrics" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{1700000000000 + i} {at(i)} {i}\n" for i in range(N)))
    (tmp_path / "meta.yaml").write_text("run_id: x\n")
    run = columns(tmp_path)
    assert values(run, "reward/mean") == [reward(i) for i in range(N)]
    assert values(run, "grad_norm/total") == [0.4] * N


def test_one_number_a_line(tmp_path: Path) -> None:
    lines = [f"{i},{name},{x}" for i in range(N) for name, x in (("reward/mean", reward(i)), ("kl", 0.01))]
    (tmp_path / "long.csv").write_text("step,metric,value\n" + "\n".join(lines) + "\n")
    run = columns(tmp_path / "long.csv")
    assert values(run, "reward/mean") == [reward(i) for i in range(N)]
    assert values(run, "kl/reference") == [0.01] * N


def test_decimal_commas(tmp_path: Path) -> None:
    lines = [f"{i};{reward(i):.4f};0,0100".replace(".", ",") for i in range(N)]
    (tmp_path / "x.csv").write_text("step;reward;kl\n" + "\n".join(lines) + "\n")
    run = columns(tmp_path / "x.csv")
    assert values(run, "reward/mean") == [reward(i) for i in range(N)]


@pytest.mark.parametrize(
    "heads", [("a - train/reward", "b - train/reward"), ("reward-a", "reward-b")], ids=["wandb", "swanlab"]
)
def test_a_column_a_run_is_two_runs(tmp_path: Path, heads: tuple[str, str]) -> None:
    lines = [f"{i},{reward(i)},{reward(i) / 2}" for i in range(N)]
    (tmp_path / "x.csv").write_text(f"Step,{heads[0]},{heads[1]}\n" + "\n".join(lines) + "\n")
    logs = read_all(tmp_path / "x.csv")
    assert [log.source.rsplit(": ", 1)[1] for log in logs] == ["a", "b"]
    assert values(build(logs[1]), "reward/mean") == [reward(i) / 2 for i in range(N)]


def test_one_run_in_a_columns_name(tmp_path: Path) -> None:
    lines = [f"{i},{reward(i)},{1.7e12 + i}" for i in range(N)]
    (tmp_path / "x.csv").write_text("step,reward-run1,reward-run1_timestamp\n" + "\n".join(lines) + "\n")
    assert values(columns(tmp_path / "x.csv"), "reward/mean") == [reward(i) for i in range(N)]


def test_names_and_numbers_with_blanks_between(tmp_path: Path) -> None:
    english = [f"iter {i:4d} | rew {reward(i):.4f} | kl {0.001 * i:.4f} | ent 0.61 | 12.3s" for i in range(N)]
    chinese = [f"[10:00:{i:02d}] 第 {i} 步，奖励 {reward(i):.4f}，KL {0.001 * i:.4f}，熵 0.61" for i in range(N)]
    for lines in (english, chinese):
        (tmp_path / "x.log").write_text("\n".join(lines), "utf-8")
        run = columns(tmp_path / "x.log")
        assert values(run, "reward/mean") == [reward(i) for i in range(N)]
        assert values(run, "kl/reference") == pytest.approx([0.001 * i for i in range(N)])
        assert list(run.steps.values()) == list(range(N))


def test_a_score_on_its_own_line_belongs_to_the_pairs_before_it(tmp_path: Path) -> None:
    lines = [
        f"Epoch: 0 | Step: {i} | PPO Epoch: 1 | Actor Loss: {0.01 * i:.5f} | Critic Loss: 0.02\n"
        f"End-to-End => Latency: 5.1s\nAverage reward score: {reward(i)}\n-------------"
        for i in range(N)
    ]
    (tmp_path / "x.log").write_text("\n".join(lines))
    run = columns(tmp_path / "x.log")
    assert values(run, "reward/mean") == [reward(i) for i in range(N)]
    assert run.rows == N


def test_lines_that_a_structured_logger_wrapped(tmp_path: Path) -> None:
    said = [f"step={i} reward={reward(i)} kl=0.01" for i in range(N)]
    wrapped = [json.dumps({"record": {"level": {"no": 20}, "message": text}}) for text in said]
    (tmp_path / "x.jsonl").write_text("\n".join(wrapped))
    assert values(columns(tmp_path / "x.jsonl"), "reward/mean") == [reward(i) for i in range(N)]
    plain = [json.dumps({"step": i, "reward": reward(i), "message": "step=1 reward=9"}) for i in range(N)]
    (tmp_path / "y.jsonl").write_text("\n".join(plain))
    assert values(columns(tmp_path / "y.jsonl"), "reward/mean") == [reward(i) for i in range(N)]


def table() -> str:
    rows = "".join(f"<tr><td>{i}</td><td>0.1</td><td>{reward(i)}</td><td>0.000000</td></tr>" for i in range(N))
    head = "<tr><th>Step</th><th>Training Loss</th><th>reward</th><th>reward_std</th></tr>"
    return f"<div><progress value='9'></progress>[9/9]</div><table>{head}{rows}</table><p>"


def test_the_tables_of_notebooks_and_pages(tmp_path: Path) -> None:
    cell = {"cell_type": "code", "source": [], "outputs": [{"data": {"text/html": [table()]}}]}
    (tmp_path / "x.ipynb").write_text(json.dumps({"cells": [cell], "nbformat": 4}))
    (tmp_path / "x.html").write_text(table())
    for name in ("x.ipynb", "x.html"):
        run = columns(tmp_path / name)
        assert values(run, "reward/mean") == [reward(i) for i in range(N)]
        assert values(run, "reward/std_within") == [0.0] * N
    # The reward rises and no group was counted: a std of 0 is that of one sample a row.
    assert "constant_reward" not in {f.rule for f in diagnose_log(read(tmp_path / "x.html")).findings}


def test_unknown_names_are_no_proof_of_another_kind_of_training(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("\n".join(json.dumps({"a": i, "b": math.sin(i)}) for i in range(N)))
    first = diagnose_log(read(tmp_path / "x.jsonl")).first
    assert first is not None
    assert (first.rule, first.certainty) == ("not_rl_log", "ask")


def written(tmp_path: Path, text: str, name: str = "x.log") -> Columns:
    (tmp_path / name).write_text(text, "utf-8")
    return columns(tmp_path / name)


def test_the_newest_row_first(tmp_path: Path) -> None:
    text = "step,reward\n" + "\n".join(f"{i},{reward(i)}" for i in reversed(range(N)))
    run = written(tmp_path, text, "x.csv")
    assert values(run, "reward/mean") == [reward(i) for i in range(N)]
    assert any("newest" in note for note in run.notes)


def test_drawn_boxes(tmp_path: Path) -> None:
    head = "┏━━━━━━┳━━━━━━━┓\n┃ Metric ┃ Value ┃\n┡━━━━━━╇━━━━━━━┩\n"
    box = head + "│ step │ {i} │\n│ reward/mean │ {r} │\n│ kl │ 0.01 │\n└──────┴──────┘"
    run = written(tmp_path, "\n".join(box.format(i=i, r=reward(i)) for i in range(N)))
    assert values(run, "reward/mean") == [reward(i) for i in range(N)]
    assert values(run, "kl/reference") == [0.01] * N


@pytest.mark.parametrize(
    "line",
    [
        "Step {i} | loss:0.01 rewards:{r} kl_loss:0.01 lr:1e-06",
        "step: {i} reward: {r} kl: 0.01 grad_norm: 0.3",
        "• step {i}: reward {r}, kl 0.01, entropy 0.5",
        "[Learner] Steps = {i} | Episode Return = {r} | KL Loss = 0.01 | Walltime = 3.1",
        "{i}  &  {r} & 0.01 & 0.5 \\\\",
        "{i}   {i}  {r}  0.01  0.5",
    ],
)
def test_pairs_and_columns_with_blanks_alone(tmp_path: Path, line: str) -> None:
    head = "step & reward & kl & entropy \\\\" if "&" in line else "      step  reward    kl  entropy"
    head = head if line.startswith("{i}  ") else "started"
    run = written(tmp_path, head + "\n" + "\n".join(line.format(i=i, r=reward(i)) for i in range(N)))
    assert values(run, "reward/mean") == [reward(i) for i in range(N)]
    assert values(run, "kl/reference") == [0.01] * N


def test_columns_in_a_document_beside_its_settings(tmp_path: Path) -> None:
    data = {"config": {"beta": 0.04}, "history": {"step": list(range(N)), "reward": [reward(i) for i in range(N)]}}
    run = written(tmp_path, json.dumps(data), "x.json")
    assert values(run, "reward/mean") == [reward(i) for i in range(N)]
    assert run.settings["config.beta"] == 0.04


def test_documents_of_other_shapes(tmp_path: Path) -> None:
    points = [[i, reward(i)] for i in range(N)]
    shapes = {
        "a.json": json.dumps({"run": "a", "metrics": [{"name": "reward", "points": points}]}),
        "b.json": json.dumps({"train/reward": [[1.7e9, *p] for p in points]}),
        "c.json": json.dumps({str(i): {"reward": reward(i)} for i in range(N)}),
        "d.jsonl": "\n".join(
            json.dumps({"step": i, "metrics": [{"name": "reward", "value": reward(i)}, {"name": "kl", "value": 0.01}]})
            for i in range(N)
        ),
        "e.jsonl": "\n".join(
            json.dumps({"name": name, "step": i, "value": x})
            for i in range(N)
            for name, x in (("reward", reward(i)), ("kl", 0.01))
        ),
        "f.csv": '"metricName","metricValue","timestamp","step"\n'
        + "\n".join(f'"train/reward","{reward(i)}","17","{i}"' for i in range(N)),
        "g.md": "| step | reward ↑ |\n|---:|---:|\n" + "\n".join(f"| {i} | **{reward(i)}** |" for i in range(N)),
        "h.txt": "\n".join(f"训练到第{i}步时，平均奖励为{reward(i)}，KL散度为0.01。" for i in range(N)),
        "i.txt": "\n".join(f"[{i:03d}] reward→{reward(i)}  kl→0.01  ent→0.5" for i in range(N)),
        "j.txt": "\n".join(f"step {i} reward {reward(i)} kl 0.01 grad_norm 0.3" for i in range(N)),
        "l.txt": "+---+---+---+\n| Step | Reward | KL |\n+---+---+---+\n"
        + "\n".join(f"| {i} | {reward(i)} | 0.01 |" for i in range(N))
        + "\n+---+---+---+",
        "m.txt": "\n".join(
            f"+--------+\n| training_iteration     {i} |\n| episode_reward_mean     {reward(i)} |\n+--------+"
            for i in range(N)
        ),
        "n.txt": "\n".join(f"global_step={i}, episodic_return=[{reward(i)}]" for i in range(N)),
        "o.txt": "\n".join(f"Iteration {i}: train reward {reward(i)} ({30 + i}.0%), kl 0.01" for i in range(N)),
        "k.txt": "\n".join(
            f"[0101 10:00 @monitor.py:476] Sim/mean_score: {reward(i)}\n[0101 10:00 @monitor.py:476] kl: 0.01"
            for i in range(N)
        ),
    }
    for name, text in shapes.items():
        assert values(written(tmp_path, text, name), "reward/mean") == [reward(i) for i in range(N)], name


def test_a_kl_of_zeros_is_no_policy_that_never_moved() -> None:
    fell = healthy(160, reward=lambda t: 0.3 + 0.6 * t if t < 0.5 else 0.6 - 0.5 * (t - 0.5), kl=0.0)
    assert "late_collapse" in {f.rule for f in diagnose(fell, format="jsonl").findings if f.severity != "info"}


def test_the_step_before_a_printed_dict_and_a_dict_with_one_evaluation(tmp_path: Path) -> None:
    lines = [f"Global step {5 * i}: {{'reward': {reward(i)}, 'kl': 0.01}}" for i in range(N)]
    lines += [f"global_step {5 * i}, metrics: {{'eval_math_pass1': 0.4, 'eval_n': 8}}" for i in (1, 2)]
    run = written(tmp_path, "\n".join(lines))
    assert list(run.steps.values())[:3] == [0.0, 5.0, 10.0]
    assert run.evals["math_pass1"].values == (0.4, 0.4)


def test_a_pasted_blow_up_of_nine_rows(tmp_path: Path) -> None:
    kl, rewards = (0.002, 0.8, 2.5, 7.9, 15, 31, 55, 80, 99), (0.51, 0.5, 0.44, 0.31, 0.12, 0.05, 0.04, 0.03, 0.03)
    text = "\n".join(f"step {10 * i}: reward={r}, kl={k}" for i, (r, k) in enumerate(zip(rewards, kl), 1))
    (tmp_path / "x.txt").write_text(text)
    first = diagnose_log(read(tmp_path / "x.txt")).first
    assert first is not None
    assert first.rule == "kl_blowup"
