"""The command `anygrpo`: which words it knows, and how errors leave it."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from anygrpo import __version__
from anygrpo.cli.ending import Ended, cleaned_up
from anygrpo.cli.last_words import how_it_ended, unexpected
from anygrpo.cli.parsing import BEGIN, MORE, Parser, in_chinese
from anygrpo.cli.screen import screened
from anygrpo.core.user_code import users_place
from anygrpo.errors import AnygrpoError, ConfigError
from anygrpo.families import families
from anygrpo.files import refuse_what_is_no_file
from anygrpo.spoken import LANGUAGES, VARIABLE, Text, current, said, say, use

COMMANDS = {
    "train": Text("train a policy from a recipe", "按配方训练策略"),
    "adopt": Text("a TRL script, a verl or ms-swift command, as a recipe", "把 TRL 脚本或 verl 命令变成配方"),
    "apply": Text("use a trained policy", "使用训练好的策略"),
    "export": Text("a trained policy in its library's own form", "导出为策略所属库自己的格式"),
    "evaluate": Text("held-out measures, with intervals", "留出集指标，附置信区间"),
    "doctor": Text("diagnose anybody's training log", "诊断任何训练日志"),
    "autopsy": Text("what a few logged numbers prove", "由几个记录的数值作剖析"),
    "explain": Text(
        "what a choice, a preset, a reward, a metric or a setting of the algorithm is",
        "解释一个选项、预设、奖励、指标或算法设置",
    ),
    "settings": Text("every key of a recipe: type, default, meaning", "配方的每个键：类型、默认值、含义"),
    "check": Text("test a recipe in a minute, before it runs", "运行前一分钟检查配方"),
    "compare": Text("did the policy change, and did the result?", "策略变了吗？结果变了吗？"),
    "report": Text("a run folder as one HTML file", "把运行文件夹写成一个 HTML 文件"),
    "verify": Text("what of a run folder is whole", "运行文件夹中哪些内容完好"),
    "chaos": Text(
        "blows to your own recipe's run: is the resumed run the same?", "对自己的配方施加打击：续训结果是否相同？"
    ),
    "sweep": Text("search settings, with intervals", "搜索设置，附置信区间"),
    "bench": Text("speed, side by side with peers", "与同类工具并排比较速度"),
    "mcp": Text("an MCP server for assistants", "供助手使用的 MCP 服务器"),
}


def known_commands() -> dict[str, str]:
    """Word -> help: our own, and the families'."""
    known = COMMANDS | {word: text for family in families() for word, (_, text) in family.commands.items()}
    return {word: said(text) for word, text in known.items()}


def module_of(command: str) -> Any:
    """The module with a command's `add_parser` and `run`."""
    named = (family.commands[command][0] for family in families() if command in family.commands)
    return importlib.import_module(next(named, f"anygrpo.cli.{command}"))


def build_parser(wanted: str | None) -> argparse.ArgumentParser:
    """The parser; only the wanted command's module is imported, so `anygrpo doctor` loads no torch."""
    what = say(
        "GRPO for any policy, and a doctor for any training run.", "适用于任何策略的 GRPO，以及任何训练过程的诊断器。"
    )
    parser = Parser(prog="anygrpo", description=what, epilog=said(BEGIN))
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    words = say(
        "language: en or zh (else ANYGRPO_LANG, else the locale)", "语言：en 或 zh（否则按 ANYGRPO_LANG、再按系统区域）"
    )
    parser.add_argument("--lang", choices=LANGUAGES, help=words)
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--debug", action="store_true", help=say("show tracebacks", "显示完整的错误追踪"))
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, help_text in known_commands().items():
        if name == wanted:
            module_of(name).add_parser(commands)
        else:
            commands.add_parser(name, help=help_text)
    if current() == "zh":
        in_chinese(parser)
    return parser


def _options(parser: argparse.ArgumentParser) -> set[str]:
    """The option words of a command and of its own subcommands."""
    inner = [p for a in parser._actions if isinstance(a, argparse._SubParsersAction) for p in a.choices.values()]
    return set(parser._option_string_actions).union(*map(_options, inner))


def split_flags(
    parser: argparse.ArgumentParser, wanted: str | None, arguments: list[str]
) -> tuple[list[str], list[str]]:
    """(the command's own arguments, recipe settings `--table.key value`)."""
    actions = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if wanted in actions[0].choices and actions[0].choices[wanted].get_default("takes_words"):
        return arguments, []  # another program's words, in their order
    own = _options(actions[0].choices[wanted]) if wanted in actions[0].choices else set()
    kept: list[str] = []
    flags: list[str] = []
    queue = list(arguments)
    while queue:
        word = queue.pop(0)
        name = word.partition("=")[0]
        if not word.startswith("--") or name in own or name in ("--version", "--help"):
            kept.append(word)
            continue
        flags.append(word)
        if "=" not in word and queue and not queue[0].startswith("--"):
            flags.append(queue.pop(0))
    return kept, flags


def asked_language(arguments: list[str]) -> list[str]:
    """The arguments without `--lang zh` or `--lang=zh`, wherever it stands; that language is then in use.

    Raises:
        ConfigError: a language that there is not.
    """
    if "adopt" in arguments[:1]:
        return arguments  # another tool's command, with arguments of its own; `adopt` finds ours
    rest, queue = list[str](), list(arguments)
    while queue:
        word = queue.pop(0)
        name, equals, value = word.partition("=")
        if name != "--lang":
            rest.append(word)
            continue
        found = value if equals else queue.pop(0) if queue else ""
        if found not in LANGUAGES:
            raise ConfigError(
                Text(f"--lang {found} is not known", f"--lang {found} 不在可选值中"),
                Text(f"one of {', '.join(LANGUAGES)}", f"可用：{'、'.join(LANGUAGES)}"),
            )
        use(found)
    return rest


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code that `anygrpo.errors` lists. What it prints cannot steer the terminal."""
    with screened(), cleaned_up():
        return _run(argv)


LONG = ("train", "sweep", "chaos")
"""Commands whose work is not lost because nobody reads what they print: it is in files too."""


def refuse_no_place() -> None:
    """Raises: ConfigError where the working folder was removed: libraries beneath end the process without a word."""
    try:
        os.getcwd()
    except OSError:
        raise ConfigError(
            Text("the working folder is gone", "工作文件夹已不存在"),
            Text("cd to one that is there", "请 cd 到存在的文件夹"),
        ) from None


_QUIET = {"TRANSFORMERS_VERBOSITY": "error", "DIFFUSERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
"""Unless they are set: what libraries print while they load is no part of what a command says."""


def _run(argv: Sequence[str] | None) -> int:
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug, before = "--debug" in arguments, os.environ.get(VARIABLE)
    arguments = [a for a in arguments if a != "--debug"]
    try:
        refuse_no_place()
        arguments = asked_language(arguments)
        wanted = next((a for a in arguments if not a.startswith("-")), None)
        if wanted is not None and wanted not in known_commands():
            from anygrpo.recipe.hints import meant  # loads pydantic

            raise ConfigError(
                Text(f"there is no command {wanted!r}", f"没有命令 {wanted!r}"),
                meant(wanted, known_commands(), listing="anygrpo --help"),
            )
        parser = build_parser(wanted)
        arguments, flags = split_flags(parser, wanted, arguments)
        known = parser.parse_args(arguments)
        if known.command is None:
            print(f"{parser.description}\n\n{said(BEGIN)}\n\n{said(MORE)}")
            return 0
        if flags and not getattr(known, "takes_flags", False):
            raise ConfigError(
                Text(f"unknown arguments {flags}", f"未知的参数 {flags}"),
                Text(f"see anygrpo {known.command} --help", f"见 anygrpo {known.command} --help"),
            )
        known.debug, known.flags = debug, flags
        for word in arguments:
            refuse_what_is_no_file(word)
        for stream in (sys.stdout, sys.stderr):
            stream.goes_on = known.command in LONG  # type: ignore[attr-defined]
        return int(module_of(known.command).run(known) or 0)
    except AnygrpoError as error:
        if debug:
            raise
        print(f"anygrpo: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except KeyboardInterrupt as error:
        number = error.number if isinstance(error, Ended) else signal.SIGINT
        with contextlib.suppress(OSError):  # the terminal may be gone
            print(f"anygrpo: {how_it_ended(error)}", file=sys.stderr)
        exec("")  # else CPython ends by the signal where it came within an exec of text (a dataclass being imported)
        return 128 + number
    except (Exception, SystemExit) as error:
        if debug or (isinstance(error, SystemExit) and users_place(error) is None):  # a usage message has been said
            raise
        return unexpected(error)
    finally:  # of a Python program that calls this
        os.environ.pop(VARIABLE, None)
        os.environ.update({} if before is None else {VARIABLE: before})


if __name__ == "__main__":
    raise SystemExit(main())
