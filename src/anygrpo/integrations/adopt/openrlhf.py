"""OpenRLHF's `train_ppo_ray` command as a recipe, in its dotted names or the older ones."""

from __future__ import annotations

from typing import Any

from anygrpo.integrations.adopt.moving import Found, Ledger, as_list
from anygrpo.recipe.openrlhf_keys import ABSENT, CRITIC, DEFAULTS, ESTIMATORS, MACHINE, OLDER, SAID

ADV, KL = "algo.advantage.", "algo.kl."
_EARLIER = {"rollout.max_new_tokens": 1024}
"""Defaults of the older names that are not those of 0.11."""


def move(found: Found) -> Ledger:
    """Fill a ledger with what an OpenRLHF command means here."""
    older = any(key in OLDER for key in found.given)
    found.given = {OLDER.get(key, key): value for key, value in found.given.items()}
    book = Ledger(found, DEFAULTS | (_EARLIER if older and "data.max_len" not in found.given else {}))
    if older:
        book.notes.append(
            "names of the versions before 0.10: what was not set has the numbers of 0.11; versions up to 0.6 averaged "
            'the loss per answer (reduction = "sequence_mean")'
        )
    if older and not book.given("rollout.max_new_tokens", "data.max_len"):
        book.notes.append(
            "neither generate_max_len nor max_len is given: versions with generate_max_len (before 0.9.9) end an "
            "answer at 1024 tokens, which was taken"
        )
    _batches(book)
    _advantage(book)
    _loss(book)
    _kl(book)
    _rate(book)
    _policy(book)
    _pictures(book)
    _data(book)
    _rewards(book)
    _run(book)
    for key, why in ABSENT.items():
        book.no_counterpart(why, key)
    if book.get("eval.dataset"):
        book.no_counterpart("pass@k (evaluation.pass_k) samples as training does", "eval.n_samples_per_prompt")
    book.needless("there is no critic", *CRITIC)
    book.needless("how work is laid on the machine: any split gives the same gradient here", *MACHINE)
    book.needless("metrics, samples and checkpoints are always kept in the run's folder", *SAID)
    book.finish()
    return book


def _batches(book: Ledger) -> None:
    prompts, group = int(book.get("rollout.batch_size")), int(book.get("rollout.n_samples_per_prompt"))
    samples = int(book.get("train.batch_size"))
    parts = max(1, prompts * group // max(samples, 1))
    if parts > prompts:
        book.notes.append(
            f"{parts} updates of {samples} sample(s) split groups there; here groups are whole: {prompts}"
        )
        parts = prompts
    book.put("algorithm.prompts_per_step", prompts, "rollout.batch_size")
    book.put("algorithm.group_size", group, "rollout.n_samples_per_prompt")
    book.put("algorithm.minibatches", parts, "train.batch_size")
    book.put("algorithm.epochs", int(book.get("train.max_epochs")), "train.max_epochs")
    if book.get("train.async_enable"):
        book.put("training.off_policy_steps", 1, "train.async_enable")
        size = book.get("train.async_queue_size")
        if size != 1:
            book.no_counterpart("one step ahead; training.max_staleness allows more", "train.async_queue_size")
    book.get("train.async_queue_size")


def _advantage(book: Ledger) -> None:
    name, alone = str(book.get(ADV + "estimator")), int(book.get("rollout.n_samples_per_prompt")) == 1
    advantage = ESTIMATORS.get(name)
    if advantage is None:
        advantage = "overall" if alone else "zscore"
        instead = "overall (over the batch)" if alone else "zscore (in the group)"
        book.lost.append((ADV + "estimator", name, f"its baseline (a critic) is not here; {instead} was taken"))
    elif alone and advantage != "overall":
        book.notes.append(f'a group of one has no baseline under {name}: advantage = "overall" was taken')
        advantage = "overall"
    if advantage == "whitened" and book.get(ADV + "no_std_norm"):
        book.notes.append("no_std_norm: the batch's mean is subtracted there once more; here only the group's")
        advantage = "centred"
    elif advantage == "overall" and book.get(ADV + "no_std_norm"):
        book.no_counterpart("the batch's deviation divides", ADV + "no_std_norm")
    book.get(ADV + "no_std_norm")
    book.put("algorithm.advantage", advantage, ADV + "estimator")
    if advantage == "zscore":
        book.put("algorithm.epsilon", 1e-9, ADV + "estimator")
    if book.get("algo.dynamic_filtering_enable"):
        book.put("algorithm.refill", 9, "algo.dynamic_filtering_enable")
        book.notes.append(
            "dynamic_filtering: groups whose mean score is outside the range are drawn again there; here groups whose "
            "rewards are all the same, up to 9 times"
        )
    book.no_counterpart("what is drawn again are groups of equal rewards", "algo.dynamic_filtering_range")


def _loss(book: Ledger) -> None:
    kind = str(book.get("actor.policy_loss_type"))
    book.put("algorithm.objective", "gspo" if kind == "gspo" else "ppo", "actor.policy_loss_type")
    book.put("algorithm.reduction", "sequence_mean" if kind == "gspo" else "token_mean", "actor.policy_loss_type")
    both, pair = float(book.get("actor.eps_clip")), as_list(book.get("actor.eps_clip_low_high"))
    low, high = (float(pair[0]), float(pair[1])) if len(pair) == 2 else (both, both)
    name = "actor.eps_clip_low_high" if len(pair) == 2 else "actor.eps_clip"
    book.put("algorithm.clip_low", low, name)
    book.put("algorithm.clip_high", high, name)
    if book.get("actor.dual_clip"):
        book.put("algorithm.dual_clip", float(book.get("actor.dual_clip")), "actor.dual_clip")
    book.put("algorithm.entropy_coef", float(book.get("actor.entropy_coef") or 0.0), "actor.entropy_coef")
    if book.get("reward.overlong_buffer_len"):
        book.put("algorithm.overlong_buffer", int(book.get("reward.overlong_buffer_len")), "reward.overlong_buffer_len")
        if float(book.get("reward.overlong_penalty_factor")) != 1.0:
            book.no_counterpart("the penalty falls to -1", "reward.overlong_penalty_factor")
    book.get("reward.overlong_penalty_factor")
    _importance(book, kind)


def _importance(book: Ledger, kind: str) -> None:
    correct, how = book.get(ADV + "is_correction_enable"), str(book.get(ADV + "is_correction_type"))
    bounds = [float(x) for x in as_list(book.get(ADV + "is_correction_threshold"))]
    if not correct:
        return
    if kind == "gspo":
        book.no_counterpart(
            "under gspo the sampler's log-probs stand in the ratio, and no weight is applied: none is written",
            ADV + "is_correction_enable",
        )
        return
    book.put("algorithm.importance", "truncate" if how == "tis" else "mask", ADV + "is_correction_type")
    book.put("algorithm.importance_cap", max(bounds[-1], 1.0), ADV + "is_correction_threshold")
    if how == "seq-mask-tis":
        book.lost.append((ADV + "is_correction_type", how, "no mask by the geometric mean; one by decision was taken"))
    if len(bounds) > 1:
        book.lost.append((ADV + "is_correction_threshold", bounds[0], "importance has a cap and no floor"))


def _kl(book: Ledger) -> None:
    beta, kind = float(book.get(KL + "init_coef") or 0.0), str(book.get(KL + "estimator"))
    in_loss, target = book.get(KL + "use_loss"), book.get(KL + "target")
    horizon = int(book.get(KL + "horizon"))
    book.put("algorithm.beta", beta, KL + "init_coef")
    if not beta:
        return
    book.put("algorithm.kl", kind if kind in ("k1", "k2", "k3") else "k3", KL + "estimator")
    book.notes.append("the KL's gradient is the right one in expectation here, whichever estimator is logged")
    if not in_loss:
        book.notes.append("the KL was subtracted from the reward; here it is a term of the loss, with the same weight")
    if target is not None:
        book.put("algorithm.kl_controller", "proportional", KL + "target")
        book.put("algorithm.kl_target", float(target), KL + "target")
        book.put("algorithm.kl_horizon", horizon, KL + "horizon")


def _rate(book: Ledger) -> None:
    a = "actor."
    rate, kind = float(book.get(a + "adam.lr")), str(book.get(a + "lr_scheduler"))
    least, share = float(book.get(a + "min_lr_ratio")), float(book.get(a + "lr_warmup_ratio") or 0.0)
    shape = {"cosine_with_min_lr": "cosine", "cosine": "cosine", "linear": "linear", "constant": "constant",
             "constant_with_warmup": "constant"}.get(kind)  # fmt: skip
    if shape is None:
        book.lost.append((a + "lr_scheduler", kind, "not among the schedules here; the rate stays constant"))
        shape = "constant"
    end = rate * least if kind == "cosine_with_min_lr" else 0.0
    value: Any = rate if shape == "constant" else {"kind": shape, "start": rate, "end": end}
    book.put("optimizer.learning_rate", value, a + "adam.lr", a + "lr_scheduler", a + "min_lr_ratio")
    if share:
        book.lost.append((a + "lr_warmup_ratio", share, "warmup is in steps: set it to this share of the run's steps"))
    book.put("optimizer.betas", [float(b) for b in as_list(book.get(a + "adam.betas"))], a + "adam.betas")
    book.put("optimizer.eps", float(book.get(a + "adam.eps")), a + "adam.eps")
    book.put("optimizer.weight_decay", float(book.get(a + "adam.weight_decay")), a + "adam.weight_decay")
    clip = float(book.get(a + "max_norm"))
    book.put("optimizer.grad_clip", clip if clip > 0 else "none", a + "max_norm")
    if book.get(a + "optim") != "adam":
        book.no_counterpart("the optimizer is AdamW", a + "optim")
    for key in [key for key in book.found.given if key.startswith(a + "muon.")]:
        book.no_counterpart("the optimizer is AdamW", key)


def _policy(book: Ledger) -> None:
    model, rank = book.get("actor.model_name_or_path"), int(book.get("ds.lora.rank") or 0)
    book.put("policy.model", str(model) if model else "set-me/model", "actor.model_name_or_path")
    alpha, targets = float(book.get("ds.lora.alpha")), book.get("ds.lora.target_modules")
    if rank > 0:
        book.put("policy.lora.rank", rank, "ds.lora.rank")
        book.put("policy.lora.alpha", alpha, "ds.lora.alpha")
        targets = targets if targets == "all-linear" else as_list(targets)
        book.put("policy.lora.targets", targets, "ds.lora.target_modules")
    else:
        book.put("policy.train", "all", "ds.lora.rank")
    book.put("policy.quantize", "4bit" if book.get("ds.load_in_4bit") else "none", "ds.load_in_4bit")
    dtype = "float16" if book.get("ds.param_dtype") == "fp16" else "bfloat16"
    book.put("policy.dtype", dtype, "ds.param_dtype")
    if router := float(book.get("actor.aux_loss_coef") or 0.0):
        book.put("policy.router_loss", router, "actor.aux_loss_coef")
        book.notes.append("actor.aux_loss_coef: the balance is of each row's own tokens here, not of a whole batch's")
    checkpointing = "actor.gradient_checkpointing_enable"
    book.put("policy.gradient_checkpointing", bool(book.get(checkpointing)), checkpointing)
    longest, whole = book.get("rollout.max_new_tokens"), int(book.get("data.max_len"))
    if longest is None:
        book.notes.append(f"max_len = {whole} holds the prompt too there; here max_new_tokens is the answer alone")
    else:
        book.no_counterpart("max_new_tokens is the answer alone, and prompts are never cut", "data.max_len")
    name = "data.max_len" if longest is None else "rollout.max_new_tokens"
    book.put("policy.max_new_tokens", int(longest or whole), name)
    for key in ("temperature", "top_p"):
        book.put(f"policy.{key}", float(book.get(f"rollout.{key}")), f"rollout.{key}")
    book.put("policy.chat_template", bool(book.get("data.apply_chat_template")), "data.apply_chat_template")
    engines, memory = book.get("vllm.num_engines"), float(book.get("vllm.gpu_memory_utilization"))
    if engines and book.get("data.max_images_per_prompt"):
        book.lost.append(("vllm.num_engines", engines, "prompts with pictures are sampled by the built-in engine"))
    elif engines:
        book.put("policy.engine", "vllm", "vllm.num_engines")
        book.put("policy.engine_memory", memory, "vllm.gpu_memory_utilization")


def _pictures(book: Ledger) -> None:
    key, frozen = book.get("data.image_key"), book.get("actor.freeze_visual_encoder")
    if book.get("data.max_images_per_prompt"):
        book.put("task.pictures", str(key), "data.image_key")
        book.put("policy.vision", {"train": "language" if frozen else "both"}, "actor.freeze_visual_encoder")


def _data(book: Ledger) -> None:
    sets, label = _names(book.get("data.prompt_dataset")), book.get("data.label_key")
    book.put("task.path", sets[0] if sets else "train.jsonl", "data.prompt_dataset")
    for name in sets[1:]:
        book.lost.append(("data.prompt_dataset", name, "a task reads one; a mixture has a share of each"))
    book.put("task.split", str(book.get("data.prompt_split")), "data.prompt_split")
    book.put("task.prompt_column", str(book.get("data.input_key")), "data.input_key")
    if label:
        book.put("task.answer_column", str(label), "data.label_key")
    held = _names(book.get("eval.dataset"))
    if held:
        book.put("task.held_out_path", held[0], "eval.dataset")
        book.put("task.held_out_split", str(book.get("eval.split")), "eval.split")
    else:
        book.no_counterpart("without eval.dataset a share of the prompts is held out", "eval.split")
    for name in held[1:]:
        book.lost.append(("eval.dataset", name, "one file or data set holds the held-out prompts"))


def _rewards(book: Ledger) -> None:
    remote, models = _names(book.get("reward.remote_url")), _names(book.get("reward.model_name_or_path"))
    if remote and models:
        book.notes.append(f"reward.remote_url scores alone there, and {', '.join(models)} is not loaded: left out here")
    for name in remote:
        if name.endswith(".py"):
            book.found.rewards.append(("file", f"{name}:reward_func"))
            if label := book.get("data.label_key"):
                book.found.columns["labels"] = str(label)
        else:
            why = f"{name}: a server that scores; ask it in a function (docs/rewards.md)"
            book.found.rewards.append(("elsewhere", why))
    for name in () if remote else models:
        book.found.rewards.append(("model", name))


def _run(book: Ledger) -> None:
    book.put("stages", [{"name": "grpo", "epochs": float(book.get("train.num_episodes"))}], "train.num_episodes")
    for key, path in (("eval.steps", "evaluation.every"), ("ckpt.save_steps", "training.checkpoint_every")):
        steps = int(book.get(key))
        if steps > 0:
            book.put(path, steps, key)
    book.put("seed", int(book.get("train.seed")), "train.seed")
    if isinstance(book.get("ckpt.output_dir"), str) and book.given("ckpt.output_dir"):
        book.put("folder", book.get("ckpt.output_dir"), "ckpt.output_dir")
    if isinstance(book.get("logger.wandb.run_name"), str):
        book.put("name", book.get("logger.wandb.run_name"), "logger.wandb.run_name")
    keys = {"wandb": "logger.wandb.key", "tensorboard": "logger.tensorboard_dir"}
    sinks = [sink for sink, key in keys.items() if book.get(key)]
    if sinks:
        book.put("training.sinks", sinks, *(keys[sink] for sink in sinks))
    if "wandb" in sinks:
        book.put("training.project", str(book.get("logger.wandb.project")), "logger.wandb.project")


def _names(value: Any) -> list[str]:
    """One name, names in a list, or with commas between."""
    return [part.strip() for one in as_list(value) for part in str(one).split(",") if part.strip()]
