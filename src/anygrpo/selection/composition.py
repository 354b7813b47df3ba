"""Two tasks for a frozen language model in which one demonstration is not enough, whichever it is.

codes   Colours and shapes have code words, drawn anew for each query: "red circle =" is answered by the code of red
        and that of circle. A candidate shows one of the two, alone or in another phrase; several show the same one,
        and look as near to the query as what is missing.
hops    "Anna is" is answered by Anna's city and her team's sport. The fact about Anna names her team; the fact about
        the team does not name her, so that it is like no part of the query, only like the first fact.

An answer has two words, each from a closed list. Nothing is downloaded: all words are drawn from the lists below.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from anygrpo.core.task import Stored, epoch_indices
from anygrpo.errors import ConfigError
from anygrpo.files import cache_folder
from anygrpo.models.embedding import embed
from anygrpo.models.slots import FrozenSlots
from anygrpo.selection.rewards import reward
from anygrpo.selection.settings import CompositionConfig
from anygrpo.selection.task import Prompt, Selection, SelectionTask, nearest
from anygrpo.spoken import Text


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


COLOURS = _words("red blue green black white gold silver pink orange purple gray brown")
SHAPES = _words("circle square star line box ring cross arrow ball cube")
CODES = (_words("cat dog house tree fish bird boat milk"), _words("bread moon king lamp door rain snow road"))
NAMES = _words("Anna Paul Mark John Lisa Emma Tom Jack Kate Luke Adam Sara Mary Peter Jane Nick Ben Sam Amy Ruth")
CITIES = _words("Paris London Rome Berlin Madrid Boston Dallas Tokyo Delhi Oslo Vienna Dublin")
SPORTS = _words("chess tennis golf football hockey swimming running skiing soccer baseball cricket boxing")
_SLOTS = {"codes": CODES, "hops": (CITIES, SPORTS)}
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Question:
    """What is asked, its two words, and the texts that may be shown before it."""

    text: str
    answer: tuple[str, str]
    pool: tuple[str, ...]


class Composition(SelectionTask):
    """Prompts: "id", "query" [d], "candidates" [M, d], "ids" (positions), "text", "texts" (of the pool), "answer"."""

    def __init__(self, config: CompositionConfig, seed: int) -> None:
        self.config, self.seed = config, seed
        self.shots, self.reward, self.size = config.shots, config.reward, config.queries
        self.reward_shots = config.reward_shots
        cache = Path(config.cache) if config.cache else cache_folder() / "answers.sqlite"
        self.frozen = FrozenSlots(config.model, _SLOTS[config.rule], config.dtype, config.batch_size, cache)
        self._made: dict[str, Prompt] = {}

    def prompts(self, step: int, count: int) -> list[Prompt]:
        return [self.prompt(f"train-{i}") for i in epoch_indices(self.size, step, count, self.seed)]

    def held_out(self) -> list[Prompt]:
        """The validation or test queries, as `held_out_split` says: other draws, never in training."""
        c = self.config
        count = c.held_out_test if c.held_out_split == "test" else c.held_out_validation
        return [self.prompt(f"{c.held_out_split}-{i}") for i in range(count)]

    def prompt(self, name: str) -> Prompt:
        """The query called `name` ("train-3", "validation-3", "test-3"), a function of its name."""
        if name not in self._made:
            split, number = name.split("-")
            if split not in SPLITS:
                raise ConfigError(
                    Text(f"{name!r} is no query of this task", f"{name!r} 不是这个任务的查询"),
                    Text(f"splits: {', '.join(SPLITS)}", f"划分：{', '.join(SPLITS)}"),
                )
            asked = question(self.config.rule, split, int(number), self.config.pool)
            vectors = embed([asked.text, *asked.pool], self.config.embedding)
            self._made[name] = {
                "id": name,
                "query": vectors[0],
                "candidates": vectors[1:],
                "ids": [f"{name}/{i}" for i in range(len(asked.pool))],
                "text": asked.text,
                "texts": asked.pool,
                "answer": asked.answer,
            }
        return self._made[name]

    def judge(self, prompts: list[Prompt], selections: list[list[Selection]]) -> dict[str, Tensor]:
        rows = [(p, s) for p, row in zip(prompts, selections) for s in row]
        texts = ["".join(p["texts"][i] + "\n" for i in s) + p["text"] for p, s in rows]
        right, truth = self.frozen.fill(texts, [p["answer"] for p, _ in rows])
        shape = (len(prompts), len(selections[0]))
        correct = right.view(shape)
        return {"correct": correct, "accuracy_score": correct.clone(), "gt_prob": truth.view(shape)}

    def stored(self, prompts: list[Prompt]) -> Stored:
        """One list a query: its nearest neighbours."""
        actions: list[list[Any]] = [[nearest(p, self.shots)] for p in prompts]
        parts = self.judge(prompts, actions)
        ragged = {name: part.tolist() for name, part in parts.items()}
        return Stored(actions, reward(parts, self.reward).tolist(), None, ragged)

    def close(self) -> None:
        self.frozen.close()


def question(rule: str, split: str, number: int, pool: int) -> Question:
    """The question of this rule, split and number; the pool is shuffled."""
    if rule == "codes":
        return _codes(random.Random(f"codes {split} {number}"), pool)
    world, who = divmod(number, pool // 2)
    return _hops(random.Random(f"hops {split} {world}"), who, pool // 2)


def _codes(draw: random.Random, pool: int) -> Question:
    """A third of the pool shows the colour, a third the shape, the rest neither; of each third one alone."""
    colours, shapes = draw.sample(COLOURS, 5), draw.sample(SHAPES, 5)
    of = dict(zip(colours, draw.sample(CODES[0], 5))) | dict(zip(shapes, draw.sample(CODES[1], 5)))
    phrase = lambda *words: f"{' '.join(words)} = {' '.join(of[w] for w in words)}"  # noqa: E731
    third = pool // 3
    with_colour = [phrase(colours[0]), *(phrase(colours[0], s) for s in draw.sample(shapes[1:], third - 1))]
    with_shape = [phrase(shapes[0]), *(phrase(c, shapes[0]) for c in draw.sample(colours[1:], third - 1))]
    others = [phrase(c, s) for c in colours[1:] for s in shapes[1:]]
    texts = [*with_colour, *with_shape, *draw.sample(others, pool - 2 * third)]
    draw.shuffle(texts)
    return Question(f"{colours[0]} {shapes[0]} =", (of[colours[0]], of[shapes[0]]), tuple(texts))


def _hops(draw: random.Random, who: int, people: int) -> Question:
    """A world of people and teams, one of each a fact; questions about one world share its pool."""
    names, teams = draw.sample(NAMES, people), draw.sample(COLOURS, people)
    cities, sports = draw.sample(CITIES, people), draw.sample(SPORTS, people)
    facts = [f"{n} is {c} {t}." for n, c, t in zip(names, cities, teams)]
    facts += [f"{t} is {s}." for t, s in zip(teams, sports)]
    draw.shuffle(facts)
    return Question(f"{names[who]} is", (cities[who], sports[who]), tuple(facts))
