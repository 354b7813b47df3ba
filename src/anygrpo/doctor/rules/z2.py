"""Scorer and sampler are not the same Gaussian."""

from __future__ import annotations

import math

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("Scorer and sampler are not the same Gaussian", "打分与采样不是同一个高斯"),
    "evidence": Text(
        "mean ((action - mean)/std)^2 = {worst}; it is 1 within {width} if and only if the scorer is the"
        " sampler ({count} rows off).",
        "（（动作 - 均值）/标准差）^2 的均值为 {worst}；当且仅当打分者就是采样者时它在 1 ± {width} 之内（{count}"
        " 行超出）。",
    ),
    "cause": Text(
        "Another mode, padding counted, a noise-free step scored, std of another scheduler.",
        "模式不同；把填充也算了进去；给无噪声的一步打了分；用了另一个调度器的标准差。",
    ),
    "prescription": Text(
        "Compare mean and std of one step in sampling and in scoring.", "对比同一步在采样和打分时的均值与标准差。"
    ),
    "principle": Text("mean of n squared standard normals: 1 +- sqrt(2/n)", "n 个标准正态平方的均值：1 +- sqrt(2/n)"),
    "unlike": Text("few dimensions: the interval is 6 sqrt(2/n)", "维数太少：区间是 6 sqrt(2/n)"),
}


@rule(
    stage="scoring",
    order=40,
    certainty="certain",
    experiment="zero_rate",
    needs=("z2",),
    explains=("markov_bound", "log_ratio_explosion"),
    live="at_once",
)
def z2(run: Columns) -> Result:
    series = run.get("z2")
    assert series
    dims = run.settings.get("z2_dims")
    n = float(dims) if isinstance(dims, int | float) and dims > 0 else 1e4
    width = 6 * math.sqrt(2 / n)
    rows = [r for r, x in zip(series.rows, series.values) if abs(x - 1) > width]
    if not rows:
        return None
    worst = max(series.values, key=lambda x: abs(x - 1))
    sure = isinstance(dims, int | float)
    return finding(
        "z2", "serious", rows, certainty="certain" if sure else "ask", worst=worst, width=width, count=len(rows)
    )


def fires() -> Case:
    return (healthy(z2=1.5), {"z2_dims": 10000})


def silent() -> Case:
    return (healthy(z2=1.01), {"z2_dims": 10000})
