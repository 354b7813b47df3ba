"""The recipe as TOML, each setting with where it is from; rewards; and the account of the move."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from anygrpo.errors import ConfigError
from anygrpo.files import toml_table
from anygrpo.integrations.adopt.moving import Ledger, Line, as_list, shown
from anygrpo.recipe.load import parse_recipe
from anygrpo.spoken import Text

_ORDER = ("policy", "policy.lora", "task", "algorithm", "optimizer", "training", "evaluation")
_TRL_REWARDS: dict[str, dict[str, Any]] = {
    "accuracy_reward": {"kind": "math_verify", "column": "solution"},
    "reasoning_accuracy_reward": {"kind": "math_verify", "column": "solution"},
    "think_format_reward": {
        "kind": "regex",
        "name": "think_format",
        "pattern": "^<think>(?!.*<think>)(.*?)</think>.*$",
    },
}
_MADE = ("prompt_column", "system")
HOUSES = {"trl": "TRL", "verl": "verl", "swift": "ms-swift", "openrlhf": "OpenRLHF"}


def finish(book: Ledger, reward_path: Path) -> str:
    """The recipe's text, which a dry run takes; task and rewards are put into the ledger.

    Raises:
        ConfigError: a value that no recipe takes; the message names it.
    """
    _task(book)
    rewards = _rewards(book, reward_path)
    text = _toml(book, rewards)
    try:
        table = toml_table(text)
    except (tomllib.TOMLDecodeError, ValueError) as error:
        raise ConfigError(
            Text(f"a value there cannot be written as TOML: {error}", f"那里有一个值不能写成 TOML：{error}"),
            Text("mend it in the script", "请在脚本中修正"),
        ) from None
    parse_recipe(table)
    return text


def _task(book: Ledger) -> None:
    data = book.found.data
    for key in ("path", "subset", "split", "prompt_column", "system"):
        if key in data:
            book.say(
                f"task.{key}", data[key], "as the script makes its prompts" if key in _MADE else "the data set there"
            )
    if not any(line.path == "task.path" for line in book.lines):
        given = book.found.given
        name = given.get("dataset_name")
        book.get("dataset_name")
        book.put("task.path", name if isinstance(name, str) else "train.jsonl", "dataset_name")
        for key, path in (("dataset_config", "task.subset"), ("dataset_train_split", "task.split")):
            if isinstance(book.get(key), str):
                book.put(path, book.get(key), key)
    book.lost = [lost for lost in book.lost if lost[0] not in ("dataset_name", "dataset_config", "dataset_train_split")]
    if not any(line.path == "task.held_out_path" for line in book.lines):
        book.notes.append("a tenth of the prompts is held out for evaluation (task.held_out_share, held_out_path)")


def _rewards(book: Ledger, reward_path: Path) -> list[dict[str, Any]]:
    weights = as_list(book.get("reward_weights"))
    book.lost = [lost for lost in book.lost if lost[0] not in ("reward_weights", "reward_funcs")]
    given = [*book.found.rewards, *(("trl", str(name)) for name in as_list(book.get("reward_funcs")))]
    made: list[dict[str, Any]] = []
    for i, (kind, said) in enumerate(given):
        table = _reward(book, kind, said, reward_path)
        if table is None:
            continue
        if i < len(weights) and float(weights[i]) != 1.0:
            table["weight"] = float(weights[i])
        made.append(table)
    if any(t.get("column") == "solution" for t in made):
        book.say("task.answer_column", "solution", "the column that accuracy_reward reads")
    if not made:
        book.notes.append('no reward could be moved: kind = "exact" stands in its place; put yours (docs/rewards.md)')
        made = [{"kind": "exact"}]
    return made


def _reward(book: Ledger, kind: str, said: str, reward_path: Path) -> dict[str, Any] | None:
    house = book.found.house if book.found.house in ("verl", "openrlhf") else "trl"
    if kind == "function":
        return {"function": f"{reward_path}:{said}", "signature": house}
    if kind == "file":
        read = {"columns": dict(book.found.columns)} if book.found.columns else {}
        return {"function": said, "signature": house} | read
    if kind == "model":
        return {"kind": "reward_model", "model": said}
    name, _, arguments = said.partition("(")
    numbers = [float(x) for x in re.findall(r"-?\d+(?:\.\d+)?", arguments)]
    if name in _TRL_REWARDS:
        if name == "reasoning_accuracy_reward":
            book.notes.append(
                "reasoning_accuracy_reward reads what follows </think>; math_verify reads the last answer"
            )
        return dict(_TRL_REWARDS[name])
    if name == "get_soft_overlong_punishment":
        buffer = int(numbers[1]) if len(numbers) > 1 else 256
        book.say("algorithm.overlong_buffer", buffer, said)
        return None
    if name == "get_repetition_penalty_reward":
        return {"kind": "repetition", "ngram": int(numbers[0]) if numbers else 3}
    if "." in name and kind == "trl" and not name.startswith("trl"):
        module, _, function = name.rpartition(".")
        return {"function": f"{module.replace('.', '/')}.py:{function}", "signature": house}
    book.lost.append(("reward_funcs", said, "it could not be read: put your function in a file (docs/rewards.md)"))
    return None


def _toml(book: Ledger, rewards: list[dict[str, Any]]) -> str:
    house = HOUSES[book.found.house]
    by_table: dict[str, list[Line]] = {}
    for line in book.lines:
        if line.path != "stages":
            by_table.setdefault(line.path.rpartition(".")[0], []).append(line)
    out = [
        f"# Moved from {house} by `anygrpo adopt`. A comment is the setting there; (default): nobody had set it.",
        "",
    ]
    out += [_line(line) for line in by_table.get("", [])]
    kinds = {"policy": 'kind = "causal_lm"', "task": 'kind = "data"'}
    for table in _ORDER:
        lines = by_table.get(table, [])
        if not lines and table not in kinds:
            continue
        out += ["", f"[{table}]", *([kinds[table]] if table in kinds else []), *map(_line, lines)]
        if table == "task":
            for reward in rewards:
                out += ["", "[[task.rewards]]", *(f"{k} = {toml_value(v)}" for k, v in reward.items())]
    for line in book.lines:
        if line.path == "stages":
            for stage in line.value:
                out += ["", "[[stages]]", *(f"{k} = {toml_value(v)}" for k, v in stage.items())]
                out[-1] += f"   # {line.theirs}{' (default)' if line.default else ''}"
    return "\n".join(out).lstrip("\n") + "\n"


def _line(line: Line) -> str:
    said = f"   # {line.theirs}{' (default)' if line.default else ''}" if line.theirs else ""
    return f"{line.path.rpartition('.')[2]} = {toml_value(line.value)}" + re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", said)


def toml_value(value: Any) -> str:
    """A value on one line of TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float | int):
        return repr(value)
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(k)} = {toml_value(v)}" for k, v in value.items()) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: Any) -> str:
    text = str(key)
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else json.dumps(text)


_HEADS = (
    Text("have no counterpart", "没有对应设置"),
    Text("need none", "不需要对应设置"),
    Text("defaults of {house} that differ, written out", "与本项目不同、已写明的 {house} 默认值"),
    Text("to know", "须知"),
    Text("moved", "已转换"),
)


def account(book: Ledger, language: str) -> str:
    """What happened to each setting, for a reader."""
    heads = [h.said(language).format(house=HOUSES[book.found.house]) for h in _HEADS]
    lost, idle, filled, notes, moved = heads
    ours = [line for line in book.lines if line.theirs and not line.default]
    parts = [f"{moved}: {len(ours)}"]
    parts += _part(lost, [f"{key} = {_short(value)}: {why}" for key, value, why in book.lost])
    defaults = [f"{line.path} = {_short(line.value)}   ({line.theirs})" for line in book.lines if line.default]
    parts += _part(filled, defaults)
    reasons = {why: [f"{k} = {_short(v)}" for k, v, w in book.idle if w == why] for _, _, why in book.idle}
    parts += _part(idle, [f"{why}: {', '.join(names)}" for why, names in reasons.items()], len(book.idle))
    parts += _part(notes, list(dict.fromkeys([*book.found.notes, *book.notes])))
    return "\n".join(parts)


def _part(head: str, lines: list[str], count: int | None = None) -> list[str]:
    return (
        ["", f"{head} ({len(lines) if count is None else count})", *(f"  - {line}" for line in lines)] if lines else []
    )


def _short(value: Any) -> str:
    text = shown(value).replace("\n", " ")
    return text if len(text) <= 60 else text[:57] + "..."


def as_table(book: Ledger) -> dict[str, Any]:
    """The account for programs."""
    return {
        "house": book.found.house,
        "moved": [
            {"setting": line.path, "value": line.value, "theirs": line.theirs, "default": line.default}
            for line in book.lines
        ],
        "no_counterpart": [{"theirs": k, "value": shown(v), "why": why} for k, v, why in book.lost],
        "needless": [{"theirs": k, "value": shown(v), "why": why} for k, v, why in book.idle],
        "notes": list(dict.fromkeys([*book.found.notes, *book.notes])),
    }
