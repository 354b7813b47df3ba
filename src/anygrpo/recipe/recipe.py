"""The whole recipe, and the stages it resolves to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from pydantic import Field, ValidationError, model_validator

from anygrpo.choices.card import Card
from anygrpo.choices.catalogue import card_of
from anygrpo.errors import ConfigError
from anygrpo.recipe.adaptive import AdaptiveTemperature
from anygrpo.recipe.algorithm import AlgorithmConfig
from anygrpo.recipe.refusals import readable
from anygrpo.recipe.section import Schedule, Section
from anygrpo.recipe.training import DoctorConfig, EvaluationConfig, OptimizerConfig, StageConfig, TrainingConfig
from anygrpo.spoken import Text

P = TypeVar("P", bound=Section)
T = TypeVar("T", bound=Section)


@dataclass(frozen=True)
class Stage:
    """A stage with every override applied."""

    name: str
    method: Literal["grpo", "supervised", "rce"]
    source: Literal["policy", "stored"]
    steps: int | None
    epochs: float | None
    algorithm: AlgorithmConfig
    optimizer: OptimizerConfig
    task: Any


class Recipe(Section, Generic[P, T]):
    """Everything that defines a run. Saved, resolved, as config.toml in the run folder.

    P and T are the sections that the families of the policy and the task define (`recipe.kinds`).
    """

    name: str = "run"
    "Of the run: its folder and its lines in trackers."
    seed: int = Field(0, ge=0)
    "Of all that is drawn: start weights, prompts, samples."
    folder: str | None = None
    "Run folder; default: runs/<name>-<number>."
    policy: P
    "What is trained; `kind` says of which family."
    task: T
    "What it is trained on; `kind` says which."
    algorithm: AlgorithmConfig = AlgorithmConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    stages: tuple[StageConfig, ...] = ()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    doctor: DoctorConfig = DoctorConfig()

    @model_validator(mode="after")
    def _stage_names_differ(self) -> Recipe:
        names = [stage.name for stage in self.stages]
        if len(set(names)) < len(names):
            raise ValueError(Text(f"stages need different names, found {names}", f"各阶段的名称须不同，现为 {names}"))
        return self

    def resolved_stages(self) -> list[Stage]:
        """The stages in order; one "grpo" stage of `training.steps` where the recipe lists none.

        Raises:
            ConfigError: an override that is unknown, or a combination that cannot work.
        """
        given = self.stages or (StageConfig(name="grpo", steps=self.training.steps),)
        stages = [self._resolve(i, stage) for i, stage in enumerate(given)]
        if self.training.samples_ahead:
            _check_ahead(stages, self.training, self.policy)
        return stages

    def _resolve(self, index: int, stage: StageConfig) -> Stage:
        if (stage.steps is None) == (stage.epochs is None):
            raise ConfigError(
                Text(
                    f"stage {stage.name!r} has steps = {stage.steps} and epochs = {stage.epochs}",
                    f"阶段 {stage.name!r} 的 steps = {stage.steps}，epochs = {stage.epochs}",
                ),
                Text("give exactly one of them", "请只给出其中一个"),
            )
        source = stage.source or ("policy" if stage.method == "grpo" else "stored")
        if stage.method != "grpo" and source == "policy":
            raise ConfigError(
                Text(
                    f"stage {stage.name!r}: method {stage.method!r} trains on stored actions, not on samples",
                    f"阶段 {stage.name!r}：方法 {stage.method!r} 用存储的动作训练，而不是采样",
                )
            )
        at = f"stages.{index}."
        algorithm = _override(self.algorithm, stage.algorithm, at + "algorithm.")
        _check_algorithm(stage.name, stage.method, source, algorithm)
        return Stage(
            stage.name,
            stage.method,
            source,
            stage.steps,
            stage.epochs,
            algorithm,
            _override(self.optimizer, stage.optimizer, at + "optimizer."),
            _override(self.task, stage.task, at + "task."),
        )


def _check_algorithm(name: str, method: str, source: str, a: AlgorithmConfig) -> None:
    """What pydantic cannot see: settings that make a stage's every gradient 0."""
    if method != "grpo":
        return
    advantage = card_of("advantage", a.advantage)
    if source == "policy":
        _check_baseline(name, a, advantage)
    _check_parts(name, a, advantage)
    if source == "policy":
        _check_pass_k(name, a)
    terms = ("lambda_pg", "lambda_supervised", "lambda_consistency", "entropy_coef", "beta")
    if not any(number(getattr(a, term)) for term in terms) and a.kl_controller == "fixed":
        raise ConfigError(
            Text(
                f"stage {name!r}: {', '.join(terms)} are all 0, so nothing is trained",
                f"阶段 {name!r}：{'、'.join(terms)} 全为 0，什么也不训练",
            ),
            Text("set one of them", "请设定其中一个"),
        )


def _check_baseline(name: str, a: AlgorithmConfig, advantage: Card | None) -> None:
    """Of samples alone in their group."""
    if a.group_size == 1 and number(a.lambda_pg) and advantage and advantage.baseline == "group":
        raise ConfigError(
            Text(
                f'stage {name!r}: group_size = 1 has no baseline with advantage = "{a.advantage}", every advantage '
                "is 0",
                f'阶段 {name!r}：group_size = 1 时 advantage = "{a.advantage}" 没有基线，所有优势都是 0',
            ),
            Text(
                'set algorithm.group_size to 4 or more, or advantage = "overall", "running" or "history"',
                '把 algorithm.group_size 设为 4 以上，或用 advantage = "overall"、"running"、"history"',
            ),
        )


def _check_parts(name: str, a: AlgorithmConfig, advantage: Card | None) -> None:
    """Of advantages and credits that look at less than the total reward of a whole sample."""
    by_part = advantage is not None and advantage.by_part
    if a.overlong_buffer and (by_part or a.advantage == "maxrl" or a.credit == "parts"):
        by = f'advantage = "{a.advantage}"' if by_part or a.advantage == "maxrl" else 'credit = "parts"'
        parts = Text("compares the parts of a reward", "比较奖励的各部分")
        why = Text("needs rewards >= 0", "需要不小于 0 的奖励") if a.advantage == "maxrl" else parts
        raise ConfigError(
            Text(
                f"stage {name!r}: overlong_buffer = {a.overlong_buffer} lowers the total reward, and {by} {why.en}: "
                "the penalty cannot act",
                f"阶段 {name!r}：overlong_buffer = {a.overlong_buffer} 会降低总奖励，而 {by} {why.zh}：惩罚不会起作用",
            ),
            Text(
                "set overlong_buffer = 0 (a length reward can be a part of its own), or choose another",
                "请设 overlong_buffer = 0（长度奖励可以作为单独的一项），或另选其他",
            ),
        )
    if a.credit != "outcome" and advantage and (advantage.by_part or a.advantage in ("running", "history")):
        parts = Text("compares the parts of a reward", "比较奖励的各部分")
        why = parts if advantage.by_part else Text("has one mean for all turns", "各轮共用一个均值")
        raise ConfigError(
            Text(
                f'stage {name!r}: credit = "{a.credit}" compares turns, and advantage = "{a.advantage}" {why.en}',
                f'阶段 {name!r}：credit = "{a.credit}" 比较各轮，而 advantage = "{a.advantage}" {why.zh}',
            ),
            Text('set credit = "outcome", or another advantage', '请设 credit = "outcome"，或换一种优势'),
        )


def _check_pass_k(name: str, a: AlgorithmConfig) -> None:
    size = "smallest_group" if a.group_size == "auto" else "group_size"
    least = getattr(a, size)
    if a.advantage == "pass_at_k" and a.pass_k >= least:
        raise ConfigError(
            Text(
                f"stage {name!r}: pass_k = {a.pass_k} of a group of {least}: nothing is left to compare",
                f"阶段 {name!r}：组大小 {least}，pass_k = {a.pass_k}：没有可比较的样本",
            ),
            Text(f"set algorithm.pass_k below algorithm.{size}", f"请使 algorithm.pass_k 小于 algorithm.{size}"),
        )


def _check_ahead(stages: list[Stage], training: TrainingConfig, policy: Section) -> None:
    """What cannot be where samples are older than the weights that they train."""
    key = "max_staleness" if training.max_staleness else "off_policy_steps"
    said = f"training.{key} = {getattr(training, key)}"
    sampling = [stage for stage in stages if stage.source == "policy"]
    if not sampling:
        raise ConfigError(
            Text(
                f"{said}, but every stage trains on stored actions: nothing is sampled ahead",
                f"{said}，但每个阶段都用存好的动作训练：没有可提前采样的内容",
            ),
            Text("set it to 0", "请设为 0"),
        )
    for stage in sampling:
        if stage.algorithm.objective == "reinforce" and stage.algorithm.importance == "none":
            raise ConfigError(
                Text(
                    f'stage {stage.name!r}: objective = "reinforce" needs samples of the present weights, and with '
                    f"{said} they are older",
                    f'阶段 {stage.name!r}：objective = "reinforce" 需要当前权重的样本，而 {said} 时它们较旧',
                ),
                Text(
                    'set algorithm.importance = "truncate", or an objective with a ratio (ppo, gspo, cispo, sapo)',
                    '请设 algorithm.importance = "truncate"，或用有比率的目标（ppo、gspo、cispo、sapo）',
                ),
            )
        if training.max_staleness:
            _check_staleness(stage, training.max_staleness, policy)


def _check_staleness(stage: Stage, bound: int, policy: Section) -> None:
    a, said = stage.algorithm, f"training.max_staleness = {bound}"
    updates = a.epochs * a.minibatches
    if bound < updates:
        raise ConfigError(
            Text(
                f"stage {stage.name!r}: {said}, but a step makes {updates} updates (epochs x "
                "minibatches): nothing can be "
                "sampled ahead",
                f"阶段 {stage.name!r}：{said}，但一步有 {updates} 次更新（epochs x minibatches）：没有可提前采样的内容",
            ),
            Text(
                f"set it to {updates} or more (a multiple of {updates}), or to 0",
                f"请设为 {updates} 或更大（{updates} 的倍数），或设为 0",
            ),
        )
    if a.group_size == "auto" or isinstance(a.temperature, AdaptiveTemperature):
        size = 'group_size = "auto"'
        which = Text(size, size) if a.group_size == "auto" else Text("an adaptive temperature", "自适应温度")
        raise ConfigError(
            Text(
                f"stage {stage.name!r}: {which.en} follows from the last step's samples, which "
                f"{said} does not wait for",
                f"阶段 {stage.name!r}：{which.zh} 取决于上一步的样本，而 {said} 不等待它们",
            ),
            Text("give a number, or set training.max_staleness = 0", "请给出一个数，或设 training.max_staleness = 0"),
        )
    moving = [name for name in type(policy).model_fields if isinstance(getattr(policy, name), Schedule)]
    if (moving or isinstance(a.temperature, Schedule)) and a.importance == "none":
        raise ConfigError(
            Text(
                f"stage {stage.name!r}: {', '.join([*moving, 'algorithm.temperature'][:1])} changes "
                "from step to step, and "
                f"with {said} samples of several steps are trained on together",
                f"阶段 {stage.name!r}：{', '.join([*moving, 'algorithm.temperature'][:1])} 逐步变化，而 {said} "
                "会把若干步的样本一起训练",
            ),
            Text(
                'set algorithm.importance = "truncate", which corrects for that, or a fixed number',
                '请设 algorithm.importance = "truncate"（会修正它），或给出固定的数',
            ),
        )


def largest_beta(a: AlgorithmConfig) -> float:
    """The weight of the KL furthest from 0 that may be in force; a controller starts above 0."""
    return number(a.beta) if a.kl_controller == "fixed" else max(number(a.beta), a.beta_min)


def number(value: float | Schedule) -> float:
    """The value furthest from 0 that a number takes, for checks before the run."""
    return max(value.extremes(), key=abs) if isinstance(value, Schedule) else value


def _override(base: Any, changes: dict[str, object], where: str) -> Any:
    """`base` with the keys of `changes` replaced; tables inside are merged unless they name a new kind or function."""
    if not changes:
        return base
    table = base.model_dump(exclude_unset=True)
    for key, value in changes.items():
        old = table.get(key)
        merge = isinstance(old, dict) and isinstance(value, dict) and not {"kind", "function"} & value.keys()
        table[key] = {**old, **value} if merge else value  # type: ignore[dict-item]
    try:
        return type(base).model_validate(table)
    except ValidationError as error:
        raise readable(error, type(base), where) from None
