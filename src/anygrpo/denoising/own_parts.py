"""Parts that a user's function made, held to what `Parts` says: looked at when they are made, and at every call."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any, NoReturn

from torch import Tensor, nn

from anygrpo.core.border import a_kind
from anygrpo.denoising.denoiser import Condition
from anygrpo.denoising.parts import Parts
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text


def held(name: str, parts: Parts) -> Parts:
    """The parts that the user's function `name` returned, whose calls are checked.

    Raises:
        ConfigError: a part of another kind; later, at a call: a result of another kind or shape. Both name the part.
    """
    if not isinstance(parts.denoiser, nn.Module):
        _wrong(f"{name}: Parts.denoiser", a_kind(parts.denoiser), Text("a torch.nn.Module", "torch.nn.Module"))
    shape = parts.shape
    if not isinstance(shape, (tuple, list)) or not all(isinstance(n, int) and n > 0 for n in shape):
        _wrong(
            f"{name}: Parts.shape",
            repr(shape),
            Text("a tuple of whole numbers: one latent's shape", "整数的元组：一个潜变量的形状"),
        )
    for part in ("encode", "decode"):
        if not callable(found := getattr(parts, part)):
            _wrong(f"{name}: Parts.{part}", a_kind(found), Text("a function", "函数"))
    parts.denoiser.register_forward_pre_hook(_called, with_kwargs=True)
    parts.denoiser.register_forward_hook(_answered)
    return replace(parts, shape=tuple(shape), encode=_Encode(name, parts.encode), decode=_Decode(name, parts.decode))


class _Encode:
    def __init__(self, name: str, function: Any) -> None:
        self.name, self.function = f"{name}: Parts.encode", function

    def __call__(self, prompts: list[Any]) -> Condition:
        made, n = self.function(prompts), len(prompts)
        wanted = Text(f"a dict of tensors [{n}, ...], a row a prompt", f"张量 [{n}, ...] 的字典，每个提示一行")
        if not isinstance(made, dict):
            _wrong(self.name, a_kind(made), wanted)
        for key, x in made.items():
            if not isinstance(x, Tensor) or not x.dim() or len(x) != n:
                found = list(x.shape) if isinstance(x, Tensor) else a_kind(x).said()
                _wrong(self.name, Text(f"{key!r} as {found}", f"{key!r} 为 {found}"), wanted)
        return made


class _Decode:
    def __init__(self, name: str, function: Any) -> None:
        self.name, self.function = f"{name}: Parts.decode", function

    def __call__(self, latents: Tensor, condition: Condition) -> list[Any]:
        made, n = self.function(latents, condition), len(latents)
        if not hasattr(made, "__len__") or len(made) != n:
            found = Text(f"{len(made)} outputs", f"{len(made)} 个输出") if hasattr(made, "__len__") else a_kind(made)
            _wrong(self.name, found, Text(f"{n} outputs, one a latent", f"{n} 个输出，每个潜变量一个"))
        return made


def _called(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    try:
        inspect.signature(module.forward).bind(*args, **kwargs)
    except TypeError as error:
        name = f"{type(module).__name__}.forward"
        call = ", ".join(["x", "timestep", *kwargs])
        raise ConfigError(
            Text(f"{name} cannot be called as ({call}): {error}", f"{name} 不能以 ({call}) 调用：{error}"),
            Text("it takes what Parts.encode gives, by name", "它按名称接受 Parts.encode 给出的内容"),
        ) from None


def _answered(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
    name, wanted = f"{type(module).__name__}.forward", list(args[0].shape) if args else []
    if not isinstance(output, Tensor):
        _wrong(name, a_kind(output), Text(f"a tensor {wanted}, as x", f"张量 {wanted}，与 x 相同"))
    if args and output.shape != args[0].shape:
        _wrong(name, list(output.shape), Text(f"{wanted}, as x", f"{wanted}，与 x 相同"))


def _wrong(place: str, found: object, wanted: Text) -> NoReturn:
    found, wanted_ = found.said() if isinstance(found, Text) else found, wanted.said()
    raise ConfigError(
        Text(f"{place} gave {found}", f"{place} 给出了 {found}"), Text(f"it has to be {wanted_}", f"应当是 {wanted_}")
    )
