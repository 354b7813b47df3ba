"""From a query and demonstrations to a prompt with pictures, and from an answer to what it is worth."""

from __future__ import annotations

import re
import string
from collections import Counter
from pathlib import Path
from typing import Any

from anygrpo.errors import ConfigError, DataError
from anygrpo.selection.scorers.scorer import ANSWERS, Parts, Row, Shown
from anygrpo.spoken import Text

IMAGE = "<image>"
DEFAULT = (
    "{{ instruction }}{% if instruction %}\n\n{% endif %}"
    "{% for d in demonstrations %}{% if d.image %}<image>\n{% endif %}"
    "Question: {{ d.question or d.text }}\nAnswer: {{ d.answer or d.label }}\n\n{% endfor %}"
    "{% if query.image %}<image>\n{% endif %}Question: {{ query.question or query.text }}\nAnswer:"
)


class Template:
    """A Jinja template in a sandbox: files of others are read, not run."""

    def __init__(self, path: str | None, instruction: str, labels: tuple[str, ...]) -> None:
        """Raises: DataError: no such file. ConfigError: no template."""
        from jinja2 import StrictUndefined, TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        if path is not None and not Path(path).is_file():
            raise DataError(
                Text(f"no prompt template at {path}", f"{path} 处没有提示模板"),
                Text("scorer.template is a file", "scorer.template 应是一个文件"),
            )
        self.text = DEFAULT if path is None else Path(path).read_text(encoding="utf-8")
        self.path, self.instruction, self.labels = path or "the built-in template", instruction, labels
        undefined = StrictUndefined if path is not None else None
        environment = ImmutableSandboxedEnvironment(**({"undefined": undefined} if undefined else {}))
        try:
            self._made = environment.from_string(self.text)
        except TemplateError as error:
            raise ConfigError(
                Text(f"{self.path} is no Jinja template: {error}", f"{self.path} 不是 Jinja 模板：{error}")
            ) from None

    def render(self, shown: Shown) -> tuple[str, list[str]]:
        """The prompt, and the files of its pictures in the order of their marks.

        Raises:
            ConfigError: the template asks for what rows do not have, or has fewer or more marks than pictures.
        """
        query = {name: value for name, value in shown.query.items() if name not in ANSWERS}
        try:
            text = self._made.render(
                instruction=self.instruction,
                demonstrations=list(shown.demonstrations),
                query=query,
                labels=list(self.labels),
            )
        except Exception as error:  # a template is a program: it may divide by 0, or ask for a range without end
            raise ConfigError(
                Text(f"{self.path}: {error}", f"{self.path}：{error}"),
                Text(
                    f"the query has {sorted(query)}, candidates what their file has",
                    f"查询有 {sorted(query)}，候选有其文件中的内容",
                ),
            ) from None
        images = [str(row["image"]) for row in (*shown.demonstrations, shown.query) if row.get("image")]
        if text.count(IMAGE) not in (0, len(images)):
            raise ConfigError(
                Text(
                    f"{self.path} has {text.count(IMAGE)} {IMAGE} marks for {len(images)} pictures",
                    f"{self.path} 有 {text.count(IMAGE)} 个 {IMAGE} 标记，而图像有 {len(images)} 张",
                ),
                Text("one mark for each row that has an image, in their order", "每个有图像的行一个标记，按其顺序"),
            )
        return text, images if IMAGE in text else []


def truths(row: Row) -> list[str]:
    """A row's true answers; the most frequent first.

    Raises:
        DataError: it has none.
    """
    value: Any = next((row[name] for name in ANSWERS if row.get(name) is not None), None)
    if value is None:
        raise DataError(
            Text(
                f"query {row.get('id')!r} has no answer, label or answers to compare with",
                f"查询 {row.get('id')!r} 没有可比较的 answer、label 或 answers",
            )
        )
    answers = [str(x) for x in value] if isinstance(value, list | tuple) else [str(value)]
    return [x for x, _ in Counter(answers).most_common()]


def compared(said: str, row: Row, match: str) -> Parts:
    """What an answer is worth: `correct` 0/1 and `accuracy_score` in [0, 1].

    Args:
        match: exact, contains, vqa (several annotators: min(1, agreeing / 3), right from .5 on).
    """
    value: Any = next((row[name] for name in ANSWERS if row.get(name) is not None), None)
    every = [plain(str(x)) for x in value] if isinstance(value, list | tuple) else [plain(str(value))]
    mine = plain(said)
    if match == "vqa" and len(every) > 1:
        score = min(1.0, every.count(mine) / 3)
    elif match == "contains":
        score = float(any(re.search(rf"\b{re.escape(x)}\b", mine) for x in every if x))
    else:
        score = float(mine in every)
    return {"correct": float(score >= 0.5), "accuracy_score": score}


def plain(text: str) -> str:
    """First line, lower case, without punctuation, articles and spaces around."""
    first = text.strip().split("\n")[0].lower()
    words = first.translate(str.maketrans("", "", string.punctuation)).split()
    return " ".join(w for w in words if w not in ("a", "an", "the"))
