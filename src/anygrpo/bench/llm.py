"""anygrpo and TRL on the same work, in alternation, each in its own process."""

from __future__ import annotations

import json
from typing import Any

from anygrpo.bench.cases import Case, model_folder
from anygrpo.bench.rounds import Measured, Worker, measured
from anygrpo.errors import ConfigError, TrainingError
from anygrpo.scratch import Scratch
from anygrpo.spoken import Text

WORKERS = {
    side: Worker(side, f"anygrpo.bench.{name}")
    for side, name in (("anygrpo", "ours"), ("trl", "trl_peer"), ("trl-vllm", "trl_peer"))
}
PACKAGES = {"trl": ("trl", "datasets"), "trl-vllm": ("trl", "datasets", "vllm")}
VLLM_SHARE = 0.3
"""Of the device's memory for vLLM beside the trainer: TRL's own default."""


def compare(
    case: Case,
    peer: str | None = "trl",
    rounds: int = 2,
    steps: int = 2,
    threads: int = 1,
    precision: str = "",
    gradient: bool = True,
) -> dict[str, Any]:
    """One record of a case.

    Args:
        peer: "trl", "trl-vllm" (TRL sampling by vLLM in its own process), or None to measure this project alone.
        rounds: alternations; the spread of the ratio is over them.
        steps: optimizer steps in a process; the first is warm-up where there are more.
        threads: CPU threads of both sides.
        precision: oneDNN's fp32_precision for the peer ("" leaves the peer as it comes).
        gradient: also let the peer compute the gradient of our first step's rows, and compare.

    Raises:
        DataError: the peer is not installed. TrainingError: a process failed, or the two did not do the same work.
    """
    if peer and case.mean_tokens:
        raise ConfigError(
            Text(
                f"case {case.name}: answers end by themselves, and the peer ends them by tokens of its own",
                f"用例 {case.name}：回答自行结束，而对方按自己的 token 结束",
            ),
            Text("measure this project alone: --vs none", "请只测本项目：--vs none"),
        )
    if peer:
        WORKERS[peer].need(PACKAGES[peer], f"pip install {' '.join(PACKAGES[peer])}")
    with Scratch("bench") as scratch:
        model = model_folder(case.model, scratch, saved=bool(peer))
        saved, check = scratch / "rows.pt", gradient and peer is not None
        sides: dict[str, list[Measured]] = {"anygrpo": []} | ({peer: []} if peer else {})
        work = ["--case", json.dumps(case.as_dict()), "--model", model]
        for index in range(rounds):
            for side, runs in sides.items():
                extra = ["--save", str(saved)] if side == "anygrpo" and index == 0 and check else []
                extra += ["--precision", precision] if side == peer and precision else []
                extra += ["--vllm", str(VLLM_SHARE)] if side == "trl-vllm" else []
                runs.append(WORKERS[side].run([*work, "--steps", str(steps), *extra], threads, case.name))
        arguments = [*work, "--steps", "1", "--check", str(saved)]
        agreement = WORKERS["trl"].run(arguments, threads, case.name) if check else {}
    return record(case, sides, peer, threads) | agreement


def record(case: Case, sides: dict[str, list[Measured]], peer: str | None, threads: int) -> dict[str, Any]:
    """The record of measured runs: medians over all counted steps, ratios round by round."""
    ours, theirs = sides["anygrpo"], sides[peer] if peer else []
    tokens, prompts = _tokens(ours), ours[0]["prompt_tokens"]
    if peer and (_tokens(theirs) != tokens or theirs[0]["prompt_tokens"] != prompts):
        raise TrainingError(
            Text(
                f"not the same work: anygrpo trained on {tokens} tokens of prompts {prompts}, "
                f"{peer} on {_tokens(theirs)} of {theirs[0]['prompt_tokens']}",
                f"工作量不同：anygrpo 训练了 {tokens} 个 token（提示 {prompts}），{peer} 为 "
                f"{_tokens(theirs)}（提示 {theirs[0]['prompt_tokens']}）",
            )
        )
    row = measured(case.name, ours, peer, theirs)
    row |= {"first_s": ours[0]["steps"][0]["phases"]["step"][0], "speed": ours[0].get("speed", {})}
    work = {"dtype": case.dtype, "threads": threads, "tokens": tokens, "prompt_tokens": prompts}
    return row | work | {"tokens_per_s": tokens / row["ours_s"]}


def _tokens(runs: list[Measured]) -> int:
    return runs[0]["steps"][0]["tokens"]
