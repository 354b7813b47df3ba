"""Further measures of a picture: the user's functions and pyiqa's metrics, tried once before they are believed."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import torch
from torch import Tensor

from anygrpo.core import user_code
from anygrpo.errors import ConfigError, suggestion
from anygrpo.gates.restoration.quality import Measure
from anygrpo.gates.restoration.settings import PerceptualConfig
from anygrpo.spoken import Text

log = logging.getLogger("anygrpo")
TRIAL = 256
"""Side of the pictures that a measure is tried on that is only reported; others are tried on some as large as crops."""
TOLERANCE = 1e-3
"""Parts of a number that a picture's may differ by, alone and beside others."""
WANTED = Text(
    "it must return [n]: one number for each picture of (restored [n, 3, H, W], clean [n, 3, H, W])",
    "它应返回 [n]：对 (restored [n, 3, H, W], clean [n, 3, H, W]) 的每张图像一个数",
)


def measure_of(config: PerceptualConfig, side: int) -> tuple[Measure, bool]:
    """The measure (higher is better), and whether papers report its negative.

    Raises:
        ConfigError: it is not there, or does not give one number for each picture.
    """
    if config.function is not None:
        measure, lower = partial(user_code.load(config.function), **config.arguments), False
    else:
        measure, lower = of_pyiqa(str(config.metric))
    _try(config, measure, side if config.weight else max(side, TRIAL))
    return partial(_measured, config, measure), lower


def _measured(config: PerceptualConfig, measure: Measure, restored: Tensor, clean: Tensor) -> Tensor:
    """[n]: a measure that passed the trial may still fail in the run, on other sizes, numbers or a GPU.

    Raises:
        ConfigError: it raises, or gives no number for each picture.
    """
    return _one_each(config, _called(config, measure, restored, clean), len(restored))


def _named(config: PerceptualConfig) -> Text:
    source = config.function or config.metric
    return Text(f"measure {config.name!r} ({source})", f"度量 {config.name!r}（{source}）")


def _called(config: PerceptualConfig, measure: Measure, restored: Tensor, clean: Tensor) -> Tensor:
    """What it returns, in whatever shape.

    Raises:
        ConfigError: it raises.
    """
    try:
        return torch.as_tensor(measure(restored, clean))
    except ConfigError:
        raise
    except Exception as error:
        name, fault = _named(config), user_code.describe(error)
        raise ConfigError(Text(f"{name.en} fails: {fault}", f"{name.zh}失败：{fault}"), WANTED) from error


def _one_each(config: PerceptualConfig, values: Tensor, n: int) -> Tensor:
    """The values of n pictures.

    Raises:
        ConfigError: they are not one for each.
    """
    if values.numel() != n or values.dim() > 2:
        name, found = _named(config), list(values.shape)
        raise ConfigError(
            Text(f"{name.en} returns shape {found} for {n} pictures", f"{name.zh}对 {n} 张图像返回形状 {found}"), WANTED
        )
    return values


def of_pyiqa(name: str) -> tuple[Measure, bool]:
    """A metric of pyiqa as a measure, and whether it is better when lower.

    Raises:
        ConfigError: pyiqa or the metric is not there, or its weights are not.
    """
    try:
        import pyiqa  # type: ignore[import-not-found]
    except Exception as error:  # a torchvision of another torch raises what it likes
        cure = Text(
            "pip install anygrpo[pyiqa]; where it is there, torchvision may be built for another torch",
            "pip install anygrpo[pyiqa]；若已安装，torchvision 可能与 torch 版本不符",
        )
        raise ConfigError(f"metric = {name!r}: {error}", cure) from error
    if name not in (known := pyiqa.list_models()):
        raise ConfigError(Text(f"pyiqa has no metric {name!r}", f"pyiqa 没有指标 {name!r}"), suggestion(name, known))
    try:
        metric: Any = pyiqa.create_metric(name)
    except Exception as error:
        cure = Text(
            "its weights are fetched once: make the network reachable, or put them into pyiqa's cache",
            "它的权重只下载一次：请连通网络，或把权重放入 pyiqa 的缓存",
        )
        raise ConfigError(
            Text(
                f"metric = {name!r} cannot be made: {user_code.describe(error)}",
                f"metric = {name!r} 无法构造：{user_code.describe(error)}",
            ),
            cure,
        ) from error
    sign = -1.0 if metric.lower_better else 1.0
    alone = metric.metric_mode == "NR"  # it looks at the restored picture only

    @torch.no_grad()
    def measure(restored: Tensor, clean: Tensor) -> Tensor:
        metric.to(restored.device)
        values = [metric(x[None]) if alone else metric(x[None], y[None]) for x, y in zip(restored, clean)]
        return sign * torch.stack([torch.as_tensor(v).reshape(()) for v in values]).to(restored.device)

    return measure, bool(metric.lower_better)


def _try(config: PerceptualConfig, measure: Measure, side: int) -> None:
    """On two pictures that differ, once together and once alone.

    Raises:
        ConfigError: it fails, or its numbers are not one for each picture.
    """
    y = torch.rand(1, 3, side, side, generator=torch.Generator().manual_seed(0)).expand(2, -1, -1, -1)
    x = torch.stack([0.9 * y[0] + 0.05, 0.6 * y[0] + 0.1])
    name, parts = _named(config), (slice(0, 2), slice(0, 1), slice(1, 2))
    both, first, last = [_called(config, measure, x[s], y[s]) for s in parts]
    _one_each(config, both, 2)
    if first.numel() != 1:
        raise ConfigError(
            Text(
                f"{name.en} returns {list(first.shape)} for 1 picture",
                f"{name.zh}对 1 张图像返回 {list(first.shape)}",
            ),
            WANTED,
        )
    if both.is_complex() or not bool(torch.isfinite(both.double()).all()):
        raise ConfigError(
            Text(
                f"{name.en} gives {both.flatten().tolist()} for two ordinary pictures",
                f"{name.zh}对两张普通图像给出 {both.flatten().tolist()}",
            ),
            Text("it must return a finite real number for each", "它应对每张图像返回一个有限的实数"),
        )
    alone = torch.cat([first.reshape(-1), last.reshape(-1)]).double()
    both = both.reshape(-1).double()
    if not torch.allclose(both, alone, rtol=TOLERANCE, atol=1e-6, equal_nan=True):
        numbers = f"{both.tolist()} together, {alone.tolist()} alone"
        raise ConfigError(
            Text(
                f"{name.en} gives a picture another number beside others: {numbers}",
                f"{name.zh}给同一张图像的数因同批的图像而异：{numbers}",
            ),
            Text(
                "take means over each picture, not over the batch: x.flatten(1).mean(1)",
                "请对每张图像取均值，而不是对整批：x.flatten(1).mean(1)",
            ),
        )
    if config.weight > 0 and config.function is not None and both[0] < both[1]:
        log.warning(
            "measure %r gives a nearly clean picture less (%.4g) than a duller one (%.4g): is its sign right?",
            config.name,
            *both.tolist(),
        )
