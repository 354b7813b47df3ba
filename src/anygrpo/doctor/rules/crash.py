"""The run crashed."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.rule import Result, finding, rule

WORDS = {
    "en": {
        "title": "The run crashed",
        "title:late": "An exception after the end of training",
        "title:signal": "Stopped from outside",
        "evidence": 'The log ends in an exception after {count} metric rows: "{text}" (line {line}).',
        "evidence:signal": (
            'The run was stopped from outside after {count} metric rows: "{text}" (line {line}). That is no fault'
            " of the training."
        ),
        "evidence:late": (
            'After the end of training an exception followed: "{text}" (line {line}). The training itself is complete.'
        ),
        "cause": "The last exception names it.",
        "prescription": "Mend that first: nothing later in this log can be judged without it.",
        "prescription:signal": "",
        "prescription:late": "Look at the step after training (saving, evaluation, upload).",
        "principle": "the last exception that nobody caught",
        "unlike": "a SIGHUP or Ctrl-C at the end of a sane run",
    },
    "zh": {
        "title": "训练崩溃",
        "title:late": "训练结束之后的异常",
        "title:signal": "被外部停止",
        "evidence": "日志在 {count} 行指标之后以异常结束：“{text}”（文件第 {line} 行）。",
        "evidence:signal": "在 {count} 行指标之后被外部停止：“{text}”（文件第 {line} 行）。这不是训练本身的问题。",
        "evidence:late": "训练结束之后出现异常：“{text}”（文件第 {line} 行）。训练本身是完整的。",
        "cause": "看最后一条异常。",
        "prescription": "先修好它：没有它，日志后面的内容都无从判断。",
        "prescription:signal": "",
        "prescription:late": "检查训练之后的步骤（保存、评测、上传）。",
        "principle": "最后一条没有被捕获的异常",
        "unlike": "正常训练末尾的 SIGHUP 或 Ctrl-C",
    },
}


@rule(
    stage="log",
    order=10,
    certainty="certain",
    live="never",
)
def crash(run: Columns) -> Result:
    end = run.ending
    if end is None:
        return None
    if end.kind == "crash":
        rows = [max(run.steps)] if run.steps else ([run.rows] if run.rows else [])
        return finding("crash", "serious", rows, text=end.text, line=end.line, count=run.rows)
    return finding("crash", "info", variant=end.kind, text=end.text, line=end.line, count=run.rows)
