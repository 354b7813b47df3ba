"""The weights of a language model in training: what is trained, what samples, what the reference is.

Trained weights are float32 whatever the matrix products use. Where the body is bfloat16 and the weights themselves are
trained (not adapters), a twin of the model holds bfloat16 casts, from which gradients arrive at the float32 weights; it
samples with the same casts. Adapters are merged for sampling into a twin's own copies, made anew from the untouched
base before each generation: nothing is ever merged into the base, so nothing drifts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.core.device import keep_freed_memory
from anygrpo.core.trained import frozen_weights
from anygrpo.errors import ConfigError
from anygrpo.language.adapters import Adapters, adapter_layers, merge, moved, target_of, with_adapters
from anygrpo.language.compute import attention
from anygrpo.language.compute.mirror import mirror, without_wrappers
from anygrpo.language.compute.narrow import Narrow
from anygrpo.language.compute.trial import Trial, check_causal
from anygrpo.language.proof import proved_adapters, proved_kernels, put_in
from anygrpo.language.settings import CausalLMConfig
from anygrpo.language.unfreezing import checkpoint_layers, outside, unfreeze
from anygrpo.spoken import Text


class Weights:
    """One model, its trainable part, and its copies.

    Attributes:
        module: what the optimizer and checkpoints see.
        dtype: of the matrix products.
        sampler: the model to generate with; brought up to date from `merged` by its engine.
        kernels: names of the functions put in place of the library's.
        notes: what was left to the library, and why.
    """

    def __init__(
        self,
        model: nn.Module,
        config: CausalLMConfig,
        dtype: torch.dtype,
        seed: int,
        reload: Callable[[], nn.Module],
        trial: Trial,
    ) -> None:
        self.dtype, self._reload = dtype, reload
        self.notes: list[str] = []
        self._frozen: dict[str, Tensor] | nn.Module | None = None
        self._stand_in: nn.Module | None = None
        self._separate = False
        self._lora = config.train == "lora"
        for p in model.parameters():
            p.requires_grad_(False)
        left_out = outside(model, config.vision.train) if config.vision else set()
        if self._lora:
            self.module, notes = with_adapters(_cast(model, dtype), config, seed, trial, left_out)
            self.notes += notes
            self._core = self.module.get_base_model()  # type: ignore[operator]
            self._adapters: Adapters | None = None
        else:
            self.module = self._core = model
            self._adapters = None
            unfreeze(model, config, left_out)
            for p in model.parameters():
                p.data = p.data.to(torch.float32 if p.requires_grad else dtype)
        mixed = not self._lora and dtype != torch.float32
        self._narrow = self._twin(dtype) if mixed else None
        if mixed and self._device.type == "cpu":
            keep_freed_memory()
        trained = self._narrow.model if self._narrow else self._core
        with moved(self.module):
            check_causal(self.training_model(), trial)
            if self._lora:
                self._adapters, notes = proved_adapters(self._core, trial)
                self.notes += notes
            self.kernels, notes = proved_kernels(self.training_model(), self.parameters(), trial)
            self.notes += notes
        self.sampler = self._sampler(trained) if self._lora or self._narrow else self._core
        for m in {id(m): m for m in (self._core, self.sampler) if m is not trained}.values():
            put_in(m, self.kernels)
        if config.gradient_checkpointing:
            checkpoint_layers(trained)

    def parameters(self) -> list[nn.Parameter]:
        """What is trained."""
        return [p for p in self.module.parameters() if p.requires_grad]

    @property
    def live(self) -> bool:
        """The sampler is the very model that is trained, adapters and all: nothing has to be brought up to date."""
        return self.sampler is (self._narrow.model if self._narrow else self._core)

    def sample_live(self) -> nn.Module:
        """From now on the sampler is the model that is trained."""
        self.sampler = self._narrow.model if self._narrow else self._core
        return self.sampler

    def _sampler(self, trained: nn.Module) -> nn.Module:
        try:
            return mirror(trained)
        except Exception as error:  # whatever a model does when it is made without memory
            self.notes.append(f"generation uses the trained model itself: a twin cannot be made ({_first(error)})")
            return trained

    def _twin(self, dtype: torch.dtype) -> Narrow | None:
        try:
            made = Narrow(self._core, dtype)
            with torch.no_grad():
                made.bind()(input_ids=torch.zeros(1, 2, dtype=torch.long, device=self._device), use_cache=False)
            return made
        except Exception as error:  # as above; or weights that its code casts itself
            self.notes.append(f"matrix products are float32: a twin in {dtype} does not run ({_first(error)})")
            self.dtype = torch.float32
            for p in self._core.parameters():
                p.data = p.data.float()
            return None

    def own_sampler(self) -> nn.Module:
        """From now on the sampler is a model object of its own, so that the weights may be cut into shards.

        Raises:
            ConfigError: casts of whole weights are part of the training pass.
        """
        if self._narrow is not None:
            raise ConfigError(
                Text(
                    f"policy.dtype = {self.dtype} casts whole weights in the training pass, which shards do not allow",
                    f"policy.dtype = {self.dtype} 在训练时转换整个权重，分片不允许这样",
                ),
                Text(
                    'set policy.dtype = "float32" and training.fsdp_dtype = "bfloat16"',
                    '请设 policy.dtype = "float32" 和 training.fsdp_dtype = "bfloat16"',
                ),
            )
        if self._adapters is not None:
            self._adapters.release()
            self._adapters = None
        if self.sampler is self._core:
            self.sampler = mirror(self._core)
            put_in(self.sampler, self.kernels)
        return self.sampler

    @property
    def config(self) -> Any:
        return self._core.config

    @property
    def base(self) -> Any:
        """The library's model, with adapters in it where there are any."""
        return self._core

    def training_model(self) -> nn.Module:
        """The model for a pass with gradients. In eval mode: nothing random is alive while scoring."""
        if self._stand_in is not None:
            return self._stand_in
        if self._adapters is not None:
            self._adapters.bind()
        return self._core if self._narrow is None else self._narrow.bind()

    def separate(self) -> None:
        """From the next `merged` on, a sampler keeps copies of its own, which updates do not reach."""
        self._separate = True

    @torch.no_grad()
    def merged(self) -> Iterator[tuple[str, Tensor]]:
        """(Hugging Face name, value) of every weight; adapters added in float32. Frozen weights are not copied, nor are
        casts of trained ones, up to date from here to the next change of the weights."""
        adapters = {target_of(name, layer): layer for name, layer in adapter_layers(self._core)}
        casts = self._casts()
        if self._adapters is not None:
            self._adapters.refresh()
        for name, p in self._core.named_parameters(remove_duplicate=False):
            plain = without_wrappers(name)
            if ".lora_" in name:
                continue
            if plain in adapters and plain != name:
                yield plain, merge(p, adapters[plain])
            else:
                yield plain, casts.get(name, p.detach())

    @torch.no_grad()
    def unrounded(self) -> Iterator[tuple[str, Tensor]]:
        """`merged` in float32: what is trained before any cast."""
        adapters = {target_of(name, layer): layer for name, layer in adapter_layers(self._core)}
        for name, p in self._core.named_parameters(remove_duplicate=False):
            plain = without_wrappers(name)
            if ".lora_" not in name:
                yield plain, merge(p, adapters[plain]) if plain in adapters and plain != name else p.detach().float()

    def _casts(self) -> dict[str, Tensor]:
        """Casts of the present weights (in `reference`, of its own), for a sampler that shares them."""
        if self._narrow is None:
            return {}
        if self._stand_in is not None:
            self._narrow.show(self._stand_in)
        elif self._separate:
            return {}
        else:
            self._narrow.refresh()
        return self._narrow.values()

    def another_sampler(self) -> nn.Module:
        """A further model to generate with; `copies` bring it up to date."""
        made = mirror(self.sampler)
        put_in(made, self.kernels)
        if getattr(self.sampler.config, "_attn_implementation", None) == attention.NAME:
            attention.install(made)
        return made

    @torch.no_grad()
    def copies(self) -> Iterator[tuple[str, Tensor]]:
        """`merged`, for a sampler that keeps its weights while these change: trained ones in memory of their own."""
        trained = {name for name, p in self._core.named_parameters(remove_duplicate=False) if p.requires_grad}
        for name, value in self.merged():
            yield name, value.clone() if name in trained else value

    def save_adapters(self, folder: Path) -> None:
        """The adapters alone, in PEFT's format."""
        self.module.save_pretrained(str(folder), save_embedding_layers=False)  # type: ignore[operator]

    @contextmanager
    def reference(self) -> Iterator[None]:
        """Inside, the model is the one training began from: adapters off, or its weights read again from the source."""
        if self._lora:
            with self.module.disable_adapter(), self._standing_in(self._core):  # type: ignore[operator]
                yield
            return
        if self._frozen is None:
            self._frozen = self._first_weights()
        if isinstance(self._frozen, nn.Module):
            with self._standing_in(self._frozen):
                yield
        else:
            with frozen_weights(self._core, self._frozen):
                yield

    @contextmanager
    def _standing_in(self, model: nn.Module) -> Iterator[None]:
        """`training_model` is `model`. What the policy's own is bound to stays: its graph may be computed again."""
        self._stand_in = model
        try:
            yield
        finally:
            self._stand_in = None

    def _first_weights(self) -> dict[str, Tensor] | nn.Module:
        """The trained weights as they were: in float32, or as a twin with casts of them."""
        names = {name for name, p in self._core.named_parameters() if p.requires_grad}
        source = {name: p.detach() for name, p in self._reload().named_parameters() if name in names}
        if self._narrow is None:
            return {name: p.to(self._device, torch.float32) for name, p in source.items()}
        twin = self._narrow.frozen(source)
        put_in(twin, self.kernels)
        return twin

    @property
    def _device(self) -> torch.device:
        return next(self._core.parameters()).device


def _cast(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    return model if getattr(model, "is_quantized", False) else model.to(dtype)


def _first(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:120]}"
