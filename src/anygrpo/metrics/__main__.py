"""`python -m anygrpo.metrics [en|zh]` prints docs/metrics.md, docs/metrics.zh.md."""

from __future__ import annotations

import sys

from anygrpo.metrics.catalogue import CATALOGUE
from anygrpo.metrics.metric import Metric

_HEADS = {
    "en": (
        "# Metrics\n\nEvery number of `metrics.jsonl`: meaning, formula, normal range, what to do outside it. Printed "
        "from `anygrpo.metrics` by `python -m anygrpo.metrics en`. A name that ends with `/` or `_` is a family.\n",
        "Formula",
        "Normal",
        "Otherwise",
    ),
    "zh": (
        "# 指标\n\n`metrics.jsonl` 中的每个数：含义、公式、正常范围、超出时怎么办。由 `python -m anygrpo.metrics zh` "
        "从 `anygrpo.metrics` 生成。以 `/` 或 `_` 结尾的名字是一族指标。\n",
        "公式",
        "正常范围",
        "超出时",
    ),
}


def page(language: str) -> str:
    """The whole page in one language ("en" or "zh")."""
    head, formula, normal, otherwise = _HEADS[language]
    parts = [head]
    for metric in sorted(CATALOGUE.values(), key=lambda m: m.name):
        meaning, usual, act = _words(metric, language)
        lines = [f"## `{metric.name}` ({metric.unit})", "", meaning]
        lines += [f"- {formula}: `{metric.formula}`"] if metric.formula else []
        lines += [f"- {normal}: {usual}"] if usual else []
        lines += [f"- {otherwise}: {act}"] if act else []
        parts.append("\n".join(lines[:3] + [""] * (len(lines) > 3) + lines[3:]) + "\n")
    return "\n".join(parts)


def _words(metric: Metric, language: str) -> tuple[str, str, str]:
    if language == "zh":
        return metric.meaning_zh, metric.normal_zh, metric.act_zh
    return metric.meaning, metric.normal, metric.act


if __name__ == "__main__":
    print(page(sys.argv[1] if len(sys.argv) > 1 else "en"), end="")
