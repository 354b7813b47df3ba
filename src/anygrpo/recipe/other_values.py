"""Words of other libraries for our choices (objective, advantage, KL, reduction). Torch-free."""

from __future__ import annotations

from anygrpo.choices.catalogue import names
from anygrpo.choices.presets import PRESETS

VALUES: dict[str, dict[str, str]] = {
    "objective": {
        **{name: f'algorithm.preset = "{name}"' for name in PRESETS if name not in names("objective")},
        **dict.fromkeys(("dpo", "ipo", "kto"), "nothing: they learn from pairs; demonstrations are a supervised stage"),
        **dict.fromkeys(("vanilla", "clip", "ppo_clip", "bnpo"), '"ppo"'),
        **dict.fromkeys(("gspo_token", "gspo-token"), '"gspo"'),
        **dict.fromkeys(("reinforce++", "pg", "policy_gradient"), '"reinforce"'),
    },
    "advantage": {
        **dict.fromkeys(("group", "grpo", "z", "std"), '"zscore"'),
        **dict.fromkeys(("none", "mean", "dr_grpo", "center", "centered", "mean_only"), '"centred"'),
        **dict.fromkeys(("rloo", "loo"), '"leave_one_out"'),
        **dict.fromkeys(("reinforce_plus_plus",), '"batch"'),
        **dict.fromkeys(("gae",), 'nothing: there is no critic; "zscore" compares within the group'),
    },
    "kl": {
        **dict.fromkeys(("low_var_kl", "schulman", "unbiased"), '"k3"'),
        **dict.fromkeys(("kl", "kl1", "naive"), '"k1"'),
        **dict.fromkeys(("kl3", "low_var"), '"k3"'),
        **dict.fromkeys(("mse", "squared"), '"k2"'),
        **dict.fromkeys(("full", "analytic"), '"exact"'),
    },
    "reduction": {
        **dict.fromkeys(("token-mean", "dapo"), '"token_mean"'),
        **dict.fromkeys(("seq-mean-token-mean", "grpo"), '"sequence_mean"'),
        **dict.fromkeys(("seq-mean-token-sum-norm", "dr_grpo"), '"constant"'),
    },
}
"""Key -> another library's word for a choice -> ours."""
