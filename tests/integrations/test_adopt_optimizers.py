"""Moving in: what an optimizer, a router and an answer's length are by another trainer's versions and nested tables."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from anygrpo.cli.main import main
from anygrpo.integrations.adopt import words

OVERRIDE = "actor_rollout_ref.actor.optim.override_optimizer_config"
OPENRLHF = ["python", "-m", "openrlhf.cli.train_ppo_ray", "--pretrain", "m/m", "--n_samples_per_prompt", "4"]


@pytest.fixture
def adopted(tmp_path, monkeypatch, capsys):
    """(recipe, account) of the words of a command."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[dict, dict]:
        assert main(["adopt", *arguments, "--out", "out.toml", "--force", "--json"]) == 0
        return tomllib.loads(Path("out.toml").read_text()), json.loads(capsys.readouterr().out)

    return run


def lost(account: dict) -> dict[str, str]:
    return {entry["theirs"]: entry["value"] for entry in account["no_counterpart"]}


@pytest.mark.parametrize(
    "given",
    [
        [f"+{OVERRIDE}.betas=[0.9,0.95]", f"+{OVERRIDE}.eps=1e-6", f"+{OVERRIDE}.weight_decay=0.3"],
        [f"+{OVERRIDE}.adam_beta2=0.95", f"+{OVERRIDE}.adam_eps=1e-6", f"+{OVERRIDE}.weight_decay=0.3"],
        [f"{OVERRIDE}={{betas:[0.9,0.95],eps:0.000001, weight_decay: 0.3}}"],
        ["own.yaml"],
    ],
    ids=["pytorch", "megatron", "whole", "yaml"],
)
def test_what_overrides_verls_optimizer_moves_and_the_rest_is_told(adopted, given):
    others = [f"+{OVERRIDE}.optimizer_cpu_offload=True", f"+{OVERRIDE}.decoupled_wd=False"]
    if given == ["own.yaml"]:
        Path("own.yaml").write_text(
            "algorithm: {adv_estimator: grpo}\nactor_rollout_ref: {actor: {optim: {override_optimizer_config: "
            "{betas: [0.9, 0.95], eps: 1.0e-6, weight_decay: 0.3}}}}\n"
        )
        recipe, account = adopted(*given, *others)
    else:
        recipe, account = adopted("algorithm.adv_estimator=grpo", *given, *others)
    moved = recipe["optimizer"]
    assert (moved["betas"], moved["eps"], moved["weight_decay"]) == ([0.9, 0.95], 1e-6, 0.3)
    assert lost(account) == {f"{OVERRIDE}.decoupled_wd": "False"}
    assert f"{OVERRIDE}.optimizer_cpu_offload" in {entry["theirs"] for entry in account["needless"]}


def test_tables_as_hydra_writes_them():
    assert words.plain("{eps:1e-8,betas:[0.9,0.95],on: false}") == {"eps": 1e-8, "betas": [0.9, 0.95], "on": False}
    assert words.plain('{"a": {"b": 1}}') == {"a": {"b": 1}}
    assert words.plain("{token}") == "{token}"


def test_the_balance_of_experts_is_told_where_trl_would_take_the_models_own(adopted):
    told = lambda account: [note for note in account["notes"] if "router_aux_loss_coef" in note]  # noqa: E731
    trl = ["trl", "grpo", "--model_name_or_path", "m/m", "--num_generations", "8"]
    recipe, account = adopted(*trl)
    assert "router_loss" not in recipe["policy"]
    assert "set policy.router_loss" in told(account)[0]
    recipe, account = adopted(*trl, "--router_aux_loss_coef", "0.001")
    assert recipe["policy"]["router_loss"] == 0.001
    assert "not given" not in told(account)[0]
    assert told(adopted(*trl, "--router_aux_loss_coef", "0.0")[1]) == []
    swift = ["swift", "rlhf", "--rlhf_type", "grpo", "--model", "m/m", "--per_device_train_batch_size", "8"]
    assert told(adopted(*swift)[1]) == []  # its default is 0


def test_openrlhf_099_and_its_lengths(adopted):
    recipe, account = adopted(*OPENRLHF, "--max_new_tokens", "700", "--ema_beta", "0.9", "--ptx_coef", "0.05")
    assert recipe["policy"]["max_new_tokens"] == 700
    assert {"train.ema_beta", "ptx_coef"} <= lost(account).keys()
    assert {e["theirs"]: e["why"] for e in account["no_counterpart"]}["ptx_coef"].startswith("there is no pretraining")
    said = "answer at 1024 tokens"
    assert said not in json.dumps(account)
    for extra, is_told in (([], True), (["--max_len", "2048"], False), (["--generate_max_len", "9"], False)):
        assert (said in json.dumps(adopted(*OPENRLHF, *extra)[1])) is is_told
    dotted = ["python", "-m", "openrlhf.cli.train_ppo_ray", "--rollout.n_samples_per_prompt", "4"]
    assert said not in json.dumps(adopted(*dotted)[1])
