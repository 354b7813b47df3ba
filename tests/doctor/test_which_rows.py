"""A log that holds rows of several shapes or lists: those of training are taken, not the first and not the longest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anygrpo.doctor import diagnose_log, read
from anygrpo.doctor.columns import Columns, build
from anygrpo.doctor.log import flatten
from anygrpo.doctor.synthetic import healthy

N = 60


def reward(i: int) -> float:
    return round(0.3 + 0.005 * i, 4)


def built(tmp_path: Path, text: str, name: str = "x.log") -> Columns:
    (tmp_path / name).write_text(text)
    return build(read(tmp_path / name))


def values(run: Columns, name: str) -> list[float]:
    found = run.get(name)
    return list(found.values) if found else []


PAIRS = [f"step {i}: reward={reward(i)}, kl=0.01" for i in range(N)]


@pytest.mark.parametrize("last", ["{'reward': 0.9, 'kl': 0.5}", "result: {'eval_reward': 0.4, 'eval_kl': 0.1}"])
def test_a_last_dict_does_not_stand_for_the_run(tmp_path: Path, last: str) -> None:
    assert values(built(tmp_path, "\n".join([*PAIRS, last])), "reward/mean") == [reward(i) for i in range(N)]


def test_a_box_at_the_end_does_not_stand_for_the_run(tmp_path: Path) -> None:
    box = "| metric | value |\n|---|---|\n| reward | 0.9 |\n| kl | 0.5 |"
    assert values(built(tmp_path, "\n".join([*PAIRS, box])), "reward/mean") == [reward(i) for i in range(N)]


def test_evaluations_in_dicts_go_between_the_pairs(tmp_path: Path) -> None:
    lines = [
        text
        for i, p in enumerate(PAIRS)
        for text in (p, *([f"{{'step': {i}, 'eval_reward': 0.5}}"] if i % 20 == 0 else []))
    ]
    run = built(tmp_path, "\n".join(lines))
    assert values(run, "reward/mean") == [reward(i) for i in range(N)]
    assert list(run.evals["reward"].values) == [0.5] * 3


def test_printed_samples_do_not_outvote_the_dicts(tmp_path: Path) -> None:
    lines = [
        text
        for i in range(N // 6)
        for text in (
            *[f"sample {k}: reward=1.0, score=0.0" for k in range(12)],
            f"{{'reward': {reward(i)}, 'kl': 0.01}}",
        )
    ]
    assert values(built(tmp_path, "\n".join(lines)), "reward/mean") == [reward(i) for i in range(N // 6)]


def test_the_list_of_training_and_not_of_samples(tmp_path: Path) -> None:
    data = {
        "samples": [{"reward": 1.0, "length": 7} for _ in range(300)],
        "eval_history": [{"step": i, "reward": 0.9, "kl": 0.1, "loss": 0.2} for i in range(2 * N)],
        "history": [{"step": i, "reward": reward(i), "kl": 0.01} for i in range(N)],
    }
    for shape in (data, {"meta": {"n": 3}, "run": data}):
        assert values(built(tmp_path, json.dumps(shape), "x.json"), "reward/mean") == [reward(i) for i in range(N)]


def test_the_first_of_equal_lists_as_before(tmp_path: Path) -> None:
    rows = [{"step": i, "reward": reward(i)} for i in range(N)]
    run = built(tmp_path, json.dumps({"history": rows, "copy": [row | {"reward": 0.1} for row in rows]}), "x.json")
    assert values(run, "reward/mean") == [reward(i) for i in range(N)]


@pytest.mark.parametrize(
    "name",
    [
        "completion",
        "prompt",
        "Response",
        "eval/last_output",
        "answer_0",
        "config",
        "trainer.args",
        "toolCall",
        "messages",
    ],
)
def test_what_the_policy_wrote_or_the_run_was_set_to_is_no_metric(name: str) -> None:
    row = {"step": 1, "reward": 0.5, name: '{"grad_norm": 0.0, "score": 3}'}
    assert flatten(row) == {"step": 1.0, "reward": 0.5}


@pytest.mark.parametrize("name", ["metrics", "train", "logs", "stats"])
def test_a_dict_that_a_logger_printed_into_a_value_is_read(name: str) -> None:
    assert flatten({name: "{'grad_norm': 0.25}"}) == {f"{name}/grad_norm": 0.25}


def test_a_completion_that_is_json_does_not_decide(tmp_path: Path) -> None:
    kept = ("step", "reward", "reward_std", "learning_rate")
    said = {"completion": '{"grad_norm": 0.0, "score": 3}'}
    lines = [json.dumps({k: row[k] for k in kept} | said) for row in healthy()]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    found = diagnose_log(read(tmp_path / "log.jsonl"))
    assert (found.verdict, "grad_norm/total" in found.run.series) == ("no_objection", False)
