"""The smallest tasks for policies other than the toy one: candidates to pick, motions to make, pictures to mend."""

from __future__ import annotations

from typing import Any

import torch

from anygrpo.core.task import Scores, Stored, Task


class Toy(Task):
    """Prompts from (step, number) alone; subclasses say of what, and which reward an output has."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def prompts(self, step: int, count: int) -> list[Any]:
        generator = torch.Generator().manual_seed(self.seed * 7919 + step)
        return [self.one(f"{step}/{c}", generator) for c in range(count)]

    def held_out(self) -> list[Any]:
        return self.prompts(10**6, 4)

    def score(self, prompts: list[Any], outputs: list[list[Any]]) -> Scores:
        return Scores(torch.tensor([[self.reward(p, o) for o in row] for p, row in zip(prompts, outputs)]))


class Nearest(Toy):
    """Pick the two candidates most like the query."""

    def one(self, name: str, generator: torch.Generator) -> dict[str, Any]:
        draw = lambda *size: torch.randn(*size, generator=generator)  # noqa: E731
        return {"id": name, "query": draw(6), "candidates": draw(5, 6)}

    def best(self, prompt: dict[str, Any]) -> tuple[int, ...]:
        return tuple((prompt["candidates"] @ prompt["query"]).topk(2).indices.tolist())

    def reward(self, prompt: dict[str, Any], output: Any) -> float:
        return len({*output} & {*self.best(prompt)}) / 2

    def stored(self, prompts: list[Any]) -> Stored:
        return Stored([[self.best(p)] for p in prompts])


class Still(Toy):
    """Motions with little movement."""

    def one(self, name: str, generator: torch.Generator) -> dict[str, Any]:
        length = int(torch.randint(8, 17, (1,), generator=generator))
        return {"caption": f"a person walks {name}", "length": length}

    def reward(self, prompt: dict[str, Any], output: Any) -> float:
        return -float(torch.as_tensor(output).float().diff(dim=0).abs().mean())


class Mend(Toy):
    """Pictures near a clean one."""

    def one(self, name: str, generator: torch.Generator) -> dict[str, Any]:
        degraded, clean = torch.rand(2, 3, 16, 16, generator=generator)
        return {"degraded": degraded, "clean": clean}

    def reward(self, prompt: dict[str, Any], output: Any) -> float:
        return -float((output.cpu() - prompt["clean"]).abs().mean())

    def stored(self, prompts: list[Any]) -> Stored:
        return Stored([[p["clean"]] for p in prompts])
