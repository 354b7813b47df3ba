"""The frozen model's answers: the shared prefix changes nothing, the cache answers by content, splits don't overlap."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from anygrpo.core.build import build_task as build
from anygrpo.errors import DataError
from anygrpo.models import classifier as frozen
from anygrpo.models.classifier import FrozenClassifier
from anygrpo.models.loading import Loaded
from anygrpo.selection.settings import DemonstrationsConfig, RewardConfig
from anygrpo.selection.task import nearest


class Bytes:
    """A tokenizer of bytes (a leading space dropped, so that labels begin differently)."""

    eos_token_id = 0

    def __call__(self, text, add_special_tokens=True, return_tensors=None):
        ids = list(text.lstrip(" ").encode())
        return {"input_ids": torch.tensor([ids]) if return_tensors else ids}


@pytest.fixture
def tiny(monkeypatch):
    torch.manual_seed(0)
    sizes = {"vocab_size": 256, "hidden_size": 32, "intermediate_size": 48, "max_position_embeddings": 1000}
    config = LlamaConfig(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, **sizes)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(8)  # far from uniform, so that a wrong position or mask shows
    monkeypatch.setattr(frozen.loading, "load", lambda *_: Loaded(model, Bytes(), "tiny"))
    return model


@pytest.fixture
def task(tiny, tmp_path):
    words = {"positive": "good", "negative": "awful"}
    rows = [{"text": f"{words[k]} film number {i}", "label": k} for i in range(20) for k in words]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    sizes = {"pool": 6, "shots": 3, "queries": 8, "held_out_validation": 6, "held_out_test": 6, "batch_size": 3}
    data, cache = str(tmp_path / "d.jsonl"), str(tmp_path / "c.sqlite")
    config = DemonstrationsConfig(kind="demonstrations", path=data, cache=cache, embedding="ngrams", **sizes)
    return build(config, 0)


def test_prefix_and_padding_change_nothing(task, tiny):
    classifier = task.frozen
    pool = task.texts["pool"]
    lengths = ((0, 3), (2, 9), (2, 1), (2, 5), (2, 30), (3, 4), (1, 7))  # four share a prefix, three are read whole
    prompts = [classifier.prompt(pool[:k], "x" * n) for k, n in lengths]
    found = classifier.label_log_probs(prompts)
    for row, (prefix, query) in zip(found, prompts):
        ids = torch.tensor([list((prefix + query).encode())])
        with torch.no_grad():
            expected = tiny(ids).logits[0, -1, [ord("n"), ord("p")]].log_softmax(-1)
        torch.testing.assert_close(row, expected, atol=1e-4, rtol=0)


def test_prompts_with_few_in_common_are_read_side_by_side(task, tiny):
    calls = []
    tiny.register_forward_pre_hook(lambda *_: calls.append(1))
    pool = task.texts["pool"]
    task.frozen.label_log_probs([task.frozen.prompt(pool[i : i + 2], "x") for i in range(3)])
    assert len(calls) == 1


def test_half_precision_keeps_the_labels_apart(tiny, tmp_path):
    """In bfloat16 logits near 20 differ in steps of 1/8: the output layer alone is float32."""
    half = FrozenClassifier("tiny", ("negative", "positive"), "", "bfloat16", 4, tmp_path / "h.sqlite")
    tiny.bfloat16()
    seen = []
    tiny.register_forward_hook(lambda _, __, output: seen.append(output.logits))
    half.label_log_probs([half.prompt([], "x" * n) for n in range(1, 6)])
    assert tiny.get_input_embeddings().weight.dtype == torch.bfloat16
    assert {logits.dtype for logits in seen} == {torch.float32}
    assert bool((seen[0] != seen[0].bfloat16()).any())


@pytest.mark.filterwarnings("error")
def test_nothing_is_deprecated(task):
    pool = task.texts["pool"]
    task.frozen.label_log_probs([task.frozen.prompt(pool[:1], "x" * n) for n in range(5)])


def test_embeddings_made_beforehand_serve_as_the_encoder(task, tmp_path):
    rows = [text for split in task.texts.values() for text, _ in split]
    vectors = np.random.default_rng(0).normal(size=(len(rows), 5)).astype(np.float16)
    np.savez(tmp_path / "e.npz", texts=np.array(rows), embeddings=vectors)
    other = build(task.config.model_copy(update={"embedding": str(tmp_path / "e.npz")}), 0)
    own = torch.from_numpy(vectors[rows.index(other.prompt("train-2")["text"])].astype(np.float32))
    torch.testing.assert_close(other.prompt("train-2")["query"], own / own.norm())
    np.savez(tmp_path / "short.npz", texts=np.array(rows[1:]), embeddings=vectors[1:])
    for name, message in (("none.npz", "no embeddings at"), ("short.npz", r"but not '.* film .*\(1 are missing\)")):
        short = build(task.config.model_copy(update={"embedding": str(tmp_path / name)}), 0)
        with pytest.raises(DataError, match=message):
            short.prompt("train-0")


def test_the_cache_answers_by_content(task):
    prompts = task.prompts(0, 4)
    first = task.judge(prompts, [[(0, 1), (0, 1)]] * 4)
    assert (task.frozen.asked, task.frozen.computed) == (8, 4)
    again = task.judge(prompts, [[(0, 1)], [(0, 1)], [(0, 1)], [(1, 0)]])
    assert task.frozen.computed == 5  # another order is another prompt
    assert torch.equal(first["gt_prob"][:3, :1], again["gt_prob"][:3])


def test_splits_are_disjoint_balanced_and_fixed(task):
    texts = [t for split in task.texts.values() for t, _ in split]
    assert len(set(texts)) == len(texts) == 6 + 8 + 6 + 6
    for split in task.texts.values():
        assert sum(label == "positive" for _, label in split) * 2 == len(split)
    assert build(task.config, 5).texts == task.texts
    assert [p["id"] for p in task.held_out()] == [f"validation-{i}" for i in range(6)]


def test_stopping_at_once_is_zero_shot(task):
    prompts = task.prompts(0, 2)
    scores = task.score(prompts, [[()], [()]])
    assert bool(scores.valid.all())
    assert set(scores.components) == {"correct", "accuracy_score", "gt_prob"}
    task.reward = RewardConfig(mode="hard_plus_gtprob_plus_rel")  # the one mode that counts likeness to the query
    assert task.score(prompts, [[()], [()]]).components["relevance"].tolist() == [[0.0], [0.0]]


def test_stored_demonstrations_are_neighbours_nearest_last(task):
    prompt = task.prompts(0, 1)[0]
    assert task.stored([prompt]).actions == [[nearest(prompt, 3)[::-1]]]


@pytest.mark.parametrize(
    ("line", "message"),
    [("{}", "is not an object with"), ('{"text": "x", "label": "meh"}', "has label 'meh'"), ("x", "is not an object")],
)
def test_bad_rows_are_named(task, tmp_path, line, message):
    (tmp_path / "d.jsonl").write_text(line + "\n")
    with pytest.raises(DataError, match=message):
        build(task.config, 0)


def test_too_few_texts_and_absent_files_are_named(task, tmp_path):
    with pytest.raises(DataError, match="runs out in test"):
        build(task.config.model_copy(update={"held_out_test": 60}), 0)
    with pytest.raises(DataError, match="no examples at"):
        build(task.config.model_copy(update={"path": "nothing"}), 0)


def test_the_template_is_a_setting(task, tmp_path):
    (tmp_path / "t.txt").write_text(
        "{{ instruction }} {% for d in demonstrations %}<{{ d.text }}={{ d.label }}>{% endfor %}{{ query.text }}="
    )
    own = build(task.config.model_copy(update={"template": str(tmp_path / "t.txt"), "instruction": "Go."}), 0)
    assert own._shown([("a", "positive"), ("b", "negative")], "c") == ("", "Go. <a=positive><b=negative>c=")
    prompt = own.prompt("train-0")
    assert torch.isfinite(own.judge([prompt], [[(0, 1)]])["gt_prob"]).all()
