"""Real runs that learn when nobody acts are left alone by a doctor that may act: no false intervention."""

from __future__ import annotations

import json
import os
import random
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from runs import table

from anygrpo.recipe.load import parse_recipe
from anygrpo.train.build import new_run
from anygrpo.watch.session import go

STEPS = 60
USUAL = {"RUNS": "300", "FIRST": "0", "JOBS": "1"}
KINDS: list[dict[str, Any]] = [
    {}, {"epochs": 2}, {"epochs": 2, "minibatches": 2}, {"objective": "gspo"}, {"objective": "reinforce"},
    {"objective": "cispo"}, {"objective": "sapo"}, {"advantage": "leave_one_out"}, {"advantage": "centred"},
    {"beta": 0.05}, {"preset": "dapo"}, {"preset": "dr_grpo"}, {"advantage": "rank"}, {"epochs": 3, "beta": 0.01},
]  # fmt: skip
"""Of [algorithm]: what people train with."""


def settings(seed: int) -> dict[str, Any]:
    """A sensible recipe drawn from `seed`."""
    rng = random.Random(seed)
    algorithm = {"prompts_per_step": rng.choice([8, 16, 32]), "group_size": rng.choice([4, 8, 16])} | rng.choice(KINDS)
    ahead = 0 if algorithm.get("objective") == "reinforce" else rng.choice([0, 0, 0, 1])  # it has no ratio
    training = {"steps": STEPS, "checkpoint_every": 10, "off_policy_steps": ahead}
    rate = 10 ** rng.uniform(-2.5, -1.3)
    cosine = {"kind": "cosine", "start": rate, "end": rate / 10, "warmup": 5}
    return {"seed": seed, "algorithm": algorithm, "training": training,
            "optimizer": {"learning_rate": rng.choice([rate, cosine])}}  # fmt: skip


def outcome(seed: int, mode: str) -> tuple[float, list[str]]:
    """Gain in reward from the first to the last ten steps, and what the doctor did."""
    torch.set_num_threads(1)
    with TemporaryDirectory() as place:
        run = new_run(parse_recipe(table(Path(place) / "run", **settings(seed), doctor={"mode": mode})))
        rewards: list[float] = []
        run.observers.append(lambda row, _: rewards.append(row["reward/mean"]) if row["step"] >= 0 else None)
        go(run, quiet=True)
        log = (Path(place) / "run" / "doctor.json").read_text() if mode != "off" else "{}"
    done = [f"step {a['step']}: {a['kind']} for {a['rule']}" for a in json.loads(log).get("actions", [])]
    return sum(rewards[-10:]) / 10 - sum(rewards[:10]) / 10, done


def both(seed: int) -> tuple[float, list[str]]:
    """The gain with nobody acting, and what the doctor did to the same run."""
    return outcome(seed, "off")[0], outcome(seed, "act")[1]


def test_every_kind_and_every_draw_is_a_recipe(tmp_path):
    for kind in KINDS:
        parse_recipe(table(tmp_path / "run", algorithm={"prompts_per_step": 8, "group_size": 4} | kind))
    for seed in range(int(USUAL["RUNS"])):
        parse_recipe(table(tmp_path / "run", **settings(seed)))


def test_a_few_healthy_runs_are_left_alone():
    for seed in range(2):
        assert outcome(seed, "act")[1] == []


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_300_runs_that_learn_are_left_alone():
    """Another count, other seeds, and more processes: `RUNS=40 FIRST=100 JOBS=8`; with -s a line as each ends."""
    count, first, jobs = (int(os.environ.get(key, usual)) for key, usual in USUAL.items())
    seeds, ended = range(first, first + count), {}
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waited = {pool.submit(both, seed): seed for seed in seeds}
        for one in as_completed(waited):
            gain, done = ended[waited[one]] = one.result()
            print(f"seed {waited[one]} gain {gain:.3f} acts {done}", flush=True)
    made = {seed: ended[seed] for seed in seeds}
    learnt = [(seed, done) for seed, (gain, done) in made.items() if gain > 0.05]
    gains = sorted(round(gain, 2) for gain, _ in made.values())
    print(f"{len(learnt)} of {count} learn when left alone; gains {gains}")
    print("those that do not, and were acted on:", [(s, d) for s, (g, d) in made.items() if g <= 0.05 and d])
    assert len(learnt) > 0.8 * count
    assert [(seed, settings(seed), done) for seed, done in learnt if done] == []
