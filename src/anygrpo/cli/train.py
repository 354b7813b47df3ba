"""`anygrpo train recipe.toml [--table.key value ...]`, and `anygrpo train --resume runs/x`."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anygrpo.errors import ConfigError
from anygrpo.families import family_of, resolve
from anygrpo.recipe.load import dump_recipe, load_recipe, sources
from anygrpo.recipe.recipe import Recipe
from anygrpo.recipe.semantics import semantics
from anygrpo.spoken import Text, said, say


def add_parser(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "train",
        help="train a policy from a recipe",
        description=say(
            "Settings of the recipe can be given as flags: --algorithm.clip-high 0.28",
            "配方中的设置可以作为参数给出：--algorithm.clip-high 0.28",
        ),
    )
    parser.add_argument("recipe", nargs="?", help=say("a .toml file", ".toml 文件"))
    parser.add_argument(
        "--resume",
        metavar="FOLDER",
        help=say("continue this run from its newest complete checkpoint", "从最近的完整检查点继续这次运行"),
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help=say("print the resolved recipe and what follows from it", "打印完整的配方及其推论"),
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help=say(
            "with --dry-run: every value, its source, and a forecast", "与 --dry-run 同用：每个值、来源，以及预测"
        ),
    )
    parser.add_argument(
        "--trial",
        type=int,
        metavar="STEPS",
        help=say(
            "with --dry-run: forecast hours, memory and disk from this many real steps of each stage at least "
            "(3 with --all; 0: none)",
            "与 --dry-run 同用：每个阶段至少实际运行这么多步，据此预测时间、内存和磁盘（与 --all 同用时为 3；0："
            "不试跑）",
        ),
    )
    parser.add_argument(
        "--doctor", choices=("off", "watch", "shadow", "act"), help=say("the live doctor's mode", "实时诊断器的模式")
    )
    parser.add_argument("--quiet", action="store_true", help=say("no progress line", "不显示进度行"))
    parser.set_defaults(takes_flags=True)


def run(args: argparse.Namespace) -> int:
    """Train; exit code 0, or an error's."""
    if (args.recipe is None) == (args.resume is None):
        raise ConfigError(Text("give either a recipe or --resume FOLDER", "请给出配方或 --resume 文件夹，二者选一"))
    flags = [*args.flags, *(["--doctor.mode", args.doctor] if args.doctor else [])]
    for flag, given in (("--all", args.all), ("--trial", args.trial is not None)):
        if given and not args.dry_run:
            raise ConfigError(
                Text(f"{flag} goes with --dry-run", f"{flag} 须与 --dry-run 同用"), Text("give both", "请同时给出")
            )
    if args.dry_run:
        path = args.recipe or Path(args.resume) / "config.toml"
        recipe = load_recipe(path, flags)
        print(_with_sources(path, flags) if args.all else dump_recipe(recipe))
        _derived(recipe)
        return _tried(recipe, (3 if args.all else 0) if args.trial is None else args.trial)
    from anygrpo.train import snapshot
    from anygrpo.train.build import new_run, resumed_run
    from anygrpo.train.distributed import process_group
    from anygrpo.watch.session import go

    with process_group():
        with said_while_opening(args.quiet) as lines:
            if args.resume:
                training = resumed_run(Path(args.resume), flags)
            else:
                training = new_run(load_recipe(args.recipe, flags))
        for line in lines:
            training.folder.log(line)
        if training.recipe.doctor.mode == "act" and snapshot.newest(training.folder.checkpoints) is None:
            snapshot.save(training)  # somewhere to go back to; every rank takes part where weights are sharded
        go(training, quiet=args.quiet)
    return 0


def _source(word: str) -> str:
    return said(_SOURCES.get(word, word))


_SOURCES = {
    "flag": Text("flag", "命令行"),
    "recipe": Text("recipe", "配方"),
    "default": Text("default", "默认"),
}


def _with_sources(path: str | Path, flags: list[str]) -> str:
    """A line a value: dotted key, value, source."""
    found = {
        k: ("none" if v is None else json.dumps(v, ensure_ascii=False), source)
        for k, (v, source) in sources(path, flags).items()
    }
    wide = max(len(key) + len(value) for key, (value, _) in found.items() if len(key) + len(value) < 60)
    return "\n".join(f"{f'{k} = {v}':<{wide + 3}}  # {_source(source)}" for k, (v, source) in found.items()) + "\n"


def _tried(recipe: Recipe, steps: int) -> int:
    """The user's own functions looked up, and a forecast from a trial of `steps` steps (0: none).

    Raises:
        ConfigError, DataError: a function that is not there.
        TrainingError: the trial failed, so the run would.
    """
    from anygrpo.core.named_code import look_up
    from anygrpo.train.trackers import check_installed

    check_installed(recipe.training.sinks)
    if found := look_up(recipe):
        print(f"# {say('found: ', '已找到：')}{', '.join(found)}")
    if steps <= 0:
        return 0
    from anygrpo.watch.forecast import forecast, lines
    from anygrpo.watch.trial import measured

    trial = measured(recipe, steps)
    print("\n".join(f"# {line}" for line in lines(forecast(trial, recipe), trial)))
    return 0


@contextlib.contextmanager
def said_while_opening(quiet: bool) -> Iterator[list[str]]:
    """What loading has to say (what training starts from, and so what its reference is; weights that had no place), on
    stderr and in the list; `quiet`: only what is a warning on stderr."""
    log, lines = logging.getLogger("anygrpo"), []
    handler, before, main = logging.Handler(), log.level, os.environ.get("RANK", "0") == "0"

    def emit(record: logging.LogRecord) -> None:
        text = record.getMessage()
        if main and text not in lines:
            lines.append(text)
            if not quiet or record.levelno >= logging.WARNING:
                print(text, file=sys.stderr, flush=True)

    handler.emit = emit
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        yield lines
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


def _derived(recipe: Recipe) -> None:
    """Derived numbers; nothing is loaded."""
    for stage in recipe.resolved_stages():
        a = stage.algorithm
        steps, epochs, updates = stage.steps, stage.epochs, a.epochs * a.minibatches
        parts = [
            say(f"stage {stage.name} ({stage.method}): ", f"阶段 {stage.name}（{stage.method}）：")
            + (say(f"{steps} steps", f"{steps} 步") if steps is not None else say(f"{epochs} epochs", f"{epochs} 轮")),
            say(f"{a.prompts_per_step} prompts a step", f"每步 {a.prompts_per_step} 个提示"),
        ]
        if stage.source == "policy":  # of stored rows there are as many as the task has for a prompt
            equal, largest = a.group_size != "auto", a.typical_group if a.group_size != "auto" else a.largest_group
            spread = a.samples_per_step or say("as many samples as are measured to be cheap", "按实测开销决定的样本数")
            samples = a.prompts_per_step * a.typical_group if equal else spread
            parts.append(say(f"{samples} samples", f"{samples} 个样本") if isinstance(samples, int) else samples)
            if a.advantage == "zscore":
                bound = round((largest - 1) / largest**0.5, 4)
                parts.append(say(f"advantages within +- {bound}", f"优势在 +- {bound} 之内"))
        parts.append(say(f"{updates} update{'s' * (updates > 1)} a step", f"每步更新 {updates} 次"))
        print("# " + say(", ", "，").join(parts))
        if follows := a.follows():
            source = f'preset "{a.preset}"' if a.preset else f'objective "{a.objective}"'
            print(say(f"# {stage.name}: {source} sets ", f"# {stage.name}：{source} 设定 ") + json.dumps(follows))
        for label, text in semantics(stage, recipe.policy):
            print(f"#   {label}{say(':', '：')}".ljust(22) + text)
    family = family_of(recipe.policy.kind)
    if family is not None and family.memory is not None:
        print("# " + _memory(resolve(family.memory)(recipe, int(os.environ.get("WORLD_SIZE", "1")))))


_PHASES = {
    "peak_training": Text("while training", "训练时"),
    "peak_sampling": Text("while sampling", "采样时"),
    "peak_stepping": Text("in the optimizer's step", "优化器更新时"),
}
_PARTS = {
    "weights": Text("weights", "权重"),
    "reference": Text("reference", "参考模型"),
    "sampler": Text("copies to sample with", "采样用的副本"),
    "casts": Text("casts", "类型转换的副本"),
    "gradients": Text("gradients", "梯度"),
    "optimizer": Text("optimizer", "优化器"),
    "trained": Text("trained weights with their gradients and moments", "训练的权重及其梯度和动量"),
    "cache": Text("cache of keys and values", "键值缓存"),
    "activations": Text("activations", "激活值"),
    "trajectory": Text("trajectory", "采样轨迹"),
    "encoders": Text("encoders", "编码器"),
}


def _memory(found: dict[str, Any]) -> str:
    """What a family works out of a rank's memory: the peak and when it is, then the parts, largest first."""
    parts = dict(found.get("memory_gb_per_rank", {}))
    peak = parts.pop("peak", None)
    if peak is None:
        why = str(found.get("memory", "")).removeprefix("not estimated: ")
        return say(f"memory: not estimated: {why}", f"内存：无法推算：{why}")
    phases = {name: parts.pop(name) for name in list(parts) if name.startswith("peak_")}
    when = when_zh = once = once_zh = ""
    if phases:  # each holds some of the parts
        worst = _PHASES[max(phases, key=lambda name: phases[name])]
        when, when_zh, once, once_zh = f", {worst.en}", f"，在{worst.zh}", ", not all at once", "，并不同时存在"
    most = sorted((item for item in parts.items() if item[1]), key=lambda item: -item[1])
    of = say(", ", "，").join(f"{said(_PARTS[name])} {value:.3g}" for name, value in most)
    line = say(
        f"memory of a rank, worked out: {peak:.3g} GB at the peak{when} ({of}{once}); ",
        f"每个进程的内存（推算）：峰值 {peak:.3g} GB{when_zh}（{of}{once_zh}）；",
    )
    ranks, weights, tokens = found["ranks"], found["weights"], found.get("prompt_tokens_assumed")
    line += say(
        f"trained on {ranks} rank{'s' * (ranks > 1)}; {weights:,} weights", f"共 {ranks} 个进程；{weights:,} 个权重"
    )
    return line + (say(f"; prompts of {tokens} tokens assumed", f"；假定提示长 {tokens} 个词元") if tokens else "")
