"""A small maze, walked in turns: after each step is said where the goal lies and which ways are open.

`Maze` is the environment of recipes/llm/maze.toml; each sample has one of its own, in its own process. Run as a
program, this file writes mazes (to train on, to choose settings on, and to open once at the end) and a model of random
weights with a vocabulary of its own, which knows nothing before it is trained:

    python examples/turns/maze.py data/maze
"""

from __future__ import annotations

import json
import random
import sys
from collections import deque
from pathlib import Path

SIZE, TURNS, WALLS = 4, 8, 3
FILES = {"train": 2000, "choose": 128, "test": 256}
STEPS = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}
WORDS = [*STEPS, "ways", "0", "1", "2", "3", "start", "goal", "walls", "user", "assistant"]

Place = tuple[int, int]


def open_ways(place: Place, walls: set[Place]) -> dict[str, Place]:
    """The steps that lead somewhere, and where to."""
    found = {word: (place[0] + dx, place[1] + dy) for word, (dx, dy) in STEPS.items()}
    return {w: p for w, p in found.items() if min(p) >= 0 and max(p) < SIZE and p not in walls}


def view(place: Place, goal: Place, walls: set[Place]) -> str:
    """Such as "goal 2 east ways north east south": the goal lies two to the east, and a wall stands to the west."""
    dx, dy = goal[0] - place[0], goal[1] - place[1]
    far = [(dx, "east"), (-dx, "west"), (dy, "north"), (-dy, "south")]
    return " ".join(["goal", *(f"{n} {word}" for n, word in far if n > 0), "ways", *open_ways(place, walls)])


class Maze:
    """Whoever arrives is paid the share of turns that are left, counted with the last: (9 - turns) / 8. A step into
    a wall is a turn. Not arriving is worth 0, so that nothing is worth less than not to play."""

    def reset(self, row: dict) -> list[dict]:
        """The first view, in place of the row's prompt, which tells the whole maze."""
        self.place, self.goal = tuple(row["start"]), tuple(row["goal"])
        self.walls = {tuple(wall) for wall in row["walls"]}
        self.turns = 0
        return [{"role": "user", "content": view(self.place, self.goal, self.walls)}]

    def step(self, messages: list[dict], calls: list[dict]) -> tuple:
        """What is seen after the step that was said last, its reward, and whether the goal is reached."""
        said = messages[-1]["content"].split()
        self.place = open_ways(self.place, self.walls).get(said[-1] if said else "", self.place)
        self.turns += 1
        if self.place == self.goal:
            return None, (TURNS + 1 - self.turns) / TURNS, True
        return view(self.place, self.goal, self.walls), 0.0, False


def arrived(
    prompts: list, outputs: list, start: list, goal: list, walls: list, messages: list, **columns: list
) -> list:
    """1 where the policy's own steps lead to the goal: what success is measured by."""
    made = []
    for a, b, blocked, said in zip(start, goal, walls, messages):
        maze, over = Maze(), False
        maze.reset({"start": a, "goal": b, "walls": blocked})
        for message in said:
            if message["by"] == "policy" and not over:
                over = maze.step([message], [])[2]
        made.append(float(over))
    return made


def distance(a: Place, b: Place, walls: set[Place]) -> int | None:
    """Steps of the shortest way; None where there is none."""
    far, queue = {a: 0}, deque([a])
    while queue:
        place = queue.popleft()
        for other in open_ways(place, walls).values():
            if other not in far:
                far[other] = far[place] + 1
                queue.append(other)
    return far.get(b)


def poor_walk(row: dict, draw: random.Random) -> list[dict]:
    """A walk that does not look where the goal is: half of them any open way, half straight on until a wall."""
    maze, straight, last = Maze(), draw.random() < 0.5, ""
    messages = maze.reset(row)[1:]
    for _ in range(TURNS):
        ways = open_ways(maze.place, maze.walls)
        last = last if straight and last in ways and draw.random() < 0.8 else draw.choice(list(ways))
        messages.append({"role": "assistant", "content": last})
        said, _, over = maze.step(messages, [])
        if over:
            break
        messages.append({"role": "user", "content": said})
    return messages if messages[-1]["role"] == "assistant" else messages[:-1]


def rows(count: int) -> list[dict]:
    """Mazes of three walls, no two alike, whose shortest way has two to six steps."""
    draw, made = random.Random(0), {}
    every = [(x, y) for x in range(SIZE) for y in range(SIZE)]
    while len(made) < count:
        start, goal, *blocked = draw.sample(every, 2 + WALLS)
        shortest = distance(start, goal, set(blocked)) or 0
        places = [start, goal, *sorted(blocked)]
        told = [f"{x} {y}" for x, y in places]
        prompt = f"start {told[0]} goal {told[1]} walls {' '.join(told[2:])}"
        if 2 <= shortest <= 6 and prompt not in made:
            row = {"prompt": prompt, "start": start, "goal": goal, "walls": places[2:], "shortest": shortest}
            made[prompt] = row | {"demonstration": poor_walk(row, draw)}
    return list(made.values())


def model(folder: Path) -> None:
    """A Llama of two layers and a tokenizer of the words above."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = ["<pad>", "<end>", *WORDS]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>", pad_token="<pad>")
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} <end> {% endfor %}"
        "{% if add_generation_prompt %}assistant {% endif %}"
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=64, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=512, bos_token_id=None, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    made = LlamaForCausalLM(config)
    made.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    print(f"{folder}: {sum(p.numel() for p in made.parameters()):,} weights")


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    made = rows(sum(FILES.values()))
    for name, size in FILES.items():
        part, made = made[:size], made[size:]
        (out / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part), encoding="utf-8")
    model(out / "walker")
