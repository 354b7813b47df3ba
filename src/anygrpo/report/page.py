"""A run folder as one page: what the doctor says, curves, answers before and after, pictures, settings, machine."""

from __future__ import annotations

import ast
import base64
import contextlib
import json
import mimetypes
from html import escape
from pathlib import Path
from typing import Any

from anygrpo.core.thumbnails import is_thumbnail
from anygrpo.doctor import diagnose_log, read
from anygrpo.doctor.render.curves import cut_at
from anygrpo.doctor.render.page import report as diagnosis_part
from anygrpo.doctor.render.style import document
from anygrpo.errors import DataError
from anygrpo.families import Family, family_of, resolve
from anygrpo.files import lines_of, toml_table
from anygrpo.report.headline import asked, headline
from anygrpo.report.sliders import CSS, sliders
from anygrpo.report.talk import CSS as TALK
from anygrpo.report.talk import conversation
from anygrpo.report.words import WORDS
from anygrpo.spoken import Text, colon, table

_FOOTER = "<footer>anygrpo doctor</footer>"
_SHOWN, _LONGEST = 8, 600
"""Answers shown, and characters of each."""
_CSS = """<style>
.answers{width:100%;border-collapse:collapse;font-size:15px}
.answers td,.answers th{padding:8px 14px 8px 0;border-top:1px solid var(--rule);text-align:left;vertical-align:top;
overflow-wrap:anywhere;white-space:pre-wrap;width:33%}
.gains td,.gains th{width:auto;white-space:nowrap;font-variant-numeric:tabular-nums}
.answers img{max-width:100%;min-width:48px;margin:0 6px 6px 0;vertical-align:top}
.answers small{color:var(--soft);white-space:nowrap}
pre{background:var(--card);border:1px solid var(--rule);border-radius:6px;padding:14px;overflow-x:auto;font-size:13px;
line-height:1.45}
.pictures{display:grid;gap:18px;grid-template-columns:repeat(auto-fit,minmax(min(100%,320px),1fr))}
.pictures img{width:100%;height:auto}.pictures .wide{grid-column:1/-1;overflow-x:auto}
.pictures .wide img{min-width:720px}
details summary{cursor:pointer;color:var(--soft)}.scroll{overflow-x:auto}
</style>"""


def write_report(folder: Path, target: Path, language: str = "en") -> None:
    """Write the page of a run folder to `target`. A link that lies in the folder in its place is not followed.

    Raises:
        DataError: no run there.
    """
    page = run_page(folder, language)
    if target.is_symlink() and target.parent.resolve() == folder.resolve():
        target.unlink()
    target.write_text(page, encoding="utf-8", errors="replace")  # a folder's name may be no text


def run_page(folder: Path, language: str = "en") -> str:
    """The page of a run folder, self-contained: no script, nothing loaded from elsewhere.

    Raises:
        DataError: no run there.
    """
    if not (folder / "metrics.jsonl").is_file():
        raise DataError(
            Text(f"{folder} holds no run", f"{folder} 中没有运行记录"),
            Text("give the folder that contains metrics.jsonl", "请给出含有 metrics.jsonl 的文件夹"),
        )
    words = table(WORDS, language)
    log = read(str(folder))
    diagnosis = diagnose_log(log)
    with cut_at(_resumed_rows(folder)):
        body = diagnosis_part(diagnosis, language).removesuffix(_FOOTER)
    sides = _sides(folder)
    parts = [_actions(folder, words), _of_family(folder, sides, language), _answers(folder, sides, words)]
    parts += [section(folder, words) for section in (_pictures, _settings)]
    title = f"{words['title']}{colon(language)}{folder.name}"
    evaluated = [row for row in log.rows if "eval/reward" in row]
    head = headline(_lines(folder / "metrics.jsonl"), evaluated[-1] if evaluated else {}, words)
    body = body.replace("<h2>", head + "<h2>", 1)
    return document(title, _CSS + TALK + body + "".join(parts) + "<footer>anygrpo report</footer>", language)


Rows = list[dict[str, Any]]


def _evaluations(folder: Path) -> list[Path]:
    """The files of the first and the last evaluation; none where there were fewer than two."""
    files = sorted((folder / "evaluations").glob("step_*.jsonl"))
    return [files[0], files[-1]] if len(files) > 1 else []


def _sides(folder: Path) -> tuple[Rows, Rows]:
    """Rows of the first and the last evaluation that answer the same prompts."""
    files = _evaluations(folder)
    return paired(_answer_lines(files[0]), _answer_lines(files[1])) if files else ([], [])


def _at(step: str, words: dict[str, str]) -> str:
    return words["at"].format(step=step)


def _section(heading: str, inside: str) -> str:
    return f"<h2>{escape(heading)}</h2>{inside}"


def _resumed_rows(folder: Path) -> tuple[int, ...]:
    """Rows (from 1) at which the run went on with something changed: curves are cut there."""
    changed = [r["step"] for r in _lines(folder / "resumes.jsonl") if r.get("said") and isinstance(r.get("step"), int)]
    steps = [row.get("step") for row in _lines(folder / "metrics.jsonl")]
    return tuple(i for i, step in enumerate(steps, 1) if step in changed)


def _actions(folder: Path, words: dict[str, str]) -> str:
    """What the doctor did, in order."""
    try:
        actions = json.loads((folder / "doctor.json").read_text(encoding="utf-8")).get("actions", [])
        rows = "".join(f"<li>{escape(_action(a, words))}</li>" for a in actions)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""  # absent, or not what the doctor writes
    return _section(words["actions"], f'<ul class="notes">{rows}</ul>') if rows else ""


def _action(action: dict[str, Any], words: dict[str, str]) -> str:
    after = action["after"]
    changes = [f"{name} {old:g} -> {after[name]:g}" for name, old in action["before"].items() if old != after[name]]
    where = [action["checkpoint"]] if action.get("checkpoint") else []
    head = f"{words['step']} {action['step']}: {words[action['kind']]} ({action['rule']})"
    return "; ".join([f"{head}. {action['reason']}", *where, *changes])


def _of_family(folder: Path, sides: tuple[Rows, Rows], language: str) -> str:
    """What the policy's family shows of the first and the last evaluation, and of the run's numbers."""
    family = _family(folder)
    if family is None:
        return ""
    made: list[tuple[str, str] | None] = []
    if _evaluations(folder):
        made = [resolve(text)(*sides, language) for text in family.pages]
    rows = _lines(folder / "metrics.jsonl") if family.tables else []
    made += [resolve(text)(rows, language) for text in family.tables]
    return "".join(_section(*page) for page in made if page is not None)


def _family(folder: Path) -> Family | None:
    """The family of the run's policy, by its recipe; None where that is not here, or of a family that is not."""
    try:
        table = toml_table((folder / "config.toml").read_text(encoding="utf-8"))
        return family_of(table["policy"]["kind"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _answers(folder: Path, sides: tuple[Rows, Rows], words: dict[str, str]) -> str:
    """The same held-out prompts at the first and the last evaluation; else samples of the first and the last step."""
    if files := _evaluations(folder):
        first, last = sides
        if not first:
            return _section(words["answers"], f"<p>{escape(words['unpaired'])}</p>")
        # the first prompts, so that none is picked for its looks
        pairs = list(zip(first, last))[:_SHOWN]
        rows = [(_prompt(a["text"], a), _said(a, words), _said(b, words)) for a, b in pairs]
        steps = [_at(_step(file), words) for file in files]
        heads = (words["prompt"], words["before"] + steps[0], words["after"] + steps[1])
        return _section(words["answers"], _table(heads, rows))
    samples = sorted((folder / "samples").glob("step_*.jsonl"))
    if not samples:
        alone = sorted((folder / "evaluations").glob("step_*.jsonl"))
        return _of_one_evaluation(alone[0], words) if alone else ""
    rows = [
        (
            _prompt(row.get("prompt", ""), row),
            _cell(
                row["outputs"][0],
                (row.get("rewards") or [0.0])[0],
                conversation((row.get("conversations") or [None])[0], words),
            ),
            escape(words["step"] + f" {_step(file)}"),
        )
        for file in dict.fromkeys((samples[0], samples[-1]))
        for row in _lines(file)
        if isinstance(row.get("outputs"), list) and row["outputs"]
    ]
    return _section(words["samples"], _table((words["prompt"], words["sample"], words["step"]), rows[:_SHOWN]))


def _of_one_evaluation(file: Path, words: dict[str, str]) -> str:
    """Its answers, where the run has nothing to set beside them."""
    step = escape(words["step"] + f" {_step(file)}")
    rows = [(_prompt(row["text"], row), _said(row, words), step) for row in _answer_lines(file)[:_SHOWN]]
    return _section(words["answers"], _table((words["prompt"], words["answer"], words["step"]), rows)) if rows else ""


def _said(row: dict[str, Any], words: dict[str, str]) -> str:
    return _cell(row["output"], row["reward"], conversation(row.get("conversation"), words))


def paired(
    first: list[dict[str, Any]], last: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of both that answer the same prompt, in the first's order: what was asked is compared, not its number
    (a resume with other data, or another held-out share, numbers other prompts the same)."""
    waiting: dict[str, list[dict[str, Any]]] = {}
    for row in last:
        waiting.setdefault(asked(row), []).append(row)
    pairs = [(row, waiting[asked(row)].pop(0)) for row in first if waiting.get(asked(row))]
    return [a for a, _ in pairs], [b for _, b in pairs]


def _answer_lines(file: Path) -> list[dict[str, Any]]:
    return [row for row in _lines(file) if {"text", "output", "reward"} <= row.keys()]


def _cell(output: Any, reward: Any, talk: str | None = None) -> str:
    if is_thumbnail(output) and isinstance(reward, int | float):  # what a policy shows of a picture
        return f'<img alt="" src="{escape(output)}"><br><small>{reward:.3g}</small>'
    text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, default=str)
    shown = f"{reward:.3g}" if isinstance(reward, int | float) else escape(str(reward)[:20])
    return f"{talk or escape(text[:_LONGEST])}<br><small>{shown}</small>"


def _prompt(asked: Any, row: dict[str, Any]) -> str:
    """What was asked, under its pictures."""
    given = row.get("pictures")
    shown = [f'<img alt="" src="{x}">' for x in given if is_thumbnail(x)] if isinstance(given, list) else []
    return "".join(shown) + ("<br>" if shown else "") + escape(_text(asked))


def _table(heads: tuple[str, str, str], rows: list[tuple[str, str, str]]) -> str:
    head = "".join(f"<th>{escape(h)}</th>" for h in heads)
    body = "".join(f"<tr><td>{p}</td><td>{a}</td><td>{b}</td></tr>" for p, a, b in rows)
    return f'<div class="scroll"><table class="answers"><tr>{head}</tr>{body}</table></div>'


def _text(prompt: Any) -> str:
    if isinstance(prompt, str) and prompt.startswith("{"):  # a table that was printed
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            prompt = ast.literal_eval(prompt[: 4 * _LONGEST])
    if isinstance(prompt, dict):
        head = prompt.get("caption")
        rest = [f"{k}: {v}" for k, v in prompt.items() if k != "caption"]
        return "\n".join(filter(None, [head if isinstance(head, str) else "", ", ".join(rest)]))[:_LONGEST]
    text = prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False, default=str)
    return text[:_LONGEST]


def _pictures(folder: Path, words: dict[str, str]) -> str:
    """pictures/*, embedded; of a folder in it the two pictures over each other."""
    figures = []
    for file in sorted((folder / "pictures").glob("*")):
        kind = mimetypes.guess_type(file.name)[0] or ""
        if kind.startswith("image/"):
            raw, name = file.read_bytes(), escape(file.stem.replace("_", " "))
            data, width = base64.b64encode(raw).decode(), ' class="wide"' if _is_strip(raw) else ""
            image = f'<img alt="{name}" src="data:{kind};base64,{data}">'
            figures.append(f"<figure{width}><figcaption>{name}</figcaption>{image}</figure>")
    drawn = sliders(folder / "pictures", words)
    made = (CSS + "".join(drawn) if drawn else "") + f'<div class="pictures">{"".join(figures)}</div>'
    return _section(words["pictures"], made) if figures or drawn else ""


def _is_strip(raw: bytes) -> bool:
    """Whether a PNG is over twice as wide as high (read off its header): too wide for a column of a grid."""
    width, height = (int.from_bytes(raw[a : a + 4], "big") for a in (16, 20))
    return raw.startswith(b"\x89PNG") and width > 2 * height


def _settings(folder: Path, words: dict[str, str]) -> str:
    """config.toml, the commands, and the environment."""
    out = ""
    for name, heading in (("config.toml", "config"), ("command.txt", "command"), ("environment.json", "environment")):
        file = folder / name
        if file.is_file():
            text = escape(file.read_text(encoding="utf-8", errors="replace"))
            out += f"<details><summary>{escape(words[heading])} ({name})</summary><pre>{text}</pre></details>"
    return _section(words["settings"], out) if out else ""


def _lines(file: Path) -> list[dict[str, Any]]:
    """The tables of a file of lines; what cannot be read is left out."""
    found = []
    for line in lines_of(file.read_text(encoding="utf-8", errors="replace")) if file.is_file() else ():
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def _step(file: Path) -> str:
    return file.stem.removeprefix("step_").lstrip("0") or "0"
