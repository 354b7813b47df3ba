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
from anygrpo.spoken import NOTHING, Text

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
            raise ConfigError(
                Text(f"two rewards are called {name!r}", f"有两个奖励都叫 {name!r}"),
                Text("give one of them another name", "请给其中一个换名称"),
            )
        if (column := getattr(config, "column", None)) is not None and column not in columns:
            raise ConfigError(
                Text(
                    f"the {config.kind} reward reads column {column!r}, which the data lack; "
                    f"{suggestion(column, columns)}",
                    f"{config.kind} 奖励读取 {column!r} 列，而数据没有它；{suggestion(column, columns)}",
                ),
                Text("set the reward's column", "请设置该奖励的列"),
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
        raise ConfigError(
            Text(
                f"loading {config.function} failed: {failure.reason}", f"加载 {config.function} 失败：{failure.reason}"
            ),
            Text("mend the file", "请修正文件"),
        ) from None
    form = config.signature if config.signature != "auto" else signature["form"]
    read = _read_columns(config, columns)
    _check_signature(config, signature, form, set(read))
    return Remote(
        name,
        config.weight,
        False,
        config.function,
        pool,
        config.timeout,
        dict(config.arguments),
        read,
        retry_alone=config.retry_alone,
        form=form,
        splits=signature["splits"],
        bounds=config.bounds,
    )


def _read_columns(config: FunctionRewardConfig, columns: set[str]) -> dict[str, str]:
    """Argument -> column: each column by its own name, and by the function's names for them.

    Raises:
        ConfigError: a column that the data do not have.
    """
    for argument, column in config.columns.items():
        if column not in columns:
            raise ConfigError(
                Text(
                    f"{config.function}: columns.{argument} is {column!r}, and the data have no such column; "
                    f"{suggestion(column, columns)}",
                    f"{config.function}：columns.{argument} 是 {column!r}，而数据没有这一列；"
                    f"{suggestion(column, columns)}",
                )
            )
    return {column: column for column in columns} | config.columns


def _check_signature(
    config: FunctionRewardConfig, signature: dict[str, Any], form: str | None, columns: set[str]
) -> None:
    """Raises: ConfigError where the function could not be called with these columns."""
    if form is None:
        wanted = "; ".join(f"{name}: {', '.join(names)}" for name, names in signatures.OWN_NAMES.items())
        lacks = "prompts" in signature["parameters"]
        lacking = Text(" does not take 'outputs';", " 不接受 'outputs'；") if lacks else NOTHING
        raise ConfigError(
            Text(
                f"{config.function}{lacking.en} has parameters {signature['parameters']}, of no form "
                f"that is known ({wanted})",
                f"{config.function}{lacking.zh} 的参数为 {signature['parameters']}，不是已知的形式（{wanted}）",
            ),
            Text(
                "define it as function(prompts, outputs, **columns)", "请定义为 function(prompts, outputs, **columns)"
            ),
        )
    given = set(signatures.OWN_NAMES[form]) | columns | set(config.arguments)
    if lacking := [p for p in signature["needed"] if p not in given]:
        raise ConfigError(
            Text(
                f"{config.function} wants {lacking[0]!r}, which is neither a column "
                f"({', '.join(sorted(columns)) or 'none'}) nor one of its settings",
                f"{config.function} 需要 {lacking[0]!r}，"
                f"它既不是数据的列（{', '.join(sorted(columns)) or '无'}），也不是它的设置",
            ),
            Text(
                f"a reward of this form is given {', '.join(signatures.OWN_NAMES[form])} and the columns",
                f"这种形式的奖励得到 {', '.join(signatures.OWN_NAMES[form])} 和各列",
            ),
        )
    if form == "verl" and not columns & {"ground_truth", "reward_model", "answer"}:
        raise ConfigError(
            Text(
                f"{config.function} wants a ground truth, and the data have no column ground_truth, "
                "reward_model or answer",
                f"{config.function} 需要标准答案，而数据没有 ground_truth、reward_model 或 answer 列",
            ),
            Text("name a column so", "请这样命名一列"),
        )
    if both := columns & set(config.arguments):
        raise ConfigError(
            Text(
                f"{config.function}: argument {sorted(both)[0]!r} is also a column",
                f"{config.function}：参数 {sorted(both)[0]!r} 也是数据的一列",
            ),
            Text("rename the argument", "请给参数换名称"),
        )


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
        raise ConfigError(
            Text(
                f"the reward model {config.model} cannot be loaded: {failure.reason}",
                f"无法加载奖励模型 {config.model}：{failure.reason}",
            ),
            Text("correct it", "请改正"),
        ) from None
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
