"""The restoration recipes at toy size: four smooth pictures of 24 pixels, the smallest restorer, a few steps."""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image

from anygrpo.recipe.load import load_recipe
from anygrpo.train.build import new_run
from anygrpo.train.loop import train

RECIPES = Path(__file__).parents[3] / "recipes" / "restoration"
SMALL = {
    "--policy.width": "4",
    "--policy.device": "cpu",
    "--task.patch": "16",
    "--task.degradations": '[{name = "noise", low = 25.5, high = 51.0}, {name = "haze", low = 0.4, high = 0.6}]',
    "--task.crops": "2",
    "--training.gradient_norms_every": "1",
    "--evaluation.every": "100",
}


def toy_pictures(folder: Path) -> Path:
    """A folder of four pictures."""
    folder.mkdir(exist_ok=True)
    for i in range(4):
        pixels = (torch.rand(5, 5, 3, generator=torch.Generator().manual_seed(i)) * 255).byte().numpy()
        Image.fromarray(pixels).resize((24, 24), Image.Resampling.BICUBIC).save(folder / f"{i}.png")
    return folder


def toy_run(name: str, folder: Path, steps: int = 2, stages: slice = slice(None), **more: str) -> Path:
    """The run folder of a recipe at toy size, from before the first step to the end; so many steps a stage."""
    pictures = toy_pictures(folder.parent / "pictures")
    whose = "stages.0.algorithm" if name.startswith("adapt") else "algorithm"  # its only stage has its own number
    more = {f"--{whose}.prompts_per_step": "4"} | more
    more = {"--task.folder": f'{{clean = "{pictures}"}}', "--folder": str(folder)} | more
    flags = [x for pair in (SMALL | more).items() for x in pair]
    recipe = load_recipe(RECIPES / f"{name}.toml", flags)
    kept = tuple(s.model_copy(update={"steps": steps, "epochs": None}) for s in recipe.stages[stages])
    run = new_run(recipe.model_copy(update={"stages": kept}))
    run.evaluate_start()
    train(run)
    run.close()
    return run.folder.path
