"""Worker process: optimizer steps of a case with TRL's GRPOTrainer. Prints one JSON object on its last line.

Settings are those TRL's documentation gives for one machine without a generation server: the library's own generate, or
with --vllm vLLM in the same process (its default share of the device, no sleeping), micro-batches of a group or two, no
gradient checkpointing, no reference (beta = 0, its default), autocast for bfloat16.
"""

from __future__ import annotations

import argparse
import json
import logging
import warnings
from typing import Any

import torch

from anygrpo.bench.cases import Case, prompt_texts, reward_of
from anygrpo.bench.meter import Meter, peak_gb
from anygrpo.scratch import for_this_process


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", type=json.loads, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--precision", default="", help="fp32_precision of oneDNN, as anygrpo would set it")
    parser.add_argument("--vllm", type=float, default=0.0, help="sample by vLLM, with this share of the device")
    parser.add_argument("--check", help="file with rows and a gradient to compare with, instead of steps")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(args.threads)
    if args.precision:
        torch.backends.mkldnn.matmul.fp32_precision = args.precision  # type: ignore[attr-defined]
    case = Case(**args.case)
    made = compare(case, args.model, args.check) if args.check else measure(case, args.model, args.steps, args.vllm)
    print(json.dumps(made))


def trainer_for(case: Case, model: str, steps: int, vllm: float = 0.0) -> Any:
    """TRL's trainer on the case's prompts; `vllm`: the share of the device that vLLM may take, 0: generate's own."""
    from datasets import Dataset  # type: ignore[import-not-found]
    from datasets.table import InMemoryTable  # type: ignore[import-not-found]
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer  # type: ignore[import-not-found]

    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    texts = prompt_texts(tokenizer, case.prompts, case.prompt_tokens)
    config = GRPOConfig(
        output_dir=str(for_this_process("bench")),
        per_device_train_batch_size=case.rows,
        gradient_accumulation_steps=case.prompts * case.group // case.rows,
        num_generations=case.group,
        max_completion_length=case.new_tokens,
        generation_kwargs={"min_tokens" if vllm else "min_new_tokens": case.new_tokens},
        **(_sampled_by_vllm(case, vllm) if vllm else {}),
        beta=0.0,
        bf16=case.dtype == "bfloat16",
        gradient_checkpointing=False,
        max_steps=steps,
        learning_rate=1e-6,
        lr_scheduler_type="constant",
        shuffle_dataset=False,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
        model_init_kwargs={"dtype": "float32"},
    )
    return GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [reward_of(c) for c in completions],
        args=config,
        # With a name given, nothing is hashed: hashing pickles pyarrow's own types, which Python 3.12 refuses.
        train_dataset=Dataset(InMemoryTable.from_pydict({"prompt": texts}), fingerprint="bench"),
        processing_class=tokenizer,
    )


def _sampled_by_vllm(case: Case, share: float) -> dict[str, Any]:
    length = case.prompt_tokens + case.prompt_tokens // 8 + 64 + case.new_tokens
    return {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": share,
        "vllm_max_model_length": length,
    }


def measure(case: Case, model: str, steps: int, vllm: float = 0.0) -> dict[str, Any]:
    """Seconds of each step by phase, peak memory, tokens trained on."""
    from transformers import TrainerCallback

    trainer = trainer_for(case, model, steps, vllm)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    meter, done, open_step = Meter(device), [], []

    class Steps(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            open_step.append(meter.phase("step"))
            open_step[-1].__enter__()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            open_step.pop().__exit__(None, None, None)
            done.append({"phases": meter.take(), "tokens": seen.pop("tokens", 0)})

    seen: dict[str, int] = {}
    lengths: list[int] = []
    inner = trainer._generate_and_score_completions

    def counted(inputs: Any) -> Any:
        made = inner(inputs)
        seen["tokens"] = seen.get("tokens", 0) + int(made["completion_mask"].sum())
        lengths[:] = made["prompt_mask"].sum(1)[:: case.group].tolist()
        return made

    trainer._generate_and_score_completions = counted
    meter.watch(trainer, "_generate", "generate")
    meter.watch(trainer, "_compute_loss", "forward")
    meter.watch(trainer.accelerator, "backward", "backward")
    trainer.add_callback(Steps())
    trainer.train()
    return {"steps": done, "peak_gb": peak_gb(device), "prompt_tokens": lengths}


def compare(case: Case, model: str, path: str) -> dict[str, Any]:
    """Relative distance of TRL's gradient on given rows to the given gradient."""
    trainer = trainer_for(case, model, 1)
    network = trainer.model.train()
    given = torch.load(path, weights_only=True)
    rows, device = given["samples"], next(network.parameters()).device
    count = len(given["advantages"])
    trainer.current_gradient_accumulation_steps = count // case.rows
    for a in range(0, count, case.rows):
        part = {name: x[a : a + case.rows].to(device) for name, x in rows.items()}
        inputs = _inputs(part, given["advantages"][a : a + case.rows].to(device))
        inputs["num_items_in_batch"] = rows["completion_lengths"].sum().to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=case.dtype == "bfloat16"):
            loss = trainer._compute_loss(network, inputs)
        loss.backward()
    distance = total = 0.0
    for name, p in network.named_parameters():
        if p.grad is not None and name in given["gradient"]:
            ours = given["gradient"][name].to(device)
            distance += float((p.grad - ours).double().square().sum())
            total += float(p.grad.double().square().sum())
    return {"gradient_relative_difference": (distance / total) ** 0.5, "gradient_norm": total**0.5}


def _inputs(rows: dict[str, torch.Tensor], advantages: torch.Tensor) -> dict[str, Any]:
    """Rows as TRL holds them: prompts padded on the left, completions on the right."""
    width = rows["prompt_ids"].shape[1]
    shift = (torch.arange(width, device=advantages.device) - (width - rows["prompt_lengths"][:, None])).clamp(min=0)
    seen = torch.arange(width, device=advantages.device) >= width - rows["prompt_lengths"][:, None]
    length = torch.arange(rows["completion_ids"].shape[1], device=advantages.device)
    return {
        "prompt_ids": rows["prompt_ids"].gather(1, shift),
        "prompt_mask": seen.long(),
        "completion_ids": rows["completion_ids"],
        "completion_mask": (length < rows["completion_lengths"][:, None]).long(),
        "advantages": advantages,
    }


if __name__ == "__main__":
    main()
