"""A name of the Hugging Face Hub, "owner/name" or "owner/name@revision": its files on this disk.

They lie in the Hub's own cache: what was had once is there without a network too.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path, PurePosixPath

from anygrpo.errors import DataError
from anygrpo.spoken import Text

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w./-]+)?")
_TORCH = (".bin", ".pt", ".pth", ".ckpt")
_WEIGHTS = (".safetensors", *_TORCH)
_USELESS = (
    ".onnx",
    ".onnx_data",
    ".msgpack",
    ".h5",
    ".ot",
    ".tflite",
    ".png",
    ".jpg",
    ".jpeg",
    ".gif",
    ".mp4",
    ".webp",
)


def is_name(text: str | Path) -> bool:
    """Whether a text may be a name of the Hub: not where it is a path, ends like a file of weights, or begins with a
    folder that is here (runs/demo-2, misspelt)."""
    text = str(text)
    owner = text.partition("/")[0]
    may_be = _NAME.fullmatch(text) is not None and not text.endswith(_WEIGHTS)
    return may_be and not Path(text).exists() and not Path(owner).is_dir()


def split(name: str) -> tuple[str, str | None]:
    """ "owner/name@revision" -> ("owner/name", "revision"); None where no revision is given. Paths stay whole."""
    if not is_name(name):
        return name, None
    repository, _, revision = name.partition("@")
    return repository, revision or None


def located(name: str | Path) -> Path:
    """The folder of a name of the Hub; any other path as it is."""
    return folder(str(name)) if is_name(name) else Path(name).expanduser()


@lru_cache
def folder(name: str) -> Path:
    """The repository's files that a program here can use, in the Hub's cache; fetched where they are not there.

    Raises:
        DataError: no such repository or revision, or no way to it and nothing in the cache.
    """
    hub, (repository, revision) = _package(name), split(name)
    try:
        files = hub.HfApi().list_repo_files(repository, revision=revision)
        return Path(hub.snapshot_download(repository, revision=revision, allow_patterns=wanted(files)))
    except Exception as error:  # a dozen kinds: no network, offline, no such name, a gate
        try:
            return Path(hub.snapshot_download(repository, revision=revision, local_files_only=True))
        except Exception:
            raise _not_had(name, error) from None


@lru_cache
def holds(name: str, file: str) -> bool:
    """Whether a repository holds a file; False where that cannot be known."""
    hub, (repository, revision) = _package(name), split(name)
    try:
        hub.hf_hub_download(repository, file, revision=revision)
    except Exception:
        return False
    return True


def wanted(files: list[str]) -> list[str]:
    """Of a repository's files those that are used: one form of the weights of each folder (safetensors before torch's,
    the plain ones before variants in half precision), and of a pipeline not the same once more in one file."""
    kept = [f for f in files if not f.endswith(_USELESS) and not f.startswith(("onnx/", "openvino/", "flax/"))]
    weights = [f for f in kept if f.endswith(_WEIGHTS)]
    if "model_index.json" in kept:
        weights = [f for f in weights if "/" in f]
    best: dict[str, list[str]] = {}
    for file in weights:
        best.setdefault(str(PurePosixPath(file).parent), []).append(file)
    chosen = {file for here in best.values() for file in _one_form(here)}
    return [f for f in kept if not f.endswith(_WEIGHTS) or f in chosen]


def _one_form(files: list[str]) -> list[str]:
    for of_form in (lambda f: f.endswith(".safetensors"), lambda f: not re.search(r"\.(fp16|bf16|non_ema)[.-]", f)):
        files = [f for f in files if of_form(f)] or files
    return files


def _package(name: str):  # type: ignore[no-untyped-def]
    try:
        import huggingface_hub
    except ImportError:
        raise DataError(
            Text(
                f"{name!r} is no path here, and the Hub needs huggingface_hub",
                f"{name!r} 不是本地路径，而 Hub 需要 huggingface_hub",
            ),
            "pip install huggingface_hub",
        ) from None
    return huggingface_hub


def _not_had(name: str, error: Exception) -> DataError:
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return DataError(
        Text(
            f"{name!r} is no path here, and cannot be had from the Hub: {first}",
            f"{name!r} 不是本地路径，也无法从 Hub 获取：{first}",
        ),
        Text("check the name, the network, or give a local folder", "请检查名称与网络，或给出本地文件夹"),
    )
