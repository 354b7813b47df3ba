"""verl's `main_ppo` settings as a recipe."""

from __future__ import annotations

import math
from typing import Any

from anygrpo.integrations.adopt.moving import NO_OPTIMIZER, Found, Ledger, adamw_moments, as_list
from anygrpo.integrations.adopt.verl_loss import loss
from anygrpo.recipe.verl_keys import (
    ABSENT,
    DEFAULTS,
    KWARGS,
    MACHINE,
    OVERRIDE,
    SAID,
    A,
    M,
    O,
    R,
)

_OLDER = {M + "lora.rank": M + "lora_rank", M + "lora.alpha": M + "lora_alpha"}


def move(found: Found) -> Ledger:
    """Fill a ledger with what a verl command means here."""
    found.given = {_OLDER.get(key, key): value for key, value in found.given.items()}
    if isinstance(table := found.given.get(OVERRIDE), dict):  # given whole, as Hydra also takes it
        del found.given[OVERRIDE]
        found.given |= {f"{OVERRIDE}.{key}": value for key, value in table.items()}
    book = Ledger(found, DEFAULTS)
    _batches(book)
    loss(book)
    _rate(book)
    _policy(book)
    _data(book)
    _trainer(book)
    book.needless("how work is laid on the machine: any split gives the same gradient here", *MACHINE)
    book.needless(
        "kept in the run's folder, or done before the first step: a prompt that does not fit is refused", *SAID
    )
    book.rest_of(OVERRIDE, "of AdamW's own settings betas, eps and weight_decay move")
    for key, why in ABSENT.items():
        book.no_counterpart(why, key)
    for key in list(found.given):
        if key.startswith(R + "val_kwargs."):
            book.no_counterpart("held-out answers are greedy; pass@k (evaluation.pass_k) samples as training does", key)
        if key.startswith((R + "multi_turn.", "actor_rollout_ref.rollout.trace.")):
            book.no_counterpart("several turns are an environment of the policy (docs/language.md)", key)
        if key.startswith("algorithm.rollout_correction."):
            book.no_counterpart("importance has one cap and one level", key)
    book.finish()
    return book


def _batches(book: Ledger) -> None:
    prompts, group = int(book.get("data.train_batch_size")), int(book.get(R + "n"))
    mini = int(book.get(A + "ppo_mini_batch_size"))
    book.put("algorithm.prompts_per_step", prompts, "data.train_batch_size")
    book.put("algorithm.group_size", group, R + "n")
    book.put("algorithm.minibatches", max(1, math.ceil(prompts / max(mini, 1))), A + "ppo_mini_batch_size")
    book.put("algorithm.epochs", int(book.get(A + "ppo_epochs")), A + "ppo_epochs")
    if mini and prompts % mini:
        book.notes.append(f"{prompts} prompts in minibatches of {mini}: here they are as equal as they can be")
    gpus = int(book.get("trainer.n_gpus_per_node") or 1) if _number(book.get("trainer.n_gpus_per_node")) else 1
    nodes = book.get("trainer.nnodes")
    if gpus > 1 or (_number(nodes) and nodes > 1):
        book.notes.append(
            f"{gpus} GPUs a node, {nodes} node(s): torchrun --nnodes {nodes} --nproc-per-node {gpus} -m anygrpo train "
            "...; the recipe's numbers are the whole step's"
        )


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _rate(book: Ledger) -> None:
    rate, kind = float(book.get(O + "lr")), book.get(O + "warmup_style") or book.get(O + "lr_scheduler_type")
    steps, ratio = book.get("trainer.total_training_steps"), float(book.get(O + "lr_warmup_steps_ratio") or 0.0)
    warmup, least = int(book.get(O + "lr_warmup_steps") or 0), float(book.get(O + "min_lr_ratio") or 0.0)
    if warmup <= 0 and ratio:
        if steps:
            warmup = math.ceil(ratio * int(steps))
        else:
            book.lost.append(
                (O + "lr_warmup_steps_ratio", ratio, "warmup is in steps: set it to this share of the run's")
            )
    shape = "cosine" if kind == "cosine" else "constant"
    schedule: dict[str, Any] = {"kind": shape, "start": rate}
    schedule |= {"end": rate * least} if shape == "cosine" else {}
    schedule |= {"warmup": warmup} if warmup > 0 else {}
    plain = shape == "constant" and warmup <= 0
    shaped = ("lr_scheduler_type", "warmup_style", "lr_warmup_steps", "lr_warmup_steps_ratio")
    names = (O + "lr", *(O + key for key in shaped if book.given(O + key)))
    book.put("optimizer.learning_rate", rate if plain else schedule, *names)
    decay = (OVERRIDE if book.given(f"{OVERRIDE}.weight_decay") else O.removesuffix(".")) + ".weight_decay"
    book.put("optimizer.weight_decay", float(book.get(decay)), decay)
    _moments(book)
    clip = book.get(O + "clip_grad") if book.given(O + "clip_grad") else book.get(A + "grad_clip")
    book.put("optimizer.grad_clip", float(clip) if clip else "none", A + "grad_clip")
    book.needless("counted by the trainer", O + "total_training_steps", O + "num_cycles", O + "optimizer_impl")
    moments = adamw_moments(str(book.get(O + "optimizer")))
    if moments is None:
        book.no_counterpart(NO_OPTIMIZER, O + "optimizer")
    elif moments == "8bit":
        book.put("optimizer.moments", moments, O + "optimizer")


def _moments(book: Ledger) -> None:
    """AdamW's betas and eps: of the override where that has them (its names in PyTorch, or in Megatron)."""
    over = OVERRIDE + "."
    names = [over + "betas"] if book.given(over + "betas") else [O + "betas"]
    betas = [float(b) for b in as_list(book.get(names[0]))]
    for i, key in enumerate((over + "adam_beta1", over + "adam_beta2")):
        if book.given(key):
            betas[i], names = float(book.get(key)), [*names, key]
    book.put("optimizer.betas", betas, *names)
    for key in (over + "eps", over + "adam_eps"):
        if book.given(key):
            book.put("optimizer.eps", float(book.get(key)), key)


def _policy(book: Ledger) -> None:
    model, rank = book.get(M + "path"), int(book.get(M + "lora_rank") or 0)
    book.put("policy.model", str(model) if model else "set-me/model", M + "path")
    if rank > 0:
        book.put("policy.lora.rank", rank, M + "lora_rank")
        book.put("policy.lora.alpha", float(book.get(M + "lora_alpha")), M + "lora_alpha")
        targets = book.get(M + "target_modules")
        book.put("policy.lora.targets", targets if isinstance(targets, str) else as_list(targets), M + "target_modules")
    else:
        book.needless("no adapters are trained", M + "lora_alpha", M + "target_modules")
        book.put("policy.train", "all", M + "lora_rank")
    book.put("policy.dtype", "bfloat16" if book.get(R + "dtype") == "bfloat16" else "float32", R + "dtype")
    book.put("policy.gradient_checkpointing", bool(book.get(M + "enable_gradient_checkpointing")),
             M + "enable_gradient_checkpointing")  # fmt: skip
    book.put("policy.max_new_tokens", int(book.get("data.max_response_length")), "data.max_response_length")
    book.put("policy.temperature", float(book.get(R + "temperature")), R + "temperature")
    book.put("policy.top_p", float(book.get(R + "top_p")), R + "top_p")
    book.put("policy.top_k", max(0, int(book.get(R + "top_k"))), R + "top_k")
    inner = {k.rpartition(".")[2]: book.get(k) for k in list(book.found.given) if k.startswith(KWARGS + ".")}
    if inner:
        book.put("policy.chat_template_kwargs", inner, *(f"{KWARGS}.{k}" for k in inner))
    elif isinstance(book.get("data.apply_chat_template_kwargs"), dict):
        book.put("policy.chat_template_kwargs", book.get("data.apply_chat_template_kwargs"),
                 "data.apply_chat_template_kwargs")  # fmt: skip
    engine = str(book.get(R + "name"))
    if engine == "vllm":
        book.put("policy.engine", "vllm", R + "name")
        book.put("policy.engine_memory", float(book.get(R + "gpu_memory_utilization")), R + "gpu_memory_utilization")
    else:
        book.needless("the built-in engine takes what is free", R + "gpu_memory_utilization")
        if engine != "hf":
            book.lost.append(
                (R + "name", engine, "not an engine here; the built-in one was taken (or set engine = vllm)")
            )
    book.get(R + "do_sample")


def _data(book: Ledger) -> None:
    files, held = as_list(book.get("data.train_files")), as_list(book.get("data.val_files"))
    book.put("task.path", str(files[0]) if files else "train.parquet", "data.train_files")
    for rest in files[1:]:
        book.lost.append(
            ("data.train_files", rest, "a task reads one file or folder: put them in one folder, or a mixture")
        )
    if held:
        book.put("task.held_out_path", str(held[0]), "data.val_files")
    for rest in held[1:]:
        book.lost.append(("data.val_files", rest, "one file or folder holds the held-out prompts"))
    book.put("task.prompt_column", str(book.get("data.prompt_key")), "data.prompt_key")
    if not book.get("data.shuffle"):
        book.no_counterpart("every pass over the data is a permutation of its own", "data.shuffle")
    path = book.get("custom_reward_function.path")
    if path:
        book.found.rewards.append(("file", f"{path}:{book.get('custom_reward_function.name')}"))
    elif book.get("reward_model.enable"):
        book.found.rewards.append(("model", str(book.get("reward_model.model.path"))))
    else:
        book.found.rewards.append(("function", "default_compute_score"))
        book.found.reward_file = (
            "# verl's own scorer, chosen by each row's data_source; verl has to be installed.\n"
            "from verl.utils.reward_score import default_compute_score\n"
        )
    book.needless("see the recipe's rewards", "reward_model.", "custom_reward_function.name")


def _trainer(book: Ledger) -> None:
    steps = book.get("trainer.total_training_steps")
    if steps:
        book.put("training.steps", int(steps), "trainer.total_training_steps")
        book.needless("total_training_steps ends the run", "trainer.total_epochs")
    else:
        book.put(
            "stages", [{"name": "grpo", "epochs": float(book.get("trainer.total_epochs"))}], "trainer.total_epochs"
        )
    every, save = int(book.get("trainer.test_freq")), int(book.get("trainer.save_freq"))
    if every > 0:
        book.put("evaluation.every", every, "trainer.test_freq")
    if save > 0:
        book.put("training.checkpoint_every", save, "trainer.save_freq")
    book.put("evaluation.at_start", bool(book.get("trainer.val_before_train")), "trainer.val_before_train")
    if book.given("trainer.experiment_name"):
        book.put("name", str(book.get("trainer.experiment_name")), "trainer.experiment_name")
    if isinstance(book.get("trainer.default_local_dir"), str):
        book.put("folder", book.get("trainer.default_local_dir"), "trainer.default_local_dir")
    sinks = [s for s in as_list(book.get("trainer.logger")) if s in ("tensorboard", "wandb", "trackio")]
    if sinks:
        book.put("training.sinks", sinks, "trainer.logger")
    if sinks and book.given("trainer.project_name"):
        book.put("training.project", str(book.get("trainer.project_name")), "trainer.project_name")
    book.no_counterpart("there is no critic", "trainer.critic_warmup")
    book.no_counterpart("samples have no discount", "algorithm.gamma", "algorithm.lam")
