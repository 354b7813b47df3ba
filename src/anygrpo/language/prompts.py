"""Texts to token ids and back. Sampled tokens are never decoded and tokenised again."""

from __future__ import annotations

import re
from typing import Any

from anygrpo.errors import ConfigError, DataError
from anygrpo.language.settings import CausalLMConfig
from anygrpo.language.tasks.messages import Messages, parsed, with_system

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
        self.template_settings, self.special = dict(config.chat_template_kwargs), config.special_tokens
        self._silent = {*ends, tokenizer.pad_token_id, tokenizer.bos_token_id} - {None}
        has_template = bool(getattr(tokenizer, "chat_template", None))
        self.chat = has_template if config.chat_template == "auto" else config.chat_template
        if self.chat and not has_template:
            raise ConfigError("chat_template = true, but this tokenizer has none", "set chat_template = false")
        if self.system and not self.chat:
            raise ConfigError("system is set, but there is no chat template to put it in", "write it into the prompts")

    def messages(self, prompt: Any) -> Messages:
        """The chat messages of a prompt, the system message first."""
        given = _content(prompt)
        turns: Messages = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
        return with_system(self.system, turns)

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
            return self.tokenizer(self.rendered(prompt), add_special_tokens=False)["input_ids"]
        if not isinstance(content, str):
            raise DataError("a prompt is a list of messages, but there is no chat template", "give prompts as texts")
        plain = self.tokenizer(content, add_special_tokens=False)["input_ids"]
        ids = self.tokenizer(content)["input_ids"]
        # Some tokenizers end every text with an end token: a prompt is to be gone on with.
        while ids and ids[-1] in self.ends and not (plain and plain[-1] in self.ends):
            ids = ids[:-1]
        return ids

    def rendered(self, prompt: Any) -> str:
        """The text of a prompt by the chat template. A last turn of the assistant is left open, to be continued.

        Raises:
            DataError: the template refuses these messages, or drops what is to be continued.
        """
        turns, columns = self.messages(prompt), prompt if isinstance(prompt, dict) else {}
        given: dict[str, Any] = {**self.template_settings, **_object(columns, "chat_template_kwargs")}
        if (tools := parsed(columns.get("tools"))) is not None:
            given["tools"] = tools
        goes_on = turns[-1]["role"] == "assistant" and not turns[-1].get("tool_calls")
        how = {"continue_final_message": True} if goes_on else {"add_generation_prompt": True}
        try:
            text = self.tokenizer.apply_chat_template(turns, tokenize=False, **how, **given)
        except Exception as error:  # a template is a program of the model's
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise DataError(
                f"the chat template refuses prompt {_words(prompt)[:60]!r}...: {said}",
                "see the roles and their order, tools and chat_template_kwargs",
            ) from None
        if goes_on and not text.endswith(turns[-1]["content"].rstrip()) and not text.endswith(turns[-1]["content"]):
            raise DataError(
                f"the chat template changes the assistant's last turn {turns[-1]['content'][-40:]!r}, which is to be "
                f"continued: the text ends in {text[-40:]!r}",
                "leave the turn out, or use another template",
            )
        return text

    def answer(self, text: str) -> list[int]:
        """A given answer as completion ids, with the end token the model itself would have to give."""
        return [*self.tokenizer(text, add_special_tokens=False)["input_ids"], self.tokenizer.eos_token_id]

    def text(self, ids: list[int]) -> str:
        """A completion as a reward reads it: what was sampled, without end and padding tokens (and, with
        `special_tokens = false`, without any special token)."""
        kept = [i for i in ids if i not in self._silent]
        return self.tokenizer.decode(kept, skip_special_tokens=not self.special)

    def plain(self, ids: list[int]) -> str:
        """Ids as a text without any special token."""
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def render(self, messages: Messages) -> str:
        """Messages by the chat template, up to where the model speaks next."""
        return self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, **self.template_settings
        )

    def next_turn(self, messages: Messages) -> list[int]:
        """Ids that follow the model's end token where the conversation goes on with `messages`: what the chat template
        puts between an answer's end token and the place where the model speaks again."""
        if not self.chat:
            text = "".join(m["content"] for m in messages)
            return self.tokenizer(text, add_special_tokens=False)["input_ids"]
        history: Messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _MARK}]
        after = self.render([*history, *messages]).split(_MARK, 1)[1]
        ends = [re.escape(self.tokenizer.decode([i])) for i in self.ends]
        after = re.sub(rf"^\s*(?:{'|'.join(ends)})", "", after)
        return self.tokenizer(after, add_special_tokens=False)["input_ids"]


def _words(prompt: Any) -> str:
    """What a prompt's tokens are made from: its text, or the text of its messages."""
    content = _content(prompt)
    return content if isinstance(content, str) else "\n".join(str(message["content"]) for message in content)


def _object(columns: dict[str, Any], name: str) -> dict[str, Any]:
    """A column that holds an object, or the JSON of one.

    Raises:
        DataError: anything else.
    """
    value = parsed(columns.get(name))
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DataError(f"{name} = {str(value)[:60]!r} of a row is a {type(value).__name__}", "give an object")
    return value


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
