"""From a recipe to a run that is ready to start or to go on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from anygrpo.core import border, contract, task_border
from anygrpo.core.build import OWN, build_policy
from anygrpo.core.policy import Policy
from anygrpo.core.task import Task
from anygrpo.errors import ConfigError, DataError
from anygrpo.recipe.load import load_recipe
from anygrpo.recipe.recipe import Recipe
from anygrpo.spoken import Text
from anygrpo.train import record, snapshot
from anygrpo.train.budget import with_measured
from anygrpo.train.demonstrations import check_demonstrations
from anygrpo.train.distributed import folder_of, same_weights
from anygrpo.train.folder import JsonlSink, RunFolder, cut_after, environment, next_folder
from anygrpo.train.parallel import from_main, is_main, world_size
from anygrpo.train.passing import unanswerable
from anygrpo.train.places import mend
from anygrpo.train.run import Run
from anygrpo.train.sharded import shard
from anygrpo.train.stages import PlannedStage, plan_stages
from anygrpo.train.terms import wanted_at_any_step
from anygrpo.train.trackers import Sink, build_sink, check_installed
from anygrpo.train.update import Updater


def new_run(recipe: Recipe, policy: Policy | None = None, task: Task | None = None) -> Run:
    """A fresh run in its own folder, of the recipe's policy and task or of objects that are here already.

    Raises:
        ConfigError, DataError: anything that cannot work is found here, before the first step.
    """
    check_installed(recipe.training.sinks)
    path = Path(recipe.folder) if recipe.folder else from_main(next_folder(Path("runs"), recipe.name))
    run, prints = _assemble(recipe, folder_of(path, resume=False), policy, task)
    if is_main():
        run.folder.keep_fingerprints(prints | {"environment": record.environment_digest(environment())})
    return run


def resumed_run(path: Path, flags: Sequence[str] = (), policy: Policy | None = None, task: Task | None = None) -> Run:
    """The run in `path`, continued from its newest complete checkpoint (from the start where there is none).

    Raises:
        DataError: no run there.
    """
    if not (path / "config.toml").is_file():
        raise DataError(
            Text(f"{path} holds no run to continue", f"{path} 中没有可继续的运行记录"),
            Text("give the folder that contains config.toml", "请给出含有 config.toml 的文件夹"),
        )
    before, recipe = load_recipe(path / "config.toml"), load_recipe(path / "config.toml", flags)
    run, prints = _assemble(recipe, folder_of(path, resume=True), policy, task)
    if is_main():
        mend(run.folder.checkpoints)
    newest = snapshot.newest(run.folder.checkpoints)
    if newest is not None:
        snapshot.restore(run, newest)
    elif is_main():
        cut_after(run.folder.metrics, -2)
    if is_main():
        record.resumed(run, before, prints, environment())
    return run


def check_stages(policy: Policy, stages: list[PlannedStage], recipe: Recipe) -> None:
    """What later stages will ask of the policy, asked now.

    Raises:
        ConfigError: no trainable weights, a term that the policy cannot compute, patience with nothing to evaluate,
            earlier samples (`policy.reuse`) where they never come back or are counted as fresh.
        DataError: a prompt that the policy cannot take.
    """
    for planned in stages:
        Updater(policy, planned.stage.optimizer)
        policy.check_wanted(wanted_at_any_step(planned.stage, planned.steps, policy))
        policy.check_stage(planned.stage.method, planned.task)
        if policy.earlier_samples and planned.stage.source == "policy":
            _check_earlier(policy, planned)
    looks = type(policy).check_prompts is not Policy.check_prompts
    for task in {id(planned.task): planned.task for planned in stages}.values() if looks else ():
        policy.check_prompts([*(task.prompts(0, task.size) if task.size else []), *task.held_out()])
    if recipe.training.max_staleness and world_size() > 1:
        raise ConfigError(
            Text(
                f"training.max_staleness = {recipe.training.max_staleness} on {world_size()} ranks: a queue is one's",
                f"{world_size()} 个进程上的 training.max_staleness = {recipe.training.max_staleness}："
                "队列只属于一个进程",
            ),
            Text(
                "set it to 0; training.off_policy_steps = 1 samples one step ahead on any number",
                "请设为 0；training.off_policy_steps = 1 可在任意数量上提前一步采样",
            ),
        )
    if any(planned.sampled_ahead for planned in stages) and recipe.training.max_staleness:
        policy.check_copied()
    patience = recipe.evaluation.patience
    if patience and stages and not stages[-1].task.held_out():
        raise ConfigError(
            Text(
                f"evaluation.patience = {patience}, but the task holds no prompts out to evaluate on",
                f"evaluation.patience = {patience}，但任务没有可评测的留出提示",
            ),
            Text("leave it out", "请去掉它"),
        )


def _check_earlier(policy: Policy, planned: PlannedStage) -> None:
    """Earlier samples beside fresh ones: prompts come back, nothing counts them as new, and one process keeps them."""
    a = planned.stage.algorithm
    reasons = {
        Text(
            "and the task's prompts never come back (task.size is 0)", "而任务的提示不会再次出现（task.size 为 0）"
        ): not planned.task.size,
        Text('and group_size = "auto" counts its groups', '而 group_size = "auto" 会计数'): a.group_size == "auto",
        Text(
            f'and advantage = "{a.advantage}" would keep their rewards again at each visit',
            f'而 advantage = "{a.advantage}" 会在每次遇到时重复记录其奖励',
        ): a.advantage in ("history", "running"),
        Text(
            f"on {world_size()} ranks: each keeps its own, and a checkpoint holds those of one",
            f"有 {world_size()} 个进程：各自保存，而检查点只含其中一个的样本",
        ): world_size() > 1,
    }
    for why in (why for why, holds in reasons.items() if holds):
        raise ConfigError(
            Text(f"policy.reuse = {policy.earlier_samples}, ", f"policy.reuse = {policy.earlier_samples}，") + why,
            Text("set policy.reuse = 0", "请设 policy.reuse = 0"),
        )


def _try_own(recipe: Recipe, policy: Policy, stages: list[PlannedStage]) -> None:
    """What a user's own policy and tasks return, tried before the first step (`core.border`, `core.task_border`)."""
    own = recipe.policy.kind in OWN and not type(policy).__module__.startswith("anygrpo.")
    for planned in {id(planned.task): planned for planned in stages}.values():
        if own or planned.stage.task.kind in OWN:
            prompts = task_border.check_task(planned.task, planned.stage.algorithm.prompts_per_step)
            if own and planned.stage.source == "policy":
                border.check_policy(policy, prompts, greedy=bool(planned.task.held_out()))


def _prepare(task: Task, policy: Policy, folder: Path) -> None:
    """Raises: ConfigError where a user's own `prepare` fails; what fails in the policy's answers is raised as it is."""
    failed: list[Exception] = []

    def answers(prompts: list[Any]) -> list[list[Any]]:
        try:
            return policy.decode(policy.greedy(prompts).samples)
        except Exception as error:
            failed.append(error)
            raise

    if type(task).__module__.startswith("anygrpo."):
        task.prepare(answers, folder)
        return
    broke: Exception | None = None
    try:
        contract.called(task, "prepare", answers, folder)
    except ConfigError as error:
        broke = next((one for one in failed if error.__cause__ is one), None)
        if broke is None:
            raise
    if broke is not None:
        raise broke


def _assemble(
    recipe: Recipe, folder: RunFolder, policy: Policy | None, task: Task | None
) -> tuple[Run, dict[str, str]]:
    """The run, and (rank 0) the fingerprints of what it is made of."""
    torch.manual_seed(recipe.seed)
    if recipe.training.threads:
        torch.set_num_threads(recipe.training.threads)
    if recipe.training.deterministic != torch.are_deterministic_algorithms_enabled():  # the call imports a compiler
        torch.use_deterministic_algorithms(recipe.training.deterministic)
    policy = build_policy(recipe.policy, recipe.seed) if policy is None else policy
    contract.instance(policy, Policy, type(policy).__name__)
    assert policy is not None
    if held := from_main(folder.speed()):
        policy.speed = held
    same_weights(policy.trainable())
    stages = plan_stages(recipe, task)
    _try_own(recipe, policy, stages)
    measured = with_measured(recipe, policy, stages)
    if measured is not recipe:
        recipe = measured
        budgets = [recipe.algorithm.samples_per_step, *(s.algorithm.get("samples_per_step") for s in recipe.stages)]
        folder.log(f"group_size = auto: {next(n for n in budgets if n)} samples a step, as measured here")
        stages = [replace(planned, stage=stage) for planned, stage in zip(stages, recipe.resolved_stages())]
    prints = record.fingerprints(recipe, policy, stages) if is_main() else {}
    if recipe.training.parallel == "fsdp":
        shard(policy, recipe)
    folder.describe(recipe)
    for task in {id(planned.task): planned.task for planned in stages}.values():
        _prepare(task, policy, folder.path)
    check_demonstrations(policy, stages)
    check_stages(policy, stages, recipe)
    if stages and is_main() and (why := unanswerable(stages[-1].task, recipe.evaluation)):
        print(why, file=sys.stderr, flush=True)
        folder.log(why)
    t = recipe.training
    sinks: list[Sink] = []
    if is_main():
        config = recipe.model_dump(mode="json")
        sinks = [JsonlSink(folder.metrics)]
        sinks += [build_sink(kind, folder.path, t.project, recipe.name, config) for kind in t.sinks]
    return Run(recipe, policy, stages, folder, sinks), prints
