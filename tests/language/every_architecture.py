"""Every causal architecture through everything, several at a time, each in a process of its own; and the page of them.

python tests/language/every_architecture.py rows OUT.jsonl [--jobs 16] [--seconds 480]
python tests/language/every_architecture.py page FILE.jsonl [OLDER.jsonl ...]      writes docs/models.md

The first file of `page` gives the rows; the others the states under the versions that they were made with.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import architectures

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
EACH = 300
"""Seconds for one architecture."""


def kinds() -> list[str]:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as names

    return sorted(names)


def versions() -> dict[str, str]:
    import peft
    import torch
    import transformers

    return {"transformers": transformers.__version__, "peft": peft.__version__, "torch": torch.__version__}


def rows(wanted: list[str], jobs: int = 1, seconds: float = float("inf")) -> Iterator[dict[str, Any]]:
    """A row as soon as it is made. What the time does not reach is "slow"."""
    architectures.through("llama")  # what all import is imported once
    end, queue = time.monotonic() + seconds, list(wanted)
    running: dict[int, tuple[str, int, bytearray]] = {}
    while queue or running:
        while queue and len(running) < jobs and time.monotonic() < end:
            kind = queue.pop(0)
            pipe, child = _begun(kind)
            running[pipe] = (kind, child, bytearray())
        late = time.monotonic() >= end
        if late and not running:
            break
        for pipe in running if late else select.select(list(running), [], [], 1.0)[0]:
            kind, child, text = running[pipe]
            if late:
                os.kill(child, signal.SIGKILL)
            elif part := os.read(pipe, 1 << 16):
                text += part
                continue
            os.close(pipe)
            os.waitpid(child, 0)
            yield json.loads(text) if text and not late else _slow(kind)
            running = {p: r for p, r in running.items() if p != pipe}
    yield from map(_slow, queue)


def _slow(kind: str) -> dict[str, Any]:
    return {"kind": kind, "state": "slow", "why": f"not finished (at most {EACH} s)", "notes": []}


def _begun(kind: str) -> tuple[int, int]:
    """(pipe that gives the row, process): some models take memory, time or the process down."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        signal.alarm(EACH)
        os.close(reading)
        began = time.monotonic()
        row = architectures.through(kind) | {"seconds": round(time.monotonic() - began, 1)}
        os.write(writing, json.dumps(row).encode())
        os._exit(0)  # what it left in the place for temporary files goes with the next one's sweep
    os.close(writing)
    return reading, child


def read(file: Path) -> tuple[dict[str, str], list[dict[str, Any]]]:
    first, *rest = (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
    return first, rest


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["rows", "page"])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    given = parser.parse_args()
    if given.what == "page":
        (made, found), *older = map(read, given.files)
        PAGE.write_text(architectures.page(found, made, older), encoding="utf-8")
        return
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # all is of the processor, and with a GPU no forked child can train
    with given.files[0].open("w", encoding="utf-8") as out:
        print(json.dumps(versions()), file=out, flush=True)
        for row in rows(kinds(), given.jobs, given.seconds):
            print(json.dumps(row), file=out, flush=True)


if __name__ == "__main__":
    main()
