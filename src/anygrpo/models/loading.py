"""Model and tokenizer from a Hub name, a folder, or "smollm2"; each failure one clear error."""

# pyright: reportAssignmentType=false, reportCallIssue=false

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from anygrpo.core import hub
from anygrpo.errors import AnygrpoError, DataError
from anygrpo.files import json_value
from anygrpo.models import quantization, weights
from anygrpo.models.origin import Origin, added, origin
from anygrpo.models.smollm2 import NAME, quiet, smollm2_path
from anygrpo.spoken import Text


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
        return hub.to_load(name)
    folder = Path(name).expanduser()
    if not (folder / "config.json").is_file():
        raise DataError(
            Text(f"model = {name!r}: no config.json in {folder}", f"model = {name!r}：{folder} 中没有 config.json"),
            Text("name a folder saved by save_pretrained", "请给出由 save_pretrained 保存的文件夹"),
        )
    return str(folder)


def named(name: str) -> str:
    """A model's name as others are told it: of the Hub as it stands, without its revision; else the whole path."""
    repository, _ = hub.split(name)
    return repository if name == "memory" or hub.is_name(name) else str(Path(resolve(name)).absolute())


def base_of(name: str) -> str:
    """What `from_pretrained` is given for the architecture: of an adapter or a run that of its base."""
    found = origin(name)
    if found.kind == "file":
        return resolve(found.base)
    return resolve(name) if found.kind == "plain" else base_of(found.base)


def load_tokenizer(name: str) -> Any:
    """The fast tokenizer of a model; of an adapter or a run the one that lies there, or its base's.

    Raises:
        DataError: not found, not readable, or without any end token.
    """
    from transformers import AutoTokenizer

    found = origin(name)
    if found.kind not in ("plain", "file") and not (found.folder / "tokenizer_config.json").is_file():
        return load_tokenizer(found.base)
    with _of_anybody("tokenizer", name):
        tokenizer = AutoTokenizer.from_pretrained(_beside(found, name))
    if tokenizer.eos_token_id is None:
        raise DataError(
            Text(f"the tokenizer of {name!r} has no end-of-sequence token", f"{name!r} 的分词器没有结束 token"),
            Text("set tokenizer.eos_token and save it", "请设置 tokenizer.eos_token 并保存"),
        )
    return tokenizer


def load_processor(name: str) -> Any:
    """The processor of a vision-language model: its tokenizer, chat template and way of reading pictures.

    Raises:
        DataError: not found, or of a model that sees no pictures.
    """
    from transformers import AutoProcessor

    found = origin(name)
    if found.kind not in ("plain", "file") and not (found.folder / "processor_config.json").is_file():
        return load_processor(found.base)
    with _of_anybody("processor", name), quiet():
        made: Any = AutoProcessor.from_pretrained(_beside(found, name))
    if getattr(made, "image_processor", None) is None:
        raise DataError(
            Text(f"model = {name!r} has no image processor", f"model = {name!r} 没有图像处理器"),
            Text("leave [policy.vision] out, or name a model that sees", "去掉 [policy.vision]，或给出视觉语言模型"),
        )
    return made


def kind_of_model(vision: bool) -> Any:
    """transformers' class that finds the class of a causal language model, or of one that sees."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    return AutoModelForImageTextToText if vision else AutoModelForCausalLM


@torch.random.fork_rng([])  # what a library draws on the way, and the file replaces, moves no numbers of the caller
def load_model(
    name: str,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    quantize: str = "none",
    vision: bool = False,
) -> nn.Module:
    """The causal language model in eval mode, all weights of one type.

    Args:
        name: see `origin`; an adapter is merged in float32 and cast once.
        quantize: "4bit" or "8bit": frozen weights held so by bitsandbytes; of a model's folder or Hub name alone.
        vision: a vision-language model, with what looks at pictures.

    Raises:
        DataError: not found, not a causal language model, quantised by a package that is not there, or to be quantised
            where only a model's folder can be.
    """
    found = origin(name)
    if quantize != "none" and (found.kind != "plain" or random_seed(name) is not None):
        raise quantization.impossible(quantize, name, found.kind)
    if found.kind == "file":
        return of_file(found.base, found.folder, vision).to(device=device, dtype=dtype).eval()
    if found.kind != "plain":
        base = load_model(found.base, torch.float32, device, vision=vision)
        return added(base, found).to(device=device, dtype=dtype).eval()
    if (seed := random_seed(name)) is not None:
        return random_model(resolve(name), dtype, device, seed, vision)
    return _of_transformers(name, dtype, device, quantize, vision)


def _of_transformers(name: str, dtype: torch.dtype, device: str, quantize: str, vision: bool) -> nn.Module:
    """`load_model` of a model's folder or Hub name.

    Raises:
        DataError: not found, or weights that are in none of its files.
    """
    extra = {} if quantize == "none" else quantization.arguments(quantize, dtype, device)
    with _of_anybody("model", name), quiet():
        said: Any = {"output_loading_info": True, **extra}
        model, told = kind_of_model(vision).from_pretrained(resolve(name), dtype=dtype, **said)
    lacking = sorted(told["missing_keys"])
    if getattr(model, "is_quantized", False):
        quantization.differentiable(model)
        if lacking and quantize != "none":
            raise quantization.lacking(quantize, name, lacking)
        return model.eval()
    if lacking:
        _mend(model, name, lacking, sorted(told["unexpected_keys"]))
    return model.to(device=device, dtype=dtype).eval()


def of_file(folder: str, file: Path, vision: bool = False) -> nn.Module:
    """The network of a folder's config.json, float32, with the weights of a file in any form, and the folder's
    generation_config.json, which may name further end tokens.

    Raises:
        DataError: they do not fit; the report says what is missing, unexpected or of another shape.
    """
    from transformers import AutoConfig, GenerationConfig
    from transformers.initialization import no_init_weights

    with _of_anybody("config", folder), quiet():
        with no_init_weights():  # every weight is the file's, or it is an error
            model = kind_of_model(vision).from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
        model.tie_weights()
        if (Path(folder) / "generation_config.json").is_file():
            model.generation_config = GenerationConfig.from_pretrained(folder)
    weights.fill(model, file)
    return model


def _mend(model: nn.Module, name: str, lacking: list[str], unexpected: list[str]) -> None:
    """Weights that transformers found no place for, and made at random: by their names without a trainer's prefixes.

    Raises:
        DataError: they are not in the files under any name.
    """
    place = Path(name).expanduser()
    if not place.is_dir():
        some = ", ".join(lacking[:3])
        raise DataError(
            Text(
                f"{len(lacking)} weights of {name!r} are in none of its files ({some}); without a place: "
                f"{unexpected[:3]}",
                f"{name!r} 的 {len(lacking)} 个权重不在它的任何文件中（{some}）；无处安放：{unexpected[:3]}",
            ),
            Text("name the model that these weights are of", "请给出这些权重所属的模型"),
        )
    weights.fill(model, place)


def random_seed(name: str) -> int | None:
    """The number `random_weights` in a model folder's config.json: such a folder holds no weights."""
    file = Path(name).expanduser() / "config.json"
    try:
        found = json_value(file.read_text(encoding="utf-8")) if file.is_file() else None
    except (OSError, ValueError):
        return None  # transformers says what is wrong with it
    seed = found.get("random_weights") if isinstance(found, dict) else None
    return seed if isinstance(seed, int) else None


def random_model(folder: str, dtype: torch.dtype, device: str, seed: int, vision: bool = False) -> nn.Module:
    """A model of the folder's config with random weights, made where it will compute: 7B on a GPU in seconds. What a
    seed gives depends on the device. For speed and memory, where nothing is learnt."""
    from transformers import AutoConfig

    gpus = [torch.device(device)] if device.startswith("cuda") else []
    with quiet(), torch.random.fork_rng(gpus), torch.device(device):
        torch.manual_seed(seed)
        return kind_of_model(vision).from_config(AutoConfig.from_pretrained(folder), dtype=dtype).eval()


def load(name: str, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Loaded:
    """Model and tokenizer together."""
    tokenizer = load_tokenizer(name)
    return Loaded(load_model(name, dtype, device), tokenizer, name)


def end_ids(model: nn.Module, tokenizer: Any, extra: tuple[str | int, ...] = ()) -> tuple[int, ...]:
    """Every end token: the tokenizer's, all of the model's configs, and `extra` given by text or id.

    Only the end tokens are read from the model's generation config; its temperature, top-k and so on are not ours.

    Raises:
        DataError: an extra end token that is not one token of the vocabulary, or one of the model's that is no number.
    """
    found: set[int] = {tokenizer.eos_token_id}
    for config in (getattr(model, "generation_config", None), getattr(model, "config", None)):
        value = getattr(config, "eos_token_id", None)
        values = list(value) if isinstance(value, (list, tuple)) else [value]
        if odd := [x for x in values if x is not None and not isinstance(x, int)]:
            raise DataError(
                Text(
                    f"eos_token_id = {odd[0]!r} of the model is no number", f"模型的 eos_token_id = {odd[0]!r} 不是数"
                ),
                Text("correct its config.json, generation_config.json", "请改正 config.json、generation_config.json"),
            )
        found |= {*values}
    for item in extra:
        token = item if isinstance(item, int) else tokenizer.convert_tokens_to_ids(item)
        size = len(tokenizer)
        if token is None or not 0 <= token < size or (isinstance(item, str) and token == tokenizer.unk_token_id):
            raise DataError(
                Text(
                    f"eos = {item!r} is not one token of this tokenizer ({size} tokens)",
                    f"eos = {item!r} 不是这个分词器的一个 token（共 {size} 个）",
                ),
                Text("use `stop` for texts", "文本请用 `stop`"),
            )
        found.add(token)
    return tuple(sorted(i for i in found if i is not None))


def context_length(model: nn.Module) -> int | None:
    """Positions the model was made for, prompt and completion together; None where it does not say."""
    whole: Any = model.config
    config = whole.get_text_config()
    return getattr(config, "max_position_embeddings", None)


@contextmanager
def _of_anybody(what: str, name: str) -> Iterator[None]:
    """Anybody's files inside: a library may fail at them in any way, and all of them are a DataError."""
    try:
        yield
    except (AnygrpoError, MemoryError):
        raise
    except Exception as error:
        raise _not_found(what, name, error) from None


def _beside(found: Origin, name: str) -> str:
    """Where the tokenizer and the processor of a model lie: of a run, an export or an adapter in its own folder."""
    places = {"plain": name, "file": found.base}
    return resolve(places[found.kind]) if found.kind in places else str(found.folder)


def _not_found(what: str, name: str, error: Exception) -> DataError:
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return DataError(
        Text(f"cannot load the {what} of {name!r}: {first}", f"无法载入 {name!r} 的 {what}：{first}"),
        Text("check the name, the network, or give a local folder", "请检查名称与网络，或给出本地文件夹"),
    )
