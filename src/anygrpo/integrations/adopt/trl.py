"""TRL's GRPOConfig as a recipe."""

from __future__ import annotations

import math
from typing import Any

from anygrpo.errors import ConfigError
from anygrpo.integrations.adopt.moving import NO_OPTIMIZER, Found, Ledger, adamw_moments, as_list
from anygrpo.recipe.trl_keys import ABSENT, DEFAULTS, MACHINE, SAID
from anygrpo.spoken import Text


def move(found: Found, defaults: dict[str, Any] = DEFAULTS, machine: tuple[str, ...] = ()) -> Ledger:
    """Fill a ledger; another house that has TRL's names brings its own defaults and settings of the machine.

    Raises:
        ConfigError: a batch that no whole groups fit into, as in TRL.
    """
    book = Ledger(found, defaults)
    updates = _batches(book)
    _loss(book)
    _length(book, updates)
    _rate(book, updates)
    _policy(book)
    _engine(book)
    _rest(book, updates)
    book.needless("how work is laid on the machine: any split gives the same gradient here", *MACHINE, *machine)
    book.needless("metrics, samples and checkpoints are always kept in the run's folder", *SAID)
    if not book.get("lora_dropout"):
        found.given.pop("lora_dropout", None)
    for key, why in ABSENT.items():
        book.no_counterpart(why, key)
    book.finish()
    return book


def _batches(book: Ledger) -> int:
    """Prompts, groups and minibatches; returns the optimizer updates of a rollout."""
    device, accumulate = book.get("per_device_train_batch_size"), book.get("gradient_accumulation_steps")
    group, passes, processes = book.get("num_generations"), book.get("num_iterations"), book.found.processes
    size = book.get("generation_batch_size")
    per_generation = book.get("steps_per_generation")
    if size is None:
        per_generation = per_generation or accumulate
        size = device * processes * per_generation
    else:
        per_generation = size // (device * processes)
    if size % group or size < group:
        raise ConfigError(
            Text(
                f"{size} completions a generation (per_device_train_batch_size x processes x steps) "
                "are no whole groups of "
                f"num_generations = {group}",
                f"每次生成 {size} 个回答（per_device_train_batch_size x 进程数 x 步数），不是 num_generations "
                f"= {group} 的整数组",
            ),
            Text(
                "it is refused there too; say how many processes it ran on: --num_processes N",
                "在原来那里也会被拒绝；请说明用了多少进程：--num_processes N",
            ),
        )
    sizes = ("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation")
    sizes = (*(k for k in sizes if k in book.found.given or k in DEFAULTS), "num_generations")
    prompts, parts = size // group, max(1, round(per_generation / accumulate))
    if per_generation % accumulate:
        book.notes.append(f"steps_per_generation = {per_generation} is no multiple of {accumulate} accumulated steps")
    if parts > prompts:
        book.notes.append(
            f"TRL makes {parts} updates of {prompts} prompt(s) and splits a group over updates; here groups are whole: "
            f"{prompts} update(s)"
        )
        parts = prompts
    if processes > 1:
        book.notes.append(f"{processes} processes: torchrun --nproc-per-node {processes} -m anygrpo train ...")
    book.put("algorithm.prompts_per_step", prompts, *sizes)
    book.put("algorithm.group_size", group, "num_generations")
    book.put("algorithm.minibatches", parts, *(k for k in ("steps_per_generation",) if book.given(k)))
    book.put("algorithm.epochs", passes, "num_iterations")
    return parts * passes


def _loss(book: Ledger) -> None:
    kind, level = book.get("loss_type"), book.get("importance_sampling_level")
    low, high = book.get("epsilon"), book.get("epsilon_high")
    objective = {"cispo": "cispo", "sapo": "sapo", "luspo": "gspo"}.get(kind, "gspo" if level == "sequence" else "ppo")
    reduction = {
        "grpo": "sequence_mean", "sapo": "sequence_mean", "dapo": "token_mean", "bnpo": "token_mean",
        "cispo": "token_mean", "dr_grpo": "constant", "luspo": "constant",
    }.get(kind)  # fmt: skip
    if reduction is None:
        book.no_counterpart("its weights are not among the objectives here; ppo was taken", "loss_type")
        reduction = "token_mean"
    book.put("algorithm.objective", objective, "loss_type", "importance_sampling_level")
    book.put("algorithm.reduction", reduction, "loss_type")
    if kind == "luspo":
        book.put("algorithm.horizon", 1, "loss_type")
    if kind == "bnpo":
        book.notes.append("bnpo: TRL's mean is over each device's own micro-batch; here over the whole step")
    if objective == "cispo":
        cap = 5.0 if high is None else high
        book.put("algorithm.clip_low", 1.0, "loss_type")
        book.put("algorithm.clip_high", cap - 1, *(("epsilon_high",) if high is not None else ("loss_type",)))
    elif objective == "sapo":
        book.put("algorithm.tau_positive", book.get("sapo_temperature_pos"), "sapo_temperature_pos")
        book.put("algorithm.tau_negative", book.get("sapo_temperature_neg"), "sapo_temperature_neg")
    else:
        book.put("algorithm.clip_low", low, "epsilon")
        book.put("algorithm.clip_high", low if high is None else high, "epsilon" if high is None else "epsilon_high")
        if book.get("delta") is not None:
            book.put("algorithm.dual_clip", book.get("delta"), "delta")
    scale = {True: "group", "True": "group", False: "none", "False": "none"}.get(book.get("scale_rewards"),
                                                                                 book.get("scale_rewards"))  # fmt: skip
    name = {"group": "zscore", "batch": "batch", "none": "centred"}.get(scale, "zscore")  # type: ignore[arg-type]
    if book.get("multi_objective_aggregation") == "normalize_then_sum":
        name = "gdpo"
    book.put("algorithm.advantage", name, "scale_rewards", "multi_objective_aggregation")
    if name != "centred":
        book.put("algorithm.epsilon", 1e-4, "scale_rewards")
    book.put("algorithm.beta", float(book.get("beta")), "beta")
    if book.get("beta"):
        book.notes.append("beta: the KL's gradient is the right one in expectation here, not that of k3 in the loss")
    book.get("use_bias_correction_kl")
    if book.get("mask_truncated_completions"):
        filters = [{"kind": "drop_constant"}, {"kind": "overlong_mask"}]
        book.put("algorithm.filters", filters, "mask_truncated_completions")
    book.put("algorithm.entropy_coef", float(book.get("entropy_coef") or 0.0), "entropy_coef")


def _length(book: Ledger, updates: int) -> None:
    """How long the run is: a stage of epochs, or steps."""
    steps, epochs = book.get("max_steps"), book.get("num_train_epochs")
    if steps and steps > 0:
        book.put("training.steps", math.ceil(steps / updates), "max_steps")
        if updates > 1:
            book.notes.append(f"max_steps counts updates; a step here is a rollout of {updates} updates")
    else:
        book.put("stages", [{"name": "grpo", "epochs": float(epochs)}], "num_train_epochs")


def _rate(book: Ledger, updates: int) -> None:
    rate, kind = float(book.get("learning_rate")), str(book.get("lr_scheduler_type"))
    ratio, warmup = float(book.get("warmup_ratio") or 0.0), book.get("warmup_steps") or 0
    total = book.get("max_steps")
    if 0 < warmup < 1:
        ratio, warmup = warmup, 0
    if ratio and not warmup:
        if total and total > 0:
            warmup = math.ceil(ratio * total)
        else:
            key = "warmup_ratio" if book.given("warmup_ratio") else "warmup_steps"
            book.lost.append((key, ratio, "warmup is in steps: set it to this share of the run's steps"))
    warmup = math.ceil(warmup / updates)
    kwargs = book.get("lr_scheduler_kwargs") or {}
    least = 0.0
    if kind.endswith("with_min_lr") and isinstance(kwargs, dict):
        least = kwargs.get("min_lr", rate * kwargs.get("min_lr_rate", 0.0))
    names = ("learning_rate", "lr_scheduler_type", *(k for k in ("warmup_ratio", "warmup_steps") if book.given(k)))
    shape = {"linear": "linear", "cosine": "cosine", "cosine_with_min_lr": "cosine", "constant": "constant",
             "constant_with_warmup": "constant"}.get(kind)  # fmt: skip
    if shape is None:
        book.lost.append(("lr_scheduler_type", kind, "not among the schedules here; the rate stays constant"))
        shape = "constant"
    schedule: dict[str, Any] = {"kind": shape, "start": rate} | ({} if shape == "constant" else {"end": least})
    schedule |= {"warmup": int(warmup)} if warmup else {}
    plain = shape == "constant" and not warmup
    book.put("optimizer.learning_rate", rate if plain else schedule, *names)
    book.put("optimizer.weight_decay", float(book.get("weight_decay")), "weight_decay")
    betas = [float(book.get("adam_beta1")), float(book.get("adam_beta2"))]
    book.put("optimizer.betas", betas, "adam_beta1", "adam_beta2")
    book.put("optimizer.eps", float(book.get("adam_epsilon")), "adam_epsilon")
    clip = book.get("max_grad_norm")
    book.put("optimizer.grad_clip", float(clip) if clip else "none", "max_grad_norm")
    moments = adamw_moments(str(book.get("optim")))
    if moments is None:
        book.no_counterpart(NO_OPTIMIZER, "optim")
    elif moments == "8bit":
        book.put("optimizer.moments", moments, "optim")


def _policy(book: Ledger) -> None:
    model = book.get("model_name_or_path")
    if model is None:
        book.notes.append("which model is trained could not be read: set policy.model")
    book.put("policy.model", model or "set-me/model", "model_name_or_path")
    if book.get("use_peft"):
        book.put("policy.lora.rank", int(book.get("lora_r")), "lora_r")
        book.put("policy.lora.alpha", float(book.get("lora_alpha")), "lora_alpha")
        targets = book.get("lora_target_modules")
        if targets is not None:
            targets = targets if isinstance(targets, str) and targets == "all-linear" else as_list(targets)
            book.put("policy.lora.targets", targets, "lora_target_modules")
        else:
            book.say("policy.lora.targets", ["q_proj", "v_proj"], "PEFT's default for most models")
    else:
        book.put("policy.train", "all", "use_peft")
    bits = "4bit" if book.get("load_in_4bit") else "8bit" if book.get("load_in_8bit") else "none"
    book.put("policy.quantize", bits, "load_in_4bit")
    book.get("load_in_8bit")
    dtype = "float16" if book.get("fp16") else "bfloat16" if book.get("bf16") else "float32"
    book.put("policy.dtype", dtype, "fp16" if dtype == "float16" else "bf16")
    _router_loss(book)
    if book.get("cast_lm_head_to_fp32"):
        book.put("policy.head", "float32", "cast_lm_head_to_fp32")
    book.put("policy.gradient_checkpointing", bool(book.get("gradient_checkpointing")), "gradient_checkpointing")
    book.put("policy.max_new_tokens", int(book.get("max_completion_length") or 512), "max_completion_length")
    for key in ("temperature", "top_p"):
        book.put(f"policy.{key}", float(book.get(key)), key)
    book.put("policy.top_k", max(0, int(book.get("top_k") or 0)), "top_k")
    book.put("policy.min_p", float(book.get("min_p") or 0.0), "min_p")
    if isinstance(book.get("chat_template_kwargs"), dict):
        book.put("policy.chat_template_kwargs", book.get("chat_template_kwargs"), "chat_template_kwargs")
    book.get("disable_dropout")


def _router_loss(book: Ledger) -> None:
    coefficient = book.get("router_aux_loss_coef")
    if coefficient is None:
        book.notes.append(
            "router_aux_loss_coef is not given: of a mixture of experts TRL adds the balance of its experts with the "
            "weight that the model's config has (router_aux_loss_coef): set policy.router_loss to it"
        )
    if coefficient := float(coefficient or 0.0):
        book.put("policy.router_loss", coefficient, "router_aux_loss_coef")
        book.notes.append("router_aux_loss_coef: the balance is of each row's own tokens here, not of a whole batch's")


def _engine(book: Ledger) -> None:
    mode = book.get("vllm_mode")
    keys = ("vllm_importance_sampling_correction", "vllm_importance_sampling_mode", "vllm_importance_sampling_clip_max")
    correct, how, cap = (book.get(key) for key in keys)
    host, port, base = (book.get(k) for k in ("vllm_server_host", "vllm_server_port", "vllm_server_base_url"))
    memory = book.get("vllm_gpu_memory_utilization")
    if not book.get("use_vllm"):
        return
    if mode == "server":
        book.put("policy.engine", "vllm_server", "use_vllm", "vllm_mode")
        book.put("policy.engine_url", base or f"http://{host}:{port}", "vllm_server_host", "vllm_server_port")
        book.notes.append("the vLLM server is started as docs/scaling.md says, not by trl vllm-serve")
    else:
        book.put("policy.engine", "vllm", "use_vllm", "vllm_mode")
        book.put("policy.engine_memory", float(memory), "vllm_gpu_memory_utilization")
    if correct:
        level, act = str(how).split("_")[0], str(how).rpartition("_")[2]
        book.put("algorithm.importance", "mask" if act == "mask" else "truncate", keys[1])
        book.put("algorithm.importance_cap", float(cap or 3.0), keys[2])
        book.put("algorithm.importance_level", "sequence" if level == "sequence" else "decision", keys[1])


def _rest(book: Ledger, updates: int) -> None:
    given = book.found.given
    seed = book.get("seed")
    if isinstance(seed, int) and seed >= 0:
        book.put("seed", seed, "seed")
    for key, path in (("run_name", "name"), ("output_dir", "folder")):
        if isinstance(book.get(key), str):
            book.put(path, book.get(key), key)
    every = book.get("save_steps")
    if isinstance(every, int | float) and every >= 1:
        book.put("training.checkpoint_every", max(1, int(every) // updates), "save_steps")
    if book.get("eval_strategy") == "steps" or book.get("eval_steps"):
        steps = book.get("eval_steps") or given.get("logging_steps") or 10
        book.put("evaluation.every", max(1, int(steps) // updates), "eval_steps", "eval_strategy")
    elif book.get("eval_strategy") == "epoch":
        book.put("evaluation.every_epochs", 1.0, "eval_strategy")
    sinks = [s for s in as_list(book.get("report_to")) if s in ("tensorboard", "wandb", "trackio")]
    if sinks:
        book.put("training.sinks", sinks, "report_to")
    if sinks and isinstance(book.get("project"), str):
        book.put("training.project", book.get("project"), "project")
