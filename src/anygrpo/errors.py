"""Errors that a person can act on: what happened, the values, what to change.

Every error raised on purpose is an `AnygrpoError`. The command line prints its text without a traceback (unless
``--debug``) and exits with its `exit_code`:

====================  =========  ==================================================
class                 exit code  meaning
====================  =========  ==================================================
`AnygrpoError`        1          internal: a bug here
`ConfigError`         2          a recipe or flag that cannot be meant
`DataError`           3          data, model or file missing or malformed
`TrainingError`       4          training failed and cannot go on
`DoctorObjection`     5          the doctor or the pre-flight check objects
`Interrupted`         130        stopped by the user, state saved
====================  =========  ==================================================

A bad *sample* is never an exception: it is data (`Rollout.valid` is False there, with a reason).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from anygrpo.spoken import Text, said, say


def plain(text: str) -> str:
    """The text without control characters but line ends and tabs: names in it may come from a file of anybody's."""
    if text.isprintable():
        return text
    return "".join(c for c in text if c.isprintable() or c in "\n\t")


class AnygrpoError(Exception):
    """Base of all deliberate errors.

    Args:
        what: one sentence: what is wrong, naming both values where two disagree.
        cure: one sentence: what to change.

    Either is a `Text` where a user reads it often: it is then in the language in use where the error is raised.
    """

    exit_code = 1

    def __init__(self, what: str | Text, cure: str | Text = "") -> None:
        self.what, self.cure = plain(said(what)), plain(said(cure))
        super().__init__(f"{self.what}\n  -> {self.cure}" if self.cure else self.what)


class ConfigError(AnygrpoError):
    exit_code = 2


class DataError(AnygrpoError):
    exit_code = 3


class TrainingError(AnygrpoError):
    exit_code = 4


class DoctorObjection(AnygrpoError):
    exit_code = 5


class Interrupted(AnygrpoError):
    exit_code = 130


EXTRAS = {
    "diffusers": "diffusion",
    "skimage": "restoration",
    "reasoning_gym": "gym",
    "sklearn": "digits",
    "optuna": "sweep",
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "trackio": "trackio",
    "vllm": "vllm",
    "gguf": "smollm2",
    "verifiers": "verifiers",
    "torchvision": "perceptual",
    "rapidocr": "ocr",
}
"""Module -> the extra that installs it; a test compares with pyproject.toml."""


OWN = ("torch", "transformers", "peft", "numpy", "scipy", "pydantic", "safetensors", "accelerate", "torchmetrics")
"""What the package itself needs; a light install (pip install --no-deps) is without."""


def not_installed(error: ImportError) -> DataError | None:
    """What to install for a module that is not there; None where the module is none of ours or an extra's."""
    module = (error.name or "").partition(".")[0]
    if module in OWN:
        return DataError(
            Text(f"this needs {module}, which is not installed", f"需要 {module}，但没有安装"),
            Text(
                "pip install anygrpo; doctor, autopsy and compare of logs do without",
                "pip install anygrpo；诊断日志的 doctor、autopsy 和 compare 不需要它",
            ),
        )
    extra = EXTRAS.get(module)
    if extra is None:
        return None
    return DataError(
        Text(f"this needs {error.name}, which is not installed", f"需要 {error.name}，但没有安装"),
        f"pip install 'anygrpo[{extra}]'",
    )


def suggestion(word: str, known: Iterable[str]) -> str:
    """The sentence "did you mean ...?" for a misspelt word, or the known words where nothing is close."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return say(f"did you mean {close[0]!r}?", f"是否想写 {close[0]!r}？")
    return say("known: ", "可用：") + ", ".join(names)
