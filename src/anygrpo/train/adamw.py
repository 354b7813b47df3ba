"""AdamW with moments in float32 (torch's), or in 8 bits each (bitsandbytes')."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.errors import ConfigError, DataError
from anygrpo.recipe.training import OptimizerConfig
from anygrpo.spoken import Text

_TABLES = {"qmap1": "dynamic", "qmap2": "udynamic"}
"""What 8 bits stand for: the same for all weights, so no checkpoint holds them."""
_BLOCK = 256
"""Values that share one scale in bitsandbytes' 8-bit moments."""


def adamw(groups: list[list[nn.Parameter]], config: OptimizerConfig, sharded: bool) -> torch.optim.Optimizer:
    """The optimizer of these groups of weights, all on one device; its rate is set at each step.

    Raises:
        ConfigError: 8 bits where they cannot be had, with the reason; a step on that device is tried.
    """
    given = [{"params": group} for group in groups if group]
    kept = {"lr": 1.0, "betas": config.betas, "eps": config.eps, "weight_decay": config.weight_decay}
    device = given[0]["params"][0].device
    if config.moments == "8bit":
        made = _eight_bits(device, sharded)
        return made(given, **kept)
    # One pass over the weights (135M on two cores: .08 s for .38); no roots of the second moments held at its peak.
    fused = True if device.type in ("cpu", "cuda") and not sharded else None
    return torch.optim.AdamW(given, fused=fused, **kept)


def _eight_bits(device: torch.device, sharded: bool) -> Any:
    """bitsandbytes' class, after one step of it on that device."""
    if sharded:
        raise _refused(Text('training.parallel = "fsdp" cuts weights', 'training.parallel = "fsdp" 会切分权重'))
    if importlib.util.find_spec("bitsandbytes") is None:
        raise _refused(Text("the package bitsandbytes is not here", "没有安装 bitsandbytes 包"))
    try:
        from bitsandbytes.optim import AdamW8bit  # type: ignore[import-not-found]

        trial = nn.Parameter(torch.ones(4096, device=device))
        trial.grad = torch.ones_like(trial)
        AdamW8bit([trial], lr=0.5).step()
        moved = trial.detach().cpu()
    except Exception as error:
        text = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise _refused(
            Text(f"bitsandbytes fails on {device}: {text}", f"bitsandbytes 在 {device} 上失败：{text}")
        ) from None
    if not bool(((moved - 0.5).abs() < 0.02).all()):  # Adam's first step is the rate itself
        raise _refused(Text(f"its step on {device} is wrong", f"它在 {device} 上的更新不对"))
    return AdamW8bit


def _refused(why: Text) -> ConfigError:
    return ConfigError(
        Text(f'optimizer.moments = "8bit", and {why.en}', f'optimizer.moments = "8bit"，而{why.zh}'),
        Text(
            'set optimizer.moments = "float32", or pip install bitsandbytes where it runs (docs/language.md)',
            '请设 optimizer.moments = "float32"，或在 bitsandbytes 能运行的机器上安装它（docs/language.md）',
        ),
    )


def moments_of(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> dict[str, Tensor]:
    """What a checkpoint keeps of one weight's state."""
    held = optimizer.state.get(parameter, {})
    return {k: x if isinstance(x, Tensor) else torch.tensor(x) for k, x in held.items() if k not in _TABLES}


def put_back(optimizer: torch.optim.Optimizer, parameter: nn.Parameter, moments: Mapping[str, Tensor]) -> None:
    """Continue from kept moments, on the weight's device.

    Raises:
        DataError: they are of the other kind, one is missing, or one is of another shape than the weight's (a fused
            step reads and writes past its end, which ends the process).
    """
    tables = getattr(optimizer, "name2qmap", None)
    if (tables is None) != ("exp_avg" in moments):
        kinds = ("8bit", "float32") if tables is None else ("float32", "8bit")
        raise DataError(
            Text(
                f'the checkpoint\'s moments are {kinds[0]}, and optimizer.moments = "{kinds[1]}"',
                f'检查点的动量是 {kinds[0]}，而 optimizer.moments = "{kinds[1]}"',
            ),
            Text(f'resume with optimizer.moments = "{kinds[0]}"', f'请用 optimizer.moments = "{kinds[0]}" 继续'),
        )
    _check(parameter, moments, tables is not None)
    place: dict[str, Any] = dict(moments)
    if tables is None and optimizer.defaults.get("fused"):
        place["step"] = moments["step"].to(parameter.device)  # a fused step counts where the weight is
    if tables is not None:
        place["step"] = int(moments["step"])
        if moments["state1"].dtype == torch.uint8:
            place |= {name: tables[kind].to(parameter.device) for name, kind in _TABLES.items()}
    optimizer.state[parameter] = place


def _check(parameter: nn.Parameter, moments: Mapping[str, Tensor], small: bool) -> None:
    """DataError unless each moment is there and laid out as this weight's."""
    shape = tuple(parameter.shape)
    wanted: dict[str, tuple[int, ...]] = {"step": ()}
    wanted |= dict.fromkeys(("state1", "state2") if small else ("exp_avg", "exp_avg_sq"), shape)
    if small and any(x.dtype == torch.uint8 for x in moments.values()):
        wanted |= dict.fromkeys(("absmax1", "absmax2"), (-(-parameter.numel() // _BLOCK),))
    for name, size in wanted.items():
        found = tuple(moments[name].shape) if name in moments else None
        if found == size or (name == "step" and found == (1,)):
            continue
        en, zh = (f"has shape {found}, not {size}", f"的形状为 {found}，而不是 {size}")
        if found is None:
            en, zh = "is not there", "不存在"
        raise DataError(
            Text(
                f"the checkpoint's moment {name} of a weight of shape {shape} {en}",
                f"检查点中形状为 {shape} 的权重，其动量 {name} {zh}",
            ),
            Text(
                "the file is damaged or of another model: resume from another checkpoint of this run",
                "文件已损坏，或属于另一个模型：请从本运行的另一个检查点继续",
            ),
        )
