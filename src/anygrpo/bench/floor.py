"""What the machine can do: matrix products, copies, and the shortest time a step's arithmetic could take."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch

from anygrpo.bench.cases import Case


@dataclass(frozen=True)
class Rates:
    """matmul in GFLOP/s for a training-sized and a decoding-sized product; copy in GB/s read plus written."""

    matmul: float
    matmul_thin: float
    copy: float


def _seconds(work: Any, device: str, repeats: int) -> float:
    """Shortest of `repeats`, wall; the GPU is waited for."""
    work()
    best = float("inf")
    for _ in range(repeats):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best


def rates(dtype: torch.dtype, device: str = "cpu", thin_rows: int = 32) -> Rates:
    """Measured on this machine in about a second: shortest of several tries."""
    rows, inner, outer = (8192, 4096, 4096) if device == "cuda" else (768, 576, 1536)
    x = torch.randn(rows, inner, device=device).to(dtype)
    w = torch.randn(outer, inner, device=device).to(dtype)
    thin = x[:thin_rows]
    linear = torch.nn.functional.linear
    big = 2e-9 * rows * inner * outer / _seconds(lambda: linear(x, w), device, 20)
    small = 2e-9 * thin_rows * inner * outer / _seconds(lambda: linear(thin, w), device, 20)
    source = torch.zeros(64_000_000 if device == "cuda" else 16_000_000, device=device)
    target = torch.empty_like(source)
    copy = 2e-9 * source.numel() * 4 / _seconds(lambda: target.copy_(source), device, 5)
    return Rates(big, small, copy)


def arithmetic(case: Case, parameters: int, embedding: int) -> dict[str, float]:
    """GFLOP of a step, where each token is computed once: 2 per weight forward, 6 with backward; the head on completion
    positions only. Attention itself is left out (a few percent at these lengths).

    Args:
        parameters: of the body, without embedding and head. embedding: of the head matrix.
    """
    prompt, new = case.prompts * case.prompt_tokens, case.prompts * case.group * case.new_tokens
    return {
        "generate": 2e-9 * ((prompt + new) * parameters + new * embedding),
        "train": 6e-9 * ((prompt + new) * parameters + new * embedding),
    }


def floor(case: Case, parameters: int, embedding: int, device: str = "cpu") -> dict[str, float]:
    """Seconds a step cannot go below here, by phase: arithmetic at the measured rate for products of that size, and in
    decoding at least one reading of all weights a token."""
    dtype = getattr(torch, case.dtype)
    measured = rates(dtype, device, case.prompts * case.group)
    work = arithmetic(case, parameters, embedding)
    size = torch.empty(0, dtype=dtype).element_size()
    read = case.new_tokens * (parameters + embedding) * size / (measured.copy * 1e9)
    return {
        "matmul_gflops": measured.matmul,
        "matmul_thin_gflops": measured.matmul_thin,
        "copy_gb_s": measured.copy,
        "generate_floor_s": max(work["generate"] / measured.matmul_thin, read),
        "train_floor_s": work["train"] / measured.matmul,
    }
