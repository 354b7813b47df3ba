"""The card of `anygrpo train --dry-run`: what an update is, and what other libraries call it."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import table

from anygrpo.cli.main import main
from anygrpo.recipe.load import apply_flags, load_recipe, parse_recipe
from anygrpo.recipe.peers import trl, verl
from anygrpo.recipe.semantics import semantics

ROOT = Path(__file__).parents[2]
LANGUAGE = {"kind": "causal_lm", "model": "x", "max_new_tokens": 50}


def card(*flags, policy=None, **extra):
    given = table(**({"policy": policy} if policy else {}), **extra)
    if policy:
        given["task"] = {"kind": "arithmetic"}
    apply_flags(given, flags)
    recipe = parse_recipe(given)
    lines: dict[str, str] = {}
    for label, text in semantics(recipe.resolved_stages()[0], recipe.policy):
        lines[label] = f"{lines[label]}; {text}" if label in lines else text
    return lines


def test_the_default_recipe():
    lines = card()
    assert lines["denominator"].startswith("token_mean: 1 / decisions of the step; groups without spread count")
    assert lines["KL"] == "none: beta is 0"
    assert lines["entropy"] == "none: entropy_coef is 0"
    assert "it acts where the sampler is another policy, or never" in lines["clip"]
    assert "read by nothing" not in lines
    assert 'scale_rewards = "group", importance_sampling_level = "token", loss_type = "dapo"' in lines["TRL 1.16.0"]
    assert "epsilon = 1e-4 here" in lines["TRL differs"]


def test_the_constant_is_the_limit_or_the_number_given():
    constant = ["--algorithm.reduction", "constant"]
    assert "horizon 50 (max_new_tokens)" in card(*constant, policy=LANGUAGE)["denominator"]
    assert "horizon 7;" in card(*constant, "--algorithm.horizon", "7", policy=LANGUAGE)["denominator"]
    assert "horizon the policy's limit" in card(*constant)["denominator"]


def test_terms_and_the_clip_in_force():
    flags = [
        "--algorithm.beta",
        "0.1",
        "--algorithm.kl-controller",
        "band",
        "--algorithm.entropy-coef",
        "{start = 0.1}",
    ]
    lines = card(*flags, "--algorithm.epochs", "2", "--algorithm.clip-high", "0.28", "--algorithm.clip-low", "0.2")
    assert "weight 0.1, moved by band within [1e-06, 10]; value k3" in lines["KL"]
    assert lines["entropy"].endswith("weight 0.1 to 0 (linear)")
    assert lines["clip"] == "ratios from 1 - 0.2 to 1 + 0.28"
    assert card("--algorithm.objective", "reinforce")["clip"] == "none: reinforce has no clip"
    assert "the last 20 of 50 decisions" in card("--algorithm.overlong-buffer", "20", policy=LANGUAGE)["overlong"]


def test_what_a_refill_replaces():
    assert "refill" not in card()
    gone = "groups without spread leave, and their KL and entropy with them"
    assert (
        card("--algorithm.refill", "3")["refill"] == f"up to 3 further draws for groups that drop_constant name; {gone}"
    )
    overall = card("--algorithm.refill", "3", "--algorithm.advantage", "overall")["refill"]
    assert overall.startswith(
        'nothing to replace: no filter takes groups out; with advantage = "overall" groups without'
    )
    assert card("--algorithm.refill", "3", "--algorithm.filters", "[]")["refill"].endswith("no filter takes groups out")
    spread = {"filters": [{"kind": "drop_constant"}, {"kind": "minimum_spread", "spread": 0.5}], "refill": 1}
    only = card(algorithm=spread | {"advantage": "running", "prompts_per_step": 4, "group_size": 4})["refill"]
    assert only == "up to 1 further draws for groups that minimum_spread name"
    turns = card("--algorithm.refill", "3", "--algorithm.credit", "turns")["refill"]
    assert turns.endswith('with credit = "turns" groups without spread learn too')


def test_what_is_written_and_read_by_nothing():
    lines = card("--algorithm.pass-k", "3", "--algorithm.kl-target", "0.3", "--algorithm.horizon", "9")
    assert lines["read by nothing"] == (
        'horizon (not by reduction = "token_mean"), kl_target (not by kl_controller = "fixed"), '
        'pass_k (not by advantage = "zscore")'
    )
    rce = {"stages": [{"name": "a", "method": "rce", "steps": 1, "algorithm": {"rce_temperature": 0.5}}]}
    assert "read by nothing" not in card(**rce)
    assert "read by nothing" not in card("--algorithm.pass-k", "3", "--algorithm.advantage", "pass_at_k")


@pytest.mark.parametrize(
    ("flags", "ours", "theirs"),
    [
        (["--algorithm.objective", "cispo"], {"loss_type": "cispo", "epsilon_high": 5.0}, {"loss_mode": "cispo"}),
        (["--algorithm.objective", "gspo"], {"importance_sampling_level": "sequence", "loss_type": "grpo"},
         {"loss_agg_mode": "seq-mean-token-mean"}),
        (["--algorithm.preset", "dr_grpo"], {"scale_rewards": "none", "loss_type": "dr_grpo"},
         {"norm_adv_by_std_in_grpo": False, "loss_agg_mode": "seq-mean-token-sum-norm"}),
        (["--algorithm.dual-clip", "3.0"], {"delta": 3.0}, {"clip_ratio_c": 3.0}),
        (["--optimizer.grad-clip", "none", "--optimizer.betas", "[0.8, 0.9]"],
         {"max_grad_norm": 0.0, "adam_beta1": 0.8, "adam_beta2": 0.9}, {}),
        (["--algorithm.beta", "0.1", "--algorithm.kl", "k1"], {"beta": 0.1}, {"kl_loss_type": "k1+"}),
    ],
    ids=lambda x: x[-1] if isinstance(x, list) else "",
)  # fmt: skip
def test_the_nearest_settings_elsewhere(flags, ours, theirs):
    given = table()
    apply_flags(given, flags)
    recipe = parse_recipe(given)
    a, o = recipe.algorithm, recipe.optimizer
    assert ours.items() <= trl(a, o).settings.items()
    assert theirs.items() <= verl(a).settings.items()


def test_what_has_no_counterpart_is_said():
    flags = ["--algorithm.advantage", "rank", "--algorithm.reduction", "prompt_mean", "--algorithm.refill", "2"]
    expected = "no advantage rank there; no reduction prompt_mean there; no refill there"
    assert card(*flags)["TRL differs"] == expected


def test_every_recipe_has_a_card():
    whole = [file for file in sorted((ROOT / "recipes").rglob("*.toml")) if "[policy]" in file.read_text()]
    assert len(whole) > 20
    for file in whole:
        recipe = load_recipe(file, [])
        for stage in recipe.resolved_stages():
            assert dict(semantics(stage, recipe.policy))["denominator"]


def test_the_dry_run_prints_it(capsys):
    assert main(["train", str(ROOT / "recipes/llm/demo.toml"), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "#   denominator:" in out
    assert "#   TRL 1.16.0:" in out
