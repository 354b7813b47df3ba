"""Does choosing two demonstrations together pay? Selectors at equal numbers of scorer calls, on `kind = "composition"`.

    python bench/selection_composition.py table RULE OUT.npz [train-0:240 validation-0:60 test-0:200]
                                                              ask the frozen model once for every selection
    python bench/selection_composition.py train OUT.npz METHOD CALLS SEED FOLDER [STEPS]
    python bench/selection_composition.py every FOLDER SECONDS PROCESSES [STEPS]
                                                              every method, budget and seed, on FOLDER's tables
    python bench/selection_composition.py report OUT.npz FOLDER [--test]

A method may ask for CALLS different (training query, selection) pairs; what it asked once is free. Its checkpoint is
chosen on validation. `report --test` opens the test split, once, for all of them together. A table of
pictures: `bench/selection_pictures.py`.
"""

from __future__ import annotations

import importlib
import itertools
import json
import math
import os
import random
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from anygrpo.core.task import Stored, epoch_indices
from anygrpo.selection.rewards import reward
from anygrpo.selection.settings import CompositionConfig, RewardConfig
from anygrpo.selection.task import SelectionTask, nearest, random_selection

POOL, SHOTS = 10, 2
LEAST = 6
"""Scores of a query, at least, in a supervised file."""
SHARED: dict[Any, set[Any]] = sys.modules.setdefault("composition_calls", ModuleType("calls")).__dict__
"""Calls of a run's stages together; a module of its own, since each stage reads this file anew."""
QUERIES = ("train-0:240", "validation-0:60", "test-0:200")
"""Queries by split and numbers; a later measurement takes test numbers that no earlier one has opened."""
EVERY = [(), *((i,) for i in range(POOL)), *itertools.permutations(range(POOL), 2)]
PLACE = {selection: i for i, selection in enumerate(EVERY)}
PAIRS, SINGLES = EVERY[1 + POOL :], EVERY[1 : 1 + POOL]

NETWORK = {"hidden": 128, "width": 64, "decoder": "gru", "device": "cpu"}
METHODS: dict[str, dict[str, Any]] = {  # stages with their share of the steps
    "singles": {"policy": {"decoder": "none"}, "stages": ["rce singles .5"]},  # EPR: supervised on scored singles
    "pairs": {"stages": ["rce pairs .5"]},  # the same, on random pairs
    "reticl": {"stages": ["reinforce none 1"]},  # sequential REINFORCE with a moving baseline, the same network
    "grpo": {"stages": ["grpo none 1"]},
    "gated": {"policy": {"decoder": "gated"}, "stages": ["grpo none 1"]},
    "reuse": {"policy": {"reuse": 16}, "stages": ["reuse none 1"]},  # GRPO, earlier draws joining their groups again
    "hybrid": {"stages": ["rce singles .2", "grpo none .8"]},  # supervised singles, then GRPO for composition
}
STAGE = {
    "rce": 'method = "rce"\nalgorithm = { rce_temperature = 0.2 }',
    "grpo": 'algorithm = { group_size = 8, advantage = "centred", entropy_coef = 0.01 }',
    "reuse": """algorithm = { group_size = 8, advantage = "centred", entropy_coef = 0.01, importance = "truncate", \
importance_level = "sequence" }""",
    "reinforce": 'algorithm = { group_size = 8, advantage = "running", objective = "reinforce", entropy_coef = 0.01 }',
}


def table(rule: str, out: str, *queries: str) -> None:
    """correct and gt_prob [queries, selections], embeddings, texts, names."""
    from anygrpo.selection.composition import Composition

    config = CompositionConfig(kind="composition", rule=rule, cache=out + ".sqlite", batch_size=512)
    task = Composition(config, 0)
    spans = [re.fullmatch(r"(\w+)-(\d+):(\d+)", q) for q in queries or QUERIES]
    if None in spans:
        sys.exit(f"{queries} are not all split-from:to")
    names = [f"{m[1]}-{i}" for m in spans if m for i in range(int(m[2]), int(m[3]))]
    prompts = [task.prompt(name) for name in names]
    parts = [task.judge(prompts[i : i + 40], [EVERY] * len(prompts[i : i + 40])) for i in range(0, len(prompts), 40)]
    np.savez_compressed(
        out,
        names=np.array(names),
        correct=torch.cat([p["correct"] for p in parts]).numpy(),
        gt_prob=torch.cat([p["gt_prob"] for p in parts]).numpy(),
        query=torch.stack([p["query"] for p in prompts]).numpy(),
        candidates=torch.stack([p["candidates"] for p in prompts]).numpy(),
        texts=np.array([[p["text"], *p["texts"]] for p in prompts]),
    )


class Budgeted(SelectionTask):
    """The table as a task whose training queries answer `calls` different questions; later ones are unknown."""

    why_invalid = "the budget of scorer calls is spent"

    def __init__(self, seed: int, table: str, calls: int, stored: str = "none") -> None:
        data = np.load(table)
        self.rows = {str(name): i for i, name in enumerate(data["names"])}
        self.data = {n: torch.from_numpy(data[n]) for n in ("correct", "gt_prob", "query", "candidates")}
        self.texts = data["texts"]
        self.seed, self.size, self.shots, self.calls = seed, len(self._names("train")), SHOTS, calls
        self.reward, self.kind = RewardConfig(mode="hard01_plus_gtprob"), stored
        self.asked: set[tuple[str, Any]] = SHARED.setdefault("asked", set())
        source = SINGLES if stored == "singles" else PAIRS
        if stored != "none":  # few calls: fewer queries, since one or two scores a query compare nothing
            self.size = min(self.size, max(1, calls // LEAST))
        per_query = min(calls // self.size, len(source))
        draw = random.Random(seed)
        self.file = {f"train-{i}": draw.sample(source, per_query) for i in range(self.size)} if stored != "none" else {}

    def prompt(self, name: str) -> dict[str, Any]:
        i = self.rows[name]
        query, candidates = self.data["query"][i], self.data["candidates"][i]
        return {"id": name, "query": query, "candidates": candidates, "ids": list(range(POOL))}

    def prompts(self, step: int, count: int) -> list[dict[str, Any]]:
        return [self.prompt(f"train-{i}") for i in epoch_indices(self.size, step, count, self.seed)]

    def held_out(self) -> list[dict[str, Any]]:
        return self.split("validation")

    def split(self, name: str) -> list[dict[str, Any]]:
        return [self.prompt(query) for query in self._names(name)]

    def _names(self, split: str) -> list[str]:
        return [name for name in self.rows if name.startswith(split + "-")]

    def judge(self, prompts: list[Any], selections: list[list[Any]]) -> dict[str, torch.Tensor]:
        index = torch.tensor([[self._ask(p["id"], tuple(s)) for s in row] for p, row in zip(prompts, selections)])
        rows = torch.tensor([self.rows[p["id"]] for p in prompts])[:, None]
        known = index >= 0
        pick = lambda name: torch.where(known, self.data[name][rows, index.clamp_min(0)], torch.nan)  # noqa: E731
        return {"correct": pick("correct"), "gt_prob": pick("gt_prob")}

    def stored(self, prompts: list[Any]) -> Stored:
        actions: list[list[Any]] = [self.file[p["id"]] for p in prompts]
        parts = self.judge(prompts, actions)
        return Stored(actions, reward(parts, self.reward).tolist(), None, {n: x.tolist() for n, x in parts.items()})

    def _ask(self, name: str, selection: Any) -> int:
        if name.startswith("train"):
            if (name, selection) not in self.asked and len(self.asked) >= self.calls:
                return -1
            self.asked.add((name, selection))
        return PLACE[selection]


class Perfect(Exception):
    """All of validation is right."""


def _until_perfect() -> Any:
    """An observer that ends a run one step after the evaluation that found all right: its checkpoint is kept then."""
    perfect = False

    def watch(row: dict[str, Any], _: Any) -> None:
        nonlocal perfect
        if perfect:
            raise Perfect
        perfect = row.get("eval/accuracy") == 1.0

    return watch


def train(data: str, method: str, calls: str, seed: str, folder: str, steps: str = "400") -> None:
    from anygrpo.recipe.load import load_recipe
    from anygrpo.train.build import new_run
    from anygrpo.train.loop import train as loop

    path = Path(folder) / f"{method}-{calls}-{seed}"
    if (path / "done.json").is_file():
        return
    for other in sorted(path.parent.glob(f"{method}-*-{seed}/done.json")):
        done = json.loads(other.read_text())
        if done["asked"] < min(int(other.parent.name.split("-")[1]), int(calls)) and not done["bound"]:
            shutil.copytree(other.parent, path)  # it never came to either budget: they are one run
            return
    path.mkdir(parents=True, exist_ok=True)
    SHARED["asked"] = set()
    made = METHODS[method]
    width = np.load(data)["query"].shape[1]
    policy = {"kind": "selector", "features": width, "shots": SHOTS, "evaluation_shots": SHOTS, **NETWORK}
    lines = [f"seed = {seed}\n"]
    for i, words in enumerate(made["stages"]):
        kind, stored, share = words.split()
        count = round(float(share) * int(steps))
        arguments = {"table": str(Path(data).resolve()), "calls": int(calls), "stored": stored}
        task = f"task = {{ arguments = {{ {', '.join(f'{k} = {json.dumps(v)}' for k, v in arguments.items())} }} }}"
        lines.append(f'[[stages]]\nname = "{kind}{i}"\nsteps = {count}\n{STAGE[kind]}\n{task}\n')
    lines += ["[policy]", *(f"{k} = {json.dumps(v)}" for k, v in (policy | made.get("policy", {})).items())]
    lines += ["[task]", 'kind = "python"', f'function = "{Path(__file__).resolve()}:Budgeted"', "[task.arguments]"]
    lines += [f"{k} = {json.dumps(v)}" for k, v in arguments.items()]
    lines += ["[algorithm]", "prompts_per_step = 32", "[optimizer]"]
    lines += ['learning_rate = { kind = "cosine", start = 2e-3, end = 2e-4, warmup = 5 }', "[training]", "threads = 1"]
    lines += [
        "samples_every = 0",
        "checkpoint_every = 100000",
        "[evaluation]",
        "every = 50",
        'metric = "eval/accuracy"',
    ]
    (path / "recipe.toml").write_text("\n".join(lines) + "\n")
    run = new_run(load_recipe(path / "recipe.toml", ["--folder", str(path / "run")]))
    run.observers.append(_until_perfect())
    try:
        run.evaluate_start()
        loop(run)
    except Perfect:  # nothing after it is better
        pass
    finally:
        run.close()
    bound = made["stages"][0].split()[1] != "none"  # what it is taught by depends on the budget from the start
    row = {"validation": run.best, "asked": len(SHARED["asked"]), "best_step": run.best_step, "bound": bound}
    task = Budgeted(0, data, 0)
    for split in ("validation", "test"):  # of test the picks alone: nothing reads them before `report --test`
        np.save(path / f"{split}.npy", np.array(picks_of(path, task, split), dtype=np.uint8))
    shutil.rmtree(path / "run")
    (path / "done.json").write_text(json.dumps(row))
    print(method, calls, seed, row, flush=True)


# --- report --------------------------------------------------------------------------------------------------


def picks_of(path: Path, task: Budgeted, split: str) -> list[Any]:
    from anygrpo.core.build import build_policy
    from anygrpo.core.trained import load_state
    from anygrpo.recipe.load import load_recipe
    from anygrpo.selection.evaluation import greedy
    from anygrpo.train import checkpoint

    recipe = load_recipe(path / "run" / "config.toml")
    policy = build_policy(recipe.policy, recipe.seed)
    load_state(policy.trainable(), checkpoint.load(path / "run" / "checkpoints" / "best")[0])
    prompts = task.split(split)
    picks = greedy(policy, prompts)
    if not path.name.startswith("singles"):
        return [picks]
    return [picks, diverse(policy, task, prompts, split)]


def diverse(policy: Any, task: Budgeted, prompts: list[Any], split: str) -> list[Any]:
    """CEIL: greedy MAP of a DPP with the singles' scores as quality; its trade-off chosen on validation."""

    def choose(prompts: list[Any], weight: float) -> list[Any]:
        out = []
        for p, row in zip(prompts, scores(policy, prompts)):
            x = torch.nn.functional.normalize(p["candidates"], dim=-1)
            quality = torch.tensor(row).mul(weight).exp()
            kernel = quality[:, None] * (x @ x.T) * quality[None]
            first = int(kernel.diagonal().argmax())
            rest = kernel.diagonal() - kernel[first] ** 2 / kernel[first, first]
            rest[first] = -math.inf
            out.append((first, int(rest.argmax())))
        return out

    held = task.split("validation")
    accuracy = lambda w: float(task.judge(held, [[s] for s in choose(held, w)])["correct"].mean())  # noqa: E731
    return choose(prompts, max((0.0, 0.05, 0.1, 0.2, 0.5, 1.0), key=accuracy))


def scores(policy: Any, prompts: list[Any]) -> list[list[float]]:
    from anygrpo.core.tree import tree_map

    samples = tree_map(lambda x: x.flatten(0, 1), policy.greedy(prompts).samples)
    return policy.first_pick(samples)[:, :POOL].log().tolist()


def bm25(task: Budgeted, prompts: list[Any], k1: float = 1.5, b: float = 0.75) -> list[Any]:
    out = []
    for p in prompts:
        query, *pool = ([w.strip(".=") for w in text.split()] for text in task.texts[task.rows[p["id"]]])
        mean = sum(map(len, pool)) / len(pool)
        df = {w: sum(w in d for d in pool) for w in query}
        idf = {w: math.log(1 + (len(pool) - n + 0.5) / (n + 0.5)) for w, n in df.items()}
        score = [
            sum(idf[w] * d.count(w) * (k1 + 1) / (d.count(w) + k1 * (1 - b + b * len(d) / mean)) for w in query if w)
            for d in pool
        ]
        out.append(tuple(sorted(range(len(pool)), key=lambda i: -score[i])[:SHOTS]))
    return out


def jobs(folder: Path, steps: str) -> list[list[str]]:
    """Small budgets first, seed by seed: whenever it ends, what is done is a whole comparison of some seeds."""
    tables = [folder / f"{name}.npz" for name in ("codes", "pictures", "hops")]
    return [
        [str(table), method, str(calls), str(seed), str(folder / table.stem), steps]
        for calls in (10000, 2500, 150000, 30000)
        for seed in range(5)
        for table in tables
        for method in METHODS
        if table.is_file() and (calls == 10000 or method not in ("gated", "hybrid"))
    ]


def every(folder: str, seconds: str, processes: str, steps: str = "500") -> None:
    """Trains until `seconds` are over; each process is a fork that takes the next job."""
    for module in ("selection.policy", "train.build", "train.loop"):
        importlib.import_module(f"anygrpo.{module}")  # once, before the forks
    torch.set_num_threads(1)
    until, waiting, running = time.monotonic() + float(seconds), jobs(Path(folder), steps), {}
    while (waiting or running) and time.monotonic() < until:
        while waiting and len(running) < int(processes):
            job = waiting.pop(0)
            child = os.fork()
            if not child:
                code = 1
                try:
                    train(*job)
                    code = 0
                finally:
                    os._exit(code)
            running[child] = job
        done, status = os.waitpid(-1, os.WNOHANG)
        if done:
            job = running.pop(done)
            print(f"{time.monotonic() - until:.0f} s", *job[1:4], Path(job[0]).stem, status, flush=True)
        else:
            time.sleep(0.05)
    for child in running:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def report(data: str, folder: str, *flags: str) -> None:
    split = "test" if "--test" in flags else "validation"
    task = Budgeted(0, data, 0)
    prompts = task.split(split)
    right = lambda picks: task.judge(prompts, [[s] for s in picks])["correct"][:, 0].double()  # noqa: E731
    rows = {
        "random": torch.stack(
            [right([random_selection(p, 2, 1000 * d + i) for i, p in enumerate(prompts)]) for d in range(20)]
        ),
        "nearest": right([nearest(p, 2) for p in prompts])[None],
        "bm25": right(bm25(task, prompts))[None],
    }
    every = task.judge(prompts, [EVERY] * len(prompts))["correct"].double()
    lines = {
        f"oracle, {k}": float(every[:, :n].max(1).values.mean()) for k, n in ((0, 1), (1, 1 + POOL), (2, len(EVERY)))
    }
    lists: dict[str, float] = {}
    for path in sorted(Path(folder).glob("*-*-*")):
        if (path / "done.json").is_file():
            method, calls, _ = path.name.split("-")
            kept = [[tuple(pair) for pair in row] for row in np.load(path / f"{split}.npy").tolist()]
            for name, picks in zip((method, "dpp"), kept):
                key = f"{name} {int(calls):6d}"
                rows[key] = torch.cat([rows[key], right(picks)[None]]) if key in rows else right(picks)[None]
                lists[key] = lists.get(key, 0) + len(set(picks))
    print(json.dumps(lines))
    for name, x in rows.items():
        by_seed = [round(float(v), 3) for v in x.mean(1)][:5]
        print(
            f"{name:16s} {float(x.mean()):.3f} +- {error(x):.3f}  seeds {by_seed}  "
            f"different lists {lists.get(name, 0) / len(x):.0f}"
        )
    for mine in [name for name in rows if name.split()[0] in OURS]:
        for name, x in rows.items():
            if name.split()[0] not in OURS and name.split()[1:] in ([], mine.split()[1:]):
                gap, se = float(rows[mine].mean() - x.mean()), error(rows[mine], x)
                print(f"{mine} - {name:16s} {gap:+.3f} +- {se:.3f}  {'above' if gap > 2 * se else 'not shown'}")
    np.savez_compressed(Path(folder) / f"{split}.npz", **{k: x.numpy() for k, x in rows.items()})


OURS = ("grpo", "reuse")


def error(a: torch.Tensor, b: torch.Tensor | None = None) -> float:
    """Standard error of the mean of a [seeds, queries], or of its difference to b on the same queries: the variance
    over queries of the seeds' means, and that of the seeds on either side."""
    over_queries = a.mean(0) if b is None else a.mean(0) - b.mean(0)
    sides = [x for x in (a, b) if x is not None and len(x) > 1]
    seeds = sum(float(x.mean(1).var(correction=1)) / len(x) for x in sides)
    return math.sqrt(float(over_queries.var(correction=1)) / a.shape[1] + seeds)


if __name__ == "__main__":
    {"table": table, "train": train, "every": every, "report": report}[sys.argv[1]](*sys.argv[2:])
