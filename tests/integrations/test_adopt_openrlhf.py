"""What OpenRLHF does with settings that stand beside others, and where each word of a command is told."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from anygrpo.cli.main import main

COMMAND = "python -m openrlhf.cli.train_ppo_ray"
DOTTED = "--actor.model_name_or_path m/m --algo.advantage.estimator group_norm --rollout.n_samples_per_prompt 8"
OLD = "--pretrain m/m --advantage_estimator group_norm --n_samples_per_prompt 8"


@pytest.fixture
def moved(tmp_path, monkeypatch, capsys):
    """A command's end -> (recipe, account, what is lost, what needs none)."""
    monkeypatch.chdir(tmp_path)

    def made(start: str, end: str):
        Path("run.sh").write_text(f"{COMMAND} {start} {end}\n")
        assert main(["adopt", "run.sh", "--out", "out.toml", "--force", "--json"]) == 0
        account = json.loads(capsys.readouterr().out)
        told = ({one["theirs"]: one["why"] for one in account[part]} for part in ("no_counterpart", "needless"))
        return tomllib.loads(Path("out.toml").read_text()), account, *told

    return made


def test_a_whole_length_beside_an_answers_is_told(moved):
    recipe, _, lost, _ = moved(DOTTED, "--rollout.max_new_tokens 512 --data.max_len 4096")
    assert recipe["policy"]["max_new_tokens"] == 512
    assert "never cut" in lost["data.max_len"]


def test_a_function_scores_alone(moved):
    """With remote_url the model of reward.model_name_or_path is not loaded there."""
    given = "--reward.remote_url r.py --reward.model_name_or_path r/m"
    recipe, account, _, _ = moved(DOTTED, given)
    assert recipe["task"]["rewards"] == [{"function": "r.py:reward_func", "signature": "openrlhf"}]
    assert any("r/m is not loaded" in note for note in account["notes"])
    recipe, account, _, _ = moved(DOTTED, "--reward.model_name_or_path r/m")
    assert recipe["task"]["rewards"] == [{"kind": "reward_model", "model": "r/m"}]
    assert not any("not loaded" in note for note in account["notes"])


@pytest.mark.parametrize(("loss", "weight"), [("gspo", None), ("ppo", "truncate")])
def test_no_weight_is_applied_under_gspo(moved, loss, weight):
    given = f"--actor.policy_loss_type {loss} --algo.advantage.is_correction_enable"
    recipe, _, lost, _ = moved(DOTTED, given)
    assert recipe["algorithm"].get("importance") == weight
    assert ("algo.advantage.is_correction_enable" in lost) == (loss == "gspo")


@pytest.mark.parametrize(
    ("start", "end", "tokens"),
    [(OLD, "", 1024), (OLD, "--generate_max_len 300", 300), (OLD, "--max_len 4096", 4096), (DOTTED, "", 2048)],
)
def test_answers_of_older_commands_have_their_own_default(moved, start, end, tokens):
    recipe, account, _, _ = moved(start, end)
    assert recipe["policy"]["max_new_tokens"] == tokens
    assert any("versions up to 0.6" in note for note in account["notes"]) == (start == OLD)


def test_what_concerns_a_critic_is_no_matter_of_machines(moved):
    *_, lost, idle = moved(DOTTED, "--critic.adam.lr 9e-6 --critic.value_clip 0.2 --critic.freezing_steps 10")
    assert idle["critic.adam.lr"] == idle["critic.value_clip"] == "there is no critic"
    assert "no critic to wait for" in lost["critic.freezing_steps"]
    more = "--critic_learning_rate 9e-6 --value_clip 0.2 --freezing_actor_steps 10 --prompt_max_len 512 --zero_stage 3"
    *_, lost, idle = moved(OLD, more)
    assert idle["critic_learning_rate"] == idle["value_clip"] == "there is no critic"
    assert "how work is laid" in idle["zero_stage"]
    assert "never cut" in lost["prompt_max_len"]
    assert "critic.freezing_steps" in lost


def test_a_split_of_evaluation_is_moved_or_told_never_both(moved):
    recipe, _, lost, _ = moved(DOTTED, "--eval.dataset e/e --eval.split test")
    assert recipe["task"]["held_out_split"] == "test"
    assert "eval.split" not in lost
    recipe, _, lost, _ = moved(DOTTED, "--eval.split test")
    assert "held_out_split" not in recipe["task"]
    assert "a share of the prompts" in lost["eval.split"]


def test_a_routers_coefficient_is_moved_with_what_differs(moved):
    recipe, account, _, _ = moved(DOTTED, "--actor.aux_loss_coef 0.01")
    assert recipe["policy"]["router_loss"] == 0.01
    assert any("each row's own tokens" in note for note in account["notes"])
