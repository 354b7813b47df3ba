"""One call of a user's network: sizes padded and cut again, half precision, and the picture out of what it returns."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from anygrpo.errors import ConfigError, suggestion
from anygrpo.spoken import Text

LIKELY = 8
"""Multiple that a network with three levels needs."""


class Call:
    """`network(*rows)` as a float32 tensor [n, ...].

    Args:
        network: what is called.
        multiple: height and width are padded to a multiple of it (reflected), and the output is cut again.
        output: key or place of the picture in a dict, list or tuple that the network returns.
        dtype: "float32", or "bfloat16" for what autocast computes in it; weights stay as they are.
    """

    def __init__(
        self, network: nn.Module, multiple: int = 1, output: str | int | None = None, dtype: str = "float32"
    ) -> None:
        self.network, self.multiple, self.output, self.half = network, multiple, output, dtype == "bfloat16"

    def __call__(self, rows: Sequence[Tensor]) -> Tensor:
        """
        Raises:
            ConfigError: the output is no tensor, or the picture's size is one that the network does not take.
        """
        rows = [x.clone() for x in rows]  # a forward may write into what it is given
        size = rows[0].shape[-2:] if rows[0].dim() > 3 else None
        given = [self._padded(x, size) for x in rows]
        with torch.autocast(rows[0].device.type, torch.bfloat16, enabled=self.half):
            try:
                made = self.network(*given)
            except TypeError as error:
                self._expect_call(given, error)
                raise
            except RuntimeError as error:
                self._expect_type(error)
                if size is None or self.multiple > 1 or not any(side % LIKELY for side in size):
                    raise
                first = str(error).strip().splitlines()[0]
                raise ConfigError(
                    Text(
                        f"{type(self.network).__name__} fails on {size[0]} x {size[1]} pixels: {first}",
                        f"{type(self.network).__name__} 在 {size[0]} x {size[1]} 像素上失败：{first}",
                    ),
                    Text(
                        f"set policy.multiple = {LIKELY} if it halves sizes (pictures are padded, and cut again)",
                        f"若它把边长减半，请设 policy.multiple = {LIKELY}（图像先补齐，再裁回）",
                    ),
                ) from error
        x = self._picked(made)
        x = x if x.dtype in (torch.float32, torch.float64) else x.float()
        return x if size is None or given[0].shape == rows[0].shape else self._cut(x, size, given[0].shape[-2:])

    def _expect_call(self, given: Sequence[Tensor], error: TypeError) -> None:
        """Raises: ConfigError where forward does not take so many inputs."""
        name = type(self.network).__name__
        try:
            inspect.signature(self.network.forward).bind(*given)
        except TypeError as fault:
            raise ConfigError(
                Text(
                    f"{name}.forward cannot be called with {len(given)} inputs: {fault}",
                    f"{name}.forward 不能以 {len(given)} 个输入调用：{fault}",
                ),
                Text(
                    "policy.inputs names what forward is given, in order", "policy.inputs 依次列出 forward 得到的输入"
                ),
            ) from error

    def _expect_type(self, error: RuntimeError) -> None:
        """Raises: ConfigError where weights are of another type than the pictures."""
        types = {x.dtype for x in self.network.parameters() if x.is_floating_point()} - {torch.float32}
        if not types or not re.search(r"should be the same|same dtype|expected scalar type", str(error)):
            return
        name, kind = type(self.network).__name__, str(next(iter(types))).removeprefix("torch.")
        raise ConfigError(
            Text(f"weights of {name} are {kind}, pictures are float32", f"{name} 的权重为 {kind}，图像为 float32"),
            Text(
                "return network.float(); policy.dtype says what products are made in",
                "请返回 network.float()；乘积用何种精度由 policy.dtype 决定",
            ),
        ) from error

    def _padded(self, x: Tensor, size: torch.Size | None) -> Tensor:
        if size is None or x.dim() < 4 or x.shape[-2:] != size or self.multiple == 1:
            return x
        down, right = (-side % self.multiple for side in size)
        if not down and not right:
            return x
        kind = "reflect" if down < size[0] and right < size[1] else "replicate"
        return F.pad(x, (0, right, 0, down), mode=kind)

    def _picked(self, made: Any) -> Tensor:
        if self.output is not None and not isinstance(made, Tensor):
            made = self._part_of(made)
        if not isinstance(made, Tensor):
            raise ConfigError(
                Text(
                    f"{type(self.network).__name__} returns {_told(made)}, not one tensor",
                    f"{type(self.network).__name__} 返回 {_told(made)}，不是一个张量",
                ),
                Text(f"set policy.output; {_keys(made)}", f"请设置 policy.output；{_keys(made)}"),
            )
        return made

    def _part_of(self, made: Any) -> Any:
        """By key, place or attribute; "a.b" is b of a where nothing is called so.

        Raises:
            ConfigError: no such part.
        """
        whole = made
        for step in [self.output] if _has(made, self.output) else str(self.output).split("."):
            if not _has(made, step):
                raise ConfigError(
                    Text(
                        f"the network's output has no {self.output!r}: {_told(whole)}",
                        f"网络的输出没有 {self.output!r}：{_told(whole)}",
                    ),
                    _keys(made),
                )
            made = _part(made, step)
        return made

    @staticmethod
    def _cut(x: Tensor, size: torch.Size, padded: torch.Size) -> Tensor:
        if x.dim() < 4:
            return x
        return x[..., : size[0] * x.shape[-2] // padded[0], : size[1] * x.shape[-1] // padded[1]]


def prepared(network: nn.Module) -> nn.Module:
    """The network, which has all of its weights.

    Raises:
        ConfigError: it has weights without a shape yet.
    """
    if any(isinstance(p, UninitializedParameter | UninitializedBuffer) for p in network.state_dict().values()):
        name = type(network).__name__
        raise ConfigError(
            Text(f"{name} has weights that get their shape in the first call", f"{name} 有在首次调用时才定形的权重"),
            Text("call it once before you return it", "请在返回之前先调用一次"),
        )
    return network


def _part(made: Any, step: Any) -> Any:
    """`made[step]`, `made.step`, or of a list the place that a word of digits names."""
    if isinstance(made, Mapping):
        return made[step]
    if isinstance(step, str) and hasattr(made, step):
        return getattr(made, step)
    return made[int(step)]


def _has(made: Any, step: Any) -> bool:
    try:
        _part(made, step)
    except (KeyError, IndexError, TypeError, ValueError):
        return False
    return True


def _told(made: Any) -> str:
    shape = lambda x: str(list(x.shape)) if isinstance(x, Tensor) else type(x).__name__  # noqa: E731
    if isinstance(made, Mapping):
        return "a dict of " + ", ".join(f"{k}: {shape(x)}" for k, x in list(made.items())[:6])
    if fields := getattr(made, "__dataclass_fields__", None):
        return f"a {type(made).__name__} of " + ", ".join(f"{k}: {shape(getattr(made, k))}" for k in list(fields)[:6])
    if isinstance(made, Sequence):
        return f"a {type(made).__name__} of " + ", ".join(shape(x) for x in made[:6])
    return type(made).__name__


def _keys(made: Any) -> str:
    if isinstance(made, Mapping):
        return suggestion("", [str(k) for k in made])
    if names := getattr(made, "__dataclass_fields__", None) or getattr(made, "_fields", None):
        return suggestion("", list(names))
    return f"a place from 0 to {len(made) - 1}" if isinstance(made, Sequence) and len(made) else "return a tensor"
