"""A scorer that is a frozen transformers model: of texts, or of texts and pictures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from anygrpo.core import hub
from anygrpo.errors import ConfigError, DataError
from anygrpo.models import loading
from anygrpo.selection.scorer_settings import ModelScorerConfig
from anygrpo.selection.scorers.scorer import Judgement, Shown
from anygrpo.selection.scorers.template import Template, compared, truths
from anygrpo.spoken import Text


class FromModel:
    """Label likelihood, likelihood of the true answer, or generation, after a rendered prompt."""

    def __init__(self, config: ModelScorerConfig) -> None:
        self.config = config
        self.template = Template(config.template, config.instruction, config.labels)
        told = [config.model, config.dtype, config.method, config.labels, config.match, config.max_new_tokens]
        told += [self.template.text, config.instruction]
        self.identity = hashlib.sha256(json.dumps(told).encode()).hexdigest()
        self._loaded: tuple[Any, Any] | None = None

    def judge(self, shown: Sequence[Shown]) -> list[Judgement]:
        way = {"labels": self._labels, "answer": self._answer, "generation": self._generated}[self.config.method]
        order = sorted(range(len(shown)), key=lambda i: sum(len(str(d)) for d in shown[i].demonstrations))
        out: list[Judgement] = [""] * len(shown)
        for a in range(0, len(order), self.config.batch_size):
            part = order[a : a + self.config.batch_size]
            for i, judgement in zip(part, way([shown[i] for i in part])):
                out[i] = judgement
        return out

    # --- three ways to judge ----------------------------------------------------------------------------------

    def _labels(self, shown: list[Shown]) -> Iterator[Judgement]:
        """Each label's log-probability after the prompt, normalised over the labels."""
        choices = [self._choices(one) for one in shown]
        rows = [(one, f" {label}") for one, labels in zip(shown, choices) for label in labels]
        scores = iter([s for s, _ in self._likelihoods(rows)])
        for one, labels in zip(shown, choices):
            log_probs = torch.tensor([next(scores) for _ in labels]).log_softmax(-1)
            true = [labels.index(x) for x in truths(one.query) if x in labels]
            if not true:
                yield f"the true answer {truths(one.query)[0]!r} is none of the labels {list(labels)}"
                continue
            right = float(int(log_probs.argmax()) in true)
            yield {
                "correct": right,
                "accuracy_score": right,
                "gt_prob": float(log_probs[true].exp().sum().clamp(max=1)),
            }

    def _choices(self, one: Shown) -> tuple[str, ...]:
        labels = self.config.labels or tuple(one.query.get("choices") or ())
        if len(labels) < 2:
            raise ConfigError(
                Text(
                    f'method = "labels" has {len(labels)} labels for query {one.query.get("id")!r}',
                    f'method = "labels" 对查询 {one.query.get("id")!r} 有 {len(labels)} 个标签',
                ),
                Text(
                    'set scorer.labels, give rows `choices`, or method = "answer"',
                    '请设 scorer.labels，给各行 `choices`，或设 method = "answer"',
                ),
            )
        return labels

    def _answer(self, shown: list[Shown]) -> Iterator[Judgement]:
        """Greedy decoding says exactly the answer if and only if each of its tokens is the likeliest after those
        before it."""
        for score, greedy in self._likelihoods([(one, f" {truths(one.query)[0]}") for one in shown]):
            yield {"correct": greedy, "accuracy_score": greedy, "gt_prob": min(1.0, float(torch.tensor(score).exp()))}

    def _generated(self, shown: list[Shown]) -> Iterator[Judgement]:
        inputs = self._inputs([self.template.render(one) for one in shown])
        model, processor = self._load()
        tokenizer = getattr(processor, "tokenizer", processor)
        with torch.inference_mode():
            made = model.generate(
                **inputs,
                max_new_tokens=self.config.max_new_tokens,
                do_sample=False,
                pad_token_id=tokenizer.pad_token_id,
            )
        said = tokenizer.batch_decode(made[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        for one, text in zip(shown, said):
            yield compared(text, one.query, self.config.match)

    # --- the model --------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def _likelihoods(self, rows: list[tuple[Shown, str]]) -> list[tuple[float, float]]:
        """Log-probability of each continuation after its prompt, and 1 where greedy decoding would give it, else 0."""
        model, processor = self._load()
        tokenizer = getattr(processor, "tokenizer", processor)
        endings = [tokenizer(text, add_special_tokens=False)["input_ids"] for _, text in rows]
        inputs = self._inputs([self.template.render(one) for one, _ in rows])
        longest = max(map(len, endings))
        tail = torch.tensor([[*e, *[tokenizer.pad_token_id] * (longest - len(e))] for e in endings])
        real = torch.tensor([[1] * len(e) + [0] * (longest - len(e)) for e in endings])
        device = inputs["input_ids"].device
        prompt = inputs["input_ids"].shape[1]
        inputs["input_ids"] = torch.cat([inputs["input_ids"], tail.to(device)], 1)
        inputs["attention_mask"] = torch.cat([inputs["attention_mask"], real.to(device)], 1)
        positions = {} if self.config.vision else {"position_ids": _positions(inputs["attention_mask"])}
        logits = model(**inputs, **positions, use_cache=False).logits[:, prompt - 1 : -1].float().cpu()
        log_probs = logits.log_softmax(-1)
        taken = (log_probs.gather(-1, tail[..., None])[..., 0] * real).sum(-1)
        greedy = ((log_probs.argmax(-1) == tail) | (real == 0)).all(-1)
        return list(zip(taken.tolist(), greedy.double().tolist()))

    def _inputs(self, prompts: list[tuple[str, list[str]]]) -> dict[str, Tensor]:
        """Padded on the left, so that all prompts end at one column."""
        model, processor = self._load()
        texts = [text for text, _ in prompts]
        if self.config.vision:
            pictures = [[_opened(file) for file in files] for _, files in prompts]
            given = {"images": pictures} if any(pictures) else {}
            made = processor(text=texts, **given, return_tensors="pt", padding=True)
        else:
            made = processor(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        made = {name: x.to(next(model.parameters()).device) for name, x in made.items() if isinstance(x, Tensor)}
        limit = loading.context_length(model)
        if limit is not None and made["input_ids"].shape[1] > limit:
            raise DataError(
                Text(
                    f"a prompt of {made['input_ids'].shape[1]} tokens is longer than the model's {limit}",
                    f"提示有 {made['input_ids'].shape[1]} 个 token，超过模型的上限 {limit}",
                )
            )
        return made

    def _load(self) -> tuple[Any, Any]:
        if self._loaded is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
            dtype = getattr(torch, self.config.dtype)
            if self.config.vision:
                self._loaded = _vision(self.config.model, dtype, device)
            else:
                loaded = loading.load(self.config.model, dtype, device)
                self._loaded = loaded.model, loaded.tokenizer
            tokenizer = getattr(self._loaded[1], "tokenizer", self._loaded[1])
            tokenizer.padding_side = "left"
            if tokenizer.pad_token_id is None:
                tokenizer.pad_token_id = tokenizer.eos_token_id
        return self._loaded


def _positions(mask: Tensor) -> Tensor:
    return (mask.cumsum(-1) - 1).clamp_min(0)


def _opened(file: str) -> Any:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as picture:
            return picture.convert("RGB")
    except (OSError, UnidentifiedImageError) as error:
        raise DataError(
            Text(f"no picture at {file}: {error}", f"{file} 处没有图像：{error}"),
            Text("rows name image files, relative to the current folder", "各行写的是图像文件，相对于当前文件夹"),
        ) from None


def _vision(name: str, dtype: torch.dtype, device: str) -> tuple[Any, Any]:
    """Model and processor of a vision-language model.

    Raises:
        DataError: it cannot be loaded.
    """
    from transformers import AutoModelForImageTextToText, AutoProcessor

    try:
        place = hub.to_load(name)
        processor = AutoProcessor.from_pretrained(place)
        model: Any = AutoModelForImageTextToText.from_pretrained(place, dtype=dtype)
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise DataError(
            Text(f"cannot load the vision-language model {name!r}: {first}", f"无法加载视觉语言模型 {name!r}：{first}"),
            Text("a Hub name or a folder", "请给出 Hub 名称或文件夹"),
        ) from None
    return model.to(device).eval(), processor
