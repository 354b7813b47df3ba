"""Names of things that no rule decides by, but that are known: they obey laws, and are not listed as unknown.

TRL's are those that its GRPO, RLOO and asynchronous trainers log in any version from 0.14 to 1.16, read in its sources.
"""

from __future__ import annotations

MINOR: dict[str, tuple[str, ...]] = {
    "clip/low_min": ("clip_ratio/low_min",),
    "clip/high_max": ("clip_ratio/high_max",),
    "length/terminated_max": ("completions/max_terminated_length",),
    "length/terminated_min": ("completions/min_terminated_length",),
    "length/packed": ("train_seq_len",),
    "mismatch/ratio_max": ("sampling/importance_sampling_ratio/max",),
    "mismatch/ratio_min": ("sampling/importance_sampling_ratio/min",),
    "mismatch/log_prob_max": ("sampling/sampling_logp_difference/max",),
    "entropy/coef": ("entropy_coef",),
    "loss/auxiliary": ("aux_loss",),
    "loss/value": ("loss/value_avg",),
    "tools/calls": ("tools/call_frequency",),
    "tools/failures": ("tools/failure_frequency",),
    "weight/sequence": ("vespo/phi_seq_mean",),
    "value/clip_fraction": ("val/clipfrac_avg",),
    "answers/ended": ("val/num_eos_tokens",),
    "ratio/var": ("val/ratio_var",),
    "reward/less_kl": ("objective/rlhf_reward",),
    "reward/kl_part": ("objective/non_score_reward",),
}
MACHINE = ("perf/", "batch/", "sample/")
"""Headings of what the machine and the packing of rows do."""
COUNTERS = ("eps", "num_tokens", "training_tok/s", "grad_step", "gradient_step", "grad_steps", "gradient_steps")
"""Speeds and counters whose names do not say so: `eps` are episodes a second."""
