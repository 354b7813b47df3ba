"""Metrics of advantages."""

from __future__ import annotations

from anygrpo.metrics.metric import Metric
from anygrpo.spoken import Text

METRICS: tuple[Metric, ...] = (
    Metric(
        "advantage/mean",
        "1",
        Text("Mean advantage; 0 by construction of a group baseline.", "平均优势；组基线使其必为 0。"),
        "mean over samples",
        Text("about 0; not a symptom", "约为 0，不是症状"),
        Text("Nothing to do: look at advantage/std and groups/live.", "无需处理：看 advantage/std 与 groups/live。"),
    ),
    Metric(
        "advantage/std",
        "1",
        Text(
            "Spread of advantages. With z-scores it is sqrt(share of live groups x (G - 1) / G).",
            "优势的标准差。z-score 时约为 sqrt(有效组比例 × (G-1)/G)。",
        ),
        "population std over samples",
        Text("0.3 to 1 with zscore or rank", "zscore 或 rank 时 0.3 至 1"),
        Text(
            "Far below: dead groups, a std floor, or a later scaling. `anygrpo autopsy` counts the live groups.",
            "远低于此：无差异的组、标准差下限或后续缩放。`anygrpo autopsy` 可推算有信号的组数。",
        ),
        low=0.1,
        high=1.05,
    ),
    Metric(
        "advantage/abs_max",
        "1",
        Text(
            "Largest absolute advantage. A z-score with Bessel's std cannot exceed (G - 1) / sqrt(G).",
            "最大绝对优势。用 Bessel 标准差的 z-score 不可能超过 (G-1)/sqrt(G)。",
        ),
        "max over samples",
        Text("at most (G - 1) / sqrt(G)", "不超过 (G-1)/sqrt(G)"),
        Text(
            "Above the bound: statistics are not the group's. At the bound always: one sample decides; larger groups.",
            "超界：统计量不来自本组。总在界上：一个样本独大；增大组。",
        ),
    ),
    Metric(
        "advantage/one_sign",
        "1",
        Text(
            "Share of groups whose advantages all have one sign: the baseline lies outside the group.",
            "组内优势全为同号的比例：基线落在组外。",
        ),
        "groups with all advantages >= 0 or all <= 0 / groups with any",
        Text("0 with a group baseline", "使用组基线时为 0"),
        Text(
            "Near 1 with running or batch statistics: difficulty swamps the signal; normalise in the group.",
            "使用滑动或全批统计时接近 1：难度差异淹没信号；改为组内归一化。",
        ),
        low=0.0,
        high=0.9,
    ),
    Metric(
        "advantage/clipped",
        "1",
        Text("Share of advantages cut by advantage_clip.", "被 advantage_clip 裁剪的优势比例。"),
        "samples whose advantage was cut / samples",
        Text(
            "below 0.05; 0 where G is small: (G - 1) / sqrt(G) is below the clip",
            "小于 0.05；组小时为 0：(G-1)/sqrt(G) 小于上限",
        ),
        Text(
            'Above: heavy tails; advantage = "rank", or a wider clip.', '过大：重尾；用 advantage = "rank" 或放宽上限。'
        ),
    ),
)
