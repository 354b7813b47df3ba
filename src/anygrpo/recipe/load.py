"""Reading recipes: defaults < recipe file < command-line flags. One validation path for all three."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from anygrpo.errors import ConfigError, DataError
from anygrpo.files import MOST, read_toml, refuse_unending, toml_table
from anygrpo.recipe.kinds import check_forms, section_of
from anygrpo.recipe.recipe import Recipe
from anygrpo.recipe.refusals import readable
from anygrpo.recipe.written import apply_changes, flat, is_in_run_folder, refuse_own_code
from anygrpo.spoken import Text

STAGED = ("algorithm", "optimizer", "task")
"""Tables of which a stage may have keys of its own."""


def load_recipe(path: str | Path, flags: Sequence[str] = ()) -> Recipe:
    """Read a recipe and apply flags such as `["--algorithm.clip-high", "0.28"]`. Of a run folder's config.toml, which
    stays as it was written, the settings now in force: with what resumes changed.

    Raises:
        DataError: no such file; a run folder's recipe that names code inside that folder.
        ConfigError: not TOML, unknown keys, wrong types, impossible combinations.
    """
    table = _table(Path(path))
    apply_flags(table, flags)
    if is_in_run_folder(Path(path)):
        refuse_own_code(table, Path(path))
    recipe = parse_recipe(table)
    _refuse_what_no_stage_follows(table, flags)
    return recipe


def _refuse_what_no_stage_follows(table: dict[str, Any], flags: Sequence[str]) -> None:
    """A flag whose setting every stage has of its own would be taken and change nothing.

    Raises: ConfigError.
    """
    stages = table.get("stages") or []
    for flag in (word.partition("=")[0] for word in flags if stages and word.startswith("--")):
        path = flag[2:].replace("-", "_").split(".")
        length = path[:2] == ["training", "steps"]
        held = [_held(table, stage, path) for stage in stages]
        if length or all(held):
            there = f"--stages.0.{'.'.join(path)}"
            if length:
                there = "--stages.0.epochs" if stages[0].get("epochs") is not None else "--stages.0.steps"
            raise ConfigError(
                Text(
                    f"{flag} would change nothing: each [[stages]] has its own {'length' if length else held[0]}",
                    f"{flag} 不起作用：每个 [[stages]] 有自己的{'长度' if length else f' {held[0]}'}",
                ),
                Text(f"{there} is the first stage's", f"第一个阶段的是 {there}"),
            )


def _held(table: dict[str, Any], stage: dict[str, Any], path: list[str]) -> str | None:
    """The key of `stage` that stands in the place of what a flag sets at `path`; None where the stage follows it. A
    table of a stage's is merged with the recipe's, one level deep, unless it names a kind or function."""
    section, own = path[0], stage.get(path[0])
    if section not in STAGED or len(path) < 2 or not isinstance(own, dict) or path[1] not in own:
        return None
    value, base = own[path[1]], table[section][path[1]]
    if not isinstance(value, dict) or not isinstance(base, dict) or {"kind", "function"} & value.keys():
        return path[1]
    if len(path) == 2:  # a whole table is set
        return path[1] if base.keys() <= value.keys() else None
    return f"{path[1]}.{path[2]}" if path[2] in value else None


def _table(path: Path) -> dict[str, Any]:
    """The recipe's table; of a run folder with what resumes changed."""
    if not path.is_file():
        raise DataError(
            Text(f"no recipe at {path}", f"没有配方 {path}"),
            Text(
                "give the path of a .toml file; examples lie in recipes/", "请给出 .toml 文件的路径；示例在 recipes/ 中"
            ),
        )
    table = read_toml(path)
    if is_in_run_folder(path):
        apply_changes(table, path.parent)
    return table


def sources(path: str | Path, flags: Sequence[str] = ()) -> dict[str, tuple[Any, str]]:
    """Every value in force, by dotted key, with its source: "flag", "recipe", a preset, an objective, "default".

    Raises: as `load_recipe`.
    """
    recipe = load_recipe(path, flags)
    given = flat(_table(Path(path)))
    words = {w[2:].partition("=")[0].replace("-", "_") for w in flags if w.startswith("--")}
    a = recipe.algorithm
    follows = {f"algorithm.{key}" for key in a.follows()}
    by = f'preset "{a.preset}"' if a.preset else f'objective "{a.objective}"'
    out: dict[str, tuple[Any, str]] = {}
    for key, value in flat(recipe.model_dump(mode="json")).items():
        if _within(key, words):
            source = "flag"
        else:
            source = "recipe" if _within(key, given) else by if _within(key, follows) else "default"
        out[key] = (value, source)
    return out


def _within(key: str, tables: Collection[str]) -> bool:
    """Whether the key, or a table that it stands in, is one of these."""
    parts = key.split(".")
    return any(".".join(parts[:n]) in tables for n in range(1, len(parts) + 1))


def parse_recipe(table: dict[str, Any]) -> Recipe:
    """Validate a table read from TOML, or made in Python, stages included.

    Raises:
        ConfigError: unknown keys, wrong types, impossible combinations, a list that holds None.
    """
    _check_count(table)
    _check_values(table, "")
    policy, task = (section_of(name, table.get(name)) for name in ("policy", "task"))
    made: type[Recipe[Any, Any]] = Recipe[policy, task]
    try:
        recipe = made.model_validate(_stages_by_name(table))
        check_forms(recipe.policy.kind, recipe.task.kind)
        recipe.resolved_stages()
        return recipe
    except ValidationError as error:
        raise readable(error, made) from None


def _stages_by_name(table: dict[str, Any]) -> dict[str, Any]:
    """None by name in what stages override: their tables are kept as they are given, and written down so."""
    stages = table.get("stages")
    if not isinstance(stages, list) or not all(isinstance(stage, dict) for stage in stages):
        return table
    named = lambda v: {k: "none" if x is None else x for k, x in v.items()} if isinstance(v, dict) else v  # noqa: E731
    return table | {"stages": [{key: named(value) for key, value in stage.items()} for stage in stages]}


def _check_count(table: dict[str, Any]) -> None:
    """Raises: ConfigError where a recipe holds more values than anybody writes: it is a table of data, or hostile."""
    try:
        refuse_unending(table)
    except DataError:
        raise ConfigError(
            Text(f"the recipe holds more than {MOST} values, or itself", f"配方中的值超过 {MOST} 个，或包含自身"),
            Text("put data into a file, and name it", "请把数据放入文件，并给出文件名"),
        ) from None


def _check_values(value: Any, where: str) -> None:
    """None stands for "not given" in a table; in a list, which TOML could not write down again, it has no meaning.
    Numbers are finite, also where a table is free."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_values(inner, f"{where}.{key}".lstrip("."))
    elif isinstance(value, list | tuple):
        for inner in value:
            if inner is None:
                raise ConfigError(
                    Text(f"{where} holds None in a list: {value!r}", f"{where} 的列表中有 None：{value!r}"),
                    Text("leave it out", "请删去"),
                )
            _check_values(inner, where)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(
            Text(f"{where} = {value} is not a finite number", f"{where} = {value} 不是有限的数"),
            Text("give a number, or leave it out", "请给出一个数，或删去"),
        )


def apply_flags(table: dict[str, Any], flags: Sequence[str]) -> None:
    """Set `--a.b-c value` (or `--a.b-c=value`) in a nested table; stages by number: `--stages.0.steps 5`."""
    queue = list(flags)
    while queue:
        flag = queue.pop(0)
        if not flag.startswith("--"):
            raise ConfigError(
                Text(f"unexpected argument {flag!r}", f"多余的参数 {flag!r}"),
                Text("settings are given as --table.key value", "设置写作 --表.键 值"),
            )
        name, equals, text = flag[2:].partition("=")
        if not equals:
            if not queue:
                raise ConfigError(
                    Text(f"--{name} has no value", f"--{name} 没有值"),
                    Text(
                        f"--{name} VALUE; --table.key false turns something off", f"--{name} 值；--表.键 false 表示关闭"
                    ),
                )
            text = queue.pop(0)
        _set(table, name.replace("-", "_").split("."), _value(text), flag)


def _value(text: str) -> Any:
    """A TOML value where the text is one, else the text itself."""
    words = {"none": "none", "null": "none", "True": True, "False": False}
    if text in words:
        return words[text]
    try:
        return toml_table(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


def _set(table: Any, path: list[str], value: Any, flag: str) -> None:
    for key in path[:-1]:
        if isinstance(table, list):
            if not key.isdigit() or int(key) >= len(table):
                raise ConfigError(
                    Text(
                        f"{flag}: there is no element {key!r}; the list has {len(table)}",
                        f"{flag}：没有元素 {key!r}；该列表有 {len(table)} 项",
                    )
                )
            table = table[int(key)]
        elif key == "stages" and not isinstance(table.get(key), list):
            raise ConfigError(
                Text(f"{flag}: the recipe has no [[stages]]", f"{flag}：配方没有 [[stages]]"),
                Text("its length is training.steps", "它的长度是 training.steps"),
            )
        else:
            table = table.setdefault(key, {})
        if not isinstance(table, dict | list):
            raise ConfigError(Text(f"{flag}: {key!r} is a value, not a table", f"{flag}：{key!r} 是值，不是表"))
    if isinstance(table, list):
        raise ConfigError(Text(f"{flag}: name the key inside the list's element", f"{flag}：请写明列表元素中的键"))
    table[path[-1]] = value


def dump_recipe(recipe: Recipe) -> str:
    """The resolved recipe as TOML, readable by `load_recipe` (keys whose value is None are left out)."""
    import tomli_w

    return tomli_w.dumps(_without_none(recipe.model_dump(mode="json")))


def plain_table(recipe: Recipe) -> dict[str, Any]:
    """The resolved recipe as `dump_recipe` writes it, as a table."""
    return toml_table(dump_recipe(recipe))


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [_without_none(inner) for inner in value]
    return value
