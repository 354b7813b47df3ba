"""A diagnosis as one self-contained page: findings beside the curves that show them, decisive rows marked."""

from __future__ import annotations

from html import escape

from anygrpo.doctor.diagnose import Diagnosis
from anygrpo.doctor.findings import Finding
from anygrpo.doctor.render.curves import curve
from anygrpo.doctor.render.style import document, prose
from anygrpo.doctor.run import Run
from anygrpo.doctor.series import Series
from anygrpo.doctor.words import tell, verdict_text
from anygrpo.doctor.words.tell import book

OVERVIEW = (
    "reward/mean", "reward/std_within", "groups/dead", "kl/reference", "entropy", "grad_norm/total", "length/mean", "truncated/share",
    "advantage/std", "clip/fraction", "loss/total", "loss/policy", "lr",
)  # fmt: skip


def page(diagnoses: list[Diagnosis], lang: str = "en") -> str:
    """The report of one or several runs."""
    labels = book(lang).labels
    body = "".join(report(d, lang) for d in diagnoses)
    return document(f"{labels['report']}: {diagnoses[0].run.source}", body, lang)


def report(diagnosis: Diagnosis, lang: str) -> str:
    run, labels = diagnosis.run, book(lang).labels
    heavy = [f for f in diagnosis.findings if f.severity != "info"]
    notes = [f for f in diagnosis.findings if f.severity == "info"]
    meta = f"{run.source} · {run.format} · {labels['framework']} {run.framework} · {run.rows} {labels['rows']}"
    out = [
        f'<p class="meta">{escape(labels["report"])}</p><h1 class="{diagnosis.verdict}">{escape(verdict_text(diagnosis.verdict, lang))}</h1>',
        f'<p class="meta">{escape(meta)}</p>',
        *(f'<p class="meta">{escape(labels["notes"])}: {escape(note)}</p>' for note in run.notes),
    ]
    if heavy:
        out.append(f"<h2>{escape(labels['findings'])}</h2>" + "".join(card(f, run, lang) for f in heavy))
    elif diagnosis.verdict == "no_objection":
        out.append(f"<p>{escape(labels['none'])}</p>")
    if notes:
        out.append(f'<h2>{escape(labels["info"])}</h2><ul class="notes">' + "".join(note_line(f, run, lang) for f in notes) + "</ul>")
    marked = {name: f.rows for f in reversed(heavy) for name in f.metrics}
    curves = "".join(figure(s, marked.get(name, ()), lang) for name in OVERVIEW if (s := run.get(name)) and len(s) > 1)
    curves += "".join(figure(s, (), lang) for s in list(run.evals.values())[:6] if len(s) > 2)
    if curves:
        out.append(f'<h2>{escape(labels["curves"])}</h2><div class="curves">{curves}</div>')
    if diagnosis.not_observable:
        names = ", ".join(diagnosis.not_observable)
        out.append(f'<h2>{escape(labels["not_observable"])}</h2><p class="seen">{escape(names)}. {escape(labels["not_observable_note"])}</p>')
    return "".join(out) + "<footer>anygrpo doctor</footer>"


def card(finding: Finding, run: Run, lang: str) -> str:
    """One finding of weight with up to two of its curves."""
    told, labels = tell(finding, run, lang), book(lang).labels
    shown = [s for name in finding.metrics if (s := run.get(name)) and len(s) > 1][:2]
    figures = "".join(figure(s, finding.rows, lang) for s in shown)
    tags = f'<span class="tag">{escape(labels[finding.severity])} · {escape(labels[finding.certainty])}</span><span class="tag id">{finding.rule}</span>'
    rest = "".join(
        f"<dt>{escape(labels[key])}</dt><dd{mark}>{prose(text)}</dd>"
        for key, text, mark in (
            ("cause", told.cause, ""), ("do", told.prescription, ' class="do"'), ("unlike", told.unlike, ""), ("source", told.source, ""),
        )  # fmt: skip
        if text
    )
    side = f'<div class="side">{figures}</div>' if figures else ""
    wide = " wide" if figures else ""
    return f'<article class="{finding.severity}{wide}"><div>{tags}<h3>{escape(told.title)}</h3><p>{prose(told.evidence)}</p><dl>{rest}</dl></div>{side}</article>'


def note_line(finding: Finding, run: Run, lang: str) -> str:
    told, labels = tell(finding, run, lang), book(lang).labels
    return (
        f'<li class="info"><b>{escape(told.title)}</b> <span class="tag id">{escape(labels[finding.certainty])} · {finding.rule}</span><br>'
        f"{prose(told.evidence)} {prose(told.prescription)}</li>"
    )


def figure(series: Series, marked: tuple[int, ...], lang: str) -> str:
    labels = book(lang).labels
    aria = f"{series.key}: {labels['row']} {series.rows[0]} - {series.rows[-1]}"
    return curve(series, marked, series.key, aria)
