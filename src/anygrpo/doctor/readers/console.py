"""Console output of any trainer, in one pass: metric rows of several shapes, tracebacks, settings that were printed."""

from __future__ import annotations

from collections.abc import Iterable

from anygrpo.doctor.log import Ending, Log, Row
from anygrpo.doctor.readers import inferred_rows, nested_tables, proof
from anygrpo.doctor.readers.console_lines import Scan
from anygrpo.doctor.readers.training_rows import chosen, same_kind, with_outcomes
from anygrpo.spoken import Text, said

CUT = Text("read to line {}; the rest has no known form", "读到第 {} 行；其余内容没有已知的形式")


def read(text: Iterable[str], source: str) -> Log:
    """Read lines of console output."""
    scan = Scan()
    i = 0
    for i, line in enumerate(text, 1):
        scan.line(i, line)
    if scan.error is None:
        scan.catch_up()
    scan.unfinished()
    log = Log(source, "console", summary=scan.summary)
    scan.boxes.close()
    scan.markdown.close()
    blocks = with_outcomes(scan.blocks.rows)
    tables = [row for kind in (scan.table, scan.markdown.rows, scan.aligned.rows) for row in with_outcomes(kind)]
    fragments = [row for row in with_outcomes(scan.fragments) if len(row) > 1]
    printed = "trl-console" if any("learning_rate" in r or "grad_norm" in r for r in scan.dicts) else "console"
    free = free_rows(scan, [row for row in blocks if len(row) - ("step" in row) > 1])
    log.format, log.rows = chosen(
        [
            ("verl-console", scan.verl),
            (printed, scan.dicts),
            ("sb3-console", with_outcomes(scan.boxes.rows)),
            ("fragment", fragments),
            ("table", tables),
            ("console", free),
        ]
    )
    for again in (
        (nested_tables.printed, inferred_rows.mine) if not proof.satisfying(log.rows, log.rows is scan.dicts) else ()
    ):
        if proof.better(found := again(scan.kept), log.rows):
            log.format, log.rows = "console", found
            log.partial = 0 < scan.cut < scan.at
    log.ending = ending(scan)
    log.notes = [note for rows in (scan.dicts, scan.verl, scan.pairs) for note in rows.note]
    log.notes += [said(CUT).format(scan.cut)] if log.partial else []
    log.head = scan.head
    return log


def free_rows(scan: Scan, blocks: list[Row]) -> list[Row]:
    """Of blocks, lines of pairs and lines with a single number: what most rows of training are in."""
    pairs = same_kind(scan.pairs)
    training = [row for row in pairs if not all(key.startswith("eval_") or key == "step" for key in row)]
    if len(blocks) > len(training) // 2 and blocks:
        return blocks
    return pairs if training or not scan.singles else [*same_kind(scan.singles), *pairs]


def ending(scan: Scan) -> Ending | None:
    """How the run died, if it did.

    A traceback counts only if no metric row came after it, and if the run had not survived the same exception before
    (workers that log and retry). After the end of training it is "late".
    """
    if scan.error is None or scan.rows_at_error < scan.count():
        return None
    if scan.error.kind == "crash" and scan.error.text.split(":", 1)[0] in scan.survived:
        return None
    if scan.error.kind == "crash" and 0 < scan.finished_at < scan.error.line:
        return Ending("late", scan.error.text, scan.error.line)
    return scan.error
