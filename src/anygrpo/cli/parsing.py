"""The first screen, and argparse in the language in use: what it writes and refuses with."""

from __future__ import annotations

import argparse
import re
import sys
from typing import NoReturn

from anygrpo.spoken import Text, current

BEGIN = Text(
    """\
to begin with
  a training log, anybody's     anygrpo doctor trainer_state.json
  a recipe                      anygrpo check recipe.toml        then  anygrpo train recipe.toml
  a TRL script, a verl command  anygrpo adopt train_grpo.py
  a run that is done            anygrpo apply | export | evaluate | report runs/demo-1""",
    """\
从哪里开始
  有训练日志（任何框架的）    anygrpo doctor trainer_state.json
  有配方                      anygrpo check recipe.toml，然后 anygrpo train recipe.toml
  有 TRL 脚本或 verl 命令     anygrpo adopt train_grpo.py
  有训练完的运行              anygrpo apply | export | evaluate | report runs/demo-1""",
)
MORE = Text(
    """\
  all commands: anygrpo --help    all settings: anygrpo settings    a word: anygrpo explain grpo    中文：--lang zh""",
    """\
  全部命令：anygrpo --help    全部设置：anygrpo settings    词的含义：anygrpo explain grpo    English: --lang en""",
)


_ARGPARSE = {
    "show this help message and exit": "显示本帮助并退出",
    "show program's version number and exit": "显示版本号并退出",
}
"""What argparse itself writes, which no call of ours can say in two languages."""


_REFUSALS = (
    ("the following arguments are required: (.*)", r"缺少参数：\1"),
    ("one of the arguments (.*) is required", r"以下参数须给出一个：\1"),
    ("argument (.*?): expected one argument", r"参数 \1 需要一个值"),
    ("argument (.*?): expected at least one argument", r"参数 \1 至少需要一个值"),
    ("argument (.*?): expected (\\d+) arguments", r"参数 \1 需要 \2 个值"),
    ("argument (.*?): invalid choice: (.*) \\(choose from (.*)\\)", r"参数 \1 不能是 \2（可选：\3）"),
    ("argument (.*?): invalid int value: (.*)", r"参数 \1 应为整数，而不是 \2"),
    ("argument (.*?): invalid float value: (.*)", r"参数 \1 应为数，而不是 \2"),
    ("argument (.*?): not allowed with argument (.*)", r"参数 \1 不能与 \2 同时给出"),
)
"""What argparse refuses with, and its Chinese."""


def _printed(text: str) -> str:
    """argparse's own frame of a help, where Chinese is read."""
    if current() != "zh":
        return text
    return re.sub(r"^(位置参数|选项):$", r"\1：", text.replace("usage: ", "用法：", 1), flags=re.MULTILINE)


class Parser(argparse.ArgumentParser):
    """argparse whose refusals speak the language in use. Commands' parsers are of the same class."""

    def format_usage(self) -> str:
        return _printed(super().format_usage())

    def format_help(self) -> str:
        return _printed(super().format_help())

    def error(self, message: str) -> NoReturn:
        if "required: ACTION" in message:  # what there is to choose from says more than the usage
            self.print_help(sys.stderr)
            print(file=sys.stderr)
        if current() == "zh":
            found = ((re.fullmatch(english, message, re.DOTALL), chinese) for english, chinese in _REFUSALS)
            message = next((match.expand(chinese) for match, chinese in found if match), message)
        super().error(message)


def in_chinese(parser: argparse.ArgumentParser) -> None:
    """argparse's own words in the help of a parser and of its commands."""
    for group, name in zip(parser._action_groups, ("位置参数", "选项")):
        group.title = name
    for action in parser._actions:
        action.help = _ARGPARSE.get(action.help or "", action.help)
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                in_chinese(inner)
