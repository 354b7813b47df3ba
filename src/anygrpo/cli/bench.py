"""`anygrpo bench llm|floor|learn`: speed on this machine, beside a peer on the same work."""

from __future__ import annotations

import argparse
import json
from typing import Any

from anygrpo.scratch import Scratch
from anygrpo.spoken import say

CASES = "short, long, reply, gpu-short, gpu-long, ragged, reason, tiny, tiny-ragged"


def add_parser(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "bench",
        help="speed, side by side with peers",
        description=say(
            "Runs both sides in alternation, in separate processes, and checks that they did the same work.",
            "在独立进程中交替运行两方，并核对它们做了同样的工作。",
        ),
    )
    whats = parser.add_subparsers(dest="what", required=True)
    helps = {
        "llm": say("a language model's step beside TRL's GRPOTrainer", "语言模型的一步，与 TRL 的 GRPOTrainer 并排"),
        "floor": say("what the machine's matmul and copy rates allow", "机器的矩阵乘法和复制速度所允许的下限"),
    }
    for what, text in helps.items():
        one = whats.add_parser(what, help=text, description=text)
        one.add_argument("--case", action="append", help=say(f"{CASES}; may be repeated", f"{CASES}；可重复给出"))
        one.add_argument("--json", action="store_true")
        if what == "llm":
            add_comparison(one, ("trl", "trl-vllm"))
            one.add_argument(
                "--peer-rows",
                type=int,
                help=say(
                    "rows in one of the peer's micro-batches, in place of the case's",
                    "对方一个微批的行数，代替用例中的值",
                ),
            )
            one.add_argument(
                "--peer-precision",
                default="",
                help=say("oneDNN's fp32_precision for the peer", "对方的 oneDNN fp32_precision"),
            )
        _add_model(one)
    _add_learn(whats)


def _add_learn(whats: Any) -> None:
    text = say(
        "seconds of training until held-out accuracy, beside TRL with the recipe's own settings",
        "训练到某个留出集正确率所需的秒数，与使用配方同样设置的 TRL 并排",
    )
    one = whats.add_parser("learn", help=text, description=text)
    one.add_argument(
        "--recipe",
        default="recipes/llm/demo.toml",
        help=say("a language model's adapters by GRPO", "用 GRPO 训练语言模型的适配器"),
    )
    one.add_argument("--vs", choices=("trl", "none"), default="trl")
    one.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    one.add_argument("--steps", type=int, default=48)
    one.add_argument(
        "--every",
        type=int,
        default=4,
        help=say("steps between two looks at the held-out answers", "两次查看留出集回答之间的步数"),
    )
    one.add_argument(
        "--until", type=float, default=0.7, help=say("the accuracy whose seconds are told", "要报告到达秒数的正确率")
    )
    one.add_argument("--threads", type=int, default=2, help=say("CPU threads of both sides", "双方的 CPU 线程数"))
    one.add_argument("--json", action="store_true")


def add_comparison(one: argparse.ArgumentParser, peers: tuple[str, ...]) -> None:
    """How two sides are compared; the first peer where none is named."""
    one.add_argument("--vs", choices=(*peers, "none"), default=peers[0])
    one.add_argument("--rounds", type=int, default=2, help=say("alternations", "交替次数"))
    one.add_argument(
        "--steps",
        type=int,
        default=2,
        help=say("optimizer steps in a process; the first is warm-up", "每个进程的优化器步数；第一步为预热"),
    )
    one.add_argument("--threads", type=int, default=1, help=say("CPU threads of both sides", "双方的 CPU 线程数"))
    one.add_argument(
        "--no-gradient", action="store_true", help=say("do not compare the gradients of one step", "不比较一步的梯度")
    )


def _add_model(one: argparse.ArgumentParser) -> None:
    one.add_argument("--dtype", choices=("float32", "bfloat16"))
    one.add_argument(
        "--model",
        help=say(
            "in place of the case's: a folder, Hub name or shape:NAME (random weights)",
            "代替用例中的模型：文件夹、Hub 名称或 shape:NAME（随机权重）",
        ),
    )
    one.add_argument(
        "--prompts", type=int, help=say("prompts a step, in place of the case's", "每步的提示数，代替用例中的值")
    )


def run(args: argparse.Namespace) -> int:
    """Measure each case and print it."""
    if args.what == "learn":
        return _learn(args)
    measure = {"llm": _llm, "floor": _floor}[args.what]
    show([measure(name, args) for name in args.case or ["short"]], args.json)
    return 0


def show(records: list[dict[str, Any]], as_json: bool) -> None:
    """Print each case's record."""
    print(json.dumps(records, indent=1) if as_json else "\n".join(line for row in records for line in _lines(row)))


def peer_of(args: argparse.Namespace) -> str | None:
    """The peer's name, or None."""
    return None if args.vs == "none" else args.vs


def _llm(name: str, args: argparse.Namespace) -> dict[str, Any]:
    from anygrpo.bench.llm import compare

    case = _model_case(name, args)
    return compare(
        case, peer_of(args), args.rounds, args.steps, args.threads, args.peer_precision, not args.no_gradient
    )


def _learn(args: argparse.Namespace) -> int:
    from anygrpo.bench.learn import compare

    row = compare(args.recipe, peer_of(args), args.seeds, args.steps, args.every, args.until, args.threads)
    print(json.dumps(row, indent=1) if args.json else "\n".join(_learn_lines(row)))
    return 0


def _learn_lines(row: dict[str, Any]) -> list[str]:
    lines = [f"{row['recipe']}: seconds of training until a held-out accuracy of {row['until']:g}"]
    for side, seconds in row["seconds_to"].items():
        shown = ", ".join("not reached" if s is None else f"{s:.0f}" for s in seconds)
        lines.append(
            f"  {side:<8} {shown} (seeds {', '.join(map(str, row['seeds']))}); {row['step_s'][side]:.1f} s a step"
        )
        for seed, curve in zip(row["seeds"], row["curves"][side]):
            lines.append(f"    seed {seed}: " + ", ".join(f"{a:.3f} at {s:.0f} s" for s, _, a in curve))
    if row.get("ratio") is not None:
        lines.append(f"  ratio    {row['ratio']:.1f}")
    return lines


def _model_case(name: str, args: argparse.Namespace) -> Any:
    from anygrpo.bench.cases import case_named

    rows = getattr(args, "peer_rows", None)
    return case_named(name, dtype=args.dtype, model=args.model, prompts=args.prompts, rows=rows)


def _floor(name: str, args: argparse.Namespace) -> dict[str, Any]:

    import torch

    from anygrpo.bench.cases import model_folder
    from anygrpo.bench.floor import floor
    from anygrpo.models.loading import load_model

    case = _model_case(name, args)
    with Scratch("bench") as scratch:
        model = load_model(model_folder(case.model, scratch))
    head = model.get_output_embeddings().weight.numel()  # type: ignore[operator, union-attr]
    body = sum(p.numel() for p in model.parameters()) - head
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return {"case": case.name, "dtype": case.dtype} | floor(case, body, head, device)


def _lines(row: dict[str, Any]) -> list[str]:
    lines = [f"{row['case']} ({row.get('dtype', 'float32')})"]
    if "ours_s" not in row:
        return lines + [f"  {name:<20} {value:.3g}" for name, value in row.items() if isinstance(value, float)]
    unit = "tokens" if "tokens" in row else "decisions"
    lines.append(f"  anygrpo  {row['ours_s']:8.3f} s  {row['ours_cpu_s']:8.3f} CPU-s  {row['ours_peak_gb']:6.2f} GB")
    if "peer" in row:
        lines += [
            f"  {row['peer']:<8} {row['peer_s']:8.3f} s  {row['peer_cpu_s']:8.3f} CPU-s  {row['peer_peak_gb']:6.2f} GB",
            f"  ratio    {row['ratio']:8.2f}    ({row['ratio_min']:.2f} to {row['ratio_max']:.2f}); by CPU seconds "
            f"{row['cpu_ratio']:.2f} ({row['cpu_ratio_min']:.2f} to {row['cpu_ratio_max']:.2f})",
            f"  same work: {row[unit]} {unit} each",
        ]
    if "parameters" in row:
        lines.append("  trained parameters: " + ", ".join(f"{side} {n:,}" for side, n in row["parameters"].items()))
    if "gradient_relative_difference" in row:
        lines.append(f"  gradients of one step differ by {row['gradient_relative_difference']:.1e}")
    for side, phases in row["phases"].items():
        parts = ", ".join(f"{name} {t['s']:.3f} s ({t['cpu_s']:.3f} CPU-s)" for name, t in phases.items())
        lines.append(f"  {side}: {parts}")
    return [*lines, f"  {row[f'{unit}_per_s']:.0f} trained {unit}/s; load average {row['load']:.1f}"]
