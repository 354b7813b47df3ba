"""`--help` speaks the language: every sentence of every command has its Chinese, and nothing else is lost."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest

from anygrpo.cli.main import build_parser, known_commands


def command(name: str) -> argparse.ArgumentParser:
    parser = build_parser(name)
    return next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction)).choices[name]


def sentences(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield from filter(None, [parser.description, parser.epilog])
    for action in parser._actions:
        yield from filter(None, [action.help])
        if isinstance(action, argparse._SubParsersAction):
            yield from (choice.help for choice in action._choices_actions if choice.help)
            for inner in {id(p): p for p in action.choices.values()}.values():
                yield from sentences(inner)


@pytest.mark.parametrize("name", sorted(known_commands()))
def test_every_sentence_has_its_chinese(name, monkeypatch):
    monkeypatch.setenv("ANYGRPO_LANG", "en")
    english = list(sentences(command(name)))
    assert all(text.isascii() for text in english)
    monkeypatch.setenv("ANYGRPO_LANG", "zh")
    chinese = list(sentences(command(name)))
    assert len(chinese) == len(english)
    same = {"JSONL"} | {e for e in english if e.startswith("anygrpo ")}
    missing = [e for e, z in zip(english, chinese) if z.isascii() and e not in same]
    assert missing == []


def test_help_prints_it(monkeypatch, capsys):
    from anygrpo.cli.main import main

    with pytest.raises(SystemExit):
        main(["--lang", "zh", "train", "--help"])
    out = capsys.readouterr().out
    assert "显示本帮助并退出" in out
    assert "选项" in out
    assert "continue this run" not in out
    assert out.startswith("用法：anygrpo train")
    assert "usage" not in out


def test_the_first_screen_says_where_to_begin(capsys):
    from anygrpo.cli.main import main

    for language, word in (("en", "to begin with"), ("zh", "从哪里开始")):
        assert main(["--lang", language]) == 0
        out = capsys.readouterr().out
        assert word in out
        assert "anygrpo doctor trainer_state.json" in out
        assert len(out.splitlines()) < 12
