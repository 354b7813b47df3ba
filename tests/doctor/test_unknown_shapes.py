"""Texts of shapes that no reader knows: what lines share is their form, and what counts is proved to count."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from anygrpo.doctor import diagnose_log, read
from anygrpo.doctor.columns import Columns, build
from anygrpo.doctor.log import Log
from anygrpo.doctor.readers import console_lines, inferred_rows, nested_tables, proof, template
from anygrpo.doctor.readers.detect import read_all
from anygrpo.errors import DataError
from anygrpo.watch.progress import ProgressLine

N = range(1, 7)
REWARD = [round(0.3 + i / 100, 4) for i in N]
KL = [round(i / 1000, 5) for i in N]


def columns(tmp_path: Path, text: str, name: str = "a.log") -> Columns:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return build(read(path))


def the_six(run: Columns, steps: list[float] | None = None) -> None:
    """Six rows with the reward and KL above, counted."""
    reward, kl = run.get("reward/mean"), run.get("kl/reference")
    assert reward is not None, (sorted(run.series), run.unknown)
    assert kl is not None, (sorted(run.series), run.unknown)
    assert list(reward.values) == pytest.approx(REWARD)
    assert list(kl.values) == pytest.approx(KL)
    assert [run.steps[i] for i in reward.rows] == (steps or [float(i) for i in N])


LINES = {
    "brackets": "step[{i}]: loss[0.10] reward[{r}] kl[{k}]",
    "arrows": "{i:>4} ▸ rew {r} ▸ kl {k} ▸ gn 0.3",
    "points behind names": "2026-01-01 10:00:0{i},001 INFO Train. Iter {i} : \t Reward. {r} \t KL. {k} \t ACC. 60.1",
    "Chinese prose": "第{i}步完成（耗时12.3秒）：奖励均值{r}，奖励标准差0.1，KL散度{k}，梯度范数0.3",
    "full-width": "［训练］步数：{i}　奖励：{r}　平均长度：120　KL：{k}",
    "one name for several": "reward/kl: {r} / {k}   (step {i})",
    "nested calls": "TrainStats(step={i}, reward=Reward(mean={r}, std=0.2), kl={k})",
    "how Python shows numbers": "m = x({{'step': {i}, 'reward': tensor({r}, device='cuda:0'), 'kl': np.f32({k})}})",
    "names behind numbers": "update {i}: {r} reward, {k} kl, 12 samples",
    "quoted": "> {i}: reward {r} kl {k}",
    "a line a number": "<M name=reward> step={i} value={r}\n<M name=kl> step={i} value={k}",
    "labels": '# step {i}\ngrpo_reward_mean{{job="a"}} {r}\ngrpo_kl{{job="a"}} {k}',
    "prose": "Starting iteration {i}\nAverage undiscounted return per training episode: {r}\nkl now at {k}",
    "bars": "\rGRPO Training Step:  {p}%|██   | {i}/6 [10:02<20:01, 31.12s/it, train_rewards={r}, train_kl={k}]",
    "commas and dates": "2026/01/01 10:00:00 - INFO - Iter(train) [ {i}/6]  eta: 0:12:01  reward: {r}  kl: {k}",
    "a heading and pretty JSON": 'Step {i}\n{{\n "reward": {{\n  "overall": {r}\n }},\n "kl": {k}\n}}',
    "tags": 'r {{\n step: {i}\n v {{ tag: "reward" simple_value: {r} }}\n v {{ tag: "kl" simple_value: {k} }}\n}}',
    "pictures": "🔁 Step {i}/6  🏆 reward {r}  📏 len 310  🧭 kl {k}",
    "a comma parts names": "{i}/6 steps done, {r} reward, kl {k}, 310 tokens per answer",
    "keys by depth": "---\nstep: {i}\nmetrics:\n  reward:\n    mean: {r}\n    std: 0.2\n  kl: {k}",
    "bullets by depth": "## Step {i}\n- **Reward**\n  - mean: {r}\n  - std: 0.2\n- **KL**: {k}",
    "other tongues": "Étape {i} — récompense moyenne : {r} — divergence KL : {k}",
    "an initial file": "[step {i}]\nreward_mean = {r}\nkl = {k}\n",
}


@pytest.mark.parametrize("form", LINES.values(), ids=LINES.keys())
def test_lines_of_a_form_nobody_knows(tmp_path: Path, form: str) -> None:
    text = "\n".join(form.format(i=i, r=r, k=f"{k:.5f}", p=i * 10) for i, r, k in zip(N, REWARD, KL))
    the_six(columns(tmp_path, text))


@pytest.mark.parametrize(
    ("head", "row", "tail"),
    [
        ("== ======= ====\n Step  Reward   KL\n== ====== ====\n", "{i} {r} {k}", "\n== === ==\n"),
        ("| step | reward | kl |\n|------+--------+----|\n", "| {i} | {r} | {k} |", "\n"),
        ("\\begin{x}\n\\textbf{Step} & \\textbf{Reward} & KL \\\\ \\midrule\n", "${i}$ & ${r}$ & ${k}$ \\\\", ""),
        ("Hello, my log:\n\n> step    rew     kl\n", "> {i}  {r}  {k}", "\nThanks\n"),
        ("", "{i}\t{r}\t{k}", "\n# columns: step reward kl\n"),
        ("step     reward    kl(nats)   time\n", "{i:<8d} {r:<10.4f} {k:<10.5f} 12.3s", "\n"),
        ("      STEP   REWARD     KL\n      ----   ------     --\n", "{i:9d}{r:9.4f}{k:11.5f}", "\n"),
    ],
    ids=["reStructuredText", "org", "LaTeX", "mail", "head below", "units", "fixed width"],
)  # fmt: skip
def test_tables_under_a_head(tmp_path: Path, head: str, row: str, tail: str) -> None:
    the_six(columns(tmp_path, head + "\n".join(row.format(i=i, r=r, k=k) for i, r, k in zip(N, REWARD, KL)) + tail))


def test_decimal_commas(tmp_path: Path) -> None:
    text = "\n".join(f"Schritt {i}: reward = {r}; KL = {k:.5f}".replace(".", ",") for i, r, k in zip(N, REWARD, KL))
    the_six(columns(tmp_path, text))


def test_thousands(tmp_path: Path) -> None:
    rows = "\n".join(f'"{i * 1000:,}",{r},{k}' for i, r, k in zip(N, REWARD, KL))
    the_six(columns(tmp_path, "step,reward,kl\n" + rows, "a.csv"), [i * 1000.0 for i in N])


DOCUMENTS = {
    "a head and its body": {
        "columns": ["step", "reward", "kl"],
        "data": [[i, r, k] for i, r, k in zip(N, REWARD, KL)],
    },
    "lists under a first list": [["step", "reward", "kl"], *([i, r, k] for i, r, k in zip(N, REWARD, KL))],
    "numbers by index": {
        "step": {str(i): i for i in N},
        "reward": {str(i): r for i, r in zip(N, REWARD)},
        "kl": {str(i): k for i, k in zip(N, KL)},
    },
    "named numbers": [
        {"metricName": name, "metricValue": str(x), "step": i, "epoch": None}
        for name, column in (("reward", REWARD), ("kl", KL))
        for i, x in zip(N, column)
    ],
    "steps and values": {
        "run": {"reward": {"steps": [*N], "values": REWARD}, "kl": {"steps": [*N], "values": KL}}
    },
    "labels and datasets": {
        "labels": [*N],
        "datasets": [{"label": "reward", "data": REWARD}, {"label": "kl", "data": KL}],
    },
    "deep rows": {"a": {"b": {"c": {"log": [{"step": i, "reward": r, "kl": k} for i, r, k in zip(N, REWARD, KL)]}}}},
    "keys that count": {f"step_{i}": {"reward": r, "kl": k} for i, r, k in zip(N, REWARD, KL)},
}  # fmt: skip


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS.keys())
def test_documents_of_any_build(tmp_path: Path, document: object) -> None:
    the_six(columns(tmp_path, json.dumps(document), "a.json"))


def test_lists_of_a_script(tmp_path: Path) -> None:
    the_six(columns(tmp_path, f"steps = {[*N]}\nrewards = {REWARD}\nkl = np.array({KL})\nplot(steps)\n"))


def test_xml(tmp_path: Path) -> None:
    rows = "".join(f'<r step="{i}"><reward>{r}</reward><kl>{k}</kl></r>' for i, r, k in zip(N, REWARD, KL))
    the_six(columns(tmp_path, f"<?xml version='1.0'?>\n<run>{rows}</run>", "a.xml"))


def database(path: Path, runs: list[str]) -> Path:
    with closing(sqlite3.connect(path)) as base:
        base.execute("create table metrics(key text, value real, timestamp integer, run_uuid text, step integer)")
        for run in runs:
            for key, column in (("reward", REWARD), ("kl", KL)):
                base.executemany("insert into metrics values(?,?,1,?,?)", [(key, x, run, i) for i, x in zip(N, column)])
        base.commit()
    return path


def test_a_trackers_database(tmp_path: Path) -> None:
    path = database(tmp_path / "mlflow.db", ["a"])
    the_six(build(read(path)))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mlflow.db"]  # nothing was written beside it


def test_a_database_of_several_runs(tmp_path: Path) -> None:
    path = database(tmp_path / "mlflow.db", ["a", "b"])
    assert len(read_all(path)) == 2
    with pytest.raises(DataError, match="2 runs"):
        read(path)


@pytest.mark.parametrize(
    "text",
    [
        "# Guide\n\n1. Set lr 1e-6\n2. Set reward 0.3\n3. Wait 10 minutes\n4. Look\n5. Score: 3\n",
        "\n".join(f"gpu {i}: 71% 12034MiB / 81559MiB" for i in range(9)),
        "\n".join(f"{i} packages in {i * 3}s" for i in range(9)),
        "\n".join(f"Epoch {i} accuracy table row {i} of 9" for i in range(9)),
    ],
)
def test_texts_that_prove_nothing_give_no_rows(text: str) -> None:
    assert inferred_rows.mine(text.split("\n")) == []


def test_a_counter_is_proved_not_named() -> None:
    """Nobody knows "Runde"; it alone climbs by one."""
    rows = inferred_rows.mine([f"Runde {i} Konto {i * i % 7} reward {0.1 * i:.2f} kl 0.01" for i in range(1, 9)])
    assert [row["step"] for row in rows] == [*range(1, 9)]


@pytest.mark.parametrize(
    ("text", "names", "values"),
    [
        ("tokens 1.2M, len 0.31k, lr 3e-4, cut 12.5%", ["tokens", "len", "lr", "cut"], [1.2e6, 310, 3e-4, 0.125]),
        ("reward 1,024 kl −0.5 at 10:22:01", ["reward", "kl"], [1024, -0.5]),
        ("loss is nan", ["loss"], [None]),
    ],
)
def test_numbers_and_names_of_a_line(text: str, names: list[str], values: list[float | None]) -> None:
    texts, found = template.split(template.cleaned(text))
    assert [template.name_before(t) for t in texts[:-1]][: len(names)] in (names, ["loss is"])
    assert [None if x != x else pytest.approx(x) for x in found] == values


@pytest.mark.parametrize(
    ("phrase", "name"),
    [
        ("Average undiscounted return per training episode", "return"),
        ("value loss", "value loss"),  # another model's loss keeps its name
        ("time per reward", "time per reward"),
    ],
)
def test_a_phrase_gives_its_metric_only_where_the_rest_is_filler(phrase: str, name: str) -> None:
    assert template.best_name(phrase) == name


def test_rows_of_a_reader_stay_where_mining_would_lose_any() -> None:
    read_rows = [{"reward": 0.1, "kl": 0.2, "entropy": 0.3} for _ in N]
    mined = [{"step": float(i), "reward": 0.1} for i in N]
    assert not proof.better(mined, read_rows)
    assert proof.better([{**row, "step": float(i)} for i, row in zip(N, read_rows)], read_rows)


def test_the_table_with_most_metrics_is_taken() -> None:
    samples = [{"step": 1, "reward": 0.1} for _ in range(50)]
    history = [{"step": i, "reward": 0.1, "kl": 0.2} for i in N]
    assert nested_tables.best_table({"samples": samples, "deep": {"history": history}}) == history


@pytest.mark.parametrize("language", ["en", "zh"])
def test_our_own_progress_line_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: str) -> None:
    """A spread behind the reward is not the share of live groups, and seconds are not a length."""
    monkeypatch.setenv("ANYGRPO_LANG", language)
    line = ProgressLine(60)  # still training: its lines say the time left
    line._times = [1.2]
    rows = [
        {
            "step": i, "stage": "grpo", "reward/mean": 0.2 + i / 100, "reward/std_within": 0.3 + i % 7 / 50,
            "groups/live": 0.6 + i % 5 / 20, "kl/reference": i / 1000, "log_ratio/abs_max": 0.1 + i % 3 / 10,
            "clip/low": 0.01, "clip/high": 0.02, "entropy": 2 - i / 100, "length/mean": 100.0 + i % 9, "time/step": 1.2,
        }
        for i in range(40)
    ]  # fmt: skip
    run = columns(tmp_path, "run folder: runs/x\n" + "\n".join(map(line.text, rows)) + "\n")
    expected = {
        "groups/dead": [1 - row["groups/live"] for row in rows],
        **{k: [row[k] for row in rows] for k in ("reward/mean", "kl/reference", "entropy", "length/mean")},
    }
    for name, values in expected.items():
        found = run.get(name)
        assert found is not None, (name, sorted(run.series), run.unknown)
        assert list(found.values) == pytest.approx(values, abs=0.051 if name == "length/mean" else 0.0051), name


def test_the_step_is_not_the_reward(tmp_path: Path) -> None:
    """Whole numbers one apart count, also where "reward" stands behind them; and "reward:" names what comes next."""
    for form in ("{i} reward: {r} kl: {k}", "iter {i}  reward {r} (std 0.2, max 1.00)  kl {k}"):
        the_six(columns(tmp_path, "\n".join(form.format(i=i, r=r, k=k) for i, r, k in zip(N, REWARD, KL))))


def test_a_smallest_mean_and_largest_reward(tmp_path: Path) -> None:
    form = "step {i} | reward (min/mean/max): -1.00/{r}/1.00 | kl {k}"
    run = columns(tmp_path, "\n".join(form.format(i=i, r=r, k=k) for i, r, k in zip(N, REWARD, KL)))
    the_six(run)


def test_answers_one_by_one_are_no_steps() -> None:
    lines = [f"prompt {i % 3} reward: {float(i % 2)} advantage: {0.9 - i % 2}" for i in range(12)]
    assert inferred_rows.mine(lines) == []


def test_single_answers_do_not_displace_what_counts() -> None:
    read_rows = [{"step": float(i), "kl": 0.1 * i, "loss": 0.2} for i in N]
    assert not proof.better([{"reward": 0.3 * (i % 3), "kl": 0.1, "loss": 0.2} for i in range(20)], read_rows)


def long_log(path: Path, rows: int) -> Log:
    """Lines that only their shape makes readable: a run that learns, and may collapse at its end."""
    path.write_text("\n".join(f"Runde {i} ▸ rew {0.3 + i / 1000:.4f} ▸ kl {i % 9 / 1e4:.5f}" for i in range(rows)))
    return read(path)


@pytest.mark.parametrize(("language", "told"), [("en", "read to line"), ("zh", "读到第")])
def test_a_text_of_no_known_form_is_not_acquitted_by_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: str, told: str
) -> None:
    monkeypatch.setenv("ANYGRPO_LANG", language)
    whole = long_log(tmp_path / "a.log", 300)
    assert (diagnose_log(whole).verdict, whole.notes) == ("no_objection", [])
    monkeypatch.setattr(console_lines, "KEPT", 4000)
    part = long_log(tmp_path / "a.log", 300)
    assert 50 < len(part.rows) < 300
    assert diagnose_log(part).verdict == "cannot_tell"
    assert part.notes[0].startswith(told)
