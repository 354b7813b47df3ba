"""Where a run's numbers go besides metrics.jsonl: TensorBoard, Weights & Biases and Trackio, each an optional extra."""

from __future__ import annotations

import importlib.util
import json
import re
import secrets
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from anygrpo.errors import ConfigError
from anygrpo.spoken import Text


class Sink(Protocol):
    """Receives one flat dict of numbers (and a few strings) a step."""

    def write(self, row: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


def build_sink(kind: str, folder: Path, project: str, name: str, config: dict[str, Any]) -> Sink:
    """A sink by name.

    Raises:
        ConfigError: the extra it needs is not installed; names the pip command.
    """
    try:
        return TRACKERS[kind](folder, project, name, config)
    except ImportError as error:
        raise ConfigError(
            Text(f"sink {kind!r} needs a package: {error}", f"记录器 {kind!r} 需要一个包：{error}"),
            f"pip install 'anygrpo[{kind}]'",
        ) from None


def check_installed(kinds: Iterable[str]) -> None:
    """Whether the packages of these sinks are here, without opening any: told before a model is loaded.

    Raises: ConfigError, as `build_sink`.
    """
    for kind in kinds:
        if kind not in sys.modules and importlib.util.find_spec(kind) is None:
            raise ConfigError(
                Text(f"sink {kind!r} needs a package that is not installed", f"记录器 {kind!r} 需要一个没有安装的包"),
                Text(
                    f"pip install 'anygrpo[{kind}]', or leave it out of training.sinks",
                    f"pip install 'anygrpo[{kind}]'，或从 training.sinks 中去掉",
                ),
            )


def _numbers(row: dict[str, Any]) -> dict[str, float]:
    return {k: v for k, v in row.items() if isinstance(v, int | float) and not isinstance(v, bool) and k != "step"}


class TensorBoardSink:
    def __init__(self, folder: Path, project: str, name: str, config: dict[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"))

    def write(self, row: dict[str, Any]) -> None:
        for key, value in _numbers(row).items():
            self._writer.add_scalar(key, value, row["step"])

    def close(self) -> None:
        self._writer.close()


def run_id(folder: Path, tracker: str) -> str:
    """An id of this run's own, the same for each resume: folders of the same name on two machines are two runs."""
    file = folder / "trackers.json"
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        known = {}
    known = known if isinstance(known, dict) else {}
    if not isinstance(known.get(tracker), str):
        word = re.sub(r"[^\w-]", "-", folder.resolve().name)[:80]
        known[tracker] = f"{word}-{secrets.token_hex(4)}"
        file.write_text(json.dumps(known), encoding="utf-8")
    return known[tracker]


class WandbSink:
    """Online, or offline where WANDB_MODE says so. A resumed run continues the same curve.

    The step is a metric of its own, which all others are drawn over: W&B's own counter begins at 0 and never goes back,
    so it would drop the row before the first step and the steps that a run takes again.
    """

    def __init__(self, folder: Path, project: str, name: str, config: dict[str, Any]) -> None:
        import wandb  # type: ignore[import-not-found]

        self._run = wandb.init(
            project=project, name=name, dir=str(folder), config=config, id=run_id(folder, "wandb"), resume="allow"
        )
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def write(self, row: dict[str, Any]) -> None:
        self._run.log(_numbers(row) | {"step": row["step"]})

    def close(self) -> None:
        self._run.finish()


class TrackioSink:
    def __init__(self, folder: Path, project: str, name: str, config: dict[str, Any]) -> None:
        import trackio  # type: ignore[import-not-found]

        self._run = trackio.init(project=project, name=run_id(folder, "trackio"), config=config, resume="allow")

    def write(self, row: dict[str, Any]) -> None:
        self._run.log(_numbers(row), step=row["step"])  # kept as given, -1 too

    def close(self) -> None:
        self._run.finish()


TRACKERS: dict[str, Callable[[Path, str, str, dict[str, Any]], Sink]] = {
    "tensorboard": TensorBoardSink,
    "wandb": WandbSink,
    "trackio": TrackioSink,
}
