"""One table of words: what documents, frameworks and Chinese notes call each metric and each setting.

Columns of logs, `--map`, `--config`, notes for the autopsy and hints all read it. Names are as `canonical.plain_name`
leaves them: lower case, blanks and dashes as "_". Names of the frameworks' own logs are in `names.py`, names of their
settings in `settings.py`.
"""

from __future__ import annotations

METRICS: dict[str, tuple[str, ...]] = {
    "reward/mean": (
        "奖励", "平均奖励", "奖励均值", "奖励平均", "总奖励", "得分", "平均得分", "平均分", "分数", "回报", "平均回报",
        "reward_mean", "mean_reward", "avg_reward", "avg_score", "ep_rew_mean", "rollout/ep_rew_mean", "r_total",
        "prompt_avg_reward", "rewards_mean",
        "belohnung", "mittlere_belohnung", "récompense", "récompense_moyenne", "recompensa", "recompensa_media",
        "recompensa_média", "ricompensa", "награда", "средняя_награда", "報酬", "平均報酬", "보상", "평균_보상",
    ),
    "reward/std_within": (
        "组内标准差", "组内奖励标准差", "奖励组内标准差", "奖励标准差", "std_reward", "reward_std",
    ),
    "reward/std": ("rewards_std", "批内奖励标准差"),
    "reward/max": ("最大奖励", "奖励最大值"),
    "reward/min": ("最小奖励", "奖励最小值"),
    "groups/dead": ("零方差组比例", "无效组比例", "零方差比例"),
    "groups/live": ("有效组比例", "有信号的组"),
    "advantage/mean": ("优势", "平均优势", "优势均值", "mean_advantage", "advantages_mean"),
    "advantage/std": ("优势标准差", "std_advantage", "advantages_std"),
    "advantage/max": ("最大优势", "优势最大值"),
    "advantage/min": ("最小优势", "优势最小值"),
    "ratio/mean": ("比率", "平均比率", "比率均值", "概率比", "平均概率比", "重要性比率", "mean_ratio", "ratio_mean",
                   "actor/ratio_mean"),
    "ratio/max": ("最大比率", "比率最大值", "actor/ratio_max"),
    "log_ratio/mean": ("对数比", "对数概率比", "平均对数比"),
    "log_ratio/abs_max": ("最大对数比", "最大对数概率比", "最大对数比率", "最大log比率", "max_abs_logratio"),
    "log_prob/current": ("mean_log_prob_current", "log_prob_current", "logp_current", "current_log_prob",
                         "log_prob/new",
                         "当前策略对数概率", "当前对数概率"),
    "log_prob/reference": ("mean_log_prob_ref", "log_prob_ref", "logp_ref", "ref_log_prob",
                           "mean_log_prob_reference",
                           "参考策略对数概率", "参考对数概率"),
    "kl/reference": ("策略kl", "kl散度", "kl_散度", "kl惩罚", "kl_惩罚", "kl距离", "与参考策略的kl", "kl_penalty",
                     "kl值",
                     "divergence_kl", "divergencia_kl", "kl_divergenz", "klダイバージェンス"),
    "entropy": ("熵", "策略熵", "平均熵", "entropie", "entropía", "entropia", "энтропия", "エントロピー", "엔트로피"),
    "loss/total": ("损失", "总损失", "训练损失", "loss值"),
    "loss/policy": ("策略损失", "策略梯度损失", "loss_pg", "policy_gradient_loss"),
    "loss/kl": ("kl损失", "kl_损失", "loss_kl"),
    "loss/supervised": ("监督损失", "loss_sup"),
    "loss/consistency": ("一致性损失", "loss_cons"),
    "grad_norm/total": ("梯度范数", "梯度模", "梯度"),
    "lr": ("学习率", "当前学习率"),
    "length/mean": ("长度", "平均长度", "回答长度", "生成长度", "平均回答长度", "响应长度"),
    "length/max": ("最大长度",),
    "truncated/share": ("截断率", "截断比例", "被截断比例"),
    "clip/fraction": ("裁剪", "裁剪比例", "裁剪率", "clip_frac", "clip比例", "clip率"),
    "kl/behaviour": ("新旧策略kl", "近似kl"),
}  # fmt: skip
"""Canonical metric -> words."""

SETTINGS: dict[str, tuple[str, ...]] = {
    "beta": ("kl_beta", "beta_kl", "kl_penalty_coefficient", "kl系数", "kl权重", "kl_系数", "kl惩罚系数"),
    "learning_rate": ("rl_lr", "grpo_lr", "learning_rate", "学习率"),
    "group_size": ("group_size", "组大小", "grpo_group_size", "每组样本数", "组内样本数"),
    "temperature": ("temperature", "温度", "采样温度"),
    "entropy_coef": ("entropy_coef", "熵系数", "熵奖励系数"),
    "grad_clip": ("max_grad_norm", "梯度裁剪", "grad_clip_norm", "max_norm"),
    "clip": ("clip_epsilon", "clip_ratio", "裁剪范围", "裁剪系数", "clip_eps", "grpo_clip"),
    "lambda_supervised": ("lambda_sup", "监督权重"),
    "lambda_policy": ("lambda_pg", "策略权重"),
    "lambda_consistency": ("lambda_cons", "lambda_consistency", "一致性权重"),
    "advantage_clip": ("advantage_clip", "优势裁剪"),
    "max_length": ("max_completion_length", "最大生成长度", "最大长度上限"),
    "top_p": ("top_p",),
    "std_floor": ("std_floor", "标准差下限"),
    "queries": ("queries", "查询数", "问题数", "组数", "提示数"),
    "clamp": ("log_ratio_clamp", "对数比上限", "对数概率比上限", "clamp"),
    "normaliser": ("normaliser", "归一化方式", "优势归一化", "use_rank_advantage"),
}
"""Setting -> words."""

WORDS_METRIC = {word: name for name, words in METRICS.items() for word in words}
WORDS_SETTING = {word: name for name, words in SETTINGS.items() for word in words}
