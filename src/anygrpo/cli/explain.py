"""`anygrpo explain [WORD]`: what a choice, a preset or a key of [algorithm] is, from its card."""

from __future__ import annotations

import argparse
import json
from typing import Any

from anygrpo.choices.card import KINDS, Card, Preset
from anygrpo.choices.catalogue import CARDS, PRESETS
from anygrpo.choices.settings import SETTINGS
from anygrpo.errors import ConfigError
from anygrpo.families import families, resolve
from anygrpo.metrics.catalogue import CATALOGUE
from anygrpo.metrics.metric import Metric
from anygrpo.recipe.algorithm import AlgorithmConfig
from anygrpo.recipe.hints import meant
from anygrpo.recipe.schema import words_of
from anygrpo.recipe.section import Schedule
from anygrpo.spoken import LANGUAGES, Text, current, say

_WORDS = {
    "formula": Text("formula", "公式"),
    "source": Text("source", "出处"),
    "sets": Text("sets", "默认设定"),
    "settings": Text("settings", "设置"),
    "metrics": Text("metrics", "指标"),
    "recipe": Text("recipe", "配方写法"),
    "function": Text("function", "函数"),
    "presets": Text("presets", "用到它的预设"),
    "beside": Text("beside", "另注"),
    "type": Text("type", "类型"),
    "default": Text("default", "默认值"),
    "read by": Text("read by", "由谁使用"),
    "preset": Text("preset", "预设"),
    "unit": Text("unit", "单位"),
    "normal": Text("normal", "正常范围"),
    "otherwise": Text("otherwise", "超出时"),
}


def add_parser(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "explain",
        help="what a choice, a preset, a reward, a metric or a setting of the algorithm is",
        description="anygrpo explain | anygrpo explain gspo | explain reduction | explain ssim | explain clip/high",
    )
    parser.add_argument(
        "word",
        nargs="?",
        help=say(
            "a choice or a kind of them, a preset, a reward, a metric, a setting",
            "选项或选项的种类、预设、奖励、指标、设置",
        ),
    )
    parser.add_argument("--lang", choices=LANGUAGES, default=current())
    parser.add_argument("--json", action="store_true", help=say("as JSON", "输出 JSON"))


def run(args: argparse.Namespace) -> int:
    """Print it; exit code 0, or 2 for an unknown word."""
    found = explained(args.word, args.lang)
    if args.json:
        print(json.dumps(found, ensure_ascii=False, indent=1))
    else:
        print("\n\n".join(_text(entry, args.lang) for entry in found))
    return 0


def explained(word: str | None, lang: str = "en") -> list[dict[str, Any]]:
    """Everything of that name, each as a table of what is known; no word: the kinds with their names.

    Raises:
        ConfigError: nothing of that name.
    """
    if word is None:
        lists = [_of_kind(kind, lang, short=True) for kind in KINDS]
        lists += [_of_family(name, cards, lang) for name, cards in _families().items()]
        return [*lists, {"title": _word("presets" if lang == "en" else "preset", lang), "names": list(PRESETS)}]
    if word in CATALOGUE:
        return [_of_metric(CATALOGUE[word], lang)]
    word = word.replace("-", "_").removeprefix("algorithm.")
    kinds = {"filters": "filter", "kl_controller": "controller", "importance": "correction", "rewards": "reward"}
    kind = kinds.get(word, word)
    out = [_of_card(cards[word], lang) for cards in CARDS.values() if word in cards]
    out += [_of_preset(PRESETS[word], lang)] if word in PRESETS else []
    out += [_of_kind(kind, lang)] if kind in KINDS else []
    out += [_of_card(card, lang) for cards in _families().values() for card in cards if card.name == word]
    out += [_of_setting(word, lang)] if word in SETTINGS else []
    out += [_of_metric(metric, lang) for name, metric in CATALOGUE.items() if name.rpartition("/")[2] == word]
    if not out:
        raise ConfigError(
            Text(
                f"{word!r} is no choice, preset, reward, metric or key of [algorithm]",
                f"{word!r} 不是选项、预设、奖励、指标，也不是 [algorithm] 的键",
            ),
            meant(word, known(), listing="anygrpo explain"),
        )
    return out


def known() -> set[str]:
    """Every word that is explained."""
    own = {card.name for cards in _families().values() for card in cards}
    return {*PRESETS, *KINDS, *SETTINGS, *CATALOGUE, *own, *(name for cards in CARDS.values() for name in cards)}


def _families() -> dict[str, list[Card]]:
    """Family -> its cards."""
    found = {f.name: [card for text in f.cards for card in resolve(text)] for f in families()}
    return {name: cards for name, cards in found.items() if cards}


def _of_family(name: str, cards: list[Card], lang: str) -> dict[str, Any]:
    title = f"rewards of {name}" if lang == "en" else f"{name} 的奖励"
    return {"title": title, "names": [card.name for card in cards]}


def _of_metric(metric: Metric, lang: str) -> dict[str, Any]:
    entry = {
        "title": metric.name,
        "sentence": metric.meaning.said(lang),
        "unit": metric.unit,
        "formula": metric.formula,
        "normal": metric.normal.said(lang),
        "otherwise": metric.act.said(lang),
    }
    return {name: value for name, value in entry.items() if value}


def _of_card(card: Card, lang: str) -> dict[str, Any]:
    where = KINDS[card.kind][0]
    spelt = _spelt(card)
    used = [p.name for p in PRESETS.values() if p.values.get(where.removeprefix("algorithm.")) == card.name]
    entry: dict[str, Any] = {
        "title": f"{card.name}: {card.kind}",
        "sentence": card.sentence.said(lang),
        "formula": card.formula,
        "source": card.source,
        "sets": _values(card.defaults),
        "settings": {key: (card.keys.get(key) or SETTINGS[key]).said(lang) for key in card.settings},
        "metrics": list(card.metrics),
        "presets": used,
        "recipe": spelt,
        "function": card.function,
    }
    return {name: value for name, value in entry.items() if value}


def _spelt(card: Card) -> str:
    if card.spelt:
        return card.spelt
    tables = {
        "filter": f'filters = [{{ kind = "{card.name}" }}]',
        "reward": f'[[task.rewards]] kind = "{card.name}"',
        "schedule": f'{{ kind = "{card.name}", start = ..., end = ... }}',
    }
    return tables.get(card.kind, f'{KINDS[card.kind][0]} = "{card.name}"')


def _of_preset(preset: Preset, lang: str) -> dict[str, Any]:
    return {
        "title": f"{preset.name}: {_word('preset', lang)}",
        "sentence": preset.sentence.said(lang),
        "sets": _values(preset.values),
        "source": preset.source.said(lang),
        "recipe": f'[algorithm] preset = "{preset.name}"',
    } | ({"beside": beside} if (beside := preset.beside.said(lang)) else {})


def _of_kind(kind: str, lang: str, short: bool = False) -> dict[str, Any]:
    where, text = KINDS[kind]
    cards = CARDS[kind]
    entry: dict[str, Any] = {"title": f"{kind} ({where}): {text.said(lang)}"}
    own = "path.py:name"
    if short:
        return entry | {"names": [*cards, own]}
    return entry | {"settings": {c.name: c.sentence.said(lang) for c in cards.values()}}


def _of_setting(key: str, lang: str) -> dict[str, Any]:
    field = AlgorithmConfig.model_fields.get(key)
    entry: dict[str, Any] = {"title": f"algorithm.{key}" if field else key, "sentence": SETTINGS[key].said(lang)}
    if field is not None:
        entry |= {
            "type": words_of(AlgorithmConfig)[key],
            "default": _shown(field.get_default(call_default_factory=True)),
        }
    readers = [c.name for cards in CARDS.values() for c in cards.values() if key in c.settings]
    return entry | ({"read by": readers} if readers else {})


def _values(values: Any) -> dict[str, Any]:
    return {key: _shown(value) for key, value in values.items()}


def _shown(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_shown(v) for v in value]
    if isinstance(value, Schedule) or hasattr(value, "kind"):
        return {"kind": value.kind}
    return "none" if value is None else value


def _word(word: str, lang: str) -> str:
    return _WORDS[word].said(lang) if word in _WORDS else word


def _text(entry: dict[str, Any], lang: str) -> str:
    lines = [entry["title"]]
    for name, value in entry.items():
        if name == "title":
            continue
        if name in ("sentence", "names"):
            lines.append("  " + (", ".join(value) if isinstance(value, list) else value))
        elif name == "settings":
            width = max(map(len, value), default=0)
            lines += [f"  {key:<{width}}  {text}" for key, text in value.items()]
        else:
            pairs = [f"{k} = {json.dumps(v)}" for k, v in value.items()] if isinstance(value, dict) else value
            many = pairs if isinstance(pairs, list) else [pairs]
            shown = ", ".join(v if isinstance(v, str) else json.dumps(v) for v in many)
            lines.append(f"  {_word(name, lang)}: {shown}")
    return "\n".join(lines)
