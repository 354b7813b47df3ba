"""One call of a user's network: sizes padded and cut again, half precision, and the picture out of what it returns."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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
        size = rows[0].shape[-2:] if rows[0].dim() > 3 else None
        given = [self._padded(x, size) for x in rows]
        with torch.autocast(rows[0].device.type, torch.bfloat16, enabled=self.half):
            try:
                made = self.network(*given)
            except TypeError as error:
                self._expect_call(given, error)
                raise
            except RuntimeError as error:
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

    def _padded(self, x: Tensor, size: torch.Size | None) -> Tensor:
        if size is None or x.dim() < 4 or x.shape[-2:] != size or self.multiple == 1:
            return x
        down, right = (-side % self.multiple for side in size)
        if not down and not right:
            return x
        kind = "reflect" if down < size[0] and right < size[1] else "replicate"
        return F.pad(x, (0, right, 0, down), mode=kind)

    def _picked(self, made: Any) -> Tensor:
        if self.output is not None and isinstance(made, (Mapping, Sequence)):
            try:
                made = cast("Any", made)[self.output]
            except (KeyError, IndexError, TypeError):
                raise ConfigError(
                    Text(
                        f"the network's output has no {self.output!r}: {_told(made)}",
                        f"网络的输出没有 {self.output!r}：{_told(made)}",
                    ),
                    _keys(made),
                ) from None
        if not isinstance(made, Tensor):
            raise ConfigError(
                Text(
                    f"{type(self.network).__name__} returns {_told(made)}, not one tensor",
                    f"{type(self.network).__name__} 返回 {_told(made)}，不是一个张量",
                ),
                Text(f"set policy.output; {_keys(made)}", f"请设置 policy.output；{_keys(made)}"),
            )
        return made

    @staticmethod
    def _cut(x: Tensor, size: torch.Size, padded: torch.Size) -> Tensor:
        if x.dim() < 4:
            return x
        return x[..., : size[0] * x.shape[-2] // padded[0], : size[1] * x.shape[-1] // padded[1]]


def _told(made: Any) -> str:
    shape = lambda x: str(list(x.shape)) if isinstance(x, Tensor) else type(x).__name__  # noqa: E731
    if isinstance(made, Mapping):
        return "a dict of " + ", ".join(f"{k}: {shape(x)}" for k, x in list(made.items())[:6])
    if isinstance(made, Sequence):
        return f"a {type(made).__name__} of " + ", ".join(shape(x) for x in made[:6])
    return type(made).__name__


def _keys(made: Any) -> str:
    if isinstance(made, Mapping):
        return suggestion("", [str(k) for k in made])
    return f"a place from 0 to {len(made) - 1}" if isinstance(made, Sequence) and len(made) else "return a tensor"
