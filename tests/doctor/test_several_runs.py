"""Tables and folders that hold several runs, or look so: no run is written over by another, none is invented."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from anygrpo.doctor import read
from anygrpo.doctor.columns import Columns, build
from anygrpo.doctor.readers.detect import read_all
from anygrpo.errors import DataError

N = 12


def reward(i: int) -> float:
    return round(0.3 + 0.02 * i, 4)


def values(run: Columns, name: str) -> list[float]:
    found = run.get(name)
    return list(found.values) if found else []


def table(folder: Path, head: str, line: Callable[[int], str], name: str = "x.csv") -> Path:
    path = folder / name
    path.write_text(head + "\n" + "\n".join(line(i) for i in range(N)) + "\n")
    return path


def test_dashes_in_names_are_no_runs(tmp_path: Path) -> None:
    path = table(tmp_path, "step,reward-mean,reward-std,kl-ref,loss-policy", lambda i: f"{i},{reward(i)},0.2,0.01,0.3")
    (log,) = read_all(path)
    run = build(log)
    assert values(run, "reward/mean") == [reward(i) for i in range(N)]
    assert values(run, "kl/reference") == [0.01] * N
    assert values(run, "loss/policy") == [0.3] * N


def test_the_step_of_a_long_table_is_not_its_epoch(tmp_path: Path) -> None:
    path = table(tmp_path, "epoch,step,metric,value", lambda i: f"{i // 4},{i},reward,{reward(i)}")
    run = build(read(path))
    assert values(run, "reward/mean") == [reward(i) for i in range(N)]
    assert list(run.steps.values()) == list(range(N))


@pytest.mark.parametrize("head", ["run,step,metric,value", "name,step,metric,value"])
def test_the_runs_of_a_long_table_stay_apart(tmp_path: Path, head: str) -> None:
    path = table(tmp_path, head, lambda i: f"a,{i},reward,{reward(i)}\nb,{i},reward,{reward(i) / 2}")
    logs = read_all(path)
    assert [log.source.rsplit(": ", 1)[1] for log in logs] == ["a", "b"]
    assert values(build(logs[0]), "reward/mean") == [reward(i) for i in range(N)]
    assert values(build(logs[1]), "reward/mean") == [reward(i) / 2 for i in range(N)]
    with pytest.raises(DataError, match=r"2 runs \(a, b\)"):
        read(path)


def test_seeds_are_runs_and_words_beside_one_run_are_none(tmp_path: Path) -> None:
    seeds = table(tmp_path, "seed,step,metric,value", lambda i: f"0,{i},reward,{reward(i)}\n1,{i},reward,0.5")
    assert len(read_all(seeds)) == 2
    kinds = table(tmp_path, "kind,step,metric,value", lambda i: f"r,{i},reward,{reward(i)}\nk,{i},kl,0.01", "y.csv")
    (log,) = read_all(kinds)
    assert values(build(log), "reward/mean") == [reward(i) for i in range(N)]
    assert values(build(log), "kl/reference") == [0.01] * N


def test_a_split_goes_before_the_metric(tmp_path: Path) -> None:
    path = table(
        tmp_path, "step,split,metric,value", lambda i: f"{i},train,reward,{reward(i)}\n{i},eval,reward,{reward(i) / 2}"
    )
    (log,) = read_all(path)
    run = build(log)
    assert values(run, "reward/mean") == [reward(i) for i in range(N)]
    assert list(run.evals["reward"].values) == [reward(i) / 2 for i in range(N)]


def test_a_number_that_came_twice_is_noted(tmp_path: Path) -> None:
    path = table(tmp_path, "step,metric,value", lambda i: f"{i},reward,0.1\n{i},reward,{reward(i)}")
    log = read(path)
    assert values(build(log), "reward/mean") == [reward(i) for i in range(N)]
    assert any(f"{N} numbers came twice" in note for note in log.notes)


def test_a_log_beside_a_table_of_something_else_is_read(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("\n".join(json.dumps({"step": i, "reward": reward(i)}) for i in range(N)))
    (tmp_path / "confusion.json").write_text("[[1, 2, 3], [4, 5, 6], [7, 8, 9]]")
    assert values(build(read(tmp_path)), "reward/mean") == [reward(i) for i in range(N)]


def test_tags_of_unknown_names_are_still_a_log(tmp_path: Path) -> None:
    (tmp_path / "glork.json").write_text(json.dumps([[1.7e9 + i, i, reward(i)] for i in range(N)]))
    run = build(read(tmp_path), {"reward": "glork"})
    assert values(run, "reward/mean") == [reward(i) for i in range(N)]


@pytest.mark.parametrize("name", ["run-{}-tag-reward.csv", "{}/reward.csv", "{}/metrics/train/reward"])
def test_the_exports_of_two_runs_stay_apart(tmp_path: Path, name: str) -> None:
    for run, part in (("a", 1.0), ("b", 0.5)):
        path = tmp_path / name.format(run)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix:
            rows = "".join(f"{1.7e9 + i},{i},{reward(i) * part}\n" for i in range(N))
            path.write_text("Wall time,Step,Value\n" + rows)
        else:
            path.write_text("".join(f"{1700000000000 + i} {reward(i) * part} {i}\n" for i in range(N)))
    logs = read_all(tmp_path)
    assert [log.source.rsplit(": ", 1)[1] for log in logs] == ["a", "b"]
    assert [values(build(log), "reward/mean")[-1] for log in logs] == [reward(N - 1), reward(N - 1) / 2]
    with pytest.raises(DataError, match=r"2 runs \(a, b\)"):
        read(tmp_path)


def test_writers_of_one_run_are_one_run(tmp_path: Path) -> None:
    for name, x in (("run-train-tag-reward.csv", 0.4), ("run-loss-tag-kl.csv", 0.01)):
        (tmp_path / name).write_text("Wall time,Step,Value\n" + "".join(f"{1.7e9 + i},{i},{x}\n" for i in range(N)))
    (log,) = read_all(tmp_path)
    run = build(log)
    assert values(run, "reward/mean") == [0.4] * N
    assert values(run, "kl/reference") == [0.01] * N


def test_a_row_with_a_name_and_a_value_keeps_its_metrics(tmp_path: Path) -> None:
    rows = [{"name": "grpo-1", "step": i, "value": 0.7, "reward": reward(i), "kl": 0.01} for i in range(N)]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run = build(read(tmp_path / "x.jsonl"))
    assert values(run, "reward/mean") == [reward(i) for i in range(N)]
    assert values(run, "kl/reference") == [0.01] * N


def test_rows_of_two_runs_under_each_other(tmp_path: Path) -> None:
    table(tmp_path, "run,step,reward,kl", lambda i: f"a,{i},{reward(i)},0.01\nb,{i},{reward(i) / 2},0.02", "wide.csv")
    table(
        tmp_path,
        "run\tstep\tmetric\tvalue",
        lambda i: f"a\t{i}\treward\t{reward(i)}\nb\t{i}\treward\t{reward(i) / 2}",
        "long.tsv",
    )
    pairs = [(run, i, reward(i) * part) for i in range(N) for run, part in (("a", 1.0), ("b", 0.5))]
    wide = [json.dumps({"run": run, "step": i, "reward": x, "kl": 0.01}) for run, i, x in pairs]
    (tmp_path / "wide.jsonl").write_text("\n".join(wide))
    long = [json.dumps({"run": run, "step": i, "metric": "reward", "value": x}) for run, i, x in pairs]
    (tmp_path / "long.jsonl").write_text("\n".join(long))
    for name in ("wide.csv", "long.tsv", "wide.jsonl", "long.jsonl"):
        logs = read_all(tmp_path / name)
        assert [log.source.rsplit(": ", 1)[1] for log in logs] == ["a", "b"], name
        assert [values(build(log), "reward/mean") for log in logs] == [
            [reward(i) for i in range(N)],
            [reward(i) / 2 for i in range(N)],
        ], name


def test_a_seed_of_its_own_each_step_and_a_table_of_samples_are_one_run(tmp_path: Path) -> None:
    seeds = table(tmp_path, "seed,step,reward", lambda i: f"{i % 3},{i},{reward(i)}", "seeds.csv")
    samples = table(tmp_path, "seed,step,reward", lambda i: f"1,{i},0.1\n1,{i},0.2\n2,{i},0.3\n2,{i},0.4", "rows.csv")
    assert [len(read_all(path)) for path in (seeds, samples)] == [1, 1]


def test_runs_that_logged_unlike_metrics(tmp_path: Path) -> None:
    path = table(tmp_path, "step,reward-a,reward-b,kl-a", lambda i: f"{i},{reward(i)},0.5,0.01")
    first, second = map(build, read_all(path))
    assert (values(first, "kl/reference"), second.get("kl/reference")) == ([0.01] * N, None)


@pytest.mark.parametrize(
    ("head", "line"),
    [
        ("step,a - reward,a - kl,b - reward,b - kl", "{i},{r},0.01,0.9,0.02"),
        ("run,step,reward,kl", "a,{i},{r},0.01\nb,{i},0.9,0.02"),
    ],
    ids=["a column a run", "rows under each other"],
)
def test_one_log_is_never_two_runs_mixed(tmp_path: Path, head: str, line: str) -> None:
    """`read` gives one log: of two runs it gives none."""
    path = table(tmp_path, head, lambda i: line.format(i=i, r=reward(i)))
    assert len(read_all(path)) == 2
    with pytest.raises(DataError, match="2 runs"):
        read(path)


def test_rows_of_two_runs_as_objects_are_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    rows = [{"run": run, "step": i, "reward": reward(i), "kl": 0.01} for run in "ab" for i in range(N)]
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(DataError, match="2 runs"):
        read(path)
