"""Texts to token ids and back. Sampled tokens are never decoded and tokenised again."""

from __future__ import annotations

import re
from typing import Any

from anygrpo.errors import ConfigError, DataError
from anygrpo.language.settings import CausalLMConfig

_MARK = "anygrpo-answer-mark"

TEMPLATE = 1024
"""More tokens than a chat template adds."""


class Prompts:
    """Tokenises the prompts of a recipe.

    Args:
        tokenizer: a Hugging Face tokenizer.
        config: `chat_template` and `system` are used.
        context: positions the model has, or None.
        ends: ids of the end tokens.
    """

    def __init__(self, tokenizer: Any, config: CausalLMConfig, context: int | None, ends: tuple[int, ...]) -> None:
        self.tokenizer, self.system, self.context, self.ends = tokenizer, config.system, context, ends
        has_template = bool(getattr(tokenizer, "chat_template", None))
        self.chat = has_template if config.chat_template == "auto" else config.chat_template
        if self.chat and not has_template:
            raise ConfigError("chat_template = true, but this tokenizer has none", "set chat_template = false")
        if self.system and not self.chat:
            raise ConfigError("system is set, but there is no chat template to put it in", "write it into the prompts")

    def messages(self, prompt: Any) -> list[dict[str, str]]:
        """The chat messages of a prompt, the system message first."""
        given = _content(prompt)
        turns = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
        if self.system and turns[0]["role"] != "system":
            turns = [{"role": "system", "content": self.system}, *turns]
        return turns

    def encode(self, prompts: list[Any], room: int) -> list[list[int]]:
        """Token ids of each prompt.

        Args:
            room: positions that the completion may need.

        Raises:
            DataError: an empty prompt, or one that does not fit the context together with the completion.
        """
        out = [self._encode_one(prompt) for prompt in prompts]
        if not all(out):
            raise DataError(f"prompt {out.index([])} is empty", "give every prompt at least one token")
        long = [i for i, ids in enumerate(out) if self.context is not None and len(ids) + room > self.context]
        if long:
            count, others = len(out[long[0]]), f", and {len(long) - 1} more are too long" if len(long) > 1 else ""
            raise DataError(
                f"prompt {_words(prompts[long[0]])[:60]!r}... has {count} tokens; with {room} new tokens that is "
                f"{count + room}, but the model's context is {self.context}{others}",
                "shorten or drop long prompts, or lower max_new_tokens",
            )
        return out

    def check(self, prompts: list[Any], room: int) -> None:
        """`encode` those prompts that may be too long: a token is at least one byte.

        Raises:
            DataError: see `encode`.
        """
        if self.context is not None:
            spare = self.context - room - TEMPLATE
            self.encode([p for p in prompts if len(_words(p).encode()) > spare], room)

    def _encode_one(self, prompt: Any) -> list[int]:
        content = _content(prompt)
        if self.chat:
            text = self.tokenizer.apply_chat_template(self.messages(prompt), tokenize=False, add_generation_prompt=True)
            return self.tokenizer(text, add_special_tokens=False)["input_ids"]
        if not isinstance(content, str):
            raise DataError("a prompt is a list of messages, but there is no chat template", "give prompts as texts")
        return self.tokenizer(content)["input_ids"]

    def answer(self, text: str) -> list[int]:
        """A given answer as completion ids, with the end token the model itself would have to give."""
        return [*self.tokenizer(text, add_special_tokens=False)["input_ids"], self.tokenizer.eos_token_id]

    def text(self, ids: list[int]) -> str:
        """A completion as a reward reads it: without special tokens."""
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def next_turn(self, text: str, role: str = "user") -> list[int]:
        """Ids that follow the model's end token where the conversation goes on with `text`: what the chat template
        puts between an answer's end token and the place where the model speaks again."""
        if not self.chat:
            return self.tokenizer(text, add_special_tokens=False)["input_ids"]
        history = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _MARK}]
        full = self.tokenizer.apply_chat_template(
            [*history, {"role": role, "content": text}], tokenize=False, add_generation_prompt=True
        )
        after = full.split(_MARK, 1)[1]
        ends = [re.escape(self.tokenizer.decode([i])) for i in self.ends]
        after = re.sub(rf"^\s*(?:{'|'.join(ends)})", "", after)
        return self.tokenizer(after, add_special_tokens=False)["input_ids"]


def _words(prompt: Any) -> str:
    """What a prompt's tokens are made from: its text, or the text of its messages."""
    content = _content(prompt)
    return content if isinstance(content, str) else "\n".join(str(message["content"]) for message in content)


def _content(prompt: Any) -> Any:
    """The text or messages of a prompt record.

    Raises:
        DataError: no "prompt" in the record, or a prompt that is neither a text nor messages.
    """
    content = prompt.get("prompt") if isinstance(prompt, dict) else prompt
    good = isinstance(content, str) or (
        isinstance(content, list)
        and content
        and all(isinstance(m, dict) and {"role", "content"} <= m.keys() for m in content)
    )
    if not good:
        raise DataError(
            f"a prompt must be a text or a list of messages with role and content, found {str(content)[:80]!r}",
            'give each record a "prompt"',
        )
    return content
