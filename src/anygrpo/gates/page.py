"""The gates' part of report.html: what each one did in the first and the last evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from anygrpo.spoken import Text
from anygrpo.spoken import table as words_of

_WORDS = {
    "gates": Text(
        "Gates, each drawn alone on a few training prompts: first and last evaluation",
        "门控，在少量训练样本上各自单独抽样：首次与末次评估",
    ),
    "gate": Text("gate", "门控"),
    "effect": Text("change of the output (/255)", "输出变化（/255）"),
    "reward_std": Text("spread of the reward", "奖励标准差"),
    "headroom": Text("best draw over the mean", "最优抽样超出均值"),
    "settled": Text("settled: draws one value alone", "已收敛：只抽到一个取值"),
    "dead": Text("dead: changes no output", "失效：不改变输出"),
}
_BEFORE = "restoration/gate_"
_NUMBERS = ("effect", "reward_std", "headroom")


def sites(rows: Sequence[Mapping[str, Any]], language: str) -> tuple[str, str] | None:
    """Heading and table from the rows of metrics.jsonl; None where no gate was measured."""
    measured = [row for row in rows if any(key.startswith(f"{_BEFORE}effect/") for key in row)]
    if not measured:
        return None
    words, first, last = words_of(_WORDS, language), measured[0], measured[-1]
    start = f"{_BEFORE}effect/"
    names = dict.fromkeys(key.removeprefix(start) for row in measured for key in row if key.startswith(start))
    body = ""
    for name in names:
        cells = [f"<b>{escape(name)}</b>"]
        for number in _NUMBERS:
            key = f"{_BEFORE}{number}/{name}"
            values = [f"{row[key]:.3g}" for row in (first, last) if isinstance(row.get(key), float | int)]
            cells.append(" → ".join(values if len(measured) > 1 else values[-1:]))
        if last.get(start + name) == 0:
            cells[1] = escape(words["dead"])
        elif start + name not in last:
            cells[1] = escape(words["settled"])
        body += f"<tr>{''.join(f'<td>{c}</td>' for c in cells)}</tr>"
    head = "".join(f"<th>{escape(words[h])}</th>" for h in ("gate", *_NUMBERS))
    return words["gates"], f'<div class="scroll"><table class="answers gates"><tr>{head}</tr>{body}</table></div>'
