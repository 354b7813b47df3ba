"""A game of several turns: find a number by guesses that are answered with "higher" or "lower".

`Guess` is the environment of recipes/llm/guess.toml; each sample has one of its own, in its own process. Run as a
program, this file writes the data: each row a range, a number, and how a weak player, who does not listen, would guess.

    python examples/turns/guess.py examples/data/guess.jsonl
"""

import json
import random
import re
import sys

WIDTH, TURNS = 16, 5


def number_in(text: str) -> int | None:
    """The last whole number of a text."""
    found = re.findall(r"\d+", text)
    return int(found[-1]) if found else None


class Guess:
    """The right guess is worth 1, and a tenth less for each one before it; a wrong one is worth nothing.

    Nothing is worth less than that: a cost of wrong guesses would teach to say nothing until the tokens end.
    """

    def reset(self, row: dict) -> None:
        """The row's prompt stays as it is: nothing to add."""
        self.number, self.low, self.high = row["number"], row["low"], row["high"]
        self.wrong = 0

    def step(self, messages: list[dict], calls: list[dict]) -> tuple:
        """What is said to the last guess, its reward, and whether the game is over."""
        guess = number_in(messages[-1]["content"])
        if guess == self.number:
            return None, 1.0 - 0.1 * self.wrong, True
        self.wrong += 1
        if guess is None or not self.low <= guess <= self.high:
            return f"Guess from {self.low} to {self.high}.", 0.0, False
        return "higher" if guess < self.number else "lower", 0.0, False


def found(prompts: list, outputs: list[str], number: list[int], **columns: list) -> list[float]:
    """1 where the last guess is right: what success is measured by."""
    return [float(number_in(output) == right) for output, right in zip(outputs, number)]


def weak_game(low: int, high: int, number: int, draw: random.Random) -> list[dict]:
    """Guesses anywhere in the range, whatever the answers were."""
    told = Guess()
    told.reset({"low": low, "high": high, "number": number})
    messages: list[dict] = []
    for _ in range(TURNS):
        messages.append({"role": "assistant", "content": str(draw.randint(low, high))})
        said, _, over = told.step(messages, [])
        if over:
            break
        messages.append({"role": "user", "content": said})
    return messages if messages[-1]["role"] == "assistant" else messages[:-1]


def rows(count: int = 400) -> list[dict]:
    draw = random.Random(0)
    made = []
    for _ in range(count):
        low = draw.randint(1, 83)
        high, number = low + WIDTH - 1, draw.randint(low, low + WIDTH - 1)
        text = f"I think of a whole number from {low} to {high}. Find it. Reply with one number."
        game = weak_game(low, high, number, draw)
        made.append({"prompt": text, "low": low, "high": high, "number": number, "demonstration": game})
    return made


if __name__ == "__main__":
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows())
