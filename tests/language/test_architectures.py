"""Every causal architecture of the installed transformers through load, sample, score, update, export and reload."""

import json
import os
import signal
from collections import Counter
from pathlib import Path

import architectures
import pytest

SAMPLE = (
    "llama", "qwen3", "qwen3_moe", "qwen3_5_text", "gemma4_text", "gpt2", "gptj", "gpt_oss", "mamba", "hyperclovax",
)  # fmt: skip
PAGE = Path(__file__).parents[2] / "docs" / "models.md"
SECONDS = 300


@pytest.mark.parametrize("kind", SAMPLE)
def test_a_sample_trains_with_the_librarys_own_numbers(kind):
    made = architectures.through(kind)
    assert made["state"] in ("exact", "plain"), made


def _apart(kind: str) -> dict:
    """In a process of its own: some models take memory, time or the process down."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        signal.alarm(SECONDS)
        os.write(writing, json.dumps(architectures.through(kind)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"kind": kind, "state": "slow", "why": f"over {SECONDS} s", "notes": []}


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_every_architecture_and_the_page_of_them():
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as names

    architectures.through("llama")  # what all import is imported once
    rows = [_apart(kind) for kind in sorted(names)]
    PAGE.write_text(architectures.page(rows), encoding="utf-8")
    count = Counter(row["state"] for row in rows)
    assert count["silent"] == 0
    buildable = len(rows) - count["unbuilt"]
    assert count["exact"] + count["plain"] >= 0.85 * buildable
    state = {row["kind"]: row["state"] for row in rows}
    assert not [kind for kind in architectures.HARD if state[kind] not in ("exact", "plain")]


def test_the_page_counts_what_it_lists():
    rows = [
        {"kind": "a", "state": "exact", "why": "1e-7", "notes": []},
        {"kind": "b", "state": "plain", "why": "1e-7", "notes": ["prompts are not shared, since X"]},
        {"kind": "c", "state": "refused", "why": "ConfigError: c is | not causal", "notes": []},
        {"kind": "d", "state": "unbuilt", "why": "ValueError: d", "notes": []},
    ]
    page = architectures.page(rows)
    assert "2 of the 3 that can be built" in page
    assert "| `c` | refused | ConfigError: c is / not causal |" in page
    assert page.count("| `") == 4
