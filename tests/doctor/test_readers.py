"""Every format and every trap of reading other people's logs, each with a few lines of log."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from anygrpo.doctor import diagnose, diagnose_log, read
from anygrpo.doctor.columns import Columns, build
from anygrpo.doctor.readers.detect import read_all
from anygrpo.doctor.synthetic import healthy, line, rows
from anygrpo.errors import DataError


def write(folder: Path, text: str, name: str = "a.log") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def run_of(path: Path) -> Columns:
    return build(read(path))


def values(run: Columns, name: str) -> list[float]:
    series = run.get(name)
    assert series is not None, sorted(run.series)
    return list(series.values)


# ---- TRL


def trl_console(n: int = 12) -> str:
    return "\n".join(str({k.replace("/", "/"): v for k, v in row.items() if k != "step"}) for row in healthy(n))


def test_trl_state(tmp_path: Path) -> None:
    state = {"global_step": 24, "logging_steps": 2, "max_steps": 24, "log_history": healthy(12)}
    run = run_of(write(tmp_path, json.dumps(state), "trainer_state.json"))
    assert (run.format, run.framework, run.rows) == ("trl-state", "trl", 12)
    assert run.settings["max_steps"] == 24


def test_checkpoint_folders_newest_first(tmp_path: Path) -> None:
    for step, n in ((5, 5), (20, 20), (10, 10)):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        write(folder, json.dumps({"log_history": healthy(n)}), "trainer_state.json")
    assert run_of(tmp_path).rows == 20
    assert run_of(tmp_path / "checkpoint-5").rows == 5


def test_console_dicts_with_numbers_as_strings(tmp_path: Path) -> None:
    text = "\n".join(f"{{'loss': '0.0', 'reward': '{0.1 * i:.4g}', 'kl': '1e-0{i + 1}'}}" for i in range(5))
    run = run_of(write(tmp_path, text))
    assert values(run, "reward/mean") == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])
    assert values(run, "kl/reference")[2] == pytest.approx(1e-3)


def test_console_dicts_wrapped_over_lines_even_inside_numbers(tmp_path: Path) -> None:
    text = "{'loss': 0.01, 'reward': 0.12\n34, 'kl': 0.5,\n 'grad_norm': 1.0}\n" * 3
    assert values(run_of(write(tmp_path, text)), "reward/mean") == [0.1234] * 3


def test_progress_bars_on_the_same_line(tmp_path: Path) -> None:
    text = " 10%|#   | 1/10 [00:15<1:15, 15.2s/it]\r" + " " * 40 + "{'loss': 0.5, 'reward': 0.25, 'kl': 0.0}\n"
    assert values(run_of(write(tmp_path, text * 4)), "reward/mean") == [0.25] * 4


def test_summary_row_is_no_training_row(tmp_path: Path) -> None:
    text = trl_console(10) + "\n{'train_runtime': 12.0, 'train_loss': 0.1, 'reward': 99.0}\n"
    run = run_of(write(tmp_path, text))
    assert run.rows == 10
    assert run.finished
    assert max(values(run, "reward/mean")) < 2


def test_rewards_x_and_rewards_x_mean_are_the_same_part(tmp_path: Path) -> None:
    old = run_of(write(tmp_path, "{'reward': 0.5, 'rewards/acc_fn': 0.5, 'kl': 0.1}\n" * 3, "old.log"))
    new = run_of(write(tmp_path, "{'reward': 0.5, 'rewards/acc_fn/mean': 0.5, 'rewards/acc_fn/std': 0.1}\n" * 3))
    assert set(old.components) == set(new.components) == {"acc_fn"}
    assert set(new.family("reward/component_std/")) == {"acc_fn"}


def test_reward_std_is_the_batch_std_where_all_groups_are_dead() -> None:
    within = diagnose(rows(10, reward=0.5, reward_std=0.0, frac_reward_zero_std=1.0), format="jsonl").run
    batch = diagnose(rows(10, reward=0.5, reward_std=0.4, frac_reward_zero_std=1.0), format="jsonl").run
    assert within.get("reward/std_within")
    assert batch.get("reward/std_within") is None
    assert batch.get("reward/std")


def test_averaged_rows_are_not_a_first_row(tmp_path: Path) -> None:
    every_ten = [row | {"step": 10.0 * (i + 1), "kl": 0.3} for i, row in enumerate(healthy(30))]
    every_one = [row | {"kl": 0.3} for row in healthy(30)]
    assert "wrong_reference" not in {f.rule for f in diagnose(every_ten, format="jsonl").findings}
    assert "wrong_reference" in {f.rule for f in diagnose(every_one, format="jsonl").findings}
    far = [row | {"kl": 1.1} for row in every_ten]
    found = next(f for f in diagnose(far, format="jsonl").findings if f.rule == "wrong_reference")
    assert (found.certainty, found.severity) == ("likely", "warning")


def test_orpo_rewards_are_no_rewards() -> None:
    data = rows(20, loss=line(1, 0.1), rewards__chosen=line(-0.1, 0.0), rewards__rejected=line(-0.1, -0.3))
    found = diagnose(data, format="jsonl")
    assert found.first is not None
    assert (found.first.rule, found.first.variant) == ("not_rl_log", "preference")


def test_lr_printed_as_zero_is_not_an_exhausted_rate() -> None:
    found = diagnose(healthy(120, learning_rate=0.0), format="jsonl")
    assert not {"lr_exhausted", "zero_gradient"} & {f.rule for f in found.findings}


# ---- verl


def verl_line(i: int, prefix: str = "") -> str:
    return (
        f"{prefix}step:{i} - actor/pg_loss:np.float64({0.01 * i}) - actor/ppo_kl:0.0 - actor/entropy_loss:0.5"
        f" - critic/score/mean:{0.1 + 0.02 * i} - critic/rewards/mean:{0.05} - response_length/clip_ratio:0.01"
    )


@pytest.mark.parametrize("prefix", ["", "\x1b[36m(TaskRunner pid=46086)\x1b[0m ", "(main_task pid=1, ip=10.0.0.1) "])
def test_verl_console(tmp_path: Path, prefix: str) -> None:
    text = "\n".join(["Training Progress: 1%| | 1/10", *(verl_line(i, prefix) for i in range(1, 13))])
    run = run_of(write(tmp_path, text))
    assert (run.format, run.framework, run.rows) == ("verl-console", "verl", 12)
    assert values(run, "loss/policy")[1] == pytest.approx(0.02)
    assert values(run, "reward/mean")[0] == pytest.approx(0.12)  # the raw score, not the score minus beta KL
    assert values(run, "entropy") == [0.5] * 12  # entropy_loss is the entropy
    assert run.steps_per_row == 1


# ---- generic console


def test_key_value_lines_with_spaces_in_names(tmp_path: Path) -> None:
    text = "\n".join(
        f"Epoch:[1/1]({i}/50), Reward: {i / 50:.3f}, KL_ref: 0.01, Adv Std: 0.92, Avg Response Len: 80.5"
        for i in range(1, 11)
    )
    run = run_of(write(tmp_path, text))
    assert values(run, "reward/mean")[4] == pytest.approx(0.1)
    assert values(run, "advantage/std")[0] == 0.92
    assert values(run, "length/mean")[0] == 80.5
    assert run.updates == 10


def test_lists_of_one_groups_rewards(tmp_path: Path) -> None:
    text = "\n".join(
        f"[step {i}/9] correct=1/4 rewards=['1.00', '0.00', '0.00', '0.00'] loss=0.1" for i in range(1, 10)
    )
    run = run_of(write(tmp_path, text))
    assert values(run, "reward/mean")[0] == 0.25
    assert values(run, "reward/std_within")[0] == pytest.approx(0.5)


def test_pipes_and_evaluation_lines(tmp_path: Path) -> None:
    text = "\n".join(
        f"step {i} | reward: {0.1 * i:.2f} | kl: 0.01 | grad: 0.5"
        + (f"\nEval step {i}: accuracy: 0.{i}, reward: 0.9" if i % 3 == 0 else "")
        for i in range(1, 10)
    )
    run = run_of(write(tmp_path, text))
    assert run.rows == 9
    assert max(values(run, "reward/mean")) == pytest.approx(0.9)
    assert len(run.evals["accuracy"]) == 3


def test_notebook_tables_and_banner_blocks(tmp_path: Path) -> None:
    table = "Step\tTraining Loss\treward\treward_std\n" + "\n".join(f"{i}\t0.1\t0.{i}\t0.2" for i in range(1, 9))
    assert values(run_of(write(tmp_path, table, "n.log")), "reward/mean")[2] == 0.3
    blocks = "\n".join(
        f"==== Step {i}/9 ====\n  • Loss: 0.01\n  • Avg Reward: 0.{i}\n  • Grad Norm: 1.0" for i in range(1, 9)
    )
    assert values(run_of(write(tmp_path, blocks, "b.log")), "reward/mean")[2] == 0.3


def test_powershell_redirection_is_utf16(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    path.write_text(trl_console(6), "utf-16")
    assert run_of(path).rows == 6


# ---- endings

TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    f()\nValueError: no such thing\n'


def ending_rules(path: Path) -> dict[str, str]:
    return {f.rule: f.severity for f in diagnose_log(read(path)).findings}


def test_a_crash_is_quoted(tmp_path: Path) -> None:
    found = diagnose_log(read(write(tmp_path, "starting\n" + TRACE)))
    assert found.first is not None
    assert found.first.rule == "crash"
    assert found.first.facts["text"] == "ValueError: no such thing"


def test_a_hangup_at_the_end_of_a_sane_run_is_none(tmp_path: Path) -> None:
    text = (
        trl_console(30)
        + "\n"
        + TRACE.replace("ValueError: no such thing", "a.b.SignalException: Process 1 got signal: 1")
    )
    assert ending_rules(write(tmp_path, text)) == {"crash": "info"}


def test_exceptions_that_the_run_survives_are_none(tmp_path: Path) -> None:
    caught = TRACE + trl_console(15) + "\n" + TRACE + trl_console(15) + "\n" + TRACE
    assert "crash" not in ending_rules(write(tmp_path, caught))
    assert ending_rules(write(tmp_path, trl_console(30) + "\n" + TRACE, "b.log"))["crash"] == "serious"


def test_an_exception_after_the_end_of_training_is_late(tmp_path: Path) -> None:
    text = trl_console(30) + "\n{'train_runtime': 12.0, 'train_loss': 0.1}\n" + TRACE
    assert ending_rules(write(tmp_path, text)) == {"crash": "info"}


# ---- rows and steps


def test_a_resume_replaces_the_rows_it_wrote_again() -> None:
    first, again = healthy(30), healthy(40)
    found = diagnose([*first, *[row | {"reward": 0.9} for row in again[20:]]], format="jsonl").run
    assert found.rows == 40
    assert list(found.series["reward/mean"].values[20:]) == [0.9] * 20
    assert "resumed at step 21" in found.notes[0]


def test_two_counters_in_one_log_are_no_resume() -> None:
    """Evaluations between iterations that count frames alone, as Stable-Baselines3 writes them."""
    rows: list[dict[str, float]] = []
    for row in healthy(30):
        rows.append(row)
        if row["step"] % 5 == 0:
            rows.append({"time/total_timesteps": row["step"] * 2048, "eval/mean_reward": 0.4, "kl": 0.01})
    found = diagnose(rows, format="jsonl").run
    assert (found.notes, len(found.series["reward/mean"]), found.updates) == ([], 30, 36)
    assert len(found.evals["reward"]) == 6
    assert max(found.steps.values()) == 30


def test_a_counter_that_starts_again_keeps_all_rows_in_order() -> None:
    found = diagnose([*healthy(30), *healthy(30)], format="jsonl").run
    assert found.rows == 60
    assert "starts again" in found.notes[0]


def test_sparse_keys_and_eval_rows_between_training_rows() -> None:
    data: list[dict[str, float]] = []
    for i, row in enumerate(healthy(30)):
        data.append({k: v for k, v in row.items() if k != "grad_norm" or i % 5 == 0})
        if i % 10 == 9:
            data.append({"step": row["step"], "eval_reward": 0.5, "eval_kl": 9.0})
    run = diagnose(data, format="jsonl").run
    assert run.rows == 30
    assert len(run.series["grad_norm/total"]) == 6
    assert max(run.series["kl/reference"].values) < 1
    assert len(run.evals["reward"]) == 3


# ---- other frameworks


@pytest.mark.parametrize(
    ("framework", "row", "name", "value"),
    [
        ("openrlhf", {"train/policy_loss": 0.1, "train/actor_lr": 1e-6, "train/entropy_loss": 0.7}, "entropy", 0.7),
        ("nemo-rl", {"train/probs_ratio": 1.0, "train/loss": 0.3}, "loss/total", 0.3),
        ("nemo-rl", {"train/baseline_reward/pct_0": 25.0, "train/baseline_reward/pct_1": 50.0}, "groups/dead", 0.75),
        ("nemo-rl", {"train/gen_kl_error": 0.1, "train/natural_termination_rate": 0.9}, "truncated/share", 0.1),
        ("prime-rl", {"mismatch_kl/all/mean": 0.002, "optim/grad_norm": 0.5}, "kl/rollout", 0.002),
        ("ms-swift", {"memory(GiB)": 30.0, "frac_reward_zero_std": 0.25}, "groups/dead", 0.25),
        ("tinker", {"env/all/by_group/frac_mixed": 0.8, "optim/kl_sample_train_v1": 0.0}, "groups/dead", 0.2),
        ("skyrl", {"policy/final_loss": 0.1}, "loss/total", 0.1),
        ("slime", {"rollout/raw_reward": 0.4, "train/pg_clipfrac": 0.1}, "clip/fraction", 0.1),
        ("anygrpo", {"reward/std_within": 0.2, "groups/live": 0.7}, "groups/dead", 0.3),
    ],
)  # fmt: skip
def test_names_of_other_frameworks(framework: str, row: dict[str, float], name: str, value: float) -> None:
    run = diagnose([{"train/reward": 0.4} | row | {"step": i} for i in range(5)], format="jsonl").run
    assert run.framework == framework
    assert values(run, name) == pytest.approx([value] * 5)
    assert values(run, "reward/mean") == [0.4] * 5


def test_one_column_an_agent_of_prime_rl() -> None:
    rows = [{"step": i, "train/agg/effective/solver/reward/mean": 0.4, "optim/grad_norm": 1.0} for i in range(5)]
    assert values(diagnose(rows, format="jsonl").run, "reward/mean") == [0.4] * 5


def test_what_is_not_comparable_is_not_compared() -> None:
    areal = [{"step": i, "ppo_actor/task_reward/avg": 0.4, "ppo_actor/kl_rewards/avg": -0.9 * i} for i in range(40)]
    run = diagnose(areal, format="jsonl").run
    assert run.get("kl/reference")
    assert run.comparable("kl/reference") is None


def test_ms_swift_step_fraction(tmp_path: Path) -> None:
    text = "\n".join(json.dumps({"reward": 0.4, "kl": 0.1, "global_step/max_steps": f"{i}/50"}) for i in range(1, 10))
    assert run_of(write(tmp_path, text, "logging.jsonl")).updates == 9


# ---- tables


def test_any_keys_with_a_map(tmp_path: Path) -> None:
    path = write(tmp_path, "\n".join(json.dumps({"my/score_x": 0.1 * i, "foo": 1.0}) for i in range(12)), "m.jsonl")
    assert build(read(path)).get("reward/mean") is None
    assert len(values(build(read(path), {"reward": "my/score_x"}), "reward/mean")) == 12


@pytest.mark.parametrize("kind", ["rows", "columns", "wrapped", "nested"])
def test_json_shapes(tmp_path: Path, kind: str) -> None:
    data = healthy(12)
    shapes = {
        "rows": data,
        "columns": {k: [row[k] for row in data] for k in data[0]},
        "wrapped": {"run": "x", "history": data},
        "nested": [{"step": row["step"], "metrics": {"train": row}} for row in data],
    }
    run = run_of(write(tmp_path, json.dumps(shapes[kind]), "x.json"))
    assert run.rows == 12
    if kind != "nested":
        assert len(values(run, "reward/mean")) == 12


def test_csv_and_the_export_of_wandb(tmp_path: Path) -> None:
    text = '"Step","run-1 - train/reward","run-1 - train/reward__MIN","run-1 - train/kl"\n' + "\n".join(
        f'"{i}","0.{i}","0.0","0.01"' for i in range(1, 10)
    )
    run = run_of(write(tmp_path, text, "export.csv"))
    assert run.format == "csv"
    assert values(run, "reward/mean") == pytest.approx([0.1 * i for i in range(1, 10)])


def test_torn_jsonl_is_read_up_to_the_tear(tmp_path: Path) -> None:
    text = "\n".join(json.dumps(row) for row in healthy(9)) + '\n{"step": 10, "rew'
    log = read(write(tmp_path, text, "t.jsonl"))
    assert len(log.rows) == 9
    assert "1 lines" in log.notes[0]


def test_run_folder(tmp_path: Path) -> None:
    write(tmp_path, "\n".join(json.dumps(row) for row in healthy(9)), "metrics.jsonl")
    write(tmp_path, "seed = 0\n", "config.toml")
    assert run_of(tmp_path).format == "run-folder"


# ---- event files, wandb


def varint(x: int) -> bytes:
    out = b""
    while x > 0x7F:
        out += bytes([x & 0x7F | 0x80])
        x >>= 7
    return out + bytes([x])


def field(number: int, payload: bytes | int) -> bytes:
    if isinstance(payload, int):
        return varint(number << 3) + varint(payload)
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def event_file(events: Iterable[tuple[int, str, float, bool]]) -> bytes:
    def record(data: bytes) -> bytes:
        return struct.pack("<QI", len(data), 0) + data + b"\0\0\0\0"

    out = record(field(3, b"brain.Event:2"))
    for step, tag, x, as_tensor in events:
        value = field(1, tag.encode())
        if as_tensor:
            value += field(8, field(1, 1) + field(4, struct.pack("<f", x)))
        else:
            value += varint(2 << 3 | 5) + struct.pack("<f", x)
        out += record(varint(1 << 3 | 1) + struct.pack("<d", 0.0) + field(2, step) + field(5, field(1, value)))
    return out


@pytest.mark.parametrize("as_tensor", [False, True])
def test_event_files(tmp_path: Path, as_tensor: bool) -> None:
    events = [(i, tag, i / 10, as_tensor) for i in range(10) for tag in ("train/reward", "train/kl")]
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(event_file(events))
    assert values(run_of(path), "reward/mean") == pytest.approx([i / 10 for i in range(10)])
    assert run_of(tmp_path).rows == 10
    path.write_bytes(event_file(events)[:-7])  # torn
    assert run_of(path).rows in (9, 10)


def wandb_file(history: list[dict[str, float]], config: dict[str, float]) -> bytes:
    def item(key: str, value: object) -> bytes:
        return field(1, field(1, key.encode()) + field(16, json.dumps(value).encode()))

    records = [field(17, field(4, b"".join(item(k, {"value": v}) for k, v in config.items())))]
    records += [field(2, b"".join(item(k, v) for k, v in row.items())) for row in history]
    data = b":W&B\xe1\xbe\x00"
    for record in records:
        kind = 1
        while record or kind == 1:
            left = 32768 - len(data) % 32768
            if left < 7:
                data += b"\0" * left
                continue
            chunk, record = record[: left - 7], record[left - 7 :]
            whole = not record
            mark = (1 if whole else 2) if kind == 1 else (4 if whole else 3)
            data += struct.pack("<IHB", 0, len(chunk), mark) + chunk
            kind = 3
    return data


def test_wandb_offline_across_blocks(tmp_path: Path) -> None:
    history = [{"train/reward": i / 400, "_step": i, "_runtime": 1.0, "noise" * 20: 0.5} for i in range(400)]
    path = tmp_path / "run-x.wandb"
    path.write_bytes(wandb_file(history, {"learning_rate": 2e-6}))
    assert path.stat().st_size > 2 * 32768
    log = read(path)
    assert (log.format, len(log.rows), log.settings["learning_rate"]) == ("wandb", 400, 2e-6)
    assert values(build(log), "reward/mean")[-1] == pytest.approx(399 / 400)
    assert "_runtime" not in log.rows[0]


def test_wandb_summary_is_one_row(tmp_path: Path) -> None:
    path = write(
        tmp_path, json.dumps({"_step": 500, "_runtime": 9, "train/reward": 0.4, "train/kl": 0.1}), "wandb-summary.json"
    )
    found = diagnose_log(read(path))
    assert (found.run.format, found.run.rows) == ("wandb-summary", 1)
    assert found.first is not None
    assert found.first.rule == "too_short"


# ---- refusals


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.log", "hello\nworld\n"), ("a.json", "{"), ("a.csv", "a,b\n"), ("a.md", "奖励没有上升，KL 很大。\n")],
)
def test_what_holds_no_numbers_gets_a_verdict_that_says_so(tmp_path: Path, name: str, content: str) -> None:
    found = diagnose_log(read(write(tmp_path, content, name)))
    assert (found.verdict, found.first and found.first.rule) == ("cannot_tell", "not_rl_log")
    assert found.first
    assert found.first.variant == "none"


def test_rows_of_no_known_name_are_named_and_no_crash(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"alpha": i, "omega": 3 * i % 7}) + "\n" for i in range(1000))
    found = diagnose_log(read(write(tmp_path, lines, "a.jsonl")))
    assert found.first
    assert (found.first.rule, found.first.variant) == ("not_rl_log", "unknown")
    assert (found.first.facts["count"], found.first.facts["keys"]) == (1000, "alpha, omega")


def test_what_cannot_be_read_is_refused_with_a_cure(tmp_path: Path) -> None:
    for content in ("", "  \n"):
        with pytest.raises(DataError) as error:
            read(write(tmp_path, content, "a.json"))
        assert error.value.cure
    with pytest.raises(DataError):
        read(tmp_path / "nothing")
    with pytest.raises(DataError):
        read(tmp_path / "empty") if (tmp_path / "empty").mkdir() is None else None


@pytest.mark.parametrize("reader", [read, read_all])
def test_a_name_too_long_for_the_system_is_an_answer(reader: Callable[[str], object]) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        reader("a" * 300)
