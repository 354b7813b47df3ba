"""The records of the benchmark, its prompts and floors; one real comparison of a tiny case."""

import importlib.util
import json

import pytest
import torch

from anygrpo.bench import floor, llm
from anygrpo.bench.cases import CASES, Case, case_named, model_folder, prompt_texts, reward_of
from anygrpo.cli.main import main
from anygrpo.errors import ConfigError, DataError, TrainingError

CASE = Case("c", 10, 4)


def run(step: float, cpu: float, tokens: int = 128, peak: float = 1.0, prompts: tuple[int, ...] = (9, 11)) -> dict:
    phases = lambda x, y: {"step": [x, y], "generate": [x / 2, y / 2]}  # noqa: E731
    steps = [{"phases": phases(99.0, 99.0), "tokens": tokens}, {"phases": phases(step, cpu), "tokens": tokens}]
    return {"steps": steps, "peak_gb": peak, "prompt_tokens": list(prompts)}


def test_a_record_by_hand():
    sides = {"anygrpo": [run(2.0, 1.0), run(4.0, 1.0, peak=1.5)], "trl": [run(10.0, 8.0, peak=6.0), run(12.0, 4.0)]}
    row = llm.record(CASE, sides, "trl", 1)
    assert row["ours_s"] == 3.0
    assert row["peer_s"] == 11.0
    assert (row["ratio"], row["ratio_min"], row["ratio_max"]) == (4.0, 3.0, 5.0)
    assert (row["cpu_ratio_min"], row["cpu_ratio_max"]) == (4.0, 8.0)
    assert (row["ours_peak_gb"], row["peer_peak_gb"]) == (1.5, 6.0)
    assert row["phases"]["ours"]["generate"] == {"s": 1.5, "cpu_s": 0.5}
    assert row["tokens_per_s"] == pytest.approx(128 / 3)


def test_a_single_step_is_counted():
    alone = run(2.0, 1.0)
    alone["steps"] = alone["steps"][1:]
    assert llm.record(CASE, {"anygrpo": [alone]}, None, 1)["ours_s"] == 2.0


@pytest.mark.parametrize("other", [{"tokens": 127}, {"prompts": (9, 12)}])
def test_unequal_work_is_refused(other):
    with pytest.raises(TrainingError, match="not the same work"):
        llm.record(CASE, {"anygrpo": [run(1.0, 1.0)], "trl": [run(9.0, 9.0, **other)]}, "trl", 1)


@pytest.mark.parametrize(
    ("peer", "named"), [("trl", "trl and datasets, "), ("trl-vllm", "trl and datasets and vllm, ")]
)
def test_a_missing_peer_is_named(monkeypatch, peer, named):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=named):
        llm.compare(CASES["tiny"], peer)


def test_the_peer_that_samples_by_vllm_is_told_its_share(monkeypatch):
    asked = []

    def answer(worker, arguments, threads, case):
        asked.append((worker.name, arguments))
        return run(1.0, 1.0)

    monkeypatch.setattr(llm.Worker, "need", lambda *a: None)
    monkeypatch.setattr(llm.Worker, "run", answer)
    llm.compare(CASES["tiny"], "trl-vllm", rounds=1, gradient=False)
    (ours, own), (peer, theirs) = asked
    assert (ours, peer) == ("anygrpo", "trl-vllm")
    assert "--vllm" not in own
    assert theirs[theirs.index("--vllm") + 1] == "0.3"


def test_unknown_cases_and_shapes(tmp_path):
    with pytest.raises(ConfigError, match="short"):
        case_named("shrot")
    with pytest.raises(ConfigError, match=r"qwen2.5-0.5b"):
        model_folder("shape:qwen", tmp_path)
    changed = case_named("short", dtype="bfloat16", model=None, prompts=2)
    assert (changed.dtype, changed.model, changed.prompts) == ("bfloat16", "smollm2", 2)


def test_prompts_have_about_the_asked_length(tmp_path):
    from anygrpo.models.loading import load_tokenizer

    tokenizer = load_tokenizer(model_folder("shape:tiny", tmp_path))
    texts = prompt_texts(tokenizer, 6, 100)
    lengths = [len(tokenizer(t)["input_ids"]) for t in texts]
    assert all(96 <= n <= 104 for n in lengths)
    assert len(set(texts)) == 6
    assert texts == prompt_texts(tokenizer, 6, 100)


def test_the_reward_differs_between_texts():
    assert reward_of("aab") == (97 + 97 + 98) % 7
    long = [" ".join(f"w{(i * k) % 997}" for i in range(256)) for k in range(1, 9)]
    assert len({reward_of(text) for text in long}) > 1  # a group of long answers still has spread
    assert reward_of("abcdefg") == 0.0


def test_the_floor_by_hand(monkeypatch):
    """100 prompt tokens and 2 x 3 x 5 = 30 new ones; 1000 weights in the body, 50 in the head."""
    case = Case("x", 50, 5, prompts=2, group=3)
    work = floor.arithmetic(case, 1000, 50)
    assert work["generate"] == pytest.approx(2e-9 * (130 * 1000 + 30 * 50))
    assert work["train"] == pytest.approx(3 * work["generate"])
    monkeypatch.setattr(floor, "rates", lambda *a: floor.Rates(matmul=2.0, matmul_thin=1e9, copy=1e-6))
    made = floor.floor(case, 1000, 50)
    assert made["train_floor_s"] == pytest.approx(work["train"] / 2.0)
    # Decoding reads 1050 float32 weights for each of 5 tokens at 1000 bytes a second.
    assert made["generate_floor_s"] == pytest.approx(5 * 1050 * 4 / 1000)


def test_measured_rates_are_rates():
    made = floor.rates(torch.float32)
    assert 0.1 < made.matmul < 1e5
    assert 0.05 < made.copy < 1e4


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="TRL is not installed")
def test_the_tiny_case_against_trl(capsys):
    assert main(["bench", "llm", "--case", "tiny", "--rounds", "1", "--steps", "1", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)[0]
    assert row["tokens"] == 2 * 4 * 6
    assert row["gradient_relative_difference"] < 1e-4
    assert row["peer_s"] > 0


def test_the_command_prints_a_record(monkeypatch, capsys):
    sides = {"anygrpo": [run(2.0, 1.0)], "trl": [run(10.0, 8.0)]}
    made = llm.record(CASE, sides, "trl", 1) | {"gradient_relative_difference": 2.5e-5}
    asked = []
    monkeypatch.setattr(llm, "compare", lambda *given: asked.append(given) or made)
    command = ["bench", "llm", "--case", "short", "--prompts", "2", "--rounds", "1", "--threads", "3", "--no-gradient"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "ratio        5.00" in out
    assert "8.00 (8.00 to 8.00)" in out
    assert "differ by 2.5e-05" in out
    case, *rest = asked[0]
    assert (case.name, case.prompts) == ("short", 2)
    assert rest == ["trl", 1, 2, 3, "", False]


def test_the_command_prints_a_floor(capsys):
    assert main(["bench", "floor", "--case", "tiny", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)[0]
    assert row["generate_floor_s"] > 0
    assert row["train_floor_s"] > 0
