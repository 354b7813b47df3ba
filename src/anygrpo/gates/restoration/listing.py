"""Which file is whose pair: templates of names, and the layouts of public data sets as such templates.

A template is a path below the set's root with words in braces: `gt/{id}.png`, `train/{scene}/blur/{id}.*`. Two files
are a pair where their words agree; `*` stands for anything else of one folder's or file's name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from anygrpo.errors import DataError
from anygrpo.gates.restoration.reading import SUFFIXES
from anygrpo.spoken import Text

Part = Literal["split", "train", "test"]


@dataclass(frozen=True)
class Form:
    """Templates of a set's clean pictures and, for pairs, of the degraded ones.

    Attributes:
        part: "train" or "test" where the set says so, else "split".
        scene: template that is matched against the id, with {scene}: pictures of one scene stay on one side.
    """

    clean: str
    degraded: str | None = None
    part: Part = "split"
    scene: str | None = None


@dataclass(frozen=True)
class Entry:
    """One clean picture, and its degraded versions (none: they are made)."""

    name: str
    scene: str
    clean: Path
    degraded: tuple[Path, ...]
    part: Part


LAYOUTS: dict[str, tuple[tuple[Form, ...], ...]] = {
    "bsd": (
        (
            Form("images/train/{id}.*", part="train"),
            Form("images/val/{id}.*", part="train"),
            Form("images/test/{id}.*", part="test"),
        ),
        (Form("original_png/{id}.*"),),
        (Form("{id}.*"),),
    ),
    "wed": ((Form("pristine_images/{id}.*"),), (Form("{id}.*"),)),
    "rain100l": (
        (
            Form("rain_data_train_Light/norain/norain-{id}.*", "rain_data_train_Light/rain/norain-{id}x2.*", "train"),
            Form("rain_data_test_Light/norain/norain-{id}.*", "rain_data_test_Light/rain/X2/norain-{id}x2.*", "test"),
        ),
        *(
            (Form(f"{clean}norain-{{id}}.*", f"{rain}{name}.*"),)
            for clean in ("norain/", "gt/", "")
            for rain in ("rain/", "rain/X2/", "rainy/", "")
            for name in ("norain-{id}x2", "rain-{id}")
        ),
        (Form("target/{id}.*", "input/{id}.*"),),
    ),
    "sots": (
        (
            Form("outdoor/gt/{id}.*", "outdoor/hazy/{id}_*.*", "test"),
            Form("indoor/gt/{id}.*", "indoor/hazy/{id}_*.*", "test"),
        ),
        (Form("gt/{id}.*", "hazy/{id}_*.*"),),
        (Form("clear/{id}.*", "hazy/{id}_*.*"),),
        (Form("clear/{id}.*", "haze/{id}_*.*"),),
        (Form("original/{id}.*", "synthetic/*/{id}_*.*"),),
        (Form("original/{id}.*", "synthetic/{id}_*.*"),),
        (Form("target/{id}.*", "input/{id}_*.*"),),
        (Form("target/{id}.*", "input/{id}.*"),),
    ),
    "gopro": (
        (
            Form("train/{scene}/sharp/{id}.*", "train/{scene}/blur/{id}.*", "train"),
            Form("test/{scene}/sharp/{id}.*", "test/{scene}/blur/{id}.*", "test"),
        ),
        (Form("{scene}/sharp/{id}.*", "{scene}/blur/{id}.*"),),
        (
            Form("train/target/{id}.*", "train/input/{id}.*", "train", "{scene}-*"),
            Form("test/target/{id}.*", "test/input/{id}.*", "test", "{scene}-*"),
        ),
        (Form("target/{id}.*", "input/{id}.*", scene="{scene}-*"),),
    ),
    "lol": (
        (
            Form("our485/high/{id}.*", "our485/low/{id}.*", "train"),
            Form("eval15/high/{id}.*", "eval15/low/{id}.*", "test"),
        ),
        (
            Form("Train/Normal/normal{id}.*", "Train/Low/low{id}.*", "train"),
            Form("Test/Normal/normal{id}.*", "Test/Low/low{id}.*", "test"),
        ),
        (
            Form("Train/Normal/{id}.*", "Train/Low/{id}.*", "train"),
            Form("Test/Normal/{id}.*", "Test/Low/{id}.*", "test"),
        ),
        (Form("high/{id}.*", "low/{id}.*"),),
    ),
    "div2k": (
        (Form("DIV2K_train_HR/{id}.*", part="train"), Form("DIV2K_valid_HR/{id}.*", part="test")),
        (Form("{id}.*"),),
    ),
}
"""By name, the ways that a set lies on disks; the first of which any file is there is taken."""


FLAT = "{id}.*"
DEPTH = 3
"""Folders below the root in which a layout is looked for: archives unpack into folders of their own."""


def forms_of(layout: str, root: Path, scale: int = 1) -> tuple[Form, ...]:
    """The forms of a layout that lie in `root`, or in one folder below it. "div2k" with a scale above 1 has pairs with
    its bicubic pictures.

    Raises:
        DataError: none of them, or several folders below hold one.
    """
    known = LAYOUTS[layout]
    if layout == "div2k" and scale > 1:
        small = f"_LR_bicubic/X{scale}/{{id}}x{scale}.*"
        parts: tuple[tuple[str, Part], ...] = (("train", "train"), ("valid", "test"))
        known = (tuple(Form(f"DIV2K_{p}_HR/{{id}}.*", f"DIV2K_{p}{small}", part) for p, part in parts),)
    if here := _lying(known, root):
        return here
    named = tuple(forms for forms in known if forms[0].clean != FLAT)
    below = {folder: here for folder in _folders(root, DEPTH) if (here := _lying(named, folder))}
    below = {folder: here for folder, here in below.items() if not below.keys() & set(folder.parents)}
    if len(below) > 1:
        places = ", ".join(str(folder.relative_to(root)) for folder in sorted(below))
        raise DataError(
            Text(
                f"{root} holds {layout} in {len(below)} folders: {places}",
                f"{root} 中有 {len(below)} 个文件夹含有 {layout}：{places}",
            ),
            Text("name one of them as root", "请给出其中一个作为 root"),
        )
    for folder, here in below.items():
        at = folder.relative_to(root).as_posix()
        under = lambda template, at=at: template and f"{at}/{template}"  # noqa: E731
        return tuple(replace(f, clean=f"{at}/{f.clean}", degraded=under(f.degraded)) for f in here)
    ways = "; ".join(" and ".join(filter(None, [f.clean, f.degraded])) for forms in known for f in forms)
    raise DataError(
        Text(f"{root} does not look like {layout}", f"{root} 不像 {layout}"),
        Text(f"looked for {ways}; or write task.folder.clean yourself", f"查找过 {ways}；或自己写出 task.folder.clean"),
    )


def _lying(known: tuple[tuple[Form, ...], ...], root: Path) -> tuple[Form, ...]:
    """The first of the ways that has files in `root`: its forms that have."""
    for forms in known:
        here = tuple(f for f in forms if found(root, f.clean) and (f.degraded is None or found(root, f.degraded)))
        if here:
            return here
    return ()


def _folders(root: Path, depth: int) -> list[Path]:
    """Folders below `root`, so many levels down."""
    here = sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith(".")) if root.is_dir() else []
    return [*here, *(below for p in here if depth > 1 for below in _folders(p, depth - 1))]


def entries(root: Path, form: Form) -> list[Entry]:
    """The pictures of a form, sorted by name.

    Raises:
        DataError: two files for one clean picture, or a picture without a partner.
    """
    clean = found(root, form.clean)
    for words, files in clean.items():
        if len(files) > 1:
            raise DataError(
                Text(
                    f"{root} has two pictures of one name: {', '.join(str(f) for f in files[:3])} ({words[0]})",
                    f"{root} 中有两张同名的图像：{', '.join(str(f) for f in files[:3])}（{words[0]}）",
                )
            )
    degraded = found(root, form.degraded) if form.degraded is not None else {}
    if form.degraded is not None and (lonely := sorted(clean.keys() ^ degraded.keys())):
        named = ", ".join("/".join(filter(None, (w[1], w[0]))) for w in lonely[:5])
        raise DataError(
            Text(
                f"{len(lonely)} files of {root / form.clean} and {root / form.degraded} have no partner: {named}",
                f"{root / form.clean} 与 {root / form.degraded} 中有 {len(lonely)} 个文件没有配对：{named}",
            ),
            _templates(form.clean, form.degraded, {w[0] for w in clean}, {w[0] for w in degraded}),
        )
    made = []
    for (name, scene), files in sorted(clean.items()):
        key = scene or _scene(name, form.scene)
        whole = "/".join(filter(None, (scene, name)))
        made.append(Entry(whole, key, files[0], tuple(degraded.get((name, scene), ())), form.part))
    return made


def _templates(clean: str, degraded: str, names: set[str], others: set[str]) -> Text:
    """Templates under which the files pair, where what their names have in common tells (norain-1, rain-1)."""
    apart = [_apart(some) for some in (names, others)]
    (before, after, ids), (before_other, after_other, other_ids) = apart
    if len(ids & other_ids) > max(len(ids), len(other_ids)) / 2:
        clean = clean.replace("{id}", f"{before}{{id}}{after}")
        degraded = degraded.replace("{id}", f"{before_other}{{id}}{after_other}")
        return Text(
            f'write clean = "{clean}", degraded = "{degraded}"', f'写作 clean = "{clean}"，degraded = "{degraded}"'
        )
    return Text(
        'name both by templates, as clean = "gt/{id}.png", degraded = "rain/{id}x2.png"',
        '请用模板写出两者，如 clean = "gt/{id}.png"，degraded = "rain/{id}x2.png"',
    )


def _apart(names: set[str]) -> tuple[str, str, set[str]]:
    """What all names begin and end with, digits at the seams left to what differs; and what is left of each."""
    before = _beginning(names).rstrip("0123456789")
    after = _beginning({name[len(before) :][::-1] for name in names})[::-1].lstrip("0123456789")
    return before, after, {name[len(before) : len(name) - len(after)] for name in names} - {""}


def _beginning(names: set[str]) -> str:
    """The letters that all begin with: those that the first and the last in order share."""
    first, last = min(names, default=""), max(names, default="")
    return first[: next((i for i, (a, b) in enumerate(zip(first, last)) if a != b), min(len(first), len(last)))]


def found(root: Path, template: str) -> dict[tuple[str, str], list[Path]]:
    """(id, scene) -> picture files below `root` whose paths match, sorted. Absolute templates leave `root` out."""
    base, rest = _fixed(root, template)
    pattern = _regex(rest)
    out: dict[tuple[str, str], list[Path]] = {}
    for file in sorted(base.glob(re.sub(r"\{\w+\}|\*+", "*", rest))) if base.is_dir() else ():
        match = pattern.fullmatch(file.relative_to(base).as_posix())
        if match and file.suffix.lower() in SUFFIXES and not file.name.startswith("."):
            words = match.groupdict()
            out.setdefault((words["id"], words.get("scene") or ""), []).append(file)
    return out


def _fixed(root: Path, template: str) -> tuple[Path, str]:
    """The folder that a template names without any word or star, and the rest."""
    path = Path(template).expanduser()
    parts = (path if path.is_absolute() else root / path).parts
    first = next((i for i, part in enumerate(parts) if re.search(r"[{*]", part)), len(parts) - 1)
    return Path(*parts[:first]), "/".join(parts[first:])


def _regex(template: str) -> re.Pattern[str]:
    text, words = "", set[str]()
    for piece in re.split(r"(\{\w+\}|\.\*$|\*)", template):
        if re.fullmatch(r"\{\w+\}", piece):
            name = piece[1:-1]
            text += f"(?P={name})" if name in words else f"(?P<{name}>[^/]+?)"
            words.add(name)
        elif piece == ".*":
            text += r"\.[^./]+"
        else:
            text += "[^/]*" if piece == "*" else re.escape(piece)
    return re.compile(text)


def _scene(name: str, template: str | None) -> str:
    match = _regex(template).fullmatch(name) if template else None
    return match["scene"] if match else name
