"""Model and tokenizer from a Hub name, a folder, or "smollm2"; each failure one clear error."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from anygrpo.errors import DataError
from anygrpo.models.smollm2 import NAME, quiet, smollm2_path


@dataclass(frozen=True)
class Loaded:
    """A model in eval mode, its tokenizer, and what to call it in messages."""

    model: nn.Module
    tokenizer: Any
    source: str


def resolve(name: str) -> str:
    """What `from_pretrained` is given for a recipe's `model`."""
    if name == NAME:
        return str(smollm2_path())
    looks_local = name.startswith((".", "/", "~")) or Path(name).exists()
    if not looks_local:
        return name
    folder = Path(name).expanduser()
    if not (folder / "config.json").is_file():
        raise DataError(f"model = {name!r}: no config.json in {folder}", "name a folder saved by save_pretrained")
    return str(folder)


def load_tokenizer(name: str) -> Any:
    """The fast tokenizer of a model.

    Raises:
        DataError: not found, not readable, or without any end token.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(resolve(name))
    except (OSError, ValueError) as error:
        raise _not_found("tokenizer", name, error) from None
    if tokenizer.eos_token_id is None:
        raise DataError(
            f"the tokenizer of {name!r} has no end-of-sequence token", "set tokenizer.eos_token and save it"
        )
    return tokenizer


def load_model(name: str, dtype: torch.dtype = torch.float32, device: str = "cpu") -> nn.Module:
    """The causal language model in eval mode, all weights of one type, its own sampling defaults forgotten.

    Raises:
        DataError: not found, or not a causal language model.
    """
    from transformers import AutoModelForCausalLM

    try:
        with quiet():
            model = AutoModelForCausalLM.from_pretrained(resolve(name), dtype=dtype)
    except (OSError, ValueError) as error:
        raise _not_found("model", name, error) from None
    return model.to(device=device, dtype=dtype).eval()


def load(name: str, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Loaded:
    """Model and tokenizer together."""
    tokenizer = load_tokenizer(name)
    return Loaded(load_model(name, dtype, device), tokenizer, name)


def end_ids(model: nn.Module, tokenizer: Any, extra: tuple[str | int, ...] = ()) -> tuple[int, ...]:
    """Every end token: the tokenizer's, all of the model's configs, and `extra` given by text or id.

    Only the end tokens are read from the model's generation config; its temperature, top-k and so on are not ours.

    Raises:
        DataError: an extra end token that is not one token of the vocabulary.
    """
    found: set[int] = {tokenizer.eos_token_id}
    for config in (getattr(model, "generation_config", None), getattr(model, "config", None)):
        value = getattr(config, "eos_token_id", None)
        found |= set(value) if isinstance(value, (list, tuple)) else {value}
    for item in extra:
        token = item if isinstance(item, int) else tokenizer.convert_tokens_to_ids(item)
        size = len(tokenizer)
        if token is None or not 0 <= token < size or (isinstance(item, str) and token == tokenizer.unk_token_id):
            raise DataError(
                f"eos = {item!r} is not one token of this tokenizer ({size} tokens)", "use `stop` for texts"
            )
        found.add(token)
    return tuple(sorted(i for i in found if i is not None))


def context_length(model: nn.Module) -> int | None:
    """Positions the model was made for, prompt and completion together; None where it does not say."""
    config = model.config.get_text_config()  # type: ignore[union-attr, operator]
    return getattr(config, "max_position_embeddings", None)


def _not_found(what: str, name: str, error: Exception) -> DataError:
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return DataError(
        f"cannot load the {what} of {name!r}: {first}", "check the name, the network, or give a local folder"
    )
