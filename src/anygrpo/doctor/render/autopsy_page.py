"""An autopsy as an argument that a reader can follow: given, step by step, inferred, and what stays open."""

from __future__ import annotations

from html import escape
from typing import Any

from rich.console import Console
from rich.text import Text

from anygrpo.doctor.argument import Autopsy
from anygrpo.doctor.claims import ANSWERS
from anygrpo.doctor.findings import Finding, verdict
from anygrpo.doctor.printed import NUMBERS
from anygrpo.doctor.render.as_json import finding_json
from anygrpo.doctor.render.style import document, element, prose
from anygrpo.doctor.words import tell
from anygrpo.doctor.words.tell import book, number_text
from anygrpo.spoken import colon


def as_json(autopsy: Autopsy, source: str, lang: str = "en") -> dict[str, Any]:
    """The doctor's schema plus "inferred"; `not_observable` lists the numbers that were not given."""
    return {
        "source": source,
        "format": "autopsy",
        "rows": 1,
        "verdict": verdict(autopsy.findings),
        "findings": [finding_json(f, None, lang) for f in autopsy.findings],
        "not_observable": [name for name in NUMBERS if name not in autopsy.given],
        "inferred": dict(autopsy.inferred),
        "given": {name: m.value for name, m in autopsy.given.items()},
        "unused": list(autopsy.unused),
        "claims": [
            {"said": c.said, "answer": c.answer, "word": ANSWERS[c.answer].said(lang), "why": c.why.said(lang)}
            for c in autopsy.claims
        ],
    }


def given_text(autopsy: Autopsy) -> list[tuple[str, str]]:
    out = [(name, f"{m.value:.10g}") for name, m in autopsy.given.items()]
    return [*out, ("normaliser", autopsy.normaliser)] if autopsy.normaliser else out


def inferred_text(autopsy: Autopsy, lang: str) -> list[tuple[str, str]]:
    words = book(lang).autopsy
    return [(words[name], words["unknown"] if x is None else number_text(x)) for name, x in autopsy.inferred.items()]


def show(autopsy: Autopsy, console: Console, lang: str = "en") -> None:
    """Print the argument, numbered."""
    words, labels = book(lang).autopsy, book(lang).labels
    console.print(Text(f"\n{words['title']}", style="bold"))
    console.print(
        Text(f"{words['given']}{colon(lang)}" + ", ".join(f"{k} = {v}" for k, v in given_text(autopsy)), style="dim")
    )
    if autopsy.unused:
        console.print(Text(f"{words['unused']}{colon(lang)}{', '.join(autopsy.unused)}", style="dim"))
    for i, finding in enumerate(autopsy.findings, 1):
        told = tell(finding, None, lang)
        colour = {"serious": "bold red", "warning": "yellow", "info": "cyan"}[finding.severity]
        console.print()
        console.print(
            Text.assemble((f"{i}. {told.title}", colour), (f"  {labels[finding.certainty]} · {finding.rule}", "dim"))
        )
        console.print(Text(told.evidence))
        if finding.severity != "info" and told.prescription:
            console.print(Text.assemble((f"{labels['do']}{colon(lang)}", "bold green"), told.prescription))
    if autopsy.claims:
        console.print(Text(f"\n{words['claims']}", style="bold"))
    for claim in autopsy.claims:
        colour = {"holds": "green", "fails": "bold red", "open": "yellow"}[claim.answer]
        line = Text.assemble(
            (f"  {ANSWERS[claim.answer].said(lang)}", colour), f"  {claim.said} — {claim.why.said(lang)}"
        )
        console.print(line)
    console.print(Text(f"\n{words['inferred']}", style="bold"))
    for name, value in inferred_text(autopsy, lang):
        console.print(Text(f"  {name}{colon(lang)}{value}"))
    if autopsy.open:
        console.print(Text(f"\n{words['cannot']}", style="bold"))
        for key in autopsy.open:
            console.print(Text(f"  - {book(lang).cannot[key]}"))


def page(autopsy: Autopsy, lang: str = "en") -> str:
    """The same argument as a self-contained page."""
    words = book(lang).autopsy
    given = ", ".join(f"`{k} = {v}`" for k, v in given_text(autopsy))
    out = [
        element("p", "anygrpo", "meta"),
        element("h1", escape(words["title"])),
        element("p", f"{escape(words['given'])}{colon(lang)}{prose(given)}"),
        *(
            [element("p", escape(f"{words['unused']}{colon(lang)}{', '.join(autopsy.unused)}"), "meta")]
            if autopsy.unused
            else []
        ),
        *(step(i, finding, lang) for i, finding in enumerate(autopsy.findings, 1)),
    ]
    if autopsy.claims:
        rows = ((ANSWERS[c.answer].said(lang), c.said, c.why.said(lang)) for c in autopsy.claims)
        body = "".join(element("tr", "".join(element("td", escape(cell)) for cell in row)) for row in rows)
        out += [element("h2", escape(words["claims"])), element("table", body, "kv")]
    cells = (element("td", escape(name)) + element("td", escape(value)) for name, value in inferred_text(autopsy, lang))
    out += [element("h2", escape(words["inferred"])), element("table", "".join(element("tr", c) for c in cells), "kv")]
    if autopsy.open:
        points = "".join(element("li", escape(book(lang).cannot[key])) for key in autopsy.open)
        out += [element("h2", escape(words["cannot"])), element("ul", points)]
    return document(words["title"], "".join(out), lang)


def step(number: int, finding: Finding, lang: str) -> str:
    told, labels = tell(finding, None, lang), book(lang).labels
    body = element("span", escape(labels[finding.certainty]), "tag") + element("span", finding.rule, "tag id")
    body += element("h3", f"{number}. {escape(told.title)}") + element("p", prose(told.evidence))
    if finding.severity != "info" and told.prescription:
        body += element("dl", element("dt", escape(labels["do"])) + element("dd", prose(told.prescription), "do"))
    return element("article", element("div", body), finding.severity)
