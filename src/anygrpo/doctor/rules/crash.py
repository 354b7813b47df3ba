"""The run crashed."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.spoken import Text

WORDS = {
    "title": Text("The run crashed", "训练崩溃"),
    "title:late": Text("An exception after the end of training", "训练结束之后的异常"),
    "title:signal": Text("Stopped from outside", "被外部停止"),
    "evidence": Text(
        'The log ends in an exception after {count} metric rows: "{text}" (line {line}).',
        "日志在 {count} 行指标之后以异常结束：“{text}”（文件第 {line} 行）。",
    ),
    "evidence:signal": Text(
        'The run was stopped from outside after {count} metric rows: "{text}" (line {line}). That is no fault'
        " of the training.",
        "在 {count} 行指标之后被外部停止：“{text}”（文件第 {line} 行）。这不是训练本身的问题。",
    ),
    "evidence:late": Text(
        'After the end of training an exception followed: "{text}" (line {line}). The training itself is complete.',
        "训练结束之后出现异常：“{text}”（文件第 {line} 行）。训练本身是完整的。",
    ),
    "cause": Text("The last exception names it.", "看最后一条异常。"),
    "prescription": Text(
        "Mend that first: nothing later in this log can be judged without it.",
        "先修好它：没有它，日志后面的内容都无从判断。",
    ),
    "prescription:signal": Text("", ""),
    "prescription:late": Text(
        "Look at the step after training (saving, evaluation, upload).", "检查训练之后的步骤（保存、评测、上传）。"
    ),
    "principle": Text("the last exception that nobody caught", "最后一条没有被捕获的异常"),
    "unlike": Text("a SIGHUP or Ctrl-C at the end of a sane run", "正常训练末尾的 SIGHUP 或 Ctrl-C"),
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
