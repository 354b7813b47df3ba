"""Conversations on the page: roles, writers, calls; whatever a file holds."""

import json

from anygrpo.report.page import run_page
from anygrpo.report.talk import conversation
from anygrpo.report.words import WORDS
from anygrpo.spoken import table

CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": "<x>"}}}
SAID = [
    {"role": "assistant", "content": "", "by": "policy", "tool_calls": [CALL, {"fault": "not JSON", "function": {}}]},
    {"role": "tool", "name": "add", "content": "<b>3</b>", "by": "environment"},
    {"role": "assistant", "content": "it is 3", "by": "policy"},
]


def test_who_said_what():
    made = conversation(SAID, table(WORDS, "en")) or ""
    assert 'add(a=1, b="&lt;x&gt;")'.replace('"', "&quot;") in made
    assert "? not JSON" in made
    assert "tool add</b> <small>put in by tools or the environment" in made
    assert "&lt;b&gt;3&lt;/b&gt;" in made
    assert made.count('class="policy"') == 2
    assert "策略所写" in (conversation(SAID, table(WORDS, "zh")) or "")


def test_what_is_no_conversation():
    for value in (None, [], "x", [1], [{"content": "x"}]):
        assert conversation(value, table(WORDS, "en")) is None
    assert conversation(
        [{"role": 3, "content": None, "tool_calls": [1, {"function": {"arguments": 4}}]}], table(WORDS, "en")
    )


def test_both_kinds_of_files_show_them(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "reward/mean": 0.5}\n')
    (tmp_path / "samples").mkdir()
    line = {"prompt": "2 + 1?", "outputs": ["it is 3"], "rewards": [1.0], "conversations": [SAID]}
    (tmp_path / "samples" / "step_00000000.jsonl").write_text(json.dumps(line) + "\n")
    assert "put in by tools" in run_page(tmp_path)
    (tmp_path / "evaluations").mkdir()
    row = {"prompt": 0, "text": "2 + 1?", "output": "it is 3", "reward": 1.0, "conversation": SAID}
    for step in (0, 9):
        (tmp_path / "evaluations" / f"step_{step:08d}.jsonl").write_text(json.dumps(row) + "\n")
    assert run_page(tmp_path).count("put in by tools") == 2
