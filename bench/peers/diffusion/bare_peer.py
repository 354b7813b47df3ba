"""Worker process: the denoiser's own forward and backward passes of a step, and nothing else: no scheduler, no
log-prob, no advantages, no optimizer. What a step of any trainer takes at least, at the same batches."""

from __future__ import annotations

import argparse
import json
from typing import Any

import torch
from peers.diffusion.cases import Case, conditions, denoiser_of, scheduler_of

from anygrpo.bench.meter import Meter, peak_gb


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", type=json.loads, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(json.dumps(measure(Case(**args.case), args.steps)))


def measure(case: Case, steps: int) -> dict[str, Any]:
    """A forward of all samples for each denoising step, then forward and backward of each block for each decision."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    denoiser, times = denoiser_of(case).to(device), scheduler_of(case).timesteps.to(device)
    meter, done = Meter(device), []
    base = peak_gb(device)
    for step in range(steps):
        condition = {k: v.to(device).repeat_interleave(case.group, 0) for k, v in conditions(case, step).items()}
        x = torch.randn(case.samples, *case.shape, device=device)
        with meter.phase("step"):
            with meter.phase("sample"), torch.no_grad():
                for t in times:
                    denoiser(x, t.expand(len(x)), **condition)
            with meter.phase("train"):
                for a in range(0, case.samples, case.rows):
                    part = slice(a, a + case.rows)
                    given = {name: leaf[part] for name, leaf in condition.items()}
                    for t in times[: case.decisions]:
                        denoiser(x[part], t.expand(case.rows), **given).float().square().mean().backward()
        denoiser.zero_grad()
        done.append({"phases": meter.take(), "decisions": case.samples * case.decisions})
    parameters = sum(p.numel() for p in denoiser.parameters())
    return {"steps": done, "peak_gb": peak_gb(device), "base_gb": base, "parameters": parameters}


if __name__ == "__main__":
    main()
