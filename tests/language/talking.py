"""A byte tokenizer with a chat template, and an engine that says what a script says: all else is real."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, PreTrainedTokenizerFast

from anygrpo.language import build
from anygrpo.language.engine.rows import Rows
from anygrpo.language.settings import CausalLMConfig

SILENT = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""Knows no tools."""

_SPECIAL = ["<s>", "<|end|>", "<pad>", "<|assistant|>", "<|user|>", "<|tool|>", "<|system|>", "[TOOL_CALLS]", "[ARGS]"]
_SPECIAL += ["<|call|>", "<|message|>", "<|channel|>", "<|start|>", "<|python_tag|>"]


def tokenizer(template: str = SILENT) -> PreTrainedTokenizerFast:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {word: i for i, word in enumerate([*_SPECIAL, *letters])}
    inner = Tokenizer(models.BPE(vocabulary, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="<|end|>", pad_token="<pad>",
        additional_special_tokens=_SPECIAL[3:], clean_up_tokenization_spaces=False,
    )  # fmt: skip
    made.chat_template = template
    return made


def model() -> torch.nn.Module:
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=288, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=2048, bos_token_id=0, eos_token_id=1, pad_token_id=2,
    )  # fmt: skip
    return AutoModelForCausalLM.from_config(config).eval()


class Scripted:
    """Says `turns[row]` in order, whatever it is asked."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, turns: list[list[str]]) -> None:
        end = tokenizer.eos_token_id
        encode = lambda text: [*tokenizer(text, add_special_tokens=False)["input_ids"], end]  # noqa: E731
        self.turns = [[encode(text) for text in row] for row in turns]

    def refresh(self, weights) -> None:
        pass

    def generate(self, prompts, group_size, sampling, seed, turn=None):
        self.prompts = prompts
        rows, script = Rows(len(self.turns), sampling, turn), [[i for t in row for i in t] for row in self.turns]
        active = list(range(len(script)))
        while any(rows.alive(active)):
            tokens = [row[0] if row else sampling.support.eos_ids[0] for row in script]
            sampled = [not rows.forced[i] and i not in rows.waiting and not rows.done[i] for i in active]
            rows.take(active, torch.tensor(tokens), torch.zeros(len(tokens)))
            for i in active:
                if sampled[i] and script[i]:
                    script[i].pop(0)
        return rows.finish({})


def policy(script: list[list[str]], template: str = SILENT, **settings):
    """A policy whose samples are the script's."""
    config = CausalLMConfig(
        kind="causal_lm", model="memory", train="all", dtype="float32", device="cpu", threads=1,
        **{"max_new_tokens": 512, "max_turns": 4, **settings},
    )  # fmt: skip
    made = build.from_model(model(), tokenizer(template), config)
    made.engine, made._unproved, made.trust_sampler = Scripted(made.prompts.tokenizer, script), False, True
    return made
