"""A PEFT adapter onto its base: every tensor of the file has its place, whatever a trainer put before the names."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from anygrpo.errors import DataError
from anygrpo.models import weights
from anygrpo.spoken import Text

_SIZES = re.compile(r"size mismatch for (\S+):.*?Size\(\[([\d, ]*)\]\).*?Size\(\[([\d, ]*)\]\)", re.S)


def with_adapter(base: nn.Module, folder: Path, name: str) -> Any:
    """PEFT's model of `base` with the adapter in `folder`.

    Args:
        name: of the base, for messages.

    Raises:
        DataError: it does not fit, has another rank than its config says, or is of a kind that cannot be merged.
    """
    import peft

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Found missing adapter keys")  # ours to judge
            warnings.simplefilter("ignore", FutureWarning)  # between peft and transformers
            adapted: Any = peft.PeftModel.from_pretrained(base, str(folder)).eval()
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise _unfit(folder, name, error) from None
    kind = next(iter(adapted.peft_config.values())).peft_type
    if not hasattr(adapted.base_model, "merge_and_unload"):
        kind = getattr(kind, "value", kind)
        what = Text(
            f"the adapter in {folder} is {kind}, which adds no weights to {name!r}",
            f"{folder} 中的适配器是 {kind}，不给 {name!r} 增加权重",
        )
        raise DataError(
            what,
            Text(
                "only adapters that can be merged into their base can be started from",
                "只能从可以并入基座模型的适配器开始",
            ),
        )
    _checked(adapted, folder, name)
    return adapted


def _checked(adapted: Any, folder: Path, name: str) -> None:
    """Load the file once more by name, and by mended names where PEFT found no place for all.

    Raises:
        DataError: an adapter weight that the file does not hold, or a tensor of the file without a place.
    """
    import peft

    found = weights.tables(weights.read(_file(folder)))
    best = max(found.values(), key=len, default={})
    missing, unexpected = _left(adapted, best)
    if not (missing or unexpected):
        return
    own = peft.get_peft_model_state_dict(adapted, save_embedding_layers=False)
    state, report = weights.matched(own, found, str(folder)) if found else ({}, None)
    if state and report is not None and report.fits:
        peft.set_peft_model_state_dict(adapted, state)
        return
    raise DataError(
        Text(
            f"the adapter in {folder} does not fit {name!r}: its file holds {len(best)} tensors, of {len(own)} that it "
            f"needs; missing {missing[:2]}, without a place {unexpected[:2]}",
            f"{folder} 中的适配器与 {name!r} 不符：它的文件有 {len(best)} 个张量，需要 {len(own)} 个；"
            f"缺少 {missing[:2]}，无处安放 {unexpected[:2]}",
        ),
        Text(
            "give the file that its trainer wrote for this base, or correct target_modules in its adapter_config.json",
            "请给出训练器为这个基座模型写出的文件，或改正 adapter_config.json 中的 target_modules",
        ),
    )


def _file(folder: Path) -> Path:
    """The file that PEFT loads, whatever else a trainer left beside it; the folder where it has another name."""
    from peft.utils import SAFETENSORS_WEIGHTS_NAME, WEIGHTS_NAME

    files = (folder / SAFETENSORS_WEIGHTS_NAME, folder / WEIGHTS_NAME)
    return next((file for file in files if file.is_file()), folder)


def _left(adapted: Any, state: dict[str, Tensor]) -> tuple[list[str], list[str]]:
    """Names of adapter weights that `state` lacks, and of tensors without a place."""
    import peft

    result = peft.set_peft_model_state_dict(adapted, dict(state))
    active = f".{adapted.active_adapter}"
    return [n for n in result.missing_keys if active in n], sorted(result.unexpected_keys)


def _unfit(folder: Path, name: str, error: Exception) -> DataError:
    """The error in one line; of shapes that differ, both."""
    if found := _SIZES.search(str(error)):
        key, there, here = found.groups()
        what = Text(
            f"{key} is [{there}] in the file, [{here}] by adapter_config.json and the base",
            f"{key} 在文件中是 [{there}]，按 adapter_config.json 与基座模型是 [{here}]",
        )
        cure = Text(
            "where the rank differs, set r (and lora_alpha) there to the file's; else it is another base's adapter",
            "若秩不同，请把那里的 r（和 lora_alpha）改为文件中的值；否则它属于另一个基座模型",
        )
        return DataError(
            Text(f"the adapter in {folder} does not fit {name!r}: ", f"{folder} 中的适配器与 {name!r} 不符：") + what,
            cure,
        )
    first = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    return DataError(
        Text(
            f"the adapter in {folder} does not fit {name!r}: {first}", f"{folder} 中的适配器与 {name!r} 不符：{first}"
        ),
        Text("see its base", "请检查它的基座模型"),
    )
