"""The faults and the healthy controls: small real runs, each one change away from a recipe that learns.

`accepted` names the findings (rule ids of the doctor) of which the first one of weight must be one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
Table = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A run: what is changed against the healthy recipe of its policy, and what a right first finding would be.

    Attributes:
        accepted: empty for a healthy control: nothing of weight may be said.
        probes: probes of the pre-flight check that name this fault by a warning; a serious outcome always does.
    """

    name: str
    what: str
    accepted: tuple[str, ...] = ()
    policy: Table = field(default_factory=dict)
    task: Table = field(default_factory=dict)
    algorithm: Table = field(default_factory=dict)
    optimizer: Table = field(default_factory=dict)
    training: Table = field(default_factory=dict)
    seed: int = 0
    kind: str = "letters"
    probes: tuple[str, ...] = ()

    def table(self) -> Table:
        """The whole recipe."""
        return _letters(self) if self.kind == "letters" else _selector(self)


def _letters(case: Case) -> Table:
    return {
        "seed": case.seed,
        "policy": {"kind": "python", "function": f"{HERE}/letters.py:build", "arguments": case.policy},
        "task": {"kind": "python", "function": f"{HERE}/letters.py:Letters", "arguments": case.task},
        "algorithm": {"prompts_per_step": 16, "group_size": 8, "beta": 0.01, "entropy_coef": 1e-3} | case.algorithm,
        "optimizer": {"learning_rate": 5e-3} | case.optimizer,
        "training": {"steps": 60, "threads": 1, "checkpoint_every": 1000} | case.training,
        "evaluation": {"every": 5},
        "doctor": {"mode": "off"},
    }


def _selector(case: Case) -> Table:
    policy = {"kind": "selector", "features": 448, "width": 64, "shots": 2, "logit_temperature": 0.2} | case.policy
    task = {"kind": "digits_vqa", "pool": 16, "shots": 2, "embedding": "ngrams", "held_out": 100} | case.task
    return {
        "seed": case.seed,
        "policy": policy,
        "task": task,
        "algorithm": {"prompts_per_step": 32, "group_size": 8, "beta": 0.001, "entropy_coef": 1e-4} | case.algorithm,
        "optimizer": {"learning_rate": 2e-3} | case.optimizer,
        "training": {"steps": 40, "threads": 1, "checkpoint_every": 1000, "rows_per_block": 256} | case.training,
        "evaluation": {"every": 10, "metric": "eval/accuracy"},
        "doctor": {"mode": "off"},
    }


_RUNAWAY = ("kl_blowup", "lr_too_large", "late_collapse", "log_ratio_explosion", "entropy_collapse", "sampler_mismatch")
_STUCK = ("lr_too_small", "no_learning", "zero_gradient")
_MISMATCH = ("sampler_mismatch", "markov_bound", "wrong_reference")

FAULTS = (
    Case("lr_x100", "learning rate x 100", _RUNAWAY, optimizer={"learning_rate": 0.5}),
    Case("lr_x100_epochs", "learning rate x 20, four passes over each rollout", _RUNAWAY, algorithm={"epochs": 4},
         optimizer={"learning_rate": 0.1}),
    Case("lr_ramp", "a learning rate that grows x 200 during the run", _RUNAWAY, training={"steps": 80},
         optimizer={"learning_rate": {"kind": "linear", "start": 5e-3, "end": 1.0}}),
    Case("lr_over_1000", "learning rate / 1000", _STUCK, optimizer={"learning_rate": 5e-6}, training={"steps": 120}),
    Case("lr_exhausted", "the rate reaches 0 while the reward still rises", ("lr_exhausted",), training={"steps": 60},
         optimizer={"learning_rate": {"kind": "cosine", "start": 5e-3, "end": 0.0}}),
    Case("kl_weight_10", "KL weight 10", ("kl_dominates",), algorithm={"beta": 10.0}, training={"steps": 100}),
    Case("frozen", "no gradient reaches the weights", ("zero_gradient",), {"frozen": True}),
    Case("wrong_reference", "the reference is another policy", ("wrong_reference", "kl_dominates"),
         {"wrong_reference": 0.5}, algorithm={"beta": 0.1}),
    Case("dropout_in_scoring", "dropout on while scoring, off while sampling", _MISMATCH, {"dropout": 0.5}),
    Case("temperature_one_side", "sampled at temperature 1, scored at 0.2", _MISMATCH, {"scoring_temperature": 0.2}),
    Case("constant_reward", "a reward that is always 0.5", ("constant_reward", "mastered_groups", "starved_groups"),
         task={"reward": "constant"}),
    Case("one_seed", "every sample of a group is the same", ("constant_reward",), {"one_seed": True}),
    Case("no_end", "the end is never sampled", ("truncation",), {"no_end": True}),
    Case("limit_too_short", "answers are cut off after one letter", ("truncation",), {"length": 1}),
    Case("impossible_reward", "a reward that cannot be earned", ("starved_groups", "constant_reward"),
         task={"reward": "impossible"}),
    Case("dead_component", "a format component that is never earned", ("dead_term",), task={"reward": "format"},
         probes=("components",)),
    Case("mastered", "a task that was solved before the run", ("mastered_groups", "constant_reward"),
         task={"reward": "easy"}),
    Case("noise_reward", "the reward is a coin", ("no_learning",), task={"reward": "noise"}, training={"steps": 120}),
    Case("floor_eats_spread", "rewards of 1e-4 under a std floor of .1", ("advantage_compressed",),
         task={"reward": "tiny"}, algorithm={"std_floor": 0.1}),
    Case("top_k_2", "only the two best samples of each group are kept", ("starved_groups", "zero_gradient"),
         algorithm={"filters": [{"kind": "top_k_by_reward", "k": 2}]}),
    Case("running_norm", "normalised by running statistics, prompts of very different difficulty",
         ("difficulty_dominates",), kind="selector", algorithm={"advantage": "running"},
         probes=("no_effect",)),
    Case("sign_flipped", "the policy loss has the wrong sign", ("sign_inverted",), algorithm={"lambda_pg": -1.0},
         optimizer={"learning_rate": 2e-3}),
    Case("sign_flipped_selector", "the policy loss has the wrong sign", ("sign_inverted",), kind="selector",
         algorithm={"lambda_pg": -1.0}),
    Case("hack", "the reward counts one letter, the truth does not rise", ("reward_hacking", "length_explosion"),
         task={"reward": "hack"}),
    Case("length_hack", "the reward pays for length", ("length_explosion", "reward_hacking"), task={"reward": "long"},
         policy={"length": 16}),
    Case("stale", "sampling weights refreshed every 40 rollouts", ("stale_rollouts", *_MISMATCH, "log_ratio_explosion",
         "clip_saturated"), {"stale": 40}),
    Case("rounding", "weights rounded to 8 bits of mantissa after each update, as in bfloat16", _STUCK,
         {"round_to": 8}, optimizer={"learning_rate": 2e-5}, training={"steps": 120}),
    Case("duplicated_prompts", "one training prompt", ("overfitting", "reward_hacking"), task={"letters": 1}),
    Case("entropy_bonus", "an entropy bonus of 3", ("entropy_explosion", "no_learning"),
         algorithm={"entropy_coef": 3.0}),
    Case("entropy_penalty", "entropy is punished", ("entropy_collapse",), algorithm={"entropy_coef": -1.0}),
    Case("cold_start", "sampling at temperature 0.01", ("low_entropy_start", "constant_reward", "starved_groups"),
         {"temperature": 0.01}),
    Case("nan", "log-probs are NaN from step 20 on", ("nonfinite",), {"nan_after": 20}, training={"steps": 35}),
    Case("clip_tiny", "a clip range of 1e-6 with four passes", ("clip_saturated",),
         algorithm={"clip_low": 1e-6, "clip_high": 1e-6, "epochs": 4}),
    Case("too_short", "five steps", ("too_short",), training={"steps": 5}),
)  # fmt: skip

CONTROLS = (
    *(Case(f"letters_seed_{s}", "healthy", seed=s) for s in range(1, 5)),
    Case("letters_wide", "healthy, width 64", policy={"width": 64}, optimizer={"learning_rate": 3e-3}),
    Case("letters_groups_16", "healthy, groups of 16", algorithm={"group_size": 16, "prompts_per_step": 8}),
    Case("letters_rloo", "healthy, leave-one-out", algorithm={"advantage": "leave_one_out"}),
    Case("letters_two_passes", "healthy, two passes", algorithm={"epochs": 2}, optimizer={"learning_rate": 3e-3}),
    Case("letters_no_kl", "healthy, no KL term", algorithm={"beta": 0.0}),
    *(Case(f"selector_seed_{s}", "healthy", seed=s, kind="selector") for s in range(3)),
    Case("selector_wide", "healthy, width 128", kind="selector", policy={"width": 128}),
)

SMOKE = ("frozen", "constant_reward", "no_end", "letters_seed_1", "letters_rloo")
"""What the default tests run."""
