"""What each framework calls each measured thing, as data. Names are lower case, "train/" dropped, "-" and " " as "_".

Within one concept the earlier name is preferred where a log has several (verl's raw score before the score minus
beta KL, say). `SCALE` undoes percents and complements; `NOT_COMPARABLE` lists names whose level means something else,
so that no rule compares it with a threshold.
"""

from __future__ import annotations

from anygrpo.doctor.minor_names import MINOR

NAMES: dict[str, tuple[str, ...]] = {
    "reward/mean": (
        "reward/mean", "reward", "critic/score/mean", "critic/rewards/mean", "rollout/reward_mean",
        "rollout/raw_reward",
        "agg/effective/all/reward/mean", "agg/all/all/reward/mean", "reward/all/mean", "env/all/reward/total",
        "reward/avg_raw_reward", "ppo_actor/task_reward/avg", "rollout/reward", "total_reward", "filtered_reward",
        "reward/evaluate_response/avg_total_reward", "rewards/mean", "scores/mean", "scores", "return",
        "rollout_scores/mean", "returns_stat/mean", "objective/scores", "rewards/step", "rewards/iter",
        "reward/total_reward",
        "reward/total_reward_(mean)", "reward/overall",
    ),
    "reward/max": ("reward/max", "critic/score/max", "critic/rewards/max", "rewards/max"),
    "reward/min": ("reward/min", "critic/score/min", "critic/rewards/min", "rewards/min"),
    "reward/std_within": (
        "reward/std_within", "reward_std", "group_reward_std", "rewards/group_std", "reward/group_std",
        "reward_std_mean",
    ),
    "reward/std": ("reward/std", "rollout/reward_std", "critic/score/std", "reward_std_batch"),
    "reward/std_between": ("reward/std_between", "reward_std_between"),
    "reward/running_std": ("reward/running_std", "global_reward_std"),
    "groups/dead": (
        "groups/dead", "frac_reward_zero_std", "zero_variance_groups", "frac_zero_std", "zero_std",
        "advantage/all/fraction_zero",
        "baseline_reward/pct_mixed", "groups/live", "env/all/by_group/frac_mixed", "unsolved_batch_size_ratio",
        "dynamic_filtering_pass_rate", "zero_std_ratio", "advantage/zero_rate",
    ),
    "groups/all_best": (
        "groups/all_best", "frac_all_correct", "env/all/by_group/frac_all_good", "batch/solve_all", "solved_all",
        "agg/all/all/solved_all", "baseline_reward/pct_1",
    ),
    "groups/all_worst": (
        "groups/all_worst", "frac_all_wrong", "env/all/by_group/frac_all_bad", "batch/solve_none", "solved_none",
        "agg/all/all/solved_none", "baseline_reward/pct_0",
    ),
    "groups/size": ("groups/size",),
    "restoration/gate_edge_share": ("restoration/gate_edge_share",),
    "advantage/mean": (
        "advantage/mean", "critic/advantages/mean", "advantages/mean", "ppo_actor/advantages/avg",
        "val/advantages_mean",
    ),
    "advantage/std": ("advantage/std", "critic/advantages/std", "advantages/std", "advantage_std"),
    "advantage/max": (
        "advantage/max", "critic/advantages/max", "advantages/max", "ppo_actor/advantages/max", "val/advantages_max",
    ),
    "advantage/min": (
        "advantage/min", "critic/advantages/min", "advantages/min", "ppo_actor/advantages/min", "val/advantages_min",
    ),
    "advantage/abs_max": ("advantage/abs_max",),
    "advantage/one_sign": ("advantage/one_sign", "groups/one_sign", "advantage/one_sign_share"),
    "ratio/mean": (
        "ratio/mean", "probs_ratio", "ppo_actor/update/importance_weight/avg", "actor/ratio_mean@sum", "ois",
        "val/ratio",
        "policy/loss_metrics/cispo/ratio_mean", "mean_ratio", "actor/ratio_mean",
    ),
    "ratio/max": (
        "ratio/max", "probs_ratio_max", "ppo_actor/update/importance_weight/max", "actor/ratio_max@max", "max_ratio",
    ),
    "log_ratio/abs_max": ("log_ratio/abs_max", "max_abs_log_ratio", "log_ratio_abs_max", "max_log_ratio"),
    "log_ratio/mean": ("log_ratio/mean", "mean_log_ratio", "log_ratio_mean"),
    "clip/own": ("clip/own",),
    "clip/fraction": (
        "clip/fraction", "clip_ratio/region_mean", "actor/pg_clipfrac", "ppo_clip_ratio",
        "policy/loss_metrics/clip_ratio",
        "policy/ppo_clip_ratio", "ppo_actor/update/clip_ratio/avg", "pg_clipfrac", "actor/clipfrac@sum",
        "policy/clipfrac_avg",
        "is_masked/mean", "actor/clip_fraction", "clip_ratio", "clip_fraction", "clipfrac", "cispo_clip_ratio",
    ),
    "clip/low": ("clip/low", "clip_ratio/low_mean", "actor/ppo_ratio_low_clipfrac@sum", "is_masked_low/mean",
                 "clipfrac_lt_one"),
    "clip/high": ("clip/high", "clip_ratio/high_mean", "actor/ppo_ratio_high_clipfrac@sum",
                  "is_masked_high/mean", "clipfrac_gt_one"),
    "kl/reference": (
        "kl/reference", "kl", "actor/kl_loss", "kl_penalty", "kl_policy_base", "policy/policy_kl", "loss/avg_kl",
        "kl_loss",
        "rollout/kl", "actor/kl_loss@sum", "critic/kl", "rl_trainer/step/avg_kl_divergence", "objective/kl_avg",
        "objective/kl2_avg", "objective/kl1_avg", "ref_kl/mean", "logprobs_diff", "actor/reward_kl_penalty",
        "ppo_actor/kl_rewards/avg", "loss/kl_avg", "policy/sqrt_kl", "objective/kl",
    ),
    "kl/behaviour": (
        "kl/behaviour", "actor/ppo_kl", "ppo_kl", "ppo_actor/update/approx_kl/avg", "actor/approxkl@sum", "approx_kl",
        "actor/approxkl",
        "actor/approx_kl",
        "kl_pre_post_v1", "policy/approxkl_avg", "learner_stats/kl", "mean_kl_loss", "info/kl",
    ),
    "kl/rollout": (
        "kl/rollout", "rollout_corr/kl", "vllm_kl", "mismatch_kl/all/mean", "gen_kl_error",
        "generation_kl_error", "rollout_correction/kl",
        "optim/kl_sample_train_v1", "kl_sample_train_v1", "ppo_actor/update/behave_approx_kl/avg",
        "debug/vllm_local_reverse_kl",
        "rollout_corr/k3_kl",
    ),
    "mismatch/ratio_mean": (
        "mismatch/ratio_mean", "sampling/importance_sampling_ratio/mean", "rollout_corr/rollout_is_mean",
        "sampling_importance_ratio", "ppo_actor/update/behave_imp_weight/avg", "rollout_correction/is_weight_mean",
        "tis",
        "val/rho_weight",
    ),
    "mismatch/ess": ("mismatch/ess", "rollout_corr/rollout_is_eff_sample_size", "rollout_correction/ess"),
    "mismatch/log_prob": (
        "mismatch/log_prob", "sampling/sampling_logp_difference/mean", "policy/rollout_train_logprobs_abs_diff_mean",
        "train_rollout_logprob_abs_diff", "debug/vllm_vs_local_logprob_diff_mean",
    ),
    "entropy": (
        "entropy", "actor/entropy", "actor/entropy_loss", "entropy/mean", "entropy_mean", "policy/entropy",
        "entropy/all/mean",
        "approx_entropy", "optim/entropy", "policy/policy_entropy", "ppo_actor/update/entropy/avg", "entropy_loss",
        "rollout/entropy", "critic/entropy/mean", "rl_trainer/step/avg_policy_entropy", "policy/entropy_avg",
    ),
    "loss/total": (
        "loss/total", "actor/loss", "policy/final_loss", "actor/total_loss", "loss/total_avg", "loss", "total_loss",
        "loss/mean",
    ),
    "loss/policy": (
        "loss/policy", "actor/pg_loss", "policy_loss", "act_loss", "policy/policy_loss",
        "ppo_actor/update/actor_loss/avg",
        "pg_loss", "actor/pg_loss@sum", "loss/policy_avg", "loss_grpo", "actor_loss", "loss:sum", "losses/a_loss",
    ),
    "loss/kl": ("loss/kl", "loss_kl", "kl_term"),
    "loss/supervised": ("loss/supervised", "loss_sup", "sup_loss", "loss_sft", "sft_loss", "supervised_loss"),
    "loss/consistency": ("loss/consistency", "loss_cons", "cons_loss", "consistency_loss"),
    "grad_norm/total": (
        "grad_norm/total", "grad_norm", "actor/grad_norm", "actor_grad_norm", "optim/grad_norm", "policy/grad_norm",
        "policy/raw_grad_norm", "ppo_actor/update/grad_norm", "training/gradient_norm", "gradient_norm",
        "learner_stats/grad_gnorm",
        "gradients_default_optimizer_global_norm",
    ),
    "grad_norm/policy": ("grad_norm/policy", "grad_norm_policy", "policy_grad_norm"),
    "grad_norm/kl": ("grad_norm/kl", "grad_norm_kl", "kl_grad_norm"),
    "grad_norm/entropy": ("grad_norm/entropy", "grad_norm_entropy", "entropy_grad_norm"),
    "update/relative_norm": ("update/relative_norm", "relative_update_norm"),
    "lr": (
        "lr", "learning_rate", "actor/lr", "actor_lr", "optim/lr", "policy/policy_lr", "ppo_actor/update/lr", "lr_pg_0",
        "rl_trainer/learning_rate", "progress/lr", "info/last_lr", "learning_rate_group_0", "learner_stats/cur_lr",
        "default_optimizer_learning_rate", "training/learning_rate",
    ),
    "beta": (
        "beta", "actor/kl_coef", "kl_coef", "critic/kl_coef", "loss/kl_loss_coef", "actor/reward_kl_penalty_coeff",
        "kl_beta",
    ),
    "length/mean": (
        "length/mean", "completions/mean_length", "completion_length", "response_length/mean",
        "rollout/response_length_mean",
        "response_length", "mean_gen_tokens_per_sample", "env/all/ac_tokens_per_turn", "generate/avg_num_tokens",
        "ppo_actor/seq_len/avg", "rollout/response_len/mean", "token/response_length/mean",
        "tokens/response_length/mean",
        "generator/generate/avg_tokens_generated", "val/sequence_lengths", "seq_len/all/mean",
        "batch/step_response_length/mean", "agg/all/all/num_output_tokens/mean",
    ),
    "length/max": (
        "length/max", "len/max", "completions/max_length", "response_length/max", "max_gen_tokens_per_sample",
        "generate/max_num_tokens",
        "rollout/response_len/max", "response_len/max", "token/response_length/max", "val/sequence_lengths_max",
    ),
    "length/min": ("length/min", "completions/min_length", "response_length/min", "generate/min_num_tokens"),
    "length/terminated": ("completions/mean_terminated_length", "length/terminated"),
    "invalid/share": ("invalid/share",),
    "truncated/share": (
        "truncated/share", "completions/clipped_ratio", "response_length/clip_ratio", "rollout/truncated_rate",
        "response_clip_ratio", "agg/all/all/is_truncated/mean", "is_truncated/all/mean", "truncation_rate",
        "natural_termination_rate", "ppo_actor/no_eos_ratios/avg", "rollout/truncated_ratio",
        "token/total_response_length/clip", "val/stop_rate",
    ),
    "offline/coverage": ("offline/coverage",),
    "staleness": (
        "staleness", "training/off_policy/trajectory_staleness/mean", "off_policy/mean", "avg_trajectory_age",
        "async/staleness_mean", "sample/staleness_mean", "ppo_actor/update/version_stats/sample_staleness_theta_avg",
    ),
    "queue/dropped": ("queue/dropped",),
    "queue/finished": ("queue/finished",),
    "time/wait": ("time/wait", "perf/rollout_wait_s"),
    "z2": ("z2",),
    "answers/distinct": ("answers/distinct", "distinct_answers", "answer_distinct"),
    "texts/distinct": ("texts/distinct", "distinct_texts", "text_distinct", "distinct_2", "distinct"),
    "time/step": ("time/step", "step_time", "timing_s/step", "perf/time_per_step", "perf/step_s"),
    **MINOR,
}  # fmt: skip

SCALE: dict[str, str] = {
    "baseline_reward/pct_0": "percent",
    "baseline_reward/pct_1": "percent",
    "baseline_reward/pct_mixed": "complement of percent",
    "dynamic_filtering_pass_rate": "complement of percent",
    "groups/live": "complement",
    "env/all/by_group/frac_mixed": "complement",
    "unsolved_batch_size_ratio": "complement",
    "natural_termination_rate": "complement",
    "val/stop_rate": "complement",
    "policy/sqrt_kl": "square",
}

NOT_COMPARABLE: dict[str, str] = {
    "objective/kl": "TRL's PPO sums over the tokens of an answer",
    "ppo_actor/kl_rewards/avg": "AReaL logs minus beta x KL",
    "loss/kl_avg": "open-instruct logs beta x KL",
    "actor/reward_kl_penalty": "verl's in-reward penalty is averaged over masked tokens",
    "ppo_actor/seq_len/avg": "AReaL counts prompt and response",
    "actor/kl_loss@sum": "ROLL sums over micro-batches",
    "actor/approxkl@sum": "ROLL sums over micro-batches",
    "actor/clipfrac@sum": "ROLL sums over micro-batches",
    "actor/ratio_mean@sum": "ROLL sums over micro-batches",
}

CORES: dict[str, str] = {
    "reward": "reward/mean", "rewards": "reward/mean", "reward_overall": "reward/mean", "overall_reward": "reward/mean",
    "episode_reward": "reward/mean", "reward_total": "reward/mean", "returns": "reward/mean",
    "episode_return": "reward/mean", "episodic_return": "reward/mean", "episode_return_mean": "reward/mean",
    "ep_ret": "reward/mean", "ret": "reward/mean", "rew": "reward/mean", "episodic_reward": "reward/mean",
    "score": "reward/mean", "reward_score": "reward/mean", "batch_reward": "reward/mean", "raw_reward": "reward/mean",
    "accuracy_reward": "reward/mean", "rollout_reward": "reward/mean",
    "std_reward": "reward/std", "reward_sd": "reward/std_within",
    "reward_within_std": "reward/std_within",
    "reward_standard_deviation": "reward/std_within",
    "adv": "advantage/mean", "advantage": "advantage/mean", "advantages": "advantage/mean",
    "adv_std": "advantage/std", "std_adv": "advantage/std", "advantages_std": "advantage/std",
    "std_advantage": "advantage/std",
    "adv_max": "advantage/max", "max_adv": "advantage/max", "advantage_max": "advantage/max",
    "max_advantage": "advantage/max",
    "adv_min": "advantage/min", "min_adv": "advantage/min", "advantage_min": "advantage/min",
    "min_advantage": "advantage/min",
    "ratio": "ratio/mean", "importance_ratio": "ratio/mean", "policy_ratio": "ratio/mean",
    "prob_ratio": "ratio/mean", "log_ratio": "log_ratio/mean",
    "d_kl": "kl/reference", "dkl": "kl/reference", "length/truncated": "truncated/share",
    "kl_ref": "kl/reference", "ref_kl": "kl/reference", "kl_div": "kl/reference", "kl_divergence": "kl/reference",
    "kl_to_ref": "kl/reference", "kl_reference": "kl/reference", "kl_to_reference": "kl/reference",
    "policy_kl": "kl/reference",
    "policy_entropy": "entropy", "token_entropy": "entropy", "ent": "entropy",
    "grad": "grad_norm/total", "gnorm": "grad_norm/total", "gradnorm": "grad_norm/total", "gradient": "grad_norm/total",
    "response_len": "length/mean", "completion_len": "length/mean", "response_tokens": "length/mean",
    "gen_len": "length/mean",
    "completion_tokens": "length/mean", "generation_length": "length/mean", "len": "length/mean",
    "length": "length/mean",
    "truncated": "truncated/share", "truncation": "truncated/share", "truncated_ratio": "truncated/share",
    "trunc": "truncated/share", "truncated_frac": "truncated/share", "truncated_fraction": "truncated/share",
    "trunc_frac": "truncated/share", "truncated_share": "truncated/share", "cap_hit_rate": "truncated/share",
    "length/cap_hit_rate": "truncated/share", "overlong_rate": "truncated/share",
    "overlong_ratio": "truncated/share", "clipped_ratio": "truncated/share",
    "training_loss": "loss/total", "train_loss": "loss/total", "pg": "loss/policy", "gn": "grad_norm/total",
    "policy_gradient_loss": "loss/policy",
    "grouped_rewards_std": "reward/std_within", "total_rewards_std": "reward/std", "mean_score": "reward/mean",
    "avgr": "reward/mean", "verifiable_reward": "reward/mean", "total_rewards_mean": "reward/mean",
    "zero_std_groups": "groups/dead", "zero_variance_groups": "groups/dead", "mismatch_kl": "kl/rollout",
    "kl_mismatch": "kl/rollout", "response_lengths": "length/mean",
    "frac_zero_std_groups": "groups/dead", "zero_std_frac": "groups/dead", "dead_groups": "groups/dead",
    "live_groups": "groups/live", "frac_no_signal": "groups/dead", "zero_adv_frac": "groups/dead",
}  # fmt: skip
"""For logs of no known framework: the name without "mean", "avg" and "train"."""

MARKS: dict[str, tuple[str, ...]] = {
    "sb3": ("rollout/ep_rew_mean", "time/total_timesteps", "train/explained_variance"),
    "anygrpo": ("groups/live", "reward/std_within", "update/relative_norm"),
    "verl": ("actor/pg_loss", "critic/score/mean", "actor/ppo_kl"),
    "openrlhf": ("train/actor_lr", "actor_lr", "train/vllm_kl", "train/actor_grad_norm"),
    "nemo-rl": (
        "train/probs_ratio", "train/token_mult_prob_error", "train/gen_kl_error", "train/baseline_reward/pct_0",
    ),
    "prime-rl": ("mismatch_kl/all/mean", "reward/all/mean", "optim/grad_norm", "entropy/all/mean"),
    "ms-swift": ("global_step/max_steps", "train_speed(iter/s)", "train_speed(s/it)", "memory(GiB)"),
    "tinker": ("env/all/reward/total", "optim/kl_sample_train_v1", "progress/done_frac"),
    "skyrl": ("policy/final_loss", "reward/avg_raw_reward"),
    "areal": ("ppo_actor/task_reward/avg", "ppo_actor/update/actor_loss/avg"),
    "slime": ("rollout/raw_reward", "train/pg_clipfrac"),
    "roll": ("actor/pg_loss@sum", "actor/approxkl@sum"),
    "open-instruct": ("objective/kl_avg", "val/sequence_lengths"),
    "trl": (
        "reward_std", "train/reward_std", "completions/mean_length", "train/completions/mean_length",
        "completion_length", "learning_rate", "train/learning_rate",
    ),
}  # fmt: skip
"""Raw names that give a framework away; looked up in this order."""

CONCEPTS: dict[str, str] = {
    "reward/mean": "reward_mean", "reward/std_within": "reward_std", "groups/dead": "zero_variance_groups",
    "advantage/std": "advantage", "ratio/mean": "ratio_mean", "log_ratio/abs_max": "log_ratio_max",
    "clip/fraction": "clip_fraction", "kl/reference": "kl_to_reference", "kl/behaviour": "policy_kl_new_old",
    "kl/rollout": "train_infer_mismatch", "entropy": "entropy", "loss/policy": "policy_loss",
    "grad_norm/total": "grad_norm", "lr": "lr", "length/mean": "response_length",
    "truncated/share": "truncation_fraction",
    "staleness": "staleness", "eval": "held_out_evaluation",
}  # fmt: skip
"""What "not observable" is said of, under the names of the metric map."""
