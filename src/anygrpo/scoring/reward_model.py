"""A reward model (sequence classification, one number) as a reward: `kind = "reward_model"`. Runs in a worker of its
own, on a device of its own."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from anygrpo.core import hub
from anygrpo.core.device import device_of
from anygrpo.scoring.machine import usable_cpus


@functools.lru_cache(2)
def _loaded(model: str, device: str, dtype: str) -> tuple[Any, Any]:
    """(model in eval mode, tokenizer). Raises: ValueError where it does not give one number."""
    torch.set_num_threads(usable_cpus())
    place = hub.to_load(model)
    labels = AutoConfig.from_pretrained(place).num_labels
    if labels != 1:
        raise ValueError(f"{model} gives {labels} numbers, a reward model gives one (num_labels = 1)")
    tokenizer = AutoTokenizer.from_pretrained(place)
    net = AutoModelForSequenceClassification.from_pretrained(place, dtype=getattr(torch, dtype))
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "right"
    net.config.get_text_config().pad_token_id = tokenizer.pad_token_id  # the score stands at the last token before it
    net.config.pad_token_id = tokenizer.pad_token_id
    return net.to(device_of(device)).eval(), tokenizer


@torch.inference_mode()
def score(
    prompts: Sequence[Any],
    outputs: Sequence[str],
    model: str,
    device: str = "auto",
    dtype: str = "float32",
    batch_size: int = 16,
    max_length: int | None = None,
) -> list[Any]:
    """The model's number for each prompt with its output; a reason where they are longer than `max_length` tokens: the
    end of an answer that was cut would not be judged."""
    net, tokenizer = _loaded(model, device, dtype)
    rows = [_ids(tokenizer, prompt, output) for prompt, output in zip(prompts, outputs, strict=True)]
    most = max_length or getattr(net.config.get_text_config(), "max_position_embeddings", None) or 1 << 30
    values: list[Any] = [None] * len(rows)
    order = sorted((i for i in range(len(rows)) if len(rows[i]) <= most), key=lambda i: len(rows[i]))
    for first in range(0, len(order), batch_size):
        index = order[first : first + batch_size]
        padded = tokenizer.pad({"input_ids": [rows[i] for i in index]}, return_tensors="pt").to(net.device)
        logits = net(input_ids=padded["input_ids"], attention_mask=padded["attention_mask"]).logits[:, 0].float()
        for i, value in zip(index, logits.tolist()):
            values[i] = value
    for i, row in enumerate(rows):
        if len(row) > most:
            reason = f"{len(row)} tokens, and the reward model reads {most}"
            values[i] = {"raised": reason, "trace": reason}
    return values


def _ids(tokenizer: Any, prompt: Any, output: str) -> list[int]:
    """Tokens of the conversation by the reward model's own template, which writes its special tokens; without a
    template, of the two texts joined."""
    if tokenizer.chat_template is None:
        text = prompt if isinstance(prompt, str) else "\n".join(str(m.get("content") or "") for m in prompt)
        return list(tokenizer(text + output)["input_ids"])
    before = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    messages = [*before, {"role": "assistant", "content": output}]
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])
