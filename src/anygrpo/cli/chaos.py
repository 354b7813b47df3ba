"""`anygrpo chaos recipe.toml`: blows that a run may meet, dealt to a user's own recipe; is what is resumed the same?"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anygrpo.errors import ConfigError, TrainingError
from anygrpo.scratch import Scratch
from anygrpo.spoken import LANGUAGES, Text, current, say

_VOLATILE = ("time/", "throughput/", "memory/")
_SHORT = 2.0
"""Seconds of steps that a run must have, so that a blow can land in the middle."""
_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv.pop(1))
from anygrpo.cli.main import main
sys.exit(main())
"""
"""`anygrpo` in another process that imports from where this one does: however it was started, in whatever folder."""
BLOWS = ("again", "SIGKILL", "SIGKILL twice", "SIGTERM", "SIGHUP", "damaged checkpoint", "cut log", "disk full")


@dataclass(frozen=True)
class Result:
    """A blow and what came of it.

    Attributes:
        ended: exit code of the process that was hit (None: not hit).
        equal: rows and final weights are those of the undisturbed run, bit for bit; None where it was not tried.
    """

    blow: str
    ended: int | None
    equal: bool | None
    note: str = ""


def add_parser(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "chaos",
        help="kill, cut and fill the disk of your own recipe's run: is the resumed run the same?",
        description=say(
            "Runs a few steps undisturbed, then under each blow, in a folder that goes afterwards.",
            "先不受干扰地运行几步，再在每次打击下运行；所用文件夹事后删除。",
        ),
    )
    parser.add_argument("recipe", help=say("a .toml file", ".toml 文件"))
    parser.add_argument(
        "--steps",
        type=int,
        default=6,
        help=say("steps of each stage (more where they are quick)", "每个阶段的步数（步很快时会更多）"),
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=10.0,
        help=say("begin no blow after this time", "超过这个时间后不再开始新的打击"),
    )
    parser.add_argument("--lang", choices=LANGUAGES, default=current())
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(takes_flags=True)


def run(args: argparse.Namespace) -> int:
    """Deal every blow and report; 0 where all that was tried is equal, 4 where something is not."""
    with Scratch("chaos") as folder:
        trial = Trial(args.recipe, args.flags, folder, args.steps)
        end = time.monotonic() + 60 * args.minutes
        results = []
        for blow in BLOWS:
            late = time.monotonic() + trial.seconds > end
            results.append(Result(blow, None, None, "not tried: no time left") if late else trial.under(blow))
            if not args.json:
                print(sentence(results[-1], args.lang), flush=True)
    if args.json:
        print(json.dumps({"steps": trial.steps, "results": [asdict(r) for r in results]}, indent=2))
    return 4 if any(r.equal is False for r in results) else 0


def sentence(r: Result, lang: str) -> str:
    words = {
        True: Text("equal, bit for bit", "逐位相同"),
        False: Text("NOT EQUAL", "不相同"),
        None: Text("not tried", "未试"),
    }
    code = "" if r.ended is None else say(f" (exit {r.ended})", f"（退出码 {r.ended}）", lang)
    return f"{r.blow}{code}: {words[r.equal].said(lang)}" + (f"; {r.note}" if r.note else "")


class Trial:
    """The recipe shortened, its undisturbed run, and runs under blows beside it.

    Raises:
        TrainingError: the undisturbed run does not end well.
    """

    def __init__(self, recipe: str, flags: list[str], folder: Path, steps: int) -> None:
        self.recipe, self.flags, self.folder = recipe, flags, folder
        self.seconds = 0.0
        self._undisturbed(max(steps, 4))
        quick = self._step_seconds()
        if quick * self.steps < _SHORT:
            self._undisturbed(min(2000, int(_SHORT / max(quick, 1e-4)) + 1))
        self.rows, self.weights = outcome(self.whole)

    def _undisturbed(self, steps: int) -> None:
        self.whole, began = self.folder / f"whole-{steps}", time.monotonic()
        self.steps = self._write(self.whole, steps)
        code, said = self._finish(self._start(self.whole))
        if code != 0:
            raise TrainingError(
                Text(
                    f"the undisturbed run ended with {code}: {said[-500:]}",
                    f"未受干扰的运行以 {code} 结束：{said[-500:]}",
                ),
                Text("mend the recipe first", "请先修好配方"),
            )
        self.seconds = time.monotonic() - began

    def _step_seconds(self) -> float:
        rows = read(self.whole)
        return sum(row.get("time/step", 0.0) for row in rows) / max(len(rows), 1)

    def _write(self, target: Path, steps: int) -> int:
        """The recipe for a run in `target`; the number of its steps."""
        import tomli_w

        from anygrpo.recipe.load import load_recipe, plain_table

        recipe = load_recipe(self.recipe, self.flags)
        if recipe.training.max_staleness:
            raise ConfigError(
                Text(
                    f"training.max_staleness = {recipe.training.max_staleness}: such a run does not repeat itself, "
                    "and no blow could be told from none",
                    f"training.max_staleness = {recipe.training.max_staleness}：这样的运行不能重复，"
                    "无法分辨是否受过打击",
                ),
                Text("try the recipe with --training.max-staleness 0", "请以 --training.max-staleness 0 试这个配方"),
            )
        table = plain_table(recipe)
        parts = table.get("stages") or [table["training"]]
        for part in parts:
            part["steps"] = steps if part.get("steps") in (None, "none") else min(steps, part["steps"])
            part.pop("epochs", None)
        total = sum(part["steps"] for part in parts)
        table["training"] |= {"checkpoint_every": max(1, total // 5), "sinks": []}
        target.with_suffix(".toml").write_text(tomli_w.dumps(table | {"folder": str(target)}), encoding="utf-8")
        return total

    def _start(self, target: Path, *, resume: bool = False, file_bytes: int | None = None) -> subprocess.Popen[str]:
        words = ["--resume", str(target)] if resume else [str(target.with_suffix(".toml"))]

        def limit() -> None:  # in the child; under nohup it would inherit an ignored hang-up
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            if file_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

        return subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, json.dumps(sys.path), "train", *words, "--quiet"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=limit,
        )  # fmt: skip

    @staticmethod
    def _finish(process: subprocess.Popen[str]) -> tuple[int, str]:
        with _killed_with_us(process):
            said, _ = process.communicate()
        return process.returncode, said

    def under(self, blow: str) -> Result:
        """A run under a blow, resumed until it ends."""
        target = self.folder / blow.replace(" ", "-")
        target.with_suffix(".toml").write_text(
            self.whole.with_suffix(".toml").read_text(encoding="utf-8").replace(str(self.whole), str(target)), "utf-8"
        )
        ended, note = self._dealt(blow, target)
        for _ in range(3):
            if blow == "again" or (ended == 0 and not note):
                break
            code, said = self._finish(self._start(target, resume=True))
            if code == 0:
                break
            note = f"--resume ended with {code}: {said.strip()[-200:]}"
        equal = outcome(target) == (self.rows, self.weights)
        if ended == 0 and blow.startswith("SIG"):
            note = "it ended before the blow"
        if blow == "again" and not equal:
            note = "the recipe does not repeat itself even undisturbed (a device's own order of sums?)"
        return Result(blow, None if blow == "again" else ended, equal, note)

    def _dealt(self, blow: str, target: Path) -> tuple[int, str]:
        if blow == "again":
            return self._finish(self._start(target))[0], ""
        if blow == "disk full":
            largest = max(f.stat().st_size for f in self.whole.rglob("*") if f.is_file())
            return self._finish(self._start(target, file_bytes=largest - 1))[0], ""
        number = signal.SIGTERM if blow == "SIGTERM" else signal.SIGHUP if blow == "SIGHUP" else signal.SIGKILL
        code = self._hit(self._start(target), target, number, self.steps // 2)
        if blow == "SIGKILL twice":
            code = self._hit(self._start(target, resume=True), target, number, self.steps * 3 // 4)
        if blow == "damaged checkpoint":
            _damage(target)
        if blow == "cut log":
            with (target / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write('{"step": 10, "rew')
        return code, ""

    @staticmethod
    def _hit(process: subprocess.Popen[str], target: Path, number: int, row: int) -> int:
        """Send a signal once `row` rows are logged; the exit code."""
        with _killed_with_us(process):
            while process.poll() is None and _lines(target / "metrics.jsonl") < row:
                time.sleep(0.005)
            process.send_signal(number)
            process.communicate()
        return process.returncode


@contextlib.contextmanager
def _killed_with_us(process: subprocess.Popen[str]) -> Iterator[None]:
    """A run that goes on after this command has ended would fill its folder again."""
    try:
        yield
    except BaseException:
        process.kill()
        process.wait()
        raise


def _lines(file: Path) -> int:
    try:
        return file.read_bytes().count(b"\n")
    except OSError:
        return 0


def _damage(target: Path) -> None:
    """Half of the newest checkpoint's largest file goes."""
    from anygrpo.train import checkpoint

    folders = checkpoint.complete(target / "checkpoints")
    if folders:
        file = max((f for f in folders[-1].rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def read(folder: Path) -> list[dict[str, Any]]:
    from anygrpo.train.folder import read_rows

    return read_rows(folder / "metrics.jsonl")[0] if (folder / "metrics.jsonl").is_file() else []


def outcome(folder: Path) -> tuple[str, str]:
    """Digests of a run's rows (without seconds and memory) and of its final weights."""
    from anygrpo.train import checkpoint
    from anygrpo.train.record import digest

    rows = [{k: v for k, v in row.items() if not k.startswith(_VOLATILE)} for row in read(folder)]
    newest = checkpoint.newest(folder / "checkpoints") if (folder / "checkpoints").is_dir() else None
    if newest is None:
        return digest(rows), ""
    weights = checkpoint.load(newest)[0]
    return digest(rows), digest([checkpoint.step_of(newest), {name: weights[name] for name in weights}])
