"""A tiny reward model from a folder: batched and padded scores equal those of one sequence alone."""

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForSequenceClassification, PreTrainedTokenizerFast

from anygrpo.errors import ConfigError
from anygrpo.scoring.build import build_rewards
from anygrpo.scoring.reward_model import score
from anygrpo.scoring.scorer import Scorer
from anygrpo.scoring.settings import RewardModelRewardConfig
from anygrpo.scoring.workers import Pool

WORDS = {w: i for i, w in enumerate(["<eos>", "<unk>", "a", "b", "c", "user", "assistant", ":"])}
TEMPLATE = "{% for m in messages %}{{ m['role'] }} : {{ m['content'] }} {% endfor %}"


def folder(path, labels=1, template=None):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_labels=labels, max_position_embeddings=32,
    )  # fmt: skip
    LlamaForSequenceClassification(config).save_pretrained(path)
    inner = Tokenizer(models.WordLevel(WORDS, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>", unk_token="<unk>")
    tokenizer.chat_template = template
    tokenizer.save_pretrained(path)
    return str(path)


def alone(path, ids):
    net = LlamaForSequenceClassification.from_pretrained(path).eval()
    net.config.pad_token_id = None
    return net(input_ids=torch.tensor([ids])).logits[0, -1 if net.config.pad_token_id else 0].item()


def test_batches_equal_one_alone(tmp_path):
    path = folder(tmp_path)
    outputs = [" a", " a b c a b c", " c", " b b"]
    values = score(["a b"] * 4, outputs, path, batch_size=2)
    wanted = [alone(path, [2, 3, *(WORDS[w] for w in o.split())]) for o in outputs]
    assert values == pytest.approx(wanted, abs=1e-6)
    assert len({round(v, 6) for v in values}) == 4


def test_its_own_chat_template(tmp_path):
    path = folder(tmp_path, template=TEMPLATE)
    (value,) = score([[{"role": "user", "content": "a"}]], ["b"], path)
    assert value == pytest.approx(alone(path, [5, 7, 2, 6, 7, 3]), abs=1e-6)
    assert score(["a"], ["b"], path) == [value]


def test_what_is_too_long_has_a_reason(tmp_path):
    path = folder(tmp_path)
    good, long = score(["a"] * 2, [" b", " b" * 40], path)
    assert isinstance(good, float)
    assert long["raised"] == "41 tokens, and the reward model reads 32"


def test_as_a_reward_in_a_worker_of_its_own(tmp_path):
    path = folder(tmp_path)
    with Pool(1) as pool:
        (reward,) = build_rewards([RewardModelRewardConfig(kind="reward_model", model=path)], pool, set())
        scorer = Scorer([reward])
        scores = scorer.score([{"prompt": "a b"}], [[" a", " c", " b" * 40]])
        assert scores.rewards[0, :2].tolist() == pytest.approx(score(["a b"] * 2, [" a", " c"], path), abs=1e-6)
        assert scores.reasons == {(0, 2): "reward_model: 42 tokens, and the reward model reads 32"}
        scorer.close()
        assert reward.pool._workers[0].process is None


def test_models_that_are_none_are_refused(tmp_path):
    with Pool(1) as pool:
        for path, reason in (
            (folder(tmp_path, labels=3), "gives 3 numbers"),
            (str(tmp_path / "none"), "cannot be loaded"),
        ):
            with pytest.raises(ConfigError, match=reason):
                build_rewards([RewardModelRewardConfig(kind="reward_model", model=path)], pool, set())
