"""Logs in the shapes that people paste: boxes, blocks, bars, Markdown either way round, Chinese heads; inference."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from anygrpo.doctor import diagnose_log, read
from anygrpo.doctor.columns import Columns, build
from anygrpo.doctor.evidence.progress import progress
from anygrpo.doctor.log import Log


def columns(tmp_path: Path, text: str, name: str = "a.log") -> Columns:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return build(read(path))


def values(run: Columns, name: str) -> list[float]:
    series = run.get(name)
    assert series is not None, sorted(run.series)
    return list(series.values)


def test_stable_baselines_boxes(tmp_path: Path) -> None:
    box = (
        "-----------------------\n| rollout/ | |\n|    ep_rew_mean | {r} |\n| time/ | |\n|    iterations | {i} |\n"
        "| train/ | |\n|    entropy_loss | -1.5 |\n-----------------------\n"
    )
    run = columns(tmp_path, "".join(box.format(r=i * 10, i=i) for i in range(1, 6)))
    assert run.framework == "sb3"
    assert values(run, "reward/mean") == [10, 20, 30, 40, 50]
    assert values(run, "entropy") == [1.5] * 5  # its entropy_loss is minus the entropy
    assert run.steps[1] == 1


@pytest.mark.parametrize("banner", ["Step {i}:", "=== Epoch {i}/9 ===", "[iter {i}]", "第 {i} 步"])
def test_blocks_under_a_banner(tmp_path: Path, banner: str) -> None:
    text = "".join(
        f"{banner.format(i=i)}\n  mean_reward: 0.{i}\n  kl_penalty: {i}.5\n  平均优势：0.0\n\n" for i in range(1, 6)
    )
    run = columns(tmp_path, text)
    assert values(run, "reward/mean") == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert values(run, "advantage/mean") == [0.0] * 5
    assert list(run.steps.values()) == [1, 2, 3, 4, 5]


def test_blocks_that_only_repeat(tmp_path: Path) -> None:
    run = columns(tmp_path, "".join(f"reward = 0.{i}\nloss = 1.{i}\n" for i in range(1, 6)))
    assert values(run, "reward/mean") == [0.1, 0.2, 0.3, 0.4, 0.5]


def test_a_progress_bar_counts_each_step_once(tmp_path: Path) -> None:
    bar = "Train: {p}%|##| {i}/9 [00:01<00:09, 1.0it/s, Loss=1.0, AvgScore=0.{i}, KL=0.01]"
    text = "\r".join(bar.format(p=i * 10, i=i) for i in (1, 1, 2, 2, 2, 3, 4)) + "\n"
    run = columns(tmp_path, text)
    assert values(run, "reward/mean") == [0.1, 0.2, 0.3, 0.4]
    assert values(run, "kl/reference") == [0.01] * 4


def test_markdown_either_way_round(tmp_path: Path) -> None:
    usual = "Step | reward | KL散度\n-- | -- | --\n1 | 0.1 | 0.01\n2 | 0.2 | 0.02\n"
    turned = "| 指标 | Epoch 1 | Epoch 2 |\n|---|---|---|\n| 平均奖励 | 0.1 | 0.2 |\n| KL散度 | 0.01 | 0.02 |\n"
    for text in (usual, turned):
        run = columns(tmp_path, text, "a.md")
        assert values(run, "reward/mean") == [0.1, 0.2]
        assert values(run, "kl/reference") == [0.01, 0.02]
        assert list(run.steps.values()) == [1, 2]


def test_chinese_heads_in_csv_and_metrics_as_rows(tmp_path: Path) -> None:
    run = columns(tmp_path, "步数,奖励,KL散度\n" + "".join(f"{i},0.{i},0.01\n" for i in range(1, 9)), "a.csv")
    assert len(values(run, "reward/mean")) == 8
    run = columns(tmp_path, "metric,1,2,3\nreward,0.1,0.2,0.3\nkl,0.0,0.1,0.2\n", "b.csv")
    assert values(run, "reward/mean") == [0.1, 0.2, 0.3]


def drawn(n: int = 60) -> list[dict[str, float]]:
    rng = random.Random(0)
    rows = []
    for i in range(n):
        a, b, c = rng.random(), rng.random(), rng.random()
        rows.append({"step": float(i), "u_fair": a, "u_style": b, "noise": c, "u_total": round(0.5 * a + 2 * b, 9)})
    return rows


def test_a_total_is_found_by_solving_it() -> None:
    run = build(Log("x", "jsonl", drawn()))
    assert next((f.name, f.key) for f in run.inferred.columns) == ("reward/mean", "u_total")
    assert set(run.components) == {"u_fair", "u_style"}
    assert run.inferred.sums[0].weights == {"u_style": pytest.approx(2), "u_fair": pytest.approx(0.5)}
    assert "noise" in run.unknown
    assert run.map()["reward/mean"] == "u_total"


def test_a_sum_that_fails_in_one_row_is_none() -> None:
    rows = drawn()
    rows[17]["u_total"] += 0.01
    assert build(Log("x", "jsonl", rows)).inferred.columns == ()


def test_two_readings_are_shown_and_none_is_taken() -> None:
    rows = [row | {"v_total": row["noise"] + row["u_fair"]} for row in drawn()]
    run = build(Log("x", "jsonl", rows))
    assert run.get("reward/mean") is None
    assert "two readings" in run.inferred.open[0]


def test_the_policys_part_of_the_loss_is_found() -> None:
    rng = random.Random(1)
    rows = [{"reward": rng.random(), "kl": rng.random(), "pl": rng.gauss(0, 1)} for _ in range(40)]
    run = build(Log("x", "jsonl", [r | {"loss": r["pl"] + 0.04 * r["kl"]} for r in rows]))
    assert values(run, "loss/policy") == [r["pl"] for r in rows]


def wandering(r: float, n: int, seed: int) -> list[dict[str, float]]:
    rng, x, rows = random.Random(seed), 0.0, []
    for i in range(n):
        x = r * x + (1 - r * r) ** 0.5 * rng.gauss(0, 1)
        rows.append({"step": float(i + 1), "reward": 0.5 + 0.05 * x})
    return rows


@pytest.mark.parametrize("r", [0.0, 0.5, 0.8])
def test_rewards_that_wander_are_no_collapse_and_no_success(r: float) -> None:
    """AR(1) rewards that go nowhere: late_collapse, a rise or a fall are said of at most 5% of 100 runs each."""
    wrong = {"late_collapse": 0, "no_objection": 0, "rose": 0, "fell": 0}
    for seed in range(100):
        found = diagnose_log(Log("x", "jsonl", wandering(r, 120, seed)))
        wrong["late_collapse"] += any(f.rule == "late_collapse" and f.severity != "info" for f in found.findings)
        wrong["no_objection"] += found.verdict == "no_objection"
        p = progress(found.run)
        assert p
        wrong["rose"] += p.rose
        wrong["fell"] += p.fell
    assert max(wrong.values()) <= 5, wrong


def test_repeated_rows_do_not_sharpen_a_trend() -> None:
    rng = random.Random(3)
    values_ = [rng.gauss(0.5, 0.1) for _ in range(20)]
    rows = [{"step": float(i), "reward": values_[i // 10]} for i in range(200)]
    run = build(Log("x", "jsonl", rows))
    reward = run.get("reward/mean")
    assert reward is not None
    assert reward.effective < 40
    assert json.dumps(run.map())
