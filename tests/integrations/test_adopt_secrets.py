"""Moving in: a key, a token or a password of the user's stands in nothing that is written or printed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from anygrpo.cli.main import main
from anygrpo.integrations.adopt import secrets

VALUE = "0123456789abcdef0123456789"
OPENRLHF = ["python", "-m", "openrlhf.cli.train_ppo_ray", "--pretrain", "m/m", "--n_samples_per_prompt", "4"]
VERL = ["python", "-m", "verl.trainer.main_ppo", "algorithm.adv_estimator=grpo"]
SWIFT = ["swift", "rlhf", "--rlhf_type", "grpo", "--model", "m/m", "--per_device_train_batch_size", "8"]
TRL = ["trl", "grpo", "--model_name_or_path", "m/m", "--num_generations", "8"]


@pytest.mark.parametrize(
    "words",
    [
        [*OPENRLHF, "--use_wandb", VALUE],
        [*OPENRLHF, f"--use_wandb={VALUE}"],
        [*OPENRLHF, "--logger.wandb.key", VALUE],
        [*OPENRLHF, "--critic.api_key", VALUE],
        [*VERL, f"+ray_kwargs.ray_init.runtime_env.env_vars.WANDB_API_KEY={VALUE}"],
        [*VERL, f"+data.hf_token={VALUE}"],
        [*VERL, f'+trainer.env={{"WANDB_API_KEY": "{VALUE}", "on": true}}'],
        [*VERL, f"+trainer.env=['HF_TOKEN={VALUE}']"],
        [*SWIFT, "--swanlab_token", VALUE, "--hub_token", VALUE],
        [*TRL, "--hub_token", VALUE, "--report_to", "wandb"],
        [*TRL, "--mail_password", "12345678", "--client_secret", VALUE],
        ["script.py"],
        ["script.py", f"--hub_token={VALUE}"],
    ],
    ids=lambda words: " ".join(words[-2:])[:40],
)
def test_a_secret_value_is_written_nowhere(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    script = (
        f"import os\nAPI_KEY = '{VALUE}'\nTHINK_TOKEN = '<think>'\n"
        "def ask(completions, **kwargs):\n    return [float(THINK_TOKEN in c and bool(API_KEY)) for c in completions]\n"
        f"GRPOTrainer('m/m', [ask, Remote(api_key='{VALUE}')], GRPOConfig(hub_token='{VALUE}', "
        f"learning_rate=rate(token='{VALUE}')), load_dataset('d/d', token='{VALUE}'))\n"
    )
    if words[0] == "script.py":
        (tmp_path / "script.py").write_text(script)
    for extra in ([], ["--json"], ["--lang", "zh"]):
        assert main(["adopt", *words, "--force", *extra]) == 0
        told = capsys.readouterr()
        told = told.out + told.err + Path("adopted.toml").read_text()
        if words[0] == "script.py":
            source = Path("adopted_rewards.py").read_text()
            assert "THINK_TOKEN = '<think>'" in source
            assert "os.environ" in told
            told += source
        assert "12345678" not in told
        assert VALUE not in told
        assert "(set)" in told or words[0] == "script.py"
    if "--use_wandb" in words:
        assert tomllib.loads(Path("adopted.toml").read_text())["training"]["sinks"] == ["wandb"]


def test_a_command_that_is_refused_is_told_without_its_keys(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["adopt", f"WANDB_API_KEY={VALUE}", "--hub-token", VALUE, "--x", "y"]) == 2
    told = capsys.readouterr().err
    assert VALUE not in told
    assert "WANDB_API_KEY=(set) --hub-token (set) --x y" in told


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("hub_token", True), ("logger.wandb.key", True), ("WANDB_API_KEY", True), ("token", True), ("key", True),
        ("apikey", True), ("db_password", True), ("lark_secret", True), ("--hub-token", True),
        ("data.prompt_key", False), ("data.input_key", False), ("data.label_key", False), ("data.reward_fn_key", False),
        ("ckpt.best_metric_key", False), ("max_new_tokens", False), ("max_token_len", False), ("eos_token", False),
        ("eos_token_id", False), ("data.image_key", False), ("loss_agg_mode", False),
    ],
)  # fmt: skip
def test_names_of_secrets(name, is_one):
    assert secrets.secret(name) is is_one
