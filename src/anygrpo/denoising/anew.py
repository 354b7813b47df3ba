"""A denoiser's own state dict, loaded into its network made anew in a process of its own, from the recipe's section.

python -m anygrpo.denoising.anew JOB.json      prints one line of JSON: size, to_training
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file

from anygrpo.core.device import of_a_child
from anygrpo.denoising.call import record_call
from anygrpo.denoising.files import merged_state

if TYPE_CHECKING:
    from anygrpo.denoising.policy import DiffusionPolicy


def section_of(policy: DiffusionPolicy, weights: Path) -> dict[str, Any]:
    """What makes the network again, with these weights and no adapter: the class of its section, and its keys."""
    plain = {"lora": None, "model": str(weights.resolve()), "device": "cpu", "dtype": "float32"}
    config: Any = policy.config.model_copy(update=plain)  # half precision is of adapters alone
    return {"class": [type(config).__module__, type(config).__name__], "keys": config.model_dump(mode="json")}


def compare(policy: DiffusionPolicy, weights: Path, place: Path) -> dict[str, float] | str:
    """Largest difference of one call's output, here and there; what the other process said where it failed.

    Args:
        weights: the file that was written. place: a folder for what is handed over.
    """
    save_file(record_call(policy), place / "call.safetensors")
    state = {name: x.contiguous() for name, x in merged_state(policy.trainable()).items()}
    save_file(state, place / "trained.safetensors")  # not from the file that is judged
    files = {name: str(place / f"{name}.safetensors") for name in ("call", "trained")}
    (place / "job.json").write_text(json.dumps(section_of(policy, weights) | files))
    words = [sys.executable, "-m", "anygrpo.denoising.anew", str(place / "job.json")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=of_a_child())
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["no output"])[-1]
    return json.loads(done.stdout.strip().splitlines()[-1])


def main(job: dict[str, Any]) -> dict[str, float]:
    """The same call by the network made anew."""
    from anygrpo.core.build import build_policy

    module, name = job["class"]
    config = getattr(importlib.import_module(module), name)(**job["keys"])
    expected = load_file(job["call"])["output"].float()
    policy: Any = build_policy(config, 1)  # another seed: what is not loaded shows
    made = record_call(policy)["output"].float()
    held, trained = merged_state(policy.trainable()), load_file(job["trained"])
    apart = [float((held[name].float() - x.float()).abs().max()) for name, x in trained.items() if x.numel()]
    found = {"size": float(expected.abs().max()), "to_training": float((made - expected).abs().max())}
    return found | {"weights": max(apart, default=0.0)}


if __name__ == "__main__":
    with torch.no_grad():
        print(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))))
