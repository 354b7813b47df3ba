"""Worker process: optimizer steps of a selection case with RL4CO's REINFORCE. Prints one JSON object on its last line.

Settings are RL4CO's own (its trainer: gradients clipped at 1, Adam), in float32; a batch is one step's prompts.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import warnings
from typing import Any

import torch
from peers.selector.cases import Case

from anygrpo.bench.meter import Meter, peak_gb
from anygrpo.bench.rounds import relative_distance


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", type=json.loads, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--check", help="file with selections and a gradient to compare with, instead of steps")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    os.environ.setdefault("WANDB_MODE", "disabled")
    torch.set_num_threads(args.threads)
    case = Case(**args.case)
    print(json.dumps(compare(case, args.check) if args.check else measure(case, args.steps)))


def measure(case: Case, steps: int) -> dict[str, Any]:
    """Seconds of each step by phase, peak memory, decisions trained on, trained parameters."""
    from lightning import Callback  # pyright: ignore[reportMissingImports]
    from peers.selector.rl4co_parts import GroupREINFORCE

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = GroupREINFORCE(
        case, batch_size=case.prompts, train_data_size=case.prompts * steps, val_data_size=1, test_data_size=1
    )
    meter, done, open_step, seen = Meter(device), [], [], {"decisions": 0}

    class Steps(Callback):
        def on_train_batch_start(self, *args: Any, **kwargs: Any) -> None:
            open_step.append(meter.phase("step"))
            open_step[-1].__enter__()

        def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
            open_step.pop().__exit__(None, None, None)
            done.append({"phases": meter.take(), "decisions": seen["decisions"]})

    inner = model.policy.forward

    def counted(*args: Any, **kwargs: Any) -> Any:
        out = inner(*args, **kwargs)
        seen["decisions"] = out["actions"].numel()
        return out

    model.policy.forward = counted
    meter.watch(model, "loss_of", "forward")
    _trainer(device, Steps()).fit(model)
    parameters = sum(p.numel() for p in model.policy.parameters())
    return {"steps": done, "peak_gb": peak_gb(device), "parameters": parameters}


def _trainer(device: str, steps: Any) -> Any:
    """RL4CO's trainer with nothing that takes time beside the steps."""
    from rl4co.utils.trainer import RL4COTrainer  # pyright: ignore[reportMissingImports]

    return RL4COTrainer(
        max_epochs=1,
        accelerator=device if device == "cpu" else "gpu",
        devices=1,
        precision=32,
        matmul_precision="highest",
        callbacks=[steps],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        num_sanity_val_steps=0,
    )


def compare(case: Case, path: str) -> dict[str, float]:
    """Relative distance of the given gradient of our first step to RL4CO's on the same selections."""
    from peers.selector.rl4co_parts import GroupREINFORCE

    given = torch.load(path)
    model = GroupREINFORCE(case, batch_size=case.prompts)
    batch = model.env.generator(batch_size=[case.prompts])
    actions = given["chosen"].transpose(0, 1).flatten(0, 1)  # RL4CO puts samples before instances
    model.loss_of(model.env.reset(batch), batch, actions)["loss"].backward()
    theirs = {
        name.replace("encoder.inner.encoder.", "encoder.").replace("decoder.decoder.", "decoder."): p.grad
        for name, p in model.policy.named_parameters()
        if p.grad is not None
    }
    return relative_distance(given["gradient"], theirs)


if __name__ == "__main__":
    main()
