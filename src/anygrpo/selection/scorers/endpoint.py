"""A scorer behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from anygrpo.selection.scorer_settings import EndpointScorerConfig
from anygrpo.selection.scorers.scorer import Judgement, Shown
from anygrpo.selection.scorers.template import IMAGE, Template, compared, plain


class FromEndpoint:
    """The endpoint answers, and the answer is compared with the truth. Retries and limits are the client's."""

    def __init__(self, config: EndpointScorerConfig) -> None:
        from anygrpo.scoring.endpoint import Client, Endpoint

        self.config = config
        self.template = Template(config.template, config.instruction, config.labels)
        settings = ("url", "model", "key_env", "timeout", "retries", "concurrency", "per_minute")
        given = {name: getattr(config, name) for name in settings}
        self.client = Client(Endpoint(**given, parameters={"max_tokens": config.max_tokens}, structured="none"))
        told = [config.url, config.model, config.match, config.labels, config.max_tokens, self.template.text]
        self.identity = hashlib.sha256(json.dumps([*told, config.instruction]).encode()).hexdigest()

    def judge(self, shown: Sequence[Shown]) -> list[Judgement]:
        answers = self.client.ask_all([_messages(*self.template.render(one)) for one in shown])
        return [self._judged(one, answer) for one, answer in zip(shown, answers)]

    def _judged(self, one: Shown, answer: Any) -> Judgement:
        if isinstance(answer, Exception):
            return f"the endpoint gave no answer: {answer}"
        said = answer.text
        if self.config.labels:  # the first label that it names; an answer that names none is none of them
            found = {label: f" {plain(said)} ".find(f" {plain(label)} ") for label in self.config.labels}
            named = [label for label, at in sorted(found.items(), key=lambda pair: pair[1]) if at >= 0]
            said = named[0] if named else ""
        return compared(said, one.query, self.config.match)


def _messages(text: str, images: list[str]) -> list[dict[str, Any]]:
    """One user message; pictures stand where the text has their marks."""
    if not images:
        return [{"role": "user", "content": text}]
    from anygrpo.scoring.messages import data_url

    parts: list[dict[str, Any]] = []
    for piece, image in zip(text.split(IMAGE), [*images, None]):
        if piece.strip():
            parts.append({"type": "text", "text": piece})
        if image is not None:
            parts.append({"type": "image_url", "image_url": {"url": data_url(image)}})
    return [{"role": "user", "content": parts}]
