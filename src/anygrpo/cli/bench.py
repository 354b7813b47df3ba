"""`anygrpo bench llm|floor`: speed on this machine, beside a peer on the same work."""

from __future__ import annotations

import argparse
import json
from typing import Any


def add_parser(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "bench",
        help="speed, side by side with peers",
        description="Runs both sides in alternation, in separate processes, and checks that they did the same work.",
    )
    parser.add_argument("what", choices=("llm", "floor"))
    parser.add_argument(
        "--case", action="append", help="short, long, reply, gpu-short, gpu-long, tiny; may be repeated"
    )
    parser.add_argument("--vs", choices=("trl", "none"), default="trl")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"))
    parser.add_argument("--model", help="in place of the case's: a folder, Hub name or shape:NAME (random weights)")
    parser.add_argument("--prompts", type=int, help="prompts a step, in place of the case's")
    parser.add_argument("--rounds", type=int, default=2, help="alternations")
    parser.add_argument("--steps", type=int, default=2, help="optimizer steps in a process; the first is warm-up")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of both sides")
    parser.add_argument("--peer-precision", default="", help="oneDNN's fp32_precision for the peer")
    parser.add_argument("--no-gradient", action="store_true", help="do not compare the gradients of one step")
    parser.add_argument("--json", action="store_true")


def run(args: argparse.Namespace) -> int:
    """Measure each case and print it."""
    from anygrpo.bench.cases import case_named

    changes = {"dtype": args.dtype, "model": args.model, "prompts": args.prompts}
    cases = [case_named(name, **changes) for name in args.case or ["short"]]
    records = [_floor(case) if args.what == "floor" else _compare(case, args) for case in cases]
    if args.json:
        print(json.dumps(records, indent=1))
        return 0
    for row in records:
        print("\n".join(_lines(row)))
    return 0


def _compare(case: Any, args: argparse.Namespace) -> dict[str, Any]:
    from anygrpo.bench.llm import compare

    peer = None if args.vs == "none" else args.vs
    return compare(case, peer, args.rounds, args.steps, args.threads, args.peer_precision, not args.no_gradient)


def _floor(case: Any) -> dict[str, Any]:
    import tempfile
    from pathlib import Path

    import torch

    from anygrpo.bench.cases import model_folder
    from anygrpo.bench.floor import floor
    from anygrpo.samplers.loading import load_model

    with tempfile.TemporaryDirectory() as scratch:
        model = load_model(model_folder(case.model, Path(scratch)))
    head = model.get_output_embeddings().weight.numel()  # type: ignore[operator, union-attr]
    body = sum(p.numel() for p in model.parameters()) - head
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return {"case": case.name, "dtype": case.dtype} | floor(case, body, head, device)


def _lines(row: dict[str, Any]) -> list[str]:
    lines = [f"{row['case']} ({row['dtype']})"]
    if "ours_s" not in row:
        return lines + [f"  {name:<20} {value:.3g}" for name, value in row.items() if isinstance(value, float)]
    lines.append(f"  anygrpo  {row['ours_s']:8.2f} s  {row['ours_cpu_s']:8.2f} CPU-s  {row['ours_peak_gb']:6.2f} GB")
    if "peer" in row:
        lines += [
            f"  {row['peer']:<8} {row['peer_s']:8.2f} s  {row['peer_cpu_s']:8.2f} CPU-s  {row['peer_peak_gb']:6.2f} GB",
            f"  ratio    {row['ratio']:8.2f}    ({row['ratio_min']:.2f} to {row['ratio_max']:.2f}); by CPU seconds "
            f"{row['cpu_ratio']:.2f} ({row['cpu_ratio_min']:.2f} to {row['cpu_ratio_max']:.2f})",
            f"  same work: {row['tokens']} tokens each",
        ]
    if "gradient_relative_difference" in row:
        lines.append(f"  gradients of one step differ by {row['gradient_relative_difference']:.1e}")
    for side, phases in row["phases"].items():
        parts = ", ".join(f"{name} {t['s']:.2f} s ({t['cpu_s']:.2f} CPU-s)" for name, t in phases.items())
        lines.append(f"  {side}: {parts}")
    return [*lines, f"  {row['tokens_per_s']:.0f} trained tokens/s; load average {row['load']:.1f}"]
