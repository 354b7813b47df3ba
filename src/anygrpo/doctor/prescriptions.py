"""The value to put: advice in the reader's own framework's words."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import loss_kl_slope
from anygrpo.doctor.findings import Change, Finding
from anygrpo.doctor.settings import PLAIN, SB3, SETTINGS, VALUES


def advice(finding: Finding, run: Columns, words: dict[str, str]) -> list[str]:
    """One sentence a change: the setting's name in this framework, the value now, the value to put."""
    out: list[str] = []
    for change, name in named(finding, run.framework):
        now = present(run, change.concept)
        value = written(change, run.framework)
        if value == "" or (change.value is None and change.factor is None):
            out.append(words["check"].format(name=name))
        elif change.factor is not None and now is not None:
            out.append(words["set_from"].format(name=name, now=plain(now), to=plain(now * change.factor)))
        elif change.factor is not None:
            out.append(words["scale"].format(name=name, factor=f"{change.factor:g}"))
        elif change.value != now:  # a cure that is in force already is none
            out.append(put(value, name, now, words))
    return out


def named(finding: Finding, framework: str) -> list[tuple[Change, str]]:
    """Each change with each setting of this framework that it speaks of ("low and high" are two)."""
    known = {"generic": PLAIN, "sb3": SB3}.get(framework)
    out: list[tuple[Change, str]] = []
    for change in finding.changes:
        name = known.get(change.concept) if known else SETTINGS[change.concept].get(framework)
        out += [(change, part) for part in (name or "").split(" and ") if part]
    return out


def written(change: Change, framework: str) -> str:
    """The value as this framework takes it; "" where it is not known how it writes it."""
    if isinstance(change.value, int | float):
        return f"{change.value:g}"
    known = VALUES.get((change.concept, str(change.value)))
    return known.get(framework, "") if known else str(change.value)


def put(value: str, name: str, now: float | None, words: dict[str, str]) -> str:
    if now is not None:
        return words["set_from"].format(name=name, now=plain(now), to=value)
    return words["set"].format(name=name, to=value)


def plain(x: float) -> str:
    """A value as a person would write it into a configuration: 512, 3e-06, 0.05."""
    return str(round(x)) if abs(x) >= 10 else f"{x:.2g}"


def present(run: Columns, concept: str) -> float | None:
    """The value in force: configured, or shown by the log (peak rate, measured beta). Nothing else is a setting."""
    value = run.settings.get(concept)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if concept == "beta" and (measured := loss_kl_slope(run)):
        return measured
    logged = {"learning_rate": "lr", "beta": "beta"}.get(concept)
    series = run.get(logged) if logged else None
    if not series:
        return None
    rl = run.get("ratio/mean") or run.get("loss/policy")  # a supervised stage before has settings of its own
    shown = [x for r, x in zip(series.rows, series.values) if rl is None or r in set(rl.rows)] or series.values
    return max(shown) if max(shown) > 0 else None
