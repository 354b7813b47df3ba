"""What a reader returns: rows of plain numbers under the names their framework gave them, and how the log ended."""

from __future__ import annotations

import ast
import json
import math
import re
from dataclasses import dataclass, field
from sys import intern
from typing import Any, Literal, cast

Row = dict[str, float]
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""What a terminal would obey; no name of a metric holds any."""


@dataclass(frozen=True)
class Ending:
    """How a text log stopped.

    Attributes:
        kind: "crash" (an exception nobody caught), "signal" (SIGHUP, SIGTERM, Ctrl-C), "late" (an exception after the
            end of training: the run itself is complete).
        text: the last line of the exception.
        line: 1-based line of the file.
    """

    kind: Literal["crash", "signal", "late"]
    text: str
    line: int


@dataclass
class Log:
    """One run as read.

    Attributes:
        source: path as the user gave it.
        format: what the file is: "trl-state", "trl-console", "verl-console", "console", "tensorboard", "wandb",
            "wandb-summary", "jsonl", "json", "csv", "run-folder", "anygrpo" (live rows).
        rows: training and evaluation rows in the order of the log; raw names, plain numbers (NaN and inf kept).
        summary: the end-of-training row ("train_runtime" ...), kept out of `rows`.
        ending: how a text log stopped, if it says so.
        settings: settings of the run found in the log or given by the user, flat, dotted names.
        notes: what the reader had to decide (restarted counters, rows replaced by a resume ...).
        head: the first lines of a text log, where settings are often printed.
        partial: whether what was not read may hold more rows: no acquittal then.
    """

    source: str
    format: str
    rows: list[Row] = field(default_factory=list[Row])
    summary: Row = field(default_factory=Row)
    ending: Ending | None = None
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    notes: list[str] = field(default_factory=list[str])
    head: list[str] = field(default_factory=list[str])
    partial: bool = False


COUNTER = re.compile(r"^(\d+)/\d+$")
COUNTED = ("step", "steps", "iteration")
NON_FINITE = {
    "nan": math.nan,
    "inf": math.inf,
    "infinity": math.inf,
    "+inf": math.inf,
    "-inf": -math.inf,
    "-infinity": -math.inf,
    "-nan": math.nan,
}


def number(value: Any) -> float | None:
    """A plain float from a number, a bool, or text like "2.1e-05", "np.float64(0.5)", "50%", "0.5 ± 0.1"; else None."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return None
    if not isinstance(value, str):
        return None
    try:
        if value[-1:].isdigit() and "_" not in value:
            return float(value)
    except ValueError:
        pass
    text = value.strip().strip("'\"")
    if "±" in text or "+/-" in text:  # a mean and how sure it is
        text = re.split(r"±|\+/-", text)[0].rstrip()
    if text.endswith(")") and "(" in text:
        text = text[text.index("(") + 1 : -1].split(",")[0].strip()
    if (lower := text.lower()) in NON_FINITE:
        return NON_FINITE[lower]
    percent = text.endswith("%")
    if percent:
        text = text[:-1]
    if not text or text[0] not in "+-.0123456789" or "_" in text:
        return None
    try:
        found = float(text)
    except ValueError:
        return None
    return found / 100 if percent else found


def flatten(tree: Any, prefix: str = "", depth: int = 6) -> Row:
    """Nested dicts as one flat dict of the numbers in them, names joined by "/". Lists of numbers become statistics."""
    out: Row = {}
    if not isinstance(tree, dict) or depth == 0:
        return out
    for key, value in tree.items():  # type: ignore[reportUnknownVariableType]
        name = intern(CONTROL.sub("", f"{prefix}{key}"))
        if isinstance(value, dict):
            out.update(flatten(value, f"{name}/", depth - 1))
        elif isinstance(value, list):
            out.update(pairs_of(value))  # type: ignore[reportUnknownArgumentType]
            out.update(list_statistics(name, value))  # type: ignore[reportUnknownArgumentType]
        elif (x := number(value)) is not None:
            out[name] = x
        elif isinstance(value, str) and value[:2] in ("{'", '{"') and not holds_text(name):
            out.update(flatten(printed_dict(value), f"{name}/", depth - 1))
        elif isinstance(value, str) and (of := COUNTER.match(value)) and name.endswith(COUNTED):
            out["step"] = float(of[1])  # ms-swift: "global_step/max_steps": "5/100"
    return out


PROMPT = ("prompt", "input", "question", "query", "prompts")
TEXT = ("completion", "output", "response", "text", "completions", "answer", "generated")
_SAID = (
    "inputs outputs responses texts answers questions queries message messages content solution truth target label gold"
    " gts sample samples chosen rejected turn reason reasoning thought critique feedback judgement judgment call calls"
    " tool tools config configs cfg args arguments kwargs settings params hparams hyperparameters"
)
TEXTS = frozenset((*PROMPT, *TEXT, *_SAID.split()))
"""Last words of names under which a text or settings stand: a dict printed there was sampled or set, not measured."""


def holds_text(name: str) -> bool:
    """Whether a column holds what was said or set: "completion", "eval/last_prompt", "env.config", "toolCall"."""
    last = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", re.split(r"[/.:]", name)[-1])
    return re.split(r"[_\-\s]+", last.strip().lower().rstrip("_0123456789"))[-1] in TEXTS


def printed_dict(text: str) -> Any:
    """A dict that a logger wrote as text into a value, or None."""
    if len(text) > 20_000:
        return None
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return None


def pairs_of(values: list[Any]) -> Row:
    """[{"name": "reward", "value": .4}, ...] (or "k" and "v") as {"reward": .4, ...}; empty for any other list."""
    out: Row = {}
    for item in values:
        found = cast(dict[str, Any], item) if isinstance(item, dict) else {}
        name = next((found[k] for k in ("name", "key", "k", "metric") if k in found), None)
        x = next((number(found[k]) for k in ("value", "val", "v") if k in found), None)
        if not isinstance(name, str) or x is None:
            return {}
        out[name] = x
    return out


def list_statistics(name: str, values: list[Any]) -> Row:
    """Rewards of one group logged one by one say more than their mean: name/mean, /std (n - 1), /max, /min."""
    found = [x for x in map(number, values) if x is not None]
    if len(found) < 2 or len(found) != len(values) or not all(abs(x) < 1e150 for x in found):
        return {}
    mean = math.fsum(found) / len(found)
    spread = math.sqrt(math.fsum((x - mean) ** 2 for x in found) / (len(found) - 1))
    spread = 0.0 if max(found) == min(found) else spread
    return {f"{name}/mean": mean, f"{name}/group_std": spread, f"{name}/max": max(found), f"{name}/min": min(found)}
