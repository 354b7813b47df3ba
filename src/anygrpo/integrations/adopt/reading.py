"""Which house a script, a file or a command line is of, and what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from anygrpo.errors import ConfigError, DataError
from anygrpo.integrations.adopt import openrlhf, script, swift, trl, verl, words
from anygrpo.integrations.adopt.moving import Found, Ledger
from anygrpo.integrations.adopt.secrets import hidden_words
from anygrpo.spoken import Text

_HOUSES = {"trl": trl.move, "verl": verl.move, "swift": swift.move, "openrlhf": openrlhf.move}
_OPENRLHF = re.compile(r"(^|[./])train_ppo(_ray)?(\.py)?$")
_OPENRLHF_KEYS = {"rollout.n_samples_per_prompt", "n_samples_per_prompt", "advantage_estimator", "rollout_batch_size"}
_VERL = ("actor_rollout_ref.", "data.train_batch_size", "algorithm.adv_estimator", "data.train_files")


def adopted(arguments: list[str]) -> Ledger:
    """The ledger of a script (.py), a shell script (.sh), a YAML file, or the words of a command.

    Raises:
        DataError: no such file, or nothing in it that trains. ConfigError: a command of neither house.
    """
    if not arguments:
        raise ConfigError(
            Text("nothing to adopt", "没有可转换的内容"),
            Text(
                "give a TRL script or YAML, or a command line or shell script of verl, OpenRLHF or ms-swift",
                "请给出 TRL 脚本或 YAML，或 verl、OpenRLHF、ms-swift 的命令行或 shell 脚本",
            ),
        )
    found = _found(arguments)
    try:
        return _HOUSES[found.house](found)
    except (ValueError, TypeError, OverflowError, AttributeError, ZeroDivisionError) as error:
        raise ConfigError(
            Text(
                f"a setting of {arguments[0]} is not of its kind: {error}",
                f"{arguments[0]} 的一个设置类型不对：{error}",
            ),
            Text("mend it there", "请在那里修正"),
        ) from None


def _found(arguments: list[str]) -> Found:
    first = Path(arguments[0])
    if first.suffix == ".sh":
        return _of_shell(_text(first), str(first), arguments[1:])
    if first.suffix in (".yaml", ".yml"):
        return _of_yaml(first, arguments[1:])
    return _of_command(arguments)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise DataError(
            Text(f"{path} cannot be read: {error.strerror}", f"{path} 无法读取：{error.strerror}")
        ) from None


def _of_shell(text: str, name: str, more: list[str]) -> Found:
    every = [one for command in words.commands_of(text) for one in (command, *_inside(command))]
    commands = next(filter(None, ([c for c in every if is_it(c)] for is_it in _TRAINING)), [])
    if not commands:
        raise DataError(
            Text(f"{name} has no command that trains with GRPO", f"{name} 中没有用 GRPO 训练的命令"),
            Text(
                "commands looked for: verl.trainer.main_ppo, openrlhf.cli.train_ppo_ray, trl grpo, swift rlhf, "
                "a script",
                "查找过的命令：verl.trainer.main_ppo、openrlhf.cli.train_ppo_ray、trl grpo、swift rlhf、脚本",
            ),
        )
    found = _of_command([*commands[0], *more], beside=Path(name).parent)
    if len(commands) > 1:
        found.notes.append(f"{len(commands)} commands train in {name}: the first was taken")
    return found


_TRAINING = (
    lambda command: any(word.lstrip("+").startswith(_VERL) for word in command),
    lambda command: any(map(_OPENRLHF.search, command)),
    lambda command: "grpo" in command and ("trl" in command or "swift" in command),
    lambda command: any(word.endswith(".py") and "grpo" in word.lower() for word in command),
    lambda command: any(word.endswith(".py") for word in command),
)
"""Which of a script's commands trains: the first of these that one of them fits."""


def _of_yaml(path: Path, more: list[str]) -> Found:
    table = words.of_yaml(path)
    flat = words.flat(table)
    if any(key.startswith(_VERL) for key in flat):
        flat = {k: v for k, v in flat.items() if not k.startswith("defaults") and "_target_" not in k}
        return Found("verl", flat | words.overrides(more))
    plain = {k: words.plain(v) if isinstance(v, str) else v for k, v in table.items()}
    given = {k: v for k, v in plain.items() if k != "env"} | words.options(more)
    return _of_options(given, Found("trl"))


def _of_command(command: list[str], beside: Path = Path()) -> Found:
    given = words.overrides(command)
    if any(key.startswith(_VERL) for key in given):
        return Found("verl", given)
    options = words.options(command)
    if options.get("rlhf_type") == "grpo":
        launched = next((w.partition("=")[2] for w in command if w.startswith("NPROC_PER_NODE=")), "1")
        said = str(options.pop("num_processes", launched))
        return Found("swift", options, processes=int(said) if said.isdigit() and int(said) else 1)
    if any(map(_OPENRLHF.search, command)) or _OPENRLHF_KEYS & options.keys():
        return Found("openrlhf", words.options(_after(command, _OPENRLHF)))
    scripts = [w for w in command if w.endswith(".py") and not w.startswith("-")]
    here = [p for w in scripts for p in (Path(w), beside / w, beside / Path(w).name) if p.is_file()]
    if here:
        return _of_options(options, script.read(here[0]))
    if scripts:
        raise DataError(
            Text(f"no script at {scripts[0]}", f"没有脚本 {scripts[0]}"),
            Text("give the path of a file that is here", "请给出本机上文件的路径"),
        )
    if any(
        key in options for key in ("num_generations", "max_completion_length", "reward_funcs", "model_name_or_path")
    ):
        return _of_options(options, Found("trl"))
    said = " ".join(hidden_words(command))[:80]
    raise ConfigError(
        Text(
            f"{said!r} is neither a TRL nor a verl, OpenRLHF or ms-swift training command",
            f"{said!r} 不是 TRL、verl、OpenRLHF 或 ms-swift 的训练命令",
        ),
        Text(
            "give a .py, .yaml or .sh file, or verl's key=value words",
            "请给出 .py、.yaml 或 .sh 文件，或 verl 的 key=value",
        ),
    )


def _inside(command: list[str]) -> list[list[str]]:
    """Commands in the words of one: bash -c "...", srun ... bash -c "..."."""
    return [one for word in command if re.search(r"\s-m\s|\.py\s", word) for one in words.commands_of(word)]


def _after(command: list[str], trainer: re.Pattern[str]) -> list[str]:
    """What follows the trainer's own name: what starts it (ray job submit ...) has options of its own."""
    return next((command[i + 1 :] for i, word in enumerate(command) if trainer.search(word)), command)


def _of_options(options: dict[str, Any], found: Found) -> Found:
    """TRL's command line over what the script says; --config names a YAML file below both."""
    config = options.pop("config", None)
    if isinstance(config, str):
        below = words.of_yaml(Path(config))
        found.given = {k: words.plain(v) if isinstance(v, str) else v for k, v in below.items()} | found.given
    processes = options.pop("num_processes", None)
    found.processes = processes if isinstance(processes, int) and processes > 0 else 1
    found.given |= options
    if options:
        found.notes = [note for note in found.notes if not note.startswith("the script reads its settings")]
    return found
