"""`--map`: which column is read as what, said by the user, and held against the logs that it is meant for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from anygrpo.doctor.columns import known_name
from anygrpo.doctor.log import Log
from anygrpo.errors import ConfigError, suggestion
from anygrpo.files import json_value
from anygrpo.spoken import Text


@dataclass
class Mapping:
    """Canonical name -> column: `pairs` as NAME=KEY was given, `saved` by file."""

    pairs: dict[str, str] = field(default_factory=dict[str, str])
    saved: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])

    @property
    def names(self) -> dict[str, str]:
        """All of it; what was given by hand wins."""
        out: dict[str, str] = {}
        for found in self.saved.values():
            out |= found
        return out | self.pairs

    def check(self, logs: Iterable[Log]) -> None:
        """See that the columns are there: each that was named by hand, and any of a saved map.

        Raises:
            ConfigError: none of the logs has the column, which names the nearest.
        """
        columns = {key for log in logs for row in log.rows for key in row}
        if not columns:  # a log without numbers has its own verdict
            return
        for name, key in self.pairs.items():
            if key not in columns:
                raise ConfigError(
                    Text(
                        f"--map {name}={key}: the log has no column {key!r}",
                        f"--map {name}={key}：日志中没有列 {key!r}",
                    ),
                    suggestion(key, columns),
                )
        for path, found in self.saved.items():
            if found and not columns & set(found.values()):
                raise ConfigError(
                    Text(f"--map {path}: the log has none of its columns", f"--map {path}：日志中没有其中的任何一列"),
                    suggestion(next(iter(found.values())), columns),
                )


def parse_mapping(given: list[str]) -> Mapping:
    """["reward=my/key", "saved.json"].

    Raises:
        ConfigError: neither a pair nor a file that holds a map, or a name that is none of ours.
    """
    out = Mapping()
    for item in given:
        if Path(item).is_file():
            out.saved[item] = {known_name(name): key for name, key in saved_map(item).items()}
            continue
        name, sign, key = item.partition("=")
        if not sign or not name or not key:
            raise ConfigError(
                Text(f"--map {item!r} is not NAME=KEY", f"--map {item!r} 不是 NAME=KEY 的形式"),
                Text("write it as --map reward=my/key", "请写成 --map reward=my/key"),
            )
        out.pairs[known_name(name)] = key
    return out


def saved_map(path: str) -> dict[str, str]:
    """A map that --save-map wrote.

    Raises:
        ConfigError: it holds none.
    """
    try:
        found: Any = json_value(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            Text(f"--map {path}: {str(error)[:100]}", f"--map {path}：{str(error)[:100]}"),
            Text("give a file that --save-map wrote", "请给出 --save-map 写出的文件"),
        ) from None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in cast(dict[str, Any], found).values()):
        raise ConfigError(
            Text(f"--map {path}: not a map of names to columns", f"--map {path}：不是从名称到列的映射"),
            Text('write {"reward/mean": "my/key"}', '请写成 {"reward/mean": "my/key"}'),
        )
    return cast(dict[str, str], found)


def of_all(maps: list[dict[str, str]]) -> dict[str, str]:
    """One map of several logs: our name -> column.

    Raises:
        ConfigError: they were read by different columns.
    """
    out: dict[str, str] = {}
    for name, key in (pair for found in maps for pair in found.items()):
        if out.setdefault(name, key) != key:
            raise ConfigError(
                Text(
                    f"--save-map: {name} is {out[name]!r} in one of these logs and {key!r} in another",
                    f"--save-map：{name} 在一个日志里是 {out[name]!r}，在另一个里是 {key!r}",
                ),
                Text("save the map of one log at a time", "每次只保存一个日志的对应表"),
            )
    return dict(sorted(out.items()))
