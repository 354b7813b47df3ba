"""Settings of a run from whatever holds them: a recipe, TRL arguments, verl's YAML, a shell line, a printed header."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any, cast

from anygrpo.doctor.log import number
from anygrpo.doctor.settings import ALIASES, SETTINGS, concept_of, concepts_of
from anygrpo.errors import DataError
from anygrpo.files import refuse_unending, toml_table
from anygrpo.spoken import Text

PAIR = re.compile(
    r"""(?:^|[\s,({\[+])(?:--)?['"]?([A-Za-z_][\w.\-]*)['"]?(?:\s*[=:]\s*|\s+)['"]?([^\s,'"(){}\[\]\\]+)""", re.M
)
UNSURE = ("lr", "epsilon", "temperature", "top_p", "floor", "advantage", "max_norm", "max_tokens", "max_epochs")
"""Names too common in printed text to be believed without their path."""


def read_settings(path: str | Path) -> dict[str, Any]:
    """concept -> value of a configuration file.

    Raises:
        DataError: no such file, or no setting recognised in it.
    """
    where = Path(path)
    try:
        text = where.read_text("utf-8", "replace")
    except OSError as error:
        raise DataError(
            Text(
                f"{path}: cannot be read ({error.strerror})",
                f"{path}：无法读取（{'没有这个文件' if isinstance(error, FileNotFoundError) else error.strerror}）",
            ),
            Text("give the file that holds the run's settings", "请给出写有训练设置的文件"),
        ) from None
    flat = parse(text, where.suffix)
    found = {k: v for k, v in concepts_of(flat).items() if k in ALIASES or k in SETTINGS} | of_our_recipe(flat)
    updates_a_rollout(found, flat)
    if not found:
        raise DataError(
            Text(f"{path}: no setting recognised", f"{path}：没有认出任何设置"),
            Text(
                "give a recipe, TRL arguments, verl YAML or the shell line",
                "请给出配方、TRL 参数、verl 的 YAML 或命令行",
            ),
        )
    return found


def updates_a_rollout(found: dict[str, Any], flat: dict[str, Any]) -> None:
    """TRL and ms-swift: a rollout lasts for steps_per_generation batches, of which gradient_accumulation_steps make an
    update; num_iterations passes over it. Where only one of the two is known, the number is not."""
    held, each = flat.get("steps_per_generation"), flat.get("gradient_accumulation_steps")
    passes = found.get("updates_per_batch")
    if "num_iterations" not in flat or not isinstance(passes, int) or held is None:
        return
    if isinstance(held, int) and isinstance(each, int) and each > 0:
        found["updates_per_batch"] = passes * max(1, held // each)
    else:
        del found["updates_per_batch"]


def of_our_recipe(flat: dict[str, Any]) -> dict[str, Any]:
    """What one of our recipes says about its updates a rollout: their number, and (with one) that they are on policy.

    Nothing where stages differ in it, or learn without ratios.
    """
    stages = cast(list[Any], flat.get("stages") or [{}])
    every = [_of_stage(flat, cast(dict[str, Any], stage)) for stage in stages if isinstance(stage, dict)]
    return every[0] if every and all(found == every[0] for found in every) else {}


def _of_stage(flat: dict[str, Any], stage: dict[str, Any]) -> dict[str, Any]:
    told = flat | {f"algorithm.{name}": value for name, value in dotted(stage.get("algorithm")).items()}
    passes, parts = told.get("algorithm.epochs"), told.get("algorithm.minibatches")
    if not isinstance(passes, int) or not isinstance(parts, int):
        return {}
    if "policy.kind" not in flat or stage.get("method", "grpo") != "grpo":
        return {}
    ahead = told.get("training.off_policy_steps") or told.get("training.max_staleness") or told.get("policy.reuse")
    drawn = stage.get("source", "policy") == "policy"
    same = drawn and not ahead and told.get("algorithm.importance", "none") == "none"
    objective = str(told.get("algorithm.objective", "ppo"))
    return {"updates_per_batch": passes * parts, "on_policy": same and passes * parts == 1, "objective": objective}


def parse(text: str, suffix: str) -> dict[str, Any]:
    """Flat dotted settings; by suffix where it tells, else by what parses."""
    if suffix == ".toml":
        try:
            return dotted(toml_table(text))
        except tomllib.TOMLDecodeError as error:
            raise DataError(
                Text(f"not valid TOML: {error}", f"不是有效的 TOML：{error}"), Text("mend the file", "请修正文件")
            ) from None
    if suffix == ".json" or text.lstrip().startswith("{"):
        try:
            return dotted(json.loads(text))
        except (ValueError, RecursionError):
            return pairs(text)
    if suffix in (".yaml", ".yml"):
        import yaml

        try:
            loaded: Any = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError) as error:
            raise DataError(
                Text(f"not valid YAML: {str(error)[:200]}", f"不是有效的 YAML：{str(error)[:200]}"),
                Text("mend the file", "请修正文件"),
            ) from None
        refuse_unending(loaded)
        return dotted(loaded)
    return pairs(text)


def dotted(tree: Any, prefix: str = "", depth: int = 32) -> dict[str, Any]:
    """Nested settings as one flat dict of dotted names.

    Raises:
        DataError: deeper than 32 levels, as YAML that refers to itself is.
    """
    out: dict[str, Any] = {}
    if not isinstance(tree, dict):
        return out
    if depth == 0:
        raise DataError(
            Text(f"settings nested over 32 deep at {prefix[:60]!r}", f"设置在 {prefix[:60]!r} 处嵌套超过 32 层"),
            Text("does the file refer to itself?", "文件是否引用了自己？"),
        )
    for key, value in cast(dict[Any, Any], tree).items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            out.update(dotted(value, f"{name}.", depth - 1))
        else:
            out[name] = plain(value)
    return out


def plain(value: Any) -> Any:
    """ "1e-6" is a string in YAML; here it is a number."""
    if isinstance(value, str):
        lower = value.strip().lower()
        if lower in ("true", "false"):
            return lower == "true"
        x = number(value)
        if x is None:
            return value
        return int(x) if x.is_integer() and "." not in value and "e" not in lower else x
    return value


def pairs(text: str) -> dict[str, Any]:
    """name=value, name: value and --name value, as in shell lines, scripts and printed dicts."""
    return {name: plain(value) for name, value in PAIR.findall(text.replace("\\\n", " "))}


def from_header(lines: list[str]) -> dict[str, Any]:
    """Settings printed at the head of a console log; only names that can mean nothing else."""
    found = pairs("\n".join(line for line in lines if len(line) < 300))
    sure = {k: v for k, v in found.items() if concept_of(k) and (k not in UNSURE) and isinstance(v, int | float)}
    return concepts_of(sure)
