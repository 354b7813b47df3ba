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
            self.differs.append(f"no {what} {choice if isinstance(choice, str) else 'of your own'} there")
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
        near.unless(exact, f"dr_grpo divides by max_completion_length, not by {a.horizon}")
    else:
        near.unless(a.reduction == own, f"loss_type {a.objective} is always a {own}")
    low, high = (default if given is None else number(given) for given, default in zip((a.clip_low, a.clip_high), clip))
    near.settings |= {"epsilon": low, "epsilon_high": 1 + high if a.objective == "cispo" else high}
    near.unless(a.objective != "cispo" or low >= 1, "loss_type cispo has no lower bound")
    near.settings |= {} if a.dual_clip is None else {"delta": a.dual_clip}
    scaled = a.advantage in ("zscore", "batch", "gdpo")
    near.unless(not scaled or a.epsilon == 1e-4, "1e-4 is added to standard deviations there: epsilon = 1e-4 here")
    near.unless(not scaled or a.ddof == 1, "standard deviations divide by n - 1 there: ddof = 1 here")
    near.unless(not (scaled and a.std_floor) and a.advantage_clip is None, "no std_floor, no advantage_clip there")
    near.settings |= {"num_iterations": a.epochs, "temperature": "the policy's"}
    _trl_updates(near, a)
    _trl_terms(near, a)
    _trl_optimizer(near, a, optimizer)
    return near


def _trl_updates(near: Nearest, a: AlgorithmConfig) -> None:
    if a.minibatches > 1:
        near.settings["steps_per_generation"] = f"{a.minibatches} x gradient_accumulation_steps"
        near.differs.append(
            "minibatches are drawn from all samples there, of whole groups here; dapo and cispo divide by the mean "
            "number of tokens of a minibatch, here by its own"
        )
    once = a.epochs * a.minibatches == 1
    near.unless(a.objective != "reinforce" or once, "a ratio is clipped there, from the second update of a rollout on")
    near.unless(a.target_kl is None, "no target_kl there")


def _trl_terms(near: Nearest, a: AlgorithmConfig) -> None:
    beta = largest_beta(a)
    near.settings |= {"beta": number(a.beta)}
    if beta:
        same = a.objective != "gspo"
        near.unless(a.kl != "exact", "no exact KL there: k3 times the ratio, whose gradient is that of k1, k2, k3 here")
        near.unless(same, "k3 is multiplied by the sequence's ratio there, by each decision's here")
        near.unless(a.kl_controller == "fixed", "no controller of beta there")
    if number(a.entropy_coef):
        near.settings["entropy_coef"] = number(a.entropy_coef)
        near.unless(
            a.reduction == "token_mean", "the entropy bonus is a mean over tokens there, whatever the loss_type"
        )
    for key in ("lambda_supervised", "lambda_consistency"):
        near.unless(not number(getattr(a, key)), f"no {key} there")
    near.unless(a.lambda_pg == 1, "no lambda_pg there")
    if a.importance != "none":
        word = {"truncate": "truncate", "mask": "mask"}.get(str(a.importance), "truncate")
        level = "token" if a.importance_level == "decision" else "sequence"
        near.settings |= {"vllm_importance_sampling_mode": f"{level}_{word}",
                          "vllm_importance_sampling_clip_max": a.importance_cap}  # fmt: skip
        near.differs.append("the correction acts with vLLM alone there, and not on the KL")
    kinds = [f.kind for f in a.filters]
    if "overlong_mask" in kinds:
        near.settings["mask_truncated_completions"] = True
        near.differs.append("samples that were cut off leave the loss there, and stay in the group's mean")
    others = [kind for kind in kinds if kind not in ("drop_constant", "overlong_mask")]
    near.unless(not others, f"no filter {', '.join(others)} there")
    near.unless(not a.refill, "no refill there")
    near.unless(not a.overlong_buffer, "the overlong penalty is a reward there: get_soft_overlong_punishment")


def _trl_optimizer(near: Nearest, a: AlgorithmConfig, o: OptimizerConfig) -> None:
    (one, two), rate = o.betas, o.learning_rate
    near.settings |= {
        "learning_rate": number(rate),
        "lr_scheduler_type": rate.kind if isinstance(rate, Schedule) else "constant",
        "adam_beta1": one, "adam_beta2": two, "adam_epsilon": o.eps, "weight_decay": o.weight_decay,
        "max_grad_norm": o.grad_clip or 0.0,
    }  # fmt: skip
    near.unless(not o.weight_decay, "weight decay leaves out norms and biases there")
    moving = isinstance(rate, Schedule) and rate.kind != "constant"
    near.unless(not moving, "a schedule that falls to 0 wastes no last step here")


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
        near.unless(a.dual_clip is not None, "a dual clip of 3 is always on there, unless clip_ratio_c is large")
    near.unless(a.objective == "ppo" or a.dual_clip is None, f"no dual clip in {a.objective} there")
    near.unless(a.objective != "sapo" or a.reduction == "sequence_mean", "sapo is always a mean over sequences there")
    near.unless(a.advantage not in ("zscore", "best_gap") or a.epsilon == 1e-6,
                "1e-6 is added to standard deviations there: epsilon = 1e-6 here")  # fmt: skip
    if a.reduction == "constant":
        near.settings["loss_scale_factor"] = a.horizon or "the policy's limit"
    if a.advantage in ("whitened", "overall", "gdpo"):
        near.differs.append("scaled over tokens there, so that long samples weigh more; over samples here")
    near.settings |= {"ppo_epochs": a.epochs, "ppo_mini_batch_size": max(1, a.prompts_per_step // a.minibatches)}
    if largest_beta(a):
        kind = {"k1": "k1+", "k2": "k2", "k3": "k3+"}.get(str(a.kl))
        near.settings |= {"use_kl_loss": True, "kl_loss_coef": number(a.beta), "kl_loss_type": kind or "k3+"}
        near.unless(kind is not None, "no exact KL there")
        near.differs.append("its KL's gradient has no ratio there: the same in a rollout's first update")
    if number(a.entropy_coef):
        near.settings["entropy_coeff"] = number(a.entropy_coef)
    return near
