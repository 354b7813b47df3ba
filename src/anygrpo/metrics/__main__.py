"""`python -m anygrpo.metrics [en|zh]` prints docs/metrics.md, docs/metrics.zh.md."""

from __future__ import annotations

import sys

from anygrpo.metrics.catalogue import CATALOGUE
from anygrpo.spoken import Text

_HEAD = Text(
    "# Metrics\n\nEvery number of `metrics.jsonl`: meaning, formula, normal range, what to do outside it. Printed "
    "from `anygrpo.metrics` by `python -m anygrpo.metrics en`. A name that ends with `/` or `_` is a family.\n",
    "# 指标\n\n`metrics.jsonl` 中的每个数：含义、公式、正常范围、超出时怎么办。由 `python -m anygrpo.metrics zh` "
    "从 `anygrpo.metrics` 生成。以 `/` 或 `_` 结尾的名字是一族指标。\n",
)
_FORMULA, _NORMAL, _OTHERWISE = Text("Formula", "公式"), Text("Normal", "正常范围"), Text("Otherwise", "超出时")


def page(language: str) -> str:
    """The whole page in one language ("en" or "zh")."""
    formula, normal, otherwise = (text.said(language) for text in (_FORMULA, _NORMAL, _OTHERWISE))
    parts = [_HEAD.said(language)]
    for metric in sorted(CATALOGUE.values(), key=lambda m: m.name):
        meaning, usual, act = (text.said(language) for text in (metric.meaning, metric.normal, metric.act))
        lines = [f"## `{metric.name}` ({metric.unit})", "", meaning]
        lines += [f"- {formula}: `{metric.formula}`"] if metric.formula else []
        lines += [f"- {normal}: {usual}"] if usual else []
        lines += [f"- {otherwise}: {act}"] if act else []
        parts.append("\n".join(lines[:3] + [""] * (len(lines) > 3) + lines[3:]) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(sys.argv[1] if len(sys.argv) > 1 else "en"), end="")
