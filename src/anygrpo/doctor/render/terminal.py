"""A diagnosis on the terminal: what weighs first in full, notes in a line each."""

from __future__ import annotations

from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.diagnose import Diagnosis
from anygrpo.doctor.findings import Finding
from anygrpo.doctor.words import tell, verdict_text
from anygrpo.doctor.words.tell import book, unseen
from anygrpo.spoken import colon

COLOURS = {"serious": "bold red", "warning": "yellow", "info": "cyan"}
VERDICT_COLOURS = {
    "serious": "bold red",
    "warning": "bold yellow",
    "no_objection": "bold green",
    "cannot_tell": "bold blue",
}


def show(diagnosis: Diagnosis, console: Console, lang: str = "en") -> None:
    """Print one diagnosis."""
    run, labels = diagnosis.run, book(lang).labels
    console.print()
    console.print(Text(verdict_text(diagnosis.verdict, lang), style=VERDICT_COLOURS[diagnosis.verdict]))
    console.print(Text(headline(run, labels), style="dim"))
    for note in run.notes:
        console.print(Text(f"{labels['notes']}{colon(lang)}{note}", style="dim"))
    for found in run.inferred.columns:
        console.print(Text(f"{labels['inferred']}{colon(lang)}{found.name} = {found.key} ({found.why})", style="dim"))
    for reading in run.inferred.open:
        console.print(Text(f"{labels['open']}{colon(lang)}{reading}", style="yellow"))
    heavy = [f for f in diagnosis.findings if f.severity != "info"]
    for finding in heavy:
        console.print(card(finding, diagnosis, lang))
    if not heavy and diagnosis.verdict == "cannot_tell" and diagnosis.not_observable and not run.partial:
        console.print(Text(labels["too_little"]))
    for finding in diagnosis.findings:
        if finding.severity == "info":
            told = tell(finding, run, lang)
            line = Text.assemble(
                (f"{labels['info']} ", "cyan"),
                (told.title, "bold"),
                (f" · {labels[finding.certainty]} · {finding.rule}\n", "dim"),
                told.evidence,
            )
            if told.prescription:
                line.append(f" {told.prescription}")
            console.print(Padding(line, (1, 0, 0, 2)))
    if run.unknown:
        shown = ", ".join(run.unknown[:12]) + (f" … ({len(run.unknown)})" if len(run.unknown) > 12 else "")
        console.print()
        console.print(Text(f"{labels['unknown']}{colon(lang)}{shown}", style="dim"))
    if diagnosis.not_observable:
        console.print()
        console.print(
            Text(f"{labels['not_observable']}{colon(lang)}{unseen(diagnosis.not_observable, lang)}", style="dim")
        )
        console.print(Text(labels["not_observable_note"], style="dim italic"))


def headline(run: Columns, labels: dict[str, str]) -> str:
    """Where the log came from and what it is."""
    parts = (run.source, f"{labels['format']} {run.format}", f"{labels['framework']} {run.framework}")
    return " · ".join([*parts, f"{run.rows} {labels['rows']}"])


def card(finding: Finding, diagnosis: Diagnosis, lang: str) -> Panel:
    told, labels = tell(finding, diagnosis.run, lang), book(lang).labels
    colour = COLOURS[finding.severity]
    body = Group(
        Text(told.evidence),
        Text.assemble((f"{labels['cause']}{colon(lang)}", "bold"), told.cause),
        Text.assemble((f"{labels['do']}{colon(lang)}", "bold green"), told.prescription),
        Text.assemble((f"{labels['unlike']}{colon(lang)}", "dim"), (told.unlike, "dim")),
    )
    title = Text.assemble((f" {told.title} ", colour))
    foot = Text(f" {labels[finding.severity]} · {labels[finding.certainty]} · {finding.rule} ", style="dim")
    return Panel(
        body,
        title=title,
        subtitle=foot,
        title_align="left",
        subtitle_align="right",
        border_style=colour,
        padding=(0, 1),
    )
