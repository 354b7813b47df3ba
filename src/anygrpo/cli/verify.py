"""`anygrpo verify FOLDER`: what of a run folder is whole. Only reads, and runs no code of it."""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anygrpo.errors import AnygrpoError, DataError, plain
from anygrpo.spoken import LANGUAGES, Text, current, say


@dataclass(frozen=True)
class Part:
    """One thing in a run folder. `state`: "whole", "damaged" (why says how), or "other" (not the run's own)."""

    name: str
    state: str
    why: str = ""


def add_parser(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "verify",
        help="what of a run folder is whole",
        description=say(
            "Checks each checkpoint's SHA-256, the recipe and the logs. Exit code 3: something is damaged.",
            "检查每个检查点的 SHA-256、配方和日志。退出码 3：有内容损坏。",
        ),
    )
    parser.add_argument("folder", help=say("run folder, or a checkpoint's folder", "运行文件夹，或检查点文件夹"))
    parser.add_argument("--lang", choices=LANGUAGES, default=current())
    parser.add_argument("--json", action="store_true")


def run(args: argparse.Namespace) -> int:
    """Print each part and its state; 0 where all is whole, 3 where something is not."""
    folder = Path(args.folder)
    parts = list(examine(folder))
    if not parts:
        raise DataError(
            Text(f"{folder} holds neither a run nor a checkpoint", f"{folder} 中既没有运行记录也没有检查点"),
            Text("give the folder that contains config.toml", "请给出含有 config.toml 的文件夹"),
        )
    goes_on = resumes_at(folder)
    if args.json:
        print(json.dumps({"parts": [asdict(p) for p in parts], "resumes_at": goes_on}, ensure_ascii=False, indent=2))
    else:
        print("\n".join(sentences(parts, goes_on, args.lang)))
    return 3 if any(p.state == "damaged" for p in parts) else 0


def sentences(parts: list[Part], goes_on: int | None, lang: str) -> list[str]:
    words = {
        "whole": say("whole", "完好", lang),
        "damaged": say("damaged", "损坏", lang),
        "other": say("not the run's, not looked at", "非运行所写，未检查", lang),
    }
    lines = [plain(f"{words.get(p.state, p.state)}  {p.name}" + (f": {p.why}" if p.why else "")) for p in parts]
    if goes_on is not None:
        lines.append(say(f"--resume would go on at step {goes_on}", f"--resume 将从第 {goes_on} 步继续", lang))
    return lines


def resumes_at(folder: Path) -> int | None:
    """The step at which `--resume` would go on; None for a folder that is not a run."""
    from anygrpo.train import checkpoint

    if not (folder / "config.toml").is_file():
        return None
    newest = checkpoint.newest(folder / "checkpoints") if (folder / "checkpoints").is_dir() else None
    return 0 if newest is None else checkpoint.step_of(newest)


def examine(folder: Path) -> Iterator[Part]:
    """Every part of a run folder, or the one checkpoint that the folder is."""
    from anygrpo.train import checkpoint

    if not folder.is_dir():
        return
    if (folder / checkpoint.MANIFEST).exists():
        yield _checkpoint(folder, folder.name)
        return
    if (folder / "config.toml").exists():
        yield _recipe(folder)
    yield from (_rows(f, folder) for f in sorted(folder.glob("*.jsonl")))
    for name in ("samples", "evaluations"):
        yield from (_rows(f, folder) for f in sorted((folder / name).glob("*.jsonl")))
    yield from (_table(f, folder) for f in sorted(folder.glob("*.json")))
    if (folder / "pictures" / "before.json").exists():
        yield _before(folder / "pictures")
    if (folder / "checkpoints").is_dir():
        own = [*checkpoint.complete(folder / "checkpoints"), folder / "checkpoints" / "best"]
        yield from (_checkpoint(f, f"checkpoints/{f.name}") for f in own if f.is_dir())
        others = sorted(f for f in (folder / "checkpoints").iterdir() if f not in own)
        yield from (Part(f"checkpoints/{f.name}", "other") for f in others)


def _checkpoint(folder: Path, name: str) -> Part:
    from anygrpo.train import checkpoint

    wrong = checkpoint.problems(folder)
    if not wrong:
        try:
            checkpoint.load(folder)
        except AnygrpoError as error:
            wrong = [str(error).splitlines()[0]]
    return Part(name, "damaged", "; ".join(wrong[:3])) if wrong else Part(name, "whole")


def _recipe(folder: Path) -> Part:
    from anygrpo.recipe.load import load_recipe

    try:
        load_recipe(folder / "config.toml")
    except (AnygrpoError, OSError, tomllib.TOMLDecodeError) as error:
        return Part("config.toml", "damaged", str(error).splitlines()[0])
    return Part("config.toml", "whole")


def _rows(file: Path, folder: Path) -> Part:
    name, broken, rows = str(file.relative_to(folder)), 0, 0
    try:
        with file.open("rb") as lines:
            for line in lines:
                rows += 1
                broken += bool(line.strip()) and not _is_table(line)
    except OSError as error:
        return Part(name, "damaged", str(error))
    return Part(name, "damaged", f"{broken} of {rows} lines cannot be read") if broken else Part(name, "whole")


def _table(file: Path, folder: Path) -> Part:
    name = str(file.relative_to(folder))
    try:
        whole = _is_table(file.read_bytes())
    except OSError as error:
        return Part(name, "damaged", str(error))
    return Part(name, "whole") if whole else Part(name, "damaged", "holds no JSON table")


def _is_table(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _before(pictures: Path) -> Part:
    from anygrpo.core.packing import unpack
    from anygrpo.core.tensor_files import read_json, read_tensors

    try:
        unpack(read_json(pictures / "before.json"), read_tensors(pictures / "before.safetensors"))
    except AnygrpoError as error:
        return Part("pictures/before.json", "damaged", str(error).splitlines()[0])
    return Part("pictures/before.json", "whole")
