"""verl's loss, estimator and rollout correction as settings of ours."""

from __future__ import annotations

from anygrpo.integrations.adopt.moving import Ledger
from anygrpo.recipe.verl_keys import (
    ESTIMATORS,
    OVERLONG,
    A,
    R,
)


def loss(book: Ledger) -> None:
    """Advantage, objective, reduction, KL and entropy; groups drawn again; the correction of the sampler."""
    _advantage(book)
    _objective(book)
    _reduction(book)
    _kl(book)
    book.put("algorithm.entropy_coef", float(book.get(A + "entropy_coeff") or 0.0), A + "entropy_coeff")
    _groups(book)
    _correction(book)


def _advantage(book: Ledger) -> None:
    name = str(book.get("algorithm.adv_estimator"))
    advantage = ESTIMATORS.get(name)
    alone = int(book.get(R + "n")) == 1
    if advantage is None:
        instead = "overall (over the batch)" if alone else "zscore (in the group)"
        why = f"its baseline (a critic, say) is not here; {instead} was taken"
        book.lost.append(("algorithm.adv_estimator", name, why))
        advantage = "overall" if alone else "zscore"
    elif alone and advantage not in ("overall",):
        book.notes.append(f'a group of one has no baseline under {name}: advantage = "overall" was taken, or raise the '
                          "group size")  # fmt: skip
        advantage = "overall"
    if advantage == "zscore" and not book.get("algorithm.norm_adv_by_std_in_grpo"):
        advantage = "centred"
    book.put("algorithm.advantage", advantage, "algorithm.adv_estimator", "algorithm.norm_adv_by_std_in_grpo")
    if advantage in ("zscore", "best_gap"):
        book.put("algorithm.epsilon", 1e-6, "algorithm.adv_estimator")


def _objective(book: Ledger) -> None:
    mode = str(book.get(A + "policy_loss.loss_mode"))
    objective = {"vanilla": "ppo", "gspo": "gspo", "sapo": "sapo", "cispo": "cispo", "gpg": "reinforce"}.get(mode)
    if objective is None:
        book.lost.append((A + "policy_loss.loss_mode", mode, "not among the objectives here; ppo was taken"))
    book.put("algorithm.objective", objective or "ppo", A + "policy_loss.loss_mode")
    both = book.get(A + "clip_ratio")
    for key, path in (("clip_ratio_low", "clip_low"), ("clip_ratio_high", "clip_high")):
        own = book.get(A + key)
        if objective in ("sapo", "reinforce"):
            continue
        book.put(f"algorithm.{path}", float(both if own is None else own), A + ("clip_ratio" if own is None else key))
    dual = book.get(A + "clip_ratio_c")
    if objective in (None, "ppo") and dual:
        book.put("algorithm.dual_clip", float(dual), A + "clip_ratio_c")
    if objective == "sapo":
        book.put("algorithm.tau_positive", float(book.get(A + "tau_pos")), A + "tau_pos")
        book.put("algorithm.tau_negative", float(book.get(A + "tau_neg")), A + "tau_neg")


def _groups(book: Ledger) -> None:
    """Overlong answers, and groups drawn again."""
    if book.get(OVERLONG + "enable"):
        book.put("algorithm.overlong_buffer", int(book.get(OVERLONG + "len") or 0), OVERLONG + "len")
        if float(book.get(OVERLONG + "penalty_factor") or 1.0) != 1.0:
            book.no_counterpart("the penalty falls to -1", OVERLONG + "penalty_factor")
    book.get(OVERLONG + "len")
    if book.get("algorithm.filter_groups.enable"):
        draws = int(book.get("algorithm.filter_groups.max_num_gen_batches") or 10)
        book.put("algorithm.refill", max(draws - 1, 1), "algorithm.filter_groups.enable")
    book.needless("groups are compared by their reward", "algorithm.filter_groups.")


def _correction(book: Ledger) -> None:
    correct = book.get("algorithm.rollout_correction.rollout_is")
    if correct in ("token", "sequence"):
        book.put("algorithm.importance", "truncate", "algorithm.rollout_correction.rollout_is")
        book.put("algorithm.importance_level", "sequence" if correct == "sequence" else "decision",
                 "algorithm.rollout_correction.rollout_is")  # fmt: skip
        book.put("algorithm.importance_cap", float(book.get("algorithm.rollout_correction.rollout_is_threshold")),
                 "algorithm.rollout_correction.rollout_is_threshold")  # fmt: skip


def _reduction(book: Ledger) -> None:
    mode = str(book.get(A + "loss_agg_mode"))
    reduction = {
        "token-mean": "token_mean", "seq-mean-token-mean": "sequence_mean", "seq-mean-token-sum": "constant",
        "seq-mean-token-sum-norm": "constant",
    }.get(mode)  # fmt: skip
    if reduction is None:
        book.lost.append((A + "loss_agg_mode", mode, "not among the reductions here; token_mean was taken"))
    book.put("algorithm.reduction", reduction or "token_mean", A + "loss_agg_mode")
    factor = book.get(A + "loss_scale_factor")
    if mode == "seq-mean-token-sum":
        book.put("algorithm.horizon", 1, A + "loss_agg_mode")
    elif mode == "seq-mean-token-sum-norm" and factor:
        book.put("algorithm.horizon", int(factor), A + "loss_scale_factor")
    elif mode == "seq-mean-token-sum-norm":
        book.notes.append(
            "seq-mean-token-sum-norm divides by the batch's width there; here by max_new_tokens, the same at every step"
        )


def _kl(book: Ledger) -> None:
    kinds = {"low_var_kl": "k3", "k3": "k3", "kl": "k1", "k1": "k1", "mse": "k2", "k2": "k2", "low_var_kl+": "k3"}
    in_reward = book.get("algorithm.use_kl_in_reward")
    if book.get(A + "use_kl_loss"):
        if in_reward:
            book.no_counterpart("one KL term: that of the loss was taken", "algorithm.use_kl_in_reward")
        beta, kind, key = float(book.get(A + "kl_loss_coef")), str(book.get(A + "kl_loss_type")), A + "kl_loss_coef"
        name = A + "kl_loss_type"
    elif in_reward:
        beta, kind = float(book.get("algorithm.kl_ctrl.kl_coef")), str(book.get("algorithm.kl_penalty"))
        key, name = "algorithm.kl_ctrl.kl_coef", "algorithm.kl_penalty"
        book.notes.append("the KL was subtracted from the reward; here it is a term of the loss, with the same weight")
        if book.get("algorithm.kl_ctrl.type") == "adaptive":
            book.put("algorithm.kl_controller", "proportional", "algorithm.kl_ctrl.type")
            book.put(
                "algorithm.kl_target",
                float(book.get("algorithm.kl_ctrl.target_kl") or 0.1),
                "algorithm.kl_ctrl.target_kl",
            )
    else:
        book.needless("the KL had no weight", A + "kl_loss_coef", A + "kl_loss_type", "algorithm.kl_ctrl.",
                      "algorithm.kl_penalty")  # fmt: skip
        book.put("algorithm.beta", 0.0, A + "use_kl_loss", "algorithm.use_kl_in_reward")
        return
    book.needless("the KL had no weight there", A + "kl_loss_coef", A + "kl_loss_type", "algorithm.kl_ctrl.",
                  "algorithm.kl_penalty")  # fmt: skip
    book.put("algorithm.beta", beta, key)
    book.put("algorithm.kl", kinds.get(kind, "k3"), name)
    if kind not in kinds:
        book.lost.append((name, kind, "not among the estimators here; k3 was taken"))
    book.notes.append("the KL's gradient is the right one in expectation here, whichever estimator is logged")
