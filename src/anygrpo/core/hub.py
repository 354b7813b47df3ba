"""A name of the Hugging Face Hub, "owner/name" or "owner/name@revision": its files on this disk.

They lie in the Hub's own cache: what was had once is there without a network too.
"""

from __future__ import annotations

import os
import re
import sys
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from anygrpo.errors import DataError
from anygrpo.spoken import Text

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w./-]+)?")
_TORCH = (".bin", ".pt", ".pth", ".ckpt")
_WEIGHTS = (".safetensors", *_TORCH)
_PATIENCE = 10.0
"""Seconds that the Hub has for a first answer."""
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
        there = hub.HfApi().model_info(repository, revision=revision, files_metadata=True, timeout=_PATIENCE)
        files = wanted([f.rfilename for f in there.siblings])
        _announce(hub, name, there, files)
        return Path(hub.snapshot_download(repository, revision=revision, allow_patterns=files))
    except Exception as error:  # a dozen kinds: no network, offline, no such name, a gate
        try:
            return _kept(hub, repository, revision)
        except Exception:
            raise _not_had(name, error) from None


def _kept(hub: Any, repository: str, revision: str | None) -> Path:
    """The folder of what was had before; the package itself asks that no file be missing, so it is told which ones
    were left out on purpose."""
    files = None
    if hasattr(hub, "get_cached_repo_tree"):  # older ones ask nothing
        try:
            files = wanted([f.path for f in hub.get_cached_repo_tree(repository, revision=revision)])
        except hub.errors.CachedRepoTreeNotFoundError:  # had file by file, or by an older package
            files = None
    return Path(hub.snapshot_download(repository, revision=revision, allow_patterns=files, local_files_only=True))


def _announce(hub: Any, name: str, there: Any, files: list[str]) -> None:
    """One line before a download: how much it is. Of the processes of a machine one says it."""
    sizes = {f.rfilename: f.size or 0 for f in there.siblings}
    new = [f for f in files if not isinstance(hub.try_to_load_from_cache(there.id, f, revision=there.sha), str)]
    if not new or os.environ.get("LOCAL_RANK", "0") != "0":
        return
    size, cache = sum(sizes[f] for f in new) / 1e9, hub.constants.HF_HUB_CACHE
    line = Text(
        f"{name}: {len(new)} file{'s' * (len(new) > 1)} of the Hub, {size:.2f} GB, go to {cache}",
        f"{name}：正从 Hub 下载 {len(new)} 个文件，共 {size:.2f} GB，存到 {cache}",
    )
    print(line.said(), file=sys.stderr, flush=True)


@lru_cache
def to_load(name: str) -> str:
    """What a library's `from_pretrained` is given: a name as it stands, or the folder in the Hub's cache where the Hub
    does not answer (its package would ask again and again, half a minute a file) or a revision is named.

    Raises:
        DataError: the Hub does not answer, and nothing was had before.
    """
    if not is_name(name):
        return name
    if split(name)[1]:
        return str(folder(name))
    error, hub = _silence(name), _package(name)
    if error is None:
        return name
    try:
        return str(_kept(hub, *split(name)))
    except Exception:
        raise _not_had(name, error) from None


@lru_cache
def _silence(name: str) -> Exception | None:
    """Why the Hub cannot be asked about a repository; None where it answers, if only to refuse. One question, once."""
    hub, (repository, revision) = _package(name), split(name)
    try:
        hub.HfApi().model_info(repository, revision=revision, timeout=_PATIENCE)
    except hub.errors.HfHubHTTPError as error:
        ill = error.response is not None and error.response.status_code >= 500
        return error if ill else None
    except Exception as error:  # a dozen kinds: no network, offline, no answer in time
        return error
    return None


@lru_cache
def holds(name: str, file: str) -> bool:
    """Whether a repository holds a file; False where that cannot be known."""
    hub, (repository, revision) = _package(name), split(name)
    known = hub.try_to_load_from_cache(repository, file, revision=revision)
    if known is not None:  # a path, or the mark of a file that the repository does not have: no network is asked
        return isinstance(known, str)
    if _silence(name) is not None:
        return False
    try:
        hub.hf_hub_download(repository, file, revision=revision)
    except Exception:
        return False
    return True


def wanted(files: list[str]) -> list[str]:
    """Of a repository's files those that are used: one form of the weights of each folder (safetensors before torch's,
    the plain ones before variants in half precision), and of a pipeline or a model not the same once more in one file
    or in its maker's own layout."""
    kept = [f for f in files if not f.endswith(_USELESS) and not f.startswith(("onnx/", "openvino/", "flax/"))]
    if "config.json" in kept and any("/" not in f and f.endswith(".safetensors") for f in kept):
        twice = ("original/", "metal/")
        if any(f.startswith("model") and f.endswith(".safetensors") for f in kept):
            twice = (*twice, "consolidated")
        kept = [f for f in kept if not f.startswith(twice)]
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


def _package(name: str):
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
    why = " ".join(str(error).split())[:300] or type(error).__name__
    what = Text(
        f"{name!r} is no path here, and cannot be had from the Hub: {why}",
        f"{name!r} 不是本地路径，也无法从 Hub 获取：{why}",
    )
    if type(error).__name__ == "GatedRepoError":
        return DataError(
            what,
            Text("accept its terms on its page, then `hf auth login`", "请在其页面上接受条款，再运行 `hf auth login`"),
        )
    return DataError(
        what, Text("check the name, the network, or give a local folder", "请检查名称与网络，或给出本地文件夹")
    )
