"""The callback: its levers on a stand-in trainer, and both modes in the real TRL with a tiny model."""

from __future__ import annotations

import json
import math
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch

from anygrpo.errors import ConfigError
from anygrpo.integrations.trl import DoctorCallback, TrlLevers
from anygrpo.watch.levers import Setting

needs_trl = pytest.mark.skipif(find_spec("trl") is None, reason="needs TRL, which is a peer and no dependency")


def levers(tmp_path, beta=0.04, ref_model=None):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    trainer = SimpleNamespace(
        beta=beta,
        epsilon_low=0.2,
        epsilon_high=0.3,
        ref_model=ref_model,
        model=model,
        args=SimpleNamespace(output_dir=str(tmp_path)),
        accelerator=SimpleNamespace(unwrap_model=lambda m: m),
    )
    return TrlLevers(trainer, optimizer, scheduler, SimpleNamespace(should_training_stop=False)), trainer


def test_a_turn_scales_the_schedule_and_can_be_taken_back(tmp_path):
    made, trainer = levers(tmp_path)
    made.turn(Setting(0.1, 5.0, 0.5, 0.5))
    assert made.optimizer.param_groups[0]["lr"] == pytest.approx(1e-5)
    made.optimizer.step()
    made.scheduler.step()  # the scheduler keeps the factor
    assert made.optimizer.param_groups[0]["lr"] == pytest.approx(1e-5)
    assert (trainer.beta, trainer.epsilon_low, trainer.epsilon_high) == (0.5, 0.1, 0.15)
    made.turn(Setting())
    made.scheduler.step()
    assert made.optimizer.param_groups[0]["lr"] == pytest.approx(1e-4)
    assert (trainer.beta, trainer.epsilon_low) == (0.04, 0.2)


def test_beta_stays_0_where_there_is_no_reference(tmp_path):
    made, trainer = levers(tmp_path, beta=0.0)
    made.turn(Setting(beta_at_least=2.0))
    assert trainer.beta == 0.0


def test_roll_back_loads_the_newest_early_checkpoint_and_empties_the_moments(tmp_path):
    from safetensors.torch import save_file

    made, trainer = levers(tmp_path)
    for step, value in ((10, 1.0), (20, 2.0), (30, 3.0)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        weights = {n: torch.full_like(p, value) for n, p in trainer.model.state_dict().items()}
        save_file(weights, tmp_path / f"checkpoint-{step}" / "model.safetensors")
    trainer.model(torch.ones(1, 2)).sum().backward()
    made.optimizer.step()
    assert made.optimizer.state
    assert made.roll_back(25) == "checkpoint-20"
    assert bool((trainer.model.weight == 2.0).all())
    assert not made.optimizer.state
    assert made.roll_back(5) is None


def test_without_trl_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install trl"):
        DoctorCallback()


def tiny_trainer(tmp_path, callback, reward, **settings):
    """A one-layer Llama over letters in TRL's own GRPOTrainer."""
    import trl
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = {c: i for i, c in enumerate(["<pad>", "<eos>", *"abcdefgh"])}
    raw = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    raw.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>")
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=10, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                         num_attention_heads=2, num_key_value_heads=2, pad_token_id=0, eos_token_id=1)  # fmt: skip
    given = {"learning_rate": 5e-3, "max_steps": 14, "logging_steps": 1, "num_generations": 4} | settings
    args = trl.GRPOConfig(str(tmp_path), per_device_train_batch_size=8, max_completion_length=6, report_to=[],
                          use_cpu=True, disable_tqdm=True, save_strategy="no", **given)  # fmt: skip
    data = Dataset.from_list([{"prompt": c} for c in "abcdefgh"])
    trainer = trl.GRPOTrainer(LlamaForCausalLM(config), reward, args, train_dataset=data, processing_class=tokenizer,
                              callbacks=[callback])  # fmt: skip
    callback.trainer = trainer
    return trainer


@needs_trl
@pytest.mark.slow
def test_watching_the_real_trl(tmp_path, capsys):
    """A constant reward: said once, in TRL's words, and written down at the end."""
    callback = DoctorCallback(every=5)
    tiny_trainer(tmp_path, callback, lambda completions, **_: [0.5] * len(completions)).train()
    report = json.loads((tmp_path / "doctor.json").read_text())
    assert report["rows"] == 14
    heavy = [f["rule"] for f in report["findings"] if f["severity"] != "info"]
    assert heavy, report["findings"]
    assert heavy[0] in ("constant_reward", "starved_groups", "truncation", "zero_gradient")
    said = [f.rule for f in callback.findings if f.severity != "info"]
    assert said
    shown = capsys.readouterr().err
    assert [shown.count(f"[{rule},") for rule in said] == [said.count(rule) for rule in said]


@needs_trl
@pytest.mark.slow
def test_acting_in_the_real_trl(tmp_path):
    """Three steps with a loss that is not finite: the rate goes down, and the log says why."""

    class Broken(DoctorCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            if logs and 4 <= state.global_step <= 7:
                logs = {**logs, "loss": math.nan}
            super().on_log(args, state, control, logs, **kwargs)

    callback = Broken(mode="act", every=5)
    trainer = tiny_trainer(
        tmp_path,
        callback,
        lambda completions, **_: [c.count("a") / 6 for c in completions],
        lr_scheduler_type="constant",
    )
    trainer.train()
    assert [a.rule for a in callback.actor.actions] == ["nonfinite"]
    assert callback.actor.actions[0].after.learning_rate == pytest.approx(0.3)
    assert trainer.state.log_history[-2]["learning_rate"] == pytest.approx(5e-3 * 0.3)
    assert json.loads((tmp_path / "doctor.json").read_text())["actions"][0]["kind"] == "turn"


@needs_trl
@pytest.mark.slow
def test_acting_without_the_trainer_is_refused(tmp_path):
    callback = DoctorCallback(mode="act")
    trainer = tiny_trainer(tmp_path, callback, lambda completions, **_: [0.0] * len(completions))
    callback.trainer = None
    with pytest.raises(ConfigError, match=r"callback\.trainer = trainer"):
        trainer.train()
