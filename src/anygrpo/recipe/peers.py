"""The nearest settings of TRL and verl to a stage's algorithm, and what still differs.

Read in the sources of TRL 1.16.0 (`GRPOConfig`, `GRPOTrainer._compute_loss`) and verl 0.9.1 (`core_algos`); held by the
runs of tests/parity, whose table is docs/parity.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from anygrpo.recipe.algorithm import AlgorithmConfig
from anygrpo.recipe.recipe import largest_beta, number
from anygrpo.recipe.section import Schedule
from anygrpo.recipe.training import OptimizerConfig
from anygrpo.spoken import say

TRL, VERL = "TRL 1.16.0", "verl 0.9.1"


@dataclass
class Nearest:
    """A peer's settings by its own names, and in words what differs under them."""

    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    differs: list[str] = field(default_factory=list[str])

    def has(self, table: dict[str, dict[str, Any]], what: str, choice: Any, instead: dict[str, Any]) -> None:
        """Settings of `choice` where the table has it, else `instead`, with a word about it."""
        found = table.get(choice) if isinstance(choice, str) else None
        if found is None:
            own = choice if isinstance(choice, str) else say("of your own", "（你自己的）")
            self.differs.append(say(f"no {what} {own} there", f"那里没有 {what} {own}"))
        self.settings |= instead if found is None else found

    def unless(self, fine: bool, text: str) -> None:
        """Say so where something differs."""
        if not fine:
            self.differs.append(text)


_TRL_ADVANTAGES: dict[str, dict[str, Any]] = {
    "zscore": {"scale_rewards": "group"},
    "centred": {"scale_rewards": "none"},
    "batch": {"scale_rewards": "batch"},
    "gdpo": {"multi_objective_aggregation": "normalize_then_sum"},
}
_TRL_OBJECTIVES: dict[str, dict[str, Any]] = {
    "ppo": {"importance_sampling_level": "token"},
    "gspo": {"importance_sampling_level": "sequence"},
    "cispo": {"loss_type": "cispo"},
    "sapo": {"loss_type": "sapo"},
    "reinforce": {"importance_sampling_level": "token"},
}
_TRL_REDUCTIONS: dict[str, dict[str, Any]] = {
    "token_mean": {"loss_type": "dapo"},
    "sequence_mean": {"loss_type": "grpo"},
    "constant": {"loss_type": "dr_grpo"},
}
_OWN_REDUCTION = {"cispo": "token_mean", "sapo": "sequence_mean"}


def trl(a: AlgorithmConfig, optimizer: OptimizerConfig, clip: tuple[float, float] = (0.2, 0.2)) -> Nearest:
    """`GRPOConfig`'s. `clip`: the policy type's own range, where the recipe names none."""
    near = Nearest()
    near.has(_TRL_ADVANTAGES, "advantage", a.advantage, _TRL_ADVANTAGES["zscore"])
    near.has(_TRL_OBJECTIVES, "objective", a.objective, _TRL_OBJECTIVES["ppo"])
    own = _OWN_REDUCTION.get(str(a.objective))
    if own is None:
        short = a.reduction == "constant" and a.horizon == 1
        near.has(_TRL_REDUCTIONS | {"constant": {"loss_type": "luspo"}} if short else _TRL_REDUCTIONS, "reduction",
                 a.reduction, _TRL_REDUCTIONS["token_mean"])  # fmt: skip
        exact = a.reduction != "constant" or a.horizon in (None, 1)
        near.unless(
            exact,
            say(
                f"dr_grpo divides by max_completion_length, not by {a.horizon}",
                f"dr_grpo 除以 max_completion_length，而不是 {a.horizon}",
            ),
        )
    else:
        near.unless(
            a.reduction == own, say(f"loss_type {a.objective} is always a {own}", f"loss_type {a.objective} 总是 {own}")
        )
    low, high = (default if given is None else number(given) for given, default in zip((a.clip_low, a.clip_high), clip))
    near.settings |= {"epsilon": low, "epsilon_high": 1 + high if a.objective == "cispo" else high}
    near.unless(
        a.objective != "cispo" or low >= 1, say("loss_type cispo has no lower bound", "loss_type cispo 没有下限")
    )
    near.settings |= {} if a.dual_clip is None else {"delta": a.dual_clip}
    scaled = a.advantage in ("zscore", "batch", "gdpo")
    near.unless(
        not scaled or a.epsilon == 1e-4,
        say(
            "1e-4 is added to standard deviations there: epsilon = 1e-4 here",
            "那里给标准差加 1e-4：这里设 epsilon = 1e-4",
        ),
    )
    near.unless(
        not scaled or a.ddof == 1,
        say("standard deviations divide by n - 1 there: ddof = 1 here", "那里的标准差除以 n - 1：这里设 ddof = 1"),
    )
    near.unless(
        not (scaled and a.std_floor) and a.advantage_clip is None,
        say("no std_floor, no advantage_clip there", "那里没有 std_floor 和 advantage_clip"),
    )
    near.settings |= {"num_iterations": a.epochs, "temperature": "the policy's"}
    _trl_updates(near, a)
    _trl_terms(near, a)
    _trl_optimizer(near, a, optimizer)
    return near


def _trl_updates(near: Nearest, a: AlgorithmConfig) -> None:
    if a.minibatches > 1:
        near.settings["steps_per_generation"] = f"{a.minibatches} x gradient_accumulation_steps"
        near.differs.append(
            say(
                "minibatches are drawn from all samples there, of whole groups here; dapo and cispo divide by the mean "
                "number of tokens of a minibatch, here by its own",
                "那里的小批取自全部样本，这里由整组构成；dapo 与 cispo 除以小批的平均 token 数，这里除以各自的",
            )
        )
    once = a.epochs * a.minibatches == 1
    near.unless(
        a.objective != "reinforce" or once,
        say(
            "a ratio is clipped there, from the second update of a rollout on", "那里从每次采样的第二次更新起裁剪概率比"
        ),
    )
    near.unless(a.target_kl is None, say("no target_kl there", "那里没有 target_kl"))


def _trl_terms(near: Nearest, a: AlgorithmConfig) -> None:
    beta = largest_beta(a)
    near.settings |= {"beta": number(a.beta)}
    if beta:
        same = a.objective != "gspo"
        near.unless(
            a.kl != "exact",
            say(
                "no exact KL there: k3 times the ratio, whose gradient is that of k1, k2, k3 here",
                "那里没有精确 KL：用 k3 乘概率比，其梯度等于这里的 k1、k2、k3",
            ),
        )
        near.unless(
            same,
            say(
                "k3 is multiplied by the sequence's ratio there, by each decision's here",
                "那里 k3 乘整个序列的概率比，这里乘每个决策的",
            ),
        )
        near.unless(a.kl_controller == "fixed", say("no controller of beta there", "那里没有 beta 的控制器"))
    if number(a.entropy_coef):
        near.settings["entropy_coef"] = number(a.entropy_coef)
        near.unless(
            a.reduction == "token_mean",
            say(
                "the entropy bonus is a mean over tokens there, whatever the loss_type",
                "那里的熵奖励总是对 token 取均值，与 loss_type 无关",
            ),
        )
    for key in ("lambda_supervised", "lambda_consistency"):
        near.unless(not number(getattr(a, key)), say(f"no {key} there", f"那里没有 {key}"))
    near.unless(a.lambda_pg == 1, say("no lambda_pg there", "那里没有 lambda_pg"))
    if a.importance != "none":
        word = {"truncate": "truncate", "mask": "mask"}.get(str(a.importance), "truncate")
        level = "token" if a.importance_level == "decision" else "sequence"
        near.settings |= {"vllm_importance_sampling_mode": f"{level}_{word}",
                          "vllm_importance_sampling_clip_max": a.importance_cap}  # fmt: skip
        near.differs.append(
            say("the correction acts with vLLM alone there, and not on the KL", "那里只有用 vLLM 时才修正，且不修正 KL")
        )
    kinds = [f.kind for f in a.filters]
    if "overlong_mask" in kinds:
        near.settings["mask_truncated_completions"] = True
        near.differs.append(
            say(
                "samples that were cut off leave the loss there, and stay in the group's mean",
                "那里被截断的样本不进损失，但仍计入组均值",
            )
        )
    others = [kind for kind in kinds if kind not in ("drop_constant", "overlong_mask")]
    near.unless(not others, say(f"no filter {', '.join(others)} there", f"那里没有过滤器 {'、'.join(others)}"))
    near.unless(not a.refill, say("no refill there", "那里没有 refill"))
    near.unless(
        not a.overlong_buffer,
        say(
            "the overlong penalty is a reward there: get_soft_overlong_punishment",
            "那里超长惩罚是一种奖励：get_soft_overlong_punishment",
        ),
    )


def _trl_optimizer(near: Nearest, a: AlgorithmConfig, o: OptimizerConfig) -> None:
    (one, two), rate = o.betas, o.learning_rate
    near.settings |= {
        "learning_rate": number(rate),
        "lr_scheduler_type": rate.kind if isinstance(rate, Schedule) else "constant",
        "adam_beta1": one, "adam_beta2": two, "adam_epsilon": o.eps, "weight_decay": o.weight_decay,
        "max_grad_norm": o.grad_clip or 0.0,
    }  # fmt: skip
    if o.moments == "8bit":
        near.settings["optim"] = "adamw_8bit"
    near.unless(
        not o.weight_decay, say("weight decay leaves out norms and biases there", "那里的权重衰减不含归一化层和偏置")
    )
    moving = isinstance(rate, Schedule) and rate.kind != "constant"
    near.unless(
        not moving, say("a schedule that falls to 0 wastes no last step here", "这里降到 0 的调度不浪费最后一步")
    )


_VERL_ADVANTAGES: dict[str, dict[str, Any]] = {
    "zscore": {"adv_estimator": "grpo", "norm_adv_by_std_in_grpo": True},
    "centred": {"adv_estimator": "grpo", "norm_adv_by_std_in_grpo": False},
    "leave_one_out": {"adv_estimator": "rloo"},
    "whitened": {"adv_estimator": "reinforce_plus_plus_baseline"},
    "overall": {"adv_estimator": "reinforce_plus_plus"},
    "best_gap": {"adv_estimator": "grpo_passk"},
    "gpg": {"adv_estimator": "gpg"},
    "gdpo": {"adv_estimator": "gdpo"},
}
_VERL_OBJECTIVES: dict[str, dict[str, Any]] = {
    "ppo": {"loss_mode": "vanilla"},
    "gspo": {"loss_mode": "gspo"},
    "cispo": {"loss_mode": "cispo"},
    "sapo": {"loss_mode": "sapo"},
    "reinforce": {"loss_mode": "gpg"},
}
_VERL_REDUCTIONS: dict[str, dict[str, Any]] = {
    "token_mean": {"loss_agg_mode": "token-mean"},
    "sequence_mean": {"loss_agg_mode": "seq-mean-token-mean"},
    "constant": {"loss_agg_mode": "seq-mean-token-sum-norm"},
}


def verl(a: AlgorithmConfig, clip: tuple[float, float] = (0.2, 0.2)) -> Nearest:
    """Settings of verl's algorithm and actor."""
    near = Nearest()
    near.has(_VERL_ADVANTAGES, "advantage", a.advantage, _VERL_ADVANTAGES["zscore"])
    near.has(_VERL_OBJECTIVES, "objective", a.objective, _VERL_OBJECTIVES["ppo"])
    near.has(_VERL_REDUCTIONS, "reduction", a.reduction, _VERL_REDUCTIONS["token_mean"])
    low, high = (default if given is None else number(given) for given, default in zip((a.clip_low, a.clip_high), clip))
    near.settings |= {"clip_ratio_low": low, "clip_ratio_high": high}
    if a.objective == "ppo":
        near.settings["clip_ratio_c"] = a.dual_clip or 1e9
        near.unless(
            a.dual_clip is not None,
            say(
                "a dual clip of 3 is always on there, unless clip_ratio_c is large",
                "那里总有 3 的双重裁剪，除非 clip_ratio_c 很大",
            ),
        )
    near.unless(
        a.objective == "ppo" or a.dual_clip is None,
        say(f"no dual clip in {a.objective} there", f"那里 {a.objective} 没有双重裁剪"),
    )
    near.unless(
        a.objective != "sapo" or a.reduction == "sequence_mean",
        say("sapo is always a mean over sequences there", "那里 sapo 总是对序列取均值"),
    )
    near.unless(
        a.advantage not in ("zscore", "best_gap") or a.epsilon == 1e-6,
        say(
            "1e-6 is added to standard deviations there: epsilon = 1e-6 here",
            "那里给标准差加 1e-6：这里设 epsilon = 1e-6",
        ),
    )
    if a.reduction == "constant":
        near.settings["loss_scale_factor"] = a.horizon or "the policy's limit"
    if a.advantage in ("whitened", "overall", "gdpo"):
        near.differs.append(
            say(
                "scaled over tokens there, so that long samples weigh more; over samples here",
                "那里按 token 缩放，长样本权重更大；这里按样本",
            )
        )
    near.settings |= {"ppo_epochs": a.epochs, "ppo_mini_batch_size": max(1, a.prompts_per_step // a.minibatches)}
    if largest_beta(a):
        kind = {"k1": "k1+", "k2": "k2", "k3": "k3+"}.get(str(a.kl))
        near.settings |= {"use_kl_loss": True, "kl_loss_coef": number(a.beta), "kl_loss_type": kind or "k3+"}
        near.unless(kind is not None, say("no exact KL there", "那里没有精确 KL"))
        near.differs.append(
            say(
                "its KL's gradient has no ratio there: the same in a rollout's first update",
                "那里 KL 的梯度不带概率比：在每次采样的第一次更新里相同",
            )
        )
    if number(a.entropy_coef):
        near.settings["entropy_coeff"] = number(a.entropy_coef)
    return near
