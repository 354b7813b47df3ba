"""From `[[task.rewards]]` to rewards. Whatever cannot work is refused here, before the first step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from anygrpo.core import user_code as python_file
from anygrpo.errors import ConfigError, suggestion
from anygrpo.scoring import builtin, signatures
from anygrpo.scoring.reward import Inline, Remote, Reward
from anygrpo.scoring.settings import (
    CodeRewardConfig,
    FunctionRewardConfig,
    JudgeRewardConfig,
    RegexRewardConfig,
    RewardModelRewardConfig,
)
from anygrpo.scoring.workers import LoadFailure, Pool, WorkerFailure

JUDGES = {"number", "exact", "math_verify", "code"}
"""Kinds whose full marks mean a correct answer."""


def build_rewards(configs: Iterable[Any], pool: Pool, columns: set[str]) -> list[Reward]:
    """The rewards of a recipe, in order. `columns` are the data's columns beside the prompt.

    Raises:
        ConfigError: a column or function that does not exist, two rewards of one name, no working sandbox.
        DataError: no such file.
    """
    rewards: list[Reward] = []
    for config in configs:
        default = config.function.rpartition(":")[2] if config.kind == "function" else config.kind
        name = config.name or default
        if any(name == other.name for other in rewards):
            raise ConfigError(f"two rewards are called {name!r}", "give one of them another name")
        if (column := getattr(config, "column", None)) is not None and column not in columns:
            raise ConfigError(
                f"the {config.kind} reward reads column {column!r}, which the data lack; {suggestion(column, columns)}",
                "set the reward's column",
            )
        rewards.append(BUILDERS[config.kind](config, name, pool, columns))
    return rewards


def check_value(config: Any, value: Any, row: dict[str, Any] | None = None) -> str | None:
    """Why a reward could never give a verdict with `value` in its column, or None. For data that is read once.

    Args:
        row: the other columns too, for rewards that read several.
    """
    if value is None:
        return f"no {config.column!r}, which the {config.kind} reward reads"
    if config.kind == "number" and builtin.last_number(str(value)) is None:
        return f"{config.column} = {str(value)[:60]!r} holds no number"
    if config.kind == "code":
        from anygrpo.scoring.code import tests_of

        try:
            columns = (row or {}) | {config.column: value}
            tests_of(columns, config.column, config.entry_point, columns.get("prompt"))
        except (ValueError, TypeError) as error:
            return f"{config.column}: {error}"
    return None


def _inline(function: Callable[..., Any]) -> Callable[..., Reward]:
    def build(config: Any, name: str, pool: Pool, columns: set[str]) -> Reward:
        settings = config.model_dump(exclude={"kind", "name", "weight", "column"})
        read = {"answer": config.column} if hasattr(config, "column") else {}
        bounds = {"repetition": (-1.0, 0.0), "environment": None}.get(config.kind, (0.0, 1.0))
        return Inline(name, config.weight, config.kind in JUDGES, function, settings, read, bounds)

    return build


def _regex(config: RegexRewardConfig, name: str, pool: Pool, columns: set[str]) -> Reward:
    settings = {"pattern": config.pattern, "full": config.full}
    target = "anygrpo.scoring.builtin:regex"
    return Remote(name, config.weight, False, target, pool, config.timeout, settings, bounds=(0.0, 1.0))


def _math_verify(config: Any, name: str, pool: Pool, columns: set[str]) -> Reward:
    target = "anygrpo.scoring.mathematics:math_verify"
    read = {"answer": config.column}
    return Remote(name, config.weight, True, target, pool, config.timeout, columns=read, split=True, bounds=(0.0, 1.0))


def _code(config: CodeRewardConfig, name: str, pool: Pool, columns: set[str]) -> Reward:
    from anygrpo.scoring.code import Code

    return Code.build(config, name)


def _function(config: FunctionRewardConfig, name: str, pool: Pool, columns: set[str]) -> Reward:
    python_file.check(config.function)
    try:
        signature = pool.inspect(config.function)
    except LoadFailure as failure:
        if failure.missing:
            raise python_file.missing(config.function, failure.missing, failure.known) from None
        raise ConfigError(f"loading {config.function} failed: {failure.reason}", "mend the file") from None
    form = config.signature if config.signature != "auto" else signature["form"]
    _check_signature(config, signature, form, columns)
    return Remote(
        name,
        config.weight,
        False,
        config.function,
        pool,
        config.timeout,
        dict(config.arguments),
        {column: column for column in columns},
        retry_alone=config.retry_alone,
        form=form,
        splits=signature["splits"],
        bounds=config.bounds,
    )


def _check_signature(
    config: FunctionRewardConfig, signature: dict[str, Any], form: str | None, columns: set[str]
) -> None:
    """Raises: ConfigError where the function could not be called with these columns."""
    if form is None:
        wanted = "; ".join(f"{name}: {', '.join(names)}" for name, names in signatures.OWN_NAMES.items())
        lacking = " does not take 'outputs';" if "prompts" in signature["parameters"] else ""
        raise ConfigError(
            f"{config.function}{lacking} has parameters {signature['parameters']}, of no form that is known ({wanted})",
            "define it as function(prompts, outputs, **columns)",
        )
    given = set(signatures.OWN_NAMES[form]) | columns | set(config.arguments)
    if lacking := [p for p in signature["needed"] if p not in given]:
        raise ConfigError(
            f"{config.function} wants {lacking[0]!r}, which is neither a column "
            f"({', '.join(sorted(columns)) or 'none'}) nor one of its settings",
            f"a reward of this form is given {', '.join(signatures.OWN_NAMES[form])} and the columns",
        )
    if form == "verl" and not columns & {"ground_truth", "reward_model", "answer"}:
        raise ConfigError(
            f"{config.function} wants a ground truth, and the data have no column ground_truth, reward_model or answer",
            "name a column so",
        )
    if both := columns & set(config.arguments):
        raise ConfigError(f"{config.function}: argument {sorted(both)[0]!r} is also a column", "rename the argument")


def _judge(config: JudgeRewardConfig, name: str, pool: Pool, columns: set[str]) -> Reward:
    from anygrpo.scoring.judge import Judge

    return Judge.build(config, name, columns)


def _reward_model(config: RewardModelRewardConfig, name: str, pool: Pool, columns: set[str]) -> Reward:
    """Loaded here and now, so that a model that cannot be is an error before the first step."""
    own = Pool(1, memory_mb=0, calls=0)
    settings = config.model_dump(include={"model", "device", "dtype", "batch_size", "max_length"})
    target = "anygrpo.scoring.reward_model:score"
    try:
        own.submit(target, {"prompts": [], "outputs": [], **settings}, 0, config.load_timeout).result()
    except WorkerFailure as failure:
        own.close()
        raise ConfigError(f"the reward model {config.model} cannot be loaded: {failure.reason}", "correct it") from None
    return Remote(name, config.weight, False, target, own, config.timeout, settings, retry_alone=False, owns_pool=True)


BUILDERS: dict[str, Callable[..., Reward]] = {
    "number": _inline(builtin.number),
    "exact": _inline(builtin.exact),
    "length": _inline(builtin.length),
    "connectives": _inline(builtin.connectives),
    "repetition": _inline(builtin.repetition),
    "environment": _inline(builtin.environment),
    "regex": _regex,
    "math_verify": _math_verify,
    "code": _code,
    "function": _function,
    "judge": _judge,
    "reward_model": _reward_model,
}
