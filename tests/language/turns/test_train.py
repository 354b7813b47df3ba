"""A whole run with an environment: what it pays reaches the turns, and what was said is in the run folder."""

import json

import pytest
from talking import model, tokenizer

from anygrpo.cli.main import main
from anygrpo.train.folder import read_rows

ENVIRONMENT = """
class Letters:
    '''Pays a tenth for each vowel of a turn.'''
    def __init__(self, worth=0.1):
        self.worth = worth
    def reset(self, row):
        self.turns = 0
    def step(self, messages, calls):
        self.turns += 1
        said = messages[-1]["content"]
        return "go on", self.worth * sum(c in "aeiou" for c in said), self.turns > 2
"""
RECIPE = """
seed = 3
[policy]
kind = "causal_lm"
model = "{folder}/model"
train = "all"
device = "cpu"
dtype = "float32"
threads = 1
max_new_tokens = 60
max_turns = 3
environment = "{folder}/code.py:Letters"
eos = {ends}
turns = {{ arguments = {{ worth = 0.2 }} }}
[task]
kind = "jsonl"
path = "{folder}/data.jsonl"
held_out_share = 0.3
workers = 1
[[task.rewards]]
kind = "environment"
[algorithm]
prompts_per_step = 2
group_size = 6
credit = "turns"
[optimizer]
learning_rate = 3e-3
[training]
steps = 3
samples_every = 1
gradient_norms_every = 0
"""


@pytest.mark.slow
def test_a_run_with_an_environment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code.py").write_text(ENVIRONMENT)
    (tmp_path / "data.jsonl").write_text("".join(json.dumps({"prompt": f"say {i}"}) + "\n" for i in range(20)))
    model().save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    ends = list(range(20, 60))
    (tmp_path / "recipe.toml").write_text(RECIPE.format(folder=tmp_path, ends=ends))
    assert main(["train", "recipe.toml", "--folder", "run"]) == 0
    rows = [row for row in read_rows(tmp_path / "run" / "metrics.jsonl")[0] if row["step"] >= 0]
    assert len(rows) == 3
    assert 1 < rows[0]["turns/mean"] <= 3
    assert rows[0]["parity/abs_max"] < 1e-4
    assert rows[0]["ratio/mean"] == pytest.approx(1.0, abs=1e-4)
    assert rows[0]["reward/component/environment"] == pytest.approx(rows[0]["reward/mean"])
    assert rows[0]["grad_norm/total"] > 0
    assert "eval/turns" in rows[-1]
    assert "eval/environment_paid" not in rows[-1]  # what pays here is the environment itself
    line = json.loads((tmp_path / "run" / "samples" / "step_00000000.jsonl").read_text().splitlines()[0])
    talk, paid = line["conversations"][0], line["turn_rewards"][0]
    assert {m["by"] for m in talk} <= {"policy", "environment"}
    vowels = sum(c in "aeiou" for m in talk if m["by"] == "policy" for c in m["content"])
    assert sum(r for r in paid if r is not None) == pytest.approx(0.2 * vowels)
    assert line["rewards"][0] == pytest.approx(0.2 * vowels, abs=1e-6)
    assert main(["report", "run"]) == 0
    assert "put in by tools" in (tmp_path / "run" / "report.html").read_text()
