"""Worker process: whole steps of a case by `anygrpo train`'s own loop, metrics, doctor and run folder included, with no
speed setting in the recipe. Prints one JSON object on its last line."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from anygrpo.bench.cases import Case, prompt_texts, reward_of
from anygrpo.bench.meter import peak_gb
from anygrpo.core.task import Scores, Task
from anygrpo.language import build as causal_lm
from anygrpo.language.settings import CausalLMConfig
from anygrpo.recipe.load import parse_recipe
from anygrpo.scratch import Scratch
from anygrpo.train.build import new_run
from anygrpo.train.loop import train
from anygrpo.train.run import Run
from anygrpo.train.update import Updater
from anygrpo.watch.live import attach_doctor

PHASES = {"generate": "time/sample", "train": "time/update", "prefill": "time/prefill", "decode": "time/decode"}
"""Phases of a record, and where a row of metrics has their seconds."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", type=json.loads, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--save", help="file for the rows and the gradient of the first step")
    parser.add_argument("--policy", type=json.loads, default={}, help="settings of [policy], in place of none")
    args = parser.parse_args()
    made = measure(Case(**args.case), args.model, args.steps, args.threads, args.save, args.policy)
    print(json.dumps(made))


class Texts(Task):
    """The case's prompts at every step, and a reward that differs between samples."""

    def __init__(self, prompts: list[dict[str, str]]) -> None:
        self._prompts = prompts

    def prompts(self, step: int, count: int) -> list[Any]:
        return self._prompts[:count]

    def held_out(self) -> list[Any]:
        return []

    def score(self, prompts: list[Any], outputs: list[list[Any]]) -> Scores:
        return Scores(torch.tensor([[reward_of(str(text)) for text in row] for row in outputs]))


class _Enough(Exception):
    """All steps are measured: the checkpoint that ends a run is none of them."""


class Steps:
    """Seconds from row to row of a run: whole steps, with all that is written and looked at between them."""

    def __init__(self, case: Case, steps: int, device: str) -> None:
        self.case, self.steps, self.device, self.done = case, steps, device, []
        self._since = self._now()

    def _now(self) -> tuple[float, float]:
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter(), time.process_time()

    def __call__(self, row: dict[str, Any], run: Run) -> None:
        now = self._now()
        spent = [b - a for a, b in zip(self._since, now)]
        phases = {name: [row[key], row[key]] for name, key in PHASES.items() if key in row}
        samples = self.case.prompts * self.case.group
        self.done.append({"phases": {"step": spent, **phases}, "tokens": round(row["length/mean"] * samples)})
        self._since = now
        if len(self.done) == self.steps:
            raise _Enough


def measure(
    case: Case,
    model: str,
    steps: int,
    threads: int,
    save: str | None = None,
    policy: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Seconds of each step by phase (wall; of whole steps also CPU), peak memory, sampled tokens."""
    with Scratch("bench") as folder:
        start = time.perf_counter()
        run, made = _run(case, model, steps, threads, folder / "run", policy or {})
        ready, device = time.perf_counter() - start, made.scorer.device.type
        attach_doctor(run)
        measured = Steps(case, steps, device)
        run.observers.append(measured)
        with _saved(made, save), suppress(_Enough):
            train(run)
        prompts = made.prompts.encode(run.stages[0].task.prompts(0, case.prompts), 0)
        record = {
            "steps": measured.done,
            "peak_gb": peak_gb(device),
            "prompt_tokens": [len(ids) for ids in prompts],
            "parity": made.parity,
            "ready_s": ready,
            "speed": dict(made.speed),
        }
        run.close()
    return record


def _run(
    case: Case, model: str, steps: int, threads: int, folder: Path, settings: dict[str, Any]
) -> tuple[Run, causal_lm.CausalLM]:
    table = {
        "kind": "causal_lm",
        "model": model,
        "dtype": case.dtype,
        "train": "all",
        "threads": threads,
        "chat_template": False,
        "max_new_tokens": case.new_tokens,
    } | settings
    policy = causal_lm.build(CausalLMConfig.model_validate(table), seed=0)
    # Completions of equal length without touching the distribution: no token ends one. (The peer forbids end tokens
    # while sampling and scores them as possible, so its scored distribution is the whole one too.) Of uneven length:
    # one token in `mean_tokens` ends one, under random weights about geometrically.
    size = policy.weights.config.get_text_config().vocab_size
    policy.prompts.ends = tuple(range(2, size, case.mean_tokens)) if case.mean_tokens else ()
    task = Texts([{"prompt": t} for t in prompt_texts(policy.prompts.tokenizer, case.prompts, case.prompt_tokens)])
    recipe = {
        "name": "bench",
        "folder": str(folder),
        "policy": table,
        "task": {"kind": "object", "name": "bench"},
        "algorithm": {"prompts_per_step": case.prompts, "group_size": case.group, "reduction": "token_mean"},
        "optimizer": {"learning_rate": 1e-6},
        "training": {"steps": steps + 1},
    }
    return new_run(parse_recipe(recipe), policy, task), policy


@contextmanager
def _saved(policy: causal_lm.CausalLM, path: str | None) -> Iterator[None]:
    """Inside, the first update's rows, advantages and gradient by parameter name go to a file, for the peer to compute
    again."""
    accumulate = Updater.accumulate

    def kept(self: Updater, batch: Any, *given: Any, **named: Any) -> Any:
        made = accumulate(self, batch, *given, **named)
        Updater.accumulate = accumulate
        gradient = {n: p.grad for n, p in policy.trainable().named_parameters() if p.grad is not None}
        assert path is not None
        torch.save({"samples": batch.samples, "advantages": batch.advantages[:, 0], "gradient": gradient}, path)
        return made

    if path:
        Updater.accumulate = kept
    try:
        yield
    finally:
        Updater.accumulate = accumulate


if __name__ == "__main__":
    main()
