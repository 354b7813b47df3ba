"""Every causal architecture of the installed transformers through load, sample, score, update, export and reload."""

import os
import subprocess
import sys
import time
from collections import Counter

import architectures
import every_architecture
import pytest

SAMPLE = (
    "llama", "qwen3", "qwen3_moe", "qwen3_5_text", "gemma4_text", "gpt2", "gptj", "gpt_oss", "mamba", "hyperclovax",
)  # fmt: skip


@pytest.mark.parametrize("kind", SAMPLE)
def test_a_sample_trains_with_the_librarys_own_numbers(kind):
    made = architectures.through(kind)
    assert made["state"] in ("exact", "plain"), made


@pytest.mark.cpu
@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_every_architecture(tmp_path):
    out = tmp_path / "rows.jsonl"
    # A process of its own: on a machine with a GPU the children of one that has trained cannot train.
    words = [sys.executable, every_architecture.__file__, "rows", str(out), "--jobs", str(os.cpu_count() or 1)]
    subprocess.run(words, check=True)
    rows = every_architecture.read(out)[1]
    count = Counter(row["state"] for row in rows)
    assert count["silent"] == 0
    buildable = len(rows) - count["unbuilt"]
    assert count["exact"] + count["plain"] >= 0.85 * buildable
    state = {row["kind"]: row["state"] for row in rows}
    assert not [kind for kind in architectures.HARD if state[kind] not in ("exact", "plain")]


def test_rows_come_from_processes_of_their_own_and_none_is_lost(monkeypatch):
    def through(kind):
        if kind == "dies":
            os._exit(1)
        if kind == "hangs":
            time.sleep(60)
        return {"kind": kind, "state": "exact", "why": str(os.getpid()), "notes": []}

    monkeypatch.setattr(architectures, "through", through)
    made = list(every_architecture.rows(["a", "dies", "hangs", "b"], jobs=2, seconds=2))
    assert {row["kind"]: row["state"] for row in made} == {"a": "exact", "b": "exact", "dies": "slow", "hangs": "slow"}
    assert len({row["why"] for row in made if row["state"] == "exact"} - {str(os.getpid())}) == 2


def test_the_page_counts_what_it_lists():
    rows = [
        {"kind": "a", "state": "exact", "why": "1e-7", "notes": []},
        {"kind": "b", "state": "plain", "why": "1e-7", "notes": ["prompts are not shared, since X"]},
        {"kind": "c", "state": "refused", "why": "ConfigError: c is | not causal", "notes": []},
        {"kind": "d", "state": "unbuilt", "why": "ValueError: d", "notes": []},
    ]
    page = architectures.page(rows, {"transformers": "5.24.0"}, [({"transformers": "5.17.0"}, rows[:1] + rows[2:])])
    assert "\n2 of the 3 that can be built" in page
    assert "With transformers 5.17.0: 1 of the 2" in page
    assert "| `c` | refused | refused | ConfigError: c is / not causal |" in page
    assert "| `b` | plain | not there | prompts are not shared, since X |" in page
    assert page.count("| `") == 4
