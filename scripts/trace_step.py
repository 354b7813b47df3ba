"""How much code one training step crosses: files and functions of ours that run in a step of the toy recipe.

    python scripts/trace_step.py [--list]

The step is one in the middle of a run, without evaluation or checkpoint, under the defaults of a recipe. Functions are
counted by their definition (comprehensions and lambdas belong to the function that holds them).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = str(ROOT / "src" / "anygrpo") + "/"
_INNER = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<lambda>", "<module>")


def traced_step(step: int = 5) -> set[tuple[str, str]]:
    """(file, function) of our package's code that runs from the begin of `step` until its row is written."""
    sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "src")]
    import runs  # tests/support/runs.py: the toy recipe

    seen: set[CodeType] = set()
    with tempfile.TemporaryDirectory() as folder:
        training = runs.run_of(Path(folder) / "run")
        enter = training.enter

        def entered(now: int) -> Any:
            if now == step:
                frame = sys._getframe(1)  # the loop itself
                while frame is not None and frame.f_code.co_filename.startswith(SOURCE):
                    seen.add(frame.f_code)
                    frame = frame.f_back  # type: ignore[assignment]
                sys.setprofile(_recorder(seen))
            return enter(now)

        training.enter = entered  # type: ignore[method-assign]
        training.observers.append(lambda row, run: sys.setprofile(None))
        runs.train(training)
        training.close()
    return {(code.co_filename.removeprefix(SOURCE), code.co_qualname) for code in seen}


def _recorder(seen: set[CodeType]) -> Callable[[FrameType, str, Any], None]:
    def record(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE) and code.co_name not in _INNER:
            seen.add(code)

    return record


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="name them")
    arguments = parser.parse_args()
    found = traced_step()
    files = sorted({file for file, _ in found})
    if arguments.list:
        for file in files:
            print(f"{file}: {', '.join(sorted(name for where, name in found if where == file))}")
    print(f"{len(files)} files, {len(found)} functions")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
