"""`anygrpo adopt SCRIPT_OR_ARGS`: settings of TRL, verl, OpenRLHF or ms-swift as a recipe of the same meaning."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from anygrpo.errors import ConfigError
from anygrpo.spoken import LANGUAGES, Text, current, say

_OWN = {"--out": "adopted.toml", "--lang": ""}


def add_parser(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "adopt",
        help="a TRL script, a verl, OpenRLHF or ms-swift command, as a recipe",
        description=say(
            "Reads a TRL GRPOConfig script (never run), a TRL YAML, a verl, OpenRLHF or ms-swift command line or shell "
            "script, or a YAML of verl's overrides; writes a recipe with the same meaning, and says what has no "
            "counterpart. What follows the script's name are its own arguments. Ours: --out FILE (adopted.toml), "
            "--force (overwrite), --lang "
            "zh, --json.",
            "读取 TRL 的 GRPOConfig 脚本（不会执行）、TRL 的 YAML、verl、OpenRLHF 或 ms-swift 的命令行或 shell 脚本，"
            "或 verl 的 YAML 覆盖项；"
            "写出含义相同的配方，并说明哪些没有对应项。脚本名之后是它自己的参数。本命令的参数：--out "
            "FILE（adopted.toml）、--force（覆盖）、--lang zh、--json。",
        ),
    )
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="SCRIPT_OR_ARGS")
    parser.set_defaults(takes_words=True)


def run(args: argparse.Namespace) -> int:
    """Write the recipe (and the rewards' file beside it), print the account."""
    from anygrpo.integrations.adopt.reading import adopted
    from anygrpo.integrations.adopt.write import account, as_table, finish

    words, own, switches = _ours(list(args.words))
    own["--lang"] = own["--lang"] or current()
    if own["--lang"] not in LANGUAGES:
        raise ConfigError(
            Text(f"--lang {own['--lang']}", f"--lang {own['--lang']} 不在可选值中"), Text("en or zh", "en 或 zh")
        )
    out = Path(own["--out"])
    rewards = out.with_name(f"{out.stem}_rewards.py")
    book = adopted(words)
    text = finish(book, rewards)
    files = {out: text} | ({rewards: _header(words) + book.found.reward_file} if book.found.reward_file else {})
    if (there := [str(f) for f in files if f.exists()]) and "--force" not in switches:
        raise ConfigError(
            Text(f"{there[0]} is there already", f"{there[0]} 已经存在"),
            Text("give another --out, or --force", "请给出别的 --out，或加 --force"),
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        file.write_text(content, encoding="utf-8")
    if "--json" in switches:
        print(
            json.dumps(as_table(book) | {"files": [str(f) for f in files]}, ensure_ascii=False, indent=1, default=str)
        )
        return 0
    print(account(book, own["--lang"]))
    print(f"\n{', '.join(map(str, files))}\nanygrpo train {out} --dry-run")
    return 0


def _header(words: list[str]) -> str:
    return f"# Reward functions as {words[0] if words[0].endswith(('.py', '.sh')) else 'the command'} has them.\n"


def _ours(words: list[str]) -> tuple[list[str], dict[str, str], set[str]]:
    """(the words of the other trainer, our options with a value, our switches)."""
    rest, own, switches, queue = list[str](), dict(_OWN), set[str](), list(words)
    while queue:
        word = queue.pop(0)
        name, equals, value = word.partition("=")
        if word in ("--force", "--json"):
            switches.add(word)
        elif name in _OWN:
            if not equals and not queue:
                raise ConfigError(Text(f"{name} has no value", f"{name} 没有值"))
            own[name] = value if equals else queue.pop(0)
        elif word != "--" or rest:
            rest.append(word)
    return rest, own, switches
