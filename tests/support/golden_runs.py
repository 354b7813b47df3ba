"""Runs of the golden cases (tests/golden/cases.toml), shorter, and of images on a tiny pipeline."""

import importlib.util
from pathlib import Path

import tomli_w

from anygrpo.cli.main import main

_ROOT = Path(__file__).parents[2]
_SPEC = importlib.util.spec_from_file_location("golden_cases", _ROOT / "scripts/golden.py")
golden = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(golden)


def trained(folder: Path, case: str, **changes) -> Path:
    """A run of a golden case, two steps."""
    recipe = golden.merged(golden.cases()[case], {"training": {"steps": 2}}) | changes
    text = tomli_w.dumps(recipe).replace("{files}", str(folder)).replace("{here}", str(golden.HERE))
    (folder / "recipe.toml").write_text(text)
    assert main(["train", str(folder / "recipe.toml"), "--folder", str(folder / "run"), "--quiet"]) == 0
    return folder / "run"


def image_run(folder: Path, pipe: str, sampler: str, **more) -> Path:
    """A run of the images task on a tiny pipeline."""
    (folder / "prompts.txt").write_text("a cat\na dog\na red car\na tree\n")
    (folder / "held.txt").write_text("a bird\na house\n")
    (folder / "reward.py").write_text("def light(images, prompts):\n    return [float(x.mean()) for x in images]\n")
    recipe = {
        "name": "images", "folder": str(folder / "run"),
        "policy": {"kind": "diffusion", "model": pipe, "sampler": sampler, "steps": 3, "height": 8, "width": 8}
        | {"lora": {"rank": 2, "alpha": 8}} | more,
        "task": {"kind": "images", "path": str(folder / "prompts.txt"), "held_out_path": str(folder / "held.txt"),
                 "rewards": [{"function": f"{folder / 'reward.py'}:light"}]},
        "algorithm": {"group_size": 2, "prompts_per_step": 2},
        "training": {"steps": 2, "checkpoint_every": 1},
        "optimizer": {"learning_rate": 0.05},
        "evaluation": {"every": 1, "prompts": 2},
    }  # fmt: skip
    recipe["policy"] = {k: v for k, v in recipe["policy"].items() if v is not None}
    (folder / "recipe.toml").write_text(tomli_w.dumps(recipe))
    assert main(["train", str(folder / "recipe.toml"), "--quiet"]) == 0
    return folder / "run"
