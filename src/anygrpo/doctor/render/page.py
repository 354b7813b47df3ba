"""A diagnosis as one self-contained page: findings beside the curves that show them, decisive rows marked."""

from __future__ import annotations

import re
from html import escape

from anygrpo.doctor.canonical import label
from anygrpo.doctor.columns import Columns
from anygrpo.doctor.diagnose import Diagnosis
from anygrpo.doctor.findings import Finding
from anygrpo.doctor.render.curves import counted_in, curve, step_of
from anygrpo.doctor.render.style import document, element, prose
from anygrpo.doctor.series import Series
from anygrpo.doctor.words import number_text, tell, verdict_text
from anygrpo.doctor.words.tell import book, unseen
from anygrpo.spoken import colon, say

OVERVIEW = (
    "reward/mean", "reward/std_within", "groups/dead", "kl/reference", "entropy", "grad_norm/total", "length/mean",
    "truncated/share", "advantage/std", "clip/fraction", "loss/total", "loss/policy", "lr",
)  # fmt: skip
EVALS_SHOWN = 6
ERRORS = re.compile(r"_se(/|$)")
"""A measure's standard error is no measure."""


def page(diagnoses: list[Diagnosis], lang: str = "en") -> str:
    """The report of one or several runs."""
    body = "".join(report(d, lang) for d in diagnoses)
    return document(f"{book(lang).labels['report']}{colon(lang)}{diagnoses[0].run.source}", body, lang)


def report(diagnosis: Diagnosis, lang: str) -> str:
    with counted_in(diagnosis.run.steps):
        return _report(diagnosis, lang)


def _report(diagnosis: Diagnosis, lang: str) -> str:
    run, labels = diagnosis.run, book(lang).labels
    heavy = [f for f in diagnosis.findings if f.severity != "info"]
    light = [f for f in diagnosis.findings if f.severity == "info"]
    out = [
        element("p", escape(labels["report"]), "meta"),
        element("h1", escape(verdict_text(diagnosis.verdict, lang)), diagnosis.verdict),
        element(
            "p", escape(" · ".join((run.source, run.format, run.framework, f"{run.rows} {labels['rows']}"))), "meta"
        ),
        *(element("p", escape(f"{labels['notes']}{colon(lang)}{note}"), "meta") for note in run.notes),
    ]
    if heavy:
        out += [heading(labels["findings"]), *(card(f, run, lang) for f in heavy)]
    elif diagnosis.verdict == "cannot_tell" and diagnosis.not_observable and not run.partial:
        out.append(element("p", escape(labels["too_little"])))
    if light:
        out += [heading(labels["also"]), element("ul", "".join(light_line(f, run, lang) for f in light), "notes")]
    if curves := overview(run, heavy, lang):
        out += [heading(labels["curves"]), element("div", curves, "curves")]
    if diagnosis.not_observable:
        seen = unseen(diagnosis.not_observable, lang) + say(". ", "。", lang) + labels["not_observable_note"]
        out += [heading(labels["not_observable"]), element("p", escape(seen), "seen")]
    return "".join(out) + "<footer>anygrpo doctor</footer>"


def heading(text: str) -> str:
    return element("h2", escape(text))


def overview(run: Columns, heavy: list[Finding], lang: str) -> str:
    """All main curves, small, what was held out first, each with the rows of the first finding that names it."""
    marked = {name: f.rows for f in reversed(heavy) for name in f.metrics}
    held_out = [s for name, s in run.evals.items() if len(s) > 2 and not ERRORS.search(name)][:EVALS_SHOWN]
    known: list[tuple[Series, tuple[int, ...]]] = [(s, ()) for s in held_out]
    known += [(s, marked.get(name, ())) for name in OVERVIEW if (s := run.get(name)) and len(s) > 1]
    return "".join(figure(s, rows, lang, 360) for s, rows in known if rows or not s.constant) + _flat(known, lang)


def _flat(known: list[tuple[Series, tuple[int, ...]]], lang: str) -> str:
    """What would be a level line is a word: the eye is for what moves."""
    told = [f"{label(s.key)} {number_text(s.values[0])}" for s, rows in known if s.constant and not rows]
    text = book(lang).labels["flat"] + colon(lang) + ", ".join(told)
    return element("p", escape(text), "seen") if told else ""


def card(finding: Finding, run: Columns, lang: str) -> str:
    """One finding of weight with up to two of its curves."""
    told, labels = tell(finding, run, lang), book(lang).labels
    shown = [s for name in finding.metrics if (s := run.get(name)) and len(s) > 1][:2]
    parts = (
        ("cause", told.cause, ""),
        ("do", told.prescription, "do"),
        ("unlike", told.unlike, ""),
        ("source", told.principle, ""),
    )
    details = "".join(element("dt", escape(labels[k])) + element("dd", prose(x), style) for k, x, style in parts if x)
    words = (
        tags(finding, labels)
        + element("h3", escape(told.title))
        + element("p", prose(told.evidence))
        + element("dl", details)
    )
    side = element("div", "".join(figure(s, finding.rows, lang) for s in shown), "side") if shown else ""
    return element("article", element("div", words) + side, f"{finding.severity} wide" if shown else finding.severity)


def tags(finding: Finding, labels: dict[str, str]) -> str:
    weight = f"{labels[finding.severity]} · {labels[finding.certainty]}"
    return element("span", escape(weight), "tag") + element("span", finding.rule, "tag id")


def light_line(finding: Finding, run: Columns, lang: str) -> str:
    told, labels = tell(finding, run, lang), book(lang).labels
    mark = element("span", f"{escape(labels[finding.certainty])} · {finding.rule}", "tag id")
    text = f"{prose(told.evidence)} {prose(told.prescription)}"
    return element("li", f"{element('b', escape(told.title))} {mark}<br>{text}", "info")


def figure(series: Series, marked: tuple[int, ...], lang: str, width: int = 560) -> str:
    labels = book(lang).labels
    name = label(series.key)
    aria = f"{name}: {step_of(series.rows[0])} - {step_of(series.rows[-1])}"
    return curve(series, marked, name, aria, labels["decisive"], width)
