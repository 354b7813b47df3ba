"""A selector as a portable folder: weights and settings, nothing else. Three lines use it:

    selector = load("my-selector")
    for row in apply(selector, {"queries": "queries.npz", "candidates": "candidates.npz"}):
        print(row["query"], row["picks"])

selector.safetensors  the network's weights, under this library's names
selector.json         version, the [policy] section (K, STOP, temperature), and what queries are offered (`Offer`)
export.json           what was compared with the policy, in a process of its own
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from anygrpo.errors import DataError
from anygrpo.files import json_value, whole_or_none
from anygrpo.selection.build import build
from anygrpo.selection.certificate import certify
from anygrpo.selection.offer import Offer, offer_of
from anygrpo.selection.policy import SelectorPolicy
from anygrpo.selection.settings import SelectorConfig
from anygrpo.spoken import Text

WEIGHTS, SETTINGS, COMPARED, VERSION = "selector.safetensors", "selector.json", "export.json", 1
USE = """from anygrpo.selection.apply import apply
from anygrpo.selection.export import load
rows = apply(load({folder}), {{"queries": "queries.npz", "candidates": "candidates.npz"}})  # row["picks"]"""
"""Of the card: tables with `ids` and `embeddings`."""


def export(policy: SelectorPolicy, folder: str | Path, recipe: Any = None, **about: Any) -> list[Path]:
    """Write a selector into `folder` (made where it is not there), load it in a process of its own, and compare; the
    files.

    Args:
        recipe: of the run: says what its queries were offered (`Offer`), which the selector keeps.
        about: what else the reader should know, JSON-ready; `pool`, `ids`, `own_place` and `embedding` go before what
            the policy and the recipe say.

    Raises:
        TrainingError: loaded there, it does not pick as the policy does; the files are taken away.
    """
    from safetensors.torch import save_file

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: x.detach().cpu().contiguous() for name, x in policy.network.state_dict().items()}
    save_file(state, folder / WEIGHTS)
    about |= Offer.of(about).or_else(offer_of(policy, recipe)).told()
    own = {"model": None, "freeze": (), "device": "auto", "temperature": policy.temperature}
    section = policy.config.model_copy(update=own).model_dump(mode="json")
    text = json.dumps({"version": VERSION, "policy": section, "about": about}, indent=2, ensure_ascii=False)
    (folder / SETTINGS).write_text(text, encoding="utf-8")
    files = [folder / WEIGHTS, folder / SETTINGS]
    with whole_or_none(files):
        compared = certify(policy, folder, Offer.of(about))
    told = {"format": "selector", "use": USE.format(folder=json.dumps(f"./{folder.name}")), "compared": compared}
    (folder / COMPARED).write_text(json.dumps(told, indent=2), encoding="utf-8")
    return [*files, folder / COMPARED]


def load(folder: str | Path) -> SelectorPolicy:
    """The selector that `export` wrote. It runs no code from the folder.

    Raises:
        DataError: no selector there, or one of a later version.
    """
    folder = Path(folder)
    policy = build(SelectorConfig(**_section(folder), model=str(folder / WEIGHTS)), 0)
    policy.offer = _offer(folder)
    return policy


def about(folder: str | Path) -> dict[str, Any]:
    """What `export` was told beyond the policy."""
    return _read(Path(folder)).get("about", {})


def _offer(folder: Path) -> Offer:
    """What queries are offered.

    Raises:
        DataError: numbers and words that no export has written.
    """
    offer = Offer.of(about(folder))
    pool, ids = offer.pool, offer.ids
    number = isinstance(pool, int) and not isinstance(pool, bool) and pool >= 0
    if (number or pool is None) and ids in ("one", "two", None):
        return offer
    raise DataError(
        Text(
            f"{folder / SETTINGS}: pool = {pool!r}, ids = {ids!r} is nothing that queries can be offered",
            f"{folder / SETTINGS}：pool = {pool!r}、ids = {ids!r} 不能决定查询面对的候选",
        ),
        Text('pool is a number (0: all), ids "one" or "two"', 'pool 应为数（0：全部），ids 应为 "one" 或 "two"'),
    )


def _section(folder: Path) -> dict[str, Any]:
    section = {k: v for k, v in _read(folder)["policy"].items() if k != "model"}
    try:
        SelectorConfig(**section)
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(f"{folder / SETTINGS}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    return section


def _read(folder: Path) -> dict[str, Any]:
    file = folder / SETTINGS
    if not file.is_file() or not (folder / WEIGHTS).is_file():
        raise DataError(
            Text(
                f"{folder} holds no selector: {SETTINGS} and {WEIGHTS} are wanted",
                f"{folder} 中没有选择器：需要 {SETTINGS} 和 {WEIGHTS}",
            ),
            Text("anygrpo select fit writes them", "anygrpo select fit 会写出它们"),
        )
    try:
        table = json_value(file.read_text(encoding="utf-8"))
        version, _ = int(table["version"]), table["policy"]["kind"]
    except (ValueError, KeyError, TypeError):
        raise DataError(Text(f"{file} is no selector's settings", f"{file} 不是选择器的设置")) from None
    if version > VERSION:
        raise DataError(
            Text(
                f"{file} is of version {version}, this library reads up to {VERSION}",
                f"{file} 的版本为 {version}，本库至多读到 {VERSION}",
            ),
            Text("a newer anygrpo", "请用较新的 anygrpo"),
        )
    return table
