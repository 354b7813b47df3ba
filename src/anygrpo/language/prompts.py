"""Texts to token ids and back. Sampled tokens are never decoded and tokenised again."""

from __future__ import annotations

import re
from typing import Any

from anygrpo.errors import ConfigError, DataError, TrainingError
from anygrpo.language.compute.pictures import Pictures
from anygrpo.language.prompt_fields import content_of, object_of, waits, words_of
from anygrpo.language.settings import CausalLMConfig
from anygrpo.language.tasks.messages import Messages, parsed, with_system
from anygrpo.language.tasks.pictures import marked, parts, references
from anygrpo.language.tools import formats
from anygrpo.spoken import NOTHING, Text

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
        pictures: of a model that sees, what encodes them.
    """

    def __init__(
        self,
        tokenizer: Any,
        config: CausalLMConfig,
        context: int | None,
        ends: tuple[int, ...],
        pictures: Pictures | None = None,
    ) -> None:
        self.pictures, self.never = pictures, () if pictures is None else (pictures.token,)
        self.tokenizer, self.system, self.context, self.ends = tokenizer, config.system, context, ends
        self.template_settings, self.special = dict(config.chat_template_kwargs), config.special_tokens
        self._silent = {*ends, tokenizer.pad_token_id, tokenizer.bos_token_id} - {None}
        self.tools: list[dict[str, Any]] = []
        self._plainly = False
        has_template = bool(getattr(tokenizer, "chat_template", None))
        self.chat = has_template if config.chat_template == "auto" else config.chat_template
        if self.chat and not has_template:
            raise ConfigError(
                Text("chat_template = true, but this tokenizer has none", "chat_template = true，但这个分词器没有模板"),
                Text("set chat_template = false", "请设 chat_template = false"),
            )
        if self.system and not self.chat:
            raise ConfigError(
                Text(
                    "system is set, but there is no chat template to put it in",
                    "给出了 system，但没有可以放它的对话模板",
                ),
                Text("write it into the prompts", "请写入提示"),
            )

    def messages(self, prompt: Any) -> Messages:
        """The chat messages of a prompt, the system message first."""
        return with_system(self.system, self.turns_of(prompt))

    def turns_of(self, prompt: Any) -> Messages:
        """The messages of a prompt as it is given, without the policy's system message."""
        given = content_of(prompt)
        return [{"role": "user", "content": given}] if isinstance(given, str) else list(given)

    def equip(self, tools: list[dict[str, Any]]) -> None:
        """From now on every prompt has these tools (schemas), and calls are written out where the template knows
        none.

        Raises:
            ConfigError: no chat template.
        """
        if not self.chat:
            raise ConfigError(
                Text("tools need a chat template, and this tokenizer has none", "工具需要对话模板，而这个分词器没有"),
                Text("use an instruct model", "请用指令模型"),
            )
        self.tools, self._plainly = tools, not self.knows_tools()

    def knows_tools(self) -> bool:
        """Does the template write out tools, calls and what tools say?"""
        return self.chat and formats.shown(self.render_as_is)

    def render_as_is(self, messages: Messages, **more: Any) -> str:
        """Messages by the chat template alone."""
        shown = self._in_parts(messages)
        return self.tokenizer.apply_chat_template(shown, tokenize=False, **self.template_settings, **more)

    def _in_parts(self, messages: Messages) -> Messages:
        """As the template of a model that sees reads them; as they are for others."""
        return messages if self.pictures is None else [{**m, "content": parts(m["content"])} for m in messages]

    def encode(self, prompts: list[Any], room: int) -> list[list[int]]:
        """Token ids of each prompt.

        Args:
            room: positions that the completion may need.

        Raises:
            DataError: an empty prompt, or one that does not fit the context together with the completion.
        """
        out = [self._encode_one(prompt) for prompt in prompts]
        for prompt, ids in zip(prompts, out):
            if self.pictures is not None and (self.pictures.token in ids or waits(prompt)):
                raise DataError(
                    Text("a prompt has a place for a picture, and no picture", "提示中有图片的位置，却没有图片"),
                    Text("name the column that holds it in task.pictures", "请在 task.pictures 中写明图片所在的列"),
                )
        if not all(out):
            raise DataError(
                Text(f"prompt {out.index([])} is empty", f"第 {out.index([])} 个提示是空的"),
                Text("give every prompt at least one token", "请给每个提示至少一个 token"),
            )
        long = [i for i, ids in enumerate(out) if self.context is not None and len(ids) + room > self.context]
        if long:
            count, more = len(out[long[0]]), len(long) - 1
            others = Text(f", and {more} more are too long", f"，另有 {more} 个过长") if more else NOTHING
            raise DataError(
                Text(
                    f"prompt {words_of(prompts[long[0]])[:60]!r}... has {count} tokens; with {room} new tokens that is "
                    f"{count + room}, but the model's context is {self.context}{others.en}",
                    f"提示 {words_of(prompts[long[0]])[:60]!r}... 有 {count} 个 token；加上 {room} 个新 token 共 "
                    f"{count + room} 个，而模型的上下文为 {self.context}{others.zh}",
                ),
                Text(
                    "shorten or drop long prompts, or lower max_new_tokens", "请缩短或去掉长提示，或减小 max_new_tokens"
                ),
            )
        return out

    def check(self, prompts: list[Any], room: int) -> None:
        """`encode` those prompts that may be too long: a token is at least one byte.

        Raises:
            DataError: see `encode`.
        """
        if self.context is not None:
            spare = self.context - room - TEMPLATE
            self.encode([p for p in prompts if len(words_of(p).encode()) > spare], room)

    def _encode_one(self, prompt: Any) -> list[int]:
        content = content_of(prompt)
        if shown := references(content):
            if self.pictures is None:
                raise DataError(
                    Text("a prompt holds pictures, and this policy sees none", "提示中有图片，而该策略看不到图片"),
                    Text("add [policy.vision], with a model that sees", "加上 [policy.vision]，并使用视觉语言模型"),
                )
            if not self.chat and len(content) > 1:
                raise DataError(
                    Text(
                        "a prompt is several messages, but there is no chat template", "提示有多条消息，但没有对话模板"
                    ),
                    Text("give one message", "请只给一条消息"),
                )
            text = self.rendered(prompt) if self.chat else marked(content, self.pictures.mark)
            return self.pictures.encode(text, list(shown), special=not self.chat)
        if self.chat:
            return self.tokenizer(self.rendered(prompt), add_special_tokens=False)["input_ids"]
        if not isinstance(content, str):
            raise DataError(
                Text("a prompt is a list of messages, but there is no chat template", "提示是消息列表，但没有对话模板"),
                Text("give prompts as texts", "请把提示写成文本"),
            )
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
        given: dict[str, Any] = {**self.template_settings, **object_of(columns, "chat_template_kwargs")}
        tools = parsed(columns.get("tools")) or self.tools or None
        if self._plainly:
            turns = formats.plainly(turns, tools)
        elif tools is not None:
            given["tools"] = tools
        goes_on = turns[-1]["role"] == "assistant" and not turns[-1].get("tool_calls")
        how = {"continue_final_message": True} if goes_on else {"add_generation_prompt": True}
        try:
            text = self.tokenizer.apply_chat_template(self._in_parts(turns), tokenize=False, **how, **given)
        except Exception as error:  # a template is a program of the model's
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise DataError(
                Text(
                    f"the chat template refuses prompt {words_of(prompt)[:60]!r}...: {said}",
                    f"对话模板拒绝提示 {words_of(prompt)[:60]!r}...：{said}",
                ),
                Text(
                    "see the roles and their order, tools and chat_template_kwargs",
                    "请检查角色及其顺序、tools 与 chat_template_kwargs",
                ),
            ) from None
        if goes_on and not text.endswith(turns[-1]["content"].rstrip()) and not text.endswith(turns[-1]["content"]):
            raise DataError(
                Text(
                    "the chat template changes the assistant's last turn "
                    f"{turns[-1]['content'][-40:]!r}, which is to be "
                    f"continued: the text ends in {text[-40:]!r}",
                    f"对话模板改变了要续写的助手最后一轮 {turns[-1]['content'][-40:]!r}：文本以 {text[-40:]!r} 结尾",
                ),
                Text("leave the turn out, or use another template", "请去掉那一轮，或用另一个模板"),
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

    def full(self, ids: list[int]) -> str:
        """A completion with all special tokens but the end and padding tokens: calls may be marked by them."""
        return self.tokenizer.decode([i for i in ids if i not in self._silent], skip_special_tokens=False)

    def plain(self, ids: list[int]) -> str:
        """Ids as a text without any special token."""
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def render(self, messages: Messages) -> str:
        """Messages by the chat template, up to where the model speaks next."""
        messages = formats.plainly(messages, None) if self._plainly else messages
        return self.render_as_is(messages, add_generation_prompt=True)

    def next_turn(self, messages: Messages, calls: list[dict[str, Any]] | None = None) -> list[int]:
        """Ids that follow the model's end token where the conversation goes on with `messages`: what the chat template
        puts between an answer's end token and the place where the model speaks again.

        Args:
            calls: those of the turn that `messages` answer: some templates want them there.
        """
        messages = [{k: v for k, v in m.items() if k != "by"} for m in messages]
        if not self.chat:
            text = "".join(m["content"] for m in messages)
            return self.tokenizer(text, add_special_tokens=False)["input_ids"]
        if calls and not self._plainly:
            after = self._after_calls(messages, calls)
        else:
            history: Messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _MARK}]
            after = self.render([*history, *messages]).split(_MARK, 1)[1]
        return self.tokenizer(self._cut_end(after), add_special_tokens=False)["input_ids"]

    def _after_calls(self, messages: Messages, calls: list[dict[str, Any]]) -> str:
        """What the template adds where tools have answered. A template that takes one call a message gets one."""
        said = [{**call, "id": m.get("tool_call_id", "call00000")} for call, m in zip(calls, [*messages, *({},) * 9])]
        for some in (said, said[:1]):
            made: Messages = [
                {"role": "user", "content": "?"}, {"role": "assistant", "content": "", "tool_calls": some}
            ]  # fmt: skip
            try:
                before, whole = self.render_as_is(made), self.render([*made, *messages])
            except Exception as error:  # a template is a program of the model's
                fault = error
                continue
            if whole.startswith(before):
                return self._tail(before) + whole[len(before) :]
            fault = ValueError("it changes the call that was answered")
        raise TrainingError(
            Text(f"the chat template cannot go on after a call: {fault}", f"对话模板在一次调用之后不能继续：{fault}"),
            Text("name another model or template", "请换一个模型或模板"),
        )

    def _tail(self, text: str) -> str:
        """What a template puts after its last end token, that token with it."""
        places = [text.rfind(self.tokenizer.decode([i])) for i in self.ends]
        return text[max(places) :] if max(places, default=-1) >= 0 else ""

    def _cut_end(self, text: str) -> str:
        ends = [re.escape(self.tokenizer.decode([i])) for i in self.ends]
        return re.sub(rf"^\s*(?:{'|'.join(ends)})", "", text)

    def spoken(self, message: dict[str, Any]) -> list[int]:
        """A given turn of the assistant, calls among it, as completion ids with the end token."""
        if self.chat and message.get("tool_calls") and not self._plainly:
            asked: Messages = [{"role": "user", "content": "?"}]
            begun, whole = self.render(asked), self.render_as_is([*asked, message])
            if whole.startswith(begun):
                ids = self.tokenizer(whole[len(begun) :], add_special_tokens=False)["input_ids"]
                last = max((n for n, i in enumerate(ids) if i in self.ends), default=len(ids) - 1)
                return ids[: last + 1]
        folded = formats.plainly([message], None)[0]
        return self.answer(folded["content"])
