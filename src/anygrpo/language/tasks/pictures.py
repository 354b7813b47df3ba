"""Pictures of prompts as people have them: files, bytes, data URLs, columns of rows, parts of messages. No torch."""

from __future__ import annotations

import base64
import io
from contextlib import suppress
from pathlib import Path
from typing import Any

from anygrpo.core.thumbnails import SHOWN, data_url, thumbnail
from anygrpo.errors import DataError, suggestion
from anygrpo.spoken import Text

MARK = "<image>"
"""Stands for a picture in a text, as data sets of TRL, verl and LLaVA have it."""

KINDS = ("image", "image_url", "input_image")
"""Types of content parts that are pictures."""


_FROM_FOLDER = Text("paths of pictures are relative to the data file's folder", "图片路径相对于数据文件所在的文件夹")
_FROM_NOWHERE = Text(
    "no data file is there: give a whole path or a data URL", "这里没有数据文件：请给出完整路径或 data URL"
)


def reference(value: Any, where: str, folder: Path | None = None) -> str:
    """A picture as a text that a record can hold: a file's path, or a data URL.

    Args:
        value: a path (relative to `folder`), a data URL, {"url": ...}, {"path": ..., "bytes": ...} as `datasets` has
            it, raw bytes, or a PIL image.

    Raises:
        DataError: none of these, no such file, or an address in the network.
    """
    if isinstance(value, dict):
        value = next((value[name] for name in ("bytes", "path", "url", "image") if value.get(name) is not None), None)
        if isinstance(value, dict):
            return reference(value, where, folder)
    if url := data_url(value):
        return url
    if isinstance(value, str) and value.startswith("data:"):
        return value
    if isinstance(value, str) and value.startswith(("http://", "https://")):
        raise DataError(
            Text(f"{where}: the picture is at {value[:80]}", f"{where}：图片在网址 {value[:80]}"),
            Text("download it and name the file", "请先下载，再给出文件名"),
        )
    if not isinstance(value, str | Path):
        raise DataError(
            Text(f"{where}: a picture is {str(value)[:60]!r}", f"{where}：图片是 {str(value)[:60]!r}"),
            Text("give a file's path, bytes, or a data URL", "请给出文件路径、字节，或 data URL"),
        )
    file = Path(str(value).removeprefix("file://")).expanduser()
    file = file if file.is_absolute() or folder is None else folder / file
    if not file.is_file():
        raise DataError(
            Text(f"{where}: no picture at {file}", f"{where}：{file} 处没有图片"),
            _FROM_FOLDER if folder is not None else _FROM_NOWHERE,
        )
    return str(file)


def opened(reference: str) -> Any:
    """The PIL image (RGB, turned upright, transparent parts on white).

    Raises:
        DataError: not a picture.
    """
    from PIL import Image, ImageOps

    shown = reference if len(reference) < 200 else f"{reference[:40]}..."
    try:
        if reference.startswith("data:"):
            source: Any = io.BytesIO(base64.b64decode(reference.partition(",")[2], validate=True))
        else:
            source = reference
        with Image.open(source) as held:
            picture = ImageOps.exif_transpose(held)
            if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
                picture = picture.convert("RGBA")
                return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")
            return picture.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(
            Text(f"no picture at {shown}: {error}", f"{shown} 不是图片：{error}"),
            Text("give a PNG, JPEG or another picture that Pillow reads", "请给出 PNG、JPEG 或 Pillow 能读的图片"),
        ) from None


MOST = 4
"""Pictures of a prompt that are shown."""


def with_thumbnails(rows: list[dict[str, Any]], prompts: list[Any]) -> list[dict[str, Any]]:
    """What is shown of prompts, the first ones with their pictures; one whose file has gone has none."""
    for row, prompt in zip(rows[:SHOWN], prompts):
        asked = references(prompt.get("prompt") if isinstance(prompt, dict) else prompt)
        with suppress(DataError):
            row |= {"pictures": [thumbnail(opened(one)) for one in asked[:MOST]]} if asked else {}
    return rows


USUAL = ("image", "images")
"""Columns in which data sets have pictures."""


def unseen(record: Any) -> str | None:
    """The column of a record that holds pictures which its prompt does not show."""
    if not isinstance(record, dict) or references(record.get("prompt")):
        return None
    return next((name for name in USUAL if record.get(name)), None)


def is_picture(part: Any) -> bool:
    """Whether a content part stands for a picture."""
    return isinstance(part, dict) and (part.get("type") in KINDS or (part.get("type") is None and "image" in part))


def part_of(part: dict[str, Any], where: str, folder: Path | None) -> dict[str, Any]:
    """A picture's part as records hold it: {"type": "image"} with its reference, where it brings one."""
    found = next((part[name] for name in ("image", "image_url", "url", "path") if part.get(name) is not None), None)
    return {"type": "image"} | ({} if found is None else {"image": reference(found, where, folder)})


def references(messages: Any) -> list[str]:
    """The pictures of a prompt's messages, in their order."""
    if not isinstance(messages, list):
        return []
    contents = [m["content"] for m in messages if isinstance(m.get("content"), list)]
    return [part["image"] for content in contents for part in content if is_picture(part)]


def with_pictures(prompt: Any, given: list[str], where: str) -> Any:
    """The prompt with a row's pictures in their places: parts of messages that wait for one, else `<image>` in texts,
    else before the first words of the user.

    Raises:
        DataError: another number of places than of pictures.
    """
    messages: list[dict[str, Any]] = (
        [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(m) for m in prompt]
    )
    waiting = [p for m in messages if isinstance(m["content"], list) for p in m["content"] if _waits(p)]
    marks = sum(m["content"].count(MARK) for m in messages if isinstance(m["content"], str))
    places = len(waiting) or marks
    if given and not places:
        first = next((m for m in messages if m["role"] == "user"), messages[0])
        shown = [{"type": "image", "image": one} for one in given]
        first["content"] = [*shown, *parts(first["content"])]
        return messages
    if places != len(given):
        raise DataError(
            Text(
                f"{where}: {places} places for pictures, {len(given)} pictures",
                f"{where}：有 {places} 个图片位置，却有 {len(given)} 张图片",
            ),
            Text(
                "name the column that holds them in task.pictures; one picture a place",
                "请在 task.pictures 中写明图片所在的列；每个位置一张",
            ),
        )
    rest = iter(given)
    if waiting:
        for message in messages:
            if isinstance(message["content"], list):
                message["content"] = [{**p, "image": next(rest)} if _waits(p) else p for p in message["content"]]
    elif marks:
        for message in messages:
            if isinstance(message["content"], str) and MARK in message["content"]:
                message["content"] = _filled(message["content"], rest)
    else:
        return prompt
    return messages


def _waits(part: Any) -> bool:
    return is_picture(part) and "image" not in part


def parts(content: Any) -> list[Any]:
    """A message's content as parts."""
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _filled(text: str, pictures: Any) -> list[dict[str, Any]]:
    """The parts of a text with marks."""
    first, *others = text.split(MARK)
    made: list[dict[str, Any]] = [{"type": "text", "text": first}] if first else []
    for words in others:
        made.append({"type": "image", "image": next(pictures)})
        made += [{"type": "text", "text": words.removeprefix("\n")}] if words.strip() else []
    return made


def marked(messages: Any, mark: str) -> str:
    """The text of messages without a template, each picture by its mark."""
    every = [part for message in messages for part in parts(message["content"])]
    return "".join(mark if is_picture(part) else part["text"] for part in every)


def pictures_of(row: dict[str, Any], columns: tuple[str, ...], where: str, folder: Path | None) -> list[str]:
    """The pictures of a row, taken out of its columns.

    Raises:
        DataError: no such column, or what is no picture.
    """
    missing = [name for name in columns if name not in row]
    if missing:
        name, hint = missing[0], suggestion(missing[0], row)
        raise DataError(
            Text(f"{where}: no column {name!r}; {hint}", f"{where}：没有 {name!r} 列；{hint}"),
            Text("set task.pictures", "请设置 task.pictures"),
        )
    found = [row.pop(name) for name in columns]
    every = [one for value in found if value is not None for one in (value if isinstance(value, list) else [value])]
    return [reference(one, where, folder) for one in every]


def example() -> dict[str, Any]:
    """A prompt with a small picture, on which a model is tried."""
    from PIL import Image

    picture = Image.new("RGB", (224, 224))
    picture.putdata([(x, y, x * y % 256) for y in range(224) for x in range(224)])
    shown = {"type": "image", "image": reference(picture, "an example")}
    return {"prompt": [{"role": "user", "content": [shown, {"type": "text", "text": "What is this?"}]}]}
