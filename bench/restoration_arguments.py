"""What `restoration.py` can be told."""

from __future__ import annotations

import argparse
from pathlib import Path


def arguments(description: str) -> argparse.Namespace:
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (
        ("seeds", 3), ("width", 8), ("blocks", 1), ("patch", 32), ("picture-size", 128), ("crops", 32), ("prompts", 8),
        ("grpo-prompts", 16), ("group", 4), ("rows", 64), ("best-of", 8), ("probe", 16), ("oracles", 1),
        ("pieces", -1), ("grpo-patch", 0), ("tool-patch", 16),
        ("held-out-draws", 1), ("experts", 4), ("taught-of", 4),
    ):  # fmt: skip
        p.add_argument(f"--{name}", type=int, default=value)
    for name, value in (
        ("warm", 90.0), ("seconds", 60.0), ("rate", 3e-3), ("further-rate", 1e-3), ("grpo-rate", 1e-2), ("final", 0.01),
        ("lambda-pg", 1.0),
        ("lambda-supervised", 0.0), ("concentration", 10.0), ("entropy", 0.0),
        ("beta", 0.0), ("sharpness", 1.0), ("w-psnr", 0.5),
    ):  # fmt: skip
        p.add_argument(f"--{name}", type=float, default=value)
    p.add_argument("--network", choices=("frequency", "toolbox", "experts"), default="frequency")
    p.add_argument("--window", choices=("hard", "soft"), default="hard")
    p.add_argument("--skip", choices=("features", "bands", "none"), default="features")
    p.add_argument("--advantage", default="zscore")
    p.add_argument("--warm-gates", choices=("mean", "sampled"), default="sampled")
    p.add_argument("--loss", type=loss, default=[("l1", 1.0)], help="of supervision: l1=1,ssim=0.2")
    p.add_argument("--device", default="cpu")
    p.add_argument("--graphs", action="store_true", help="CUDA graphs (GPU)")
    p.add_argument("--only", type=int, nargs="*", help="measure these seeds; tables only with --pieces 0")
    p.add_argument("--arms", nargs="*", default=["supervised/mean", "supervised/sampled", "grpo"])
    p.add_argument("--sites", default="*", help="patterns of the sites that are sampled, separated by commas")
    p.add_argument("--train", default="", help="patterns of the parameters that GRPO trains (default: all)")
    p.add_argument("--pictures", type=Path, help="folder of scripts/photographs.py, to train on too")
    p.add_argument("--test-on", default="validation", help="which folder of it; test: only measures what was trained")
    p.add_argument(
        "--measure", choices=("all", "greedy"), default="all", help="greedy: that and, of choices, each fixed one"
    )
    p.add_argument("--out", type=Path, default=Path("runs/bench-restoration"))
    return p.parse_args()


def loss(text: str) -> list[tuple[str, float]]:
    return [(name, float(weight)) for name, weight in (term.split("=") for term in text.split(","))]
