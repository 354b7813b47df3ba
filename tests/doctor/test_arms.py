"""Bare rates and logs side by side."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from anygrpo.cli.main import main
from anygrpo.doctor import diagnose
from anygrpo.doctor.arms import against, arms, arms_text, rates, rates_text, seeds_needed, welch
from anygrpo.doctor.columns import Columns, build
from anygrpo.doctor.log import Log
from anygrpo.doctor.seeds import grouped
from anygrpo.doctor.student_t import t_quantile
from anygrpo.doctor.synthetic import healthy, line
from anygrpo.errors import ConfigError


def test_a_half_point_on_800_questions_is_not_shown() -> None:
    """.578 against .573: se of the difference sqrt((.2439 + .2447) / 800) = .0247."""
    found = rates(0.578, 0.573, 800)
    assert found["standard_error"] == pytest.approx(0.02471, abs=1e-5)
    assert not found["shown"]
    assert found["questions_needed"] == pytest.approx(2 * 0.5755 * 0.4245 * (2.8 / 0.005) ** 2, rel=1e-3)
    assert "看不出" in rates_text(found, "zh")
    assert rates(0.6, 0.4, 800)["shown"]
    with pytest.raises(ConfigError):
        rates(57.8, 57.3, 800)


@pytest.mark.parametrize(("a", "b", "n", "p"), [(1, 0, 1, 1), (1, 0, 2, 1 / 3), (1, 0, 4, 2 / 70), (3, 1, 4, 34 / 70)])
def test_exact_p_by_hand(a: int, b: int, n: int, p: float) -> None:
    """All right ones on one side: 2 of C(2n, n) ways. The lady who tasted tea, 3 of 4: 2 x 17 / 70."""
    share = (a / n, b / n) if a > 1 else (a, b)
    found = rates(*share, n)
    assert found["p"] == pytest.approx(p)
    assert rates(*reversed(share), n)["p"] == pytest.approx(p)
    assert found["shown"] == (p < 0.05)


def test_intervals_of_extreme_rates_have_a_width() -> None:
    """Wilson of 10/10 is [1 / (1 + 3.8415 / 10), 1] = [.7225, 1]; 1 - 0: 1 - hypot(.2775, .2775) = .6075."""
    assert rates(1, 0, 10)["interval"] == [pytest.approx(0.6075, abs=1e-4), pytest.approx(1.0)]
    low, high = rates(1, 1, 5)["interval"]
    assert low == pytest.approx(-high)
    assert high == pytest.approx(0.4345, abs=1e-3)
    assert rates(0, 0, 5)["p"] == 1
    wide = rates(0.3, 0.2, 10**7)
    assert wide["p"] == 0
    assert wide["interval"] == [pytest.approx(0.1 - 1.96 * 1.924e-4, abs=1e-6), pytest.approx(0.1003771, abs=1e-6)]


def test_equal_rates_of_few_questions_are_told_apart_in_at_most_one_of_twenty() -> None:
    rng = random.Random(3)
    drawn = [sum(rng.random() < 0.9 for _ in range(12)) / 12 for _ in range(4000)]
    assert sum(rates(a, b, 12)["shown"] for a, b in zip(drawn[::2], drawn[1::2])) <= 100


def test_runs_that_part_half_way_are_told_apart_there() -> None:
    one = diagnose(healthy(200, reward=line(0.4, 0.5)), format="jsonl").run
    two = diagnose(healthy(200, reward=lambda t: 0.4 + 0.1 * t + (0.2 if t > 0.5 else 0)), format="jsonl").run
    same = diagnose(healthy(200, noise=0.021, reward=line(0.4, 0.5)), format="jsonl").run
    measured = arms([one, two, same])["measures"]["reward/mean"]
    assert measured[1]["shown"]
    assert 95 <= measured[1]["parts_at"] <= 115
    assert not measured[2]["shown"]
    assert "reward/mean" in arms_text(arms([one, two, same]), "zh")


def of(source: str, **settings: Any) -> Columns:
    return build(Log(source, "jsonl", [{"step": 1.0, "reward": 0.5}], settings=settings))


@pytest.mark.parametrize(
    ("sources", "arms_found", "how"),
    [
        (["r/base_seed1.jsonl", "r/base_seed2.jsonl", "r/new_seed1.jsonl"], ["base", "new"], "names"),
        (["base-s1/log.txt", "base-s2/log.txt", "new-s1/log.txt", "new-s2/log.txt"], ["base", "new"], "names"),
        (["a/1.log", "a/2.log", "b/1.log", "b/2.log"], ["a", "b"], "names"),
        (["lr_1e-6_1.log", "lr_1e-6_2.log", "lr_1e-7_1.log", "lr_1e-7_2.log"], ["lr_1e-6", "lr_1e-7"], "names"),
        (["x_20260101_101112.log", "x_20260102_090807.log", "y_20260103_010203.log"], ["x", "y"], "names"),
        (["w/a/p/state.json", "w/a/q/state.json", "w/b/p/state.json", "w/b/r/state.json"], ["a", "b"], "folders"),
        (["t.csv: grpo-1", "t.csv: grpo-2", "t.csv: ppo-1", "t.csv: ppo-2"], ["grpo", "ppo"], "names"),
        (["one.log", "two.log"], ["one", "two"], "each run by itself"),
        (["lr_1e-6.log", "lr_1e-7.log"], ["lr_1e-6", "lr_1e-7"], "each run by itself"),
        (
            [f"{a}_seed{i}.jsonl" for a in ("kl0.04", "kl0.1", "clip0.2", "clip0.28") for i in (1, 2)],
            ["kl0.04", "kl0.1", "clip0.2", "clip0.28"],
            "names",
        ),
        (["seed1_kl0.04", "seed2_kl0.04", "seed1_kl0.1", "seed2_kl0.1"], ["kl0.04", "kl0.1"], "names"),
        (["kl0.04/1", "kl0.04/2", "kl0.1/1", "kl0.1/2"], ["kl0.04", "kl0.1"], "names"),
        (["a/kl-0.04", "b/kl-0.04", "a/kl-0.1", "b/kl-0.1"], ["a", "b"], "folders"),
        (["kl0.04.log", "kl0.1.log", "kl1.5"], ["kl0.04", "kl0.1", "kl1.5"], "each run by itself"),
        (["x.1.log", "x.2.log", "y.1.log", "y.2.log"], ["x", "y"], "names"),
        (["x-1.log.1", "x-2.log.gz", "y-1.jsonl.12", "y-2.out.gz"], ["x", "y"], "names"),
    ],
)
def test_arms_are_found_by_names_and_folders(sources: list[str], arms_found: list[str], how: str) -> None:
    found, by = grouped([of(s) for s in sources])
    assert (list(found), by) == (arms_found, how)


def test_groups_and_settings_come_before_names_and_what_is_stated_before_all() -> None:
    runs = [of(f"x{i}.log", **{"wandb.group": g}) for i, g in enumerate("aabb")]
    assert grouped(runs)[0] == {"a": [0, 1], "b": [2, 3]}
    common = {"model": "m", "beta": 0.0, "output_dir": "o"}
    runs = [of(f"{c}.log", **common, seed=i, lr=lr) for c, i, lr in zip("pqrs", (1, 2, 1, 2), (1e-6, 1e-6, 5e-6, 5e-6))]
    assert grouped(runs) == ({"lr=1e-06": [0, 1], "lr=5e-06": [2, 3]}, "settings")
    assert grouped(runs, ["u", "v", "v", "v"]) == ({"u": [0], "v": [1, 2, 3]}, "stated")
    with pytest.raises(ConfigError, match="one arm"):
        grouped(runs, ["u"] * 4)


@pytest.mark.parametrize(
    ("key", "one", "two"),
    [
        ("group_size", 4, 16),
        ("lora_rank", 8, 64),
        ("model_name_or_path", "a/small", "a/large"),
        ("data_path", "math", "code"),
        ("actor_rollout_ref.model.path", "small", "large"),
        ("dataset.name", "math", "code"),
        ("trainer.max_steps", 100, 200),
        ("warmup_time", 1, 2),
        ("reward_group", "strict", "loose"),
    ],
)
def test_settings_whose_names_hold_a_word_of_places_still_part_arms(key: str, one: Any, two: Any) -> None:
    apart = [
        {
            "seed": 1,
            "data_seed": 7,
            "run_name": "p",
            "output_dir": "o/p",
            "port": 1,
            "wandb.name": "p",
            "local_rank": 0,
        },
        {
            "seed": 2,
            "data_seed": 8,
            "run_name": "q",
            "output_dir": "o/q",
            "port": 2,
            "wandb.name": "q",
            "local_rank": 1,
        },
    ]
    runs = [of(f"{c}.log", lr=1e-6, **row, **{key: x}) for c, row, x in zip("pqrs", apart * 2, (one, one, two, two))]
    assert grouped(runs) == ({f"{key}={one}": [0, 1], f"{key}={two}": [2, 3]}, "settings")


@pytest.mark.parametrize(
    "key",
    [
        "trainer.experiment_name",
        "trainer.default_local_dir",
        "logging_dir",
        "args.seed",
        "env.random_seed",
        "group",
        "MASTER_PORT",
        "name",
        "hostname",
        "run_id",
        "job_type",
        "--output-dir",
        "checkpoint_dir",
        "start_time",
        "id",
    ],
)
def test_settings_that_tell_one_run_from_another_part_no_arms(key: str) -> None:
    common = {"seed": 1, "model": "m", "beta": 0.0}
    runs = [of(f"{c}.log", **common, lr=lr, **{key: c}) for c, lr in zip("pqrs", (1e-6, 1e-6, 5e-6, 5e-6))]
    assert grouped(runs) == ({"lr=1e-06": [0, 1], "lr=5e-06": [2, 3]}, "settings")


def test_student_against_tables() -> None:
    for freedom, level, value in ((1, 0.975, 12.7062), (4, 0.975, 2.77645), (9, 0.995, 3.24984), (30, 0.8, 0.85377)):
        assert t_quantile(freedom, level) == pytest.approx(value, rel=1e-5)
    assert t_quantile(float("inf")) == pytest.approx(1.959964, abs=1e-6)


def test_welch_by_hand() -> None:
    """Variances 1 and 4 of three each: se = sqrt(5/3), freedom = (5/3)^2 / ((1/3)^2 / 2 + (4/3)^2 / 2) = 2.941."""
    error, freedom = welch([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
    assert error == pytest.approx((5 / 3) ** 0.5)
    assert freedom == pytest.approx(2.941, abs=1e-3)
    assert welch([1.0, 2.0, 3.0], [9.0]) == (pytest.approx((4 / 3) ** 0.5), 2.0)


def runs_of_seeds(gap: float, seed: int, between: float = 0.02) -> tuple[list[Columns], list[Columns]]:
    rng = random.Random(seed)
    sides = []
    for shift in (0.0, gap):
        level = [0.4 + shift + rng.gauss(0, between) for _ in range(3)]
        sides.append(
            [
                build(Log(str(x), "jsonl", [{"step": float(i), "reward": x + rng.gauss(0, 0.01)} for i in range(40)]))
                for x in level
            ]
        )
    return sides[0], sides[1]


def test_over_seeds_equal_arms_are_told_apart_in_one_of_twenty() -> None:
    """Rows alone would tell them apart nearly always: within a run the noise is half of that between seeds."""
    wrong = rows_wrong = 0
    for seed in range(200):
        a, b = runs_of_seeds(0.0, seed)
        sides = [[(r, s) for r in side if (s := r.get("reward/mean"))] for side in (a, b)]
        found = against(sides[0], sides[1])
        wrong += found["shown"]
        rows_wrong += against(sides[0][:1], sides[1][:1])["shown"]
        assert found["covers"] == "seeds"
    assert wrong <= 18  # .05 x 200 and two standard errors
    assert rows_wrong > 100


def test_seeds_needed_by_hand() -> None:
    """A deviation of .02. 17 seeds: t(32) has 2.0369 and .8530, and 2.8899 x .02 x sqrt(2 / 17) = .01982, under .02;
    16 seeds: t(30) has 2.0423 and .8538, and 2.8961 x .02 x sqrt(2 / 16) = .02048, over it."""
    levels = [0.38, 0.40, 0.42]
    assert seeds_needed(0.02, [levels] * 2, 1) == 17
    assert seeds_needed(-0.02, [levels] * 2, 1) == 17
    assert seeds_needed(0.02, [levels, [0.9]], 1) == 17  # one run alone has no spread
    assert seeds_needed(0.02, [levels] * 2, 3) == 23  # three pairs at once
    assert seeds_needed(1e-6, [levels] * 2, 1) is None


def test_a_difference_that_three_seeds_do_not_show() -> None:
    """.02 with an error of .02 x sqrt(2 / 3) = .01633 and t(4) = 2.7764: the interval reaches .0453 to both sides."""
    runs = [
        build(Log(f"{level}", "jsonl", [{"step": float(i), "reward": level} for i in range(40)]))
        for level in (0.38, 0.40, 0.42, 0.40, 0.42, 0.44)
    ]
    compared = arms(runs, ["a"] * 3 + ["b"] * 3)
    found = compared["measures"]["reward/mean"][1]
    assert found["interval"] == pytest.approx([0.02 - 0.04534, 0.02 + 0.04534], abs=1e-5)
    assert found["shown"] is False
    assert found["resolution"] == pytest.approx(0.01633 * (2.77645 + 0.94096), rel=1e-3)
    assert found["seeds_needed"] == 17
    assert "seeds needed 17" in arms_text(compared, "en")


def test_far_arms_need_few_seeds() -> None:
    a, b = runs_of_seeds(0.3, 6)
    far = arms([*a, *b], ["a"] * 3 + ["b"] * 3)["measures"]["reward/mean"][1]
    assert far["shown"]
    assert far["seeds_needed"] <= 3


def write(path: Path, level: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = random.Random(str(path.name) + str(level))
    late = 0.2 if level > 0.5 else 0.0
    rows = [{"step": i, "reward": level + rng.gauss(0, 0.01) + late * (i > 50)} for i in range(100)]
    path.write_text("\n".join(map(json.dumps, rows)))


def test_the_command_groups_foreign_logs_over_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arm, level in (("base", 0.4), ("new", 0.51)):
        for seed in (1, 2, 3):
            write(tmp_path / arm / f"{seed}.jsonl", level + 0.005 * seed)
    paths = [str(p) for p in sorted(tmp_path.rglob("*.jsonl"))]
    assert main(["compare", *paths, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(a["arm"], len(a["runs"])) for a in found["arms"]] == [("base", 3), ("new", 3)]
    other = found["measures"]["reward/mean"][1]
    assert other["covers"] == "seeds"
    assert other["shown"]
    assert main(["compare", "--arm", f"x={tmp_path}/base/*", "--arm", f"y={tmp_path}/new/*", "--lang", "zh"]) == 0
    text = capsys.readouterr().out
    assert "分组依据：指定" in text
    assert "3 个种子" in text
    assert main(["compare", "--arm", "x=nowhere/*", "--arm", "y=z"]) == 2


def test_a_table_with_a_column_a_run_is_compared_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{i},{0.4 + 0.001 * (i % 7)},{0.6 + 0.001 * (i % 5)}" for i in range(60)]
    (tmp_path / "x.csv").write_text("Step,a - train/reward,b - train/reward\n" + "\n".join(lines))
    assert main(["compare", str(tmp_path / "x.csv")]) == 0
    assert "differs" in capsys.readouterr().out


def test_arms_over_rows_are_named_beside_arms_over_seeds() -> None:
    """A single run against A's single run covers rows, three runs against it cover seeds."""
    a, b = runs_of_seeds(0.1, 4)
    text = arms_text(arms([a[0], *b, a[1]], ["A", "B", "B", "B", "C"]))
    assert "the intervals of C cover the noise of rows, not of seeds" in text
    assert "seeds: run" not in arms_text(arms([*a, *b], ["A"] * 3 + ["B"] * 3))
    assert "区间只覆盖" in arms_text(arms([a[0], b[0]], ["A", "B"]), "zh")


@pytest.mark.parametrize("flags", [["--noise", "x"], ["--weights", "best"], ["--weights", "newest"], ["--n", "800"]])
def test_flags_that_logs_do_not_use_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        write(tmp_path / name, 0.4)
    assert main(["compare", str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl"), *flags]) == 2
    assert flags[0] in capsys.readouterr().err
    assert main(["compare", "--a", ".5", "--b", ".4", "--n", "10", *(["x"] if flags[0] == "--n" else flags)]) == 2
    assert main(["compare", "--a", ".5", "--b", ".4", "--n", "10"]) == 0


def test_columns_are_compared_without_judging_each_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def judged(_: Columns) -> None:
        raise AssertionError("a rule ran")

    monkeypatch.setattr(sys.modules["anygrpo.doctor.diagnose"], "judge", judged)
    for name in ("a.jsonl", "b.jsonl"):
        write(tmp_path / name, 0.4)
    assert main(["compare", str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]) == 0
