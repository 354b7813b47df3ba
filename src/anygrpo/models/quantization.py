"""Frozen weights held in 4 or 8 bits by bitsandbytes: what transformers is told, and what cannot be."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from torch import nn

from anygrpo.errors import DataError
from anygrpo.spoken import Text


def arguments(quantize: str, dtype: torch.dtype, device: str) -> dict[str, Any]:
    """What `from_pretrained` is given: quantised weights are made where they stay."""
    return {"quantization_config": _bits(quantize, dtype), "device_map": {"": device}}


def _bits(quantize: str, dtype: torch.dtype) -> Any:
    """Settings of bitsandbytes: 4-bit is nf4 with double quantisation.

    Raises:
        DataError: bitsandbytes is not there.
    """
    if importlib.util.find_spec("bitsandbytes") is None:
        raise DataError(
            Text(
                f"quantize = {quantize!r} needs the package bitsandbytes",
                f"quantize = {quantize!r} 需要 bitsandbytes 包",
            ),
            Text("pip install bitsandbytes, or none", "pip install bitsandbytes，或不用量化"),
        )
    from transformers import BitsAndBytesConfig

    if quantize == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )


def differentiable(model: nn.Module) -> None:
    """Keep 4-bit layers in the form that gradients pass: on a CPU with AVX512-BF16 bitsandbytes packs them at their
    first pass without gradient, and the packed product stops the gradient, with no more than a warning of torch."""
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False  # type: ignore[assignment]


def impossible(quantize: str, name: str, kind: str) -> DataError:
    """The error of what is no model's folder with weights; `kind` as `origin` says it ("plain": random weights)."""
    kinds = {"file": Text("a file of weights", "权重文件"), "plain": Text("a folder of random weights", "随机权重")}
    what = kinds.get(kind, Text("adapters or a run", "适配器或运行"))
    ways = "`anygrpo export RUN --format merged`, `save_pretrained`"
    return DataError(
        Text(
            f"quantize = {quantize!r}, and {name!r} is {what.en}",
            f"quantize = {quantize!r}，而 {name!r} 是{what.zh}",
        ),
        Text(
            f"set quantize = none, or write it as a model's folder first ({ways}) and name that",
            f"请设 quantize = none，或先把它写成模型文件夹（{ways}），再给出那个文件夹",
        ),
    )


def lacking(quantize: str, name: str, weights: list[str]) -> DataError:
    """The error of weights that are in no file under the names that transformers looks for."""
    what = f"{len(weights)} weights of {name!r} are not in its files ({', '.join(weights[:3])})"
    return DataError(
        f"quantize = {quantize!r}, and {what}",
        Text("load it without quantize and save_pretrained it", "请不用 quantize 加载，再用 save_pretrained 保存"),
    )
