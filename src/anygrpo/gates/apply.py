"""A trained policy on pictures: files and folders restored, with the bits, transparency, EXIF and profile they had."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from anygrpo.errors import AnygrpoError, ConfigError, DataError
from anygrpo.files import json_value, lines_of
from anygrpo.gates.policy import StochasticPolicy
from anygrpo.gates.restoration.reading import SUFFIXES, load
from anygrpo.gates.restoration.writing import like, save, suffix_for
from anygrpo.gates.tiles import OVERLAP, TILE, decide, places, restore
from anygrpo.spoken import Text

log = logging.getLogger("anygrpo")
RECORD = "applied.jsonl"
Progress = Callable[[int, int, dict[str, Any]], None]
"""(pictures done, of how many, the row of the last one)"""


def apply(
    policy: StochasticPolicy,
    inputs: str | Path | list[Any],
    out: str | Path | None,
    *,
    seed: int = 0,
    progress: Progress | None = None,
    draws: int = 0,
    tile: int = TILE,
    overlap: int = OVERLAP,
) -> list[dict[str, Any]]:
    """Restore pictures into the folder `out`; what is there already, made by the same weights and settings, stays.

    Args:
        policy: of networks that take one picture.
        inputs: a file or folder, or a list of files, and folders with all that lies below them.
        seed: of drawn gates; each picture's draws depend on it and on the picture's name alone.
        draws: 0: gates at their mean (or mode), as trained for use. n: n results with drawn gates, NAME_0, NAME_1, ...
        tile, overlap: side of the tiles of larger pictures, and how far they overlap.

    Returns:
        One row a result, in order: input, output, status ("made", "there", "failed" with its reason), size, tiles,
        seconds, gates (mean of each site's value), seed. The same lines are in `out`/applied.jsonl.

    Raises:
        ConfigError: a policy of several inputs, or tiles that do not overlap as they must.
        DataError: no pictures.
    """
    if len(policy.inputs) != 1:
        raise ConfigError(
            Text(
                f"this policy takes {list(policy.inputs)}, and a picture is one input",
                f"这个策略的输入为 {list(policy.inputs)}，而图像只有一个输入",
            ),
            Text("use it from Python", "请在 Python 中使用"),
        )
    if not 0 <= overlap < tile:
        raise ConfigError(
            Text(f"overlap = {overlap} must be below tile = {tile}", f"overlap = {overlap} 应小于 tile = {tile}")
        )
    if out is None:
        raise ConfigError(
            Text("restored pictures go into a folder", "复原的图像要写入文件夹"),
            Text("name one: apply(inputs, out)", "请给出文件夹：apply(inputs, out)"),
        )
    places = [Path(item) for item in (inputs if isinstance(inputs, list | tuple) else [inputs])]
    out = Path(out)
    files = list(_files(places, out))
    if not files:
        raise DataError(
            Text(f"no pictures in {', '.join(map(str, places))}", f"{', '.join(map(str, places))} 中没有图像"),
            Text(f"known: {' '.join(sorted(SUFFIXES))}", f"可用：{' '.join(sorted(SUFFIXES))}"),
        )
    settings = {"weights": fingerprint(policy), "seed": seed, "tile": tile, "overlap": overlap}
    kept, rows = _record(out), []
    for done, (file, target) in enumerate(_targets(files), 1):
        for row in _one(policy, file, out / target, settings, draws, kept):
            rows.append(row)
            with (out / RECORD).open("a", encoding="utf-8") as record:
                record.write(json.dumps(row, ensure_ascii=False) + "\n")
            if progress is not None:
                progress(done, len(files), row)
    return rows


def fingerprint(policy: StochasticPolicy) -> str:
    """The weights and what decides the gates, in 16 digits."""
    digest = hashlib.sha256(f"{policy.mode}|{policy.sites}".encode())
    for name, x in policy.network.state_dict().items():
        digest.update(name.encode())
        digest.update(x.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def _files(inputs: list[Path], out: Path) -> Iterator[tuple[Path, Path]]:
    """(file, its place below `out`), without what an earlier call put there.

    Raises:
        DataError: an input is not there.
    """
    here = out.resolve()
    for item in inputs:
        if item.is_dir():
            for file in sorted(item.rglob("*")):
                inside = file.resolve().is_relative_to(here) and not item.resolve().is_relative_to(here)
                if file.suffix.lower() in SUFFIXES and file.is_file() and not inside:
                    yield file, file.relative_to(item)
        elif item.is_file():
            yield item, Path(item.name)
        else:
            raise DataError(Text(f"{item} does not exist", f"{item} 不存在"), Text("correct the path", "请改正路径"))


def _targets(files: list[tuple[Path, Path]]) -> Iterator[tuple[Path, Path]]:
    """Names of the results; two pictures that would get one name keep their suffixes in it."""
    names = [place.with_suffix("") for _, place in files]
    for (file, place), name in zip(files, names):
        yield file, name if names.count(name) == 1 else place


def _one(
    policy: StochasticPolicy, file: Path, target: Path, settings: dict[str, Any], draws: int, kept: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """The rows of one picture."""
    try:
        pixels = load(file)
    except AnygrpoError as error:
        yield {"input": str(file), "status": "failed", "reason": error.what}
        return
    stat = file.stat()
    for draw in range(draws) if draws else [None]:
        name = f"{target.name}{'' if draw is None else f'_{draw}'}{suffix_for(file, pixels.bits)}"
        output = target.with_name(name)
        key = settings | {"input": str(file), "output": str(output), "draw": draw, "bytes": stat.st_size}
        key |= {"changed": stat.st_mtime_ns}
        before = kept.get(str(output))
        if before is not None and output.is_file() and all(before.get(k) == v for k, v in key.items()):
            yield before | {"status": "there"}
            continue
        try:
            yield key | _made(policy, pixels, output, settings, draw, file.name)
        except (RuntimeError, AnygrpoError, OSError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            yield key | {"status": "failed", "reason": reason}


def _made(
    policy: StochasticPolicy, pixels: Any, output: Path, settings: dict[str, Any], draw: int | None, name: str
) -> dict[str, Any]:
    began = time.perf_counter()
    x = pixels.tensor()[None].to(policy.device)
    own = int.from_bytes(hashlib.sha256(f"{settings['seed']}|{name}|{draw}".encode()).digest()[:6], "big")
    tile, overlap = settings["tile"], settings["overlap"]
    with policy.seeded(own):
        decided = decide(policy, x, draw is not None, tile)
        restored = restore(policy, x, decided, tile, overlap)
    save(like(restored[0], pixels), output)
    gates = {site: round(float(v.float().mean()), 4) for site, v in decided.values.items()}
    tiles = len(list(places(x.shape[-2], x.shape[-1], tile, overlap)))
    row: dict[str, Any] = {"status": "made", "size": list(x.shape[-2:]), "tiles": tiles, "gates": gates}
    if not bool(restored.isfinite().all()):
        row["warning"] = "some numbers are not finite; they are black"
    return row | {"seconds": round(time.perf_counter() - began, 3)}


def _record(out: Path) -> dict[str, Any]:
    """Output -> the last row of an earlier call; a line that was cut off is left out."""
    out.mkdir(parents=True, exist_ok=True)
    file, rows = out / RECORD, {}
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    if text and not text.endswith("\n"):  # cut off while it was written
        with file.open("a", encoding="utf-8") as record:
            record.write("\n")
    for line in lines_of(text):
        try:
            row = json_value(line)
        except ValueError:
            continue
        if isinstance(row, dict) and row.get("status") in ("made", "there"):
            rows[str(row.get("output"))] = row
    return rows
